"""`pykafka-sink status`: is anything wrong with the sinks of this cluster? A table, JSON, or figures for Prometheus."""

from __future__ import annotations

import argparse
import itertools
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.command_texts import BrokerArguments, CommandTexts, broker_arguments
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.listing import Listed
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.operate.cli.brokers import given_brokers, ledger_of_file, producer_options
from kafka_sink.operate.cli.refresh import until_stopped
from kafka_sink.operate.cli.report import DONE, REFUSED, Report, batch_word, table, verdict_word
from kafka_sink.operate.cli.streams import OutputFailed, ReaderGone, print_error, print_text
from kafka_sink.operate.status.collect import ClusterLook, examine
from kafka_sink.operate.status.facts import ClusterFacts, LedgerFacts
from kafka_sink.operate.status.findings import Finding, Limits, Severity, Trouble, by_sink, span, worst
from kafka_sink.operate.status.server import Watcher, serve
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from kafka_sink.options.values import TOPIC_NAME

# Of what is fine, people see so much; --json has everything.
FINE_SHOWN_MAX = 40
WORDS = {Severity.FINE: "fine", Severity.LOOK: "look", Severity.ACT: "act now"}
_SINK_TITLES = ("SINK", "NAME", "BATCH", "STATE", "ROWS", "AGE", "OPEN", "IDS")
TOPIC_TITLES = ("TOPIC", "BEHIND", "OLDEST", "HELD BACK BY")


