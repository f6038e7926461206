"""`pykafka-sink` on the embedded broker and on Apache Kafka; confluent-kafka shows what is visible."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer as ConfluentProducer

from kafka_sink import Producer
from kafka_sink.commit import each_line, ledger_read
from kafka_sink.commit.each_line import Begin
from kafka_sink.commit.identity import Line, sink_id_of_checkpoint, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.errors import CommitAborted, KafkaSinkError
from kafka_sink.kafka.wire.apis import LIST_TRANSACTIONS
from kafka_sink.operate.cli import signs
from kafka_sink.testing import EmbeddedBroker, Fault, acl, settings
from kafka_sink.testing.acl import Acl
from tests.chaos.bare_spark import BareQuery, Checkpoint, settings_of
from tests.support.asking import client_of
from tests.support.commanding import ROWS_PER_TASK, Said, Shell, Sink, rows
from tests.support.open_transactions import open_transactions
from tools.waiting import wait_until

BATCH = BatchKey("query-1", 0)
NEXT = BatchKey("query-1", 1)
LEDGER = "ledger"
# How often the embedded broker looks for transactions that have timed out.
QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}


pytestmark = pytest.mark.embedded_kafka(properties=QUICK)


def created(sink: Sink) -> Sink:
    sink.create()
    return sink


def wait_until_nothing_is_open(shell: Shell, sink: Sink) -> None:
    # Seconds, until the transactions time out; each look takes CPU.
    wait_until(lambda: shell.about(sink, "transactions").exit_code == 0, "nothing is open", poll_s=0.3)


def intrude(sink: Sink, receipt: TaskReceipt) -> None:
    """Another client uses the id of a task, which aborts the transaction prepared under it."""
    assert receipt.transaction is not None
    options = {"bootstrap.servers": sink.servers, "transactional.id": receipt.transaction.transactional_id}
    ConfluentProducer(options).init_transactions(60)


def lost(shell: Shell, sink: Sink, key: BatchKey = BATCH) -> None:
    """The driver dies after one of two commits, and the other transaction times out."""
    sink.timeout_ms = 5_000  # a decision takes seconds on a busy machine
    sink.decide_and_die(key, committed=1)
    wait_until_nothing_is_open(shell, sink)
    sink.timeout_ms = 300_000


# ---- ledger and recover ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["4.3", "3.9"])
def test_an_open_decision_is_shown_and_recovered_once(release: str, shell: Shell) -> None:
    with EmbeddedBroker(brokers=3, release=release) as broker:
        check_open_decision(shell, created(Sink(broker.bootstrap_servers, "t", "orders", LEDGER)))


def test_an_open_decision_is_shown_and_recovered_on_apache_kafka(sink_on_kafka: Sink, shell: Shell) -> None:
    check_open_decision(shell, sink_on_kafka)


def check_open_decision(shell: Shell, sink: Sink) -> None:
    sink.decide_and_die(BATCH)
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 1 and shown.err == ""
    assert sink.command("recover") in shown.out
    title, row = shown.out.splitlines()[:2]
    assert title.split() == ["SINK", "NAME", "BATCH", "VERDICT", "ROWS", "TOPICS", "AGE"]
    assert row.split()[:8] == [sink.sink_id, "-", "0", "of", "query-1", "open", str(2 * ROWS_PER_TASK), sink.topic]

    (decision,) = shell.about(sink, "ledger", "--json").content["decisions"]
    assert 0 < decision["time_left_ms"] <= sink.timeout_ms
    assert decision["verdict"] == "open" and decision["topics"] == {sink.topic: 2 * ROWS_PER_TASK}
    assert [one["fate"] for one in decision["transactions"]] == [None, None]

    (first, second) = shell.about(sink, "transactions", "--json").content["transactions"]
    assert first["is_decided"] and second["is_decided"] and first["state"] == "Ongoing"
    assert first["partitions"] == [f"{sink.topic}-0"] and second["partitions"] == [f"{sink.topic}-1"]

    recovered = shell.about(sink, "recover")
    assert recovered.exit_code == 0 and f"{2 * ROWS_PER_TASK} rows are visible" in recovered.out
    assert sink.visible() == sorted(rows(BATCH, 0, 1))
    again = shell.about(sink, "recover", "--json")
    assert again.exit_code == 0 and again.content["conclusion"] == "nothing to do"
    closed = shell.about(sink, "ledger", "--json")
    assert closed.exit_code == 0 and closed.content["decisions"][0]["verdict"] == "delivered"
    sink.run = "f" * 16
    sink.deliver(NEXT)
    assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))


@pytest.mark.parametrize("release", ["4.3", "3.9"])
def test_a_query_that_runs_goes_on_after_a_recover(release: str, shell: Shell) -> None:
    with EmbeddedBroker(release=release) as broker:
        sink = created(Sink(broker.bootstrap_servers, "t", "orders", LEDGER))
        driver = DriverSession(sink.sink_id, sink.run)
        sink.deliver(BATCH, driver)
        assert shell.about(sink, "recover").exit_code == 0
        sink.deliver(NEXT, driver)
        assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))


def test_the_ledger_of_all_sinks_names_each(sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    other = Sink(sink.servers, "t", "exports", LEDGER)
    other.deliver(BatchKey("", "2026-02"))
    other.run = "f" * 16  # of another run: it would otherwise abort what the one before has decided
    other.decide_and_die(BatchKey("", "2026-01"))
    shown = shell("ledger", "--bootstrap-server", sink.servers, "--ledger-topic", LEDGER, "--json")
    found = [(one["sink_id"], one["batch_id"], one["verdict"]) for one in shown.content["decisions"]]
    assert found == [
        ("exports", "2026-01", "open"),
        ("exports", "2026-02", "delivered"),
        ("orders", 0, "delivered"),
    ]
    assert shown.exit_code == 1 and shell.about(sink, "ledger").exit_code == 0


def test_the_ledger_says_what_the_query_of_a_hash_is_called(broker: EmbeddedBroker, shell: Shell) -> None:
    names = {"named": {"queryName": "orders by day"}, "unnamed": {}}
    for topic, options in names.items():
        broker.create_topic(topic, 3)
        with BareQuery(Checkpoint(f"query-{topic}"), settings_of(broker.bootstrap_servers, topic, **options)) as query:
            query.run_batch()
    shown = shell("ledger", "--bootstrap-server", broker.bootstrap_servers, "--json").content["decisions"]
    assert {one["name"]: (one["query_id"], one["verdict"]) for one in shown} == {
        "orders by day": ("query-named", "delivered"),
        "/checkpoints/unnamed": ("query-unnamed", "delivered"),
    }
    assert "orders by day" in shell("ledger", "--bootstrap-server", broker.bootstrap_servers).out


def test_a_sink_is_found_by_its_checkpoint(broker: EmbeddedBroker, shell: Shell) -> None:
    sink = created(Sink(broker.bootstrap_servers, "t", sink_id_of_checkpoint("/data/checkpoint"), LEDGER))
    sink.decide_and_die(BATCH)
    where = ("--bootstrap-server", sink.servers, "--ledger-topic", LEDGER)
    assert shell("recover", *where, "--checkpoint", "file:///data//checkpoint/").exit_code == 0
    assert len(sink.visible()) == 2 * ROWS_PER_TASK


def test_a_checkpoint_whose_name_differs_behind_a_hash_is_that_of_another_sink(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    """Both run. Who means to end what the one has left open must not end what the other is writing."""
    first, second = (
        created(Sink(broker.bootstrap_servers, "t", sink_id_of_checkpoint(f"/data/job#{number}"), LEDGER))
        for number in (1, 2)
    )
    for sink in (first, second):
        sink.deliver(BATCH)
    second.task(NEXT, 0)
    where = ("--bootstrap-server", broker.bootstrap_servers, "--ledger-topic", LEDGER, "--yes")
    assert shell("transactions", "--abort", *where, "--checkpoint", "/data/job#1").exit_code == 0
    assert len(open_transactions(second.servers, second.sink_id, 0)) == 1
    assert shell("transactions", "--abort", *where, "--checkpoint", "file:/data//job#2").exit_code == 0
    assert open_transactions(second.servers, second.sink_id) == []


def test_a_record_that_cannot_be_read_hides_no_other(sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    producer = ConfluentProducer({"bootstrap.servers": sink.servers, "transactional.id": "foreign"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(LEDGER, key=b"later", value=b"pykafka-sink-ledger 9 json\n{}")
    producer.commit_transaction(20)
    shown = shell("ledger", "--bootstrap-server", sink.servers, "--ledger-topic", LEDGER, "--json")
    assert shown.exit_code == 4
    assert [one["sink_id"] for one in shown.content["decisions"]] == ["orders"]
    (unreadable,) = shown.content["unreadable"]
    assert unreadable["ledger_key"] == "later" and "9" in unreadable["problem"]


def test_a_ledger_is_shown_however_many_keys_its_sinks_have(
    sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Sink(sink.servers, sink.topic, "invoices", LEDGER)
    for each in (sink, other):
        each.deliver(BatchKey("", "a"))
        each.deliver(BatchKey("", "b"))
    monkeypatch.setattr(ledger_read, "KEYS_READ_MAX", 1)
    where = ("--bootstrap-server", sink.servers, "--ledger-topic", LEDGER, "--json")
    assert len(shell("ledger", *where).content["decisions"]) == 4
    assert len(shell.about(sink, "ledger", "--json").content["decisions"]) == 2


# ---- resolve ---------------------------------------------------------------------------------------------------


def test_a_lost_batch_is_named_and_stays_until_it_is_accepted(sink: Sink, shell: Shell) -> None:
    lost(shell, sink)
    recovered = shell.about(sink, "recover")
    assert recovered.exit_code == 1 and recovered.out == ""
    assert recovered.err.count("\n") == 1 and "1 of 2 are committed" in recovered.err
    assert "Spark partition 1 (10 rows" in recovered.err and "resolve --replay" in recovered.err
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 1 and " lost " in shown.out and "resolve --accept" in shown.out
    (decision,) = shell.about(sink, "ledger", "--json").content["decisions"]
    assert [one["fate"] for one in decision["transactions"]] == ["committed", "lost"]

    accepted = shell.about(sink, "resolve", "--accept", "--yes", "--json")
    assert accepted.exit_code == 0 and accepted.content["conclusion"] == "resolved"
    assert shell.about(sink, "ledger", "--json").content["decisions"][0]["verdict"] == "accepted"
    sink.run = "f" * 16
    sink.deliver(NEXT)
    assert sink.visible() == sorted(rows(BATCH, 0) + rows(NEXT, 0, 1))


def test_a_loss_that_nobody_has_recorded_is_overdue_and_can_be_resolved_at_once(sink: Sink, shell: Shell) -> None:
    lost(shell, sink)
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 1 and " overdue " in shown.out and "rows may be missing" in shown.out
    (decision,) = shell.about(sink, "ledger", "--json").content["decisions"]
    assert (decision["verdict"], decision["time_left_ms"]) == ("overdue", None)
    accepted = shell.about(sink, "resolve", "--accept", "--yes", "--json")
    assert accepted.exit_code == 0 and accepted.content["conclusion"] == "resolved"
    assert shell.about(sink, "ledger").exit_code == 0


def test_a_replayed_batch_runs_again_and_doubles_only_what_was_visible(sink: Sink, shell: Shell) -> None:
    lost(shell, sink)
    assert shell.about(sink, "recover", "--json").content["error"] == "CommitLost"
    replayed = shell.about(sink, "resolve", "--replay", "--yes")
    assert replayed.exit_code == 0 and "will run again" in replayed.out
    assert " replay " in shell.about(sink, "ledger").out
    sink.run = "f" * 16
    sink.deliver(BATCH)
    assert sink.visible() == sorted(rows(BATCH, 0, 0, 1))


def test_a_transaction_that_somebody_else_aborted_is_lost_on_apache_kafka(sink_on_kafka: Sink, shell: Shell) -> None:
    sink = sink_on_kafka
    intrude(sink, sink.decide_and_die(BATCH)[0])
    recovered = shell.about(sink, "recover")
    assert recovered.exit_code == 1 and "1 of 2 are committed" in recovered.err
    assert sink.visible() == rows(BATCH, 1)
    assert shell.about(sink, "resolve", "--replay", "--yes").exit_code == 0
    sink.run = "f" * 16
    sink.deliver(BATCH)
    assert sink.visible() == sorted(rows(BATCH, 0, 1, 1))


@pytest.mark.parametrize(("answer", "exit_code", "word"), [("no\n", 1, "nothing was changed"), ("", 2, "--yes")])
def test_nothing_is_resolved_without_a_yes(
    answer: str, exit_code: int, word: str, sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(shell, sink)
    shell.about(sink, "recover")
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    refused = shell.about(sink, "resolve", "--accept", "--json")
    assert refused.exit_code == exit_code and word in refused.err and "Go on?" in refused.err
    assert shell.about(sink, "ledger", "--json").content["decisions"][0]["verdict"] == "lost"
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    assert shell.about(sink, "resolve", "--accept").exit_code == 0
    assert shell.about(sink, "ledger").exit_code == 0


def test_of_several_lost_exports_one_is_chosen_by_its_batch_id(sink: Sink, shell: Shell) -> None:
    for label in ("a", "b"):
        sink.run = label * 16
        lost(shell, sink, BatchKey("", label))
        assert shell.about(sink, "recover").exit_code == 1
    ambiguous = shell.about(sink, "resolve", "--accept", "--yes")
    choices = [sink.command(f"resolve --accept | --batch {label}") for label in ("a", "b")]
    assert ambiguous.exit_code == 2 and f"`{choices[0]}` or `{choices[1]}`" in ambiguous.err
    assert shell.about(sink, "resolve", "--accept", "--yes", "--batch", "b").exit_code == 0
    found = shell.about(sink, "ledger", "--json").content["decisions"]
    assert [(one["batch_id"], one["verdict"]) for one in found] == [("a", "lost"), ("b", "accepted")]


def test_of_lost_batches_with_one_number_one_is_chosen_by_the_sink_id_of_its_query(sink: Sink, shell: Shell) -> None:
    """Queries that share a sink.id, after an outage of both."""
    queries = [replace(sink, sink_id=sink_id_of_query("orders", name)) for name in ("one", "two")]
    for query, name in zip(queries, ("one", "two"), strict=True):
        lost(shell, query, BatchKey(name, 0))
        assert shell.about(query, "recover").exit_code == 1
    ambiguous = shell.about(sink, "resolve", "--accept", "--yes", "--batch", "0")
    assert ambiguous.exit_code == 2
    assert all(f"--sink-id {query.sink_id} --batch 0" in ambiguous.err for query in queries)
    assert shell.about(queries[1], "resolve", "--accept", "--yes", "--batch", "0").exit_code == 0
    found = shell.about(sink, "ledger", "--json").content["decisions"]
    assert {one["query_id"]: one["verdict"] for one in found} == {"one": "lost", "two": "accepted"}


def test_there_is_nothing_to_choose_while_nothing_is_lost(sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    said = shell.about(sink, "resolve", "--replay", "--yes")
    assert said.exit_code == 0 and "nothing to choose" in said.out
    sink.run = "f" * 16
    sink.decide_and_die(NEXT)
    said = shell.about(sink, "resolve", "--replay", "--yes")
    assert said.exit_code == 0 and "1 of query-1 is delivered" in said.out and "nothing to choose" in said.out
    assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))


# ---- transactions ----------------------------------------------------------------------------------------------


def test_dangling_transactions_are_aborted_and_decided_ones_are_committed(sink: Sink, shell: Shell) -> None:
    check_abort(shell, sink)


def test_dangling_transactions_are_aborted_on_apache_kafka(sink_on_kafka: Sink, shell: Shell) -> None:
    check_abort(shell, sink_on_kafka)


def check_abort(shell: Shell, sink: Sink) -> None:
    sink.decide_and_die(BATCH)
    sink.task(NEXT, 7)  # its driver never got the receipt
    other = Sink(sink.servers, sink.topic, f"{sink.sink_id}-2", sink.ledger_topic)
    other.task(BATCH, 0)
    dangling, foreign = (f"{one.sink_id}-{sink.run}-{task}-0" for one, task in ((sink, 7), (other, 0)))
    shown = shell.about(sink, "transactions")
    assert shown.exit_code == 1 and dangling in shown.out and foreign not in shown.out
    (row,) = [line for line in shown.out.splitlines() if line.startswith(dangling)]
    assert row.split()[1] == "Ongoing" and row.split()[-2:] == ["no", f"{sink.topic}-1"]

    aborted = shell.about(sink, "transactions", "--abort", "--yes", "--json")
    assert aborted.exit_code == 0 and aborted.content["aborted"] == [dangling]
    assert shell.about(sink, "transactions").out == f"no open transaction of sink {sink.sink_id}\n"
    where = ("--bootstrap-server", sink.servers, "--ledger-topic", sink.ledger_topic)
    everybody = {one["transactional_id"] for one in shell("transactions", *where, "--json").content["transactions"]}
    assert foreign in everybody
    assert shell.about(other, "transactions", "--abort", "--yes").exit_code == 0
    assert sink.visible() == sorted(rows(BATCH, 0, 1))


# ---- transactions of a query that may be alive -------------------------------------------------------------------


def ask_to_abort(shell: Shell, sink: Sink, monkeypatch: pytest.MonkeyPatch, answer: str) -> Said:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    return shell.about(sink, "transactions", "--abort")


def test_before_it_aborts_what_a_query_may_be_writing_the_command_asks_for_words(
    sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.deliver(BATCH)
    sink.task(NEXT, 7)
    asked = ask_to_abort(shell, sink, monkeypatch, "yes\n")
    assert asked.exit_code == 1 and "nothing was changed" in asked.err
    assert (
        f"open transactions: 1 of run {sink.run}, for" in asked.err
        and f"last claimed the ledger: run {sink.run}" in asked.err
    )
    assert "newest decision: batch 0 of query-1, delivered" in asked.err
    assert "A query seems to be running: its open transactions began" in asked.err
    assert "Stop the query first" in asked.err and 'Type "take over" to go on' in asked.err
    nobody = ask_to_abort(shell, sink, monkeypatch, "")
    assert nobody.exit_code == 2 and "Add --yes" in nobody.err
    assert shell.about(sink, "transactions").exit_code == 1
    done = ask_to_abort(shell, sink, monkeypatch, "take over\n")
    assert done.exit_code == 0 and f"aborted {sink.sink_id}-{sink.run}-7-0" in done.out
    assert sink.visible() == sorted(rows(BATCH, 0, 1))


def test_of_a_sink_that_has_done_nothing_for_a_while_it_asks_for_a_yes(
    sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.deliver(BATCH)
    sink.task(NEXT, 7)
    monkeypatch.setattr(signs, "LIVE_MS", 0)
    asked = ask_to_abort(shell, sink, monkeypatch, "yes\n")
    assert asked.exit_code == 0 and "seems to be running" not in asked.err and "[yes/no]" in asked.err


def test_a_producer_that_writes_between_two_looks_is_alive(
    sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its transaction has been open."""
    sink.deliver(BATCH)
    monkeypatch.setattr(signs, "LIVE_MS", 0)
    options = {"bootstrap.servers": sink.servers, "transactional.id": f"{sink.sink_id}-{sink.run}-7-0"}
    with Producer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(sink.topic, value=b"first", partition=0).result(60)
        # Only the pause between the two looks writes: every other thread sleeps as it always does.
        writes = SimpleNamespace(sleep=lambda _: producer.send(sink.topic, value=b"second", partition=0).result(60))
        monkeypatch.setattr(signs, "time", writes)
        asked = shell.about(sink, "transactions", "--abort", "--yes", "--json")
        assert f"A query seems to be running: {signs.MOVES}" in asked.err
        (told,) = asked.content["signs"]
        assert told["seems_to_run"] == signs.MOVES and told["open_transactions"] == 1


