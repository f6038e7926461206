"""The abort of a batch of which no task has ended: of a stream, and of a micro-batch that `format` writes inside
foreachBatch. What its killed tasks have open is ended where it can be told from the work of others, and named if not.

The driver's abort runs as Spark calls it. The tasks' transactions are made under the ids that real tasks would have.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from kafka_sink.__main__ import main
from kafka_sink.commit.identity import code_of_stream, run_of_stream, sink_id_of_query
from kafka_sink.commit.messages import SWEPT
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.errors import CommitAborted
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.datasource import plan_stream
from kafka_sink.spark.task_context import BATCH_ID, JOB_GROUP, QUERY_ID, place_in_batch, place_in_stream
from kafka_sink.spark.writers import BatchWriter, CommitMessage, StreamWriter
from kafka_sink.testing import EmbeddedBroker
from tests.support.asking import client_of
from tests.support.commanding import Sink, rows
from tests.support.open_transactions import open_transactions
from tools.worker_environment import worker_environment

NAME, TOPIC, LEDGER = "orders", "t", "ledger"
QUERY, OTHER_QUERY = "8d2dbe5c-1a33-4cb4-8a0f-7f1f3a7f0d6e", "4be0b1a5-2d0e-4c43-8d3c-0a9b6a1c7f55"
START, EARLIER_START = "2f1c9f6e-0b58-4a51-9a53-0f6d1e0f7b11", "91a1c1f4-93a5-4b0f-9d5e-0c1d2e3f4a5b"
FOLDER = "blockmgr-5b0f5ad1-62a5-4a44-8a44-2a5a3f1f3f10"
OTHER_FOLDER = "blockmgr-0c9d4a55-7b1a-4a07-b6ad-6f7f3f8e2d11"
LOCATION = "s3://bucket/checkpoints/orders"
SCHEMA = StructType().add("value", StringType())
KEY = BatchKey(QUERY, 7)


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in worker_environment(tmp_path / FOLDER).items():
        monkeypatch.setenv(name, value)
    with EmbeddedBroker() as broker:
        Sink(broker.bootstrap_servers, TOPIC, NAME, LEDGER).create()
        yield broker.bootstrap_servers


def settings_at(servers: str, **more: str) -> dict[str, str]:
    known = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "sink.id": NAME, "ledger.topic": LEDGER}
    return {**known, **more}


def planned(servers: str, location: str | None = LOCATION) -> StreamWriter:
    """By a process for planning, or one for an abort."""
    where = {"queryname": "orders"} if location is None else {"checkpointlocation": location}
    return plan_stream(settings_at(servers, **where), SCHEMA, False)


def micro_batch(servers: str) -> BatchWriter:
    options = parse_sink_options(settings_at(servers, **{"batch.id": "7"}))
    return BatchWriter(options, choose_columns(SCHEMA, TOPIC), BatchKey("", "7"), run="ab" * 8, sink_id=NAME)


class Context:
    """The part of Spark's TaskContext that the sink uses."""

    def __init__(self, query_id: str, run_id: str) -> None:
        self._properties = {QUERY_ID: query_id, BATCH_ID: "7", JOB_GROUP: run_id}

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return 0

    def taskAttemptId(self) -> int:
        return 0

    def attemptNumber(self) -> int:
        return 0


def tasks_of(
    monkeypatch: pytest.MonkeyPatch, servers: str, writer: Any, query_id: str = QUERY, run_id: str = START
) -> Sink:
    """Under the names that a task of this plan has."""
    with monkeypatch.context() as patched:
        patched.setattr(TaskContext, "get", staticmethod(lambda: Context(query_id, run_id)))
        if isinstance(writer, StreamWriter):
            place = place_in_stream(NAME, writer._code)
        else:
            place = place_in_batch(BatchKey("", "7"), writer._run, NAME)
    assert place.sink_id is not None
    return Sink(servers, TOPIC, place.sink_id, LEDGER, run=place.run)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "kafka_sink" and each.levelname == "WARNING"]


