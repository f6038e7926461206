"""The line about readers that may wait: who, until when, and a command that can be pasted."""

from __future__ import annotations

import shlex

import pytest

from kafka_sink.commit.receipt import BatchKey, TaskReceipt, WrittenPartition
from kafka_sink.commit.sweep import NOT_LISTED, NOT_VERIFIED
from kafka_sink.operate.cli.arguments import parse_arguments
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.driver import TOPICS_SHOWN_MAX, waiting_text

SETTINGS = {"kafka.bootstrap.servers": "a:9092,[::1]:9093", "topic": "rows", "kafka.transaction.timeout.ms": "60000"}


def told(*topics: str, notes: tuple[str, ...] = (), **settings: str) -> str:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    options = parse_sink_options({name: value for name, value in {**SETTINGS, **named}.items() if value})
    written = tuple(WrittenPartition(topic, 0, 1, 0, 0) for topic in topics)
    receipts = [TaskReceipt(BatchKey("", "monday"), "run", 0, 0, written=written)]
    return waiting_text(options, "orders", receipts, notes, now_s=0)


def test_the_line_names_topics_the_time_and_a_command_that_the_command_line_takes() -> None:
    text = told("more")
    assert text.startswith("read_committed readers of more, rows may wait until 1970-01-01 00:01:00 UTC (transaction.")
    program, *words = shlex.split(text.split("`")[1])
    given = parse_arguments(words)
    assert program == "pykafka-sink" and given.abort
    assert (given.bootstrap_servers, given.sink_id) == ("a:9092,[::1]:9093", "orders")


def test_a_ledger_of_the_users_own_and_a_login_are_part_of_the_command() -> None:
    text = told(ledger_topic="own", kafka_security_protocol="SSL")
    assert "--properties client.properties --ledger-topic own --sink-id orders` ends them at once" in text
    assert "client.properties stands for a file" in text


def test_many_topics_are_counted_and_unknown_ones_are_not_made_up() -> None:
    text = told(*(f"t{number}" for number in range(TOPICS_SHOWN_MAX + 2)), topic="")
    assert "t7 and 2 topics more may wait" in text
    assert told(topic="").startswith("read_committed readers of the topics of this write may wait")


@pytest.mark.parametrize("note", [NOT_VERIFIED, NOT_LISTED], ids=["not verified", "not listed"])
def test_no_command_is_named_where_brokers_offer_none(note: str) -> None:
    assert told(notes=(note,)).endswith("; these brokers offer no way to end them sooner")