class StatusSession:
    """A client of the cluster, whichever ledgers it has."""

    def __init__(self, given: argparse.Namespace) -> None:
        patience_ms = given.timeout * 1000
        options = producer_options(given)
        self.brokers = replace(given_brokers(given), tool_words=broker_arguments(options).tool_words)
        # If a broker accepts a request but does not answer, there must be time to try another one.
        request_ms = min(options.request_timeout_ms, max(1, patience_ms // 2))
        self.client = Client(replace(options, max_block_ms=patience_ms, request_timeout_ms=request_ms))
        of_file = ledger_of_file(given)
        topics = [*given.ledger_topics, *([] if of_file is None else [of_file])]
        named = [TOPIC_NAME.parse("--ledger-topic", topic) for topic in topics]
        self.cluster = ClusterLook(self.client, self.brokers, named, patience_ms)

    def close(self) -> None:
        self.client.close()


def status(session: StatusSession, given: argparse.Namespace) -> Report:
    limits = limits_of(given)
    if given.serve is not None:
        return _serve(given, limits)
    facts, found = examine(session.cluster, limits)
    content = describe(facts, found)
    return Report(
        exit_code_of(facts, found), content, status_lines(facts, found, session.brokers, session.cluster.named)
    )


def limits_of(given: argparse.Namespace) -> Limits:
    return Limits(given.open_after * 1000, given.silent_after * 1000, frozenset(given.retired))


def exit_code_of(facts: ClusterFacts, found: list[Finding]) -> int:
    """What needs a hand at once is more urgent than that something was not told."""
    severity = worst(found)
    is_partial = bool(facts.notes) or any(each.problem for each in facts.ledgers)
    return REFUSED if is_partial and severity is not Severity.ACT else int(severity)


def _serve(given: argparse.Namespace, limits: Limits) -> Report:
    patient = argparse.Namespace(**{**vars(given), "timeout": min(given.timeout, given.interval)})

    @contextmanager
    def connect() -> Iterator[ClusterLook]:
        session = StatusSession(patient)
        try:
            yield session.cluster
        finally:
            session.close()

    family = socket.AF_INET6 if ":" in given.host else socket.AF_INET
    try:
        listener = socket.create_server((given.host, given.serve), family=family)
    except OSError as error:
        raise ConfigError(
            f"{given.host}:{given.serve} cannot be listened to: {error.strerror}", COMMAND_WRONG
        ) from None
    port = listener.getsockname()[1]
    host = f"[{given.host}]" if ":" in given.host else given.host
    pauses = itertools.repeat(given.interval, given.count - 1) if given.count else itertools.repeat(given.interval)
    with until_stopped():
        print_text(f"figures for Prometheus at http://{host}:{port}/metrics")
        serve(Watcher(connect, limits, _tell, describe, given.interval), listener, pauses)
    return Report(DONE, {})


def _tell(line: str) -> None:
    """The figures matter more than this log: nobody may read it any more, or it may have no space."""
    try:
        print_text(line)
    except ReaderGone:
        pass
    except OutputFailed as error:
        print_error(f"{error}. The figures are served all the same")


# ---- for people ------------------------------------------------------------------------------------------------------


def status_lines(
    facts: ClusterFacts, found: list[Finding], brokers: BrokerArguments, named: Sequence[str]
) -> list[str]:
    lines = [_summary(facts, found), *finding_lines(found, brokers, named), "", *_sink_lines(facts, found)]
    held = waiting_topics(facts)
    if held:
        rows = [
            (each["topic"], each["behind"], span(each["oldest_ms"]), ", ".join(each["by"][:3]) or "-")
            for each in held[:FINE_SHOWN_MAX]
        ]
        lines += ["", *table(TOPIC_TITLES, rows)]
    missing = [*facts.notes, *(each.problem for each in facts.ledgers if each.problem)]
    if missing:
        lines += ["", "This is not all:", *missing]
    return [*lines, *(["", *facts.limits] if facts.limits else [])]


def finding_lines(found: list[Finding], brokers: BrokerArguments, named: Sequence[str] = ()) -> list[str]:
    """Each command has a line of its own, so that it can be copied. `named`: ledgers that the operator knows."""
    lines: list[str] = []
    for each in found:
        lines += ["", f"{WORDS[each.severity].upper()}: {each.text}{':' if each.commands else '.'}"]
        lines += [f"    {command}" for command in each.commands]
    recoverable = [each for each in found if each.trouble in (Trouble.OPEN, Trouble.OVERDUE) and each.commands]
    if len(recoverable) > 1:
        ledgers = {each.ledger_topic for each in recoverable}
        # Each of these commands is also about the default one.
        of_ledgers = [CommandTexts(brokers, topic) for topic in sorted(ledgers - {DEFAULT_LEDGER}) or [DEFAULT_LEDGER]]
        lines += ["", "All open decisions of the cluster at once:"]
        lines += [f"    {commands.recover_all()}" for commands in of_ledgers]
    lines += _trust_lines({each.ledger_topic for each in found if each.commands} - {DEFAULT_LEDGER, *named})
    return [*lines, "", brokers.hint] if brokers.hint and found else lines


def _trust_lines(topics: set[str]) -> list[str]:
    if not topics:
        return []
    text = (
        f"Known as a ledger only by its content, which whoever may write there decides: {', '.join(sorted(topics))}. "
        "Run a command that names it if it is the ledger.topic of a sink of yours."
    )
    return ["", text]


def _summary(facts: ClusterFacts, found: list[Finding]) -> str:
    counts = {severity: sum(each.severity is severity for each in found) for severity in (Severity.ACT, Severity.LOOK)}
    said = ", ".join(f"{count} {WORDS[severity]}" for severity, count in counts.items() if count) or "nothing is wrong"
    sinks = sum(len({each.sink_id for each in ledger.listed}) for ledger in facts.ledgers)
    ledgers = ", ".join(ledger.topic for ledger in facts.ledgers)
    return f"{WORDS[worst(found)]}: {sinks} sink{'s' if sinks != 1 else ''} in {ledgers}: {said}"


def _sink_lines(facts: ClusterFacts, found: list[Finding]) -> list[str]:
    """What is wrong first."""
    rows = sorted(sink_objects(facts, found), key=lambda row: (-int(row["severity"]), row["sink_id"], -row["at_ms"]))
    bad = sum(row["severity"] > 0 for row in rows)
    shown = rows[: bad + FINE_SHOWN_MAX]
    told = [
        (row["sink_id"], row["name"] or "-", row["batch"], row["verdict"], row["row_count"], span(row["age_ms"]),
         row["open_transactions"], row["transactional_ids"])
        for row in shown
    ]  # fmt: skip
    lines = table(_SINK_TITLES, told) if told else []
    return [*lines, f"and {len(rows) - len(shown)} more, all fine (--json)"] if len(rows) > len(shown) else lines


# ---- for programs ----------------------------------------------------------------------------------------------------


def describe(facts: ClusterFacts, found: list[Finding]) -> dict[str, Any]:
    sinks = [{name: row[name] for name in row if name not in ("batch", "at_ms")} for row in sink_objects(facts, found)]
    return {
        "state": WORDS[worst(found)],
        "at_ms": facts.at_ms,
        "cluster_id": facts.cluster_id,
        "findings": [finding_object(each) for each in found],
        "ledgers": [
            {"topic": each.topic, "sinks": len({one.sink_id for one in each.listed}), "problem": each.problem or None}
            for each in facts.ledgers
        ],
        "sinks": [{**row, "severity": int(row["severity"])} for row in sinks],
        "waiting_topics": waiting_topics(facts),
        "notes": list(facts.notes),
        "limits": list(facts.limits),
    }


def finding_object(each: Finding) -> dict[str, Any]:
    return {
        "severity": WORDS[each.severity],
        "kind": each.trouble.value,
        "text": each.text,
        "commands": list(each.commands),
        "ledger_topic": each.ledger_topic or None,
        "sink_id": each.sink_id or None,
        "name": each.name or None,
        "query_id": (each.key.query_id or None) if each.key else None,
        "batch_id": each.key.batch_id if each.key else None,
        "topics": list(each.topics),
    }


def sink_objects(facts: ClusterFacts, found: list[Finding]) -> list[dict[str, Any]]:
    """One for each sink and label."""
    wrong = by_sink(found)
    identities = [parse_task_identity(one.transactional_id) for one in facts.transactions]
    open_counts = Counter(one.sink_id for one in identities if one is not None)
    return [
        {**_sink_object(facts, ledger, each, wrong.get((ledger.topic, each.sink_id), [])),
         "open_transactions": open_counts[each.sink_id],
         "transactional_ids": facts.id_counts.get(each.sink_id, 0)}
        for ledger in facts.ledgers
        for each in ledger.listed
    ]  # fmt: skip


def _sink_object(facts: ClusterFacts, ledger: LedgerFacts, each: Listed, wrong: Sequence[Finding]) -> dict[str, Any]:
    record = each.record
    key = None if record is None else record.key
    decision = ledger.judged.get(each.ledger_key)
    severity = max((one.severity for one in wrong if one.key in (None, key)), default=Severity.FINE)
    return {
        "ledger_topic": ledger.topic,
        "sink_id": each.sink_id,
        "name": (record.label or None) if record else None,
        "query_id": (key.query_id or None) if key else None,
        "batch_id": key.batch_id if key else None,
        "batch": batch_word(key) if key else each.ledger_key,
        "verdict": verdict_word(record, decision) if record else "unreadable",
        "severity": severity,
        "row_count": record.row_count if record else 0,
        "at_ms": record.wall_ms if record else facts.at_ms,
        "age_ms": max(0, facts.at_ms - record.wall_ms) if record else 0,
        "time_left_ms": None if decision is None else decision.left_ms,
        "topics": sorted(record.topics) if record else [],
    }


def waiting_topics(facts: ClusterFacts) -> list[dict[str, Any]]:
    """The topics whose readers do not see the end, and the transactions that are open there, the oldest first."""
    behind = Counter[str]()
    for (topic, _), count in facts.behind.items():
        behind[topic] += count
    here: dict[str, list[TransactionDescription]] = {}
    for one in sorted(facts.transactions, key=lambda one: one.start_ms):
        for topic in {topic for topic, _ in one.partitions}:
            here.setdefault(topic, []).append(one)
    return [
        {
            "topic": topic,
            "behind": count,
            "oldest_ms": max(0, facts.at_ms - here[topic][0].start_ms) if topic in here else 0,
            "by": [one.transactional_id for one in here.get(topic, ())],
        }
        for topic, count in sorted(behind.items(), key=lambda each: (-each[1], each[0]))
    ]
