"""Sequences over the whole way: several batches in flight, failures in any order, gaps, new epochs."""

from __future__ import annotations

import pytest
from driver import (
    BACKOFF_MS,
    DUPLICATE,
    INVALID_RECORD,
    NOT_LEADER,
    OUT_OF_ORDER,
    UNKNOWN_PRODUCER_ID,
    EngineDriver,
)

from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.errors import DeliveryError

NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, STALE_EPOCH = 19, 20, 47


def across_a_move() -> tuple[EngineDriver, ProducerBatch, ProducerBatch]:
    """Two batches of one partition in flight at once on two connections: its leader moved from node 0 to node 1."""
    driver = EngineDriver(leaders=(0, 1), metadata_max_age_ms=2_000, warm=[0, 1])
    first = driver.send()
    driver.cluster.move_leader("t", 0, 1)
    driver.sleep(2_000)
    second = driver.send()
    assert [(sent.node_id, sent.base_sequence) for sent in driver.sent] == [(0, 0), (1, 1)]
    return driver, first, second


# ---- in flight -----------------------------------------------------------------------------------------------------


def test_sequences_grow_by_the_number_of_records() -> None:
    driver = EngineDriver(warm=[0])
    for record_count in (1, 3, 2):
        driver.send(record_count=record_count)
    assert driver.sequences_sent == [0, 1, 4]
    assert {sent.identity for sent in driver.sent} == {(1000, 0)}


def test_five_batches_are_in_flight_and_succeed_in_order() -> None:
    driver = EngineDriver(warm=[0])
    batches = [driver.send() for _ in range(6)]
    assert len(driver.produces) == 5
    for offset in range(6):
        driver.answer(base_offset=offset)
    assert [driver.offset_of(batch) for batch in batches] == list(range(6))


def test_batches_in_flight_on_a_lost_connection_are_resent_one_after_the_other_in_order() -> None:
    driver = EngineDriver(warm=[0])
    batches = [driver.send() for _ in range(3)]
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    assert driver.sequences_sent == [0, 1, 2, 0]
    driver.answer()
    assert driver.sequences_sent == [0, 1, 2, 0, 1]
    driver.answer()
    driver.answer()
    assert driver.sequences_sent == [0, 1, 2, 0, 1, 2]
    assert not driver.is_open(batches[-1])


def test_new_batches_queue_behind_those_that_are_resent() -> None:
    driver = EngineDriver(warm=[0])
    for _ in range(2):
        driver.send()
    driver.disconnect()
    driver.send()
    driver.sleep(BACKOFF_MS)
    for _ in range(3):
        driver.answer()
    assert driver.sequences_sent == [0, 1, 0, 1, 2]


def test_when_the_first_of_two_fails_both_are_resent_in_order_with_their_old_sequences() -> None:
    driver = EngineDriver(warm=[0])
    first, second = driver.send(), driver.send()
    driver.answer(NOT_LEADER)
    driver.answer(OUT_OF_ORDER)
    assert driver.is_open(first, second)
    driver.sleep(BACKOFF_MS)
    assert driver.sequences_sent == [0, 1, 0]
    driver.answer(base_offset=0)
    driver.answer(base_offset=1)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (0, 0), (0, 1)]
    assert (driver.offset_of(first), driver.offset_of(second)) == (0, 1)


def test_when_the_second_answer_comes_first_both_are_resent_in_order() -> None:
    driver, first, second = across_a_move()
    on_old, on_new = driver.produces
    driver.answer(OUT_OF_ORDER, request=on_new)
    driver.answer(NOT_LEADER, request=on_old)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=0)
    driver.answer(base_offset=1)
    assert driver.epochs_and_sequences_sent[2:] == [(0, 0), (0, 1)]
    assert (driver.offset_of(first), driver.offset_of(second)) == (0, 1)


def test_when_the_second_succeeds_before_the_first_is_answered_the_first_is_resent_with_its_old_sequence() -> None:
    driver, first, second = across_a_move()
    on_old, on_new = driver.produces
    driver.answer(base_offset=1, request=on_new)
    assert driver.offset_of(second) == 1
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND, request=on_old)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=0)
    assert driver.epochs_and_sequences_sent[2:] == [(0, 0)]
    assert driver.offset_of(first) == 0
    driver.send()
    assert driver.epochs_and_sequences_sent[3:] == [(0, 2)]


def test_a_duplicate_is_a_success_of_unknown_offset() -> None:
    driver = EngineDriver(warm=[0])
    batch = driver.send()
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    driver.answer(DUPLICATE)
    assert (batch.base_offset, batch.log_append_time_ms) == (-1, -1) and batch in driver.delivered
    driver.send()
    assert driver.epochs_and_sequences_sent[-1] == (0, 1)


