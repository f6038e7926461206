"""Transactional ids of tasks that are used again: real tasks and the driver's commit, without Spark's JVM.

One process here is one Python worker of Spark. Tests that lose an answer use the embedded broker; Apache Kafka of both
generations is used where the coordinator's answer about an ended transaction matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from kafka_sink import Producer, TransactionReceipt
from kafka_sink.commit.identity import run_hash, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import KafkaSinkError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.closings import CLOSINGS
from kafka_sink.spark.cluster_check import check_with_kafka
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.driver import FinishedBatch, abort_batch, commit_batch
from kafka_sink.spark.identities import IDENTITIES
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker, Fault
from tests.support.asking import client_of
from tests.support.kafka_proxy import KafkaProxy
from tools.foreign_reader import read_topic
from tools.java import release
from tools.kafka_cluster import KafkaCluster
from tools.listed_transactions import listed_transactions

COLUMNS = choose_columns(StructType().add("value", StringType()), "rows")
RUN = run_hash("run")


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    """Like a new process after a fork; nothing is left behind."""
    IDENTITIES.close()
    yield
    IDENTITIES.close()
    POOL.close()


pytestmark = pytest.mark.embedded_kafka(1, topics={"rows": 4})


class Query:
    """A query with one worker process: tasks run one after the other, then the commit."""

    def __init__(self, servers: str, topic: str = "rows", **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.options: SinkOptions = parse_sink_options(
            {"kafka.bootstrap.servers": servers, "topic": topic, "sink.id": topic, **named}
        )
        self.sink_id = topic
        self.query_id = f"query of {topic}"
        self._servers = servers
        self._attempts = itertools.count(100)
        check_with_kafka(self.options, self.sink_id)

    def task(
        self,
        batch: int,
        partition: int = 0,
        *,
        errors_may_be_caught: bool = False,
        is_repeated: bool = False,
        value: str = "",
    ) -> TaskReceipt:
        where = (
            RUN,
            partition,
            next(self._attempts),
            sink_id_of_query(self.sink_id, self.query_id),
            errors_may_be_caught,
            int(is_repeated),
        )
        rows = pa.RecordBatch.from_arrays([pa.array([value or f"{batch}-{partition}"])], ["value"])
        return write_task(self.options, COLUMNS, [rows], TaskPlace(BatchKey(self.query_id, batch), *where))

    def commit(self, *receipts: TaskReceipt) -> Conclusion:
        """With the record that follows it: the next Produce is that of a task."""
        conclusion = commit_batch(FinishedBatch(self.options, self.sink_id, receipts[0].key, RUN, receipts))
        CLOSINGS.value.wait()
        return conclusion

    def ids(self) -> set[str]:
        """The ids of tasks that the coordinators know, in any state."""
        with client_of(self._servers) as client:
            names = {row["transactional_id"] for row in listed_transactions(client)}
        prefix = sink_id_of_query(self.sink_id, self.query_id)
        return {name for name in names if name.startswith(f"{prefix}-{RUN}-")}


def read_values(kafka: KafkaCluster, topic: str) -> list[bytes]:
    return [record.value or b"" for record in read_topic(kafka.bootstrap_servers, topic)]


def name_of(receipt: TaskReceipt) -> str:
    assert receipt.transaction is not None
    return receipt.transaction.transactional_id


def test_after_any_number_of_batches_a_process_has_as_many_ids_as_it_had_tasks_in_a_batch(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=4)
    query = Query(kafka.bootstrap_servers, topic_name)
    counts = []
    for batch in range(12):
        receipts = [query.task(batch, partition) for partition in range(4)]
        assert query.commit(*receipts) is Conclusion.DELIVERED
        counts.append(len(query.ids()))
    assert counts == [4] * 12
    found = sorted(record.value or b"" for record in read_topic(kafka.bootstrap_servers, topic_name))
    assert found == sorted(f"{batch}-{partition}".encode() for batch in range(12) for partition in range(4))


@pytest.mark.parametrize("is_delivered", [True, False], ids=["committed", "aborted"])
def test_inside_foreach_batch_an_id_is_used_again_as_soon_as_its_coordinator_says_that_its_transaction_is_over(
    kafka: KafkaCluster, topic_name: str, is_delivered: bool
) -> None:
    kafka.create_topic(topic_name, partitions=4)
    query = Query(kafka.bootstrap_servers, topic_name)
    names = set()
    for batch in range(3):
        receipt = query.task(batch, errors_may_be_caught=True)
        names.add(name_of(receipt))
        if is_delivered:
            query.commit(receipt)
        else:
            abort_batch(FinishedBatch(query.options, query.sink_id, receipt.key, RUN, [receipt]))
    assert len(names) == 1 and query.ids() == names


def test_inside_foreach_batch_no_id_is_used_again_whose_batch_may_be_decided(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """The user's code caught the error of a commit that did not finish, and continued with the next batch."""
    kafka.create_topic(topic_name, partitions=4)
    query = Query(kafka.bootstrap_servers, topic_name)
    query.commit(query.task(0, errors_may_be_caught=True))
    undecided = query.task(1, errors_may_be_caught=True)
    following = query.task(2, errors_may_be_caught=True)
    assert name_of(following) != name_of(undecided)
    assert query.commit(undecided) is Conclusion.DELIVERED
    assert len(read_topic(kafka.bootstrap_servers, topic_name)) == 2


