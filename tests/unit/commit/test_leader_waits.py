"""For how long a decided batch that nobody has finished waits for the leader of a partition: not until its transactions
time out, and no shorter only because somebody else's patience is over. By KAFKA-20734 the end of a transaction must not
be requested earlier than it has to be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.each_line import carry_out, end_own_runs
from kafka_sink.commit.end_txn import CLOCK, PARTITIONS
from kafka_sink.commit.preflight import LEADERS
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.commit.time_left import LAST_CALL_MS
from kafka_sink.errors import CommitLost, CommitPending
from kafka_sink.kafka.client.ask import Ask
from kafka_sink.kafka.wire.codes import CLUSTER_AUTHORIZATION_FAILED
from tests.support.tiny_broker import ONGOING, TIMEOUT_MS
from tests.unit.commit.driver_bench import COMMIT, LOST, SECOND, SINK, UNSUPPORTED, Bench

HOUR_MS = 3_600_000
MARGIN_MS = 60_000
THEIRS = f"batch-{'7' * 16}"
# The controller's answer: no permission for the cluster, no KRaft, nobody is there.
NOT_TOLD: list[Any] = [lambda _ask: {"error_code": CLUSTER_AUTHORIZATION_FAILED, "topics": []}, UNSUPPORTED, LOST]


def let_the_brokers_time_run(bench: Bench) -> None:
    """With the driver's, from now on; transactions time out."""
    difference_ms = bench.now_ms - bench.broker.clock

    def run(_: Ask) -> None:
        bench.broker.clock = bench.now_ms - difference_ms
        for name, (_, _, state, _, start_ms) in list(bench.broker.transactions.items()):
            if state == ONGOING and bench.broker.clock >= start_ms + TIMEOUT_MS:
                bench.broker.time_out(name)
        bench.settle()

    bench.before = run


def decide_without_a_leader(bench: Bench) -> list[TaskReceipt]:
    """The driver dies, and the transactions have a minute left. One partition has no leader."""
    receipts = bench.receipts(0)
    let_the_brokers_time_run(bench)
    bench.decide(receipts)
    bench.asked.clear()
    bench.broker.leaderless.add(("t", 0))
    return receipts


def check_committed_in_time(bench: Bench, began_ms: int, notes: tuple[str, ...]) -> None:
    waited_ms = next(ask.due_ms for ask in reversed(bench.asked) if ask.purpose == COMMIT) - began_ms
    assert MARGIN_MS - LAST_CALL_MS - 1_000 <= waited_ms <= MARGIN_MS - 2_000
    (note,) = notes
    assert note.startswith("t-0 has no leader now, and time was up")
    assert bench.seen() == [1, 1]


@pytest.mark.parametrize("operation", [DriverOperation.RECOVER, DriverOperation.FINISH])
def test_a_decision_is_finished_without_a_leader_before_its_transactions_time_out(
    bench: Bench, operation: DriverOperation
) -> None:
    """Their time is shorter than the driver's patience."""
    decide_without_a_leader(bench)
    began_ms = bench.now_ms
    verdict = bench.run(operation, session=bench.session(SECOND))
    assert verdict.error is None
    check_committed_in_time(bench, began_ms, verdict.notes)


def test_the_next_batch_has_more_time_than_the_decision_that_it_finishes(bench: Bench) -> None:
    decide_without_a_leader(bench)
    following = bench.receipts(1, run=SECOND, tasks=1, attempt=7)
    began_ms = bench.now_ms
    run = bench.before

    def bring_back_before_the_check(ask: Ask) -> None:
        assert run is not None
        run(ask)
        if ask.purpose == LEADERS:
            bench.broker.leaderless.clear()

    bench.before = bring_back_before_the_check
    verdict = bench.commit(following, bench.session(SECOND))
    assert verdict.conclusion is Conclusion.DELIVERED and len(verdict.notes) == 1
    assert bench.now_ms - began_ms < MARGIN_MS and bench.seen() == [2, 1]


