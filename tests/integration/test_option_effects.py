"""Options of the sink from the writer's settings to their effect: planning, tasks and commits, in one process.

tests/mistakes/wiring.py names these tests: each fails if the value of its option gets lost on the way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

import kafka_sink
from kafka_sink import Producer
from kafka_sink.commit.identity import run_hash, sink_id_of_checkpoint, sink_id_of_query
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.messages import STILL_ACCEPTED
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import CommitAborted, ConfigError
from kafka_sink.kafka.io.warn_once import WARNED
from kafka_sink.producer.pool import POOL
from kafka_sink.spark import datasource, task, writers
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker
from tests.support.asking import client_of
from tools.foreign_reader import read_topic
from tools.worker_environment import worker_environment

SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
pytestmark = pytest.mark.embedded_kafka(brokers=3)
QUERY = "query-1"
attempts = itertools.count(1)


def table(values: Sequence[bytes]) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.binary()), "partition": pa.nulls(len(values), pa.int32())}
    return pa.RecordBatch.from_pydict(columns)


@dataclass
class Stream:
    """One query with one task; a new `run` is a restart."""

    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    run: str = "run-1"

    @property
    def settings(self) -> dict[str, str]:
        named = {"kafka.bootstrap.servers": self.servers, "checkpointLocation": "/checkpoints/orders", "topic": "t"}
        return {name: value for name, value in {**named, **self.options}.items() if value}

    def write(self, batch_id: int, *values: bytes) -> Any:
        planned = datasource.plan_stream(self.settings, SCHEMA, False)
        sink_id = None if planned._sink_id is None else sink_id_of_query(planned._sink_id, QUERY)
        place = TaskPlace(BatchKey(QUERY, batch_id), run_hash(self.run), 0, next(attempts), sink_id)
        return writers.CommitMessage(task.write_task(planned._options, planned._columns, iter([table(values)]), place))

    def commit(self, batch_id: int, *messages: Any) -> None:
        datasource.plan_stream(self.settings, SCHEMA, False).commit(list(messages), batch_id)

    def deliver(self, batch_id: int, *values: bytes) -> None:
        message = self.write(batch_id, *values)
        try:
            self.commit(batch_id, message)
        except CommitAborted:
            datasource.plan_stream(self.settings, SCHEMA, False).abort([message], batch_id)
            raise

    def visible(self, topic: str = "t") -> list[bytes]:
        return [record.value or b"" for record in read_topic(self.servers, topic)]


@pytest.fixture(autouse=True)
def no_producer_is_left_to_the_next_test() -> Iterator[None]:
    yield
    POOL.close()


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: EmbeddedBroker) -> Stream:
    for name, value in worker_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    broker.create_topic("t", 1)
    return Stream(broker.bootstrap_servers)


def plan(stream: Stream, **options: str) -> Any:
    stream.options = {name.replace("_", "."): value for name, value in options.items()}
    return datasource.plan_stream(stream.settings, SCHEMA, False)


def export(stream: Stream, values: list[bytes], **options: str) -> None:
    """A batch write with one task."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    settings = {"kafka.bootstrap.servers": stream.servers, "topic": "t", "sink.id": "exports", **named}
    planned = datasource.plan_batch(settings, SCHEMA, False)
    sink_id = sink_id_of_query(planned._sink_id or "", planned._key.query_id)
    place = TaskPlace(planned._key, planned._run, 0, next(attempts), sink_id)
    receipt = task.write_task(planned._options, planned._columns, iter([table(values)]), place)
    planned.commit([writers.CommitMessage(receipt)])


def records_of(stream: Stream) -> list[Any]:
    with client_of(stream.servers) as client:
        found = client.run_step(LedgerListing(DeliverySettings(), None)).listed
    return [each.record for each in found or []]


# ---- delivery and names ----


