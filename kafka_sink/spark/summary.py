"""The summary of a batch: one line in the driver's log, and a call of the user's listener."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafka_sink.commit.command_texts import CommandTexts, broker_arguments
from kafka_sink.commit.identity import sink_id_of_query
from kafka_sink.commit.receipt import BatchKey, BatchSummary, TaskReceipt, summarize_receipts
from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import printable_text
from kafka_sink.options.host.functions import load_user_function
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.process import show_log

if TYPE_CHECKING:
    from kafka_sink.spark.driver import FinishedBatch

_LOGGER = logging.getLogger("kafka_sink")
# A line with a thousand partitions is useless; the listener gets them all.
PARTITIONS_SHOWN_MAX = 8


def report_delivered(
    options: SinkOptions, key: BatchKey, receipts: Sequence[TaskReceipt], conclusion: Conclusion
) -> None:
    show_log()
    summary = summarize_receipts(receipts)
    if conclusion is Conclusion.ALREADY_DELIVERED:
        _LOGGER.info("%s was delivered by an earlier run; what this run wrote again was aborted", key)
        return
    _LOGGER.info("%s", summary_line(options, key, summary))
    _tell_listener(options, key, summary)


def _tell_listener(options: SinkOptions, key: BatchKey, summary: BatchSummary) -> None:
    if options.summary_listener is None:
        return
    try:
        load_user_function(options.summary_listener, "summary.listener")(key, summary)
    except (Exception, SystemExit):
        # The batch is delivered; a failing listener must not cause Spark, or the user, to write it again.
        _LOGGER.exception("summary.listener %s failed; the batch is delivered all the same", options.summary_listener)


def report_aborted(batch: FinishedBatch, conclusion: Conclusion | None) -> None:
    show_log()
    key = batch.key
    summary = summarize_receipts(batch.receipts)
    if batch.sink_id is None and not batch.has_transactions:
        # What the failed tasks sent is not known here: they left no receipt.
        fate = (
            "these rows, and what other tasks sent before they failed, stay and will be there again when the batch is "
            "repeated (delivery is at least once)"
        )
    elif conclusion is Conclusion.ABORTED:
        fate = "they are aborted, except those that a warning above names; nothing of the batch is visible"
    elif conclusion is None or batch.sink_id is None:
        fate = "nothing of the batch is visible"
    elif conclusion is Conclusion.RECOVERED:
        _LOGGER.error(
            "%s: its commit had begun, and was interrupted after the decision. It is finished now, and all of its %d "
            "rows are visible. Even if Spark reports this write as failed, do not write it again",
            key,
            summary.row_count,
        )
        _tell_listener(batch.options, key, summary)
        return
    else:
        assert batch.sink_id is not None
        fate = _left_alone_text(batch, batch.sink_id)
    rows = f"{summary.receipt_count} of its tasks had written {summary.row_count} rows"
    _LOGGER.warning("%s failed after %s: %s", key, rows, fate)


def _left_alone_text(batch: FinishedBatch, sink_id: str) -> str:
    commands = CommandTexts(broker_arguments(batch.options.producer), batch.options.ledger_topic)
    exact_id = sink_id_of_query(sink_id, batch.key.query_id)
    begin = "a decision to commit was made or cannot be ruled out, so nothing that it may name was aborted. "
    if batch.key.is_named:
        end = (
            f"The next run of the query, or `{commands.recover(exact_id)}`, finishes it, before its transactions time "
            "out. After that the same command finds out whether rows are missing"
        )
    else:
        end = (
            f"Do not write it again yet: `{commands.ledger(exact_id)}` shows whether it is open, and "
            f"`{commands.recover(exact_id)}` finishes it, or finds out whether rows are missing once its transactions "
            "have timed out. If it is not there, look into the topic"
        )
    return f"{begin}{end}{commands.hint}"


def summary_line(options: SinkOptions, key: BatchKey, summary: BatchSummary) -> str:
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
    line = f"{name}{key} delivered: {', '.join(parts)}" + (f" ({'; '.join(shown)})" if shown else "")
    return printable_text(line)
