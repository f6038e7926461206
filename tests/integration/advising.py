"""Every text that names a command, in the state in which it is raised, and what the command must make of that state.

A case makes the state on a running Kafka and returns the text. Each command of the text is then run in a new cluster:
two commands of one text are a choice. On Apache Kafka it is pasted into a shell.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from confluent_kafka import Producer as ConfluentProducer

import kafka_sink
from kafka_sink.__main__ import main
from kafka_sink.commit import ledger_codec
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import sink_id_of_write
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, ledger_key
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.messages import not_closed_text
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, PreparedTransaction, TaskReceipt
from kafka_sink.commit.replay_progress import ReplayProgress, encode_progress
from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.commit.set_aside import Aside
from kafka_sink.errors import KafkaSinkError
from kafka_sink.formats.records.dead_letter import ERROR, HEADER_PREFIX, REASON
from kafka_sink.operate.cli.arguments import parse_arguments
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.spark.driver import Driver, FinishedBatch, waiting_text
from kafka_sink.spark.summary import report_aborted
from tests.support.asking import client_of
from tests.support.commanding import Sink, Unanswered, rows
from tests.support.foreign_records import put
from tools.waiting import wait_until

BATCH, NEXT = BatchKey("query-1", 0), BatchKey("query-1", 1)
DAY_1, DAY_2 = BatchKey("", "2026-11-01"), BatchKey("", "2026-11-02 late")
NEXT_RUN = "f" * 16
ENTRY = TransactionEntry(0, 0, 4711, 3, 2, "t", 0, 9, 20)
# A command in a text, and its words up to the first value.
QUOTED = re.compile(r"`(pykafka-sink [^`]*)`")
WORDS = re.compile(r"pykafka-sink (\S+(?: --(?:replay|accept|set-aside))?)")

Done = CompletedProcess[str]
Check = Callable[[Sink, Done], None]


@dataclass(frozen=True)
class Case:
    """`place`: the function of the package that makes the text. `commands`: without arguments, with what each must
    do."""

    name: str
    place: str
    make: Callable[[Sink], str]
    commands: Mapping[str, Check] = field(default_factory=dict)
    is_main: bool = False

    def __str__(self) -> str:
        return self.name


def command_in(text: str, case: Case, name: str) -> str:
    """The last one of that name: where one of several must be chosen, it is not the first."""
    found = QUOTED.findall(text)
    assert {WORDS.match(each)[1] for each in found} == set(case.commands), text  # type: ignore[index]
    return [each for each in found if WORDS.match(each)[1] == name][-1]  # type: ignore[index]


# ---- what a command must have done ----


def rows_are_visible(sink: Sink, done: Done) -> None:
    assert done.returncode == 0, done
    assert sink.visible() == sorted(rows(BATCH, 0, 1))
    sink.run = NEXT_RUN
    sink.deliver(NEXT)
    assert sink.visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))


def the_batch_may_run_again(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "nothing was to be done" in done.stdout
    sink.run = NEXT_RUN
    sink.deliver(BATCH)
    assert sink.visible() == sorted(rows(BATCH, 0, 1))


def runs_again(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "will run again" in done.stdout, done
    seen = sink.visible()
    sink.run = NEXT_RUN
    sink.deliver(BATCH)
    assert sink.visible() == sorted(seen + rows(BATCH, 0, 1))


def goes_on(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "accepted" in done.stdout, done
    seen = sink.visible()
    sink.run = NEXT_RUN
    sink.deliver(NEXT)
    assert sink.visible() == sorted(seen + rows(NEXT, 0, 1))


def says_that_rows_are_missing(sink: Sink, done: Done) -> None:
    assert done.returncode == 1 and "[PKS-6021]" in done.stderr, done
    assert sink.command("resolve --replay | --batch 0") in done.stderr


def shows(*words: str, exit_code: int) -> Check:
    def check(sink: Sink, done: Done) -> None:
        assert done.returncode == exit_code, done
        assert all(word in done.stdout for word in words), done

    return check


def is_set_aside(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "was set aside" in done.stdout, done
    sink.run, sink.accepts_new_sink = NEXT_RUN, True
    sink.deliver(NEXT)


def label_is(label: str, verdict: str) -> Check:
    def check(sink: Sink, done: Done) -> None:
        assert done.returncode == 0, done
        with client_of(sink.servers) as client:
            listed = client.run_step(LedgerListing(sink.settings(client), sink.sink_id)).listed or []
        found = {each.record.key.batch_id: each.record for each in listed if each.record}
        record = found[label]
        assert (record.kind, record.is_accepted) == {
            "accepted": (Kind.DONE, True), "replay": (Kind.REPLAY, False), "delivered": (Kind.DONE, False)
        }[verdict]  # fmt: skip

    return check


# ---- states ----


def error_of(sink: Sink, key: BatchKey, machine: Callable[[Committer], Any] = lambda one: one) -> str:
    """A commit that fails, perhaps because answers are missing. Spark then aborts the batch."""
    receipts = [sink.task(key, number) for number in range(2)]
    with client_of(sink.servers, **sink.login) as client:
        verdict = client.run(machine(sink.committer(client, key, receipts)))
        session = sink.session(key)
        aborting = Job(DriverOperation.ABORT, key, receipts)
        client.run(Committer(sink.settings(client), session, aborting, client.now_ms()))
    assert verdict.error is not None, verdict
    return str(verdict.error)


def end_foreign(sink: Sink, receipts: list[TaskReceipt]) -> None:
    """What a time-out does, at once: another producer with the id of a task aborts what was prepared under it."""
    for receipt in receipts:
        assert receipt.transaction is not None
        options = {"bootstrap.servers": sink.servers, "transactional.id": receipt.transaction.transactional_id}
        ConfluentProducer(options).init_transactions(60)


def lose(sink: Sink, key: BatchKey = BATCH) -> None:
    """One of two transactions was committed before the driver died, and the other one was not in time."""
    receipts = sink.decide_and_die(key, committed=1)
    end_foreign(sink, receipts[1:])


def record_loss(sink: Sink, key: BatchKey = BATCH) -> str:
    lose(sink, key)
    return operate(sink, DriverOperation.FINISH, key)


def operate(sink: Sink, operation: DriverOperation, key: BatchKey = BATCH, phase: Phase | None = None) -> str:
    with client_of(sink.servers) as client:
        job = Job(operation, None if operation is DriverOperation.FINISH else key)
        session = replace(sink.session(key), run="")
        committer = Committer(sink.settings(client), session, job, client.now_ms())
        verdict = client.run(committer if phase is None else Unanswered(committer, phase))
    assert verdict.error is not None, verdict
    return str(verdict.error)


def plan(sink: Sink) -> str:
    """As Spark's planning does, which fences no one and so records nothing."""
    with client_of(sink.servers) as client, pytest.raises(KafkaSinkError) as caught:
        Driver(sink_options(sink), sink.sink_id).recover(client)
    return str(caught.value)