def test_an_abort_that_has_the_receipts_asks_how_much_time_they_have(bench: Bench) -> None:
    """In the process that has decided; the coordinator was away for as long as the commit could wait."""
    receipts = bench.receipts("day", query="")
    let_the_brokers_time_run(bench)
    bench.decide(receipts, bench.session(key=receipts[0].key))
    bench.asked.clear()
    bench.broker.leaderless.add(("t", 0))
    began_ms = bench.now_ms
    verdict = bench.run(DriverOperation.ABORT, receipts, bench.session(key=receipts[0].key))
    assert verdict.conclusion is Conclusion.RECOVERED
    check_committed_in_time(bench, began_ms, verdict.notes)


@pytest.mark.parametrize("answer", NOT_TOLD)
def test_where_the_controller_does_not_tell_the_time_the_hosts_clock_counts(bench: Bench, answer: Any) -> None:
    decide_without_a_leader(bench)
    began_ms = bench.now_ms
    job = Job(DriverOperation.RECOVER, wall_ms=bench.broker.clock)
    committer = Committer(bench.settings, bench.session(SECOND), job, bench.now_ms)
    verdict = bench.drive(committer, {CLOCK: [answer] * 1_000})
    check_committed_in_time(bench, began_ms, verdict.notes)


@pytest.mark.parametrize("wrong_by_ms", [-HOUR_MS, HOUR_MS])
def test_a_host_with_a_wrong_clock_waits_as_long_as_the_brokers_time_allows(bench: Bench, wrong_by_ms: int) -> None:
    decide_without_a_leader(bench)
    began_ms = bench.now_ms
    job = Job(DriverOperation.RECOVER, wall_ms=bench.broker.clock + wrong_by_ms)
    committer = Committer(bench.settings, bench.session(SECOND), job, bench.now_ms)
    verdict = bench.drive(committer, {CLOCK: [LOST]} if wrong_by_ms < 0 else {})
    check_committed_in_time(bench, began_ms, verdict.notes)


def test_no_transaction_began_in_the_future_of_a_host_whose_clock_is_behind(bench: Bench) -> None:
    """The transaction of which the partition has a leader has begun later, and tells what time it is at least."""
    receipts = [bench.receipt(0, 0)]
    bench.broker.clock += TIMEOUT_MS - MARGIN_MS
    receipts.append(bench.receipt(0, 1))
    bench.decide(receipts)
    bench.broker.leaderless.add(("t", 0))
    began_ms = bench.now_ms
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND), answers={CLOCK: [UNSUPPORTED]})
    assert verdict.conclusion is Conclusion.RECOVERED
    assert bench.now_ms - began_ms <= MARGIN_MS


def test_a_leader_that_is_back_in_time_is_not_said_to_be_missing(bench: Bench) -> None:
    decide_without_a_leader(bench)
    run, back_at_ms = bench.before, bench.now_ms + 20_000

    def bring_back(ask: Ask) -> None:
        assert run is not None
        run(ask)
        if bench.now_ms >= back_at_ms:
            bench.broker.leaderless.clear()

    bench.before = bring_back
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND))
    assert verdict.conclusion is Conclusion.RECOVERED and verdict.notes == ()
    assert bench.now_ms < back_at_ms + 2_000 and bench.seen() == [1, 1]


def test_a_transaction_that_has_timed_out_is_not_said_to_be_committed(bench: Bench) -> None:
    """Its coordinator has ended it before the last request has come."""
    receipts = decide_without_a_leader(bench)
    run, sent = bench.before, []

    def end_first(ask: Ask) -> None:
        assert run is not None
        run(ask)
        if ask.purpose == COMMIT and ask.number == 0 and not ask.led_now:
            sent.append(ask)
            bench.broker.leaderless.clear()
            bench.time_out(receipts[0])
            bench.settle()

    bench.before = end_first
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND))
    assert sent and isinstance(verdict.error, CommitLost) and verdict.notes == ()
    assert bench.seen() == [0, 1]


def test_the_brokers_time_is_not_asked_for_where_every_partition_has_a_leader(bench: Bench) -> None:
    bench.decide(bench.receipts(0))
    assert bench.run(DriverOperation.RECOVER, session=bench.session(SECOND)).conclusion is Conclusion.RECOVERED
    assert CLOCK not in bench.purposes()


# ---- help for the write of another driver ----


