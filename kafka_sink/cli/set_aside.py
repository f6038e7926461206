"""`resolve --set-aside`: the way on for a sink whose newest record cannot be read.

Nothing is known of what the record says, so the person is told what that may cost before anything is written.
"""

from __future__ import annotations

import argparse
import sys

from kafka_sink.cli.report import DONE, OPEN, REFUSED, Report
from kafka_sink.cli.sink_client import SinkClient
from kafka_sink.cli.write_commands import ask
from kafka_sink.error_table.commits import COMMAND_WRONG
from kafka_sink.errors import ConfigError
from kafka_sink.exactly_once.listing import Listed
from kafka_sink.exactly_once.set_aside import Aside

_EXIT_CODES = {Aside.DONE: DONE, Aside.CHANGED: OPEN, Aside.IN_DOUBT: OPEN, Aside.FAILED: REFUSED}


def set_aside(desk: SinkClient, given: argparse.Namespace) -> Report:
    desk.check_ledger()
    desk.check_sink_is_known()
    unreadable = [each for each in desk.listed() if each.record is None and given.key in (None, each.ledger_key)]
    if not unreadable:
        about = "sink " + desk.named_sink if given.key is None else f"key {given.key}"
        text = f"every record of {about} can be read; there is nothing to set aside"
        return Report(DONE, {"sink_id": desk.named_sink, "conclusion": "nothing to do", "text": text}, [text])
    if len(unreadable) > 1:
        keys = ", ".join(each.ledger_key for each in unreadable)
        raise ConfigError(
            f"{len(unreadable)} records of sink {desk.named_sink} cannot be read ({keys}): choose one with --key",
            COMMAND_WRONG,
        )
    (chosen,) = unreadable
    lines = consequences(desk.ledger_topic, chosen)
    if given.yes:
        sys.stderr.write("\n".join([*lines, ""]))
    ask(given, lines)
    verdict = desk.set_aside(chosen.ledger_key, chosen.offset)
    text = {
        Aside.DONE: f"the record of {chosen.ledger_key} at offset {chosen.offset} was set aside. Start a stream of "
        "this sink with ledger.accept.new.sink=true, once",
        Aside.CHANGED: "the ledger has changed meanwhile; nothing was written. Look again",
        Aside.FAILED: f"nothing was written: {verdict.reason}",
        Aside.IN_DOUBT: f"whether it was set aside is not known: {verdict.reason}. Look with `pykafka-sink ledger`",
    }[verdict.outcome]
    content = {
        "sink_id": desk.named_sink,
        "ledger_key": chosen.ledger_key,
        "offset": chosen.offset,
        "problem": chosen.problem,
        "conclusion": verdict.outcome.value,
        "text": text,
    }
    return Report(_EXIT_CODES[verdict.outcome], content, [text])


def consequences(ledger_topic: str, chosen: Listed) -> list[str]:
    where = f"{chosen.ledger_key} (offset {chosen.offset} of {ledger_topic})"
    return [
        f"The newest record of {where} cannot be read: {chosen.problem}.",
        "",
        "If a newer release has written it, use that release: nothing has to be given up then. Otherwise:",
        f"- The driver of sink {chosen.sink_id} is fenced. Stop its query first; one that runs fails at its commit.",
        "- A record without a value takes its place, in a transaction. What it said is not known to anybody then.",
        "- If it was an open decision, nobody finishes it: rows that are not visible yet never will be. If the query",
        "  runs that batch again, rows that are visible already appear twice. Look into the topic before.",
        "- The sink then counts as unknown: a stream is refused until ledger.accept.new.sink=true is set, and a batch",
        "  write with the same batch.id writes its rows again.",
    ]
