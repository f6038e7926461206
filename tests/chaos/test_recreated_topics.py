"""The topic is deleted, or deleted and created again, while a batch is on its way into it.

What was written to it is gone. Brokers commit such a transaction without an error, so the batch would count as
delivered. The sink refuses it before the decision, and the batch runs again.

After the decision an operator may retire it, or the topic of manifests, before anybody has come to finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitAborted, CommitLost, DeliveryError, KafkaSinkError, TransactionAborted
from kafka_sink.formats.records.assembler import CHUNK_BYTES
from kafka_sink.spark import task
from kafka_sink.spark.writers import CommitMessage
from tests.chaos import bare_work
from tests.chaos.bare_spark import PARTITIONS, ROWS
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.commanding import Sink, rows
from tests.support.decided import KEY, decide, run_as, time_out
from tests.support.open_transactions import open_transactions
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    NEWEST_MAINLY,
    pytest.mark.usefixtures("own_ledger"),
]


def recreate(stream: BareStream) -> None:
    stream.kafka.delete_topic(stream.topic)
    stream.kafka.create_topic(stream.topic, PARTITIONS)


def sent_to(partition: int) -> pa.RecordBatch:
    # The number of bytes that a task collects before it sends.
    values = pa.array([bytes(CHUNK_BYTES // 3 + 1)] * 3)
    return pa.RecordBatch.from_pydict({"value": values, "partition": pa.array([partition] * 3, pa.int32())})


@pytest.mark.parametrize("tasks_before", [1, 3], ids=["between-tasks", "before-the-commit"])
def test_a_batch_whose_topic_is_created_again_is_refused_and_the_next_run_delivers_it(
    direct_stream: BareStream, tasks_before: int
) -> None:
    with direct_stream.query() as query:
        query.plan()
        messages = [query.write_task(number) for number in range(tasks_before)]
        recreate(direct_stream)
        messages += [query.write_task(number) for number in range(tasks_before, 3)]
        with pytest.raises(CommitAborted, match=r"was deleted and created again .* nothing is lost"):
            query.commit(messages)
        query.abort(messages)
    assert direct_stream.open_of_tasks() == []
    direct_stream.run()
    direct_stream.check(1)


def test_a_batch_whose_topic_is_deleted_is_refused_and_delivered_when_there_is_one(direct_stream: BareStream) -> None:
    with direct_stream.query() as query:
        query.run_batch()
        query.plan()
        messages = query.write_tasks()
        direct_stream.kafka.delete_topic(direct_stream.topic)
        with pytest.raises(CommitAborted, match=r"was deleted after .*: create it again before the restart"):
            query.commit(messages)
    direct_stream.kafka.create_topic(direct_stream.topic, PARTITIONS)
    direct_stream.run()
    assert direct_stream.open() == []
    assert sorted(direct_stream.times_seen().values()) == [1] * ROWS


def test_a_task_that_writes_to_both_topics_of_one_name_is_not_committed(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    """Kafka refuses its next record in a partition that it had written to, but not its first one in another partition.
    Where Produce has no topic ids, the driver finds out."""
    stream = stream_on(kafka, is_direct=True, kafka__linger__ms=0)

    def rows() -> Iterable[pa.RecordBatch]:
        yield sent_to(0)
        wait_until(lambda: end_offsets(*where, "read_uncommitted")[0] > 0, "the row arrives")
        recreate(stream)
        yield sent_to(1)

    where = kafka.bootstrap_servers, stream.topic
    with stream.query() as query:
        query.plan()
        planned = bare_work.plan(stream.settings)
        with pytest.raises((DeliveryError, TransactionAborted, CommitAborted), match="was deleted and created again"):
            query.commit([CommitMessage(task.write_task(planned._options, planned._columns, rows(), query.place(0)))])
        query.run_batch()
        query.run_batch()
    stream.check(2)


def test_a_task_does_not_wait_for_a_partition_that_the_new_topic_does_not_have(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    """The row was routed by what was known of the old topic. Otherwise it would wait for delivery.timeout.ms."""
    stream = stream_on(kafka, is_direct=True, kafka__linger__ms=0)
    where = kafka.bootstrap_servers, stream.topic

    def rows() -> Iterable[pa.RecordBatch]:
        yield sent_to(1)
        wait_until(lambda: end_offsets(*where, "read_uncommitted")[1] > 0, "the row arrives")
        kafka.delete_topic(stream.topic)
        kafka.create_topic(stream.topic, 1)
        yield sent_to(1)

    with stream.query() as query:
        query.plan()
        planned = bare_work.plan(stream.settings)
        with pytest.raises(KafkaSinkError, match=r"it had \d+ partitions .* has 1 .* partition 1 is gone"):
            task.write_task(planned._options, planned._columns, rows(), query.place(0))
        recreate(stream)  # the rows of the batch name three partitions
        query.run_batch()
    stream.check(1)


# ---- after the decision ----


@pytest.fixture
def decided(kafka: KafkaCluster, topic_name: str) -> Sink:
    """Its driver is dead. Its manifest is for a topic of its own."""
    sink = Sink(kafka.bootstrap_servers, topic_name, topic_name[-60:].lstrip("-"), f"ledger-{topic_name}"[:249])
    sink.create()
    kafka.create_topic(f"{topic_name}-m", 2)
    decide(sink, f"{topic_name}-m")
    return sink


def take_away(kafka: KafkaCluster, topic: str, *, is_made_again: bool) -> None:
    """Of two partitions of the old topic, the new one has the first."""
    kafka.delete_topic(topic)
    if is_made_again:
        kafka.create_topic(topic, 1)


both = pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "with-fewer-partitions"])


@both
def test_a_decision_whose_topic_was_deleted_when_its_transactions_had_timed_out_waits_for_a_choice(
    kafka: KafkaCluster, decided: Sink, is_made_again: bool
) -> None:
    time_out(decided)
    take_away(kafka, decided.topic, is_made_again=is_made_again)
    lost = run_as(decided, DriverOperation.FINISH).error
    assert isinstance(lost, CommitLost) and "Ended in a way that can no longer be read" in str(lost)
    assert run_as(decided, DriverOperation.ACCEPT).conclusion is Conclusion.RESOLVED


@both
def test_a_decision_whose_topic_was_deleted_in_time_is_finished(
    kafka: KafkaCluster, decided: Sink, is_made_again: bool
) -> None:
    """The coordinators commit what there is, and nobody asks the log."""
    take_away(kafka, decided.topic, is_made_again=is_made_again)
    assert run_as(decided, DriverOperation.FINISH).error is None
    assert open_transactions(decided.servers, decided.sink_id) == []


@both
def test_a_decision_is_closed_without_its_manifest_when_the_topic_of_manifests_was_deleted(
    kafka: KafkaCluster, decided: Sink, is_made_again: bool
) -> None:
    take_away(kafka, f"{decided.topic}-m", is_made_again=is_made_again)
    closed = run_as(decided, DriverOperation.FINISH)
    assert closed.error is None and "is closed without its manifest" in closed.notes[0]
    assert decided.visible() == sorted(rows(KEY, 0, 1))
    again = run_as(decided, DriverOperation.FINISH)
    assert again.conclusion is Conclusion.NOTHING_TO_DO and again.error is None


def test_batches_after_the_topic_was_created_again_go_into_the_new_one(direct_stream: BareStream) -> None:
    """Between batches nothing is on its way. The producers of the processes still know the old topic."""
    with direct_stream.query() as query:
        query.run_batch()
        recreate(direct_stream)
        query.run_batch()
        query.run_batch()
    assert direct_stream.open() == []
    assert sorted(direct_stream.times_seen().values()) == [1] * (2 * ROWS)