def test_a_transaction_of_an_application_that_is_no_sink_is_not_listed(broker: EmbeddedBroker, shell: Shell) -> None:
    broker.create_topic("t", 1)
    name = f"of\nsomebody-{'0' * 16}-0-0"  # like a task's, but no sink has such an id
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"v").result(60)
            with client_of(broker.bootstrap_servers) as client:
                (listed,) = client.answers_of_all(LIST_TRANSACTIONS, {"state_filters": [], "producer_id_filters": []})
            said = shell("transactions", "--bootstrap-server", broker.bootstrap_servers)
    assert [one["transactional_id"] for one in listed["transaction_states"]] == [name]
    assert (said.exit_code, said.out) == (0, "no open transaction of any sink\n")


def test_a_driver_that_commits_while_a_command_is_about_to_abort_decides_nothing(
    sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver of an export commits when the command has fenced its line, and has not aborted yet."""
    export = BatchKey("", "monday")
    attempts = [replace(sink, run=sink.run_of("monday", nonce)) for nonce in ("a", "b", "c")]
    receipts = [attempts[0].task(export, number) for number in range(2)]
    operation, errors = each_line._operation, []

    def commit_before(settings: DeliverySettings, job: Job, line: Line) -> Begin:
        if job.operation is DriverOperation.SWEEP:
            with client_of(sink.servers) as client:
                errors.append(client.run(attempts[0].committer(client, export, receipts)).error)
        return operation(settings, job, line)

    monkeypatch.setattr(each_line, "_operation", commit_before)
    said = shell.about(sink, "transactions", "--abort", "--yes", "--json")
    assert said.exit_code == 0 and len(said.content["aborted"]) == 2
    assert isinstance(errors[0], CommitAborted) and sink.visible() == []
    attempts[1].deliver(export)
    assert sink.visible() == rows(export, 0, 1)
    # The command stops no run that began later.
    other = BatchKey("", "tuesday")
    tuesday = replace(sink, run=sink.run_of("tuesday", "a"))
    tuesday.task(other, 0)
    assert shell.about(sink, "transactions", "--abort", "--yes").exit_code == 0
    replace(sink, run=sink.run_of("tuesday", "b")).deliver(other)
    assert sink.visible() == sorted(rows(export, 0, 1) + rows(other, 0, 1))


def test_what_another_ledger_may_have_decided_is_not_aborted(sink: Sink, shell: Shell) -> None:
    sink.decide_and_die(BATCH)
    other = Sink(sink.servers, "t-2", "invoices", "ledger-2")
    created(other).deliver(BATCH)
    where = ("--bootstrap-server", sink.servers, "--ledger-topic", other.ledger_topic, "--sink-id", sink.sink_id)
    said = shell("transactions", "--abort", *where, "--yes")
    assert said.exit_code == 2 and "Compare --ledger-topic" in said.err and "[PKS-8003]" in said.err
    # Transactions that were left alone can be finished.
    assert shell.about(sink, "recover").exit_code == 0
    assert sink.visible() == sorted(rows(BATCH, 0, 1))


def test_what_an_export_with_the_same_sink_id_has_decided_in_another_ledger_is_not_aborted(
    sink: Sink, shell: Shell
) -> None:
    """Both ledgers know the sink: one job runs for testing and in earnest, each with its own."""
    monday, tuesday = BatchKey("", "monday"), BatchKey("", "tuesday")
    staging = created(replace(sink, topic="t-2", ledger_topic="ledger-2"))
    for key in (monday, tuesday):
        replace(staging, run=staging.run_of(str(key.batch_id), "a")).deliver(key)
    replace(sink, run=sink.run_of("monday", "b")).decide_and_die(monday)
    said = shell.about(staging, "transactions", "--abort", "--yes")
    assert said.exit_code == 2 and "[PKS-8003]" in said.err
    assert f"the ledger ledger-2 has no record of sink {sink.sink_id} about the batch.id of " in said.err
    assert shell.about(sink, "recover").exit_code == 0
    assert sink.visible() == sorted(rows(monday, 0, 1))
    # Its own is aborted there.
    replace(staging, run=staging.run_of("tuesday", "c")).task(tuesday, 0)
    assert shell.about(staging, "transactions", "--abort", "--yes").exit_code == 0


@pytest.mark.parametrize(("marker_ms", "timeout_s", "exit_code"), [(700, 30, 0), (60_000, 1, 1)])
def test_markers_are_waited_for_and_those_that_do_not_come_are_told(
    sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch, marker_ms: int, timeout_s: int, exit_code: int
) -> None:
    sink.decide_and_die(BATCH)
    sink.task(NEXT, 7)
    monkeypatch.setattr(settings, "DEFAULT_DELAYS_MS", {"marker": marker_ms})
    said = shell.about(sink, "transactions", "--abort", "--yes", "--json", "--timeout", str(timeout_s))
    assert said.exit_code == exit_code
    assert (said.content["left_open"] == []) == (exit_code == 0)


def test_a_list_with_a_silent_broker_is_not_taken_for_complete(shell: Shell) -> None:
    with EmbeddedBroker(brokers=2) as broker:
        sink = created(Sink(broker.bootstrap_servers, "t", "orders", LEDGER))
        broker.inject(Fault("ListTransactions", disconnect=True))
        shown = shell.about(sink, "transactions", "--json")
        assert shown.exit_code == 4 and "not every broker" in shown.content["notes"][0]
        assert shell.about(sink, "transactions").exit_code == 0


# ---- no ledger, wrong usage, no broker -------------------------------------------------------------------------


def test_nothing_there_is_said_and_nothing_is_created(broker: EmbeddedBroker, shell: Shell) -> None:
    where = ("--bootstrap-server", broker.bootstrap_servers)
    for command in (("ledger",), ("recover", "--sink-id", "s"), ("resolve", "--accept", "--sink-id", "s")):
        said = shell(*command, *where)
        assert said.exit_code == 2 and "no ledger topic __pykafka_sink_ledger" in said.err
        assert said.err.endswith("[PKS-8002]\n")
    broker.inject(Fault("DescribeConfigs", error_code=29))
    assert shell("ledger", *where).exit_code == 2, "whoever may not read configurations does not wait for it, either"
    assert shell("transactions", *where).out == "no open transaction of any sink\n"
    assert "__pykafka_sink_ledger" not in broker.core.cluster.topics
    Sink(broker.bootstrap_servers, "t", "s", LEDGER).create()
    said = shell("ledger", *where, "--ledger-topic", LEDGER)
    assert said.exit_code == 0 and said.out == "the ledger ledger holds no decision\n"


def test_a_topic_that_is_no_ledger_is_told_in_a_few_lines(broker: EmbeddedBroker, shell: Shell) -> None:
    broker.create_topic("people", 1)
    producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "somebody"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for number in range(100):
        producer.produce("people", key=f"person-{number}", value=b"{}")
    producer.commit_transaction(20)
    where = ("ledger", "--bootstrap-server", broker.bootstrap_servers, "--ledger-topic", "people")
    said, followed = shell(*where), shell(*where, "--follow", "--count", "1")
    assert said.exit_code == 4 and "is it the ledger topic of a sink?" in said.out
    for out in (said.out, followed.out):
        assert out.count("cannot be read: ") == 10 and "and 90 more records that cannot be read" in out


def test_a_misspelled_sink_is_told_the_nearest_one(sink: Sink, shell: Shell) -> None:
    sink.decide_and_die(BATCH)
    where = ("--bootstrap-server", sink.servers, "--ledger-topic", LEDGER)
    for command in (("recover",), ("ledger",), ("transactions", "--abort", "--yes")):
        said = shell(*command, *where, "--sink-id", "order")
        assert said.exit_code == 2 and "no record of sink order; did you mean orders?" in said.err
        assert said.err.endswith("[PKS-8003]\n")
    assert shell.about(sink, "recover").exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "COMMAND"),
        (("recover", "--bootstrap-server", "h:1"), "--sink-id --checkpoint"),
        (("resolve", "--sink-id", "s"), "--replay --accept"),
        (("resolve", "--sink-id", "s", "--replay", "--accept"), "not allowed with"),
        (("resolve", "--sink-id", "s", "--accept", "--key", "s/a"), "--key is for resolve --set-aside"),
        (("resolve", "--sink-id", "s", "--set-aside", "--batch", "a"), "choose with --key"),
        (("transactions", "--abort", "--bootstrap-server", "h:1"), "needs --sink-id"),
        (("ledger", "--option", "kafka.sasl.password"), "NAME=VALUE"),
        (("ledger", "--timeout", "soon"), "number of seconds"),
        (("ledger", "--timeout", "\u00b2"), "number of seconds"),
        (("topic", "--topic", "t", "--create", "--partitions", "3000000000"), "from 1 to 2147483647"),
        (("topic", "--topic", "t", "--create", "--replication-factor", "40000"), "from 1 to 32767"),
        (("perf", "--topic", "t", "--num-records", "1", "--throughput", "nan"), "-1 for no limit"),
        (("perf", "--topic", "t", "--num-records", "1", "--throughput", "inf"), "-1 for no limit"),
        (("perf", "--topic", "t", "--num-records", "1", "--throughput", "1e-300"), "-1 for no limit"),
        (("perf", "--topic", "t", "--num-records", "1", "--record-size", "3000000000"), "from 1 to 2147483647"),
    ],
)
def test_wrong_words_end_with_2_and_without_secrets(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str], shell: Shell
) -> None:
    with pytest.raises(SystemExit) as ended:
        shell(*words)
    err = capsys.readouterr().err
    assert ended.value.code == 2 and told in err and "hush-hush" not in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--bootstrap-server HOST:PORT"),
        (("--bootstrap-server", "nowhere"), "bootstrap.servers"),
        (("--bootstrap-server", "h:1", "--properties", "not-there.properties"), "No such file"),
        (("--bootstrap-server", "h:1", "--option", "kafka.retris=hush-hush"), "did you mean retries?"),
        (("--bootstrap-server", "h:1", "--option", "kafka.ssl.provider=hush-hush"), "there is no JVM"),
        (("--bootstrap-server", "h:1", "--option", "topic=hush-hush"), "'topic' is not a producer option"),
        (("--bootstrap-server", "h:1", "--sink-id", "a b"), "--sink-id"),
        (("--bootstrap-server", "h:1", "--checkpoint", "s3://[a/b"), "'s3://[a/b' is neither a path nor a URI"),
        (("--bootstrap-server", "h:1", "--ledger-topic", "a b"), "--ledger-topic"),
    ],
)
def test_wrong_options_end_with_2_and_one_line(words: tuple[str, ...], told: str, shell: Shell) -> None:
    said = shell("ledger", *words)
    assert said.exit_code == 2 and told in said.err and said.err.count("\n") == 1
    assert "hush-hush" not in said.err and said.out == ""


def test_options_come_from_a_properties_file_of_java(sink: Sink, shell: Shell, tmp_path: Path) -> None:
    sink.deliver(BATCH)
    file = tmp_path / "client.properties"
    host, _, port = sink.servers.partition(":")
    file.write_text(
        f"# of the tools\n! and this\nbootstrap.servers : {host}\\:\\\n   {port}\n\nclient.id\tt\\u006föl\n", "utf-8"
    )
    where = ("--properties", str(file), "--ledger-topic", LEDGER)
    assert shell("ledger", *where, "--json").content["decisions"][0]["row_count"] == 2 * ROWS_PER_TASK
    nearer = shell("ledger", *where, "--option", "kafka.bootstrap.servers=127.0.0.1:1", "--timeout", "1")
    assert nearer.exit_code == 3


def test_the_file_of_a_job_serves_every_command(
    sink: Sink, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its brokers and its ledger; what is about the job alone is not looked at."""
    sink.deliver(BATCH)
    monkeypatch.setenv("BROKERS", sink.servers)
    file = tmp_path / "job.properties"
    file.write_text(
        "kafka.bootstrap.servers=${env:BROKERS}\ntopic=t\nvalue.format=json\nkafka.client.id=${CLIENT}\n"
        f"ledger.topic={LEDGER}\n"
    )
    for words in (
        ("ledger",),
        ("status", "--silent-after", "0"),
        ("transactions",),
        ("recover", "--sink-id", sink.sink_id),
    ):
        said = shell(*words, "--properties", str(file), "--json")
        assert said.exit_code == 0, said
        assert said.err.startswith("pykafka-sink: kafka.client.id is taken as it is written: a variable"), said.err
    other = shell("ledger", "--properties", str(file), "--ledger-topic", "none-such")
    assert other.exit_code == 2 and "there is no ledger topic none-such" in other.err
    file.write_text(file.read_text() + "kafka.retris=hush-hush\n")
    wrong = shell("ledger", "--properties", str(file))
    assert wrong.exit_code == 2 and f"{file}, line 6: 'retris' is not a producer option" in wrong.err
    assert "hush-hush" not in wrong.err


def test_a_silent_broker_leaves_time_to_ask_again(broker: EmbeddedBroker, sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    broker.inject(Fault("ListOffsets", delay_before_ms=3_600_000))
    assert shell.about(sink, "ledger", "--timeout", "4").exit_code == 0


def test_no_broker_is_exit_code_3_in_one_line(shell: Shell) -> None:
    said = shell("recover", "--bootstrap-server", "127.0.0.1:1", "--sink-id", "s", "--timeout", "1", "--json")
    assert said.exit_code == 3 and said.err.count("\n") == 1
    assert "within 1000 ms" in said.err and "127.0.0.1:1" in said.err
    assert said.content["error"] == "OperationTimeout"


def test_the_program_runs_without_spark_and_without_a_trace(sink: Sink) -> None:
    sink.decide_and_die(BATCH)
    where = ["--bootstrap-server", sink.servers, "--ledger-topic", LEDGER, "--sink-id", "orders"]
    program = [sys.executable, "-X", "importtime", "-m", "kafka_sink"]
    done = subprocess.run([*program, "recover", *where], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout.startswith("finished batch 0 of query-1")
    assert "kafka_sink.operate.cli" in done.stderr and "pyspark" not in done.stderr
    assert sink.visible() == sorted(rows(BATCH, 0, 1))
    helped = subprocess.run(
        [*program[:1], *program[3:], "resolve", "--help"], capture_output=True, text=True, timeout=300, check=False
    )
    assert helped.returncode == 0 and "exit codes:" in helped.stdout and helped.stderr == ""


def test_ctrl_c_while_a_command_is_imported_leaves_no_trace(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_words: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafka_sink.__main__.parse_arguments", interrupt)
    said = shell("ledger")
    assert said.exit_code == 130 and said.err.startswith("pykafka-sink: interrupted")


def test_the_console_script_is_what_these_tests_run() -> None:
    setup = (Path(__file__).parents[2] / "setup.py").read_text()
    assert '"pykafka-sink = kafka_sink.__main__:main"' in setup


def test_a_missing_permission_is_exit_code_4_and_named(shell: Shell) -> None:
    everything = [Acl(acl.EVERYBODY, acl.ALL, kind, "*") for kind in (acl.TOPIC, acl.GROUP, acl.TRANSACTIONAL_ID)]
    cluster = Acl(acl.EVERYBODY, acl.ALL, acl.CLUSTER)
    with EmbeddedBroker(acls=[*everything, cluster]) as broker:
        sink = created(Sink(broker.bootstrap_servers, "t", "orders", LEDGER))
        sink.decide_and_die(BATCH)
        no_reading = Acl(acl.EVERYBODY, acl.READ, acl.TOPIC, LEDGER, permission=acl.DENY)
        no_driver = Acl(acl.EVERYBODY, acl.WRITE, acl.TRANSACTIONAL_ID, "orders-driver", permission=acl.DENY)
        for missing, told, command in (
            (no_reading, "TOPIC_AUTHORIZATION_FAILED", "ledger"),
            (no_driver, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "recover"),
        ):
            with broker.control() as core:
                core.authorizer.add(missing)
            refused = shell.about(sink, command)
            assert refused.exit_code == 4 and told in refused.err and refused.err.count("\n") == 1
            with broker.control() as core:
                core.authorizer.remove(missing)
        assert shell.about(sink, "recover").exit_code == 0
        assert sink.visible() == sorted(rows(BATCH, 0, 1))


# What docs/security.md asks an administrator for, without the optional parts.
DOCUMENTED = [
    Acl(acl.ANONYMOUS, acl.WRITE, acl.TOPIC, "t"),
    Acl(acl.ANONYMOUS, acl.READ, acl.TOPIC, "t"),
    Acl(acl.ANONYMOUS, acl.WRITE, acl.TOPIC, LEDGER),
    Acl(acl.ANONYMOUS, acl.READ, acl.TOPIC, LEDGER),
    Acl(acl.ANONYMOUS, acl.WRITE, acl.TRANSACTIONAL_ID, "orders-", acl.PREFIXED),
]


@pytest.mark.parametrize("left_out", [None, *range(len(DOCUMENTED))])
def test_the_documented_permissions_are_enough_and_each_is_needed(left_out: int | None, shell: Shell) -> None:
    """With all of them a batch is delivered, another is decided and lost, and an operator resolves it."""
    acls = [one for index, one in enumerate(DOCUMENTED) if index != left_out]
    with EmbeddedBroker(topics={"t": 2, LEDGER: 1}, acls=acls, properties=QUICK) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", LEDGER)
        if left_out is None:
            work_with(shell, sink)
            return
        with pytest.raises((KafkaSinkError, AssertionError)):
            work_with(shell, sink)


def work_with(shell: Shell, sink: Sink) -> None:
    sink.deliver(BATCH)
    sink.run = "f" * 16
    intrude(sink, sink.decide_and_die(NEXT)[0])
    recovered = shell.about(sink, "recover", "--timeout", "5")
    assert recovered.exit_code == 1 and "1 of 2 are committed" in recovered.err
    assert shell.about(sink, "resolve", "--replay", "--yes").exit_code == 0
    assert shell.about(sink, "transactions", "--abort", "--yes").exit_code == 0