def test_inside_foreach_batch_no_id_is_used_again_while_its_coordinator_cannot_be_asked(broker: EmbeddedBroker) -> None:
    query = Query(broker.bootstrap_servers)
    first = query.task(0, errors_may_be_caught=True)
    query.commit(first)
    broker.inject(Fault(api="DescribeTransactions", error_code=15, times=None))  # COORDINATOR_NOT_AVAILABLE
    assert name_of(query.task(1, errors_may_be_caught=True)) != name_of(first)


def test_an_attempt_that_failed_does_not_leave_its_id_to_others(broker: EmbeddedBroker) -> None:
    query = Query(broker.bootstrap_servers)
    first = query.task(0)
    query.commit(first)
    broker.inject(Fault(api="Produce", error_code=87))  # INVALID_RECORD
    with pytest.raises(KafkaSinkError):
        query.task(1)
    second = query.task(1)
    assert name_of(second) != name_of(first) and second.attempt == 102
    query.commit(second)
    assert name_of(query.task(2)) == name_of(second)


def test_an_init_producer_id_without_an_answer_costs_the_process_the_id_that_it_was_about(
    broker: EmbeddedBroker,
) -> None:
    """The unanswered request may arrive when a later transaction under that id is decided, and would abort it."""
    query = Query(broker.bootstrap_servers)
    first = query.task(0)
    query.commit(first)
    broker.inject(Fault(api="InitProducerId", disconnect=True, after_apply=True))
    second = query.task(1, is_repeated=True)
    assert name_of(second) == f"{sink_id_of_query('rows', query.query_id)}-{RUN}-0-{second.attempt}"
    query.commit(second)
    third = query.task(2)
    assert name_of(third) == name_of(second) and third.attempt != second.attempt
    assert query.commit(third) is Conclusion.DELIVERED


def test_an_id_whose_last_transaction_cannot_be_completed_in_time_is_left_for_a_new_one(broker: EmbeddedBroker) -> None:
    """A partition has no leader that could store the marker, but this task may write to other partitions."""
    query = Query(broker.bootstrap_servers, kafka_max_block_ms="1000")
    first = query.task(0)
    query.commit(first)
    blocked = name_of(first)

    def still_completing(api: str, version: int, broker_id: int, body: object) -> Fault | None:
        is_about_it = api == "InitProducerId" and isinstance(body, dict) and body["transactional_id"] == blocked
        return Fault(error_code=51) if is_about_it else None  # CONCURRENT_TRANSACTIONS

    broker.do(lambda core: setattr(core.faults, "interceptor", still_completing))
    second = query.task(1, is_repeated=True)
    assert name_of(second) == f"{sink_id_of_query('rows', query.query_id)}-{RUN}-0-{second.attempt}"
    assert query.commit(second) is Conclusion.DELIVERED


# ---- the epoch that the end of the last transaction gives ----


def epoch_of(receipt: TaskReceipt) -> int:
    assert receipt.transaction is not None
    return receipt.transaction.producer_epoch


def test_a_task_asks_for_its_epoch_only_where_the_end_of_the_last_transaction_has_not_given_it(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=4)
    goes_on = release(kafka.version) >= (4, 2)
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        query = Query(proxy.bootstrap_servers, topic_name)
        epochs, asked = [], []
        for batch in range(4):
            before = proxy.counts["InitProducerId"]
            receipt = query.task(batch)
            asked.append(proxy.counts["InitProducerId"] > before)
            epochs.append(epoch_of(receipt))
            assert query.commit(receipt) is Conclusion.DELIVERED
        POOL.close()
        IDENTITIES.close()
    assert asked == [True, *[not goes_on] * 3]
    if goes_on:
        assert epochs == list(range(epochs[0], epochs[0] + 4))
    assert sorted(read_values(kafka, topic_name)) == [b"%d-0" % batch for batch in range(4)]


