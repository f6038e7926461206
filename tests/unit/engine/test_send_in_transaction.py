"""Sequences and order within a transaction: nothing is renumbered, whatever cannot be healed by a resend dooms it."""

from __future__ import annotations

import pytest
from driver import BACKOFF_MS, DUPLICATE, INVALID_RECORD, NOT_LEADER, OUT_OF_ORDER, TOO_LARGE, UNKNOWN_PRODUCER_ID
from transaction_driver import TransactionDriver

from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.engine.transaction import TransactionState
from kafka_sink.errors import DeliveryError, DeliveryTimeout, ProducerFenced, TransactionAborted
from kafka_sink.wire.apis import END_TXN, PRODUCE

INVALID_TXN_STATE, TRANSACTION_ABORTABLE, PRODUCER_FENCED, STALE_EPOCH = 48, 120, 90, 47
NOT_ENOUGH_REPLICAS_AFTER_APPEND, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 20, 53

BOTH = pytest.mark.parametrize("transaction_version", [1, 2])


def begun(transaction_version: int, **options: object) -> TransactionDriver:
    """An open transaction in which partition 0 has been written to; from now on Produce is answered by the test."""
    driver = TransactionDriver(transaction_version, **options)  # type: ignore[arg-type]
    assert driver.ok(driver.begin())
    driver.warm(0)
    driver.hold(PRODUCE)
    return driver


def is_doomed(driver: TransactionDriver) -> bool:
    return isinstance(driver.engine.refusal, TransactionAborted)


def drain(driver: TransactionDriver, *batches: ProducerBatch) -> None:
    """Success for everything until the given batches are through."""
    while driver.is_open(*batches) or driver.produces:
        if driver.produces:
            driver.answer()
        else:
            driver.sleep_until_due()


def next_transaction(driver: TransactionDriver) -> None:
    assert driver.ok(driver.abort())
    assert driver.ok(driver.begin())


# ---- what heals ----------------------------------------------------------------------------------------------------


@BOTH
def test_batches_say_that_they_belong_to_a_transaction_in_a_version_of_their_version(transaction_version: int) -> None:
    driver = begun(transaction_version)
    driver.send()
    request = driver.last(PRODUCE)
    assert request.body["transactional_id"] == "ledger"
    assert (request.version >= 12) == (transaction_version == 2)
    assert driver.sent[0].decoded.is_transactional


@BOTH
def test_a_failed_batch_and_the_one_behind_it_are_resent_in_order_with_their_old_sequences(
    transaction_version: int,
) -> None:
    driver = begun(transaction_version)
    first, second = driver.send(record_count=2), driver.send()
    driver.answer(NOT_LEADER)
    driver.answer(OUT_OF_ORDER)
    drain(driver, first, second)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 2), (0, 0), (0, 2)]
    assert not is_doomed(driver)


@BOTH
def test_a_duplicate_counts_as_written(transaction_version: int) -> None:
    driver = begun(transaction_version)
    batch = driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    driver.sleep(BACKOFF_MS)
    driver.answer(DUPLICATE)
    assert driver.offset_of(batch) == -1
    assert driver.ok(driver.commit())


@BOTH
def test_commit_waits_until_the_resends_are_through(transaction_version: int) -> None:
    driver = begun(transaction_version)
    batches = [driver.send() for _ in range(3)]
    commit = driver.commit()
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    assert driver.is_waiting(commit)
    assert driver.count(END_TXN) == 0
    drain(driver, *batches)
    assert driver.ok(commit)
    assert driver.sequences_sent == [0, 1, 2, 0, 1, 2]


@BOTH
def test_a_batch_that_is_too_large_is_split_under_its_sequences_and_the_transaction_commits(
    transaction_version: int,
) -> None:
    driver = begun(transaction_version)
    whole, behind = driver.send(record_count=4), driver.send()
    driver.answer(TOO_LARGE)
    driver.answer(OUT_OF_ORDER)
    drain(driver, behind)
    assert sum(batch.record_count for batch in driver.delivered if batch.split_from is whole) == 4
    assert driver.epochs_and_sequences_sent[-1] == (0, 4)
    assert driver.ok(driver.commit())


