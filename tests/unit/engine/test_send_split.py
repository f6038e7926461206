"""MESSAGE_TOO_LARGE: the batch comes back in parts, and every record still has one end."""

from __future__ import annotations

import numpy as np
from driver import BACKOFF_MS, OUT_OF_ORDER, TOO_LARGE, EngineDriver, batches_of, new_batch

from kafka_sink.engine.commands import Append, BatchObserved, Flush
from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.errors import DeliveryError
from kafka_sink.records.batch import Share

NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20


def keys_sent(driver: EngineDriver, start: int = 0) -> list[bytes | None]:
    return [record.key for sent in driver.sent[start:] for record in sent.decoded.records]


def answer_all(driver: EngineDriver) -> None:
    """Every Produce succeeds, at offsets as a log would give them."""
    end_offset = 0
    while driver.produces:
        (sent,) = batches_of(driver.produces[0])
        driver.answer(base_offset=end_offset)
        end_offset += len(sent.decoded.records)


def parts_of(whole: ProducerBatch, driver: EngineDriver) -> list[ProducerBatch]:
    return [batch for batch in driver.delivered if batch.split_from is whole]


def test_the_parts_carry_all_records_in_order_under_the_sequences_of_the_whole() -> None:
    driver = EngineDriver(warm=[0])
    whole = driver.send(record_count=6)
    driver.answer(TOO_LARGE)
    assert whole not in driver.delivered
    assert whole not in driver.failed
    answer_all(driver)
    assert keys_sent(driver, 1) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    lengths = [len(sent.decoded.records) for sent in driver.sent[1:]]
    assert len(lengths) > 1
    assert driver.sequences_sent[1:] == [sum(lengths[:index]) for index in range(len(lengths))]
    assert sum(part.record_count for part in parts_of(whole, driver)) == 6
    driver.send()
    assert driver.epochs_and_sequences_sent[-1] == (0, 6)


def test_each_part_knows_its_records_and_its_own_offset() -> None:
    driver = EngineDriver(warm=[0])
    batch = new_batch(record_count=4)
    batch.shares = (Share("call", np.arange(4), 0),)
    driver.run(Append([batch]))
    driver.answer(TOO_LARGE)
    answer_all(driver)
    rows_to_offset = {}
    for part in parts_of(batch, driver):
        (share,) = part.shares
        for position, row in enumerate(share.rows):
            rows_to_offset[int(row)] = driver.offset_of(part) + share.first_record + position
    assert rows_to_offset == {0: 0, 1: 1, 2: 2, 3: 3}


def test_parts_go_at_once_without_a_back_off() -> None:
    driver = EngineDriver(warm=[0])
    driver.send(record_count=4)
    driver.answer(TOO_LARGE)
    assert len(driver.sent) > 1


def test_a_part_that_is_still_too_large_is_split_again_until_single_records_are_left() -> None:
    driver = EngineDriver(warm=[0])
    driver.send(record_count=4)
    while driver.produces:
        driver.answer(TOO_LARGE)
    assert [batch.record_count for batch in driver.failed] == [1, 1, 1, 1]
    assert driver.delivered == {}


def test_a_single_record_that_is_too_large_fails_alone_and_what_is_behind_it_goes_on() -> None:
    driver = EngineDriver(warm=[0])
    large, behind = driver.send(), driver.send()
    driver.answer(TOO_LARGE)
    error = driver.error_of(large)
    assert isinstance(error, DeliveryError)
    assert (error.code, error.ambiguous) == (TOO_LARGE, False)
    assert "max.message.bytes" in str(error)
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer()
    assert driver.offset_of(behind) == 0


def test_batches_in_flight_behind_the_whole_follow_its_parts_in_order() -> None:
    driver = EngineDriver(warm=[0])
    whole, behind = driver.send(record_count=4), driver.send(record_count=2)
    driver.answer(TOO_LARGE)
    driver.answer(OUT_OF_ORDER)
    while driver.is_open(behind):
        if driver.produces:
            driver.answer()
        else:
            driver.sleep_until_due()
    epochs = {sent.identity.producer_epoch for sent in driver.sent}
    resent = driver.sequences_sent[2:]
    assert epochs == {0}
    assert resent == sorted(resent)
    assert resent[-1] == 4
    assert sum(part.record_count for part in parts_of(whole, driver)) == 4


def test_without_sequences_the_parts_go_before_what_was_queued_behind_the_whole() -> None:
    driver = EngineDriver(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    driver.send(record_count=4)
    driver.send(record_count=1)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    assert keys_sent(driver, 1) == [b"0", b"1", b"2", b"3", b"0"]


def test_a_flush_waits_for_the_parts() -> None:
    driver = EngineDriver(warm=[0])
    driver.send(record_count=4)
    driver.run(Flush(1))
    driver.answer(TOO_LARGE)
    assert 1 not in driver.finished
    answer_all(driver)
    assert 1 in driver.finished


def test_a_split_does_not_count_as_a_retry() -> None:
    driver = EngineDriver(retries=0)
    driver.send(record_count=2)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    assert driver.failed == {}
    assert len(driver.delivered) == 2


def test_the_parts_are_as_old_as_the_whole() -> None:
    driver = EngineDriver(delivery_timeout_ms=10_000)
    driver.send(record_count=2)
    driver.sleep(6_000)
    driver.answer(TOO_LARGE)
    assert driver.sleep_until_due() == 4_000
    assert len(driver.failed) == 2


def test_a_part_given_up_after_a_doubtful_send_of_the_whole_is_reported_as_perhaps_in_the_log() -> None:
    driver = EngineDriver(delivery_timeout_ms=10_000)
    driver.send(record_count=2)
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    driver.sleep(BACKOFF_MS)
    driver.answer(TOO_LARGE)
    driver.sleep(10_000)
    errors = [failed.error for failed in driver.failed.values()]
    assert [error.ambiguous for error in errors if isinstance(error, DeliveryError)] == [True, True]


def test_parts_of_a_whole_that_may_be_in_the_log_are_given_up_rather_than_written_twice() -> None:
    # 1 The whole is appended, its answer is lost. 2 The next try is refused as too large, and it is split. 3 The leader
    # has the whole's numbers, so those of the parts are out of order. Under new numbers they would be written again.
    driver = EngineDriver(warm=[0])
    driver.send(record_count=2)
    behind = driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    driver.sleep(BACKOFF_MS)
    driver.answer(TOO_LARGE)
    driver.answer(OUT_OF_ORDER)
    driver.answer(OUT_OF_ORDER)
    errors = [failed.error for failed in driver.failed.values()]
    assert [error.ambiguous for error in errors if isinstance(error, DeliveryError)] == [True, True]
    driver.answer()
    assert behind in driver.delivered
    driver.send()
    assert driver.epochs_and_sequences_sent[2:] == [(0, 0), (0, 0), (0, 1), (0, 2), (0, 3)]


def test_parts_of_a_whole_that_did_not_arrive_are_delivered() -> None:
    driver = EngineDriver(warm=[0])
    driver.send(record_count=2)
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    assert len(driver.delivered) == 2
    assert driver.failed == {}


def test_a_split_is_observed_once() -> None:
    driver = EngineDriver(warm=[0])
    whole = driver.send(record_count=2)
    driver.answer(TOO_LARGE)
    assert [event for event in driver.observed if event == BatchObserved("split", whole)] == [
        BatchObserved("split", whole)
    ]
