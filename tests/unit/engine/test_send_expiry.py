"""delivery.timeout.ms: counted from the first record, on the wire or not, and what it does to sequences."""

from __future__ import annotations

from typing import Any

import pytest
from driver import BACKOFF_MS, NOT_LEADER, OUT_OF_ORDER, TOO_LARGE, EngineDriver, new_batch

from kafka_sink.engine.commands import Append, Flush
from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.errors import DeliveryError, DeliveryTimeout

DELIVERY_TIMEOUT_MS = 10_000
# Longer than a delivery: so that batches expire while they are on the wire.
OPTIONS: dict[str, Any] = {"delivery_timeout_ms": DELIVERY_TIMEOUT_MS, "request_timeout_ms": 30_000}
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 19, 20


def timeout_of(driver: EngineDriver, batch: ProducerBatch) -> DeliveryTimeout:
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryTimeout)
    return error


def without_a_leader() -> EngineDriver:
    driver = EngineDriver(warm=[0], **OPTIONS)
    driver.cluster.topics["lost"] = {0: 9, 1: 9}
    return driver


def sent_then_expired(driver: EngineDriver, *, behind: int = 1) -> tuple[ProducerBatch, list[ProducerBatch]]:
    """The first batch expires on the wire, those behind it are a second younger and still there."""
    first = driver.send()
    driver.sleep(1_000)
    later = [driver.send() for _ in range(behind)]
    driver.sleep(DELIVERY_TIMEOUT_MS - 1_000)
    assert timeout_of(driver, first).ambiguous
    return first, later


# ---- when ----------------------------------------------------------------------------------------------------------


def test_a_batch_that_cannot_be_sent_expires_exactly_in_time_and_is_not_in_the_log() -> None:
    driver = without_a_leader()
    batch = driver.send(topic="lost")
    driver.sleep(DELIVERY_TIMEOUT_MS - 1)
    assert driver.is_open(batch)
    driver.sleep(1)
    error = timeout_of(driver, batch)
    assert (error.ambiguous, error.attempts) == (False, 0)
    assert "delivery.timeout.ms=10000" in str(error)


def test_the_engine_wakes_up_for_the_next_expiry() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    first = driver.send()
    driver.sleep(4_000)
    second = driver.send()
    assert driver.sleep_until_due() == DELIVERY_TIMEOUT_MS - 4_000
    assert first in driver.failed
    assert driver.sleep_until_due() == 4_000
    assert second in driver.failed


def test_age_counts_from_the_first_record_and_not_from_the_append() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    batch = new_batch(opened_ms=driver.now_ms - 3_000)
    driver.run(Append([batch]))
    assert driver.sleep_until_due() == DELIVERY_TIMEOUT_MS - 3_000
    assert batch in driver.failed


def test_the_largest_time_out_does_not_overflow() -> None:
    driver = EngineDriver(delivery_timeout_ms=2**31 - 1)
    batch = driver.send()
    driver.sleep(29_000)
    driver.answer()
    assert driver.offset_of(batch) == 0


def test_batches_of_several_partitions_expire_together() -> None:
    driver = without_a_leader()
    batches = [driver.send(partition, topic="lost") for partition in (0, 0, 1)]
    driver.sleep(DELIVERY_TIMEOUT_MS)
    assert set(driver.failed) == set(batches)


def test_retries_do_not_extend_the_time() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    batch = driver.send()
    while driver.is_open(batch):
        if driver.produces:
            driver.answer(NOT_ENOUGH_REPLICAS)
        else:
            driver.sleep_until_due()
    assert driver.now_ms == batch.opened_ms + DELIVERY_TIMEOUT_MS
    assert not timeout_of(driver, batch).ambiguous


def test_an_answer_in_the_very_step_of_the_expiry_still_counts() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    batch = driver.send()
    driver.now_ms += DELIVERY_TIMEOUT_MS
    driver.answer()
    assert driver.offset_of(batch) == 0


def test_a_retriable_answer_at_the_end_of_the_time_is_the_last_word() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    batch = driver.send()
    driver.now_ms += DELIVERY_TIMEOUT_MS
    driver.answer(NOT_ENOUGH_REPLICAS)
    error = timeout_of(driver, batch)
    assert not error.ambiguous
    assert "NOT_ENOUGH_REPLICAS" in str(error)
    driver.sleep(60_000)
    assert len(driver.sent) == 1


def test_a_flush_ends_when_the_last_batch_has_expired() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    driver.send()
    driver.run(Flush(1))
    driver.sleep(DELIVERY_TIMEOUT_MS)
    assert 1 in driver.finished


# ---- late answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, NOT_LEADER, TOO_LARGE, OUT_OF_ORDER, NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_the_answer_to_an_expired_batch_changes_its_result_no_more(code: int) -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    batch = driver.send(record_count=2)
    driver.sleep(DELIVERY_TIMEOUT_MS)
    assert timeout_of(driver, batch).ambiguous
    driver.answer(code)
    driver.sleep(5_000)
    assert batch not in driver.delivered
    assert len(driver.sent) == 1


