"""Labelled batch writes under one sink.id at the same time: a backfill of many days, and one day twice.

The assumptions: a scheduler starts as many days at once as it likes, each with its own driver or all in one, and
sometimes the same day twice. Labels know nothing of each other; two runs of one label know of each other.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from kafka_sink.errors import CommitAborted, KafkaSinkError
from tests.chaos.bare_export import ROWS, BareExport
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tools.foreign_reader import read_topic

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    NEWEST_MAINLY,
    pytest.mark.usefixtures("own_ledger"),
]


def settings_of_day(stream: BareStream, day: str) -> dict[str, str]:
    return {**stream.settings, "sink.id": stream.sink_id, "batch.id": day}


@pytest.mark.parametrize("day_count", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_a_backfill_of_many_days_at_once_is_delivered_and_no_driver_is_refused(
    direct_stream: BareStream, day_count: int
) -> None:
    """All drivers decide at the same time: each has planned and written before the first one commits."""
    with ExitStack() as stack:
        days = [
            stack.enter_context(BareExport(settings_of_day(direct_stream, f"2026-01-{number:02}"), tasks=1))
            for number in range(day_count)
        ]
        for each in days:
            each.plan()
            each.write_tasks()
        for each in days:
            each.begin_commit()
        for each in days:
            each.end_commit()
        assert [line for each in days for line in each.log] == []
    seen = Counter(record.value for record in read_topic(direct_stream.kafka.bootstrap_servers, direct_stream.topic))
    assert len(seen) == ROWS and set(seen.values()) == {day_count}


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_written_at_once", [False, True], ids=["commits at once", "from the first row on"])
def test_one_day_twice_at_once_is_there_once_and_no_text_speaks_of_another_query(
    direct_stream: BareStream, is_written_at_once: bool, rounds: int
) -> None:
    ends = Counter[str]()
    for number in range(rounds):
        settings = settings_of_day(direct_stream, f"day-{number}")
        with BareExport(settings) as first, BareExport(settings) as second:
            for each in (first, second):
                each.plan()
            for each in (first, second):
                if not is_written_at_once:
                    each.write_tasks()
            for each in (first, second):
                each.begin_all() if is_written_at_once else each.begin_commit()
            for each in (first, second):
                ends[end_of(each)] += 1
    seen = Counter(record.value for record in read_topic(direct_stream.kafka.bootstrap_servers, direct_stream.topic))
    assert len(seen) == ROWS and set(seen.values()) == {rounds}
    assert direct_stream.open() == []
    print(f"\n{direct_stream.kafka.version}: {dict(ends)}")


def end_of(export: BareExport) -> str:
    try:
        export.end_commit()
    except KafkaSinkError as error:
        text = str(error)
        assert "another query" not in text and "the other query" not in text, text
        if isinstance(error, CommitAborted):
            assert "Nothing of it is visible" in text
        export.abort()
        return type(error).__name__
    return "already" if any("was delivered by an earlier run" in line for line in export.log) else "delivered"
