"""The topic is deleted, or deleted and created again, while a batch is on its way into it.

What was written to it is gone. Brokers commit such a transaction without an error, so the batch would count as
delivered. The sink refuses it before the decision, and the batch runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from kafka_sink.errors import CommitAborted, DeliveryError, KafkaSinkError, TransactionAborted
from kafka_sink.formats.records.assembler import CHUNK_BYTES
from kafka_sink.spark import task
from kafka_sink.spark.writers import CommitMessage
from tests.chaos import bare_work
from tests.chaos.bare_spark import PARTITIONS, ROWS
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
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


def test_batches_after_the_topic_was_created_again_go_into_the_new_one(direct_stream: BareStream) -> None:
    """Between batches nothing is on its way. The producers of the processes still know the old topic."""
    with direct_stream.query() as query:
        query.run_batch()
        recreate(direct_stream)
        query.run_batch()
        query.run_batch()
    assert direct_stream.open() == []
    assert sorted(direct_stream.times_seen().values()) == [1] * (2 * ROWS)
