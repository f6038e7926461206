"""`pykafka-sink recover --all`: finishes every open decision in the default ledger and in the one that is named.

One after the other: a line of decisions whose batch is lost, or that cannot be finished now, does not keep the others
from being finished.

Other ledgers are found by what is in them, so whoever may write to any topic could name the transactions of a sink
there: of those the command only tells.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from kafka_sink.commit.command_texts import BrokerArguments, CommandTexts
from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import Kind, LedgerRecord, line_of
from kafka_sink.commit.open_decisions import HIDDEN_TEXT, Standing
from kafka_sink.errors import CommitLost, CommitPending
from kafka_sink.operate.cli.read_commands import next_step, unreadable_lines
from kafka_sink.operate.cli.report import DONE, OPEN, REFUSED, Report, batch_named, decision
from kafka_sink.operate.cli.sink_client import SinkClient
from kafka_sink.operate.cli.write_commands import confirm_recovery, open_texts
from kafka_sink.operate.status.collect import ClusterLook
from kafka_sink.operate.status.facts import LedgerFacts
from kafka_sink.options.sink_options import DEFAULT_LEDGER

HIDDEN_SHOWN_MAX = 5


def recover_all(sink: SinkClient, given: argparse.Namespace) -> Report:
    named = [] if sink.ledger_topic == DEFAULT_LEDGER else [sink.ledger_topic]
    cluster = ClusterLook(sink.client, sink.commands.brokers, named, given.timeout * 1000)
    topics, notes = cluster.look_for_ledgers()
    read_ledgers = [cluster.read_ledger(topic) for topic in topics]
    ledgers = [each for each in read_ledgers if each.topic in (DEFAULT_LEDGER, *named)]
    notes += filter(None, [_left_text(each, cluster.brokers) for each in read_ledgers if each not in ledgers])
    lost = [text for ledger in ledgers for text in _lost_texts(sink, ledger)]
    hidden: list[LedgerRecord] = []
    found = [(ledger.topic, record) for ledger in ledgers for record in _open_decisions(sink, ledger, notes, hidden)]
    if found and sys.stdin.isatty():
        shown = [text for topic in dict(found) for text in _texts_of(sink, topic) if HIDDEN_TEXT not in text]
        confirm_recovery(given, shown)
    told = [_finish(sink, topic, record) for topic, record in _one_of_each_line(found)]
    failed = [each for each in told if each["error"] is not None]
    read = [ledger.topic for ledger in ledgers if not ledger.problem]
    left = [decision(record, sink.wall_ms) for record in hidden]
    content = {"ledgers": read, "recovered": [each for each in told if each["error"] is None], "failed": failed,
               "lost": lost, "hidden": left, "notes": notes}  # fmt: skip
    lines = [each["text"] for each in told]
    if read and not lines:
        seen = " that this login may describe" if hidden else ""
        lines = [f"no decision{seen} is open in {', '.join(read)}; nothing was to be done"]
    lines += _hidden_lines(hidden)
    codes = {OPEN} if lost else set()
    codes |= {OPEN if each["error"] in ("CommitLost", "CommitPending") else REFUSED for each in failed}
    return Report(max([*codes, REFUSED if notes else DONE]), content, [*lines, *lost, *notes])


def _hidden_lines(hidden: Sequence[LedgerRecord]) -> Iterator[str]:
    """Of other teams, for a login that may write under its own prefix. Most are of queries that run, whose next commit
    closes them."""
    if hidden:
        names = sorted({record.sink_id for record in hidden})
        more = f" and {len(names) - HIDDEN_SHOWN_MAX} more" if len(names) > HIDDEN_SHOWN_MAX else ""
        yield (
            f"left alone: {len(hidden)} decisions of sinks whose transactional ids this login may not describe "
            f"({', '.join(names[:HIDDEN_SHOWN_MAX])}{more})"
        )


def _left_text(ledger: LedgerFacts, brokers: BrokerArguments) -> str:
    """Empty if nothing is to be done there."""
    count = sum(each.record is None or each.record.kind in (Kind.INTENT, Kind.STUCK) for each in ledger.listed)
    if ledger.problem or not count:
        return ledger.problem
    commands = CommandTexts(brokers, ledger.topic)
    return (
        f"{ledger.topic} looks like a ledger with open decisions ({count}), and whoever may write there could make it "
        f"look so: nothing was done about them. If a sink's ledger.topic is {ledger.topic}, "
        f"`{commands.recover_all()}` finishes them{commands.hint}"
    )


def _lost_texts(sink: SinkClient, ledger: LedgerFacts) -> list[str]:
    """About which nobody has chosen before this command."""
    sink.use_ledger(ledger.topic)
    records = [each.record for each in ledger.listed if each.record is not None and each.record.kind is Kind.STUCK]
    return [next_step(record, sink.settings()) for record in records]


def _open_decisions(
    sink: SinkClient, ledger: LedgerFacts, notes: list[str], hidden: list[LedgerRecord]
) -> Iterator[LedgerRecord]:
    sink.use_ledger(ledger.topic)
    notes += filter(None, [ledger.problem])
    notes += unreadable_lines([each for each in ledger.listed if each.record is None])
    intents = [each for each in ledger.listed if each.record is not None and each.record.kind is Kind.INTENT]
    standings = sink.standings_of(intents) if intents else {}
    for each in intents:
        assert each.record is not None
        if standings[each.ledger_key].standing is Standing.HIDDEN:
            hidden.append(each.record)
        elif sink.ask_if_elsewhere(each.record):
            notes.append(next_step(each.record, sink.settings()))
        else:
            yield each.record


def _texts_of(sink: SinkClient, topic: str) -> list[str]:
    sink.use_ledger(topic)
    return open_texts(sink)


def _one_of_each_line(found: list[tuple[str, LedgerRecord]]) -> list[tuple[str, LedgerRecord]]:
    """The driver of a line finishes all that is open in it: when the last of a line comes, the first stands for all."""
    chosen: dict[tuple[str, Line], tuple[str, LedgerRecord]] = {}
    for topic, record in found:
        line = topic, line_of(record.sink_id, record.key, topic)
        chosen[line] = chosen.pop(line, (topic, record))
    return list(chosen.values())


def _finish(sink: SinkClient, topic: str, record: LedgerRecord) -> dict[str, Any]:
    sink.use_ledger(topic)
    error = sink.finish(record).error
    if error is not None and not isinstance(error, (CommitLost, CommitPending)):
        text = f"{batch_named(record.key)} of sink {record.sink_id} was not finished: {error}"
    elif error is not None:
        text = str(error)
    else:
        text = f"finished {batch_named(record.key)} of sink {record.sink_id}: {record.row_count} rows are visible"
    return {
        "ledger_topic": topic,
        "sink_id": record.sink_id,
        "query_id": record.key.query_id or None,
        "batch_id": record.key.batch_id,
        "error": None if error is None else type(error).__name__,
        "text": text,
    }
