"""Writes the same DataFrame with Spark's own Kafka sink and with ours, and reads the two topics.

Everything here uses the public API of Spark with the options that a user would write. A foreign reader reads the
topics; timestamps differ between two writes and are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.spark_session import read_rows
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster

OURS, SPARKS_OWN = "pykafka-sink", "kafka"


class Record(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def append(
    frame: DataFrame, kafka: KafkaCluster | str, sink: str = OURS, /, topic: str | None = None, **options: str
) -> None:
    """Names of `options` have underscores in place of dots. No other option is set."""
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    writer = frame.write.format(sink).mode("append").option("kafka.bootstrap.servers", servers)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**{name.replace("_", "."): value for name, value in options.items()}).save()


def start(
    frame: DataFrame,
    kafka: KafkaCluster | str,
    checkpoint: str,
    /,
    topic: str | None = None,
    output_mode: str = "append",
    **options: str,
) -> StreamingQuery:
    """A stream into our sink that ends when its source is exhausted."""
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    writer = frame.writeStream.format(OURS).outputMode(output_mode).option("kafka.bootstrap.servers", servers)
    writer = writer.option("checkpointLocation", checkpoint)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer = writer.options(**{name.replace("_", "."): value for name, value in options.items()})
    return writer.trigger(availableNow=True).start()


def writable_topic(kafka: KafkaCluster, name: str, partitions: int = 4) -> str:
    """A topic whose leaders already accept records, which metadata do not tell.

    Without this wait the Java client may lose two minutes: its first batch is refused, its second becomes the first
    that the leader sees of this producer, and the resent first one is out of order until delivery.timeout.ms.
    """
    kafka.create_topic(name, partitions=partitions)
    end_offsets(kafka.bootstrap_servers, name)
    return name


def records(kafka: KafkaCluster, topic: str) -> list[Record]:
    """In the order of partition and offset."""
    rows = read_rows(kafka.bootstrap_servers, topic)
    return [Record(row.partition, row.key, row.value, row.headers) for row in rows]


def values(kafka: KafkaCluster, topic: str) -> list[bytes | None]:
    return sorted((record.value for record in records(kafka, topic)), key=repr)


class Folder:
    """The source of a stream: each call of `add` writes a file of lines, which is a micro-batch of its own."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._path = path / "source"
        self._path.mkdir()
        self._count = 0
        self._spark = spark

    def add(self, *lines: str) -> None:
        self._count += 1
        # The file must appear complete, since the source may look at any time.
        hidden = self._path / f".{self._count}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(self._path / f"{self._count}.txt")

    def take_back(self) -> None:
        """Removes the file that was added last."""
        (self._path / f"{self._count}.txt").unlink()
        self._count -= 1

    def read(self) -> DataFrame:
        return self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._path))
