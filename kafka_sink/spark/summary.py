"""What a batch came to, for people: one line in the driver's log, and a call of the user's listener."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kafka_sink.delivery.receipt import BatchKey, BatchSummary, TaskReceipt, summarised
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.log import show_log
from kafka_sink.spark.task import imported

_LOGGER = logging.getLogger("kafka_sink")
# A line that names every one of a thousand partitions helps nobody; the listener gets them all.
PARTITIONS_SHOWN_MAX = 8


def tell_commit(options: SinkOptions, key: BatchKey, receipts: Sequence[TaskReceipt]) -> None:
    show_log()
    summary = summarised(receipts)
    _LOGGER.info("%s", line(options, key, summary))
    if options.summary_listener is None:
        return
    try:
        imported(options.summary_listener, "summary.listener")(key, summary)
    except Exception:
        # The batch is delivered; a listener must not turn that into a failure and have Spark write it again.
        _LOGGER.exception("summary.listener %s failed; the batch is delivered all the same", options.summary_listener)


def tell_abort(key: BatchKey, receipts: Sequence[TaskReceipt]) -> None:
    show_log()
    summary = summarised(receipts)
    _LOGGER.warning(
        "%s failed: %d of its tasks had delivered %d rows, which stay in the topic and will be there again when the "
        "batch is repeated (delivery is at least once)",
        key, summary.receipt_count, summary.row_count,
    )  # fmt: skip


def line(options: SinkOptions, key: BatchKey, summary: BatchSummary) -> str:
    name = f"query {options.query_name}, " if options.query_name else ""
    shown = [
        f"{each.topic}-{each.partition}: {each.row_count} rows at {each.first_offset}..{each.last_offset}"
        for each in summary.written[:PARTITIONS_SHOWN_MAX]
    ]
    rest = len(summary.written) - len(shown)
    if rest > 0:
        shown.append(f"and {rest} partitions more")
    parts = [f"{summary.row_count} rows", f"{summary.bytes} bytes", f"{summary.receipt_count} tasks"]
    parts += [f"{summary.retry_count} records retried", f"slowest task {summary.send_ms_max} ms"]
    parts += [f"{count} rows left out: {reason}" for reason, count in summary.record_errors.items()]
    return f"{name}{key} delivered: {', '.join(parts)}" + (f" ({'; '.join(shown)})" if shown else "")
