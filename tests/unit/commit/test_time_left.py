"""C2: how much time the transactions of a batch have left, whatever the clocks of their coordinators say.

The assumption under test: no transaction is older than its write, which was planned on the driver's host.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, Job
from kafka_sink.errors import CommitAborted, CommitPending
from kafka_sink.kafka.client.ask import ReplyKind
from tests.model.tiny_broker import TIMEOUT_MS
from tests.unit.commit.driver_bench import Bench

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


def commit(bench: Bench, receipts: Sequence[TaskReceipt], age_max_ms: int | None) -> CommitResult:
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, age_max_ms=age_max_ms)
    result: CommitResult = bench.drive(Committer(bench.settings, bench.session(), job, bench.now_ms))
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
