"""C2: how much time the transactions of a batch have left, whatever the clocks of their coordinators say, and however
long ago the last receipt was made.

The assumption under test: no transaction is older than its write, which was planned on the driver's host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.preflight import TIME
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, Job
from kafka_sink.errors import CommitAborted, CommitPending
from kafka_sink.kafka.client.ask import ReplyKind
from tests.support.tiny_broker import TIMEOUT_MS
from tests.unit.commit.driver_bench import LOST, UNSUPPORTED, WRITE, Bench

AHEAD_MS = TIMEOUT_MS - 10_000


def written(bench: Bench, *tasks: tuple[int, int]) -> list[TaskReceipt]:
    """A receipt per task: when its transaction began by its coordinator's clock, and for how long the task ran."""
    receipts = []
    for number, (start_ms, age_ms) in enumerate(tasks):
        receipt = bench.receipt(0, number, remaining_ms=TIMEOUT_MS - age_ms)
        assert receipt.transaction is not None
        known = bench.broker.transactions[receipt.transaction.transactional_id]
        bench.broker.transactions[receipt.transaction.transactional_id] = (*known[:4], start_ms)
        receipts.append(receipt)
    return receipts


def commit(bench: Bench, receipts: Sequence[TaskReceipt], age_max_ms: int | None, **answers: list[Any]) -> CommitResult:
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, age_max_ms=age_max_ms)
    given = {purpose.replace("_", " "): listed for purpose, listed in answers.items()}
    result: CommitResult = bench.drive(Committer(bench.settings, bench.session(), job, bench.now_ms), given)
    return result


EQUAL = ((0, 2_000), (500, 1_500))
# As Redpanda tells it: the second task has added its last partition just now.
LATE_PARTITION = ((0, 600_000), (595_000, 600_000))
CLOCK_AHEAD = ((0, 2_000), (AHEAD_MS, 2_000))


@pytest.mark.parametrize(
    ("tasks", "age_max_ms"),
    [
        (EQUAL, None),
        (EQUAL, 3_000),
        (EQUAL, 3 * TIMEOUT_MS),  # it was planned long before its first task
        (LATE_PARTITION, 605_000),
        (CLOCK_AHEAD, 3_000),
        (CLOCK_AHEAD[::-1], 3_000),
    ],
)
def test_a_batch_that_has_time_left_by_either_way_is_decided(
    bench: Bench, tasks: tuple[tuple[int, int], ...], age_max_ms: int | None
) -> None:
    assert commit(bench, written(bench, *tasks), age_max_ms).conclusion is Conclusion.DELIVERED


@pytest.mark.parametrize(
    ("tasks", "age_max_ms"),
    [
        (LATE_PARTITION, None),
        (LATE_PARTITION, TIMEOUT_MS - 10_000),
        (CLOCK_AHEAD, None),
        (CLOCK_AHEAD, TIMEOUT_MS - 10_000),
        (((0, 2_000), (TIMEOUT_MS - 5_000, 2_000)), TIMEOUT_MS + 5_000),  # the first one has waited for the second
    ],
)
def test_a_batch_that_has_too_little_by_both_is_refused(
    bench: Bench, tasks: tuple[tuple[int, int], ...], age_max_ms: int | None
) -> None:
    verdict = commit(bench, written(bench, *tasks), age_max_ms)
    assert isinstance(verdict.error, CommitAborted) and "left before it times out" in str(verdict.error)
    assert "the clocks of brokers differ" in str(verdict.error)
    assert bench.seen() == [0, 0]


def test_a_batch_whose_tasks_took_too_long_themselves_is_not_blamed_on_clocks(bench: Bench) -> None:
    verdict = commit(bench, written(bench, (0, TIMEOUT_MS - 10_000)), None)
    assert isinstance(verdict.error, CommitAborted) and "clocks" not in str(verdict.error)


def test_what_is_left_by_the_plan_limits_how_long_the_commit_may_try(bench: Bench) -> None:
    receipts = written(bench, *CLOCK_AHEAD)
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, age_max_ms=TIMEOUT_MS - 100_000)
    began_ms = bench.now_ms
    committer = Committer(bench.settings, bench.session(), job, bench.now_ms)
    verdict = bench.drive(committer, {"commit transaction": [ReplyKind.LOST] * 100_000})
    assert isinstance(verdict.error, CommitPending)
    assert 40_000 <= bench.now_ms - began_ms < 45_000