def test_what_killed_tasks_of_a_stream_left_open_is_aborted_though_none_gave_a_receipt(
    servers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint is where this process cannot read it. The next start finds nothing of it."""
    tasks = tasks_of(monkeypatch, servers, planned(servers))
    for number in range(3):
        tasks.task(KEY, number)
    planned(servers).abort([None, None, None], 7)
    assert open_transactions(servers, NAME, patience_s=2) == []
    assert not [text for text in warnings(caplog) if "may wait" in text]
    following = tasks_of(monkeypatch, servers, planned(servers), run_id=EARLIER_START)
    following.accepts_new_sink = True
    following.deliver(KEY)
    assert tasks.visible() == rows(KEY, 0, 1)


def test_a_transaction_that_a_killed_task_of_a_stream_begins_after_the_abort_has_begun_is_aborted_too(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = tasks_of(monkeypatch, servers, planned(servers))
    timers = [threading.Timer(1 + 3 * number, tasks.task, (KEY, number)) for number in range(2)]
    for timer in timers:
        timer.start()
    planned(servers).abort([None, None], 7)
    assert not any(timer.is_alive() for timer in timers)
    assert open_transactions(servers, NAME, patience_s=2) == []


def test_one_that_begins_late_is_aborted_though_an_earlier_start_has_left_something_open(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks_of(monkeypatch, servers, planned(servers), run_id=EARLIER_START).task(KEY, 0)
    late = threading.Timer(1, tasks_of(monkeypatch, servers, planned(servers)).task, (KEY, 0))
    late.start()
    planned(servers).abort([None], 7)
    assert not late.is_alive()
    assert open_transactions(servers, NAME, patience_s=2) == []


def test_the_tasks_of_others_are_left_alone(servers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another query under the same sink.id in this application; this query, started again in another application; and
    a name that begins as this one does."""
    others = [tasks_of(monkeypatch, servers, planned(servers, "s3://bucket/checkpoints/others"), OTHER_QUERY)]
    with monkeypatch.context() as patched:
        patched.setenv("SPARK_LOCAL_DIRS", str(tmp_path / OTHER_FOLDER))
        others.append(tasks_of(patched, servers, planned(servers), run_id=EARLIER_START))
    others.append(replace(tasks_of(monkeypatch, servers, planned(servers)), sink_id="orders-2"))
    receipts = {other.sink_id + other.run: other.task(KEY, 0) for other in others}
    own = tasks_of(monkeypatch, servers, planned(servers))
    own.task(KEY, 1)
    planned(servers).abort([None, None], 7)
    names = sorted(each.transaction.transactional_id for each in receipts.values() if each.transaction)
    assert [each.split()[0] for each in open_transactions(servers, NAME, patience_s=0)] == names


def test_a_batch_that_an_earlier_start_has_decided_is_finished_and_not_aborted(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver has died after planning looked."""
    writer = planned(servers)
    before = tasks_of(monkeypatch, servers, writer, run_id=EARLIER_START)
    before.accepts_new_sink = True
    before.decide_and_die(BatchKey(QUERY, 6))
    tasks_of(monkeypatch, servers, writer).task(KEY, 0)
    writer.abort([None, None], 7)
    assert open_transactions(servers, NAME, patience_s=2) == []
    assert before.visible() == rows(BatchKey(QUERY, 6), 0, 1)


def test_a_frozen_driver_of_an_earlier_start_decides_nothing_about_what_was_aborted(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tasks_of(monkeypatch, servers, planned(servers), run_id=EARLIER_START)
    before.accepts_new_sink = True
    receipts = [before.task(KEY, number) for number in range(2)]
    planned(servers).abort([None, None], 7)
    with client_of(servers) as client:
        result = client.run(before.committer(client, KEY, receipts))
    assert isinstance(result.error, CommitAborted) and SWEPT in str(result.error)
    assert before.visible() == []


def test_a_task_without_rows_that_has_ended_tells_which_run_to_end(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its stream has no code."""
    writer = planned(servers, location=None)
    tasks = tasks_of(monkeypatch, servers, writer)
    tasks.task(KEY, 0)
    writer.abort([CommitMessage(TaskReceipt(KEY, tasks.run, 1, 12)), None], 7)
    assert open_transactions(servers, NAME, patience_s=2) == []


@pytest.mark.parametrize("door", ["a stream whose checkpoint is the session's", "format inside foreachBatch"])
def test_where_it_cannot_be_told_the_log_names_topic_time_and_a_command_that_works(
    servers: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    door: str,
) -> None:
    is_stream = door.startswith("a stream")
    writer: Any = planned(servers, location=None) if is_stream else micro_batch(servers)
    tasks = tasks_of(monkeypatch, servers, writer)
    tasks.task(KEY, 0)
    began = time.monotonic()
    writer.abort([None], 7) if is_stream else writer.abort([None])
    assert time.monotonic() - began < 4
    assert open_transactions(servers, NAME, patience_s=0)
    (text,) = [each for each in warnings(caplog) if "may wait" in each]
    assert "readers of t may wait until " in text
    _, *words = shlex.split(text.split("`")[1])
    assert main([*words, "--yes"]) == 0
    assert f"aborted {tasks.sink_id}-{tasks.run}-0-0" in capsys.readouterr().out
    assert open_transactions(servers, NAME, patience_s=2) == []


@pytest.mark.parametrize("door", ["a stream whose checkpoint is the session's", "format inside foreachBatch"])
def test_where_nothing_of_the_sink_is_open_nobody_is_warned(
    servers: str, caplog: pytest.LogCaptureFixture, door: str
) -> None:
    """As of a batch that failed before its tasks had sent anything."""
    if door.startswith("a stream"):
        planned(servers, location=None).abort([None, None], 7)
    else:
        micro_batch(servers).abort([None, None])
    assert not [text for text in warnings(caplog) if "may wait" in text]


def test_brokers_that_are_away_are_no_reason_to_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark would report that in place of what failed the batch."""
    settings = settings_at("127.0.0.1:1", **{"kafka.max.block.ms": "300"})
    writer = StreamWriter(parse_sink_options(settings), choose_columns(SCHEMA, TOPIC), NAME, code="0" * 8)
    with caplog.at_level(logging.WARNING, "kafka_sink"):
        writer.abort([None], 7)
    assert "readers of t may wait until" in caplog.text and "--sink-id orders` ends them at once" in caplog.text


def test_the_code_of_a_stream_is_that_of_one_application_and_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str
) -> None:
    code = planned(servers)._code
    assert code == planned(servers)._code and len(code) == 8 and code[0] < "8"
    assert planned(servers, "s3://bucket/checkpoints/others")._code not in ("", code)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / OTHER_FOLDER))
    assert planned(servers)._code not in ("", code)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp")  # as a platform may set it for all applications
    assert planned(servers)._code == ""
    runs = {run_of_stream(run_id, code_of_stream("folder", LOCATION)) for run_id in (START, EARLIER_START)}
    assert len(runs) == 2 and all(len(run) == 16 for run in runs)
    assert sink_id_of_query(NAME, QUERY) != sink_id_of_query(NAME, OTHER_QUERY)
