"""`pykafka-sink resolve --set-aside`, and a choice about another cluster's decision, on embedded broker and Kafka."""

from __future__ import annotations

import io
import re
import shlex
import sys
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from kafka_sink.commit import ledger_codec
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, ledger_key
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import CommitAborted, KafkaSinkError
from kafka_sink.testing import EmbeddedBroker
from tests.support.asking import client_of
from tests.support.commanding import Shell, Sink, rows
from tests.support.foreign_records import put
from tools.kafka_cluster import KafkaCluster

BATCH, NEXT = BatchKey("query-1", 0), BatchKey("query-1", 1)
RUN, NEXT_RUN = "a" * 16, "f" * 16
LEDGER = "ledger"


def record_of(sink: Sink, key: BatchKey, **more: object) -> LedgerRecord:
    record = LedgerRecord(Kind.DONE, sink.sink_id, key, RUN, row_count=20, topics={sink.topic: 20})
    return replace(record, **more)  # type: ignore[arg-type]


def poison(sink: Sink, key: BatchKey = BATCH) -> None:
    """A record as an earlier release wrote it: 10,001 topics could be encoded but not decoded."""
    record = record_of(sink, key, topics={f"t{number}": 1 for number in range(10_001)})
    put(sink, ledger_key(sink.sink_id, key), ledger_codec._encode(ledger_codec._content(record)))


def test_a_poisoned_sink_is_shown_set_aside_and_goes_on(sink: Sink, shell: Shell) -> None:
    check_set_aside(sink, shell)


def test_a_poisoned_sink_is_set_aside_on_apache_kafka(sink_on_kafka: Sink, shell: Shell) -> None:
    check_set_aside(sink_on_kafka, shell)


def check_set_aside(sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    poison(sink)
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 4 and sink.command(f"resolve --set-aside | --key {sink.sink_id}") in shown.out
    recovered = shell.about(sink, "recover")
    assert recovered.exit_code == 4 and "resolve --set-aside" in recovered.err
    sink.run = NEXT_RUN
    with pytest.raises(CommitAborted, match="topics are no object of at most 10000"):
        sink.deliver(NEXT)

    done = shell.about(sink, "resolve", "--set-aside", "--yes", "--json")
    assert done.exit_code == 0 and done.content["conclusion"] == "set aside"
    for consequence in ("is fenced", "nobody finishes it", "ledger.accept.new.sink=true"):
        assert consequence in done.err
    assert "no record of sink" in shell.about(sink, "ledger").err
    with pytest.raises(CommitAborted, match=r"ledger\.accept\.new\.sink=true"):
        sink.deliver(NEXT)
    sink.accepts_new_sink = True
    sink.deliver(NEXT)
    assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))
    assert shell.about(sink, "ledger").exit_code == 0