def test_when_retention_took_all_that_was_written_the_partition_starts_at_zero_in_the_same_epoch() -> None:
    driver = begun(1)
    first = driver.send()
    driver.answer(base_offset=10)
    second, third = driver.send(), driver.send()
    driver.answer(UNKNOWN_PRODUCER_ID, log_start_offset=20)
    driver.answer(UNKNOWN_PRODUCER_ID, log_start_offset=20)
    drain(driver, second, third)
    assert driver.epochs_and_sequences_sent[3:] == [(0, 0), (0, 1)]
    assert first in driver.delivered
    assert driver.ok(driver.commit())


def test_an_unknown_producer_id_without_a_log_start_is_tried_again_as_it_is() -> None:
    driver = begun(1)
    batch = driver.send()
    driver.answer(UNKNOWN_PRODUCER_ID)
    drain(driver, batch)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 0)]


# ---- what dooms it -------------------------------------------------------------------------------------------------


@BOTH
def test_a_gap_dooms_the_transaction_and_nothing_is_renumbered(transaction_version: int) -> None:
    driver = begun(transaction_version)
    driver.send()
    driver.answer()
    batch = driver.send()
    driver.answer(OUT_OF_ORDER)
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError)
    assert (error.code, error.ambiguous) == (OUT_OF_ORDER, False)
    assert is_doomed(driver)
    next_transaction(driver)
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (1, 0)]


def test_lost_records_doom_the_transaction() -> None:
    driver = begun(1)
    driver.send()
    driver.answer(base_offset=10)
    batch = driver.send()
    driver.answer(UNKNOWN_PRODUCER_ID, log_start_offset=5)
    assert batch in driver.failed
    assert is_doomed(driver)


@BOTH
def test_a_refused_batch_dooms_the_transaction_and_those_behind_it_are_dropped(transaction_version: int) -> None:
    driver = begun(transaction_version)
    refused, behind = driver.send(), driver.send()
    driver.answer(INVALID_RECORD)
    assert is_doomed(driver)
    assert driver.is_open(behind), "its answer is still awaited"
    driver.answer(OUT_OF_ORDER)
    driver.sleep(1_000)
    dropped = driver.error_of(behind)
    assert isinstance(dropped, DeliveryError)
    assert "dropped" in str(dropped)
    assert isinstance(driver.error_of(refused), DeliveryError)
    assert driver.sequences_sent == [0, 1]
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)


@BOTH
@pytest.mark.parametrize("code", [INVALID_TXN_STATE, TRANSACTION_ABORTABLE, STALE_EPOCH])
def test_trouble_that_a_leader_reports_with_the_transaction_is_abortable(transaction_version: int, code: int) -> None:
    driver = begun(transaction_version)
    batch = driver.send()
    driver.answer(code)
    assert isinstance(driver.error_of(batch), DeliveryError)
    assert is_doomed(driver)
    next_transaction(driver)
    again = driver.send()
    driver.answer()
    assert again in driver.delivered
    assert driver.ok(driver.commit())


@BOTH
@pytest.mark.parametrize("code", [PRODUCER_FENCED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED])
def test_what_no_abort_can_heal_ends_the_producer_and_fails_all_in_flight(transaction_version: int, code: int) -> None:
    driver = begun(transaction_version)
    first, second = driver.send(0), driver.send(1)
    driver.answer(code)
    assert set(driver.failed) == {first, second}
    assert driver.engine.refusal is not None
    assert not is_doomed(driver)
    assert not driver.ok(driver.abort())