def sink_options(sink: Sink) -> Any:
    named = {"kafka.bootstrap.servers": sink.servers, "ledger.topic": sink.ledger_topic, "sink.id": sink.sink_id}
    return parse_sink_options({**named, "topic": sink.topic})


def poison(sink: Sink, key: BatchKey = BATCH) -> None:
    put(sink, ledger_key(sink.sink_id, key), b"pykafka-sink-ledger 9 json\n{}")


def copy_from_elsewhere(sink: Sink) -> None:
    record = LedgerRecord(
        Kind.INTENT, sink.sink_id, BATCH, sink.run, row_count=20, topics={sink.topic: 20}, entries=(ENTRY,),
        cluster_id="the-old-cluster",
    )  # fmt: skip
    put(sink, sink.sink_id, ledger_codec.encode_record(record))


@contextmanager
def said_by(name: str) -> Iterator[list[str]]:
    texts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)


def typed(sink: Sink, words: str) -> str:
    """What a command of the operator prints, on both streams."""
    done = enter(sink.command(words))
    return done.stdout + done.stderr


def paste(command: str, folder: Path | None = None, answer: str = "yes") -> Done:
    """As an operator does it: into a shell, with the console script on the PATH, and with a yes to what is asked."""
    known = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=known,
        input=f"{answer}\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def enter(command: str, answer: str = "yes") -> Done:
    """The same without a shell and a process of its own, whose start takes longer than most commands."""
    name, *words = shlex.split(command)
    assert name == "pykafka-sink", command
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors), mock.patch("sys.stdin", io.StringIO(f"{answer}\n")):
        code = main(words)
    return Done(words, code, output.getvalue(), errors.getvalue())


