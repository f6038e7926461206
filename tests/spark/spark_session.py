"""A small local Spark session for tests, and topics read back as rows that can be compared.

Start-up is the largest part of the cost of such a session: two JVM options halve it. The jars of Spark's own Kafka sink
add nothing measurable, so one session with them serves all tests: a process can have only one SparkContext.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tools.foreign_reader import read_topic
from tools.quiet_spark import quiet_configuration
from tools.spark_jvm import QUICK_JVM, quick_settings

# Two tasks at a time; a failed task is tried once more, unlike with a plain local[2].
MASTER = "local[2,2]"
# The time limit of a query.
PATIENCE_S = 400


def start_session(folder: Path, jars: Sequence[Path] = (), python: str = sys.executable) -> SparkSession:
    """Everything that the session writes is below `folder`. Workers run `python`."""
    # The variable is read when the context starts.
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JVM
    # Set in the environment, since the JVM reads it before any of Spark's classes could set it.
    os.environ["SPARK_CONF_DIR"] = str(quiet_configuration(folder / "conf"))
    (folder / "tmp").mkdir()
    settings = {
        **quick_settings(folder / "tmp"),
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(MASTER).appName("pykafka-sink tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run_to_end(query: StreamingQuery, timeout_s: float | None = None) -> None:
    """Waits until a query with trigger(availableNow=True) has ended; raises its error."""
    timeout_s = PATIENCE_S if timeout_s is None else timeout_s
    try:
        if not query.awaitTermination(int(timeout_s)):
            raise TimeoutError(f"the query runs still after {timeout_s} s: {query.lastProgress}")
    finally:
        query.stop()


class TopicRow(NamedTuple):
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def read_rows(bootstrap_servers: str, *topics: str) -> list[TopicRow]:
    """Committed records as librdkafka reads them, by topic, partition and offset."""
    return [
        TopicRow(topic, record.partition, record.key, record.value, record.headers, record.timestamp_ms)
        for topic in topics
        for record in read_topic(bootstrap_servers, topic)
    ]


def as_sets(rows: Iterable[TopicRow]) -> list[tuple[object, ...]]:
    """For two writers of the same frame: without topic and timestamp, in an order that is the same for both."""
    return sorted(((row.partition, row.key, row.value, row.headers) for row in rows), key=repr)