@BOTH
def test_a_record_dropped_by_an_abort_says_that_the_transaction_was_aborted(transaction_version: int) -> None:
    driver = begun(transaction_version, max_in_flight_requests_per_connection=1)
    on_wire, unsent = driver.send(), driver.send()
    abort = driver.abort()
    error = driver.error_of(unsent)
    assert isinstance(error, DeliveryError)
    assert isinstance(error.__cause__, TransactionAborted)
    assert driver.is_waiting(abort)
    driver.answer()
    assert on_wire in driver.delivered
    assert driver.ok(abort)


# ---- time ----------------------------------------------------------------------------------------------------------


@BOTH
def test_a_sent_batch_that_expires_forbids_the_commit_even_if_it_is_acknowledged_later(
    transaction_version: int,
) -> None:
    driver = begun(transaction_version, delivery_timeout_ms=10_000)
    batch = driver.send()
    driver.sleep(10_000)
    assert isinstance(driver.error_of(batch), DeliveryTimeout)
    driver.answer()
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)
    assert driver.count(END_TXN) == 0


@BOTH
def test_an_unsent_batch_that_expires_forbids_the_commit_too(transaction_version: int) -> None:
    driver = begun(transaction_version, delivery_timeout_ms=10_000)
    driver.cluster.topics["lost"] = {0: 9}
    batch = driver.send(topic="lost")
    driver.sleep(10_000)
    assert batch in driver.failed
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)


@BOTH
def test_unknown_sequences_are_left_behind_by_the_abort_and_the_next_transaction_starts_at_zero(
    transaction_version: int,
) -> None:
    driver = begun(transaction_version, delivery_timeout_ms=10_000)
    expired = driver.send()
    driver.sleep(5_000)
    second = driver.send()
    driver.answer(NOT_LEADER)
    driver.sleep(5_000)
    assert expired in driver.failed
    driver.disconnect()
    driver.sleep(1_000)
    assert second in driver.failed
    next_transaction(driver)
    driver.send()
    assert driver.epochs_and_sequences_sent[-1] == (1, 0)


@BOTH
@pytest.mark.parametrize("late", [0, INVALID_TXN_STATE, OUT_OF_ORDER, NOT_LEADER])
def test_an_abort_waits_for_the_late_answer_of_an_expired_batch_whatever_it_says(
    transaction_version: int, late: int
) -> None:
    driver = begun(transaction_version, delivery_timeout_ms=10_000)
    batch = driver.send()
    driver.sleep(10_000)
    abort = driver.abort()
    assert driver.is_waiting(abort)
    driver.answer(late)
    assert driver.ok(abort)
    assert driver.engine._transaction is not None
    assert driver.engine._transaction.state is not TransactionState.FATAL
    assert driver.ok(driver.begin())
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (1, 0)]
    assert batch in driver.failed


@BOTH
def test_retries_used_up_with_a_doubt_doom_the_transaction(transaction_version: int) -> None:
    driver = begun(transaction_version, retries=0)
    batch = driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError)
    assert error.ambiguous
    assert is_doomed(driver)


@BOTH
def test_after_an_abort_without_an_error_the_sequences_start_at_zero_in_a_new_epoch(transaction_version: int) -> None:
    driver = begun(transaction_version)
    driver.send(record_count=3)
    driver.answer()
    next_transaction(driver)
    driver.send()
    assert driver.epochs_and_sequences_sent == [(0, 0), (1, 0)]


def test_a_fenced_producer_gives_the_same_error_to_every_later_call() -> None:
    driver = begun(1)
    driver.send()
    driver.answer()
    driver.fail(END_TXN, PRODUCER_FENCED)
    error = driver.refusal_of(driver.commit())
    assert isinstance(error, ProducerFenced) and error.name == "PKS-5005"
    assert isinstance(driver.refusal_of(driver.begin()), ProducerFenced)
    late = driver.send()
    assert isinstance(driver.error_of(late).__cause__, ProducerFenced)
