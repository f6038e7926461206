"""A broker has written the batch, or perhaps it has, and says so late, not at all, or with an error.

However often that happens in a row, no sequence is skipped, none is used for two batches, and the order stays.
"""

from __future__ import annotations

import pytest
from driver import BACKOFF_MS, DUPLICATE, NOT_LEADER, OUT_OF_ORDER, EngineDriver

from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.errors import DeliveryError

NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, STORAGE_ERROR, UNKNOWN_SERVER_ERROR = 20, 7, 56, -1
IN_FLIGHT = 5


def five_sent(driver: EngineDriver) -> list[ProducerBatch]:
    batches = [driver.send(record_count=2) for _ in range(IN_FLIGHT)]
    assert driver.sequences_sent == [0, 2, 4, 6, 8]
    return batches


def resend_all(driver: EngineDriver, code: int) -> None:
    while driver.produces or not all(batch.is_done for batch in driver.drained):
        if driver.produces:
            driver.answer(code)
        else:
            driver.sleep_until_due()


@pytest.mark.parametrize("lost", range(1, IN_FLIGHT + 1))
@pytest.mark.parametrize("code", [NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, STORAGE_ERROR])
def test_batches_written_but_not_acknowledged_are_resent_under_their_numbers(lost: int, code: int) -> None:
    driver = EngineDriver(warm=[0])
    batches = five_sent(driver)
    for _ in range(lost):
        driver.answer(code)
    for _ in range(IN_FLIGHT - lost):
        driver.answer(0)
    resend_all(driver, DUPLICATE)
    assert driver.epochs_and_sequences_sent[IN_FLIGHT:] == [(0, 2 * index) for index in range(lost)]
    assert set(driver.delivered) == set(batches)
    driver.send()
    assert driver.epochs_and_sequences_sent[-1] == (0, 10)


@pytest.mark.parametrize("answered", range(IN_FLIGHT))
def test_a_connection_lost_behind_the_requests_leaves_no_sequence_out_of_step(answered: int) -> None:
    driver = EngineDriver(warm=[0])
    batches = five_sent(driver)
    for _ in range(answered):
        driver.answer(0)
    driver.disconnect()
    resend_all(driver, 0)
    assert driver.epochs_and_sequences_sent[IN_FLIGHT:] == [(0, 2 * index) for index in range(answered, IN_FLIGHT)]
    assert set(driver.delivered) == set(batches)


def test_the_connection_may_be_lost_again_and_again() -> None:
    driver = EngineDriver(warm=[0])
    batches = five_sent(driver)
    for _ in range(4):
        driver.disconnect()
        while not driver.produces:
            driver.sleep_until_due()
    resend_all(driver, 0)
    assert driver.epochs_and_sequences_sent[IN_FLIGHT:] == [(0, 0)] * 4 + [(0, 2), (0, 4), (0, 6), (0, 8)]
    assert set(driver.delivered) == set(batches)


def test_a_lost_batch_that_was_not_written_makes_those_behind_it_wait_and_all_keep_their_numbers() -> None:
    driver = EngineDriver(warm=[0])
    five_sent(driver)
    driver.answer(REQUEST_TIMED_OUT)
    for _ in range(IN_FLIGHT - 1):
        driver.answer(OUT_OF_ORDER)
    resend_all(driver, 0)
    assert driver.epochs_and_sequences_sent[IN_FLIGHT:] == [(0, 0), (0, 2), (0, 4), (0, 6), (0, 8)]


@pytest.mark.parametrize("lost", range(1, IN_FLIGHT))
@pytest.mark.parametrize("code", [0, DUPLICATE])
def test_first_batches_that_expired_here_but_arrived_there_are_proven_by_the_later_success(
    lost: int, code: int
) -> None:
    driver = EngineDriver(warm=[0], delivery_timeout_ms=10_000)
    expired = [driver.send() for _ in range(lost)]
    driver.sleep(1_000)
    last = driver.send()
    driver.sleep(9_000)
    assert set(driver.failed) == set(expired)
    driver.disconnect()
    new = driver.send()
    driver.sleep(BACKOFF_MS)
    assert driver.sequences_sent == [*range(lost), lost, lost], "no number is given while some are unknown"
    driver.answer(code)
    assert last in driver.delivered
    assert driver.epochs_and_sequences_sent[-1] == (0, lost + 1)
    assert driver.is_open(new)


def test_a_doubtful_batch_given_up_for_good_leaves_its_doubt_to_the_batch_behind_it() -> None:
    driver = EngineDriver(warm=[0])
    doubtful, behind = driver.send(), driver.send()
    driver.answer(UNKNOWN_SERVER_ERROR)
    error = driver.error_of(doubtful)
    assert isinstance(error, DeliveryError)
    assert error.ambiguous
    new = driver.send()
    assert driver.sequences_sent == [0, 1], "nothing new before the second is answered"
    driver.answer(0)
    assert driver.epochs_and_sequences_sent[2:] == [(0, 2)]
    assert not driver.is_open(behind)
    assert driver.is_open(new)


def test_a_doubtful_batch_given_up_and_a_gap_behind_it_raise_the_epoch() -> None:
    driver = EngineDriver(warm=[0])
    driver.send()
    behind = driver.send()
    driver.answer(UNKNOWN_SERVER_ERROR)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer(0)
    assert driver.epochs_and_sequences_sent[2:] == [(1, 0)]
    assert behind in driver.delivered


def test_a_doubtful_batch_given_up_with_nothing_behind_it_raises_the_epoch_at_once() -> None:
    driver = EngineDriver(warm=[0], retries=0)
    driver.send()
    driver.disconnect()
    driver.send()
    driver.sleep(BACKOFF_MS)
    assert driver.epochs_and_sequences_sent == [(0, 0), (1, 0)]


def test_a_new_leader_that_lacks_the_doubtful_batch_gets_it_with_the_old_number() -> None:
    driver = EngineDriver(leaders=(0, 1))
    batch = driver.send()
    driver.cluster.move_leader("t", 0, 1)
    driver.disconnect(0)
    driver.sleep(BACKOFF_MS)
    driver.answer(NOT_LEADER)
    driver.sleep(2 * BACKOFF_MS)
    driver.answer(0)
    assert [(sent.node_id, sent.base_sequence) for sent in driver.sent] == [(0, 0), (1, 0), (1, 0)]
    assert batch in driver.delivered
