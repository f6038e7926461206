"""The checker finds each kind of damage, planted in a log that is otherwise right."""

from __future__ import annotations

import pytest

from tests.chaos.numbered_records import check_all, numbered_value

Log = list[tuple[int, bytes | None]]
SENT = {0: 3, 1: 3, 7: 2}


def right_log() -> Log:
    """Streams 0 and 7 in partition 0, stream 1 in partition 1; positions in order of sending."""
    return [
        (0, numbered_value(0, 0, 0)),
        (1, numbered_value(1, 0, 1)),
        (0, numbered_value(7, 0, 2)),
        (0, numbered_value(0, 1, 3)),
        (1, numbered_value(1, 1, 4)),
        (0, numbered_value(0, 2, 5)),
        (0, numbered_value(7, 1, 6)),
        (1, numbered_value(1, 2, 7)),
    ]


def without(index: int) -> Log:
    log = right_log()
    del log[index]
    return log


def swapped(first: int, second: int) -> Log:
    log = right_log()
    log[first], log[second] = log[second], log[first]
    return log


def with_value(index: int, value: bytes | None) -> Log:
    log = right_log()
    log[index] = (log[index][0], value)
    return log


def test_a_right_log_has_no_complaints() -> None:
    assert check_all(right_log(), SENT) == []


@pytest.mark.parametrize(
    ("log", "complaint"),
    [
        (without(3), "missing before"),
        (without(7), "2 of 3 records seen to the end"),
        ([*right_log(), right_log()[7]], "doubled or late"),
        ([*right_log()[:4], right_log()[3], *right_log()[4:]], "doubled or late"),
        (swapped(3, 5), "doubled or late"),
        (swapped(2, 3), "out of order"),
        (with_value(2, b"x" * 100), "damaged"),
        (with_value(2, None), "damaged"),
        ([*right_log()[:-1], (0, right_log()[7][1])], "elsewhere"),
        ([*right_log(), (1, numbered_value(9, 0, 9))], "stream 9 was never sent"),
        ([], "0 records instead of 8"),
    ],
)
def test_each_damage_is_named(log: Log, complaint: str) -> None:
    assert any(complaint in text for text in check_all(log, SENT))