def test_partitions_with_failures_do_not_disturb_the_sequences_of_others() -> None:
    driver = EngineDriver(warm=[0])
    driver.send(0)
    driver.send(1)
    driver.answer(OUT_OF_ORDER)
    driver.answer()
    driver.send(1)
    assert [(s.partition, s.identity.producer_epoch, s.base_sequence) for s in driver.sent] == [
        (0, 0, 0),
        (1, 0, 0),
        (1, 1, 0),
    ]


# ---- a definite failure in the middle ------------------------------------------------------------------------------


def test_when_the_first_batch_is_refused_for_good_those_behind_it_are_renumbered_and_resent() -> None:
    driver = EngineDriver(warm=[0])
    first, second, third = driver.send(), driver.send(), driver.send()
    driver.answer(INVALID_RECORD)
    assert isinstance(driver.error_of(first), DeliveryError)
    driver.answer(OUT_OF_ORDER)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=0)
    driver.answer(base_offset=1)
    assert driver.epochs_and_sequences_sent[3:] == [(1, 0), (1, 1)]
    assert (driver.offset_of(second), driver.offset_of(third)) == (0, 1)


def test_nothing_is_renumbered_before_the_last_answer_of_the_partition_is_there() -> None:
    driver = EngineDriver(warm=[0])
    for _ in range(3):
        driver.send()
    driver.answer(INVALID_RECORD)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(1000)
    assert len(driver.sent) == 3
    driver.answer(OUT_OF_ORDER)
    driver.sleep(1000)
    assert driver.epochs_and_sequences_sent[3:] == [(1, 0)]


def test_a_refused_batch_with_nothing_behind_it_costs_an_epoch_and_nothing_else() -> None:
    driver = EngineDriver(warm=[0])
    driver.send()
    driver.answer(INVALID_RECORD)
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (1, 0)]


def test_a_stale_epoch_told_by_a_leader_fails_the_batch_and_raises_the_epoch() -> None:
    driver = EngineDriver(warm=[0])
    batch = driver.send()
    driver.answer(STALE_EPOCH)
    assert isinstance(driver.error_of(batch), DeliveryError)
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (1, 0)]


def test_a_batch_that_may_be_in_the_log_is_resent_with_its_old_number_before_those_behind_it_get_new_ones() -> None:
    driver = EngineDriver(warm=[0])
    first, second, third = driver.send(), driver.send(), driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    driver.answer(INVALID_RECORD)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    assert driver.epochs_and_sequences_sent[3:] == [(0, 0)], "a new number would write it twice"
    driver.answer(base_offset=0)
    driver.answer(base_offset=1)
    assert driver.epochs_and_sequences_sent[4:] == [(1, 0)]
    assert (driver.offset_of(first), driver.offset_of(third)) == (0, 1)
    assert second in driver.failed


def test_a_leader_that_does_not_have_the_doubtful_batch_lets_it_be_renumbered_too() -> None:
    driver = EngineDriver(warm=[0])
    first, _, third = driver.send(), driver.send(), driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    driver.answer(INVALID_RECORD)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(2 * BACKOFF_MS)
    driver.answer(base_offset=0)
    driver.answer(base_offset=1)
    assert driver.epochs_and_sequences_sent[3:] == [(0, 0), (1, 0), (1, 1)]
    assert (driver.offset_of(first), driver.offset_of(third)) == (0, 1)


def test_a_batch_that_is_asked_about_before_the_head_of_its_queue_keeps_its_own_back_off() -> None:
    # Before the new epoch the leader is asked about third, which lost its answer; second is known to be not in the log.
    driver = EngineDriver(warm=[0])
    _, second, third = driver.send(), driver.send(), driver.send()
    driver.answer(INVALID_RECORD)
    driver.answer(OUT_OF_ORDER)
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    driver.answer(NOT_ENOUGH_REPLICAS)
    assert driver.sequences_sent[3:] == [2]
    assert driver.sleep_until_due() == 2 * BACKOFF_MS
    assert driver.sequences_sent[3:] == [2, 2]
    driver.answer(OUT_OF_ORDER)
    driver.answer(base_offset=0)
    driver.sleep(4 * BACKOFF_MS)
    driver.answer(base_offset=1)
    assert driver.epochs_and_sequences_sent[5:] == [(1, 0), (1, 1)]
    assert (driver.offset_of(second), driver.offset_of(third)) == (0, 1)


