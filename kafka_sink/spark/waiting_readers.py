"""The line in the driver's log when a failed batch may have left transactions open: who waits, until when, and which
command ends that."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from kafka_sink.commit.command_texts import CommandTexts, broker_arguments
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.sweep import NOT_LISTED, NOT_VERIFIED
from kafka_sink.options.sink_options import SinkOptions

_LOGGER = logging.getLogger("kafka_sink")
TOPICS_SHOWN_MAX = 8


def warn_of_waiting_readers(
    options: SinkOptions, sink_id: str, receipts: Iterable[TaskReceipt], notes: Sequence[str] = ()
) -> None:
    _LOGGER.warning("%s", waiting_text(options, sink_id, receipts, notes, now_s=time.time()))


def waiting_text(
    options: SinkOptions, sink_id: str, receipts: Iterable[TaskReceipt], notes: Sequence[str], *, now_s: float
) -> str:
    """`notes`: of the abort that did not end everything."""
    timeout_ms = options.producer.transaction_timeout_ms
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s + timeout_ms / 1000))
    commands = CommandTexts(broker_arguments(options.producer), options.ledger_topic)
    end = (
        "these brokers offer no way to end them sooner"
        if NOT_VERIFIED in notes or NOT_LISTED in notes
        else f"`{commands.abort_transactions(sink_id)}` ends them at once{commands.hint}"
    )
    return (
        f"read_committed readers of {_topics(options, receipts)} may wait until {until} (transaction.timeout.ms="
        f"{timeout_ms}), because killed tasks may have left transactions open; {end}"
    )


def _topics(options: SinkOptions, receipts: Iterable[TaskReceipt]) -> str:
    written = {each.topic for receipt in receipts for each in receipt.written}
    named = sorted(written | ({options.topic} if options.topic is not None else set()))
    if not named:
        return "the topics of this write"
    more = f" and {len(named) - TOPICS_SHOWN_MAX} topics more" if len(named) > TOPICS_SHOWN_MAX else ""
    return ", ".join(named[:TOPICS_SHOWN_MAX]) + more
