"""The order of a key's rows (docs/order.md) where a task is tried more than once, and where rows name their partition.

Tasks and commits of a query in one process, without Spark: tests/spark/test_order.py has the same with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from kafka_sink.commit.identity import run_hash, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import Conclusion
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.cluster_check import check_with_kafka
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.driver import FinishedBatch, commit_batch
from kafka_sink.spark.read_ahead import CHUNK_BYTES
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import EmbeddedBroker
from tools.foreign_reader import Isolation, end_offsets, read_topic
from tools.waiting import wait_until

pytestmark = [pytest.mark.embedded_kafka(topics={"rows": 3}), pytest.mark.usefixtures("fresh_driver")]
SCHEMA = StructType().add("key", StringType()).add("value", BinaryType()).add("partition", IntegerType())
KEYS, VERSIONS, HALF, PARTITIONS = 5, 24, 12, 3
IN_ORDER = {b"key-%d" % key: list(range(VERSIONS)) for key in range(KEYS)}
# A task does not wait for the second half before it sends the first one.
VALUE_BYTES = CHUNK_BYTES // (KEYS * HALF) + 1
QUERY, SINK = BatchKey("query-1", 0), "orders"


def versions(numbers: Iterable[int], *, name_partitions: bool = False) -> pa.RecordBatch:
    """Each of these versions of every key, sorted by version."""
    found = [(f"key-{key}", version) for version in numbers for key in range(KEYS)]
    where = [partition_of(version) if name_partitions else None for _, version in found]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for key, _ in found]),
            "value": pa.array([b"%d" % version + b" " * VALUE_BYTES for _, version in found]),
            "partition": pa.array(where, pa.int32()),
        }
    )


def partition_of(version: int) -> int:
    """By its first digit."""
    return int(str(version)[0]) % PARTITIONS


def by_first_digit(_topic: str, columns: Any, view: Any) -> Any:
    """The same as a partitioner: the byte of the digit zero is a multiple of three."""
    return columns.value.data[columns.value.starts[:-1]] % view.partition_count


class Query:
    def __init__(self, broker: EmbeddedBroker, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._options = parse_sink_options(
            {
                "kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.linger.ms": "0", "topic": "rows",
                "sink.id": SINK, **named,
            }
        )  # fmt: skip
        self._sink_id = SINK if self._options.is_exactly_once else None
        self._servers = broker.bootstrap_servers
        check_with_kafka(self._options, self._sink_id)

    def write(self, attempt: int, batches: Iterable[pa.RecordBatch]) -> TaskReceipt:
        sink_id = None if self._sink_id is None else sink_id_of_query(self._sink_id, QUERY.query_id)
        place = TaskPlace(QUERY, run_hash("run-1"), 0, attempt, sink_id)
        return write_task(self._options, choose_columns(SCHEMA, "rows"), batches, place)

    def write_half(self) -> Iterator[pa.RecordBatch]:
        """For the source of a task: goes on when these rows are in the log."""
        yield versions(range(HALF))
        wait_until(lambda: sum(end_offsets(self._servers, "rows").values()) == KEYS * HALF, "rows", poll_s=0.05)

    def commit(self, receipt: TaskReceipt) -> None:
        done = commit_batch(FinishedBatch(self._options, self._sink_id, QUERY, run_hash("run-1"), [receipt]))
        assert done is Conclusion.DELIVERED

    def read(self, isolation: Isolation = "read_committed") -> dict[bytes | None, list[int]]:
        """The versions of each key, in the order of partition and offset."""
        found: dict[bytes | None, list[int]] = defaultdict(list)
        for record in read_topic(self._servers, "rows", isolation):
            found[record.key].append(int(record.value or b""))
        return found


@pytest.fixture
def query(broker: EmbeddedBroker) -> Query:
    return Query(broker)


def fail_in_the_middle(query: Query) -> Iterator[pa.RecordBatch]:
    yield from query.write_half()
    raise ValueError("in the middle of its rows")


@pytest.mark.parametrize("winner", [0, 1], ids=["the-first", "the-copy"])
def test_whichever_attempt_of_a_task_is_chosen_each_row_is_there_once_and_in_order(query: Query, winner: int) -> None:
    """Speculation: while the first attempt stalls in the middle of its rows, the copy writes all of them."""
    attempts = list[TaskReceipt]()

    def stall() -> Iterator[pa.RecordBatch]:
        yield from query.write_half()
        attempts.append(query.write(1, [versions(range(VERSIONS))]))
        yield versions(range(HALF, VERSIONS))

    attempts.insert(0, query.write(0, stall()))
    query.commit(attempts[winner])
    assert query.read() == IN_ORDER
    both = query.read("read_uncommitted")
    assert all(found == [*range(HALF), *range(VERSIONS), *range(HALF, VERSIONS)] for found in both.values())


def test_rows_of_an_attempt_that_failed_are_not_among_those_of_the_next_one(query: Query) -> None:
    with pytest.raises(ValueError, match="in the middle"):
        query.write(0, fail_in_the_middle(query))
    query.commit(query.write(1, [versions(range(VERSIONS))]))
    assert query.read() == IN_ORDER
    assert query.read("read_uncommitted")[b"key-0"] == [*range(HALF), *range(VERSIONS)]


def test_at_least_once_the_next_attempt_writes_rows_behind_those_of_the_one_that_failed(broker: EmbeddedBroker) -> None:
    query = Query(broker, delivery_guarantee="at-least-once")
    with pytest.raises(ValueError, match="in the middle"):
        query.write(0, fail_in_the_middle(query))
    query.write(1, [versions(range(VERSIONS))])
    assert all(found == [*range(HALF), *range(VERSIONS)] for found in query.read().values())


@pytest.mark.parametrize("way", ["column", "function"])
def test_where_rows_do_not_go_by_their_key_each_partition_has_its_rows_in_order(
    broker: EmbeddedBroker, way: str
) -> None:
    chosen = {} if way == "column" else {"kafka_partitioner_class": f"{__name__}:by_first_digit"}
    query = Query(broker, **chosen)
    query.commit(query.write(0, [versions(range(VERSIONS), name_partitions=way == "column")]))
    expected = [each for place in range(PARTITIONS) for each in range(VERSIONS) if partition_of(each) == place]
    assert len(query.read()) == KEYS and all(found == expected for found in query.read().values())