def test_a_leader_that_took_a_later_batch_as_the_first_one_is_not_given_it_again() -> None:
    # 1 Three batches lose their answers with the connection. 2 The topic was made anew, and of the three requests only
    # the second arrived: a log that knows nothing takes any first number. 3 So first is out of order; second is not.
    driver = EngineDriver(warm=[0], delivery_timeout_ms=10_000)
    first, second, third = driver.send(), driver.send(), driver.send()
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(2 * BACKOFF_MS)
    assert driver.sequences_sent[3:] == [0, 1]
    driver.answer(DUPLICATE)
    assert second not in driver.failed
    assert not driver.is_open(second)
    driver.answer(base_offset=2)
    assert driver.epochs_and_sequences_sent[5:] == [(0, 2)], "third was not taken"
    assert driver.offset_of(third) == 2
    error = driver.error_of(first)
    assert isinstance(error, DeliveryError)
    assert error.ambiguous


# ---- gaps ----------------------------------------------------------------------------------------------------------


def test_out_of_order_for_the_next_expected_batch_is_a_gap_and_raises_the_epoch() -> None:
    driver = EngineDriver(warm=[0])
    driver.send()
    driver.answer()
    batch = driver.send(record_count=2)
    driver.answer(OUT_OF_ORDER)
    assert driver.is_open(batch)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=7)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (1, 0)]
    assert driver.offset_of(batch) == 7
    driver.send()
    assert driver.epochs_and_sequences_sent[3:] == [(1, 2)]


def test_a_gap_waits_for_the_batch_behind_it_that_is_in_flight_before_the_epoch_is_raised() -> None:
    driver = EngineDriver(warm=[0])
    first, second = driver.send(), driver.send()
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    assert len(driver.sent) == 2
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=0)
    driver.answer(base_offset=1)
    assert driver.epochs_and_sequences_sent[2:] == [(1, 0), (1, 1)]
    assert (driver.offset_of(first), driver.offset_of(second)) == (0, 1)


def test_a_batch_in_flight_behind_a_gap_that_fails_for_good_does_not_stop_the_new_epoch() -> None:
    driver = EngineDriver(warm=[0])
    first, second = driver.send(), driver.send()
    driver.answer(OUT_OF_ORDER)
    driver.answer(INVALID_RECORD)
    driver.sleep(BACKOFF_MS)
    driver.answer()
    assert driver.epochs_and_sequences_sent[2:] == [(1, 0)]
    assert driver.offset_of(first) == 0
    assert second in driver.failed


def test_without_idempotence_out_of_order_is_an_error_like_any_other() -> None:
    driver = EngineDriver(enable_idempotence=False)
    batch = driver.send()
    driver.answer(OUT_OF_ORDER)
    assert isinstance(driver.error_of(batch), DeliveryError)


# ---- the broker forgot the producer --------------------------------------------------------------------------------


@pytest.mark.parametrize("log_start_offset", [0, 10], ids=["records are lost", "retention took them"])
def test_an_unknown_producer_id_raises_the_epoch_and_the_batch_is_tried_again(log_start_offset: int) -> None:
    driver = EngineDriver(warm=[0])
    driver.send()
    driver.answer(base_offset=5)
    batch = driver.send()
    driver.answer(UNKNOWN_PRODUCER_ID, log_start_offset=log_start_offset)
    assert driver.is_open(batch)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=11)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (1, 0)]
    assert driver.offset_of(batch) == 11


def test_an_unknown_producer_id_without_a_log_start_is_tried_again_as_it_is() -> None:
    driver = EngineDriver(warm=[0])
    driver.send()
    driver.answer(base_offset=5)
    driver.send()
    driver.answer(UNKNOWN_PRODUCER_ID)
    driver.sleep(BACKOFF_MS)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (0, 1)]


def test_all_batches_in_flight_that_meet_the_unknown_producer_id_come_through_in_order() -> None:
    driver = EngineDriver(warm=[0])
    driver.send()
    driver.answer(base_offset=5)
    second, third = driver.send(), driver.send()
    driver.answer(UNKNOWN_PRODUCER_ID, log_start_offset=10)
    driver.answer(UNKNOWN_PRODUCER_ID, log_start_offset=10)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=10)
    driver.answer(base_offset=11)
    assert driver.epochs_and_sequences_sent[3:] == [(1, 0), (1, 1)]
    assert (driver.offset_of(second), driver.offset_of(third)) == (10, 11)


def test_a_broker_that_forgot_the_producer_says_nothing_of_a_batch_that_was_lost_with_its_connection() -> None:
    """It would take the old bytes when they come, whatever their number: with a new number the batch could be twice."""
    driver = EngineDriver(warm=[0])
    batch = driver.send()
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    driver.answer(UNKNOWN_PRODUCER_ID, log_start_offset=3)
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError) and error.ambiguous
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 0)]
