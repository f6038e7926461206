"""From an appended batch to its one result: success, refusal, errors of single records, acks, flush, close."""

from __future__ import annotations

from driver import BACKOFF_MS, INVALID_RECORD, NOT_LEADER, START_MS, WARM_UP_MS, EngineDriver, new_batch

from kafka_sink.client.commands import Disconnect
from kafka_sink.engine.batch_sender import REQUEST_OVERHEAD_BYTES
from kafka_sink.engine.commands import Abandon, Append, Close, Drained, Flush
from kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    DeliveryError,
    LocalProtocolError,
    TransportError,
)
from kafka_sink.wire.apis import PRODUCE

TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, INVALID_TOPIC = 29, 31, 17


def test_a_batch_is_sent_at_once_and_its_answer_gives_the_offset() -> None:
    driver = EngineDriver()
    batch = driver.send(record_count=3)
    assert driver.is_open(batch)
    driver.answer(base_offset=42, log_append_time_ms=77)
    assert (batch.base_offset, batch.log_append_time_ms) == (42, 77) and batch in driver.delivered


def test_what_is_sent_are_the_records_that_were_appended() -> None:
    driver = EngineDriver()
    batch = driver.send(record_count=3)
    (sent,) = driver.sent
    assert (sent.partition, len(sent.decoded.records)) == (0, 3)
    assert [record.key for record in sent.decoded.records] == [b"0", b"1", b"2"]
    assert sent.identity == batch.identity
    assert not sent.decoded.is_transactional


def test_batches_of_several_partitions_share_a_request_and_each_gets_its_own_answer() -> None:
    driver = EngineDriver()
    zero, one = new_batch(0), new_batch(1)
    driver.run(Append([zero, one]))
    assert len(driver.produces) == 1
    driver.answer({0: 0, 1: INVALID_RECORD}, base_offset=5)
    assert driver.offset_of(zero) == 5
    assert isinstance(driver.error_of(one), DeliveryError)


def test_each_leader_gets_only_its_own_partitions() -> None:
    driver = EngineDriver(leaders=(0, 1))
    driver.run(Append([new_batch(0), new_batch(1)]))
    assert [(sent.node_id, sent.partition) for sent in driver.sent] == [(0, 0), (1, 1)]


def test_at_most_one_batch_of_a_partition_is_in_a_request() -> None:
    driver = EngineDriver(warm=[0])
    driver.run(Append([new_batch(), new_batch()]))
    assert [len(request.body["topic_data"][0]["partition_data"]) for request in driver.produces] == [1, 1]


def test_requests_are_kept_below_the_limit_of_their_size() -> None:
    size = new_batch().size
    driver = EngineDriver(leaders=(0,) * 5, max_request_size=2 * size + REQUEST_OVERHEAD_BYTES)
    driver.run(Append([new_batch(partition) for partition in range(5)]))
    assert [len(request.body["topic_data"][0]["partition_data"]) for request in driver.produces] == [2, 2, 1]


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    driver = EngineDriver(warm=[0], max_in_flight_requests_per_connection=3)
    for _ in range(4):
        driver.send()
    assert len(driver.produces) == 3
    driver.answer()
    assert len(driver.produces) == 3
    assert driver.sequences_sent == [0, 1, 2, 3]


def test_a_batch_waits_for_the_leader_of_its_partition() -> None:
    driver = EngineDriver()
    driver.cluster.topics["t"][2] = 9
    driver.cluster.topics["new"] = {0: 9}
    batch = driver.send(topic="new")
    assert driver.sent == []
    driver.cluster.topics["new"] = {0: 0}
    driver.sleep(1000)
    driver.answer()
    assert driver.offset_of(batch) == 0


def test_waiting_for_a_leader_is_no_busy_loop() -> None:
    driver = EngineDriver()
    driver.cluster.topics["new"] = {0: 9}
    driver.send(topic="new")
    waits = [driver.sleep_until_due() for _ in range(5)]
    assert min(waits) >= 80


