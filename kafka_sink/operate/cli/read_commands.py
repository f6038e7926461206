"""The read-only commands: `ledger` and `transactions`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.commit import messages
from kafka_sink.commit.command_texts import CommandTexts
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import has_letters_of_sink_id, parse_task_identity
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.listing import Listed
from kafka_sink.commit.open_decisions import OpenDecision, Standing, advice_text
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.operate.cli.refresh import Look, repeat
from kafka_sink.operate.cli.report import (
    DONE,
    OPEN,
    REFUSED,
    Report,
    batch_named,
    batch_word,
    decision,
    table,
    verdict_word,
)
from kafka_sink.operate.cli.sink_client import SinkClient
from kafka_sink.operate.status.findings import span

# In a topic that is not a ledger every record is unreadable.
UNREADABLE_SHOWN_MAX = 10
# By ledger key, of open decisions.
Standings = Mapping[str, OpenDecision]
_LEDGER_TITLES = ("SINK", "NAME", "BATCH", "VERDICT", "ROWS", "TOPICS", "AGE")
_TRANSACTION_TITLES = ("TRANSACTIONAL ID", "STATE", "AGE", "TIMEOUT", "DECIDED", "PARTITIONS")


def ledger(sink: SinkClient, given: argparse.Namespace) -> Report:
    if given.follow:
        return _follow(sink, given)
    found, standings = sink.judge_open(sink.known_decisions())
    wall_ms = sink.wall_ms
    records = [each.record for each in found if each.record is not None]
    unreadable = [each for each in found if each.record is None]
    needing = [each for each in found if each.record and each.record.kind in (Kind.INTENT, Kind.STUCK)]
    content = {
        "ledger_topic": sink.ledger_topic,
        "decisions": _decision_objects(found, wall_ms, standings),
        "unreadable": unreadable_objects(unreadable),
        "copied_from": sorted({each.origin for each in found if each.origin}),
    }
    lines = _decision_lines(found, wall_ms, standings) or [f"the ledger {sink.ledger_topic} holds no decision"]
    for each in needing:
        assert each.record is not None
        lines += ["", next_step(each.record, sink.settings(), standings.get(each.ledger_key))]
    for each in unreadable[:UNREADABLE_SHOWN_MAX]:
        lines += ["", *_unreadable_lines(each, sink.commands)]
    if more := _more_unreadable(unreadable):
        lines += ["", more]
    copied = copied_text(sink, found)
    if copied:
        lines += ["", copied]
    elif unreadable and not records:
        lines.append(f"No record of {sink.ledger_topic} can be read: is it the ledger topic of a sink?")
    # The next commit closes a decision of which all is committed.
    committed = {key for key, one in standings.items() if one.standing is Standing.COMMITTED}
    is_open = any(each.ledger_key not in committed for each in needing)
    exit_code = REFUSED if unreadable else OPEN if is_open else DONE
    return Report(exit_code, content, lines)


def copied_text(sink: SinkClient, found: Sequence[Listed]) -> str:
    """That the ledger is a copy, and what to do; empty if it is none."""
    copies = [each for each in found if each.origin]
    if not copies:
        return ""
    origins = ", ".join(sorted({repr(each.origin) for each in copies}))
    text = (
        f"{len(copies)} of {len(found)} records were made in the Kafka cluster {origins}, and this one is "
        f"{sink.settings().cluster_id!r}: the ledger {sink.ledger_topic} is a copy. "
    )
    if all(each.record is not None for each in copies):
        return text + "What it calls delivered counts as delivered here, so the rows must have been copied, too"
    return text + (
        "It was copied without transactions, so it does not say what was decided, and its sinks are refused. Copy it "
        "again, committed records only and in transactions (MirrorMaker 2: exactly.once.source.support=enabled, "
        "source.consumer.isolation.level=read_committed). Or begin an empty ledger: another ledger.topic, and once "
        "ledger.accept.new.sink=true, after a look whether the rows of the last batches are in this cluster"
    )


def unreadable_objects(found: Sequence[Listed]) -> list[dict[str, Any]]:
    return [{"ledger_key": each.ledger_key, "offset": each.offset, "problem": each.problem} for each in found]


def unreadable_lines(found: Sequence[Listed]) -> list[str]:
    return [*map(unreadable_line, found[:UNREADABLE_SHOWN_MAX]), *filter(None, [_more_unreadable(found)])]


def _more_unreadable(found: Sequence[Listed]) -> str:
    count = len(found) - UNREADABLE_SHOWN_MAX
    return f"and {count} more records that cannot be read" if count > 0 else ""


def unreadable_line(each: Listed) -> str:
    """A foreign key may contain anything."""
    shown = each.ledger_key if each.ledger_key.isprintable() else ascii(each.ledger_key)
    return f"{shown}: the record at offset {each.offset} cannot be read: {each.problem}"


def _unreadable_lines(each: Listed, commands: CommandTexts) -> list[str]:
    problem = unreadable_line(each)
    if not has_letters_of_sink_id(each.sink_id):
        return [problem, "No sink has such a key, so it stops none"]
    command = commands.set_aside(each.sink_id, each.ledger_key)
    return [problem, f"What can be done is said, and asked, by `{command}`{commands.hint}"]


def _follow(sink: SinkClient, given: argparse.Namespace) -> Report:
    """Repeats the same listing; one line per refresh says what is new."""
    sink.check_ledger()
    known: dict[str, LedgerRecord | None] = {}

    def look() -> Look:
        found, standings = sink.judge_open(sink.list_decisions())
        wall_ms = sink.wall_ms
        news = [each for each in found if each.ledger_key not in known or known[each.ledger_key] != each.record]
        known.update((each.ledger_key, each.record) for each in found)
        unreadable = [each for each in found if each.record is None]
        said = [
            f"{record.sink_id}: {batch_named(record.key)} {verdict_word(record, standings.get(ledger_key))}, "
            f"{record.row_count} rows"
            for ledger_key, record in ((each.ledger_key, each.record) for each in news)
            if record is not None
        ]
        said += unreadable_lines([each for each in news if each.record is None])
        content = {
            "at_ms": wall_ms,
            "news": _decision_objects(news, wall_ms, standings),
            "unreadable": unreadable_objects(unreadable),
        }
        lines = [*_decision_lines(found, wall_ms, standings), *unreadable_lines(unreadable)]
        return Look(lines, "; ".join(said) or "nothing new", content)

    return repeat(look, given)


def next_step(record: LedgerRecord, settings: DeliverySettings, found: OpenDecision | None = None) -> str:
    """What an operator can do about an open or lost batch. `found`: how an open one stands, if that was asked."""
    if record.kind is Kind.STUCK:
        return str(messages.lost_error(settings.commands, record, record.outcomes))
    return advice_text(found or OpenDecision(record, Standing.UNKNOWN), settings)


def transactions(sink: SinkClient, _given: object) -> Report:
    decisions = sink.list_decisions() if sink.look_for_ledger() else []
    decided = list_decided_ids(decisions)
    listing = sink.list_open_transactions()
    sinks = {one.transactional_id: _sink_id_of(one) for one in listing.found}
    unreadable = [each for each in decisions if each.record is None and each.sink_id in sinks.values()]
    unknown = {each.sink_id for each in unreadable}
    # None: an unreadable record may name it.
    is_decided = {name: name in decided or (None if sink_id in unknown else False) for name, sink_id in sinks.items()}
    notes = [*listing.notes, *(f"{unreadable_line(each)}. It may be a decision" for each in unreadable)]
    wall_ms = sink.wall_ms
    told = [_transaction(one, is_decided[one.transactional_id], wall_ms) for one in listing.found]
    content = {"sink_id": sink.sink_id, "transactions": told, "notes": notes}
    rows = [
        (
            one["transactional_id"],
            one["state"],
            span(one["age_ms"]),
            span(one["timeout_ms"]),
            {True: "yes", False: "no", None: "?"}[one["is_decided"]],
            ", ".join(one["partitions"]) or "none yet",
        )
        for one in told
    ]
    nothing = f"no open transaction of {'any sink' if sink.sink_id is None else f'sink {sink.sink_id}'}"
    lines = [*(table(_TRANSACTION_TITLES, rows) if rows else [nothing]), *notes]
    exit_code = REFUSED if notes else OPEN if rows else DONE
    return Report(exit_code, content, lines)


def _sink_id_of(one: TransactionDescription) -> str | None:
    identity = parse_task_identity(one.transactional_id)
    return None if identity is None else identity.sink_id


def list_decided_ids(found: Sequence[Listed]) -> frozenset[str]:
    """Transactions of open decisions, which must be committed."""
    return frozenset(
        each.record.transactional_id(entry)
        for each in found
        if each.record is not None and each.record.kind is Kind.INTENT
        for entry in each.record.entries
    )


def _decision_lines(found: Sequence[Listed], wall_ms: int, standings: Standings) -> list[str]:
    rows = [
        (
            record.sink_id,
            record.label or "-",
            batch_word(record.key),
            verdict_word(record, standings.get(ledger_key)),
            record.row_count,
            ", ".join(sorted(record.topics)),
            span(wall_ms - record.wall_ms),
        )
        for ledger_key, record in ((each.ledger_key, each.record) for each in found)
        if record is not None
    ]
    return table(_LEDGER_TITLES, rows) if rows else []


def _decision_objects(found: Sequence[Listed], wall_ms: int, standings: Standings) -> list[dict[str, Any]]:
    return [decision(each.record, wall_ms, standings.get(each.ledger_key)) for each in found if each.record is not None]


def _transaction(one: TransactionDescription, is_decided: bool | None, wall_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "age_ms": max(0, wall_ms - one.start_ms),
        "timeout_ms": one.timeout_ms,
        "is_decided": is_decided,
        "partitions": [f"{topic}-{partition}" for topic, partition in sorted(one.partitions)],
    }
