"""Spark Connect: a server and a client on one machine. Run alone, because a process has one kind of session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.parity import OURS, append, values, writable_topic
from tools.kafka_cluster import KafkaCluster

pytest.importorskip("grpc")


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    before, work = dict(os.environ), tmp_path_factory.mktemp("server")
    # What a server is started with cannot be set by its clients.
    (work / "spark-defaults.conf").write_text(
        f"spark.ui.enabled false\nspark.driver.host 127.0.0.1\nspark.local.dir {work}\n"
        f"spark.sql.warehouse.dir {work / 'warehouse'}\nspark.sql.shuffle.partitions 2\n"
    )
    named = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(work)}
    # A port of its own, not the one of every other server on the machine.
    os.environ.update(named | {"SPARK_TESTING": "1"})
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


def stream_of(connected: Any, folder: Path) -> Any:
    folder.mkdir()
    for number, text in enumerate(("a\nb\n", "c\n")):
        (folder / f"{number}.txt").write_text(text)
    return connected.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def test_a_batch_arrives(connected: Any, kafka_4: KafkaCluster, topic_name: str) -> None:
    writable_topic(kafka_4, topic_name)
    append(connected.range(0, 20, 1, 2).selectExpr("cast(id as string) as value"), kafka_4, topic=topic_name)
    assert values(kafka_4, topic_name) == sorted(b"%d" % number for number in range(20))


def test_a_stream_arrives(connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    writable_topic(kafka_4, topic_name)
    writer = stream_of(connected, tmp_path / "source").writeStream.format(OURS).option("topic", topic_name)
    writer = writer.option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(600)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]


def test_foreach_batch_arrives(connected: Any, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path) -> None:
    writable_topic(kafka_4, topic_name)
    servers = kafka_4.bootstrap_servers

    # Pickled and run by the server: it may hold nothing of this test but text.
    def write(rows: Any, batch_id: int) -> None:
        writer = rows.write.format("pykafka-sink").mode("append").option("kafka.bootstrap.servers", servers)
        writer.option("topic", topic_name).save()

    writer = stream_of(connected, tmp_path / "source").writeStream.foreachBatch(write)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(600)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]
