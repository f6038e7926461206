"""A replay as a decision: which letters become records, in which transactions, and where it goes on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit.replay import NO_LETTER, OTHER, Replay, default_name
from kafka_sink.commit.replay_progress import ReplayProgress, decode_progress, encode_progress
from kafka_sink.errors import ConfigError
from kafka_sink.formats.records.dead_letter import ERROR, HEADER_PREFIX, NO_PARTITION, PARTITION, REASON
from kafka_sink.formats.records.scalar import Record
from kafka_sink.options.sink_table import SINK_ID

SMALL = {"reason": ("too small",)}
HERE, THERE = "this-cluster", "the-old-cluster"
REPLAY = Replay("again", "dead", "orders", SMALL)
FRESH = ReplayProgress("again", "dead", "id", "orders", SMALL, cluster_id=HERE)


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
    plan = REPLAY.plan(
        {"again": known, "other": other, "older": elsewhere}, "id", {0: (2, 9), 1: (3, 4)}, cluster_id=HERE
    )
    assert (plan.progress, plan.extents, plan.others) == (known, {0: (5, 9), 1: (3, 4)}, [other])
    assert plan.left_count == 5


def test_a_topic_that_was_created_again_has_other_letters() -> None:
    known = replace(FRESH, source_id="older", next_offsets={0: 5})
    assert REPLAY.resume(known, "id", cluster_id=HERE) == FRESH
    plan = REPLAY.plan({"again": known}, "id", {0: (0, 9)}, cluster_id=HERE)
    assert (plan.extents, plan.begins_anew) == ({0: (0, 9)}, True)
    with pytest.raises(ConfigError, match="ends at offset 4, but earlier runs of replay again have read up to 5"):
        REPLAY.plan({"again": replace(known, source_id="id")}, "id", {0: (0, 4)}, cluster_id=HERE)


@pytest.mark.parametrize(("before", "now", "kept"), [("", "id", "id"), ("id", "", "id"), ("", "", "")])
def test_brokers_that_begin_or_cease_to_tell_topic_ids_make_nothing_new(before: str, now: str, kept: str) -> None:
    known = replace(FRESH, source_id=before, next_offsets={0: 5}, written_count=5)
    plan = REPLAY.plan({"again": known, "other": replace(known, name="other")}, now, {0: (0, 9)}, cluster_id=HERE)
    assert (plan.progress, plan.extents, plan.begins_anew) == (replace(known, source_id=kept), {0: (5, 9)}, False)
    assert [other.name for other in plan.others] == ["other"]


@pytest.mark.parametrize("source_id", ["id", "of the other cluster", ""])
def test_progress_that_was_copied_from_another_cluster_is_refused_and_the_text_names_the_way_on(source_id: str) -> None:
    """A mirrored topic has another id, and letters that were replayed before may have become records here, too."""
    copied = replace(FRESH, source_id=source_id, cluster_id=THERE, next_offsets={0: 5}, written_count=4)
    with pytest.raises(ConfigError) as caught:
        REPLAY.plan({"again": copied}, "id", {0: (0, 9)}, cluster_id=HERE)
    words = "replay --bootstrap-server HOST:PORT --from dead --to orders --filter 'reason=too small' --name "
    assert f"has run in the Kafka cluster {THERE}, and this one is {HERE}: " in str(caught.value)
    assert f"`pykafka-sink {words}again-{HERE}` begins at the first letter" in str(caught.value)
    # Under the new name the replay of the other cluster is told, and goes on when it is back there.
    plan = replace(REPLAY, name="next").plan({"again": copied}, "id", {0: (0, 9)}, cluster_id=HERE)
    assert (plan.others, plan.extents) == ([copied], {0: (0, 9)})
    assert REPLAY.plan({"again": copied}, source_id, {0: (0, 9)}, cluster_id=THERE).progress == copied


def test_the_name_for_another_cluster_is_one_whatever_that_is_called() -> None:
    copied = replace(FRESH, name="n" * 200, cluster_id=THERE)
    with pytest.raises(ConfigError) as caught:
        replace(REPLAY, name="n" * 200).resume(copied, "id", cluster_id=f"{'of us' * 90}\x1b")
    (name,) = re.findall(r"--name (\S+)`", str(caught.value))
    assert SINK_ID.parse("--name", name) == name and str(caught.value).isprintable()


@pytest.mark.parametrize(("before", "now", "kept"), [("", HERE, HERE), (HERE, "", HERE), ("", "", "")])
def test_progress_without_a_cluster_goes_on_and_learns_it(before: str, now: str, kept: str) -> None:
    """That of an earlier release, or of brokers that tell none."""
    known = replace(FRESH, cluster_id=before, next_offsets={0: 5}, written_count=5)
    plan = REPLAY.plan({"again": known}, "id", {0: (0, 9)}, cluster_id=now)
    assert (plan.progress, plan.extents) == (replace(known, cluster_id=kept), {0: (5, 9)})


def test_progress_of_an_earlier_release_can_be_read_and_newer_progress_by_an_earlier_release() -> None:
    progress = replace(FRESH, next_offsets={0: 5}, written_count=5)
    content = json.loads(encode_progress(progress))
    assert decode_progress(encode_progress(progress)) == progress and content["version"] == 1
    del content["cluster"]
    assert decode_progress(json.dumps(content).encode()) == replace(progress, cluster_id="")


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
        REPLAY.resume(replace(FRESH, source_id=source_id, **change), "id", cluster_id=HERE)


def test_the_same_arguments_have_the_same_name() -> None:
    assert default_name("dead", "orders", SMALL) == default_name("dead", "orders", dict(SMALL))
    assert default_name("dead", "orders", SMALL) != default_name("dead", "orders", {})
