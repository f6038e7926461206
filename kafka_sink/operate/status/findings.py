"""What is wrong, how urgent it is, and the command that mends it. Pure.

A query that runs has an open decision for a moment in each commit, and open transactions all the time. So an open
decision is a finding when it has been open for a minute, or for a quarter of its time if that is shorter; a transaction
when more than half of its time has passed. Ages go by the brokers' clocks, if these are told (broker_clock.py), and by
those of drivers; so that a clock that goes wrong does not make findings of what is about to end, whatever may end by
itself is a finding only if a second look finds it, too (`is_passing`, collect.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum

from kafka_sink.commit.command_texts import BrokerArguments, CommandTexts
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import (
    Line,
    code_of_run,
    has_letters_of_sink_id,
    name_of_sink,
    parse_task_identity,
)
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionOutcome
from kafka_sink.commit.listing import Listed
from kafka_sink.commit.open_decisions import HIDDEN_TEXT, Standing
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.frozen import frozen
from kafka_sink.kafka.wire.apis import ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from kafka_sink.operate.status.facts import ClusterFacts, LedgerFacts, OpenProducer
from kafka_sink.options.sink_options import DEFAULT_LEDGER

# No decision is a finding before this, however little time it has.
MOMENT_MS = 5_000
# A coordinator looks every 10 s for transactions whose time has passed.
OVERRUN_MS = 60_000
# A decision of which all is committed is closed by the next commit. A stream may be stopped before that.
_COMMITTED_MS = 86_400_000
HANGING_PAGE = '"Readers stop at an offset although no transaction is open" in docs/troubleshooting.md'
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


class Severity(IntEnum):
    """The numbers are the exit codes of `status`."""

    FINE = 0
    LOOK = 1
    ACT = 2


class Trouble(Enum):
    OPEN = "open"
    OVERDUE = "overdue"
    LOST = "lost"
    ELSEWHERE = "elsewhere"
    UNREADABLE = "unreadable"
    COPIED = "copied"
    TRANSACTION = "transaction"
    FOREIGN = "foreign"
    HANGING = "hanging"
    SILENT = "silent"


@frozen
class Finding:
    """`commands`: one that mends it, several of which one is chosen, or none that is safe. `mark` is the same as long
    as nothing changes. `is_passing`: it may have been about to end by itself."""

    trouble: Trouble
    severity: Severity
    text: str
    commands: tuple[str, ...]
    mark: tuple[object, ...]
    is_passing: bool = False
    ledger_topic: str = ""
    sink_id: str = ""
    name: str = ""
    key: BatchKey | None = None
    topics: tuple[str, ...] = ()


@frozen
class Limits:
    """`silent_ms`: how long a stream may write nothing; 0: for ever. `retired`: sinks that write no more."""

    open_ms: int
    silent_ms: int
    retired: frozenset[str] = frozenset()


def judge(facts: ClusterFacts, limits: Limits, brokers: BrokerArguments) -> list[Finding]:
    """The worst first, and decisions before what depends on them."""
    found: list[Finding] = []
    for ledger in facts.ledgers:
        commands = CommandTexts(brokers, ledger.topic)
        found += _judge_ledger(facts, ledger, limits, commands)
        found += _judge_silence(facts, ledger, limits, commands)
    found += judge_transactions(facts, brokers)
    return sorted(found, key=_urgency)


def _urgency(each: Finding) -> tuple[object, ...]:
    return -each.severity, not each.ledger_topic, each.ledger_topic, each.sink_id, each.text


# ---- decisions -------------------------------------------------------------------------------------------------------


def _judge_ledger(
    facts: ClusterFacts, ledger: LedgerFacts, limits: Limits, commands: CommandTexts
) -> Iterator[Finding]:
    copies = [each for each in ledger.listed if each.record is None and each.origin]
    if copies:
        text = (
            f"{len(copies)} records of the ledger {ledger.topic} are copies from the Kafka cluster "
            f"{copies[0].origin!r}, made without transactions: their sinks are refused. The command says what to do"
        )
        mark = (Trouble.COPIED, ledger.topic)
        yield Finding(Trouble.COPIED, Severity.LOOK, text, (commands.ledger(),), mark, ledger_topic=ledger.topic)
    for each in ledger.listed:
        if each.record is None:
            if not each.origin and has_letters_of_sink_id(each.sink_id):
                yield _judge_unreadable(each, commands)
        elif each.record.kind is Kind.STUCK:
            yield _judge_lost(each.record, commands)
        elif each.record.kind is Kind.INTENT:
            yield from _judge_open(facts, ledger, each, limits, commands)


def _judge_unreadable(each: Listed, commands: CommandTexts) -> Finding:
    text = (
        f"sink {each.sink_id} is refused: its record at offset {each.offset} of the ledger {commands.ledger_topic} "
        f"cannot be read: {each.problem}. Unless a newer release wrote it, the command says what is given up, and asks"
    )
    return Finding(
        Trouble.UNREADABLE, Severity.ACT, text, (commands.set_aside(each.sink_id, each.ledger_key),),
        (Trouble.UNREADABLE, commands.ledger_topic, each.ledger_key, each.offset),
        ledger_topic=commands.ledger_topic, sink_id=each.sink_id,
    )  # fmt: skip


def _judge_lost(record: LedgerRecord, commands: CommandTexts) -> Finding:
    missing, unresolved = (
        sum(entry.row_count for entry, one in zip(record.entries, record.outcomes, strict=True) if one is wanted)
        for wanted in (TransactionOutcome.LOST, TransactionOutcome.UNRESOLVED)
    )
    doubt = f", {unresolved} may be visible or missing, which can no longer be read" if unresolved else ""
    what = "the export is refused" if record.key.is_label else "the query stops at every start"
    text = (
        f"{title(record)}: {missing} of {record.row_count} rows are missing{doubt}, and {what}. Choose: run it again "
        "(rows that are visible appear twice), or go on without them"
    )
    return _of_record(Trouble.LOST, Severity.ACT, text, record, commands, _choice(record, commands), is_passing=False)


def _choice(record: LedgerRecord, commands: CommandTexts) -> tuple[str, ...]:
    return commands.replay(record), commands.accept(record)


def _judge_open(
    facts: ClusterFacts, ledger: LedgerFacts, each: Listed, limits: Limits, commands: CommandTexts
) -> Iterator[Finding]:
    record, found = each.record, ledger.judged.get(each.ledger_key)
    assert record is not None
    age_ms = facts.at_ms - ledger.since(each)
    begin = f"{title(record)} was decided {span(age_ms)} ago, and "
    if each.origin:
        text = (
            f"{title(record)} was decided in the Kafka cluster {each.origin!r}, of which this ledger is a copy. Finish "
            "it there. Then choose here: run it again, or go on, because its rows have been copied, too"
        )
        severity, choice = Severity.LOOK, _choice(record, commands)
        yield _of_record(Trouble.ELSEWHERE, severity, text, record, commands, choice, is_passing=False)
        return
    mend = (commands.recover(record.sink_id),)
    standing = Standing.UNKNOWN if found is None else found.standing
    left_ms = None if found is None else found.left_ms
    if standing is Standing.OVERDUE:
        text = f"{begin}its transactions have ended, or should have: rows may be missing. The command finds out"
        yield _of_record(Trouble.OVERDUE, Severity.ACT, text, record, commands, mend)
    elif standing is Standing.COMMITTED:
        if age_ms >= _COMMITTED_MS:
            text = (
                f"{begin}all of its transactions are committed. The next commit of its query tells the ledger, or the "
                "command, best before the brokers forget them (transactional.id.expiration.ms, a week unless set) "
                "and retention takes the rows"
            )
            yield _of_record(Trouble.OPEN, Severity.LOOK, text, record, commands, mend)
    elif standing is Standing.HIDDEN:
        if age_ms >= _patience_ms(limits, age_ms, left_ms):
            yield _of_record(Trouble.OPEN, Severity.LOOK, f"{begin}{HIDDEN_TEXT}", record, commands, ())
    elif age_ms >= _patience_ms(limits, age_ms, left_ms):
        if left_ms is not None:
            text = f"{begin}its {record.row_count} rows are lost unless it is finished within {span(left_ms)}"
        else:
            text = f"{begin}the brokers do not tell how much time is left to finish it"
        yield _of_record(Trouble.OPEN, Severity.ACT, text, record, commands, mend)


def _patience_ms(limits: Limits, age_ms: int, left_ms: int | None) -> int:
    return limits.open_ms if left_ms is None else min(limits.open_ms, max(MOMENT_MS, (age_ms + left_ms) // 4))


def _of_record(
    trouble: Trouble, severity: Severity, text: str, record: LedgerRecord, commands: CommandTexts,
    mend: tuple[str, ...], *, is_passing: bool = True,
) -> Finding:  # fmt: skip
    return Finding(
        trouble, severity, text, mend, (commands.ledger_topic, record.sink_id, record.key, record.run, record.wall_ms),
        is_passing, commands.ledger_topic, record.sink_id, record.label, record.key, tuple(sorted(record.topics)),
    )  # fmt: skip


# ---- streams that are silent -----------------------------------------------------------------------------------------


def _judge_silence(
    facts: ClusterFacts, ledger: LedgerFacts, limits: Limits, commands: CommandTexts
) -> Iterator[Finding]:
    """Batch writes are not expected to come again. A query with a new checkpoint replaces that with the old one. Which
    is the newest, the ledger says: drivers may have had other clocks."""
    if not limits.silent_ms:
        return
    newest: dict[str, tuple[LedgerRecord, int]] = {}
    committed = [one.record for one in ledger.judged.values() if one.standing is Standing.COMMITTED]

    def is_told_otherwise(record: LedgerRecord, age_ms: int) -> bool:
        return record.kind is Kind.INTENT and (record not in committed or age_ms >= _COMMITTED_MS)

    for each in sorted(ledger.listed, key=lambda each: each.offset):
        if each.record is not None and isinstance(each.record.key.batch_id, int):
            newest[name_of_sink(each.sink_id)] = each.record, ledger.since(each)
    for name, (record, since_ms) in sorted(newest.items()):
        age_ms = facts.at_ms - since_ms
        is_retired = not limits.retired.isdisjoint((name, record.sink_id))
        if age_ms < limits.silent_ms or is_retired or record.kind is Kind.STUCK or is_told_otherwise(record, age_ms):
            continue
        text = (
            f"{title(record)} is the last one, {span(age_ms)} ago. Is its query running, is there input? If it is to "
            "write no more, say so"
        )
        mend = (commands.retire([*sorted(limits.retired), record.sink_id], limits.silent_ms),)
        yield _of_record(Trouble.SILENT, Severity.LOOK, text, record, commands, mend, is_passing=False)


# ---- transactions ----------------------------------------------------------------------------------------------------


def judge_transactions(facts: ClusterFacts, brokers: BrokerArguments) -> Iterator[Finding]:
    """Those that hold readers of a sink's topics back for long. A decided one is told with its decision; one of a
    sink with a record that cannot be read may be decided."""
    decided, written = facts.decided_ids, facts.written_topics
    unread = {each.sink_id for ledger in facts.ledgers for each in ledger.listed if each.record is None}
    groups: dict[tuple[str, str, str, bool], list[TransactionDescription]] = {}
    for one in facts.transactions:
        identity = parse_task_identity(one.transactional_id)
        sink_id = "" if identity is None else identity.sink_id
        topics = written.intersection(topic for topic, _ in one.partitions)
        is_old = facts.at_ms - one.start_ms >= one.timeout_ms / 2
        if is_old and (topics or sink_id) and one.transactional_id not in decided and sink_id not in unread:
            home = "" if identity is None else _ledger_of(facts, Line(sink_id, code_of_run(identity.run)))
            group = sink_id, home, "" if sink_id else one.transactional_id, one.state != ONGOING
            groups.setdefault(group, []).append(one)
    for (sink_id, home, _, has_ended), found in sorted(groups.items()):
        commands = CommandTexts(brokers, home)
        yield (_judge_unmarked if has_ended else _judge_group)(facts, sink_id, found, commands)
    for each in facts.hanging:
        assert each.told is not None
        name = each.told.transactional_id
        identity = parse_task_identity(name)
        is_decided = name in decided or (identity is not None and identity.sink_id in unread)
        yield _judge_hanging(each, brokers, is_decided=is_decided)
    for each in facts.unlisted:
        yield from _judge_unlisted(each, facts)


def _ledger_of(facts: ClusterFacts, line: Line) -> str:
    """The ledger that would contain a decision about the transactions of this line, and no other one may be named: what
    it has decided would be aborted. Empty if that is not known. A line that never had a driver has decided nothing, so
    the ledger of its sink does."""
    of_line = [ledger.topic for ledger in facts.ledgers if line in ledger.lines]
    of_sink = [ledger.topic for ledger in facts.ledgers if any(line.sink_id == each.sink_id for each in ledger.lines)]
    # Earlier releases had one driver for all lines of a sink.
    own = {line} if of_sink else {line, Line(line.sink_id)}
    has_driver = any(each.driver_id in facts.drivers for each in own)
    found = of_line or ([] if has_driver else of_sink or [DEFAULT_LEDGER])
    return found[0] if len(found) == 1 else ""


def _judge_group(
    facts: ClusterFacts, sink_id: str, found: list[TransactionDescription], commands: CommandTexts
) -> Finding:
    """Of one sink, or a foreign one alone."""
    topics, oldest = _topics_of(found), min(found, key=lambda one: one.start_ms)
    left_ms = min(one.start_ms + one.timeout_ms for one in found) - facts.at_ms
    readers = f"read_committed readers of {_names(topics)} wait for"
    if sink_id:
        what = f"{readers} {len(found)} transactions of sink {sink_id} that no decision names"
        advice = "The batch is slow, or its query was stopped: the command shows which, and asks"
        mend = [commands.abort_transactions(sink_id)]
        if not commands.ledger_topic:
            advice = (
                "The batch is slow, or its query was stopped. Its ledger was not found, and may say that they are "
                "decided: give `transactions --abort` the --ledger-topic that the query has as ledger.topic"
            )
            mend = []
    else:
        what = f"{readers} the transaction {oldest.transactional_id!r}, which is not of a sink"
        advice = "Its application ends it, or the command does, and asks"
        mend = [commands.end_transaction(oldest.transactional_id)]
    when = f"the oldest began {span(facts.at_ms - oldest.start_ms)} ago" if len(found) > 1 else (
        f"it began {span(facts.at_ms - oldest.start_ms)} ago")  # fmt: skip
    if left_ms < -OVERRUN_MS:
        when += "; its time has passed, and its coordinator does not end it"
        when += "" if facts.is_clock_told else ", or this machine's clock is ahead of the brokers'"
    else:
        when += f", and ends at its time-out in {span(left_ms)} at the latest"
    return _of_group(sink_id, f"{what}: {when}. {advice}", oldest, commands, topics, *mend)


def _judge_unmarked(
    facts: ClusterFacts, sink_id: str, found: list[TransactionDescription], commands: CommandTexts
) -> Finding:
    """Their coordinators have decided how they end, and no command changes that."""
    topics, oldest = _topics_of(found), min(found, key=lambda one: one.start_ms)
    who = f"{len(found)} transactions of sink {sink_id}" if sink_id else (
        f"the transaction {oldest.transactional_id!r}, which is not of a sink")  # fmt: skip
    fates = {PREPARE_COMMIT: "committed", PREPARE_ABORT: "aborted"}
    fate = " or ".join(sorted({fates.get(one.state, one.state) for one in found}))
    text = (
        f"read_committed readers of {_names(topics)} wait for the markers of {who}: that is {fate}, it began "
        f"{span(facts.at_ms - oldest.start_ms)} ago, and its markers are not written yet. Brokers write them when each "
        "of its partitions has a leader and enough replicas in sync (min.insync.replicas): then readers go on"
    )
    return _of_group(sink_id, text, oldest, commands, topics)


def _topics_of(found: Iterable[TransactionDescription]) -> tuple[str, ...]:
    return tuple(sorted({topic for one in found for topic, _ in one.partitions}))


def _of_group(
    sink_id: str, text: str, oldest: TransactionDescription, commands: CommandTexts, topics: tuple[str, ...], *mend: str
) -> Finding:
    return Finding(
        Trouble.TRANSACTION if sink_id else Trouble.FOREIGN, Severity.LOOK, text, mend,
        (sink_id, oldest.transactional_id, oldest.producer_id, oldest.producer_epoch, oldest.start_ms),
        True, commands.ledger_topic if sink_id else "", sink_id, topics=topics,
    )  # fmt: skip


def _judge_hanging(one: OpenProducer, brokers: BrokerArguments, *, is_decided: bool) -> Finding:
    """An abort hides rows for good. So its command is printed if nothing but an abort can be missing."""
    assert one.told is not None
    commands: tuple[str, ...] = ()
    begin = (
        f"{_waiting(one)} wait for ever: a transaction of {one.told.transactional_id!r} is open there (producer id "
        f"{one.producer_id}), and its coordinator, which says {one.told.state}, does not know of that"
    )
    if is_decided:
        text = f"{begin}. The ledger names it, or cannot be read: finish that first. Then see {HANGING_PAGE}"
    elif one.is_aborted:
        texts = CommandTexts(brokers)
        commands = (texts.abort_hanging(one.topic, one.partition, one.start_offset),)
        text = f"{begin}. It was aborted, and Kafka's own tool ends it there, too{texts.tool_hint}"
    else:
        text = f"{begin}. Its rows may be of a delivered batch, which an abort would hide for good: see {HANGING_PAGE}"
    mark = (one.topic, one.partition, one.start_offset)
    return Finding(Trouble.HANGING, Severity.ACT, text, commands, mark, is_passing=True, topics=(one.topic,))


def _judge_unlisted(one: OpenProducer, facts: ClusterFacts) -> Iterator[Finding]:
    """Whether this principal would be told of it is not known."""
    age_ms = facts.at_ms - one.since_ms
    if age_ms > facts.transaction_max_ms + OVERRUN_MS:
        text = (
            f"{_waiting(one)} have waited for {span(age_ms)} for producer id {one.producer_id}, longer than a "
            f"transaction may be open ({span(facts.transaction_max_ms)}), and no coordinator lists it to this "
            f"principal. Unless brokers allow more, it hangs: see {HANGING_PAGE}"
        )
        mark = (one.topic, one.partition, one.start_offset)
        yield Finding(Trouble.HANGING, Severity.LOOK, text, (), mark, is_passing=True, topics=(one.topic,))


def _waiting(one: OpenProducer) -> str:
    return f"read_committed readers of {one.topic}-{one.partition} at offset {one.start_offset}"


# ---- words -----------------------------------------------------------------------------------------------------------


def title(record: LedgerRecord) -> str:
    named = f" ({record.label})" if record.label else ""
    return f"{record.key} of sink {record.sink_id}{named}"


def span(time_ms: int) -> str:
    seconds = max(0, time_ms) // 1000
    return next((f"{seconds // size} {unit}" for unit, size in _UNITS if seconds >= 2 * size), f"{seconds} s")


def _names(topics: tuple[str, ...]) -> str:
    return ", ".join(topics[:3]) + (f" and {len(topics) - 3} topics more" if len(topics) > 3 else "")


def worst(found: Iterable[Finding]) -> Severity:
    return max((each.severity for each in found), default=Severity.FINE)


def by_sink(found: Iterable[Finding]) -> Mapping[tuple[str, str], list[Finding]]:
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for each in found:
        if each.sink_id:
            grouped.setdefault((each.ledger_topic, each.sink_id), []).append(each)
    return grouped