def test_waiting_for_an_answer_is_no_busy_loop() -> None:
    driver = EngineDriver()
    driver.send()
    assert driver.sleep_until_due() == driver.options.request_timeout_ms


def test_an_idle_producer_sleeps_until_its_metadata_is_old() -> None:
    driver = EngineDriver()
    driver.send()
    driver.answer()
    assert driver.sleep_until_due() == driver.options.metadata_max_age_ms - WARM_UP_MS


# ---- errors --------------------------------------------------------------------------------------------------------


def test_a_refused_batch_names_the_code_its_place_and_that_it_is_not_in_the_log() -> None:
    driver = EngineDriver()
    batch = driver.send(1, record_count=2)
    driver.answer(INVALID_RECORD)
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError)
    assert (error.topic, error.partition, error.attempts, error.code) == ("t", 1, 1, INVALID_RECORD)
    assert not error.ambiguous
    assert "INVALID_RECORD (87)" in str(error)
    assert "2 records for t-1" in str(error)


def test_the_text_of_the_broker_reaches_the_user() -> None:
    driver = EngineDriver()
    batch = driver.send()
    driver.answer(INVALID_RECORD, error_message="no key on a compacted topic")
    assert "no key on a compacted topic" in str(driver.error_of(batch))


def test_errors_of_single_records_are_passed_on_with_their_positions() -> None:
    driver = EngineDriver()
    batch = driver.send(record_count=5)
    record_errors = [
        {"batch_index": 1, "batch_index_error_message": "key is missing"},
        {"batch_index": 3, "batch_index_error_message": None},
    ]
    driver.answer(INVALID_RECORD, record_errors=record_errors)
    assert driver.failed[batch].record_errors == {1: "key is missing", 3: ""}


def test_a_missing_permission_for_the_topic_fails_the_batch_and_not_the_producer() -> None:
    driver = EngineDriver()
    refused = driver.send()
    driver.answer(TOPIC_AUTHORIZATION_FAILED)
    error = driver.error_of(refused)
    assert isinstance(error, AuthorizationError)
    assert "Write on topic 't'" in str(error)
    assert driver.engine.refusal is None
    other = driver.send(1)
    driver.answer()
    assert driver.offset_of(other) == 0


def test_without_a_transaction_a_missing_permission_for_the_cluster_is_told_with_every_batch() -> None:
    # Java's producer is finished after it (KIP-360 names it fatal). Here each batch gets the broker's own answer, so
    # that a permission granted meanwhile takes effect without a restart.
    driver = EngineDriver()
    refused = driver.send()
    driver.answer(CLUSTER_AUTHORIZATION_FAILED)
    assert isinstance(driver.error_of(refused), AuthorizationError)
    later = driver.send()
    driver.answer()
    assert driver.offset_of(later) == 0


def test_a_broker_that_speaks_no_common_version_of_produce_fails_the_batch_at_once() -> None:
    driver = EngineDriver()
    driver.cluster.api_versions[PRODUCE.key] = (0, 2)
    batch = driver.send()
    error = driver.error_of(batch)
    assert "Produce needs one of the versions" in str(error)
    assert isinstance(error.__cause__, BrokerError)
    assert driver.sent == []


# ---- acks=0 --------------------------------------------------------------------------------------------------------


def test_without_acknowledgements_a_batch_is_delivered_when_it_is_written_and_its_offset_is_unknown() -> None:
    driver = EngineDriver(acks=0, enable_idempotence=False)
    batch = driver.send()
    assert driver.cluster.requests_of(PRODUCE)[0].body["acks"] == 0
    assert (batch.base_offset, batch.log_append_time_ms) == (-1, -1) and batch in driver.delivered


def test_without_idempotence_batches_carry_neither_id_nor_sequence() -> None:
    driver = EngineDriver(enable_idempotence=False)
    driver.send()
    (sent,) = driver.sent
    assert (sent.identity, sent.base_sequence) == ((-1, -1), -1)


