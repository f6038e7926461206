"""`schema show` and `schema check`: the schema to register for columns, and whether they fit the registered one.

Columns are given as `df.schema.json()`, as DDL, or as a file with either. Nothing is registered here.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.formats.registry.rules import SchemaRule
from kafka_sink.formats.schemas.spark_types import parse_struct
from kafka_sink.operate.cli.brokers import read_options, typed_options
from kafka_sink.operate.cli.report import DONE, OPEN, Report
from kafka_sink.operate.cli.streams import write_error
from kafka_sink.options.format_names import ENCODED, JSON, PROTOBUF, is_format_option
from kafka_sink.options.format_options import RegistryOptions, SideFormat
from kafka_sink.options.host.properties_file import read_argument_file
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.parse_formats import parse_format_options
from kafka_sink.spark.formats.schema_registry import find_latest_rules
from kafka_sink.spark.formats.side_planning import derive_schema, plan_side


def show(given: argparse.Namespace) -> Report:
    """With a registry, also the rules of the subject's latest version: a new version inherits them."""
    kind = _kind(given.columns, given.column)
    registry, chosen = _format(given)
    if chosen.format in (PROTOBUF, JSON):
        raise ConfigError(f"{given.side}.format={chosen.format}: no schema is made from columns", COMMAND_WRONG)
    derived = derive_schema(chosen.format, kind, chosen.record_name)
    content: dict[str, Any] = {"schema": json.loads(derived.text)}
    if registry is not None:
        content["rules"] = None
        try:
            rules = find_latest_rules(registry, chosen, given.topic, derived.fullname)
        except KafkaSinkError as error:
            write_error(f"rules of the schema are not known: {error}\n")
        else:
            content["rules"] = _list_rules(rules)
            # The schema alone is what goes to standard output, to be piped to where it is registered.
            write_error("".join(f"{_describe_rule(rule)}\n" for rule in rules))
    return Report(DONE, content, [json.dumps(content["schema"], indent=2, ensure_ascii=False)])


def check(given: argparse.Namespace) -> Report:
    """By the registry's current schema. An unregistered schema is not an error of the columns, so the text says whether
    it could be registered."""
    kind = _kind(given.columns, given.column)
    registry, chosen = _format(given)
    try:
        _, resolved = plan_side(given.side, chosen, registry, kind, given.topic)
    except ConfigError as error:
        return Report(OPEN, {"fits": False, "text": str(error)}, [str(error)])
    found: dict[str, Any] = dict.fromkeys(("subject", "version", "id", "guid"))
    if resolved is not None:
        values = (resolved.subject or None, resolved.version, resolved.schema_id, resolved.guid)
        found = dict(zip(found, values, strict=True))
    about = ", ".join(f"{name} {value}" for name, value in found.items() if value is not None)
    rules = () if resolved is None else resolved.rules or ()
    lines = [f"the columns fit: {about or f'{given.side}.format={chosen.format}'}", *map(_describe_rule, rules)]
    return Report(DONE, {"fits": True, **found, "rules": _list_rules(rules)}, lines)


def _list_rules(rules: Sequence[SchemaRule]) -> list[dict[str, Any]]:
    return [{**asdict(rule), "is_for_writers": rule.is_for_writers} for rule in rules]


def _describe_rule(rule: SchemaRule) -> str:
    return f"rule {rule}: {'for writers' if rule.is_for_writers else 'not for writers'}"


def _format(given: argparse.Namespace) -> tuple[RegistryOptions | None, SideFormat]:
    settings = {name.lower(): value for name, value in read_options(given).items()}
    for name in typed_options(given):
        if not is_format_option(name.lower()):
            raise ConfigError(f"{name} is no option of formats, schemas or the registry", COMMAND_WRONG)
    settings = {name: value for name, value in settings.items() if is_format_option(name)}
    if given.format is not None:
        settings[f"{given.side}.format"] = given.format
    if given.record_name is not None:
        settings[f"{given.side}.record.name"] = given.record_name
    # Never connected to: this command does not know settings that the registry could inherit.
    kafka = parse_producer_options({"bootstrap.servers": "localhost:9092"})
    # Showing must not register.
    options = parse_format_options({**settings, "auto.register.schemas": "false"}, kafka)
    chosen = options.value if given.side == "value" else options.key
    if chosen is None or chosen.format not in ENCODED:
        raise ConfigError(
            f"the format of the {given.side} is not named: add --format, one of {', '.join(ENCODED)}", COMMAND_WRONG
        )
    return options.registry, chosen


def parse_columns(columns: str) -> pa.StructType:
    """From a text or a file."""
    is_text = any(mark in columns for mark in " {<")
    if not is_text or os.path.isfile(columns):  # unlike the method of a path it never raises
        try:
            columns = read_argument_file("--columns", columns).decode()
        except UnicodeDecodeError:
            raise ConfigError(f"--columns {columns} cannot be read: the file is not UTF-8", COMMAND_WRONG) from None
    return parse_struct(columns)


def _kind(columns: str, column: str | None) -> pa.DataType:
    kind = parse_columns(columns)
    if column is None:
        return kind
    if kind.get_field_index(column) < 0:
        raise ConfigError(f"--column {column}: there is no such column", COMMAND_WRONG)
    return kind.field(kind.get_field_index(column)).type
