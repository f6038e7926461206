"""The options of formats, schemas and the registry -> `FormatOptions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.error_table.commits import SCHEMA_MISSING
from kafka_sink.error_table.writes import OPTION_MISSING, OPTIONS_CONTRADICT
from kafka_sink.errors import ConfigError
from kafka_sink.options.format_names import EVERY_COLUMN, FORMAT_ALIASES, JSON_SCHEMA, PROTOBUF, WITH_SCHEMA
from kafka_sink.options.format_options import FormatOptions, SideFormat
from kafka_sink.options.format_table import FORMAT_OPTIONS
from kafka_sink.options.parse_registry import parse_registry_options
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.registry_names import REGISTRY, SIDES
from kafka_sink.options.registry_options import SchemaOptions


def parse_format_options(settings: Mapping[str, str], kafka: ProducerOptions) -> tuple[FormatOptions, tuple[str, ...]]:
    """`settings`: those for which `is_format_option` says so. And notices."""
    canonical: dict[str, str] = {}
    for given, text in settings.items():
        name = FORMAT_ALIASES.get(given, given)
        if canonical.get(name, text) != text:
            raise ConfigError(
                f"{given} and {name} mean the same and have different values: keep one", OPTIONS_CONTRADICT
            )
        canonical[name] = text
    own: dict[str, Any] = {name: option.default for name, option in FORMAT_OPTIONS.items()}
    of_registry: dict[str, str] = {}
    for name, text in canonical.items():
        if name in FORMAT_OPTIONS:
            own[name] = FORMAT_OPTIONS[name].rule.parse(name, text)
        else:
            of_registry[name] = text
    registry = parse_registry_options(of_registry, kafka)
    sides = {"value": registry.value, "key": registry.key}
    for side in SIDES:
        _check_side(side, own, of_registry, sides[side])
    if registry.registry is not None and not any(own[f"{side}.format"] in WITH_SCHEMA for side in SIDES):
        raise ConfigError(
            f"{REGISTRY}url is set, but neither value.format nor key.format is one of {', '.join(sorted(WITH_SCHEMA))}",
            OPTION_MISSING,
        )
    made = {side: _side(side, own, sides[side]) for side in SIDES}
    return FormatOptions(registry.registry, made["value"], made["key"]), registry.notices


def _side(side: str, own: Mapping[str, Any], schema: SchemaOptions) -> SideFormat | None:
    if own[f"{side}.format"] is None:
        return None
    return SideFormat(own[f"{side}.format"], schema, own.get(f"{side}.columns"), own[f"{side}.record.name"])


def _check_side(side: str, own: Mapping[str, Any], of_registry: Mapping[str, str], schema: SchemaOptions) -> None:
    chosen = own[f"{side}.format"]
    columns = own.get(f"{side}.columns")
    if columns is not None and chosen is None:
        raise ConfigError(f"{side}.columns needs {side}.format: it says what is made of the columns", OPTION_MISSING)
    if columns is not None and EVERY_COLUMN in columns and len(columns) > 1:
        raise ConfigError(f"{side}.columns is either {EVERY_COLUMN} or a list of names", OPTIONS_CONTRADICT)
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        raise ConfigError(f"{side}.columns names no column, or one twice", OPTIONS_CONTRADICT)
    if chosen not in WITH_SCHEMA:
        named = [name for name in of_registry if name.startswith((f"{side}.schema", f"{side}.subject"))]
        if named or own[f"{side}.record.name"] is not None:
            name = named[0] if named else f"{side}.record.name"
            formats = ", ".join(sorted(WITH_SCHEMA))
            raise ConfigError(
                f"{name} needs {side}.format to be one of {formats}, and it is {chosen or 'not set'}", OPTION_MISSING
            )
    has_schema = schema.text is not None or schema.identity is not None or schema.version is not None
    if chosen == PROTOBUF and not has_schema:
        raise ConfigError(
            f"{side}.format={PROTOBUF} needs a schema, since field numbers cannot be made from columns: {side}.schema, "
            f"{side}.schema.id, {side}.schema.version or use.latest.version=true",
            SCHEMA_MISSING,
        )
    if chosen == JSON_SCHEMA and own[f"{side}.record.name"] is not None and has_schema:
        raise ConfigError(
            f"{side}.record.name is the title of a schema that is made from the columns; here one is given",
            OPTIONS_CONTRADICT,
        )