def checked(sink: Sink, *names: str, **more: str) -> str:
    named = {"kafka.bootstrap.servers": sink.servers, "ledger.topic": sink.ledger_topic, "sink.id": sink.sink_id}
    report = kafka_sink.check({**named, "topic": sink.topic, **more}, timeout_s=20)
    return "\n".join(f"{each.text}: {each.advice}" for each in report if each.name in (names or ("decisions", "ids")))


# ---- cases ----


def pending(sink: Sink) -> str:
    return error_of(sink, BATCH, lambda one: Unanswered(one, Phase.COMMITTING, "commit transaction"))


def pending_and_overdue(sink: Sink) -> str:
    text = pending(sink)
    end_foreign(sink, [sink_receipt(sink, number) for number in range(2)])
    return text


def sink_receipt(sink: Sink, number: int) -> TaskReceipt:
    """Only its transactional id counts."""
    name = f"{sink.sink_id}-{sink.run}-{number}-0"
    return TaskReceipt(BATCH, sink.run, number, 0, PreparedTransaction(name, 0, 0, 2))


def in_doubt(*, is_decided: bool) -> Callable[[Sink], str]:
    def make(sink: Sink) -> str:
        def end(one: Committer) -> Unanswered:
            return Unanswered(one, Phase.DECIDING, "end ledger transaction", is_sent=is_decided)

        return error_of(sink, BATCH, end)

    return make


def not_recorded(sink: Sink) -> str:
    return error_of(sink, BATCH, lambda one: Unanswered(one, Phase.RECORDING, "end ledger transaction"))


def not_closed(sink: Sink) -> str:
    receipts = [sink.task(BATCH, number) for number in range(2)]
    with client_of(sink.servers, **sink.login) as client:
        settings = sink.settings(client)
        job = Job(DriverOperation.COMMIT, BATCH, receipts, may_close_later=True)
        left = client.run(Committer(settings, sink.session(BATCH), job, client.now_ms())).closing
    assert left is not None
    return not_closed_text(settings.commands, left, "no answer in time")


def other_pending(sink: Sink) -> str:
    sink.decide_and_die(BATCH)
    sink.run = "e" * 16
    return error_of(sink, NEXT, lambda one: Unanswered(one, Phase.FINISHING, "commit transaction"))


def lost_at_planning(sink: Sink) -> str:
    lose(sink)
    return plan(sink)


def lost_at_next_commit(sink: Sink) -> str:
    lose(sink)
    sink.run = "e" * 16
    return error_of(sink, NEXT)


def unknown_sink(sink: Sink) -> str:
    old = replace(sink, sink_id=f"{sink.sink_id}-old")
    old.decide_and_die(BATCH)
    sink.run = NEXT_RUN
    return error_of(sink, NEXT)


def names_the_old_one(sink: Sink, done: Done) -> None:
    assert done.returncode == 1, done
    old = replace(sink, sink_id=f"{sink.sink_id}-old")
    assert old.command("recover") in done.stdout
    assert enter(old.command("recover")).returncode == 0
    assert sink.visible() == sorted(rows(BATCH, 0, 1))
    sink.accepts_new_sink = True
    sink.deliver(NEXT)


