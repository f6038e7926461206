"""What options may name on a host, where whoever operates Spark limits it by environment variables.

For platforms whose users write SQL and must not read files or variables of the driver: without a limit an option can
send any of them to a server of the user's choice, as a password. Users of SQL cannot change the environment of running
processes; users who may run Python there need no option to read files.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import NOT_ALLOWED_HERE

# Folders separated by colons, names separated by commas with * for any letters; `none`. Not set: no limit.
FILES, VARIABLES, NONE = "PYKAFKA_SINK_FILES", "PYKAFKA_SINK_VARIABLES", "none"


def is_allowed_file(path: Path) -> bool:
    rule = os.environ.get(FILES)
    if rule is None:
        return True
    # Behind links and dots: what would be opened.
    real = Path(os.path.realpath(path))
    folders = [os.path.realpath(folder) for folder in rule.split(":") if os.path.isabs(folder)]
    return any(real.is_relative_to(folder) for folder in folders)


def check_file_is_allowed(option: str, path: Path) -> None:
    """Also of files that do not exist: the answer would tell which ones do."""
    if not is_allowed_file(path):
        raise file_error(option)


def check_store_is_allowed(option: str) -> None:
    """Of credentials that are in no file, but in the memory of this process or of the host: whose they are is not
    known."""
    if FILES in os.environ:
        raise file_error(option)


def file_error(option: str) -> ConfigError:
    return _error(f"{option} names a file", FILES, "folders")


def check_variable_is_allowed(option: str, name: str) -> None:
    rule = os.environ.get(VARIABLES)
    if rule is not None and not any(fnmatchcase(name, each.strip()) for each in rule.split(",")):
        raise _error(f"{option} refers to a variable of the environment", VARIABLES, "names")


def _error(what: str, rule: str, kind: str) -> ConfigError:
    value = os.environ[rule].strip()
    allowed = f"only these {kind}: {value}" if value not in ("", NONE) else "none"
    return ConfigError(f"{what} that is not allowed on this host: {rule} allows {allowed}", NOT_ALLOWED_HERE)
