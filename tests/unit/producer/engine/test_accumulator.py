"""Queues of closed batches: order, back-off, fairness, the content of requests; and the state of one batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest

from kafka_sink.errors import LocalProtocolError
from kafka_sink.formats.records.batch import EncodedBatch, Share, seal
from kafka_sink.formats.records.compression import CODEC_NAMES, make_compressor
from kafka_sink.formats.records.scalar import Record, decode_batch, split
from kafka_sink.kafka.client.cluster import ClusterView, Endpoint, PartitionLeader, TopicView
from kafka_sink.producer.engine.accumulator import Accumulator
from kafka_sink.producer.engine.producer_batch import NO_IDENTITY, ProducerBatch, ProducerIdentity
from tests.unit.producer.engine.driver import START_MS, encoded, new_batch

NOW_MS = START_MS
LARGE = 2**20
IDENTITY = ProducerIdentity(7, 0)


def cluster(*leaders: int, leader_epoch: int = 0) -> ClusterView:
    """Topic "t", one partition per given leader; leader -1 is none."""
    partitions = {index: PartitionLeader(leader, leader_epoch) for index, leader in enumerate(leaders)}
    brokers = {leader: Endpoint("host", 9092) for leader in leaders if leader >= 0}
    return ClusterView(brokers=brokers, topics={"t": TopicView("t", partitions=partitions)})


def filled(*partitions: int) -> tuple[Accumulator, list[ProducerBatch]]:
    accumulator = Accumulator({})
    batches = [new_batch(partition) for partition in partitions]
    for batch in batches:
        accumulator.append(batch)
    return accumulator, batches


class Readiness(NamedTuple):
    node_ids: list[int]
    leaderless_topics: list[str]
    next_ready_ms: int | None


def readiness_of(accumulator: Accumulator, now_ms: int, view: ClusterView) -> Readiness:
    if accumulator.cluster is not view:
        accumulator.regroup(view)
    return Readiness(*accumulator.readiness(now_ms))


def drain(
    accumulator: Accumulator,
    view: ClusterView,
    *,
    node_id: int = 0,
    now_ms: int = NOW_MS,
    bytes_max: int = LARGE,
    may_send: Callable[[ProducerBatch], bool] = lambda batch: True,
) -> list[ProducerBatch]:
    if accumulator.cluster is not view:
        accumulator.regroup(view)
    return list(accumulator.drain(now_ms, node_id, bytes_max, may_send).values())


def sent_once(batch: ProducerBatch, leader: tuple[int, int] = (0, 0), *, backoff_ms: int = 100) -> ProducerBatch:
    """Puts the batch into the state after a failed send."""
    batch.on_sent(leader)
    batch.on_answered(is_definite=True)
    batch.retry_at_ms = NOW_MS + backoff_ms
    return batch


def numbered(base_sequence: int, record_count: int = 1) -> ProducerBatch:
    batch = new_batch(0, record_count)
    batch.base_sequence, batch.identity, batch.attempts = base_sequence, IDENTITY, 1
    return batch


# ---- readiness -----------------------------------------------------------------------------------------------------


def test_a_closed_batch_is_ready_at_once() -> None:
    accumulator, _ = filled(0)
    readiness = readiness_of(accumulator, NOW_MS, cluster(0))
    assert (readiness.node_ids, readiness.leaderless_topics, readiness.next_ready_ms) == ([0], [], None)


def test_an_empty_accumulator_has_nothing_ready_and_nothing_to_wait_for() -> None:
    readiness = readiness_of(Accumulator({}), NOW_MS, cluster(0))
    assert (readiness.node_ids, readiness.leaderless_topics, readiness.next_ready_ms) == ([], [], None)


def test_a_partition_without_a_leader_names_its_topic_and_no_node() -> None:
    accumulator, _ = filled(0, 1)
    readiness = readiness_of(accumulator, NOW_MS, cluster(0, -1))
    assert readiness.node_ids == [0]
    assert readiness.leaderless_topics == ["t"]


def test_a_topic_that_is_not_known_yet_is_leaderless() -> None:
    accumulator = Accumulator({})
    accumulator.append(new_batch(topic="new"))
    assert readiness_of(accumulator, NOW_MS, cluster(0)).leaderless_topics == ["new"]


def test_the_next_moment_is_the_earliest_end_of_a_back_off_over_all_partitions() -> None:
    accumulator = Accumulator({})
    for partition, backoff_ms in ((0, 300), (1, 200), (2, 400)):
        accumulator.requeue(sent_once(new_batch(partition), backoff_ms=backoff_ms))
    readiness = readiness_of(accumulator, NOW_MS, cluster(0, 0, 0))
    assert (readiness.node_ids, readiness.next_ready_ms) == ([], NOW_MS + 200)


def test_a_back_off_behind_a_missing_leader_is_no_reason_to_wake_up() -> None:
    accumulator = Accumulator({})
    accumulator.requeue(sent_once(new_batch()))
    readiness = readiness_of(accumulator, NOW_MS, cluster(-1))
    assert (readiness.leaderless_topics, readiness.next_ready_ms) == (["t"], None)


@pytest.mark.parametrize(("waited_ms", "is_ready"), [(0, False), (99, False), (100, True)])
def test_a_batch_that_failed_is_ready_exactly_when_its_back_off_ends(waited_ms: int, is_ready: bool) -> None:
    accumulator = Accumulator({})
    batch = sent_once(new_batch(), backoff_ms=100)
    accumulator.requeue(batch)
    readiness = readiness_of(accumulator, NOW_MS + waited_ms, cluster(0))
    assert readiness.node_ids == ([0] if is_ready else [])
    assert drain(accumulator, cluster(0), now_ms=NOW_MS + waited_ms) == ([batch] if is_ready else [])


def test_batches_behind_one_that_backs_off_wait_with_it() -> None:
    accumulator, _ = filled(0)
    accumulator.requeue(sent_once(new_batch()))
    assert readiness_of(accumulator, NOW_MS, cluster(0)).node_ids == []
    assert drain(accumulator, cluster(0)) == []


def test_a_batch_with_a_number_may_go_before_the_head_and_a_new_one_may_not() -> None:
    accumulator = Accumulator({})
    refused, doubtful, fresh = numbered(0), numbered(1), new_batch()
    accumulator.append(fresh)
    accumulator.requeue(doubtful)
    accumulator.requeue(refused)
    view = cluster(0)
    assert drain(accumulator, view, may_send=lambda batch: batch is fresh) == []
    assert drain(accumulator, view, may_send=lambda batch: batch is not refused) == [doubtful]
    assert drain(accumulator, view, may_send=lambda batch: batch is refused) == [refused]
    assert drain(accumulator, view, may_send=lambda batch: batch is fresh) == [fresh]


def test_a_back_off_of_one_partition_does_not_hold_up_another() -> None:
    accumulator, (other,) = filled(1)
    accumulator.requeue(sent_once(new_batch(0)))
    readiness = readiness_of(accumulator, NOW_MS, cluster(0, 0))
    assert (readiness.node_ids, readiness.next_ready_ms) == ([0], NOW_MS + 100)
    assert drain(accumulator, cluster(0, 0)) == [other]


@pytest.mark.parametrize(
    ("leader_id", "leader_epoch", "is_ready"),
    [(1, 1, True), (0, 1, True), (0, 0, False)],
    ids=["another node", "same node elected again", "nothing changed"],
)
def test_a_new_leader_cuts_the_back_off_short(leader_id: int, leader_epoch: int, is_ready: bool) -> None:
    accumulator = Accumulator({})
    batch = sent_once(new_batch(), (0, 0))
    accumulator.requeue(batch)
    view = cluster(leader_id, leader_epoch=leader_epoch)
    assert readiness_of(accumulator, NOW_MS, view).node_ids == ([leader_id] if is_ready else [])
    assert drain(accumulator, view, node_id=leader_id) == ([batch] if is_ready else [])


def test_the_back_off_is_cut_short_by_a_leader_newer_than_that_of_the_last_send_and_not_of_the_first() -> None:
    accumulator = Accumulator({})
    batch = sent_once(sent_once(new_batch(), (0, 0)), (1, 1))
    accumulator.requeue(batch)
    assert drain(accumulator, cluster(1, leader_epoch=1), node_id=1) == []
    assert drain(accumulator, cluster(0, leader_epoch=2), node_id=0) == [batch]


# ---- draining ------------------------------------------------------------------------------------------------------


def test_one_batch_of_each_partition_goes_into_a_request() -> None:
    accumulator, (first, second, third) = filled(0, 0, 1)
    assert drain(accumulator, cluster(0, 0)) == [first, third]
    assert drain(accumulator, cluster(0, 0)) == [second]
    assert accumulator.batch_count == 0


def test_only_partitions_of_the_asked_node_are_drained() -> None:
    accumulator, (zero, one) = filled(0, 1)
    assert drain(accumulator, cluster(0, 1), node_id=1) == [one]
    assert drain(accumulator, cluster(0, 1), node_id=0) == [zero]


def test_a_node_that_leads_nothing_drains_nothing() -> None:
    accumulator, _ = filled(0, 1)
    assert drain(accumulator, cluster(0, 0), node_id=5) == []
    assert accumulator.batch_count == 2


def test_a_request_holds_as_many_batches_as_fit() -> None:
    accumulator, batches = filled(0, 1, 2)
    size = batches[0].size
    assert drain(accumulator, cluster(0, 0, 0), bytes_max=2 * size) == batches[:2]
    assert drain(accumulator, cluster(0, 0, 0), bytes_max=2 * size) == batches[2:]


def test_a_batch_larger_than_a_request_goes_alone() -> None:
    accumulator, (large, other) = filled(0, 1)
    assert drain(accumulator, cluster(0, 0), bytes_max=10) == [large]
    assert drain(accumulator, cluster(0, 0), bytes_max=10) == [other]


def test_partitions_are_drained_in_turn() -> None:
    accumulator, _ = filled(*[0] * 4, *[1] * 4, *[2] * 4)
    view = cluster(0, 0, 0)
    drained = [drain(accumulator, view, bytes_max=1)[0].partition for _ in range(12)]
    assert drained == [0, 1, 2] * 4


def test_no_partition_starves_beside_busy_ones_that_never_run_dry() -> None:
    accumulator, _ = filled(0, 1, 2, 3)
    view = cluster(0, 0, 0, 0)
    drained = []
    for _ in range(40):
        (batch,) = drain(accumulator, view, bytes_max=1)
        drained.append(batch.partition)
        accumulator.append(new_batch(batch.partition))
    assert {partition: drained.count(partition) for partition in range(4)} == dict.fromkeys(range(4), 10)


def test_each_node_keeps_its_own_turn() -> None:
    accumulator, _ = filled(*[0, 1, 2, 3] * 2)
    view = cluster(0, 0, 1, 1)
    turns = [drain(accumulator, view, node_id=node_id, bytes_max=1)[0].partition for node_id in (0, 1, 0, 1)]
    assert turns == [0, 2, 1, 3]


def test_a_partition_whose_head_may_not_go_is_left_out_and_keeps_its_order() -> None:
    accumulator, (first, second, other) = filled(0, 0, 1)
    assert drain(accumulator, cluster(0, 0), may_send=lambda batch: batch is not first) == [other]
    assert list(accumulator) == [first, second]


# ---- requeueing ----------------------------------------------------------------------------------------------------


def test_without_sequences_a_batch_comes_back_to_the_front() -> None:
    accumulator, (first, second) = filled(0, 0)
    assert drain(accumulator, cluster(0)) == [first]
    accumulator.requeue(first)
    assert list(accumulator) == [first, second]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_numbered_batches_come_back_in_the_order_of_their_sequences_whoever_fails_first(order: tuple[int, ...]) -> None:
    accumulator, (unnumbered,) = filled(0)
    batches = [numbered(0), numbered(1), numbered(2)]
    for index in order:
        accumulator.requeue(batches[index])
    assert list(accumulator) == [*batches, unnumbered]


def test_the_order_holds_across_the_wrap_of_the_sequence() -> None:
    accumulator = Accumulator({})
    last, first = numbered(2**31 - 1), numbered(0)
    accumulator.requeue(first)
    accumulator.requeue(last)
    assert list(accumulator) == [last, first]


def test_parts_of_a_split_batch_take_its_place_in_order() -> None:
    accumulator = Accumulator({})
    behind, parts = numbered(4), [numbered(0, 2), numbered(2, 2)]
    accumulator.requeue(behind)
    for part in reversed(parts):
        accumulator.requeue(part)
    assert list(accumulator) == [*parts, behind]


def test_parts_without_sequences_go_to_the_front_in_order() -> None:
    accumulator, (behind,) = filled(0)
    parts = [new_batch(), new_batch(), new_batch()]
    for part in reversed(parts):
        accumulator.requeue(part)
    assert list(accumulator) == [*parts, behind]


# ---- giving up -----------------------------------------------------------------------------------------------------


def test_expired_batches_are_taken_out_wherever_they_stand() -> None:
    accumulator = Accumulator({})
    batches = [new_batch(opened_ms=opened_ms) for opened_ms in (30, 10, 20)]
    for batch in batches:
        accumulator.append(batch)
    assert accumulator.take_all(20) == batches[1:]
    assert list(accumulator) == batches[:1]


def test_expiry_counts_from_the_first_record_and_not_from_the_last_try() -> None:
    accumulator = Accumulator({})
    batch = sent_once(new_batch(opened_ms=NOW_MS - 1000))
    accumulator.requeue(batch)
    assert accumulator.take_all(NOW_MS - 1001) == []
    assert accumulator.take_all(NOW_MS - 1000) == [batch]


def test_a_partition_that_expired_completely_is_no_longer_ready() -> None:
    accumulator, batches = filled(0, 0)
    assert accumulator.take_all(NOW_MS) == batches
    assert readiness_of(accumulator, NOW_MS, cluster(0)).node_ids == []


def test_taking_all_leaves_nothing() -> None:
    accumulator, batches = filled(0, 1)
    assert accumulator.take_all() == batches
    assert accumulator.batch_count == 0
    assert drain(accumulator, cluster(0, 0)) == []


def test_queue_loads_count_what_waits_per_partition() -> None:
    accumulator, _ = filled(0, 0, 1)
    assert accumulator.loads == {"t": {0: 2, 1: 1}}
    drain(accumulator, cluster(0, 0))
    assert accumulator.loads == {"t": {0: 1}}


# ---- one batch -----------------------------------------------------------------------------------------------------


LEADER = (0, 0)


def records_of(batch: EncodedBatch) -> tuple[Record, ...]:
    return decode_batch(seal(batch) + batch.payload).records


def rows_of(batch: ProducerBatch) -> list[tuple[object, list[int], int]]:
    return [(share.token, [int(row) for row in share.rows], share.first_record) for share in batch.shares]


def halves(batch: ProducerBatch) -> list[ProducerBatch]:
    return batch.split(split(batch.encoded, make_compressor("none")))


# ---- batches that may be in the log --------------------------------------------------------------------------------


def test_a_batch_that_was_never_sent_is_certainly_not_in_the_log() -> None:
    batch = new_batch()
    assert (batch.may_be_in_log, batch.is_on_wire, batch.attempts) == (False, False, 0)


def test_a_batch_on_the_wire_may_be_in_the_log() -> None:
    batch = new_batch()
    batch.on_sent(LEADER)
    assert (batch.may_be_in_log, batch.is_on_wire, batch.attempts, batch.sent_to) == (True, True, 1, LEADER)


def test_a_definite_answer_takes_the_doubt_of_its_send_away() -> None:
    batch = new_batch()
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=True)
    assert (batch.may_be_in_log, batch.is_on_wire) == (False, False)


def test_a_definite_answer_to_the_second_send_leaves_the_doubt_of_the_first() -> None:
    batch = new_batch()
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=False)
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=True)
    assert (batch.may_be_in_log, batch.is_on_wire, batch.attempts) == (True, False, 2)


def test_a_leader_that_does_not_have_the_number_takes_all_doubts_away() -> None:
    batch = new_batch()
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=False)
    batch.on_denied()
    assert not batch.may_be_in_log


def test_a_denial_says_nothing_about_a_send_that_is_still_on_the_wire() -> None:
    batch = new_batch()
    batch.on_sent(LEADER)
    batch.on_denied()
    doubts = [batch.may_be_in_log]
    batch.on_answered(is_definite=True)
    doubts.append(batch.may_be_in_log)
    batch.on_sent(LEADER)
    doubts.append(batch.may_be_in_log)
    assert doubts == [True, False, True]


def test_a_batch_remembers_the_leader_of_its_last_send_across_retries() -> None:
    batch = new_batch()
    assert batch.sent_to is None
    for leader in ((0, 5), (1, 6), (1, 7)):
        batch.on_sent(leader)
        batch.on_answered(is_definite=True)
        assert batch.sent_to == leader


def test_completing_twice_is_a_bug_and_raises() -> None:
    batch = new_batch()
    batch.finish()
    with pytest.raises(LocalProtocolError, match="t-0 completed twice"):
        batch.finish()


# ---- splitting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", sorted(CODEC_NAMES))
def test_a_split_keeps_records_headers_timestamps_order_and_codec(codec: int) -> None:
    whole = encoded(100, codec=CODEC_NAMES[codec])
    parts = split(whole, make_compressor(CODEC_NAMES[codec]))
    assert len(parts) > 1
    assert {part.codec for part in parts} == {codec}
    assert tuple(chain.from_iterable(records_of(part) for part in parts)) == records_of(whole)
    assert all(part.records_bytes < whole.records_bytes for part in parts)
    assert parts[-1].max_timestamp_ms == whole.max_timestamp_ms


def test_a_single_record_cannot_be_split() -> None:
    whole = encoded(1)
    assert split(whole, make_compressor("none")) == [whole]


def test_splitting_again_and_again_ends_with_single_records() -> None:
    parts = [encoded(13)]
    for _ in range(4):
        parts = list(chain.from_iterable(split(part, make_compressor("none")) for part in parts))
    assert [part.record_count for part in parts] == [1] * 13


def test_the_parts_of_a_batch_share_its_place_and_its_age_and_have_not_been_tried() -> None:
    batch = new_batch(3, 4, opened_ms=77)
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=True)
    for part in halves(batch):
        assert (part.topic_partition, part.opened_ms, part.attempts) == (("t", 3), 77, 0)
        assert (part.has_sequence, part.identity, part.may_be_in_log) == (False, NO_IDENTITY, False)


def test_the_parts_inherit_the_doubt_of_an_earlier_send_of_the_whole() -> None:
    # 1 The whole batch was sent and got no answer: it may be in the log. 2 Sent again, it is refused as too large,
    # because the limit was lowered meanwhile. 3 The error of a part must not say that its records are not in the log.
    batch = new_batch(0, 4)
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=False)
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=True)
    assert all(part.may_be_in_log for part in halves(batch))


def test_each_part_gets_its_piece_of_the_shares() -> None:
    shares = (
        Share("a", np.array([4, 5, 6]), 0),
        Share("b", np.array([0, 1, 2, 3, 9]), 3),
        Share("a", np.array([8]), 8),
    )
    batch = ProducerBatch("t", 0, encoded(9), 0, shares)
    parts = batch.split([encoded(2), encoded(4), encoded(3)])
    assert [rows_of(part) for part in parts] == [
        [("a", [4, 5], 0)],
        [("a", [6], 0), ("b", [0, 1, 2], 1)],
        [("b", [3, 9], 0), ("a", [8], 2)],
    ]
