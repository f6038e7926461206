"""Another try: when, where, in which order, how often, and when it is the last."""

from __future__ import annotations

from typing import Any

import pytest
from driver import BACKOFF_MS, NOT_LEADER, EngineDriver

from kafka_sink.engine.commands import Append, BatchObserved
from kafka_sink.errors import DeliveryError
from kafka_sink.wire.apis import METADATA
from kafka_sink.wire.codes import CODES

NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT = 19, 20, 7


def hint(leader_id: int, leader_epoch: int) -> dict[str, Any]:
    """What an answer says about a new leader (KIP-951)."""
    return {"current_leader": {"leader_id": leader_id, "leader_epoch": leader_epoch}}


def endpoint(node_id: int) -> dict[str, Any]:
    return {"node_id": node_id, "host": f"host{node_id}", "port": 9092, "rack": None}


# ---- which errors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error_code", sorted(number for number, facts in CODES.items() if facts.retriable))
def test_after_a_retriable_error_the_same_batch_is_sent_again_and_succeeds(error_code: int) -> None:
    driver = EngineDriver()
    batch = driver.send(record_count=2)
    driver.answer(error_code)
    assert driver.is_open(batch)
    driver.sleep(BACKOFF_MS)
    first, second = driver.sent
    assert first.decoded == second.decoded
    driver.answer(base_offset=9)
    assert driver.offset_of(batch) == 9
    assert BatchObserved("retried", batch, error_code) in driver.observed


def test_after_a_lost_connection_the_same_bytes_are_sent_again() -> None:
    driver = EngineDriver()
    batch = driver.send(record_count=2)
    driver.disconnect()
    driver.sleep(BACKOFF_MS)
    first, second = driver.sent
    assert first.decoded == second.decoded
    driver.answer()
    assert driver.offset_of(batch) == 0


def test_after_a_request_time_out_the_same_bytes_are_sent_again() -> None:
    driver = EngineDriver()
    driver.send()
    driver.sleep(driver.options.request_timeout_ms)
    driver.sleep(BACKOFF_MS)
    first, second = driver.sent
    assert first.decoded == second.decoded


def test_a_partition_that_the_answer_left_out_is_tried_again() -> None:
    driver = EngineDriver()
    batch = driver.send()
    driver.cluster.answer(driver.produces[0], {"responses": [], "throttle_time_ms": 0})
    driver.run()
    assert driver.is_open(batch)
    assert batch.may_be_in_log
    driver.sleep(BACKOFF_MS)
    driver.answer()
    assert driver.offset_of(batch) == 0


def test_only_the_partition_that_failed_is_tried_again() -> None:
    driver = EngineDriver()
    failing, other = driver.send(0), driver.send(1)
    driver.answer(NOT_ENOUGH_REPLICAS)
    driver.answer()
    driver.sleep(BACKOFF_MS)
    assert driver.is_open(failing)
    assert driver.offset_of(other) == 0
    assert [sent.partition for sent in driver.sent] == [0, 1, 0]


@pytest.mark.parametrize("idempotence", [False, True])
def test_retries_work_with_and_without_idempotence(idempotence: bool) -> None:
    driver = EngineDriver(enable_idempotence=idempotence)
    batch = driver.send()
    driver.answer(REQUEST_TIMED_OUT)
    driver.sleep(BACKOFF_MS)
    driver.answer()
    assert driver.offset_of(batch) == 0


# ---- when ----------------------------------------------------------------------------------------------------------


def test_a_retry_waits_for_its_back_off_and_not_longer() -> None:
    driver = EngineDriver()
    driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS)
    assert driver.sleep_until_due() == BACKOFF_MS
    assert len(driver.sent) == 2


@pytest.mark.parametrize(("jitter", "factor"), [(0.0, 0.8), (0.5, 1.0), (0.999, 1.2)])
def test_the_back_off_doubles_up_to_its_limit_with_a_jitter_of_a_fifth(jitter: float, factor: float) -> None:
    driver = EngineDriver(jitter=jitter)
    driver.send()
    waits = []
    for _ in range(6):
        driver.answer(NOT_ENOUGH_REPLICAS)
        waits.append(driver.sleep_until_due())
    grown = [min(1000, round(delay_ms * factor)) for delay_ms in (100, 200, 400, 800, 1000, 1000)]
    assert waits == pytest.approx(grown, abs=1)


def test_a_stale_leader_asks_for_metadata_at_once_and_a_busy_one_does_not() -> None:
    driver = EngineDriver()
    driver.send()
    asked = len(driver.cluster.requests_of(METADATA))
    driver.answer(NOT_ENOUGH_REPLICAS)
    assert len(driver.cluster.requests_of(METADATA)) == asked
    driver.sleep(BACKOFF_MS)
    driver.answer(NOT_LEADER)
    assert len(driver.cluster.requests_of(METADATA)) == asked + 1


def test_a_lost_connection_asks_for_metadata() -> None:
    driver = EngineDriver(leaders=(0, 1))
    driver.send(1)
    asked = len(driver.cluster.requests_of(METADATA))
    driver.disconnect(1)
    driver.sleep(BACKOFF_MS)
    assert len(driver.cluster.requests_of(METADATA)) == asked + 1


# ---- where ---------------------------------------------------------------------------------------------------------


def test_a_new_leader_found_in_metadata_gets_the_batch_without_waiting() -> None:
    driver = EngineDriver(leaders=(0, 1))
    batch = driver.send()
    driver.cluster.move_leader("t", 0, 1)
    driver.answer(NOT_LEADER)
    assert [sent.node_id for sent in driver.sent] == [0, 1]
    driver.answer()
    assert driver.offset_of(batch) == 0