def test_with_one_request_in_flight_the_next_batch_waits_for_the_late_answer() -> None:
    driver = EngineDriver(max_in_flight_requests_per_connection=1, enable_idempotence=False, **OPTIONS)
    first = driver.send()
    driver.sleep(5_000)
    second = driver.send()
    driver.sleep(5_000)
    assert first in driver.failed
    assert len(driver.sent) == 1
    driver.answer()
    assert len(driver.sent) == 2
    driver.answer()
    assert second in driver.delivered


# ---- sequences -----------------------------------------------------------------------------------------------------


def test_a_batch_that_expires_before_it_was_sent_leaves_the_sequences_alone() -> None:
    driver = EngineDriver(max_in_flight_requests_per_connection=1, **OPTIONS)
    driver.send()
    unsent = new_batch(opened_ms=driver.now_ms - 5_000)
    driver.run(Append([unsent]))
    driver.sleep(5_000)
    assert not timeout_of(driver, unsent).ambiguous
    driver.answer()
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1)]


def test_after_a_sent_batch_expired_no_new_number_is_given_until_those_behind_it_are_answered() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    sent_then_expired(driver)
    driver.send()
    assert driver.sequences_sent == [0, 1]


def test_success_of_a_later_batch_proves_that_the_expired_one_is_in_the_log_and_keeps_the_epoch() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    _, (second,) = sent_then_expired(driver)
    third = driver.send()
    driver.answer(0)
    driver.answer(0, base_offset=1)
    driver.answer(0, base_offset=2)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (0, 2)]
    assert (driver.offset_of(second), driver.offset_of(third)) == (1, 2)


def test_a_later_batch_that_is_out_of_order_proves_a_gap_and_raises_the_epoch() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    _, (second,) = sent_then_expired(driver)
    driver.answer(NOT_LEADER)
    driver.answer(OUT_OF_ORDER)
    assert driver.is_open(second)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=0)
    assert driver.epochs_and_sequences_sent[2:] == [(1, 0)]
    assert driver.offset_of(second) == 0


def test_only_the_batch_right_behind_the_expired_one_can_prove_a_gap() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    _, (second, third) = sent_then_expired(driver, behind=2)
    driver.answer(NOT_LEADER)
    driver.answer(NOT_LEADER)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=1)
    driver.answer(base_offset=2)
    assert driver.epochs_and_sequences_sent[3:] == [(0, 1), (0, 2)], "there was no gap: the expired batch is in the log"
    assert (driver.offset_of(second), driver.offset_of(third)) == (1, 2)


def test_when_all_sent_batches_expire_the_next_one_starts_a_new_epoch() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    sent_then_expired(driver)
    driver.sleep(1_000)
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (1, 0)]


def test_other_partitions_do_not_notice_the_uncertainty() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    sent_then_expired(driver)
    driver.send(1)
    assert driver.epochs_and_sequences_sent[2:] == [(0, 0)]


def test_a_late_success_of_the_last_batch_of_the_old_epoch_does_not_disturb_the_new_one() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    expired = driver.send(record_count=3)
    driver.sleep(DELIVERY_TIMEOUT_MS)
    fresh = driver.send()
    driver.answer(base_offset=0)
    driver.answer(base_offset=3)
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (1, 0), (1, 1)]
    assert expired in driver.failed
    assert driver.offset_of(fresh) == 3


def test_a_batch_refused_before_it_expired_is_certainly_not_in_the_log_and_those_behind_it_are_renumbered() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    first = driver.send()
    driver.sleep(1_000)
    second = driver.send()
    driver.sleep(DELIVERY_TIMEOUT_MS - 1_001)
    driver.answer(NOT_ENOUGH_REPLICAS)
    driver.sleep(1)
    assert not timeout_of(driver, first).ambiguous
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer()
    assert driver.epochs_and_sequences_sent[2:] == [(1, 0)]
    assert driver.offset_of(second) == 0


def test_an_expired_batch_that_waited_for_another_try_leaves_a_doubt_if_its_try_did() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    batch = driver.send()
    driver.cluster.refusing.add(0)
    driver.disconnect()
    driver.sleep(DELIVERY_TIMEOUT_MS)
    assert timeout_of(driver, batch).ambiguous


def test_a_batch_that_was_lost_with_its_connection_gets_no_new_number_and_is_never_said_to_be_surely_absent() -> None:
    """The second is refused on the new connection, because the first never arrived. Both may still lie in a socket."""
    driver = EngineDriver(warm=[0], **OPTIONS)
    first = driver.send()
    driver.sleep(1_000)
    second = driver.send()
    driver.cluster.refusing.add(0)
    driver.disconnect()
    driver.sleep(DELIVERY_TIMEOUT_MS - 1_000)
    assert timeout_of(driver, first).ambiguous and driver.is_open(second)
    driver.cluster.refusing.clear()
    driver.sleep(BACKOFF_MS)
    driver.answer(OUT_OF_ORDER)
    # With a new number it could be there twice, when the bytes of both arrive after all.
    error = driver.error_of(second)
    assert isinstance(error, DeliveryError) and error.ambiguous
    assert "can arrive late" in str(error)


def test_an_append_in_the_step_after_an_expiry_is_accepted() -> None:
    driver = EngineDriver(warm=[0], **OPTIONS)
    driver.send()
    driver.sleep(DELIVERY_TIMEOUT_MS)
    again = driver.send()
    driver.answer()
    driver.answer()
    assert driver.offset_of(again) == 0
