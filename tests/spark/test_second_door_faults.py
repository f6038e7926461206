"""What the second door assumes of Spark and of its process: barriers, children of a fork, many threads and queries.
Each row is there once, and nothing is open. tests/integration/test_second_door_faults.py has what needs no Spark."""

from __future__ import annotations

import inspect
import multiprocessing
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from tests.spark.parity import Folder, values, writable_topic
from tests.spark.writes import options, run
from tests.support.open_transactions import open_transactions
from tools.kafka_cluster import KafkaCluster


def name_of(topic: str) -> str:
    return topic[-50:].lstrip("-")


def check(kafka: KafkaCluster, topic: str, wanted: Iterable[bytes]) -> None:
    assert Counter(values(kafka, topic)) == Counter(wanted)
    assert open_transactions(kafka.bootstrap_servers, name_of(topic)) == []


# ---- Spark ----


def pass_on(batches: Any) -> Any:
    yield from batches


def fail_in_the_second(batches: Any) -> Any:
    for batch in batches:
        if 50 in batch.column(0).to_pylist():
            raise ValueError("a task of the barrier")
        yield batch


@pytest.mark.skipif(
    "barrier" not in inspect.signature(DataFrame.mapInArrow).parameters, reason="this PySpark has no such argument"
)
def test_behind_a_barrier_rows_are_written_once_or_not_at_all(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    """Of a barrier stage all tasks run at once, and Spark gives up the stage if one fails."""
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name, sink_id=name_of(topic_name), batch_id="day-1")
    rows = spark.range(0, 60, 1, 2)
    with pytest.raises(Exception, match="a task of the barrier"):
        kafka_sink.write(
            rows.mapInArrow(fail_in_the_second, "id LONG", barrier=True).select(
                F.col("id").cast("string").alias("value")
            ),
            given,
        )
    check(kafka_4, topic_name, [])
    barrier = rows.mapInArrow(pass_on, "id LONG", barrier=True).select(F.col("id").cast("string").alias("value"))
    assert kafka_sink.write(barrier, given).rows == 60
    check(kafka_4, topic_name, [b"%d" % number for number in range(60)])


# ---- the process ----


def produce(servers: str, topic: str) -> None:
    """What a child of the driver may do."""
    with kafka_sink.Producer({"bootstrap.servers": servers}) as producer:
        producer.send(topic, value=b"of a child").result(60)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_that_the_driver_forks_between_and_during_batches_change_nothing(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    other = writable_topic(kafka_4, f"{topic_name}-children")
    given = options(kafka_4, topic_name, sink_id=name_of(topic_name))
    forks = multiprocessing.get_context("fork")
    children = []

    def write(frame: DataFrame, batch_id: int) -> None:
        child = forks.Process(target=produce, args=(kafka_4.bootstrap_servers, other))
        child.start()
        children.append(child)
        kafka_sink.write_batch(frame, batch_id, given)

    for number in range(4):
        folder.add(str(number))
    run(folder.read(), write, checkpoint)
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0] * 4
    assert values(kafka_4, other) == [b"of a child"] * 4
    check(kafka_4, topic_name, [b"%d" % number for number in range(4)])


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_two_queries_and_ten_threads_of_exports_in_one_driver_deliver_each_row_once(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str, rounds: int
) -> None:
    """The second round of each label is a repetition."""
    topics = [writable_topic(kafka_4, f"{topic_name}-{each}") for each in ("first", "second", "exports")]
    queries = []
    for topic in topics[:2]:
        function = kafka_sink.foreach_batch(options(kafka_4, topic, sink_id=name_of(topic)))
        writer = folder.read().writeStream.foreachBatch(function).trigger(processingTime="100 milliseconds")
        queries.append(writer.option("checkpointLocation", f"{checkpoint}-{topic[-6:]}").start())
    given = options(kafka_4, topics[2], sink_id=name_of(topics[2]))

    def export(thread: int) -> list[bool]:
        repeated = []
        for label in range(rounds * thread, rounds * (thread + 1)):
            folder_rows = spark.range(label * 10, label * 10 + 10, 1, 2).selectExpr("CAST(id AS STRING) AS value")
            repeated += [kafka_sink.write(folder_rows, {**given, "batch.id": f"e{label}"}).is_repeated for _ in (0, 1)]
        return repeated

    try:
        for number in range(rounds):
            folder.add(f"{number}")
        with ThreadPoolExecutor(10) as pool:
            assert list(pool.map(export, range(10))) == [[False, True] * rounds] * 10
        for query in queries:
            query.processAllAvailable()
            assert query.exception() is None
    finally:
        for query in queries:
            query.stop()
    for topic in topics[:2]:
        check(kafka_4, topic, [b"%d" % number for number in range(rounds)])
    check(kafka_4, topics[2], [b"%d" % number for number in range(100 * rounds)])
