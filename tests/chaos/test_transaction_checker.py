"""The checker of transactions finds each kind of damage, and has no complaints about a correct log."""

from __future__ import annotations

import pytest

from tests.chaos.transaction_loop import PARTITIONS, ROWS, Fate, TransactionChecker, row_value

FATES = [Fate.COMMITTED, Fate.ABORTED, Fate.COMMITTED, Fate.UNKNOWN, Fate.OPEN]

Log = list[tuple[int, bytes | None]]


def whole(attempt: int) -> Log:
    return [(row % PARTITIONS, row_value(attempt, row)) for row in range(ROWS)]


def verdict_on(log: Log) -> list[str]:
    checker = TransactionChecker(FATES)
    for partition, value in log:
        checker.on_record(partition, value)
    return checker.verdict()


def test_committed_transactions_and_nothing_else_are_right() -> None:
    assert verdict_on(whole(0) + whole(2)) == []


def test_one_of_unknown_fate_may_be_there_but_only_whole() -> None:
    assert verdict_on(whole(0) + whole(2) + whole(3)) == []
    assert "499 of its 500" in verdict_on(whole(0) + whole(2) + whole(3)[:-1])[0]


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        (whole(0), "attempt 2 is committed and 0 of its 500"),
        (whole(0) + whole(2)[:-4], "attempt 2 is committed and 496 of its 500"),
        (whole(0) + whole(1) + whole(2), "attempt 1 is visible though it is aborted"),
        (whole(0) + whole(2) + whole(4)[:1], "attempt 4 is visible though it is open"),
        (whole(0) + whole(2) + whole(2), "row 0 of attempt 2 after 496 of 2"),
        (whole(2) + whole(0), "row 0 of attempt 0 after 496 of 2"),
        (whole(0)[4:] + whole(2), "row 4 of attempt 0 after -1 of -1"),
        (whole(0) + whole(2) + [(0, b"x" * 16)], "not what was sent there"),
        (whole(0) + whole(2) + [(0, None)], "not what was sent"),
        (whole(0) + whole(2) + [(1, row_value(0, 0))], "not what was sent there"),
    ],
)
def test_each_damage_is_named(log: Log, complaint: str) -> None:
    assert any(complaint in text for text in verdict_on(log))
