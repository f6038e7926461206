"""Files of options (`--properties`): the one reader of every command and of the jobs in spark_jobs/.

The grammar is Java's, in UTF-8. An option of the producer may have the prefix `kafka.` or none, as in files for Kafka's
own tools, so one file serves a job, its check and its rescue. Each name and value is checked here, alone, where file
and line are known; what several options say together is checked by whoever parses them.

References in options that name no secret are resolved here. A secret remains a reference: it is looked up where a
connection is made, each time anew, and never becomes a part of a plan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.errors.table.writes import OPTION_UNKNOWN
from kafka_sink.options.engine import Draft
from kafka_sink.options.host.files import resolve_references
from kafka_sink.options.parse_sink import add_prefix, check_setting
from kafka_sink.options.properties import Property, parse_properties
from kafka_sink.options.security_options import SECRET_NAME
from kafka_sink.options.sink_options import is_envelope_option
from kafka_sink.options.values import two_values_error
from kafka_sink.security.reference import AS_WRITTEN, has_reference, is_like_reference

BYTE_ORDER_MARK = "\ufeff"
# Of `${NAME}`, and of `${env.NAME}` and the like.
_LAST_WORD = re.compile(r"(\w+)\}")


def read_settings(argument: str, name: str) -> dict[str, str]:
    """The options of a file, named as in a Spark job. `argument`: of the command line, which names the file."""
    draft, found, spelled = Draft(), dict[str, str](), dict[str, tuple[str, str]]()
    for each in parse_properties(read_text(argument, name), name).values():
        setting = draft.attempt(_read_setting, name, each)
        if setting is None:
            continue
        option, value = setting
        spelling, known = spelled.setdefault(option.lower(), (each.name, value))
        if known != value:
            draft.found.append(_at(name, each, two_values_error(spelling, each.name)))
        found[option] = value
    draft.raise_any(f"problems in {name}")
    return found


def _read_setting(file: str, each: Property) -> tuple[str, str]:
    name, value = add_prefix(each.name), each.value
    try:
        if has_reference(value) and not SECRET_NAME.search(name):
            value = resolve_references(each.name, value)
        check_setting(name, value)
    except ConfigError as error:
        if error.entry is OPTION_UNKNOWN and not each.has_separator:
            # Perhaps the end of a secret that was broken over two lines, so it is not shown.
            text = "NAME=VALUE is needed. The end of a value that goes on in the next line is a backslash"
            error = ConfigError(text, OPTION_UNKNOWN)
        raise _at(file, each, error) from None
    return name, value


def _at(file: str, each: Property, error: ConfigError) -> ConfigError:
    return ConfigError(f"{file}, line {each.line}: {error}", error.entry)


def reference_hints(settings: Mapping[str, str]) -> Iterator[str]:
    """About values that look like references and are none: they are used as they are written. A value is shown only
    if it names a variable of this process."""
    for name, value in settings.items():
        if not is_like_reference(value) or is_envelope_option(name.lower()):
            continue
        found = _LAST_WORD.search(value)
        if found is not None and found[1] in os.environ:
            yield f"{name} is taken as it is written: did you mean ${{env:{found[1]}}}?"
        else:
            yield f"{name} {AS_WRITTEN}"


def read_text(argument: str, name: str) -> str:
    content = read_argument_file(argument, name)
    try:
        return content.decode().removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = len(re.findall(rb"\r\n|\r|\n", content[: error.start])) + 1
        raise ConfigError(
            f"{argument} {name} cannot be read: line {line} is not UTF-8. \\u and four hexadecimal digits stand for a "
            "letter in every encoding, also for Kafka's own tools",
            COMMAND_WRONG,
        ) from None


def read_argument_file(argument: str, name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise ConfigError(f"{argument} {name} cannot be read: {error.strerror}", COMMAND_WRONG) from None
