"""The options of constant headers and CloudEvents -> `EnvelopeOptions`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import EVENT_OPTION, HEADER_OPTION
from kafka_sink.options.engine import Table, check_alone, check_needs, fill, read
from kafka_sink.options.envelope_table import ENVELOPE_OPTIONS, check_attribute_name
from kafka_sink.options.format_names import AVRO, ENCODED, JSON, JSON_SCHEMA, PROTOBUF
from kafka_sink.options.sink_options import (
    BINARY_MODE,
    CLOUDEVENTS,
    COLUMN,
    HEADER,
    STRUCTURED_MODE,
    TRACEPARENT,
    EnvelopeOptions,
)

REQUIRED = ("type", "source")
_CONTENT_TYPES = {
    AVRO: "application/avro",
    PROTOBUF: "application/protobuf",
    JSON: "application/json",
    JSON_SCHEMA: "application/json",
}


def parse_envelope_options(
    settings: Mapping[str, str], value_format: str | None, trace_column: str | None, trace_of_task: bool
) -> EnvelopeOptions:
    """`trace_column` and `trace_of_task` are the options traceparent.column and traceparent.task."""
    draft = read(_ENVELOPE, dict(sorted(settings.items())))
    check_needs(ENVELOPE_OPTIONS, draft)
    found = fill(EnvelopeOptions, ENVELOPE_OPTIONS, draft)
    mode, headers = found["mode"], dict(found["headers"])
    attributes, columns = (
        {name for name, value in found[each] if value} for each in ("attributes", "attribute_columns")
    )
    against = _find_contradictions(mode, attributes, columns, value_format)
    draft.found += [ConfigError(text, EVENT_OPTION) for text in against]
    if TRACEPARENT in headers and (trace_column is not None or trace_of_task):
        other = f"{TRACEPARENT}.task" if trace_column is None else f"{TRACEPARENT}{COLUMN}"
        text = f"{HEADER}{TRACEPARENT} and {other} are both set, and a record has one trace: keep one"
        draft.found.append(ConfigError(text, HEADER_OPTION))
    if found["row_id_header"] is not None and found["row_id_header"].lower() in headers:
        text = f"{HEADER}{found['row_id_header']} and row.id.header are both set for one header: keep one"
        draft.found.append(ConfigError(text, HEADER_OPTION))
    draft.raise_any()
    content_type = None if value_format is None else _CONTENT_TYPES.get(value_format)
    if mode == STRUCTURED_MODE and content_type is None:
        content_type = "application/json"
    return EnvelopeOptions(
        **found,
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


def check_envelope_option(name: str, value: object) -> None:
    check_alone(_ENVELOPE, name, value)


def _explain_unknown(name: str) -> ConfigError:
    """Of the two prefixes without a name."""
    if name == HEADER:
        return ConfigError(f"{name}: a header needs a name, as in {HEADER}source", HEADER_OPTION)
    check_attribute_name(name, name)
    raise AssertionError("an attribute without a name has been refused")


_ENVELOPE = Table(ENVELOPE_OPTIONS, _explain_unknown)