def test_whether_a_transaction_is_decided_is_not_known_beside_an_unreadable_record(sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    sink.task(NEXT, 7)
    (known,) = shell.about(sink, "transactions", "--json").content["transactions"]
    assert known["is_decided"] is False
    poison(sink)
    shown = shell.about(sink, "transactions", "--json")
    (unknown,) = shown.content["transactions"]
    assert (shown.exit_code, unknown["is_decided"]) == (4, None) and "may be a decision" in shown.content["notes"][0]
    assert "  ?  " in shell.about(sink, "transactions").out
    assert shell.about(sink, "transactions", "--abort", "--yes").exit_code == 4
    assert len(shell.about(sink, "transactions", "--json").content["transactions"]) == 1


def test_nothing_is_set_aside_while_everything_can_be_read(sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    said = shell.about(sink, "resolve", "--set-aside", "--yes")
    assert said.exit_code == 0 and "nothing to set aside" in said.out
    sink.run = NEXT_RUN
    sink.deliver(NEXT)


@pytest.mark.parametrize(("answer", "exit_code"), [("no\n", 1), ("", 2)])
def test_nothing_is_set_aside_without_a_yes(
    answer: str, exit_code: int, sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(sink)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    refused = shell.about(sink, "resolve", "--set-aside")
    assert refused.exit_code == exit_code and "nothing was changed" in refused.err and "Go on?" in refused.err
    assert shell.about(sink, "ledger").exit_code == 4


def test_of_several_unreadable_records_one_is_chosen_by_its_key(sink: Sink, shell: Shell) -> None:
    for label in ("a", "b"):
        poison(sink, BatchKey("", label))
    ambiguous = shell.about(sink, "resolve", "--set-aside", "--yes")
    assert ambiguous.exit_code == 2
    choices = [sink.command(f"resolve --set-aside | --key orders/{label}") for label in ("a", "b")]
    assert f"`{choices[0]}` or `{choices[1]}`" in ambiguous.err
    assert shell.about(sink, "resolve", "--set-aside", "--yes", "--key", "orders/c").exit_code == 0
    assert shell.about(sink, "resolve", "--set-aside", "--yes", "--key", "orders/b").exit_code == 0
    (left,) = shell.about(sink, "ledger", "--json").content["unreadable"]
    assert left["ledger_key"] == "orders/a"


def test_records_that_are_too_large_or_too_many_stop_one_sink_and_its_command_sets_them_aside(
    sink: Sink, shell: Shell
) -> None:
    sink.deliver(BATCH)
    other = replace(sink, sink_id="payments")
    put(other, other.sink_id, b"0" * 10 * 2**20)
    put(other, "x", b"?", 10_001)
    sink.deliver(NEXT)
    assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))
    assert shell.about(sink, "ledger").exit_code == 0 and shell.about(sink, "recover").exit_code == 0

    with pytest.raises(CommitAborted, match="at most 8388608 are read"):
        other.deliver(BATCH)
    assert shell.about(other, "resolve", "--set-aside", "--yes").exit_code == 0
    assert "no record of sink" in shell.about(other, "ledger").err


def test_a_key_that_is_not_utf8_is_set_aside_under_its_own_bytes(
    broker: EmbeddedBroker, sink: Sink, shell: Shell
) -> None:
    sink.deliver(BATCH)
    for key in (b"orders/\xff", b"orders/\xfe"):
        put(sink, key, b"?")
    shown = shell.about(sink, "ledger", "--json").content["unreadable"]
    assert [each["ledger_key"] for each in shown] == ["orders/\udcfe", "orders/\udcff"]
    assert shell.about(sink, "resolve", "--set-aside", "--yes", "--key", "orders/\udcff").exit_code == 0
    (left,) = shell.about(sink, "ledger", "--json").content["unreadable"]
    assert left["ledger_key"] == "orders/\udcfe"
    assert [record.key for record in broker.records(LEDGER) if record.value is None] == [b"orders/\xff"]


def test_the_command_that_is_shown_can_be_typed_whatever_a_key_holds(sink: Sink, shell: Shell) -> None:
    poison(sink, BatchKey("", "it's; a run"))
    put(sink, "\x1b[31mx; touch y", b"?")
    shown = shell("ledger", "--bootstrap-server", sink.servers, "--ledger-topic", LEDGER)
    assert shown.exit_code == 4 and "\x1b" not in shown.out and "'\\x1b[31mx; touch y': the record at" in shown.out
    (command,) = re.findall("`(.*)`", shown.out)
    program, *words = shlex.split(command)
    assert program == "pykafka-sink"
    assert "was set aside" in shell(*words, "--yes").out


def test_a_record_of_another_sink_than_its_keys_is_not_believed(sink: Sink, shell: Shell) -> None:
    entry = TransactionEntry(0, 0, 4711, 3, 2, "t", 0, 9, 20)
    for key, other in (("orders", "x; touch y"), ("a; b", "a; b"), ("a", "b")):
        record = replace(record_of(sink, BATCH, kind=Kind.INTENT, entries=(entry,)), sink_id=other)
        put(sink, key, ledger_codec.encode_record(record))
    shown = shell("ledger", "--bootstrap-server", sink.servers, "--ledger-topic", LEDGER, "--json")
    assert (shown.exit_code, len(shown.content["unreadable"]), shown.content["decisions"]) == (4, 3, [])
    with pytest.raises(CommitAborted, match="other than those in its key"):
        sink.deliver(NEXT)


def test_names_in_a_ledger_do_not_steer_a_terminal(sink: Sink, shell: Shell) -> None:
    put(sink, "orders", ledger_codec.encode_record(record_of(sink, BatchKey("\x1b[31m", 0), label="\x9b2J")))
    shown = shell.about(sink, "ledger")
    assert "\\x9b2J" in shown.out and "0 of \\x1b[31m" in shown.out
    assert not {"\x1b", "\x9b"}.intersection(shown.out)


# ---- a ledger that was copied from another cluster --------------------------------------------------------------


@pytest.mark.parametrize(("choice", "verdict"), [("--accept", "accepted"), ("--replay", "replay")])
def test_a_decision_of_another_cluster_stops_the_sink_until_a_person_chooses(
    choice: str, verdict: str, sink: Sink, shell: Shell
) -> None:
    entry = TransactionEntry(0, 0, 4711, 3, 2, "t", 0, 9, 20)
    copied = record_of(sink, BATCH, kind=Kind.INTENT, entries=(entry,), cluster_id="the-old-cluster")
    put(sink, sink.sink_id, ledger_codec.encode_record(copied))
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 1 and "'the-old-cluster'" in shown.out and "'embedded-kafka-cluster'" in shown.out
    recovered = shell.about(sink, "recover")
    assert recovered.exit_code == 4 and "was copied from there" in recovered.err
    sink.run = NEXT_RUN
    with pytest.raises(KafkaSinkError, match="was copied from there"):
        sink.deliver(NEXT)
    assert shell.about(sink, "resolve", choice, "--yes").exit_code == 0
    (decision,) = shell.about(sink, "ledger", "--json").content["decisions"]
    assert decision["verdict"] == verdict
    sink.deliver(NEXT if choice == "--accept" else BATCH)


def test_a_decision_names_the_cluster_of_its_brokers(kafka: KafkaCluster, topic_name: str) -> None:
    with client_of(kafka.bootstrap_servers) as client:
        told = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=60).cluster_id
        assert client.cluster_id() and client.cluster_id() == told
