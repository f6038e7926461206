"""A replay as a decision: which letters become records, in which transactions, and where it goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit.replay import NO_LETTER, OTHER, Replay, default_name
from kafka_sink.commit.replay_progress import ReplayProgress
from kafka_sink.errors import ConfigError
from kafka_sink.formats.records.dead_letter import ERROR, HEADER_PREFIX, NO_PARTITION, PARTITION, REASON
from kafka_sink.formats.records.scalar import Record

SMALL = {"reason": ("too small",)}
REPLAY = Replay("again", "dead", "orders", SMALL)
FRESH = ReplayProgress("again", "dead", "id", "orders", SMALL)


def letter(reason: str = "too small") -> Record:
    own = ((HEADER_PREFIX + ERROR, b"wrong"), (HEADER_PREFIX + REASON, reason.encode()))
    return Record(7, b"k", b"v", (("trace", b"1"), *own))


def test_a_transaction_has_at_most_so_many_letters_and_the_progress_behind_them() -> None:
    fetched = [([(offset, letter()) for offset in range(5)], 6)]
    steps = list(REPLAY.steps(FRESH, 0, fetched, 2))
    assert [[each.offset for each in step.records] for step in steps] == [[0, 1], [2, 3], [4]]
    assert [step.next_offset for step in steps] == [2, 4, 6]
    assert [step.progress.written_count for step in steps] == [2, 4, 5]
    assert steps[0].records[0].record == replace(letter(), headers=(("trace", b"1"),))


def test_letters_that_are_left_out_have_no_transaction_before_the_end_of_their_partition() -> None:
    fetched = [
        ([(0, letter("other")), (1, Record(0, None, b""))], 2),
        ([(2, letter())], 3),
        ([(3, letter("other"))], 9),
    ]
    steps = list(REPLAY.steps(FRESH, 4, fetched, 100))
    assert [(len(step.records), step.is_written) for step in steps] == [(0, False), (1, True), (0, False), (0, True)]
    assert steps[-1].progress.left_out == {OTHER: 2, NO_LETTER: 1}
    assert steps[-1].progress.next_offsets == {4: 9}


@pytest.mark.parametrize(
    ("text", "partition"), [(None, None), ("2", 2), ("", None), ("-1", None), ("two", None), ("9" * 30, None)]
)
def test_a_row_that_named_a_partition_is_told_with_it(text: str | None, partition: int | None) -> None:
    """Other clients may write whatever they like into the header."""
    named = () if text is None else ((HEADER_PREFIX + PARTITION, text.encode()),)
    lacking = letter(NO_PARTITION)
    given = [replace(letter(), headers=letter().headers + named), replace(lacking, headers=lacking.headers + named)]
    chosen, _ = replace(REPLAY, filters={}).split_letters(list(enumerate(given)))
    assert [(each.partition, each.lacked) for each in chosen] == [(partition, False), (partition, True)]


def test_nothing_fetched_is_nothing_written() -> None:
    assert list(REPLAY.steps(FRESH, 0, [], 2)) == []


def test_a_run_goes_on_where_the_last_one_ended_and_names_others_of_the_same_letters() -> None:
    known = replace(FRESH, next_offsets={0: 5}, written_count=5)
    other = replace(known, name="other", target="elsewhere")
    elsewhere = replace(other, name="of another topic", source_id="older")
    plan = REPLAY.plan({"again": known, "other": other, "older": elsewhere}, "id", {0: (2, 9), 1: (3, 4)})
    assert (plan.progress, plan.extents, plan.others) == (known, {0: (5, 9), 1: (3, 4)}, [other])
    assert plan.left_count == 5


def test_a_topic_that_was_created_again_has_other_letters() -> None:
    known = replace(FRESH, source_id="older", next_offsets={0: 5})
    assert REPLAY.resume(known, "id") == FRESH
    plan = REPLAY.plan({"again": known}, "id", {0: (0, 9)})
    assert (plan.extents, plan.begins_anew) == ({0: (0, 9)}, True)
    with pytest.raises(ConfigError, match="ends at offset 4, but earlier runs of replay again have read up to 5"):
        REPLAY.plan({"again": replace(known, source_id="id")}, "id", {0: (0, 4)})


@pytest.mark.parametrize(("before", "now", "kept"), [("", "id", "id"), ("id", "", "id"), ("", "", "")])
def test_brokers_that_begin_or_cease_to_tell_topic_ids_make_nothing_new(before: str, now: str, kept: str) -> None:
    known = replace(FRESH, source_id=before, next_offsets={0: 5}, written_count=5)
    plan = REPLAY.plan({"again": known, "other": replace(known, name="other")}, now, {0: (0, 9)})
    assert (plan.progress, plan.extents, plan.begins_anew) == (replace(known, source_id=kept), {0: (5, 9)}, False)
    assert [other.name for other in plan.others] == ["other"]


@pytest.mark.parametrize("source_id", ["id", "older", ""])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"filters": {}}, "one from dead to orders with other filters: choose another --name"),
        ({"source": "dead-of-others"}, "one from dead-of-others to orders: choose another --name"),
        ({"target": "payments"}, "one from dead to payments: choose another --name"),
    ],
)
def test_one_name_is_one_replay(change: dict[str, Any], text: str, source_id: str) -> None:
    """Progress under that name is of other letters. Whoever replaced it would write those again."""
    with pytest.raises(ConfigError, match=text):
        REPLAY.resume(replace(FRESH, source_id=source_id, **change), "id")


def test_the_same_arguments_have_the_same_name() -> None:
    assert default_name("dead", "orders", SMALL) == default_name("dead", "orders", dict(SMALL))
    assert default_name("dead", "orders", SMALL) != default_name("dead", "orders", {})
