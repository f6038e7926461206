"""Every trigger delivers its rows, or is refused with a text; no query continues without delivering anything.

Each test reports what its trigger did, because "passed" alone does not say which of the two it was.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.parity import OURS, Folder, values, writable_topic
from tests.spark.spark_session import run_to_end
from tools.kafka_cluster import KafkaCluster

PATIENCE_S = 120
Remark = Callable[[str, object], None]

# Words that a user can act on: Spark's for triggers that it does not allow for a Python sink, otherwise ours.
REFUSALS = ("continuous", "real-time", "real time", "realtime", "not support", "unsupported")


def writer_of(rows: DataFrame, kafka: KafkaCluster, topic: str, checkpoint: str) -> Any:
    writer = rows.writeStream.format(OURS).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return writer.option("topic", topic).option("checkpointLocation", checkpoint)


@pytest.mark.parametrize(
    "trigger",
    [{"availableNow": True}, {"once": True}, {"processingTime": "1 second"}],
    ids=lambda named: next(iter(named)),
)
def test_a_trigger_of_micro_batches_delivers_every_row_once(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str, trigger: dict[str, Any]
) -> None:
    writable_topic(kafka_4, topic_name)
    folder.add("a", "b")
    query = writer_of(folder.read(), kafka_4, topic_name, checkpoint).trigger(**trigger).start()
    if "processingTime" in trigger:
        query.processAllAvailable()
        query.stop()
    else:
        run_to_end(query)
    assert values(kafka_4, topic_name) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["continuous", "realTime"])
def test_a_trigger_without_micro_batches_delivers_or_is_refused(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, checkpoint: str, name: str, record_property: Remark
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 5).load().selectExpr("cast(value as string) value")
    writer = writer_of(rows, kafka_4, topic_name, checkpoint).outputMode("append" if name == "continuous" else "update")
    if name not in inspect.signature(writer.trigger).parameters:
        record_property("remark", f"{name} unknown to PySpark")
        return
    try:
        query = writer.trigger(**{name: "1 second" if name == "continuous" else "5 minutes"}).start()
    except Exception as error:
        check_refusal(name, "at the start", error, record_property)
        return
    try:
        deadline = time.monotonic() + PATIENCE_S
        while query.isActive and time.monotonic() < deadline:
            if values(kafka_4, topic_name):
                record_property("remark", f"{name} delivers")
                return
            time.sleep(0.5)
        assert not query.isActive, f"the query goes on and delivers nothing: {query.lastProgress}"
    finally:
        error = query.exception()
        query.stop()
    check_refusal(name, "by the query", error, record_property)


def check_refusal(name: str, when: str, error: Exception | None, record_property: Remark) -> None:
    text = str(error).lower()
    assert any(words in text for words in REFUSALS), text
    record_property("remark", f"{name} refused {when}")
