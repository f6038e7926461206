"""Code that PySpark users write today: a client in foreachPartition, row by row. Also sinks that only count rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kafka_sink.spark.process_memory import HEAP

BATCH_BYTES, LINGER_MS = 131_072, 5


class NullWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.row_count = sum(arrow_batch.num_rows for arrow_batch in iterator)
        return WriterCommitMessage()


class NullStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        pass


class FrozenNullStreamWriter(NullStreamWriter):
    """With our setting of PySpark's garbage collection between tasks: the lowest cost of any sink in Python."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        HEAP.on_work_begin()
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        HEAP.on_work_begin()


class FrozenNullSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "frozen-null-sink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FrozenNullStreamWriter:
        HEAP.on_work_begin()
        return FrozenNullStreamWriter()


class NullSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "null-sink"

    def writer(self, schema: StructType, overwrite: bool) -> NullWriter:
        return NullWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NullStreamWriter:
        return NullStreamWriter()


def discard_in_function(frame: DataFrame, batch_id: int) -> None:
    """For foreachBatch, with the action of our functions and our setting of garbage collection: the lowest cost of any
    sink that is written like this."""
    frame.mapInArrow(_discard, "result BINARY").collect()


def _discard(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    HEAP.on_work_begin()
    row_count = sum(arrow_batch.num_rows for arrow_batch in arrow_batches)
    yield pa.RecordBatch.from_pydict({"result": [str(row_count).encode()]})


def write_with_confluent(frame: DataFrame, options: Mapping[str, str]) -> None:
    settings = _settings(options)
    is_keyed = "key" in frame.columns

    def write(rows: Iterable[Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
        for row in rows:
            while True:
                try:
                    producer.produce(options["topic"], value=row["value"], key=row["key"] if is_keyed else None)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()

    frame.foreachPartition(write)


def write_with_kafka_python(frame: DataFrame, options: Mapping[str, str]) -> None:
    settings = _settings(options)
    is_keyed = "key" in frame.columns

    def write(rows: Iterable[Any]) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=settings["bootstrap.servers"],
            compression_type=None if settings["compression.type"] == "none" else settings["compression.type"],
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
        )
        for row in rows:
            key = row["key"].encode() if is_keyed else None
            producer.send(options["topic"], value=row["value"].encode(), key=key)
        producer.flush()
        producer.close()

    frame.foreachPartition(write)


def _settings(options: Mapping[str, str]) -> dict[str, Any]:
    return {
        "bootstrap.servers": options["kafka.bootstrap.servers"],
        "compression.type": options["kafka.compression.type"],
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "enable.idempotence": True,
    }