# ---- the last receipt is old ----

LONG_AGO = 3 * TIMEOUT_MS  # it was planned long before its first task


@pytest.mark.parametrize("age_max_ms", [TIMEOUT_MS - 5_000, LONG_AGO, None])
@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_whose_last_row_is_long_ago_is_refused_by_the_brokers_time(
    bench: Bench, age_max_ms: int | None, batch: int
) -> None:
    """A task without rows has taken longer, or the driver's host stood still: the receipts had 100 s left."""
    session = bench.session()
    if batch:
        assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    receipts = [bench.receipt(batch, task, remaining_ms=100_000) for task in (0, 1)]
    bench.broker.clock += TIMEOUT_MS - 5_000
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, age_max_ms=age_max_ms)
    verdict = bench.drive(Committer(bench.settings, session, job, bench.now_ms))
    assert isinstance(verdict.error, CommitAborted) and "left before it times out" in str(verdict.error)
    assert bench.seen() == [batch, batch]


@pytest.mark.parametrize(("age_max_ms", "times"), [(0, 0), (TIMEOUT_MS - 120_000, 0), (TIMEOUT_MS - 119_999, 1)])
def test_the_brokers_are_asked_for_their_time_only_where_the_host_leaves_less_than_twice_the_margin(
    bench: Bench, age_max_ms: int, times: int
) -> None:
    assert commit(bench, bench.receipts(), age_max_ms).conclusion is Conclusion.DELIVERED
    assert bench.purposes().count(TIME) >= times and bool(times) == (TIME in bench.purposes())


@pytest.mark.parametrize(("age_max_ms", "left_ms"), [(LONG_AGO, 200_000), (TIMEOUT_MS - 300_000, 300_000)])
def test_a_commit_tries_for_as_long_as_there_is_time_and_not_as_long_as_there_was(
    bench: Bench, age_max_ms: int, left_ms: int
) -> None:
    receipts = [bench.receipt(0, task, remaining_ms=TIMEOUT_MS - 1_000) for task in (0, 1)]
    bench.broker.clock += TIMEOUT_MS - 200_000
    began_ms = bench.now_ms
    verdict = commit(bench, receipts, age_max_ms, end_ledger_transaction=[LOST] * 100_000)
    assert isinstance(verdict.error, CommitPending)
    assert left_ms - 61_000 <= bench.now_ms - began_ms <= left_ms - 60_000


def test_the_wait_before_the_check_is_no_time_that_the_batch_has_left(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.broker.clock += TIMEOUT_MS - 200_000

    def later(_request: object) -> None:
        bench.now_ms += 100_000
        bench.broker.clock += 100_000

    began_ms = bench.now_ms
    verdict = commit(bench, receipts, LONG_AGO, claim_ledger=[later], end_ledger_transaction=[LOST] * 100_000)
    assert isinstance(verdict.error, CommitPending)
    assert 139_000 <= bench.now_ms - began_ms <= 140_000


def test_a_driver_that_another_one_has_fenced_believes_its_host(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.before_next(TIME, bench.take_the_drivers_id)
    verdict = commit(bench, receipts, LONG_AGO)
    assert isinstance(verdict.error, CommitAborted) and bench.seen() == [0, 0]


def test_while_the_intent_is_not_appended_the_error_names_its_trouble(bench: Bench) -> None:
    verdict = commit(bench, bench.receipts(), LONG_AGO, write_ledger_record=[19] * 100_000)
    assert isinstance(verdict.error, CommitAborted) and "NOT_ENOUGH_REPLICAS" in str(verdict.error)
    assert WRITE in bench.purposes()


@pytest.mark.parametrize(("age_max_ms", "is_decided"), [(TIMEOUT_MS - 70_000, True), (TIMEOUT_MS - 50_000, False)])
def test_where_brokers_do_not_describe_transactions_the_host_is_believed(
    bench: Bench, age_max_ms: int, is_decided: bool
) -> None:
    receipts = bench.receipts()
    given = {"describe_transactions": [UNSUPPORTED], "describe_producers": [UNSUPPORTED]}
    verdict = commit(bench, receipts, age_max_ms, **given)
    assert (verdict.conclusion is Conclusion.DELIVERED) == is_decided
    assert is_decided or isinstance(verdict.error, CommitAborted)
