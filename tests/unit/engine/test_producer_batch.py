"""What is known of one batch on its way: sends, doubts, its one end, and what becomes of it when it is split."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from driver import encoded, new_batch

from kafka_sink.engine.producer_batch import NO_IDENTITY, ProducerBatch
from kafka_sink.errors import LocalProtocolError
from kafka_sink.records.batch import EncodedBatch, Share, seal
from kafka_sink.records.compression import CODEC_NAMES
from kafka_sink.records.scalar import Record, decode_batch, split

LEADER = (0, 0)


def records_of(batch: EncodedBatch) -> tuple[Record, ...]:
    return decode_batch(seal(batch) + batch.payload).records


def rows_of(batch: ProducerBatch) -> list[tuple[object, list[int], int]]:
    return [(share.token, [int(row) for row in share.rows], share.first_record) for share in batch.shares]


def halves(batch: ProducerBatch) -> list[ProducerBatch]:
    return batch.split(split(batch.encoded, batch_bytes_max=batch.encoded.records_bytes // 2))


# ---- doubts --------------------------------------------------------------------------------------------------------


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


def test_a_send_under_the_new_number_ends_its_being_new() -> None:
    batch = new_batch()
    batch.sequence_was_reset = True
    batch.on_sent(LEADER)
    assert not batch.sequence_was_reset


def test_completing_twice_is_a_bug_and_raises() -> None:
    batch = new_batch()
    batch.finish()
    with pytest.raises(LocalProtocolError, match="t-0 completed twice"):
        batch.finish()


# ---- splitting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", sorted(CODEC_NAMES))
def test_a_split_keeps_records_headers_timestamps_order_and_codec(codec: int) -> None:
    whole = encoded(10, codec=CODEC_NAMES[codec])
    parts = split(whole, batch_bytes_max=whole.records_bytes // 2)
    assert len(parts) > 1
    assert {part.codec for part in parts} == {codec}
    assert tuple(chain.from_iterable(records_of(part) for part in parts)) == records_of(whole)
    assert all(part.records_bytes < whole.records_bytes for part in parts)
    assert parts[-1].max_timestamp_ms == whole.max_timestamp_ms


def test_a_single_record_cannot_be_split() -> None:
    whole = encoded(1)
    assert split(whole, batch_bytes_max=1) == [whole]


def test_splitting_again_and_again_ends_with_single_records() -> None:
    parts = [encoded(13)]
    for _ in range(4):
        parts = list(chain.from_iterable(split(part, batch_bytes_max=part.records_bytes // 2) for part in parts))
    assert [part.record_count for part in parts] == [1] * 13


def test_the_parts_of_a_batch_share_its_place_and_its_age_and_have_not_been_tried() -> None:
    batch = new_batch(3, 4, opened_ms=77)
    batch.on_sent(LEADER)
    batch.on_answered(is_definite=True)
    for part in halves(batch):
        assert (part.topic_partition, part.opened_ms, part.attempts) == (("t", 3), 77, 0)
        assert (part.has_sequence, part.identity, part.may_be_in_log) == (False, NO_IDENTITY, False)


def test_the_parts_inherit_the_doubt_of_an_earlier_send_of_the_whole() -> None:
    # 1 The whole was sent and no answer came: it may be in the log. 2 Sent again, it is refused as too large, because
    # the limit was lowered meanwhile. 3 Whoever gives up a part must not claim that its records are not in the log.
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
