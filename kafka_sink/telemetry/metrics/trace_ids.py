"""The ids of traces and spans: derived from names that task and driver both know, so that they need not be passed."""

from __future__ import annotations

import hashlib
import uuid
from typing import NamedTuple

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.options.sink_options import SinkOptions


class TraceIds(NamedTuple):
    """The ids of one batch: a trace, with a span for the batch and one per task."""

    sink: str
    query: str
    key: BatchKey
    run: str

    @property
    def trace_id(self) -> int:
        return self._number("", 16)

    @property
    def span_of_batch(self) -> int:
        return self._number("batch", 8)

    @property
    def span_of_abort(self) -> int:
        return self._number("abort", 8)

    def span_of_task(self, spark_partition: int, attempt: int) -> int:
        return self._number(f"{spark_partition}-{attempt}", 8)

    def traceparent_of_task(self, spark_partition: int, attempt: int) -> bytes:
        """In W3C Trace Context format; 01: the span is sampled."""
        return b"00-%032x-%016x-01" % (self.trace_id, self.span_of_task(spark_partition, attempt))

    def _number(self, part: str, byte_count: int) -> int:
        named = "\n".join((self.sink, self.key.query_id, self.run, str(self.key.batch_id), self.query, part))
        return int.from_bytes(hashlib.sha256(named.encode()).digest()[:byte_count], "big") or 1


def sink_name(sink_id: str | None, key: BatchKey, options: SinkOptions) -> str:
    """The sink's name in metrics and spans: the generated id of a batch write without a label is meaningless."""
    return sink_id if sink_id is not None and key.is_named else options.sink_id or ""


def instance_of(application_folder: str) -> str:
    """Of an application, the same in all of its processes on the driver's host. Others may write to the same sink."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"pykafka-sink:{application_folder}"))