def other_cluster(sink: Sink) -> str:
    copy_from_elsewhere(sink)
    sink.run = NEXT_RUN
    return error_of(sink, NEXT)


def letters_of_another_cluster(sink: Sink) -> str:
    """Their replay had ended there, and its progress came here with the ledger."""
    dead = f"{sink.topic}-dead"
    progress = ReplayProgress("nightly", dead, "", sink.topic, {}, {0: 1}, 1, cluster_id="the-old-cluster")
    put(sink, progress.ledger_key, encode_progress(progress))
    with client_of(sink.servers) as client:
        client.create_topic(dead, TopicPlan(1, 1))
    producer = ConfluentProducer({"bootstrap.servers": sink.servers})
    producer.produce(dead, b"letter", headers={f"{HEADER_PREFIX}{ERROR}": b"wrong", f"{HEADER_PREFIX}{REASON}": b"no"})
    producer.flush(20)
    words = f"--from {dead} --to {sink.topic} --name nightly --bootstrap-server {sink.servers}"
    return enter(f"pykafka-sink replay {words} --ledger-topic {sink.ledger_topic}").stderr


def letters_came_back(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "1 records written" in done.stdout, done
    assert sink.visible() == [b"letter"]


def choice_in_doubt(operation: DriverOperation) -> Callable[[Sink], str]:
    def make(sink: Sink) -> str:
        record_loss(sink)
        return operate(sink, operation, phase=Phase.RECORDING)

    return make


def unreadable_at_commit(sink: Sink) -> str:
    sink.deliver(BATCH)
    poison(sink)
    sink.run = NEXT_RUN
    return error_of(sink, NEXT)


def unreadable_at_planning(sink: Sink) -> str:
    sink.deliver(BATCH)
    poison(sink)
    return plan(sink)


def left_alone(sink: Sink) -> str:
    pending(sink)
    with said_by("kafka_sink") as texts:
        report_aborted(
            FinishedBatch(sink_options(sink), sink.sink_id, BatchKey("", "a"), sink.run, []), Conclusion.LEFT_ALONE
        )
    return texts[-1]


def after(prepare: Callable[[Sink], object], words: str) -> Callable[[Sink], str]:
    """The text is that of an operator's command."""

    def make(sink: Sink) -> str:
        prepare(sink)
        return typed(sink, words)

    return make


def two_days_lost(sink: Sink) -> None:
    for key in (DAY_1, DAY_2):
        sink.run = sink.run_of(str(key.batch_id), "unique")
        record_loss(sink, key)


def overdue(sink: Sink) -> None:
    lose(sink)


def open_in_time(sink: Sink) -> None:
    sink.decide_and_die(BATCH)


def open_and_committed(sink: Sink) -> None:
    sink.decide_and_die(BATCH, committed=2)


def aside_in_doubt(sink: Sink) -> str:
    poison(sink)
    words = ["resolve", "--set-aside", "--yes", "--bootstrap-server", sink.servers]
    given = parse_arguments([*words, "--ledger-topic", sink.ledger_topic, "--sink-id", sink.sink_id])
    with closing(given.session(given)) as session:
        session.set_aside = lambda *_: SimpleNamespace(outcome=Aside.IN_DOUBT, reason="no answer")
        return "\n".join(given.run(session, given).lines)


def one_day_open(sink: Sink) -> None:
    """Another day is lost, which blocks only itself."""
    sink.run = sink.run_of(str(DAY_1.batch_id), "unique")
    sink.decide_and_die(DAY_1)


def taken_over(sink: Sink) -> str:
    """The first run of an export wakes up when a second one has decided it."""
    sink.run = sink.run_of(str(DAY_1.batch_id), "first")
    record_loss(sink, DAY_1)
    assert enter(sink.command(f"resolve --replay | --batch {DAY_1.batch_id}")).returncode == 0
    younger = replace(sink, run=sink.run_of(str(DAY_1.batch_id), "second"))
    younger.decide_and_die(DAY_1)
    return error_of(sink, DAY_1)


def not_helped(sink: Sink) -> str:
    """Planning of another write finds an open decision of a write without a label, and cannot finish it."""
    nameless = replace(sink, sink_id=sink_id_of_write(None, sink.run))
    nameless.decide_and_die(UNNAMED_BATCH)
    with client_of(sink.servers) as client:
        job = Job(DriverOperation.RECOVER)
        committer = Committer(sink.settings(client), DriverSession(""), job, client.now_ms())
        return client.run(Unanswered(committer, Phase.FINISHING, "commit transaction")).notes[-1]


def nameless_rows_are_visible(sink: Sink, done: Done) -> None:
    assert done.returncode == 0, done
    assert sink.visible() == sorted(rows(UNNAMED_BATCH, 0, 1))


def nameless_lost(sink: Sink) -> str:
    nameless = replace(sink, sink_id=sink_id_of_write(None, sink.run))
    lose(nameless, UNNAMED_BATCH)
    return typed(nameless, "recover")


def status_says(prepare: Callable[[Sink], object], kind: str) -> Callable[[Sink], str]:
    """The commands that `status` names for a finding of this kind of the sink."""

    def make(sink: Sink) -> str:
        prepare(sink)
        more = "--json" if kind == "silent" else "--json --silent-after 0"
        done = paste(f"pykafka-sink status --bootstrap-server {sink.servers} --ledger-topic {sink.ledger_topic} {more}")
        told = json.loads(done.stdout)["findings"]
        found = [each for each in told if each["kind"] == kind and each["ledger_topic"] == sink.ledger_topic]
        return " or ".join(f"`{command}`" for each in found for command in each["commands"])

    return make


def is_retired(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "sink orders is the last one" not in done.stdout, done


def foreign_id_of_a_driver(sink: Sink) -> str:
    sink.deliver(BATCH)
    sink.task(NEXT, 7)
    about = f"--bootstrap-server {sink.servers} --ledger-topic {sink.ledger_topic}"
    done = paste(f"pykafka-sink transactions --abort {about} --transactional-id {sink.sink_id}-driver")
    assert done.returncode == 2, done
    return done.stderr


def slow(sink: Sink) -> str:
    """More than half of the time of a transaction has passed."""
    sink.deliver(BATCH)
    sink.timeout_ms = 2_000
    sink.task(NEXT, 7)
    return wait_until(lambda: status_says(lambda _: None, "transaction")(sink), "more than half of the time")


def nothing_is_open(sink: Sink, done: Done) -> None:
    """If its time-out has not ended it before, it asks."""
    assert done.returncode in (0, 1), done
    assert paste(sink.command("transactions --abort") + " --yes").returncode == 0


def two_are_open(sink: Sink) -> str:
    sink.decide_and_die(BATCH)
    replace(sink, sink_id="invoices", run="e" * 16).decide_and_die(BATCH)
    done = paste(f"pykafka-sink status --bootstrap-server {sink.servers} --silent-after 0")
    (command,) = [line.strip() for line in done.stdout.splitlines() if "recover --all" in line]
    return f"`{command}`"


def open_in_a_ledger_that_is_not_named(sink: Sink) -> str:
    sink.decide_and_die(BATCH)
    done = paste(f"pykafka-sink recover --all --bootstrap-server {sink.servers}")
    assert done.returncode == 4 and "looks like a ledger with open decisions (1)" in done.stdout, done
    return done.stdout


def all_rows_are_visible(sink: Sink, done: Done) -> None:
    assert done.returncode == 0, done
    assert sink.visible() == sorted(2 * rows(BATCH, 0, 1))


def copy_plainly(sink: Sink) -> None:
    record = LedgerRecord(
        Kind.DONE, sink.sink_id, BATCH, sink.run, topics={sink.topic: 20}, cluster_id="the-old-cluster"
    )
    producer = ConfluentProducer({"bootstrap.servers": sink.servers})
    producer.produce(sink.ledger_topic, ledger_codec.encode_record(record), sink.sink_id)
    producer.flush(20)


def is_taken_out(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "accepted" in done.stdout, done
    assert sink.visible() == rows(UNNAMED_BATCH, 0)
    assert enter(replace(sink, sink_id=sink_id_of_write(None, sink.run)).command("recover")).returncode == 0


def two_unreadable(sink: Sink) -> None:
    poison(sink, DAY_1)
    poison(sink, DAY_2)


def topic_is_there(sink: Sink, done: Done) -> None:
    assert done.returncode == 0, done
    assert "topic.create" not in checked(replace(sink, topic=f"{sink.topic}-2"), "topic")


def manifests_of(sink: Sink) -> dict[str, str]:
    return {"manifest.topic": f"{sink.topic}-manifests"}


def manifest_topic_is_there(sink: Sink, done: Done) -> None:
    assert done.returncode == 0, done
    assert "manifest.topic" not in checked(sink, "topic", **manifests_of(sink))


def one_is_left(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and "was set aside" in done.stdout, done
    assert enter(sink.command("resolve --set-aside")).returncode == 0
    assert enter(sink.command("ledger")).returncode == 2, "nothing of the sink is left"


def dangling(sink: Sink) -> str:
    sink.deliver(BATCH)
    sink.timeout_ms = 2_000
    sink.task(NEXT, 7)
    return wait_until(lambda: "transactions --" in (said := checked(sink)) and said, "more than half of the time")


def readers_wait(sink: Sink) -> str:
    sink.deliver(BATCH)
    sink.task(NEXT, 7)
    return waiting_text(sink_options(sink), sink.sink_id, [], (), now_s=0)


def wait_has_ended(sink: Sink, done: Done) -> None:
    """It asks first; for other words than yes while a query seems to run under that id."""
    assert "Go on?" in done.stderr or "take over" in done.stderr, done
    assert enter(sink.command("transactions --abort") + " --yes").returncode == 0
    left = enter(sink.command("transactions"))
    assert left.returncode == 0 and "Ongoing" not in left.stdout, left


CHOICE = {"resolve --replay": runs_again, "resolve --accept": goes_on}
ASIDE = {"resolve --set-aside": is_set_aside}
# Names in the table of errors.
ENTRIES_OF = {
    "messages._who_finishes": "PKS-6011",
    "messages._who_finds_out": "PKS-6012",
    "messages._who_closes": "PKS-6013",
    "messages.choice_not_recorded_error": "PKS-6014",
    "messages.other_pending_error": "PKS-6015",
    "messages.lost_error": "PKS-6021",
    "messages.unknown_sink_error": "PKS-6005",
    "messages.other_cluster_error": "PKS-6006",
    "messages.complete_reason": "PKS-6031",
    "messages._export_taken_over_error": "PKS-6008",
}
CASES = (
    Case("pending", "messages._who_finishes", pending, {"recover": rows_are_visible}, is_main=True),
    Case(
        "pending, and read after the time-out", "messages._who_finishes", pending_and_overdue,
        {"recover": says_that_rows_are_missing}, is_main=True),
    Case("in doubt and decided", "messages._who_finds_out", in_doubt(is_decided=True), {"recover": rows_are_visible},
         is_main=True),
    Case("in doubt and not decided", "messages._who_finds_out", in_doubt(is_decided=False),
         {"recover": the_batch_may_run_again}),
    Case("not recorded", "messages._who_closes", not_recorded, {"recover": rows_are_visible}),
    Case("not recorded after the commit", "messages.not_closed_text", not_closed, {"recover": rows_are_visible}),
    Case("an earlier batch is pending", "messages.other_pending_error", other_pending,
         {"recover": rows_are_visible}),
    Case("lost, found while planning", "messages.lost_error", lost_at_planning, CHOICE, is_main=True),
    Case("lost, found by the next commit", "messages.lost_error", lost_at_next_commit, CHOICE, is_main=True),
    Case("lost, found by recover", "messages.lost_error", after(lose, "recover"), CHOICE),
    Case("lost, shown by ledger", "messages.lost_error", after(record_loss, "ledger"), CHOICE),
    Case("unknown sink", "messages.unknown_sink_error", unknown_sink, {"ledger": names_the_old_one}, is_main=True),
    Case("acceptance in doubt", "messages.choice_not_recorded_error", choice_in_doubt(DriverOperation.ACCEPT),
         {"ledger": shows("lost", exit_code=1), "resolve --accept": goes_on}),
    Case("repetition in doubt", "messages.choice_not_recorded_error", choice_in_doubt(DriverOperation.REPLAY),
         {"ledger": shows("lost", exit_code=1), "resolve --replay": runs_again}),
    Case("unreadable at a commit", "messages.complete_reason", unreadable_at_commit, ASIDE),
    Case("unreadable while planning", "messages.complete_reason", unreadable_at_planning, ASIDE),
    Case("a batch that was left alone", "summary._left_alone_text", left_alone, {"recover": rows_are_visible}),
    Case("open, shown by ledger", "open_decisions.advice_text", after(open_in_time, "ledger"),
         {"recover": rows_are_visible}),
    Case("committed, shown by ledger", "open_decisions.advice_text", after(open_and_committed, "ledger"),
         {"recover": rows_are_visible}),
    Case("overdue, shown by ledger", "open_decisions.advice_text", after(overdue, "ledger"),
         {"recover": says_that_rows_are_missing}, is_main=True),
    Case("open, shown by check", "ledger._open_decisions", lambda sink: (open_in_time(sink), checked(sink))[1],
         {"recover": rows_are_visible}),
    Case("committed, shown by check", "ledger._open_decisions",
         lambda sink: (open_and_committed(sink), checked(sink))[1], {"recover": rows_are_visible}),
    Case("overdue, shown by check", "ledger._open_decisions", lambda sink: (overdue(sink), checked(sink))[1],
         {"recover": says_that_rows_are_missing}),
    Case("lost, shown by check", "ledger.decisions", lambda sink: (record_loss(sink), checked(sink))[1], CHOICE),
    Case("unreadable, shown by check", "ledger.decisions", lambda sink: (poison(sink), checked(sink))[1], ASIDE),
    Case("unreadable, shown by ledger", "read_commands._unreadable_lines", after(poison, "ledger"), ASIDE),
    Case("unreadable, said by recover", "write_commands._read_records", after(poison, "recover"), ASIDE),
    Case("two are lost", "write_commands.resolve", after(two_days_lost, "resolve --replay"),
         {"resolve --replay": label_is("2026-11-02 late", "replay")}),
    Case("two are lost, and are to be accepted", "write_commands.resolve", after(two_days_lost, "resolve --accept"),
         {"resolve --accept": label_is("2026-11-02 late", "accepted")}),
    Case("another day is asked about", "write_commands._nothing_lost",
         after(one_day_open, "resolve --accept | --batch x"), {"recover": label_is("2026-11-01", "delivered")}),
    Case("two cannot be read", "write_commands.set_aside", after(two_unreadable, "resolve --set-aside"),
         {"resolve --set-aside": one_is_left}),
    Case("a misspelled sink", "sink_client.known_decisions",
         lambda sink: (sink.deliver(BATCH), typed(replace(sink, sink_id="unheard-of"), "recover"))[1],
         {"ledger": shows("delivered", exit_code=0)}),
    Case("transactions that nobody ends", "transactions.ids", dangling,
         {"transactions": shows("Ongoing", exit_code=1)}),
    Case("readers may wait after a cancelled write", "driver.waiting_text", readers_wait,
         {"transactions": wait_has_ended}),
    Case("a nameless write that planning could not finish", "messages.not_helped_text", not_helped,
         {"recover": nameless_rows_are_visible}),
    Case("a nameless write is lost in part", "messages.lost_error", nameless_lost, {"resolve --accept": is_taken_out}),
    Case("an export that another run writes", "messages._export_taken_over_error", taken_over,
         {"ledger": shows("open", exit_code=1)}),
    Case("another cluster", "messages.other_cluster_error", other_cluster,
         {"recover": rows_are_visible, **CHOICE}),
    Case("letters that were replayed in another cluster", "replay._other_cluster_error", letters_of_another_cluster,
         {"replay": letters_came_back}),
    Case("no topic, shown by check", "topics._missing",
         lambda sink: checked(replace(sink, topic=f"{sink.topic}-2"), "topic"), {"topic": topic_is_there}),
    Case("no topic for manifests, shown by check", "topics._manifest_findings",
         lambda sink: checked(sink, "topic", **manifests_of(sink)), {"topic": manifest_topic_is_there}),
    Case("open, shown by status", "findings._judge_open", status_says(open_in_time, "open"),
         {"recover": rows_are_visible}),
    Case("overdue, shown by status", "findings._judge_open", status_says(overdue, "overdue"),
         {"recover": says_that_rows_are_missing}),
    Case("lost, shown by status", "findings._choice", status_says(record_loss, "lost"), CHOICE, is_main=True),
    Case("unreadable, shown by status", "findings._judge_unreadable", status_says(poison, "unreadable"), ASIDE),
    Case("silent, shown by status", "findings._judge_silence",
         status_says(lambda sink: sink.deliver(BATCH), "silent"), {"status": is_retired}),
    Case("copied without transactions, shown by status", "findings._judge_ledger", status_says(copy_plainly, "copied"),
         {"ledger": shows("is a copy", exit_code=4)}),
    Case("slow, shown by status", "findings._judge_group", slow, {"transactions": nothing_is_open}),
    Case("open in a ledger that is not named", "recover_all._left_text", open_in_a_ledger_that_is_not_named,
         {"recover": rows_are_visible}),
    Case("two are open, shown by status", "status.finding_lines", two_are_open, {"recover": all_rows_are_visible}),
    Case("the id of a driver, taken for another application's", "foreign._check_is_foreign", foreign_id_of_a_driver,
         {"transactions": wait_has_ended}),
    Case("set aside in doubt", "write_commands.set_aside", aside_in_doubt,
         {"ledger": shows("cannot be read", exit_code=4)}),
)  # fmt: skip

# Words of the command in docs/operations.md, the state that its section is about, what the page says of it.
OF_PAGE: Mapping[str, tuple[str, Callable[[Sink], object], Check]] = {
    "first": (
        "status --bootstrap-server broker:9092", lambda sink: sink.deliver(BATCH),
        shows("is the last one", exit_code=1),
    ),
    "readers": (
        "readers --bootstrap-server broker:9092 --topic t --group billing", lambda sink: sink.task(BATCH, 0),
        shows("the group has committed nothing; wait for a transaction of sink orders", exit_code=0),
    ),
    "state": (
        "ledger --bootstrap-server broker:9092", lambda sink: sink.deliver(BATCH), shows("delivered", exit_code=0),
    ),
    "pending": ("recover --bootstrap-server broker:9092 --sink-id orders", pending, rows_are_visible),
    "lost, to be repeated": (
        "resolve --replay --bootstrap-server broker:9092 --sink-id orders", lost_at_planning, runs_again,
    ),
    "lost, to be accepted": (
        "resolve --accept --bootstrap-server broker:9092 --sink-id orders", lost_at_planning, goes_on,
    ),
    "unreadable": (
        "resolve --set-aside --bootstrap-server broker:9092 --sink-id orders", unreadable_at_commit, is_set_aside,
    ),
    "readers that wait": (
        "transactions --bootstrap-server broker:9092", lambda sink: sink.task(BATCH, 0),
        shows("Ongoing", "no", exit_code=1),
    ),
}  # fmt: skip