def test_without_news_about_the_leader_the_batch_waits_for_its_back_off() -> None:
    driver = EngineDriver(leaders=(0, 1))
    driver.send()
    driver.answer(NOT_LEADER)
    assert [sent.node_id for sent in driver.sent] == [0]
    driver.sleep(BACKOFF_MS)
    assert [sent.node_id for sent in driver.sent] == [0, 0]


def test_a_leader_named_in_the_answer_gets_the_batch_before_any_metadata() -> None:
    driver = EngineDriver(leaders=(0, 1))
    driver.cluster.scripts[METADATA.key] = lambda request: None
    driver.send()
    driver.answer(NOT_LEADER, endpoints=[endpoint(1)], **hint(1, 5))
    assert [sent.node_id for sent in driver.sent] == [0, 1]


@pytest.mark.parametrize(("leader_epoch", "endpoints"), [(0, [1]), (5, [])], ids=["not newer", "without an address"])
def test_a_hint_that_cannot_be_used_changes_nothing(leader_epoch: int, endpoints: list[int]) -> None:
    driver = EngineDriver(leaders=(0, 0))
    driver.send()
    driver.answer(NOT_LEADER, endpoints=[endpoint(node_id) for node_id in endpoints], **hint(1, leader_epoch))
    assert [sent.node_id for sent in driver.sent] == [0]
    driver.sleep(BACKOFF_MS)
    assert [sent.node_id for sent in driver.sent] == [0, 0]


def test_an_old_metadata_answer_does_not_send_the_batch_back_to_the_old_leader() -> None:
    driver = EngineDriver(leaders=(0, 1))
    driver.send()
    driver.answer(NOT_LEADER, endpoints=[endpoint(1)], **hint(1, 5))  # the broker asked next still says node 0
    driver.answer(NOT_ENOUGH_REPLICAS)
    driver.sleep(2 * BACKOFF_MS)
    assert [sent.node_id for sent in driver.sent] == [0, 1, 1]


def test_the_same_node_elected_again_is_a_new_leader() -> None:
    driver = EngineDriver()
    driver.send()
    driver.cluster.move_leader("t", 0, 0)
    driver.answer(NOT_LEADER)
    assert len(driver.sent) == 2


# ---- order ---------------------------------------------------------------------------------------------------------


def test_with_one_request_in_flight_a_batch_never_overtakes_the_one_before_it() -> None:
    driver = EngineDriver(max_in_flight_requests_per_connection=1, enable_idempotence=False)
    first, second = driver.send(record_count=1), driver.send(record_count=2)
    driver.answer(NOT_ENOUGH_REPLICAS)
    assert [len(sent.decoded.records) for sent in driver.sent] == [1]
    driver.sleep(BACKOFF_MS)
    driver.answer()
    driver.answer(base_offset=1)
    assert [len(sent.decoded.records) for sent in driver.sent] == [1, 1, 2]
    assert (driver.offset_of(first), driver.offset_of(second)) == (0, 1)


def test_with_one_request_in_flight_a_partition_that_moves_waits_for_the_answer_of_its_old_leader() -> None:
    driver = EngineDriver(
        leaders=(0, 1), max_in_flight_requests_per_connection=1, enable_idempotence=False, metadata_max_age_ms=500
    )
    driver.send(1)
    driver.answer()
    first = driver.send()
    driver.cluster.move_leader("t", 0, 1)
    driver.sleep(500)
    assert driver.engine.cluster.leader("t", 0) == 1
    driver.send(record_count=2)
    assert [(sent.node_id, sent.partition) for sent in driver.sent] == [(1, 1), (0, 0)]
    driver.answer()
    assert driver.offset_of(first) == 0
    assert [(sent.node_id, len(sent.decoded.records)) for sent in driver.sent[2:]] == [(1, 2)]


def test_other_partitions_go_on_while_one_backs_off() -> None:
    driver = EngineDriver(max_in_flight_requests_per_connection=1)
    driver.send(0)
    driver.answer(NOT_ENOUGH_REPLICAS)
    other = driver.send(1)
    driver.answer()
    assert driver.offset_of(other) == 0


# ---- the last one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_after_the_given_number_of_retries_the_batch_fails_with_the_last_reason(retries: int) -> None:
    driver = EngineDriver(retries=retries)
    batch = driver.send()
    for _ in range(retries):
        driver.answer(NOT_ENOUGH_REPLICAS)
        driver.sleep(1000)
    assert driver.is_open(batch)
    driver.answer(NOT_ENOUGH_REPLICAS)
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError)
    assert (error.attempts, error.code, error.ambiguous) == (retries + 1, NOT_ENOUGH_REPLICAS, False)
    assert "retries used up" in str(error)
    assert "NOT_ENOUGH_REPLICAS (19)" in str(error)


def test_a_batch_whose_last_connection_was_lost_is_reported_as_perhaps_in_the_log() -> None:
    driver = EngineDriver(retries=0)
    batch = driver.send()
    driver.disconnect()
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError)
    assert error.ambiguous
    assert "may be in the log" in str(error)


def test_a_doubt_from_an_early_try_outlives_a_clear_refusal_of_the_last_one() -> None:
    driver = EngineDriver(retries=1)
    batch = driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    driver.sleep(BACKOFF_MS)
    driver.answer(NOT_ENOUGH_REPLICAS)
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError)
    assert error.ambiguous


def test_batches_appended_together_fail_one_by_one() -> None:
    driver = EngineDriver(retries=0)
    batches = [driver.send(0), driver.send(1)]
    driver.run(Append([]))
    driver.disconnect()
    assert set(driver.failed) == set(batches)
