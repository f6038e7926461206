"""What is a finding, how urgent it is, and which command it names: as a table, without a broker."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from kafka_sink.commit.command_texts import BrokerArguments, CommandTexts
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, TransactionOutcome, ledger_key, line_of_key
from kafka_sink.commit.listing import Listed
from kafka_sink.commit.open_decisions import OpenDecision, Standing
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.operate.status.facts import ClusterFacts, LedgerFacts, OpenProducer
from kafka_sink.operate.status.findings import Finding, Limits, Severity, Trouble, by_sink, judge, span, worst

NOW, S, MIN = 10_000_000_000, 1_000, 60_000
TIMEOUT_MS = 15 * MIN
LIMITS = Limits(open_ms=MIN, silent_ms=0)
BROKERS = BrokerArguments(("--bootstrap-server", "b:9092"), "", ("--bootstrap-server", "b:9092"))
COMMANDS = CommandTexts(BROKERS)
LEDGER = COMMANDS.ledger_topic
RUN = "0123456789abcdef"
BATCH, DAY = BatchKey("query-1", 7), BatchKey("", "2026-11-01")
COMMITTED, LOST = TransactionOutcome.COMMITTED, TransactionOutcome.LOST
OPEN, COMMITTED, OVERDUE, UNKNOWN = Standing.OPEN, Standing.COMMITTED, Standing.OVERDUE, Standing.UNKNOWN
LOOK, ACT = Severity.LOOK, Severity.ACT


def record_of(
    kind: Kind = Kind.DONE, key: BatchKey = BATCH, sink_id: str = "orders", age_ms: int = 0, outcomes: str = ""
) -> LedgerRecord:
    entries = tuple(TransactionEntry(task, 0, 4711, 3, 2, "t", 0, 9, 10) for task in range(2))
    return LedgerRecord(
        kind, sink_id, key, RUN, wall_ms=NOW - age_ms, row_count=20, topics={"t": 20},
        entries=entries if kind in (Kind.INTENT, Kind.STUCK) else (),
        outcomes=tuple(map(TransactionOutcome, outcomes)),
    )  # fmt: skip


def ledger_of(*records: LedgerRecord, judged: tuple[Standing, int | None] | None = None) -> LedgerFacts:
    listed = [Listed(ledger_key(one.sink_id, one.key), 5, one) for one in records]
    found = {each.ledger_key: OpenDecision(each.record, *judged) for each in listed if each.record and judged}
    return LedgerFacts(LEDGER, listed, found, lines={line_of_key(each.ledger_key, LEDGER) for each in listed})


def facts_of(*ledgers: LedgerFacts, **more: object) -> ClusterFacts:
    return replace_facts(ClusterFacts(NOW, "here", ledgers), **more)


def replace_facts(facts: ClusterFacts, **more: object) -> ClusterFacts:
    return replace(facts, **more)  # type: ignore[arg-type]


def hanging(name: str = f"orders-{RUN}-9-0", state: str = "CompleteAbort", *, is_aborted: bool = True) -> OpenProducer:
    told = TransactionDescription(name, state, 4711, 4, TIMEOUT_MS, -1)
    return OpenProducer("t", 3, 4711, 3, 42, NOW, told, is_aborted)


def found_in(facts: ClusterFacts, limits: Limits = LIMITS) -> list[tuple[Trouble, Severity, tuple[str, ...]]]:
    return [(each.trouble, each.severity, each.commands) for each in judge(facts, limits, BROKERS)]


def transaction(
    name: str, age_ms: int, *topics: str, state: str = "Ongoing", timeout_ms: int = TIMEOUT_MS
) -> TransactionDescription:
    partitions = tuple((topic, 0) for topic in topics)
    return TransactionDescription(name, state, 4711, 3, timeout_ms, NOW - age_ms, partitions)


# ---- decisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age_ms", "judged", "expected"),
    [
        # Open and in time: a finding after a minute.
        (0, (OPEN, 14 * MIN), None),
        (59 * S, (OPEN, 14 * MIN), None),
        (60 * S, (OPEN, 14 * MIN), (Trouble.OPEN, ACT)),
        # Or after a quarter of the time that it had, but never at once.
        (4 * S, (OPEN, 4 * S), None),
        (5 * S, (OPEN, 15 * S), (Trouble.OPEN, ACT)),
        (9 * S, (OPEN, 31 * S), None),
        (10 * S, (OPEN, 30 * S), (Trouble.OPEN, ACT)),
        # Nothing can be lost any more, and the next commit closes it. A stream may be stopped for a while.
        (23 * 60 * MIN, (COMMITTED, None), None),
        (24 * 60 * MIN, (COMMITTED, None), (Trouble.OPEN, LOOK)),
        # The brokers do not tell.
        (59 * S, (UNKNOWN, None), None),
        (60 * S, (UNKNOWN, None), (Trouble.OPEN, ACT)),
        (60 * S, None, (Trouble.OPEN, ACT)),
        # A driver whose clock is ahead.
        (-10 * MIN, (OPEN, 14 * MIN), None),
        # Overdue, at whatever age.
        (0, (OVERDUE, None), (Trouble.OVERDUE, ACT)),
        (20 * MIN, (OVERDUE, -5 * MIN), (Trouble.OVERDUE, ACT)),
    ],
)
def test_an_open_decision_is_a_finding_when_a_query_would_have_finished_it(
    age_ms: int, judged: tuple[Standing, int | None] | None, expected: tuple[Trouble, Severity] | None
) -> None:
    facts = facts_of(ledger_of(record_of(Kind.INTENT, age_ms=age_ms), judged=judged))
    found = found_in(facts)
    assert found == ([] if expected is None else [(*expected, (COMMANDS.recover("orders"),))])
    assert all(each.is_passing for each in judge(facts, LIMITS, BROKERS))


def test_a_decision_that_is_not_ones_own_to_see_is_told_without_a_command() -> None:
    for age_ms, count in ((59 * S, 0), (60 * S, 1), (60 * 60 * MIN, 1)):
        facts = facts_of(ledger_of(record_of(Kind.INTENT, age_ms=age_ms), judged=(Standing.HIDDEN, None)))
        assert found_in(facts) == [(Trouble.OPEN, LOOK, ())] * count


def test_a_lost_batch_is_told_with_its_rows_and_both_choices() -> None:
    record = record_of(Kind.STUCK, outcomes="cl")
    (found,) = judge(facts_of(ledger_of(record)), LIMITS, BROKERS)
    assert (found.trouble, found.severity, found.is_passing) == (Trouble.LOST, ACT, False)
    assert found.commands == (COMMANDS.replay(record), COMMANDS.accept(record))
    assert "10 of 20 rows are missing, and the query stops" in found.text
    day = record_of(Kind.STUCK, DAY, outcomes="lu")
    (found,) = judge(facts_of(ledger_of(day)), LIMITS, BROKERS)
    doubt = "10 of 20 rows are missing, 10 may be visible or missing, which can no longer be read, and the export"
    assert f"{doubt} is refused" in found.text


def test_a_decision_of_another_cluster_is_chosen_about_here() -> None:
    record = record_of(Kind.INTENT, age_ms=60 * MIN)
    ledger = LedgerFacts(LEDGER, [Listed("orders", 5, record, origin="there")])
    assert found_in(facts_of(ledger)) == [(Trouble.ELSEWHERE, LOOK, (COMMANDS.replay(record), COMMANDS.accept(record)))]


def test_a_record_that_cannot_be_read_stops_its_sink_alone_and_a_copied_ledger_is_one_finding() -> None:
    unread = Listed("orders/a day", 5, None, "of version 9")
    no_sink = Listed("what is this?", 6, None, "not of this format")
    found = found_in(facts_of(LedgerFacts(LEDGER, [unread, no_sink])))
    assert found == [(Trouble.UNREADABLE, ACT, (COMMANDS.set_aside("orders", "orders/a day"),))]
    copies = [Listed(f"sink-{number}", number, None, "a copy", "there") for number in range(1_000)]
    assert found_in(facts_of(LedgerFacts(LEDGER, copies))) == [(Trouble.COPIED, LOOK, (COMMANDS.ledger(),))]


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.REPLAY])
def test_what_is_closed_is_fine(kind: Kind) -> None:
    assert found_in(facts_of(ledger_of(record_of(kind, age_ms=99 * MIN)))) == []
    assert worst([]) is Severity.FINE


# ---- silence ---------------------------------------------------------------------------------------------------------


def silent(*records: LedgerRecord, retired: tuple[str, ...] = ()) -> list[str]:
    limits = Limits(MIN, silent_ms=10 * MIN, retired=frozenset(retired))
    found = judge(facts_of(ledger_of(*records)), limits, BROKERS)
    assert all((each.trouble, each.severity) == (Trouble.SILENT, LOOK) for each in found)
    about = "pykafka-sink status --bootstrap-server b:9092 --silent-after 600"
    known = "".join(f" --retired {name}" for name in sorted(retired))
    assert all(each.commands == (f"{about}{known} --retired {each.sink_id}",) for each in found)
    return [each.sink_id for each in found]


def test_a_stream_that_stopped_before_its_last_decision_was_closed_is_silent_as_well() -> None:
    limits, record = Limits(MIN, silent_ms=10 * MIN), record_of(Kind.INTENT, age_ms=30 * MIN)
    (found,) = judge(facts_of(ledger_of(record, judged=(COMMITTED, None))), limits, BROKERS)
    assert found.trouble is Trouble.SILENT
    (found,) = judge(facts_of(ledger_of(record, judged=(OPEN, 14 * MIN))), limits, BROKERS)
    assert found.trouble is Trouble.OPEN


def test_a_stream_is_silent_after_its_limit_and_an_export_never() -> None:
    old, new = record_of(age_ms=10 * MIN), record_of(age_ms=10 * MIN - 1)
    assert (silent(old), silent(new), silent(record_of(key=DAY, age_ms=99 * MIN))) == (["orders"], [], [])
    assert found_in(facts_of(ledger_of(old))) == [], "without a limit"


def test_a_query_with_a_new_checkpoint_replaces_the_one_with_the_old() -> None:
    one, other = f"orders-{'1' * 16}", f"orders-{'2' * 16}"
    assert silent(record_of(sink_id=one, age_ms=99 * MIN), record_of(sink_id=other)) == []
    assert silent(record_of(sink_id=one, age_ms=99 * MIN), record_of(sink_id=other, age_ms=50 * MIN)) == [other]
    assert silent(record_of(sink_id="orders-eu", age_ms=99 * MIN), record_of(sink_id=other)) == ["orders-eu"]


def test_a_sink_is_retired_by_its_name_or_with_its_query() -> None:
    sink_id = f"orders-{'1' * 16}"
    old = record_of(sink_id=sink_id, age_ms=99 * MIN)
    assert (silent(old, retired=("orders",)), silent(old, retired=(sink_id,))) == ([], [])
    assert silent(old, retired=("order",)) == [sink_id]


def test_a_lost_batch_is_not_told_as_silence_too() -> None:
    lost = record_of(Kind.STUCK, outcomes="cl", age_ms=99 * MIN)
    found = judge(facts_of(ledger_of(lost)), Limits(MIN, silent_ms=MIN), BROKERS)
    assert [each.trouble for each in found] == [Trouble.LOST]


# ---- transactions ----------------------------------------------------------------------------------------------------

TASK, FOREIGN = f"orders-{RUN}-9-0", "billing"


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (transaction(TASK, 0, "t"), None),
        (transaction(TASK, TIMEOUT_MS // 2 - 1, "t"), None),
        (transaction(TASK, TIMEOUT_MS // 2, "t"), Trouble.TRANSACTION),
        (transaction(TASK, TIMEOUT_MS + 2 * MIN, "t"), Trouble.TRANSACTION),
        (transaction(FOREIGN, TIMEOUT_MS // 2 - 1, "t"), None),
        (transaction(FOREIGN, TIMEOUT_MS // 2, "t"), Trouble.FOREIGN),
        # No sink writes there: its own team's business.
        (transaction(FOREIGN, TIMEOUT_MS, "elsewhere"), None),
        # Named by a decision: told with that.
        (transaction(f"decided-{RUN}-0-0", TIMEOUT_MS // 2, "t"), None),
        # It may be decided.
        (transaction(f"unread-{RUN}-0-0", TIMEOUT_MS // 2, "t"), None),
    ],
)
def test_a_transaction_is_a_finding_when_it_has_used_more_than_half_of_its_time(
    one: TransactionDescription, expected: Trouble | None
) -> None:
    records = [record_of(), record_of(Kind.INTENT, sink_id="decided")]
    ledger = ledger_of(*records, judged=(OPEN, 14 * MIN))
    unread = Listed("unread", 9, None, origin="there")
    facts = facts_of(replace(ledger, listed=[*ledger.listed, unread]), transactions=[one])
    found = [each for each in judge(facts, LIMITS, BROKERS) if each.trouble is not Trouble.COPIED]
    assert [each.trouble for each in found] == ([] if expected is None else [expected])
    for each in found:
        is_of_sink = each.trouble is Trouble.TRANSACTION
        mend = COMMANDS.abort_transactions("orders") if is_of_sink else COMMANDS.end_transaction(FOREIGN)
        assert (each.severity, each.commands, each.topics, each.is_passing) == (LOOK, (mend,), ("t",), True)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (transaction(FOREIGN, 8 * MIN, "t"), "it began 8 min ago, and ends at its time-out in 7 min at the latest"),
        (transaction(FOREIGN, 17 * MIN, "t"), "its time has passed, and its coordinator does not end it"),
    ],
)
def test_it_is_said_when_readers_go_on(one: TransactionDescription, words: str) -> None:
    (found,) = judge(facts_of(ledger_of(record_of()), transactions=[one]), LIMITS, BROKERS)
    assert words in found.text and f"readers of t wait for the transaction '{FOREIGN}'" in found.text


@pytest.mark.parametrize(("state", "fate"), [("PrepareCommit", "committed"), ("PrepareAbort", "aborted")])
@pytest.mark.parametrize(("name", "who"), [(TASK, "1 transactions of sink orders"), (FOREIGN, f"'{FOREIGN}'")])
def test_one_that_has_ended_and_waits_for_its_markers_names_no_command(
    name: str, who: str, state: str, fate: str
) -> None:
    """`transactions --abort` would end nothing, and of a commit it would say that it is aborted."""
    one = transaction(name, TIMEOUT_MS // 2, "t", state=state)
    (found,) = judge(facts_of(ledger_of(record_of()), transactions=[one]), LIMITS, BROKERS)
    assert (found.severity, found.commands, found.topics, found.is_passing) == (LOOK, (), ("t",), True)
    assert found.trouble is (Trouble.TRANSACTION if name == TASK else Trouble.FOREIGN)
    assert who in found.text and f"that is {fate}, " in found.text and "min.insync.replicas" in found.text
    assert "no decision names" not in found.text and "stopped" not in found.text


def test_what_is_open_and_what_waits_for_its_markers_are_two_findings() -> None:
    states = ("Ongoing", "PrepareCommit")
    both = [transaction(f"orders-{RUN}-{task}-0", 8 * MIN, "t", state=state) for task, state in enumerate(states)]
    found = judge(facts_of(ledger_of(record_of()), transactions=both), LIMITS, BROKERS)
    assert sorted(each.commands for each in found) == [(), (COMMANDS.abort_transactions("orders"),)]


def test_the_transactions_of_a_sink_are_one_finding_with_the_command_for_its_ledger() -> None:
    many = [transaction(f"orders-{RUN}-{task}-0", 8 * MIN + task, "t") for task in range(100)]
    ledger = replace(ledger_of(record_of()), topic="own.ledger")
    (found,) = judge(facts_of(ledger, transactions=many), LIMITS, BROKERS)
    assert "100 transactions of sink orders" in found.text and "the oldest began 8 min ago" in found.text
    assert found.commands == (CommandTexts(BROKERS, "own.ledger").abort_transactions("orders"),)


STAGING, OWN = "staging.ledger", "own.ledger"
MONDAY = Line("orders", "80000001")
OF_MONDAY = transaction("orders-8000000112345678-0-0", 8 * MIN, "t")


@pytest.mark.parametrize(
    ("own", "staging", "drivers", "topic"),
    [
        # A record or a claim of its line decides, wherever the sink has been seen last.
        ({MONDAY}, {Line("orders", "80000002")}, {MONDAY}, OWN),
        ({Line("orders", "80000002")}, {MONDAY}, {MONDAY}, STAGING),
        ({MONDAY}, (), (), OWN),
        # No ledger that was read knows its line, and it has a driver: that one may have decided.
        ({Line("orders", "80000002")}, (), {MONDAY}, None),
        ((), (), {MONDAY}, None),
        # A driver of an earlier release, which had one for all lines of a sink.
        ((), (), {Line("orders")}, None),
        # Nothing is decided without a driver.
        ({Line("orders", "80000002")}, (), (), OWN),
        ((), (), (), LEDGER),
        # More than one ledger could be the one that it is going to have.
        ({Line("orders", "80000002")}, {Line("orders")}, (), None),
        ({MONDAY}, {MONDAY}, {MONDAY}, None),
    ],
)
def test_the_command_that_aborts_names_the_ledger_that_would_know_a_decision_or_there_is_none(
    own: Collection[Line], staging: Collection[Line], drivers: Collection[Line], topic: str | None
) -> None:
    ledgers = LedgerFacts(OWN, lines=own), LedgerFacts(STAGING, lines=staging)
    known = {line.driver_id for line in drivers}
    (found,) = judge(facts_of(*ledgers, transactions=[OF_MONDAY], drivers=known), LIMITS, BROKERS)
    commands = () if topic is None else (CommandTexts(BROKERS, topic).abort_transactions("orders"),)
    assert (found.trouble, found.commands, found.ledger_topic) == (Trouble.TRANSACTION, commands, topic or "")
    assert ("ledger was not found" in found.text) is (topic is None)


def test_the_mark_of_a_finding_stays_when_younger_transactions_come_and_changes_with_the_oldest() -> None:
    old, young, next_one = (transaction(f"orders-{RUN}-{task}-0", (9 - task) * MIN, "t") for task in range(3))
    (first,), (second,), (third,) = (
        judge(facts_of(ledger_of(record_of()), transactions=some), LIMITS, BROKERS)
        for some in ([old], [old, young], [next_one, replace(old, transactional_id=f"orders-{RUN}-7-7")])
    )
    assert first.mark == second.mark != third.mark


ABORT = "kafka-transactions.sh --bootstrap-server b:9092 abort --topic t --partition 3 --start-offset 42"


@pytest.mark.parametrize(
    ("one", "commands", "words"),
    [
        (hanging(), (ABORT,), "It was aborted, and Kafka's own tool ends it there, too"),
        # Perhaps a later transaction under the id was aborted.
        (hanging(is_aborted=False), (), "which an abort would hide for good: see"),
        (hanging(state="CompleteCommit", is_aborted=False), (), "which an abort would hide for good: see"),
        (hanging(state="Empty", is_aborted=False), (), "which says Empty"),
        # The ledger says that its rows are to be seen, or what it says is not known.
        (hanging(f"decided-{RUN}-0-2"), (), "The ledger names it, or cannot be read: finish that first"),
        (hanging(f"unread-{RUN}-0-0"), (), "The ledger names it, or cannot be read: finish that first"),
    ],
)
def test_what_hangs_is_aborted_only_if_nothing_that_was_delivered_can_be_hidden(
    one: OpenProducer, commands: tuple[str, ...], words: str
) -> None:
    entry = TransactionEntry(0, 2, 4711, 3, 2, "t", 0, 9, 10)
    decided = replace(record_of(Kind.INTENT, sink_id="decided"), entries=(entry,))
    ledger = ledger_of(decided, judged=(OPEN, 14 * MIN))
    facts = facts_of(replace(ledger, listed=[*ledger.listed, Listed("unread", 9, None, origin="there")]), hanging=[one])
    found = [each for each in judge(facts, LIMITS, BROKERS) if each.trouble is Trouble.HANGING]
    assert [(each.severity, each.commands, each.is_passing) for each in found] == [(ACT, commands, True)]
    assert words in found[0].text


def test_the_command_of_kafkas_tool_has_a_file_of_its_own_for_the_login() -> None:
    brokers = replace(BROKERS, tool_words=("--bootstrap-server", "b:9092", "--command-config", "client.properties"))
    (found,) = judge(facts_of(ledger_of(record_of()), hanging=[hanging()]), LIMITS, brokers)
    assert "--command-config client.properties abort" in found.commands[0]
    assert "client.properties stands for a file with the login as Kafka's tools read it" in found.text


@pytest.mark.parametrize(
    ("age_ms", "max_ms", "is_told"), [(0, 0, False), (16 * MIN, 15 * MIN, False), (16 * MIN + 1, 15 * MIN, True),
                                      (16 * MIN + 1, 60 * MIN, False)]
)  # fmt: skip
def test_a_producer_that_nobody_lists_is_told_when_no_transaction_may_be_open_any_more(
    age_ms: int, max_ms: int, is_told: bool
) -> None:
    one = OpenProducer("t", 3, 4711, 3, 42, NOW - age_ms)
    facts = facts_of(ledger_of(record_of()), unlisted=[one], transaction_max_ms=max_ms)
    assert found_in(facts) == ([(Trouble.HANGING, LOOK, ())] if is_told else [])


# ---- all together ----------------------------------------------------------------------------------------------------


def test_a_decision_comes_before_what_hangs() -> None:
    ledger = ledger_of(record_of(Kind.INTENT, age_ms=MIN), judged=(OPEN, MIN))
    found = judge(facts_of(ledger, hanging=[hanging()]), LIMITS, BROKERS)
    assert [each.trouble for each in found] == [Trouble.OPEN, Trouble.HANGING]


def test_the_worst_comes_first_and_each_is_found_by_its_sink() -> None:
    foreign = transaction(FOREIGN, 8 * MIN, "t")
    facts = facts_of(
        ledger_of(record_of(), record_of(Kind.STUCK, sink_id="zebra", outcomes="cl")), transactions=[foreign]
    )
    found = judge(facts, LIMITS, BROKERS)
    assert [each.trouble for each in found] == [Trouble.LOST, Trouble.FOREIGN]
    assert worst(found) is ACT
    assert {key: [each.trouble for each in some] for key, some in by_sink(found).items()} == {
        (LEDGER, "zebra"): [Trouble.LOST]
    }


@pytest.mark.parametrize("trouble", Trouble)
def test_every_finding_names_a_command_with_all_its_arguments(trouble: Trouble) -> None:
    one_of_each = facts_of(
        ledger_of(record_of(Kind.INTENT, sink_id="late", age_ms=MIN), judged=(OPEN, MIN)),
        ledger_of(record_of(Kind.INTENT, sink_id="later"), judged=(OVERDUE, None)),
        ledger_of(record_of(Kind.STUCK, sink_id="lost", outcomes="cl"), record_of(sink_id="s", age_ms=99 * MIN)),
        LedgerFacts(
            LEDGER,
            [
                Listed("a", 1, None, "copy", "there"),
                Listed("b", 2, None, "odd"),
                Listed("c", 3, record_of(Kind.INTENT, sink_id="c"), origin="there"),
            ],
        ),
        transactions=[transaction(TASK, 8 * MIN, "t"), transaction(FOREIGN, 8 * MIN, "t")],
        hanging=[hanging()],
    )
    found: list[Finding] = judge(one_of_each, Limits(MIN, 10 * MIN), BROKERS)
    (one,) = [each for each in found if each.trouble is trouble]
    assert one.commands and all("--bootstrap-server b:9092" in command for command in one.commands)


@pytest.mark.parametrize(
    ("time_ms", "words"), [(-5, "0 s"), (119 * S, "119 s"), (2 * MIN, "2 min"), (119 * MIN, "119 min"),
                           (3 * 60 * MIN, "3 h"), (50 * 60 * MIN, "2 d")]
)  # fmt: skip
def test_a_span_keeps_two_digits(time_ms: int, words: str) -> None:
    assert span(time_ms) == words
