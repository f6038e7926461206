"""The partitions of rows: explicit ones, keys, sticky partitions of unkeyed rows, round robin, CRC32, callables."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafka_sink.errors import ConfigError, DataError
from kafka_sink.formats.records.assembler import Assembler
from kafka_sink.formats.records.columns import NO_PARTITION, RecordColumns
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.routing import CustomPartitioner, PartitionView, Router
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from tests.support.slow_murmur2 import murmur2

FOUR = PartitionView(4, (0, 1, 2, 3))


def numbers(*given: float) -> Callable[[], float]:
    """A source of random numbers that returns these in turn, again and again."""
    turn = iter(range(10**9))
    return lambda: given[next(turn) % len(given)]


def router(
    partitioner: str | CustomPartitioner = "default",
    random_number: Callable[[], float] | None = None,
    sticky_bytes: int = 1000,
    ignores_keys: bool = False,
) -> Router:
    """Without `random_number` the sticky partitions of a topic with four partitions are 0, 1, 2, 3 in turn."""
    return Router(
        sticky_bytes=sticky_bytes,
        random_number=random_number or numbers(0.0, 0.25, 0.5, 0.75),
        partitioner=partitioner,
        ignores_keys=ignores_keys,
    )


def columns(keys: list[bytes | None], partitions: list[int | None] | None = None, value: bytes = b"v") -> RecordColumns:
    made = RecordColumns.from_rows(keys, [value] * len(keys))
    if partitions is None:
        return made
    return replace(made, partitions=np.array([NO_PARTITION if one is None else one for one in partitions], np.int32))


def java_partition(key: bytes, count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % count


def test_keys_go_where_java_puts_them_and_the_empty_key_is_a_key() -> None:
    keys: list[bytes | None] = [b"", b"a", b"user-17", b"x" * 40]
    assert router().route("t", columns(keys), FOUR).tolist() == [java_partition(key or b"", 4) for key in keys]


def test_partition_of_a_row_beats_key_and_partitioner() -> None:
    rows = columns([b"a", None, b"b"], [3, 2, None])
    assert router().route("t", rows, FOUR).tolist() == [3, 2, java_partition(b"b", 4)]
    assert router(lambda _topic, rows, _view: [1] * rows.row_count).route("t", rows, FOUR).tolist() == [3, 2, 1]
    assert router("round_robin").route("t", rows, FOUR).tolist() == [3, 2, 0]


def test_partition_that_the_topic_lacks_is_refused_by_row() -> None:
    with pytest.raises(DataError, match="row 2 names partition 4; topic t has 4") as caught:
        router().route("t", columns([None] * 3, [3, 3, 4]).slice(1, 3), FOUR)
    assert (caught.value.row, caught.value.column) == (2, "partition")


def test_unkeyed_rows_stay_until_the_next_would_not_fit_and_then_move_on() -> None:
    # 8 bytes of framing and 31 of value: 24 records and a batch header are 61 + 24 * 39 = 997 bytes.
    rows = columns([None] * 60, value=b"v" * 31)
    assert router().route("t", rows, FOUR).tolist() == [0] * 24 + [1] * 24 + [2] * 12


def test_a_stay_goes_on_in_the_next_call_and_each_topic_has_its_own() -> None:
    one = router()
    first = columns([None] * 10, value=b"v" * 31)
    assert set(one.route("t", first, FOUR).tolist()) == {0}
    assert set(one.route("other", first, FOUR).tolist()) == {1}
    assert one.route("t", columns([None] * 20, value=b"v" * 31), FOUR).tolist() == [0] * 14 + [2] * 6


@pytest.mark.parametrize("hours", [0, 1])
@pytest.mark.parametrize("value_bytes", [0, 7, 100, 900])
def test_a_stay_fills_exactly_one_batch_of_the_assembler(value_bytes: int, hours: int) -> None:
    rows = columns([None] * 200, value=b"v" * value_bytes)
    rows = replace(rows, timestamps=np.arange(200) * 3_600_000 * hours)
    partitions = router(random_number=numbers(*((index + 0.5) / 200 for index in range(200)))).route(
        "t", rows, PartitionView(200, tuple(range(200)))
    )
    assembler = Assembler(
        new_batch=ProducerBatch,
        batch_bytes_max=1000,
        request_bytes_max=2000,
        batch_records_max=None,
        compression=lambda _: make_compressor("none"),
    )
    closed = assembler.append("t", rows, partitions, now_ms=0, timestamp_ms=0, token=None) + assembler.close_all()
    assert Counter(batch.partition for batch in closed) == dict.fromkeys(set(partitions.tolist()), 1)


def test_every_record_gets_its_own_stay_with_a_batch_size_of_zero() -> None:
    assert router(sticky_bytes=0).route("t", columns([None] * 5), FOUR).tolist() == [0, 1, 2, 3, 0]


def test_null_keys_among_keys_stick_and_keyed_rows_do_not_use_up_the_stay() -> None:
    keys: list[bytes | None] = [None if index % 2 else b"k" * 500 for index in range(20)]
    partitions = router().route("t", columns(keys), FOUR).tolist()
    assert partitions[1::2] == [0] * 10
    assert partitions[::2] == [java_partition(b"k" * 500, 4)] * 10


def test_rows_with_a_partition_do_not_use_up_the_stay() -> None:
    rows = columns([None] * 40, [3 if index < 30 else None for index in range(40)], value=b"v" * 31)
    assert router().route("t", rows, FOUR).tolist() == [3] * 30 + [0] * 10


def test_of_rows_with_and_without_partition_and_key_those_without_either_use_up_the_stay() -> None:
    keys: list[bytes | None] = [b"k" * 500] * 10 + [None, b"a"] * 5
    rows = columns(keys, [3] * 10 + [None] * 10)
    assert router().route("t", rows, FOUR).tolist() == [3] * 10 + [0, java_partition(b"a", 4)] * 5


def test_ignored_keys_are_placed_like_no_keys() -> None:
    assert router(ignores_keys=True).route("t", columns([b"a", b"b", b"c"]), FOUR).tolist() == [0, 0, 0]


def test_unavailable_partitions_get_no_unkeyed_rows() -> None:
    one = router(random_number=numbers(0.0, 0.99))
    assert one.route("t", columns([None]), PartitionView(4, (1, 2))).tolist() == [1]
    # The sticky partition is no longer available: the router chooses another one at once.
    assert one.route("t", columns([None]), PartitionView(4, (2, 3))).tolist() == [3]
    assert one.route("t", columns([None]), PartitionView(4, ())).tolist() == [3]


def test_a_stay_ends_when_the_topic_has_fewer_partitions() -> None:
    one = router(random_number=numbers(0.99, 0.0))
    assert one.route("t", columns([None]), FOUR).tolist() == [3]
    assert one.route("t", columns([None]), PartitionView(2, ())).tolist() == [0]


def test_placement_over_many_stays_is_even() -> None:
    generator = np.random.default_rng(7)
    one = router(random_number=generator.random, sticky_bytes=0)
    counts = Counter(one.route("t", columns([None] * 40_000), FOUR).tolist())
    assert all(abs(counts[partition] - 10_000) < 400 for partition in range(4))


def test_adaptive_placement_weighs_by_queue_length() -> None:
    """Kafka's example: queues of 0, 3 and 1 batches get shares of 4, 1 and 3."""
    generator = np.random.default_rng(8)
    one = router(random_number=generator.random, sticky_bytes=0)
    view = PartitionView(3, (0, 1, 2))
    counts = Counter(one.route("t", columns([None] * 40_000), view, {1: 3, 2: 1}).tolist())
    for partition, share in ((0, 4), (1, 1), (2, 3)):
        assert abs(counts[partition] - 5000 * share) < 500


