"""What becomes of a task's rows before the producer gets them: changes -> format -> envelope, each where it is wanted.

A module is loaded only where its step is: the first row waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from kafka_sink.errors import DataError
from kafka_sink.formats.records.digest import RowDigest
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.task_context import TaskPlace

if TYPE_CHECKING:
    from kafka_sink.formats.records.varint import Array
    from kafka_sink.spark.changes import ChangeRows
    from kafka_sink.spark.encoding import RowEncoding
    from kafka_sink.spark.envelope import Envelope
    from kafka_sink.spark.formats import SidePlan


class OutgoingRows(NamedTuple):
    """`given`: the same rows as they were before their format. `misfits`: what cannot be sent, and why, by row.
    `is_second`: which of them are the second record of a change; None: there are none."""

    rows: pa.RecordBatch
    given: pa.RecordBatch
    misfits: Mapping[int, DataError]
    is_second: Array | None


class RowPath:
    """The path of one attempt's rows. It asks nobody."""

    def __init__(self, options: SinkOptions, place: TaskPlace, sides: Sequence[SidePlan] = ()) -> None:
        self.encoding: RowEncoding | None = None
        if sides:
            from kafka_sink.spark.encoding import RowEncoding

            self.encoding = RowEncoding(sides)
        self._changes: ChangeRows | None = None
        if options.changes is not None:
            from kafka_sink.spark.changes import ChangeRows

            self._changes = ChangeRows(options.changes)
        self._envelope = _make_envelope(options, place)
        self._digest = RowDigest()
        # Without a transaction no batch is ever compared with its repetition.
        self._has_digest = place.own_identity is not None

    @property
    def digest(self) -> int:
        """Of all rows so far, in their format and without an envelope."""
        return self._digest.value

    def apply(self, rows: pa.RecordBatch, rows_before: int) -> OutgoingRows:
        misfits: Mapping[int, DataError] = {}
        is_second: Array | None = None
        if self._changes is not None:
            rows, misfits, is_second = self._changes.apply(rows)
        given = rows
        if self.encoding is not None:
            rows, unfit = self.encoding.encode(rows)
            misfits = {**unfit, **misfits}
        if self._has_digest:
            self._digest.add(rows)
        if self._envelope is not None:
            rows, incomplete = self._envelope.apply(rows, rows_before, is_second)
            misfits = {**incomplete, **misfits}
        return OutgoingRows(rows, given, misfits, is_second)


def _make_envelope(options: SinkOptions, place: TaskPlace) -> Envelope | None:
    if options.envelope is None:
        return None
    from kafka_sink.spark.envelope import Envelope

    query_id, batch_id = place.key.query_id, str(place.key.batch_id)
    # A batch write without a label is identified by its run. Labels, and several writes of one micro-batch, are told
    # apart by their sink.
    prefix = "-".join(part for part in (query_id, batch_id) if part) or place.run
    if place.named_sink_id:
        prefix = f"{place.named_sink_id}/{prefix}"
    known = {"query.id": query_id, "batch.id": batch_id}
    span = None
    if options.envelope.has_traceparent_of_task:
        from kafka_sink.telemetry.metrics.trace_ids import TraceIds, sink_name

        sink = sink_name(place.named_sink_id, place.key, options)
        ids = TraceIds(sink, options.query_name or "", place.key, place.run)
        span = ids.traceparent_of_task(place.spark_partition, place.attempt)
    return Envelope(options.envelope, known, f"{prefix}-{place.spark_partition}", span)
