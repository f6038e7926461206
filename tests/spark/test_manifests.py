"""Manifests of streams and batch writes, through both doors; the guide's readers find the rows that they name."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import kafka_sink
from tests.spark.parity import Folder, start, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.writes import options, run
from tests.support.page_blocks import code_blocks
from tests.support.producing import TIMEOUT_S, transactional
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

PAGE = "docs/guides/manifests.md"


def recipe(word: str) -> str:
    (code,) = [block.code for block in code_blocks(PAGE) if word in block.code]
    return code


@pytest.fixture
def manifest_topic(kafka_4: KafkaCluster, topic_name: str) -> str:
    return writable_topic(kafka_4, f"{topic_name}-manifests", partitions=3)


def test_a_stream_has_one_for_each_batch_through_both_doors_also_for_one_without_rows(
    spark: SparkSession,
    kafka_4: KafkaCluster,
    topic_name: str,
    manifest_topic: str,
    folder: Folder,
    checkpoint: str,
) -> None:
    topic = writable_topic(kafka_4, topic_name)
    sink = topic_name[-60:].lstrip("-")
    named = options(kafka_4, topic, sink_id=sink, manifest_topic=manifest_topic)
    folder.add("a", "b")
    run_to_end(start(folder.read(), kafka_4, checkpoint, topic, sink_id=sink, manifest_topic=manifest_topic))
    folder.add("c")
    run(folder.read(), kafka_sink.foreach_batch(named), checkpoint)
    folder.add("filtered")
    rows = folder.read().where("value <> 'filtered'")
    run_to_end(start(rows, kafka_4, checkpoint, topic, sink_id=sink, manifest_topic=manifest_topic))
    found = kafka_sink.read_manifests(named)
    assert [(one.batch_id, one.row_count) for one in found] == [(0, 2), (1, 1), (2, 0)]
    assert len({one.query_id for one in found}) == 1 and found[0].query_id
    assert kafka_sink.read_manifests(named, batch=1) == [found[1]]
    assert kafka_sink.read_manifests(named, sink="another") == []


def test_the_readers_of_the_guide_find_exactly_the_rows_of_a_batch(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, manifest_topic: str
) -> None:
    *topics, dead = [writable_topic(kafka_4, f"{topic_name}-{which}") for which in ("a", "b", "dead")]
    rows = jvm_spark.range(0, 301, 1, 3).selectExpr(
        "CAST(id AS STRING) AS key",
        "IF(id = 300, repeat('too large', 200000), CAST(id AS STRING)) AS value",
        f"IF(id % 3 = 0, '{topics[0]}', '{topics[1]}') AS topic",
    )
    sink = topic_name[-60:].lstrip("-")
    given = {"kafka.bootstrap.servers": kafka_4.bootstrap_servers, "sink.id": sink, "manifest.topic": manifest_topic}
    given |= {"record.errors": "dead-letter", "dead.letter.topic": dead}
    for day in ("monday", "tuesday", "monday"):
        rows.write.format("pykafka-sink").options(**given, **{"batch.id": day}).mode("append").save()
    assert [one.batch_id for one in kafka_sink.read_manifests(given, batch="monday")] == ["monday"]
    (manifest,) = kafka_sink.read_manifests(given, batch="tuesday")
    assert (manifest.row_count, {written.topic for written in manifest.partitions}) == (300, set(topics))
    assert [(letters.topic, letters.row_count) for letters in manifest.dead_letters] == [(dead, 1)]
    expected = sorted(str(number) for number in range(300))

    names: dict[str, Any] = {"spark": jvm_spark, "manifest": manifest}
    exec(recipe("manifest.spark_options()").replace("broker:9092", kafka_4.bootstrap_servers), names)
    assert sorted(row.value.decode() for row in names["rows"].collect()) == expected

    exec(recipe("def rows_of"), names)
    values = [
        record.value
        for record in read_topic(kafka_4.bootstrap_servers, manifest_topic)
        if b"tuesday" in (record.key or b"")
    ]
    assert sorted(value.decode() for value in names["rows_of"](values[0], kafka_4.bootstrap_servers)) == expected


def test_the_reader_of_the_guide_never_takes_rows_of_a_chunk_for_those_of_another_one(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, manifest_topic: str
) -> None:
    """Chunks that are written at the same time have their rows between each other's. The header of the guide tells
    them apart."""
    topic = writable_topic(kafka_4, topic_name, partitions=1)
    named = options(kafka_4, topic, sink_id=topic_name[-60:].lstrip("-"), manifest_topic=manifest_topic)
    named |= {"batch.id": "export", "header.export": "${batch.id}"}
    rows = spark.range(0, 2000, 1, 4).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    kafka_sink.write_in_chunks(rows, named, chunks=4, by="key", parallel=2)
    chunks = kafka_sink.read_manifests(named, batch="export", timeout_s=TIMEOUT_S)
    assert len(chunks) == 4 and sum(chunk.row_count for chunk in chunks) == 2000
    names: dict[str, Any] = {}
    exec(recipe("def rows_of"), names)
    there = read_topic(kafka_4.bootstrap_servers, topic)
    for told in read_topic(kafka_4.bootstrap_servers, manifest_topic):
        content = json.loads(told.value or b"")
        label, ((_, first, last, count),) = content["batch"], content["topics"][topic]["partitions"]
        its = [one for one in there if dict(one.headers)["export"] == label.encode()]
        assert len(its) == count and all(first <= one.offset <= last for one in its)
        try:
            found = names["rows_of"](told.value, kafka_4.bootstrap_servers)
        except RuntimeError as error:
            assert f"not {count}" in str(error)
        else:
            assert found == [one.value for one in its]


@pytest.mark.slow
def test_spark_s_source_waits_for_rows_behind_another_s_open_transaction_as_long_as_it_may(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, manifest_topic: str
) -> None:
    topic = writable_topic(kafka_4, topic_name)
    other = transactional(kafka_4, f"{topic_name}-other", linger_ms=0, transaction_timeout_ms=900_000)
    other.init_transactions()
    other.begin_transaction()
    other.send(topic, b"of another", partition=0).result(TIMEOUT_S)
    rows = jvm_spark.range(0, 10, 1, 1).selectExpr("CAST(id AS STRING) AS value", "0 AS partition")
    given = options(kafka_4, topic, manifest_topic=manifest_topic)
    rows.write.format("pykafka-sink").options(**given).mode("append").save()
    (manifest,) = kafka_sink.read_manifests(given)
    names: dict[str, Any] = {"spark": jvm_spark, "manifest": manifest}
    code = recipe("manifest.spark_options()").replace("broker:9092", kafka_4.bootstrap_servers)
    assert "900_000" in code
    with pytest.raises(Py4JJavaError, match=r"Cannot fetch offset|OffsetOutOfRange"):
        exec(code.replace("900_000", "2_000"), names)
    threading.Timer(5, other.close).start()  # which aborts the transaction
    exec(code, names)


def test_a_topic_that_is_not_there_is_found_before_any_task_runs(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    topic = writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic, manifest_topic=f"{topic}-nowhere", kafka_max_block_ms="2000")
    with pytest.raises(kafka_sink.KafkaSinkError, match=f"topic {topic}-nowhere"):
        kafka_sink.write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), given)
    assert read_topic(kafka_4.bootstrap_servers, topic, "read_uncommitted") == []
