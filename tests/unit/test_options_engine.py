"""The engine that reads options by a table, and what the tables promise it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen
from kafka_sink.options import ProducerOptions, SecurityOptions
from kafka_sink.options.engine import Table, check_needs, fill, find_option, out_of_scope, read
from kafka_sink.options.envelope_table import ENVELOPE_OPTIONS
from kafka_sink.options.format_table import FORMAT_OPTIONS, REGISTRY_OPTIONS
from kafka_sink.options.option import Needs, Option, Treatment
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import EnvelopeOptions, SinkOptions, TelemetryOptions
from kafka_sink.options.sink_table import SINK_OPTIONS
from kafka_sink.options.table import OPTIONS
from kafka_sink.options.values import ANY_TEXT, FLAG, INT

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
TABLES = {"sink": SINK_OPTIONS, "formats": {**FORMAT_OPTIONS, **REGISTRY_OPTIONS}, "producer": OPTIONS,
          "envelope": ENVELOPE_OPTIONS}  # fmt: skip

ROWS = (
    Option("tea.cups", INT, "How many.", default=1),
    Option("tea.sugar", FLAG, "With sugar.", default=False, needs=Needs(("tea.spoon",), "{name} needs {needed}")),
    Option("tea.spoon", ANY_TEXT, "What to stir with.", into="spoon", scope=("tea.sugar=true",)),
    Option("tea.note.NAME", ANY_TEXT, "What the waiter should know.", into="notes"),
)


@frozen
class Tea:
    tea_cups: int
    tea_sugar: bool
    spoon: str | None
    notes: tuple[tuple[str, str], ...]


def unknown(name: str) -> ConfigError:
    return ConfigError(f"no {name}")


TEA = Table({row.name: row for row in ROWS}, unknown, ignores_case=True)


def test_a_row_and_a_field_are_enough_for_an_option() -> None:
    draft = read(TEA, {"Tea.Cups": "3", "tea.note.table": "4", "tea.note.door": "left"})
    assert Tea(**fill(Tea, TEA.options, draft)) == Tea(3, False, None, (("door", "left"), ("table", "4")))


def test_problems_are_kept_and_the_rest_is_read() -> None:
    draft = read(TEA, {"tea.cups": "x", "tea.milk": "1", "tea.sugar": "true"})
    assert draft.values["tea.sugar"] is True and draft.values["tea.cups"] is None
    with pytest.raises(ConfigError) as raised:
        draft.raise_any()
    assert [str(each) for each in raised.value.several] == [
        "tea.cups='x' is not valid: expected a whole number from 0 to 2147483647", "no tea.milk",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "found"), [({"tea.sugar": "true"}, ["tea.sugar needs tea.spoon"]), ({"tea.sugar": "false"}, [])]
)
def test_an_option_without_what_it_needs_is_refused_unless_it_has_its_default(
    given: Mapping[str, str], found: list[str]
) -> None:
    draft = read(TEA, given)
    check_needs(TEA.options, draft)
    assert [str(each) for each in draft.found] == found


def test_an_option_out_of_its_scope_is_named() -> None:
    assert out_of_scope(TEA.options, read(TEA, {"tea.spoon": "silver"})) == ["tea.spoon"]
    assert out_of_scope(TEA.options, read(TEA, {"tea.cups": "2"})) == []


@pytest.mark.parametrize("table", TABLES)
def test_what_an_option_needs_and_its_scope_are_options_of_its_table_with_values_that_they_can_have(table: str) -> None:
    rows = TABLES[table]
    for row in rows.values():
        for condition in (*row.scope, *(() if row.needs is None else row.needs.any_of)):
            name, has_value, value = condition.partition("=")
            assert rows[name].treatment is Treatment.HONOURED
            assert not has_value or rows[name].rule.parse(name, value) == value, condition


def test_each_option_fills_a_field_of_its_name() -> None:
    own = {each.name for each in fields(SinkOptions)}
    of_telemetry = {"metrics_" + each.name for each in fields(TelemetryOptions)} | {
        each.name for each in fields(TelemetryOptions)
    }
    # Those of `envelope`, which together make one field, have no name.
    elsewhere = {"metrics_enabled", "traceparent_column", "traceparent_task", ""}
    assert {row.field for row in SINK_OPTIONS.values()} - own - of_telemetry == elsewhere
    assert {row.field for row in ENVELOPE_OPTIONS.values()} < {each.name for each in fields(EnvelopeOptions)}
    renamed = {row.name: row.field for row in OPTIONS.values() if row.field not in ("", row.name.replace(".", "_"))}
    assert renamed == {"partitioner.class": "partitioner", "interceptor.classes": "interceptors"}


def test_a_name_that_only_begins_like_a_row_with_a_name_is_none() -> None:
    assert find_option(SINK_OPTIONS, "topic.config.") is None
    assert find_option(SINK_OPTIONS, "topic.config.retention.ms") is SINK_OPTIONS["topic.config.NAME"]
    assert find_option(ENVELOPE_OPTIONS, "cloudevents.column") is ENVELOPE_OPTIONS["cloudevents.NAME"]


def test_a_registry_is_no_producer() -> None:
    given = {**SERVERS, "value.format": "avro", "schema.registry.url": "https://r", "kafka.security.protocol": "SSL"}
    options = parse_sink_options({**given, "schema.registry.ssl.truststore.location": "/ca.pem"})
    assert options.formats is not None and options.formats.registry is not None
    login = options.formats.registry.login
    assert isinstance(login, SecurityOptions) and not isinstance(login, ProducerOptions)
    assert (login.security_protocol, login.ssl_truststore_location) == ("SSL", "/ca.pem")
    assert options.producer.ssl_truststore_location is None


@pytest.mark.parametrize("name", ["latest.cache.ttl.sec", "schema.registry.latest.cache.ttl.sec"])
def test_a_refused_value_is_said_with_the_name_that_was_written(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}='x' is not valid"):
        parse_sink_options({**SERVERS, "value.format": "avro", "schema.registry.url": "https://r", name: "x"})


def test_every_option_that_lacks_what_it_needs_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        parse_sink_options({**SERVERS, "lineage.job": "j", "metrics.timeout.ms": "7"})
    assert [str(each).split()[0] for each in raised.value.several] == ["metrics.timeout.ms", "lineage.job"]
