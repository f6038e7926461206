"""What time it is for the brokers, from what they tell and from their transactions: as a table, without a clock."""

from __future__ import annotations

import pytest

from kafka_sink.commit.admin.broker_clock import BrokersTime, brokers_time, difference_of

NOW, MIN = 10_000_000_000, 60_000


@pytest.mark.parametrize(
    ("told_ms", "difference_ms"),
    [(NOW, 0), (NOW + 50, 0), (NOW + 100, 0), (NOW - 7, -7), (NOW + 100 + 7, 7)],
)
def test_the_time_of_the_request_itself_is_not_counted(told_ms: int, difference_ms: int) -> None:
    assert difference_of(told_ms, NOW, NOW + 100) == difference_ms


@pytest.mark.parametrize(
    ("told_ms", "began_ms", "expected"),
    [
        (0, [], BrokersTime(NOW, True)),
        (-20 * MIN, [NOW - 19 * MIN], BrokersTime(NOW - 20 * MIN, True, -20 * MIN)),
        # A coordinator of which the clock is ahead of the controller's moves no time of the others.
        (20 * MIN, [NOW + 21 * MIN], BrokersTime(NOW + 20 * MIN, True, 20 * MIN)),
        # Not told: no transaction began in the future.
        (None, [], BrokersTime(NOW, False)),
        (None, [NOW - MIN], BrokersTime(NOW, False)),
        (None, [NOW - MIN, NOW + 20 * MIN, NOW + MIN], BrokersTime(NOW + 20 * MIN, False, 20 * MIN)),
    ],
)
def test_the_controllers_time_counts_and_else_that_of_the_newest_transaction(
    told_ms: int | None, began_ms: list[int], expected: BrokersTime
) -> None:
    assert brokers_time(told_ms, began_ms, NOW) == expected


def test_a_difference_is_told_and_what_it_leaves_open_is_a_note() -> None:
    for time in (BrokersTime(NOW, True, 4_999), BrokersTime(NOW, True, -4_999), BrokersTime(NOW, False, 4_999)):
        assert not time.notes and not time.limits
    behind, ahead = BrokersTime(NOW, True, 20 * MIN), BrokersTime(NOW, True, -20 * MIN)
    assert [time.notes for time in (behind, ahead)] == [[], []]
    assert "1200 s behind the brokers'" in behind.limits[0] and "1200 s ahead of the brokers'" in ahead.limits[0]
    unknown = BrokersTime(NOW, False, 20 * MIN)
    assert "at least 1200 s behind" in unknown.notes[0] and not unknown.limits
