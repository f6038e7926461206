"""The commands that make changes: `recover`, `resolve`, also with --set-aside, and `transactions --abort`.

Each is an operation of the driver's state machine. Irreversible changes need a confirmation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.listing import Listed
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation
from kafka_sink.commit.set_aside import Aside
from kafka_sink.errors import CommitLost, ConfigError, RemoteProtocolError
from kafka_sink.errors.table.commits import COMMAND_WRONG, LEDGER_UNREADABLE
from kafka_sink.operate.cli import read_commands
from kafka_sink.operate.cli.report import (
    DONE,
    GO_ON,
    OPEN,
    REFUSED,
    YES,
    Report,
    batch_named,
    confirm,
    decision,
    verdict_word,
)
from kafka_sink.operate.cli.signs import Signs, look_for_signs
from kafka_sink.operate.cli.sink_client import SinkClient
from kafka_sink.operate.cli.streams import print_error

TAKE_OVER = "take over"
TAKING_OVER = (
    "Stop the query first. If it runs, this command takes the place of its driver for a moment: what its tasks are",
    "writing is aborted, and the query stops with CommitAborted at its next commit. No row is lost or doubled: when it",
    "is started again, it writes them again. A query that is between two batches goes on.",
)
_EXIT_CODES = {Aside.DONE: DONE, Aside.CHANGED: OPEN, Aside.IN_DOUBT: OPEN, Aside.FAILED: REFUSED}


def recover(sink: SinkClient, given: argparse.Namespace) -> Report:
    records = _read_records(sink, needs_decision=False)
    before = [record for record in records if record.kind is Kind.INTENT]
    lost = [read_commands.next_step(record, sink.settings()) for record in records if record.kind is Kind.STUCK]
    if before and sys.stdin.isatty():
        confirm_recovery(given, open_texts(sink))
    results = [_raise_on_error(result) for result in sink.run_for_each(DriverOperation.FINISH)]
    recovered = [result for result in results if result.conclusion is Conclusion.RECOVERED]
    result = (recovered or results)[0]
    if recovered and before:
        named = ", ".join(batch_named(record.key) for record in before)
        rows = sum(record.row_count for record in before)
        text = f"finished {named} of sink {sink.named_sink}: {rows} rows are visible"
    elif recovered:
        # From a running query: decided after the ledger was read.
        text = f"finished a batch of sink {sink.named_sink} that has been decided just now: its rows are visible"
    elif lost:
        text = f"no decision of sink {sink.named_sink} is open"
    else:
        text = f"no decision of sink {sink.named_sink} is open; nothing was to be done"
    return _result_report(sink, result, OPEN if lost else DONE, text, lost)


def open_texts(sink: SinkClient) -> list[str]:
    """What is open, and how much time is left."""
    found, judged = sink.judge_open(sink.list_decisions())
    return [
        read_commands.next_step(each.record, sink.settings(), judged.get(each.ledger_key))
        for each in found
        if each.record is not None and each.record.kind is Kind.INTENT
    ]


def confirm_recovery(given: argparse.Namespace, shown: Sequence[str]) -> None:
    confirm(given, [*shown, "", "What is still in time will be committed."])


def abort_transactions(sink: SinkClient, given: argparse.Namespace) -> Report:
    sink.check_ledger()
    found = read_commands.transactions(sink, given)
    if found.exit_code == DONE:
        sink.known_decisions()  # a misspelled sink has no open transactions, either
        return Report(DONE, {**found.content, "aborted": []}, found.lines)
    sink.check_ledger_is_theirs()
    signs = look_for_signs(sink)
    confirm_abort(given, found.lines, signs)
    results = [_raise_on_error(result) for result in sink.run_for_each(DriverOperation.SWEEP)]
    swept = sorted(one for result in results for one in result.swept)
    told = [note for result in results for note in result.notes]
    left = sink.list_transactions_left()
    lines = [f"aborted {one}" for one in swept] or ["nothing was left to abort"]
    lines += [f"still open: {one.transactional_id} ({one.state})" for one in left.found]
    content = {
        "sink_id": sink.named_sink,
        "aborted": swept,
        "left_open": [one.transactional_id for one in left.found],
        "signs": [one.content() for one in signs],
        "notes": [*told, *left.notes],
    }
    exit_code = REFUSED if content["notes"] else OPEN if left.found else DONE
    return Report(exit_code, content, [*lines, *told, *left.notes])


def confirm_abort(given: argparse.Namespace, shown: Sequence[str], signs: Sequence[Signs]) -> None:
    """Shows what is alive, also with --yes. Words are asked for before the work of a query that seems to run is
    aborted."""
    lines = [*shown, "", *(line for one in signs for line in one.lines()), ""]
    question, answers = GO_ON, YES
    if any(one.reason_to_think_it_lives() for one in signs):
        lines += TAKING_OVER
        question, answers = f'Type "{TAKE_OVER}" to go on: ', (TAKE_OVER,)
    else:
        lines.append("Decided transactions will be committed, all others of this sink aborted.")
    if given.yes:
        print_error("\n".join(lines))
    confirm(given, lines, question, answers)


def resolve(sink: SinkClient, given: argparse.Namespace) -> Report:
    records = _close_open_ones(sink, given, _read_records(sink))
    lost = [
        record
        for record in records
        if _is_meant(record, given) and (record.kind is Kind.STUCK or sink.ask_if_elsewhere(record))
    ]
    if not lost:
        return _nothing_lost(sink, given, records)
    if len(lost) > 1:
        # Queries of one sink.id have sink ids of their own, and may have lost batches of the same number.
        command = sink.commands.replay if given.replay else sink.commands.accept
        choices = " or ".join(f"`{command(each)}`" for each in lost)
        raise ConfigError(
            f"{len(lost)} batches of sink {sink.named_sink} are lost: choose one with {choices}{sink.commands.hint}",
            COMMAND_WRONG,
        )
    (chosen,) = lost
    consequence = (
        "It will run again when the query starts: rows that are visible already will appear twice."
        if given.replay
        else "The query will go on without its missing rows, for good."
    )
    confirm(given, [read_commands.next_step(chosen, sink.settings()), "", consequence])
    choice = DriverOperation.REPLAY if given.replay else DriverOperation.ACCEPT
    result = _raise_on_error(sink.run(choice, chosen.sink_id, chosen.key))
    if result.conclusion is not Conclusion.RESOLVED:
        return _result_report(sink, result, OPEN, "the ledger has changed meanwhile; nothing was written. Look again")
    word = "will run again" if given.replay else "was accepted as it is"
    return _result_report(
        sink, result, DONE, f"{batch_named(chosen.key)} of sink {sink.named_sink} {word}; start the query"
    )


def _is_meant(record: LedgerRecord, given: argparse.Namespace) -> bool:
    return given.batch is None or str(record.key.batch_id) == given.batch


def _close_open_ones(sink: SinkClient, given: argparse.Namespace, records: list[LedgerRecord]) -> list[LedgerRecord]:
    """Whether the batch of an open decision is lost turns out when its transactions are committed, as `recover` does:
    a start of the query that finds a loss while planning does not record it."""
    intents = [each for each in records if each.kind is Kind.INTENT and not sink.ask_if_elsewhere(each)]
    wanted = [each for each in intents if _is_meant(each, given)]
    for record in wanted:
        error = sink.finish(record).error
        if error is not None and not isinstance(error, CommitLost):
            raise error
    return _read_records(sink) if wanted else records


def _nothing_lost(sink: SinkClient, given: argparse.Namespace, records: Sequence[LedgerRecord]) -> Report:
    named = "no batch" if given.batch is None else f"no batch {given.batch}"
    pending = [record for record in records if record.kind is Kind.INTENT]
    states = ", ".join(f"{batch_named(record.key)} is {verdict_word(record)}" for record in records)
    text = f"{named} of sink {sink.named_sink} is lost ({states}); there is nothing to choose"
    if pending:
        command = f"`{sink.commands.recover(sink.named_sink)}`"
        text += f". {command} finishes what is open, or finds out whether rows are missing{sink.commands.hint}"
    content = {"sink_id": sink.named_sink, "conclusion": Conclusion.NOTHING_TO_DO.value, "decisions": [
        decision(record, sink.wall_ms) for record in records]}  # fmt: skip
    return Report(OPEN if pending else DONE, content, [text])


def _read_records(sink: SinkClient, *, needs_decision: bool = True) -> list[LedgerRecord]:
    found = sink.known_decisions(needs_decision=needs_decision)
    for each in found:
        if each.record is None:
            raise RemoteProtocolError(
                f"the record of {each.ledger_key} at offset {each.offset} of the ledger cannot be read: {each.problem}"
                f". `{sink.commands.set_aside(each.sink_id, each.ledger_key)}` says what can be done"
                f"{sink.commands.hint}",
                LEDGER_UNREADABLE,
            )
    return [each.record for each in found if each.record is not None]


def _raise_on_error(result: CommitResult) -> CommitResult:
    if result.error is not None:
        raise result.error
    return result


def _result_report(
    sink: SinkClient, result: CommitResult, exit_code: int, text: str, more: Sequence[str] = ()
) -> Report:
    notes = [*result.notes, *more]
    content: Mapping[str, Any] = {
        "sink_id": sink.named_sink,
        "conclusion": result.conclusion.value,
        "text": text,
        "notes": notes,
    }
    return Report(exit_code, dict(content), [text, *notes])


# ---- an unreadable record --------------------------------------------------------------------------------------------


def set_aside(sink: SinkClient, given: argparse.Namespace) -> Report:
    """Unblocks a sink whose newest record is unreadable. The record's content is unknown, so the possible loss is shown
    before anything is written."""
    unreadable = [
        each for each in sink.known_decisions() if each.record is None and given.key in (None, each.ledger_key)
    ]
    if not unreadable:
        about = "sink " + sink.named_sink if given.key is None else f"key {given.key}"
        text = f"every record of {about} can be read; there is nothing to set aside"
        return Report(DONE, {"sink_id": sink.named_sink, "conclusion": "nothing to do", "text": text}, [text])
    if len(unreadable) > 1:
        choices = " or ".join(f"`{sink.commands.set_aside(each.sink_id, each.ledger_key)}`" for each in unreadable)
        raise ConfigError(
            f"{len(unreadable)} records of sink {sink.named_sink} cannot be read: choose one with {choices}"
            f"{sink.commands.hint}",
            COMMAND_WRONG,
        )
    (chosen,) = unreadable
    lines = consequences(sink.ledger_topic, chosen)
    if given.yes:
        print_error("\n".join(lines))
    confirm(given, lines)
    finished = sink.set_aside(chosen.ledger_key, chosen.offset)
    text = {
        Aside.DONE: f"the record of {chosen.ledger_key} at offset {chosen.offset} was set aside. Start a stream of "
        "this sink with ledger.accept.new.sink=true, once",
        Aside.CHANGED: "the ledger has changed meanwhile; nothing was written. Look again",
        Aside.FAILED: f"nothing was written: {finished.reason}",
        Aside.IN_DOUBT: f"whether it was set aside is not known: {finished.reason}. Look with "
        f"`{sink.commands.ledger(sink.named_sink)}`{sink.commands.hint}",
    }[finished.outcome]
    content = {
        "sink_id": sink.named_sink,
        "ledger_key": chosen.ledger_key,
        "offset": chosen.offset,
        "problem": chosen.problem,
        "conclusion": finished.outcome.value,
        "text": text,
    }
    return Report(_EXIT_CODES[finished.outcome], content, [text])


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