@pytest.mark.parametrize("cause", ["open", "aborted", "initialised"])
def test_an_epoch_that_the_brokers_refuse_costs_no_attempt_and_no_row(
    kafka: KafkaCluster, topic_name: str, cause: str
) -> None:
    """The last transaction is still open, as that of a speculative attempt that lost; somebody has aborted it; or has
    called InitProducerId."""
    kafka.create_topic(topic_name, partitions=4)
    query = Query(kafka.bootstrap_servers, topic_name)
    query.commit(query.task(0))
    lost = query.task(1)
    assert lost.transaction is not None
    if cause == "aborted":
        with Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name_of(lost)}) as other:
            names = (lost.transaction.transaction_version, True, {})
            other.resume_transaction(TransactionReceipt(name_of(lost), *lost.transaction.identity, *names))
            other.abort_transaction()
    elif cause == "initialised":
        with Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name_of(lost)}) as other:
            other.init_transactions()
    second = query.task(2)
    assert name_of(second) == name_of(lost) and epoch_of(second) > epoch_of(lost)
    assert query.commit(second) is Conclusion.DELIVERED
    third = query.task(3)
    assert query.commit(third) is Conclusion.DELIVERED
    assert sorted(read_values(kafka, topic_name)) == [b"0-0", b"2-0", b"3-0"]


def test_an_id_that_the_coordinator_has_forgotten_costs_no_attempt(broker: EmbeddedBroker) -> None:
    query = Query(broker.bootstrap_servers)
    first = query.task(0)
    query.commit(first)
    broker.do(lambda core: core.coordinator.transactions.pop(name_of(first)))
    second = query.task(1)
    assert name_of(second) == name_of(first)
    assert second.transaction is not None and first.transaction is not None
    assert second.transaction.producer_id != first.transaction.producer_id
    assert query.commit(second) is Conclusion.DELIVERED
    assert len(read_topic(broker.bootstrap_servers, "rows")) == 2


def test_an_answer_that_is_lost_and_an_epoch_that_is_then_refused_cost_the_attempt(broker: EmbeddedBroker) -> None:
    """The lost record may have been appended, and somebody has ended the transaction since."""
    query = Query(broker.bootstrap_servers)
    query.commit(query.task(0))
    broker.inject(Fault(api="Produce", disconnect=True, after_apply=True))
    broker.inject(Fault(api="Produce", error_code=47))
    with pytest.raises(KafkaSinkError, match="INVALID_PRODUCER_EPOCH"):
        query.task(1)
    assert query.commit(query.task(1)) is Conclusion.DELIVERED
    assert len(read_topic(broker.bootstrap_servers, "rows")) == 2


def test_a_task_that_wrote_nothing_leaves_the_epoch_to_the_next_one(broker: EmbeddedBroker) -> None:
    query = Query(broker.bootstrap_servers, record_errors="drop", kafka_max_request_size="2000")
    first = query.task(0)
    query.commit(first)
    empty = query.task(1, value="x" * 5_000)
    assert empty.transaction is None and empty.row_count == 0
    second = query.task(2)
    assert (name_of(second), epoch_of(second)) == (name_of(first), epoch_of(first) + 1)
    assert query.commit(second) is Conclusion.DELIVERED


def test_another_time_limit_is_told_to_the_coordinator(broker: EmbeddedBroker) -> None:
    query = Query(broker.bootstrap_servers)
    first = query.task(0)
    query.commit(first)
    query.options = replace(query.options, producer=replace(query.options.producer, transaction_timeout_ms=123_456))
    second = query.task(1)
    assert name_of(second) == name_of(first) and epoch_of(second) == epoch_of(first) + 2
    known = broker.do(lambda core: core.coordinator.transactions[name_of(second)].record.timeout_ms)
    assert known == 123_456


def test_a_second_writing_of_a_batch_in_the_same_run_uses_no_id_of_the_first_one(broker: EmbeddedBroker) -> None:
    query = Query(broker.bootstrap_servers)
    first = query.task(0, errors_may_be_caught=True)
    assert query.commit(first) is Conclusion.DELIVERED
    second = query.task(0, errors_may_be_caught=True)
    assert name_of(second) != name_of(first)
    assert query.commit(second) is Conclusion.ALREADY_DELIVERED
    assert [record.value for record in read_topic(broker.bootstrap_servers, "rows")] == [b"0-0"]
