"""`pykafka-sink recover --all`: finishes every open decision in every ledger of the cluster.

One after the other: a line of decisions whose batch is lost, or that cannot be finished now, does not keep the others
from being finished.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from kafka_sink.commit.command_texts import LEDGER_TOPIC
from kafka_sink.commit.ledger import Kind, LedgerRecord, line_of
from kafka_sink.errors import CommitLost, CommitPending
from kafka_sink.operate.cli.read_commands import next_step, unreadable_lines
from kafka_sink.operate.cli.report import DONE, OPEN, REFUSED, Report, batch_word
from kafka_sink.operate.cli.sink_client import SinkClient
from kafka_sink.operate.cli.write_commands import confirm_recovery, open_texts
from kafka_sink.operate.status.collect import ClusterLook


def recover_all(sink: SinkClient, given: argparse.Namespace) -> Report:
    named = [] if sink.ledger_topic == LEDGER_TOPIC else [sink.ledger_topic]
    ledgers = ClusterLook(sink.client, sink.commands.brokers, named, given.timeout * 1000).find_ledgers()
    notes: list[str] = []
    found = [(topic, record) for topic in ledgers for record in _open_decisions(sink, topic, notes)]
    if found and sys.stdin.isatty():
        shown = [text for topic in dict(found) for text in _texts_of(sink, topic)]
        confirm_recovery(given, shown)
    told = [_finish(sink, topic, record) for topic, record in _one_of_each_line(found)]
    failed = [each for each in told if each["error"] is not None]
    content = {"ledgers": ledgers, "recovered": [each for each in told if each["error"] is None], "failed": failed,
               "notes": notes}  # fmt: skip
    lines = [each["text"] for each in told] or [f"no decision is open in {', '.join(ledgers)}; nothing was to be done"]
    codes = {OPEN if each["error"] in ("CommitLost", "CommitPending") else REFUSED for each in failed}
    return Report(max([*codes, REFUSED if notes else DONE]), content, [*lines, *notes])


def _open_decisions(sink: SinkClient, topic: str, notes: list[str]) -> Iterator[LedgerRecord]:
    sink.use_ledger(topic)
    listed = sink.list_decisions()
    notes += unreadable_lines([each for each in listed if each.record is None])
    for each in listed:
        if each.record is None or each.record.kind is not Kind.INTENT:
            continue
        if sink.ask_if_elsewhere(each.record):
            notes.append(next_step(each.record, sink.settings()))
        else:
            yield each.record


def _texts_of(sink: SinkClient, topic: str) -> list[str]:
    sink.use_ledger(topic)
    return open_texts(sink)


def _one_of_each_line(found: list[tuple[str, LedgerRecord]]) -> list[tuple[str, LedgerRecord]]:
    """The driver of a line finishes all that is open in it."""
    return list({(topic, line_of(one.sink_id, one.key)): (topic, one) for topic, one in reversed(found)}.values())[::-1]


def _finish(sink: SinkClient, topic: str, record: LedgerRecord) -> dict[str, Any]:
    sink.use_ledger(topic)
    error = sink.finish(record).error
    if error is not None and not isinstance(error, (CommitLost, CommitPending)):
        text = f"{batch_word(record.key)} of sink {record.sink_id} was not finished: {error}"
    elif error is not None:
        text = str(error)
    else:
        text = f"finished {batch_word(record.key)} of sink {record.sink_id}: {record.row_count} rows are visible"
    return {
        "ledger_topic": topic,
        "sink_id": record.sink_id,
        "query_id": record.key.query_id or None,
        "batch_id": record.key.batch_id,
        "error": None if error is None else type(error).__name__,
        "text": text,
    }
