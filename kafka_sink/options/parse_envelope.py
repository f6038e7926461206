"""Constant headers and CloudEvents: the options as rows, and parsing them into `EnvelopeOptions`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import EVENT_OPTION, HEADER_OPTION
from kafka_sink.options.format_names import AVRO, ENCODED, JSON, JSON_SCHEMA, PROTOBUF
from kafka_sink.options.option import Option
from kafka_sink.options.parse import OptionProblems
from kafka_sink.options.sink_options import (
    BINARY_MODE,
    CLOUDEVENTS,
    COLUMN,
    HEADER,
    PLACEHOLDER,
    STRUCTURED_MODE,
    TRACEPARENT,
    EnvelopeOptions,
)
from kafka_sink.options.values import ANY_TEXT, NOT_EMPTY, Choice

PLACEHOLDERS = ("query.id", "batch.id")
REQUIRED = ("type", "source")
# Attributes that the user cannot set.
_FIXED = {"specversion": "it is 1.0", "data": "it is the value", "data_base64": "it is the value"}
_ATTRIBUTE = re.compile(r"[a-z0-9]+")
_CONTENT_TYPES = {
    AVRO: "application/avro",
    PROTOBUF: "application/protobuf",
    JSON: "application/json",
    JSON_SCHEMA: "application/json",
}

_MODE = Choice((BINARY_MODE, STRUCTURED_MODE))
# NAME is chosen by the user.
ENVELOPE_OPTIONS = (
    Option("header.NAME", ANY_TEXT, "A header of every record, after those of the column headers. ${query.id} and "
           "${batch.id} are replaced by the sink's names of query and batch: in a stream, Spark's query id and the "
           "number of the micro-batch. Spark converts option names to lower case, including NAME."),
    Option("cloudevents", _MODE, "Records are CloudEvents 1.0. binary: the attributes are headers ce_NAME, the value "
           "is the data. structured: the value is a JSON object with attributes and data; the data is the JSON of "
           "value.format=json, or of a column value."),
    Option("cloudevents.NAME", NOT_EMPTY, "An attribute of every event, with the placeholders of header.NAME. type and "
           "source are required, here or from a column. id defaults to a combination of query, batch, Spark partition "
           "and row, which names one row only with exactly-once delivery. datacontenttype defaults to that of "
           "value.format, otherwise to application/json in structured mode."),
    Option("cloudevents.NAME.column", NOT_EMPTY, "The column with the attribute: string, whole number, boolean or "
           "timestamp. If it is null, the row does not have the attribute; record.errors handles a row without id, "
           "type or source. The column is also part of the value, unless value.columns leaves it out."),
)  # fmt: skip


def parse_envelope_options(
    settings: Mapping[str, str], value_format: str | None, trace_column: str | None, trace_of_task: bool
) -> EnvelopeOptions:
    """`trace_column` and `trace_of_task` are the options traceparent.column and traceparent.task."""
    problems = OptionProblems()
    headers: dict[str, str] = {}
    attributes: dict[str, str] = {}
    columns: dict[str, str] = {}
    mode = None
    for name, text in sorted(settings.items()):
        if name == CLOUDEVENTS:
            mode = problems.attempt(_MODE.parse, name, text)
        elif name.startswith(HEADER):
            problems.attempt(_take_header, headers, name, text)
        elif name.endswith(COLUMN) and name != f"{CLOUDEVENTS}{COLUMN}":  # that one is the attribute called column
            problems.attempt(_take_column, columns, name, text)
        else:
            problems.attempt(_take_attribute, attributes, name, text)
    against = _find_contradictions(mode, attributes, columns, value_format)
    problems.found += [ConfigError(text, EVENT_OPTION) for text in against]
    if TRACEPARENT in headers and (trace_column is not None or trace_of_task):
        other = f"{TRACEPARENT}.task" if trace_column is None else f"{TRACEPARENT}{COLUMN}"
        text = f"{HEADER}{TRACEPARENT} and {other} are both set, and a record has one trace: keep one"
        problems.found.append(ConfigError(text, HEADER_OPTION))
    problems.raise_any()
    content_type = None if value_format is None else _CONTENT_TYPES.get(value_format)
    if mode == STRUCTURED_MODE and content_type is None:
        content_type = "application/json"
    return EnvelopeOptions(
        headers=tuple(headers.items()),
        mode=mode,
        attributes=tuple(attributes.items()),
        attribute_columns=tuple(columns.items()),
        content_type=content_type,
        has_own_json=value_format == JSON,
        traceparent_column=trace_column,
        has_traceparent_of_task=trace_of_task,
    )


def _find_contradictions(
    mode: str | None, attributes: Collection[str], columns: Collection[str], value_format: str | None
) -> list[str]:
    given = {*attributes, *columns}
    if mode is None:
        names = ", ".join(f"{CLOUDEVENTS}.{name}" for name in sorted(given))
        return [f"{names}: set {CLOUDEVENTS}={BINARY_MODE} or {STRUCTURED_MODE}"] if given else []
    problems = [
        f"{CLOUDEVENTS}={mode} needs {CLOUDEVENTS}.{name}, or {CLOUDEVENTS}.{name}{COLUMN}"
        for name in REQUIRED
        if name not in given
    ]
    problems += [
        f"{CLOUDEVENTS}.{name} and {CLOUDEVENTS}.{name}{COLUMN} are both set: keep one"
        for name in sorted(set(attributes) & set(columns))
    ]
    if mode == STRUCTURED_MODE and "datacontenttype" in columns:
        problems.append(f"{CLOUDEVENTS}.datacontenttype{COLUMN}: with {STRUCTURED_MODE} it is the same for all rows")
    if mode == STRUCTURED_MODE and value_format in ENCODED and value_format != JSON:
        problems.append(
            f"{CLOUDEVENTS}={STRUCTURED_MODE} puts the data into a JSON object, which value.format={value_format} is "
            f"not made for: use value.format={JSON}, or {CLOUDEVENTS}={BINARY_MODE}"
        )
    return problems


def _take_header(headers: dict[str, str], name: str, text: str) -> None:
    header = name.removeprefix(HEADER)
    if not header:
        raise ConfigError(f"{name}: a header needs a name, as in {HEADER}source", HEADER_OPTION)
    headers[header] = _check_placeholders(name, text)


def _take_column(columns: dict[str, str], name: str, text: str) -> None:
    columns[_parse_attribute_name(name.removesuffix(COLUMN), name)] = NOT_EMPTY.parse(name, text)


def _take_attribute(attributes: dict[str, str], name: str, text: str) -> None:
    attributes[_parse_attribute_name(name, name)] = _check_placeholders(name, NOT_EMPTY.parse(name, text))


def _parse_attribute_name(name: str, option: str) -> str:
    attribute = name.removeprefix(f"{CLOUDEVENTS}.")
    if attribute in _FIXED:
        raise ConfigError(f"{option} cannot be set: {_FIXED[attribute]}", EVENT_OPTION)
    if not _ATTRIBUTE.fullmatch(attribute):
        raise ConfigError(f"{option}: names of attributes are made of small letters and digits", EVENT_OPTION)
    return attribute


def _check_placeholders(option: str, text: str) -> str:
    for name in PLACEHOLDER.findall(text):
        if name not in PLACEHOLDERS:
            known = " and ".join(f"${{{each}}}" for each in PLACEHOLDERS)
            raise ConfigError(f"{option}: ${{{name}}} is no placeholder; there are {known}", HEADER_OPTION)
    return text