# ---- flush ---------------------------------------------------------------------------------------------------------


def test_a_flush_ends_when_all_that_was_appended_before_it_has_ended() -> None:
    driver = EngineDriver()
    driver.send()
    driver.send(1)
    driver.run(Flush(1))
    later = driver.send()
    driver.answer()
    assert 1 not in driver.finished
    driver.answer(INVALID_RECORD)
    assert driver.finished[1].error is None
    assert driver.is_open(later)


def test_a_flush_with_nothing_to_wait_for_ends_at_once() -> None:
    driver = EngineDriver()
    driver.run(Flush(1))
    assert 1 in driver.finished


def test_several_flushes_end_each_at_its_own_time() -> None:
    driver = EngineDriver()
    driver.send()
    driver.run(Flush(1))
    driver.send()
    driver.run(Flush(2))
    driver.answer()
    assert set(driver.finished) == {1}
    driver.answer()
    assert set(driver.finished) == {1, 2}


def test_a_flush_waits_for_batches_that_are_tried_again() -> None:
    driver = EngineDriver()
    driver.send()
    driver.run(Flush(1))
    driver.disconnect()
    assert 1 not in driver.finished
    driver.sleep(1000)
    driver.answer()
    assert 1 in driver.finished


# ---- the end -------------------------------------------------------------------------------------------------------


def test_a_graceful_close_sends_what_is_queued_and_then_ends() -> None:
    driver = EngineDriver(max_in_flight_requests_per_connection=1)
    first, second = driver.send(), driver.send()
    driver.run(Close(1))
    assert isinstance(driver.engine.refusal, LocalProtocolError)
    driver.answer()
    assert 1 not in driver.finished
    driver.answer(base_offset=1)
    assert (driver.offset_of(first), driver.offset_of(second)) == (0, 1)
    assert driver.finished[1].error is None


def test_a_closed_producer_keeps_no_connection_and_no_deadline() -> None:
    driver = EngineDriver()
    driver.send()
    driver.answer()
    driver.run(Close(1))
    assert driver.cluster.connections == {}
    assert driver.engine.step(driver.now_ms, ()).wake_at_ms is None


def test_abandoning_fails_what_is_queued_and_what_is_on_the_wire() -> None:
    driver = EngineDriver(max_in_flight_requests_per_connection=1)
    on_wire, queued = driver.send(), driver.send()
    driver.run(Flush(1))
    driver.run(Abandon(TransportError("enough")))
    first, second = driver.error_of(on_wire), driver.error_of(queued)
    assert isinstance(first, DeliveryError)
    assert isinstance(second, DeliveryError)
    assert (first.ambiguous, second.ambiguous) == (True, False)
    assert "enough" in str(first)
    assert 1 in driver.finished


def test_a_batch_appended_after_the_end_fails() -> None:
    driver = EngineDriver()
    driver.run(Close(1))
    late = driver.send()
    assert isinstance(driver.error_of(late), DeliveryError)


# ---- observations --------------------------------------------------------------------------------------------------


def test_the_first_drain_is_told_and_the_next_one_is_not() -> None:
    driver = EngineDriver()
    batch = new_batch(opened_ms=START_MS - 7)
    driver.run(Append([batch]))
    assert driver.observed == [Drained([batch])]
    driver.answer(NOT_LEADER)
    driver.sleep(BACKOFF_MS)
    assert (batch.attempts, driver.drained) == (2, [batch])


def test_a_request_that_times_out_closes_its_connection() -> None:
    driver = EngineDriver()
    driver.send()
    closed = sum(isinstance(command, Disconnect) for command in driver.cluster.commands)
    driver.sleep(driver.options.request_timeout_ms)
    assert sum(isinstance(command, Disconnect) for command in driver.cluster.commands) == closed + 1