@pytest.mark.parametrize(("number", "partition"), [(0.0, 0), (0.49, 0), (0.51, 1), (0.62, 1), (0.63, 2), (0.999, 2)])
def test_adaptive_choice_at_the_bounds_of_the_shares(number: float, partition: int) -> None:
    one = router(random_number=lambda: number)
    assert one.route("t", columns([None]), PartitionView(3, (0, 1, 2)), {1: 3, 2: 1}).tolist() == [partition]


def test_adaptive_placement_keeps_away_from_unavailable_partitions() -> None:
    one = router(random_number=numbers(*(index / 100 for index in range(100))), sticky_bytes=0)
    chosen = one.route("t", columns([None] * 100), PartitionView(3, (1, 2)), {0: 0, 1: 3, 2: 1})
    assert Counter(chosen.tolist()) == {1: 25, 2: 75}


def test_queues_are_read_once_for_all_stays_of_a_call() -> None:
    """A topic may have thousands of partitions, and the rows of one call a hundred stays."""
    asked: Counter[int] = Counter()

    class Loads(dict[int, int]):
        def get(self, partition: int, default: Any = None) -> Any:
            asked[partition] += 1
            return super().get(partition, default)

    generator = np.random.default_rng(9)
    one = router(random_number=generator.random, sticky_bytes=0)
    chosen = one.route("t", columns([None] * 200), PartitionView(1000, tuple(range(1000))), Loads({7: 5}))
    assert len(set(chosen.tolist())) > 100
    assert asked == dict.fromkeys(range(1000), 1)
    # What is queued by the next call counts in it.
    one.route("t", columns([None] * 200), PartitionView(1000, tuple(range(1000))), Loads({8: 1}))
    assert asked == dict.fromkeys(range(1000), 2)