def test_replay_mismatch_warn_drops_other_rows_and_goes_on(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    stream.deliver(0, b"a", b"b")
    stream.run = "run-2"
    with pytest.raises(CommitAborted, match="comes again with other rows"):
        stream.deliver(0, b"a")
    stream.run, stream.options = "run-3", {"replay.mismatch": "warn"}
    stream.deliver(0, b"a")
    assert "The delivered rows stay; the rows of the repetition were not written" in caplog.text
    assert stream.visible() == [b"a", b"b"]


def test_a_commit_waits_for_commit_visible_timeout_ms_and_says_what_is_not_visible(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer({"bootstrap.servers": stream.servers, "transactional.id": "another application"}) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send("t", b"open").result(60)
        stream.deliver(0, b"a")
        assert "stable up to" not in caplog.text
        stream.options = {"commit.visible.timeout.ms": "150"}
        stream.deliver(1, b"b")
        assert "t-0 (stable up to 0" in caplog.text
        other.abort_transaction()


def test_at_least_once_rows_are_visible_before_any_commit(stream: Stream) -> None:
    stream.options = {"delivery.guarantee": "at-least-once"}
    stream.write(0, b"a")
    assert stream.visible() == [b"a"]


def test_the_ledger_knows_a_stream_by_sink_id(stream: Stream) -> None:
    stream.options = {"sink.id": "orders"}
    stream.deliver(0, b"a")
    assert [record.sink_id for record in records_of(stream)] == [sink_id_of_query("orders", QUERY)]


def test_the_ledger_knows_a_stream_without_sink_id_by_its_checkpoint_location(stream: Stream) -> None:
    stream.deliver(0, b"a")
    name = sink_id_of_checkpoint("/checkpoints/orders")
    assert [record.sink_id for record in records_of(stream)] == [sink_id_of_query(name, QUERY)]


def test_the_ledger_shows_the_name_of_the_query(stream: Stream) -> None:
    stream.options = {"queryName": "orders by day"}
    stream.deliver(0, b"a")
    assert [record.label for record in records_of(stream)] == ["orders by day"]


def test_an_export_with_a_batch_id_is_delivered_once(stream: Stream) -> None:
    for _ in range(2):
        export(stream, [b"a"], batch_id="day-1")
    export(stream, [b"b"])
    assert stream.visible() == [b"a", b"b"]


def test_an_export_whose_name_another_of_equal_size_has_had_is_told_to_take_its_own(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    export(stream, [b"a"], batch_id="day")
    assert "batch.id" not in caplog.text
    export(stream, [b"b"], batch_id="day")
    assert "If this is another export, its rows are missing: give it its own batch.id" in caplog.text
    assert "checkpoint" not in caplog.text and stream.visible() == [b"a"]


def test_a_number_as_batch_id_is_a_micro_batch_of_the_query_id(stream: Stream) -> None:
    export(stream, [b"a"], batch_id="0", query_id="query-7")
    export(stream, [b"b"], batch_id="3", query_id="query-7")
    assert [record.key for record in records_of(stream)] == [BatchKey("query-7", 3)]


# ---- topics and the ledger ----


def test_rows_go_to_the_topic_of_the_option(stream: Stream, broker: EmbeddedBroker) -> None:
    broker.create_topic("u", 1)
    stream.options = {"topic": "u"}
    stream.deliver(0, b"a")
    assert (stream.visible("u"), stream.visible("t")) == ([b"a"], [])


def test_decisions_are_in_the_ledger_topic_of_the_option(stream: Stream, broker: EmbeddedBroker) -> None:
    stream.options = {"ledger.topic": "decisions"}
    stream.deliver(0, b"a")
    assert broker.records("decisions") and "__pykafka_sink_ledger" not in broker.core.cluster.topics


def test_a_ledger_is_created_with_the_replicas_and_the_configuration_of_the_options(
    stream: Stream, broker: EmbeddedBroker
) -> None:
    plan(stream, **{"ledger.replication.factor": "2", "ledger.config.segment.ms": "60000"})
    ledger = broker.core.cluster.topics["__pykafka_sink_ledger"]
    assert len(ledger.partitions[0].replicas) == 2 and ledger.configs["segment.ms"] == "60000"


def test_without_ledger_create_a_missing_ledger_is_an_error(stream: Stream) -> None:
    with pytest.raises(ConfigError, match=r"ledger\.create=false"):
        plan(stream, **{"ledger.create": "false"})


def test_an_unknown_stream_goes_on_with_ledger_accept_new_sink(stream: Stream) -> None:
    with pytest.raises(CommitAborted, match="has no record of sink"):
        stream.deliver(7, b"a")
    stream.run, stream.options = "run-2", {"ledger.accept.new.sink": "true"}
    stream.deliver(7, b"b")
    assert stream.visible() == [b"b"]


def test_ledger_accept_new_sink_that_is_left_set_is_warned_about_once(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    WARNED.renew()
    stream.options = {"ledger.accept.new.sink": "true"}
    counts = []
    for batch_id in (7, 8, 9):
        stream.run = f"run-{batch_id}"  # each is a start of its own
        stream.deliver(batch_id, b"a")
        counts.append(sum(record.message == STILL_ACCEPTED for record in caplog.records))
    assert counts == [0, 1, 1]


@pytest.mark.parametrize("changed", [{"ledger_topic": "another"}, {"sink_id": "another"}], ids=str)
def test_a_numbered_batch_of_foreach_batch_is_refused_by_a_ledger_that_does_not_know_its_query(
    stream: Stream, changed: dict[str, str]
) -> None:
    """It was delivered, and is not in Spark's commit log. A label is a write of its own: it is new to any ledger."""
    for batch_id in ("56", "57"):
        export(stream, [b"a"], batch_id=batch_id, query_id=QUERY, ledger_accept_new_sink="true")
    with pytest.raises(CommitAborted, match=r"has no record of sink(?s:.*)ledger\.accept\.new\.sink=true"):
        export(stream, [b"a"], batch_id="57", query_id=QUERY, **changed)
    export(stream, [b"b"], batch_id="monday", **changed)
    export(stream, [b"c"], batch_id="57", query_id=QUERY, ledger_accept_new_sink="true", **changed)
    export(stream, [b"d"], batch_id="58", query_id=QUERY, **changed)
    assert stream.visible() == [b"a", b"a", b"b", b"c", b"d"]


def test_a_topic_is_created_as_the_options_say(stream: Stream, broker: EmbeddedBroker) -> None:
    wanted = {"topic": "u", "topic.create": "true", "topic.partitions": "5", "topic.replication.factor": "2"}
    plan(stream, **wanted, **{"topic.config.retention.ms": "60000", "kafka.allow.auto.create.topics": "false"})
    created = broker.core.cluster.topics["u"]
    assert [len(one.replicas) for one in created.partitions] == [2] * 5 and created.configs["retention.ms"] == "60000"


@pytest.mark.embedded_kafka(properties={"transaction.max.timeout.ms": "70000"})
def test_a_transaction_timeout_that_brokers_do_not_allow_is_refused_if_it_was_chosen(stream: Stream) -> None:
    plan(stream)
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms=80000 is more than the brokers allow"):
        plan(stream, **{"kafka.transaction.timeout.ms": "80000"})


# ---- rows ----


def test_a_row_that_cannot_be_sent_is_dropped_with_record_errors_drop(stream: Stream) -> None:
    stream.options = {"record.errors": "drop", "kafka.max.request.size": "2000"}
    stream.deliver(0, b"x" * 3_000, b"a")
    assert stream.visible() == [b"a"]


def test_a_row_that_cannot_be_sent_goes_to_the_dead_letter_topic(stream: Stream, broker: EmbeddedBroker) -> None:
    broker.create_topic("dead", 1)
    stream.options = {
        "record.errors": "dead-letter", "dead.letter.topic": "dead", "kafka.max.request.size": "2000",
    }  # fmt: skip
    stream.deliver(0, b"x" * 3_000, b"a")
    assert (stream.visible(), len(stream.visible("dead"))) == ([b"a"], 1)


heard: list[Any] = []


def hear(key: BatchKey, summary: Any) -> None:
    heard.append((key, summary.row_count))


def last_partition(_topic: str, columns: Any, view: Any) -> Any:
    return [view.partition_count - 1] * columns.row_count


def test_the_partitioner_of_the_user_chooses_partitions(stream: Stream, broker: EmbeddedBroker) -> None:
    broker.create_topic("wide", 3)
    stream.options = {"topic": "wide", "kafka.partitioner.class": f"{__name__}:last_partition"}
    stream.deliver(0, b"a")
    assert [record.partition for record in read_topic(stream.servers, "wide")] == [2]


def test_an_option_without_effect_is_said_when_a_write_is_planned(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    plan(stream, includeheaders="true")
    assert "includeheaders has no effect" in caplog.text


def test_a_preset_is_named_by_the_check(stream: Stream) -> None:
    report = kafka_sink.check({**stream.settings, "preset": "redpanda"}, timeout_s=5)
    assert "preset" in {each.name for each in report}


def test_the_summary_listener_hears_of_a_delivered_batch(stream: Stream) -> None:
    heard.clear()
    stream.options = {"summary.listener": f"{__name__}:hear"}
    stream.deliver(0, b"a")
    assert heard == [(BatchKey(QUERY, 0), 1)]


# ---- names that do not do what they seem to do ----


def test_an_export_with_a_sink_id_and_no_batch_id_is_warned_that_it_is_written_again(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    export(stream, [b"a"], batch_id="day-1")
    assert "batch.id" not in caplog.text
    for _ in range(2):
        export(stream, [b"b"], sink_id="nameless")
    assert caplog.text.count("sink.id=nameless without batch.id") == 1
    assert "If that was given, its value was None: such an option Spark leaves out" in caplog.text
    assert stream.visible() == [b"a", b"b", b"b"]


def test_a_topic_that_the_brokers_create_because_of_a_slip_is_said(
    stream: Stream, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    plan(stream, topic="t")
    assert "was not there" not in caplog.text
    plan(stream, topic="orderz")
    assert "topic orderz was not there, and the brokers have created it" in caplog.text
    assert "kafka.allow.auto.create.topics=false" in caplog.text and "orderz" in broker.core.cluster.topics
    caplog.clear()
    plan(stream, topic="invoices", topic_create="true")
    assert "was not there" not in caplog.text
