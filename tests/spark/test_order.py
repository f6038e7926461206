"""What docs/order.md says, sentence by sentence: of the records of one key in their partition, by offset."""

from __future__ import annotations

import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # its stubs do not re-export it
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from tests.spark.parity import Folder, records, writable_topic
from tests.spark.test_stream_faults import SPECULATION
from tests.spark.writes import named, options, run
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.make_zip import write_zip
from tools.spark_cluster import SparkCluster
from tools.waiting import wait_until

KEYS, VERSIONS = 7, 60
ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
JOB = Path(__file__).parent / "jobs" / "ordered_export.py"
PATIENCE_S = 400


def changes(spark: SparkSession) -> DataFrame:
    """Versions of each key in random order, in every Spark partition."""
    rows = spark.range(0, KEYS * VERSIONS, 1, 4).selectExpr(
        f"concat('key-', id % {KEYS}) AS key", f"CAST(id DIV {KEYS} AS INT) AS version"
    )
    return rows.orderBy(F.xxhash64("key", "version")).selectExpr("key", "version", "CAST(version AS STRING) AS value")


def by_key(kafka: KafkaCluster, topic: str) -> dict[bytes | None, list[int]]:
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for record in records(kafka, topic):
        found[record.key].append(int(record.value or b"-1"))
    return found


def are_in_order(kafka: KafkaCluster, topic: str) -> bool:
    found = by_key(kafka, topic)
    return len(found) == KEYS and all(versions == list(range(VERSIONS)) for versions in found.values())


@contextmanager
def small_arrow_batches(spark: SparkSession, rows_max: int) -> Iterator[None]:
    """So that a task gets many, and has to keep their order."""
    spark.conf.set(ARROW_ROWS, str(rows_max))
    try:
        yield
    finally:
        spark.conf.unset(ARROW_ROWS)


def test_rows_of_one_task_keep_their_order_in_each_partition(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = spark.range(0, 5000, 1, 1).selectExpr("CAST(id % 50 AS STRING) AS key", "CAST(id AS STRING) AS value")
    with small_arrow_batches(spark, rows_max=7):
        kafka_sink.write(rows, options(kafka_4, topic_name))
    found = by_key(kafka_4, topic_name)
    assert found == {b"%d" % key: list(range(key, 5000, 50)) for key in range(50)}


def test_rows_of_two_tasks_have_no_order_though_they_have_one_key(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    """The first Spark partition waits until the rows of the second one are in the log."""
    writable_topic(kafka_4, topic_name)
    servers = kafka_4.bootstrap_servers

    def in_turn(number: int) -> str:
        if number == 0:
            wait_until(lambda: sum(end_offsets(servers, topic_name).values()) == 2, "rows", PATIENCE_S, poll_s=0.5)
        return str(number)

    rows = spark.range(0, 4, 1, 2).select(F.lit("key").alias("key"), F.udf(lambda n: in_turn(n))("id").alias("value"))
    kafka_sink.write(rows, options(kafka_4, topic_name))
    assert by_key(kafka_4, topic_name) == {b"key": [2, 3, 0, 1]}


@pytest.mark.parametrize("chunks", [None, 3])
def test_a_shuffle_by_key_and_a_sort_by_version_keep_the_order_of_each_key_though_a_task_is_repeated(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, chunks: int | None
) -> None:
    writable_topic(kafka_4, topic_name)
    failed = str(tmp_path / "failed")

    def fail_once(value: str) -> str:
        if value == "50" and not Path(failed).exists():
            Path(failed).touch()
            raise ValueError("the first attempt fails in the middle of its rows")
        return value

    ordered = changes(spark).repartition(3, "key").sortWithinPartitions("version")
    rows = ordered.select("key", F.udf(lambda value: fail_once(value))("value").alias("value"))
    with small_arrow_batches(spark, rows_max=5):
        if chunks is None:
            kafka_sink.write(rows, options(kafka_4, topic_name))
        else:
            kafka_sink.write_in_chunks(rows, named(kafka_4, topic_name), chunks=chunks, by="key", parallel=2)
    assert Path(failed).exists() and are_in_order(kafka_4, topic_name)


def test_in_chunks_by_another_column_the_rows_of_a_key_are_in_the_order_of_the_chunks(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = spark.range(0, KEYS * VERSIONS, 1, 1).selectExpr(
        f"concat('key-', id % {KEYS}) AS key", f"CAST(id DIV {KEYS} AS STRING) AS value"
    )
    kafka_sink.write_in_chunks(rows, named(kafka_4, topic_name), chunks=2, by="value")
    in_chunks = sorted(range(VERSIONS), key=lambda version: (zlib.crc32(b"%d" % version) % 2, version))
    found = by_key(kafka_4, topic_name)
    assert len(found) == KEYS and all(versions == in_chunks for versions in found.values())


def test_a_batch_of_a_stream_is_behind_the_one_before(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    for batch in range(4):
        folder.add(*(f"{batch * 100 + row}" for row in range(20)))
    rows = folder.read().repartition(3).selectExpr("'key' AS key", "value")
    run(rows, kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-"))), checkpoint)
    (found,) = by_key(kafka_4, topic_name).values()
    assert len(found) == 80
    # One file is one batch. Which one comes first is Spark's choice if they are of the same millisecond.
    batches = [batch for batch, _ in itertools.groupby(number // 100 for number in found)]
    assert sorted(batches) == [0, 1, 2, 3]


def test_when_partitions_are_added_a_key_goes_on_in_another_one(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name, partitions=1)
    rows = spark.range(0, 40, 1, 1).selectExpr("CAST(id AS STRING) AS key", "'before' AS value")
    kafka_sink.write(rows, options(kafka_4, topic_name))
    admin = AdminClient({"bootstrap.servers": kafka_4.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic_name, 4)])[topic_name].result(30)
    kafka_4.wait_for_topic(topic_name, 4)
    # A worker that has written to the topic looks again after metadata.max.age.ms; a producer of another name at once.
    later = {**options(kafka_4, topic_name), "kafka.client.id": f"{topic_name}-later"}
    kafka_sink.write(rows.selectExpr("key", "'after' AS value"), later)
    found = records(kafka_4, topic_name)
    before, after = (
        {each.key: each.partition for each in found if each.value == value} for value in (b"before", b"after")
    )
    assert set(before.values()) == {0} and before.keys() == after.keys()
    assert len(set(after.values())) > 1


@pytest.mark.slow
@pytest.mark.chaos
def test_the_order_of_each_key_is_kept_by_the_copy_of_a_task_that_wins_and_by_one_that_is_repeated(
    spark_cluster: SparkCluster, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """Speculation, on two executors. The first attempt of one task stalls in the middle of its rows, another fails."""
    writable_topic(kafka_4, topic_name)
    write_zip(tmp_path / "pykafka_sink.zip")
    given = [f"{name}={value}" for name, value in options(kafka_4, topic_name).items()]
    job = spark_cluster.submit(
        JOB,
        [str(tmp_path), *given],
        py_files=[tmp_path / "pykafka_sink.zip"],
        conf={**SPECULATION, "spark.cores.max": "2"},
    )
    assert "3 tasks" in job.wait(PATIENCE_S)
    assert {path.name for path in tmp_path.glob("*-0")} == {"stalled-0", "failed-0"}
    assert are_in_order(kafka_4, topic_name)