def let_the_first_answer_take_all_time(bench: Bench) -> None:
    """That help has."""

    def late(ask: Ask) -> None:
        if ask.purpose == PARTITIONS:
            bench.now_ms += bench.settings.sweep_ms

    bench.before = late


def decide_theirs(bench: Bench) -> list[TaskReceipt]:
    """A write without a name, whose driver may be waiting for the leader just now."""
    receipts = bench.receipts("", run="7" * 16, query="", sink_id=THEIRS)
    bench.decide(receipts, DriverSession(THEIRS, "7" * 16))
    bench.asked.clear()
    bench.broker.leaderless.add(("t", 0))
    return receipts


def test_help_leaves_what_waits_for_a_leader_to_its_driver(bench: Bench) -> None:
    receipts = decide_theirs(bench)
    began_ms = bench.now_ms
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND))
    assert helped.error is None and bench.now_ms - began_ms <= bench.settings.sweep_ms
    bench.settle()
    assert [bench.state_of(receipt) for receipt in receipts] == [ONGOING, "CompleteCommit"]
    (note,) = helped.notes
    assert "is decided and not finished: t-0 has no leader now" in note
    # Its driver may be alive, whatever time-out this one would give to its own transactions.
    assert helped.others == ()
    bench.broker.leaderless.clear()
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND))
    assert helped.notes == () and [record.sink_id for record in helped.others] == [THEIRS]
    assert bench.seen() == [1, 1]


def test_help_does_not_commit_without_knowing_the_partitions_because_its_own_time_is_up(bench: Bench) -> None:
    receipts = decide_theirs(bench)
    bench.broker.leaderless.clear()
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND), answers={PARTITIONS: [LOST] * 1_000})
    assert helped.error is None and "is decided and not finished" in helped.notes[0]
    assert COMMIT not in bench.purposes() and {bench.state_of(receipt) for receipt in receipts} == {ONGOING}


def test_an_answer_that_names_the_partitions_when_the_time_of_help_is_up_commits_where_there_are_leaders(
    bench: Bench,
) -> None:
    receipts = decide_theirs(bench)

    let_the_first_answer_take_all_time(bench)
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND))
    assert helped.error is None and "t-0 has no leader now" in helped.notes[0]
    bench.settle()
    assert [bench.state_of(receipt) for receipt in receipts] == [ONGOING, "CompleteCommit"]


def test_what_help_asks_for_when_its_time_is_up_commits_where_there_are_leaders(bench: Bench) -> None:
    """The first answer has taken all of it."""
    bench.settings = replace(bench.settings, parallel_requests=1)
    receipts = decide_theirs(bench)
    bench.broker.leaderless = {("t", 1)}

    let_the_first_answer_take_all_time(bench)
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND))
    assert helped.error is None and "is decided and not finished" in helped.notes[0]
    bench.settle()
    assert [bench.state_of(receipt) for receipt in receipts] == ["CompleteCommit", ONGOING]


def test_help_commits_without_a_leader_what_would_time_out(bench: Bench) -> None:
    """Whoever decided it is dead, or does the same."""
    decide_theirs(bench)
    bench.broker.clock += TIMEOUT_MS - LAST_CALL_MS - 2_000
    let_the_brokers_time_run(bench)
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND))
    assert helped.error is None and helped.notes[0].startswith("t-0 has no leader now, and time was up")
    assert bench.seen() == [1, 1]


def test_an_abort_that_ends_its_own_runs_leaves_an_earlier_decision_to_the_next_start(bench: Bench) -> None:
    """It has 15 s, and the transactions many minutes."""
    decided = bench.receipts(0)
    bench.decide(decided)
    bench.broker.leaderless.add(("t", 0))
    failed = bench.receipts(1, run=SECOND, tasks=1)
    began_ms = bench.now_ms
    script = end_own_runs(bench.settings, SINK, SECOND, 0)
    (result,) = carry_out(script, lambda begin: bench.drive(begin(bench.now_ms)))
    assert isinstance(result.error, CommitPending) and "t-0 has no leader" in str(result.error)
    assert bench.now_ms - began_ms < 60_000
    bench.settle()
    assert [bench.state_of(receipt) for receipt in (*decided, *failed)] == [ONGOING, "CompleteCommit", ONGOING]