def test_round_robin_deals_in_turn_over_calls_and_regardless_of_keys() -> None:
    one = router("round_robin")
    assert one.route("t", columns([b"a"] * 3), FOUR).tolist() == [0, 1, 2]
    assert one.route("t", columns([None] * 3), FOUR).tolist() == [3, 0, 1]
    assert one.route("other", columns([None]), FOUR).tolist() == [0]
    assert one.route("t", columns([None] * 2), PartitionView(4, (1, 3))).tolist() == [1, 3]


def test_consistent_random_places_keys_as_librdkafka_does() -> None:
    keys: list[bytes | None] = [b"k%d" % index for index in range(200)] + [b"x" * 1000]
    rows = columns(keys)
    for count in (1, 7, 64):
        expected = [zlib.crc32(key or b"") % count for key in keys]
        assert router("consistent_random").route("t", rows, PartitionView(count, ())).tolist() == expected


def test_consistent_random_sends_null_and_empty_keys_anywhere() -> None:
    one = router("consistent_random", random_number=lambda: 0.5)
    keyed = zlib.crc32(b"key") % 4
    assert one.route("t", columns([None, b"", b"key", None]), FOUR).tolist() == [2, 2, keyed, 2]


def test_callable_sees_whole_columns_and_its_answer_counts() -> None:
    seen: list[Any] = []

    def by_length(topic: str, rows: RecordColumns, view: PartitionView) -> Any:
        assert rows.key is not None
        seen.append((topic, rows.row_count, view.partition_count))
        return rows.key.lengths % view.partition_count

    chosen = router(by_length).route("t", columns([b"a", b"bb", b"ccccc"]), FOUR)
    assert (chosen.tolist(), chosen.dtype, seen) == ([1, 2, 1], np.int32, [("t", 3, 4)])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([0, 4], "the partitioner chose 4 for row 1; topic t has 4 partitions"),
        ([-1, 0], "the partitioner chose -1 for row 0"),
        ([0], "it must give one integer for each of 2 rows"),
        ([0.5, 1.0], "it must give one integer for each of 2 rows"),
    ],
)
def test_wrong_answer_of_a_callable_is_refused(answer: list[Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        router(lambda *_: answer).route("t", columns([None, None]), FOUR)


def test_a_callable_is_not_refused_for_a_row_that_names_its_partition() -> None:
    one = router(lambda *_: [9, 1, 4])
    assert one.route("t", columns([None] * 3, [3, None, 2]), FOUR).tolist() == [3, 1, 2]
    with pytest.raises(DataError, match="the partitioner chose 4 for row 3"):
        one.route("t", columns([None] * 4, [0, 3, None, None]).slice(1, 4), FOUR)


def test_unknown_partitioner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="known are default, round_robin, random, consistent_random"):
        router("murmur")


def test_no_rows_are_routed_nowhere() -> None:
    empty = RecordColumns.from_arrow(pa.table({"value": pa.array([], pa.binary()), "key": pa.array([], pa.binary())}))
    for partitioner in ("default", "round_robin", "random", "consistent_random"):
        assert router(partitioner).route("t", empty, FOUR).tolist() == []


def test_random_draws_a_partition_for_every_row_regardless_of_keys_and_among_the_available() -> None:
    one = router("random", numbers(0.0, 0.999, 0.5))
    rows = columns([b"same", b"same", None])
    assert one.route("t", rows, FOUR).tolist() == [0, 3, 2]
    assert one.route("t", rows, PartitionView(4, (1, 3))).tolist() == [1, 3, 3]
    assert one.route("t", columns([b"a", b"b", b"c"], [2, None, 2]), FOUR).tolist() == [2, 0, 2]


def test_no_partitions_are_drawn_for_no_rows() -> None:
    assert router("random").route("t", columns([]), FOUR).tolist() == []


@pytest.mark.parametrize(
    ("partitioner", "expected"), [("default", [0] * 4), ("round_robin", [0, 1, 2, 3]), ("random", [0, 1, 2, 3])]
)
def test_without_any_leader_rows_without_a_key_still_have_partitions_of_the_topic(
    partitioner: str, expected: list[int]
) -> None:
    assert router(partitioner).route("t", columns([None] * 4), PartitionView(4, ())).tolist() == expected
