"""From an appended batch to its one result: success, refusal, expiry, parts of a batch that was too large."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from kafka_sink.errors import AuthorizationError, BrokerError, DeliveryError, DeliveryTimeout
from kafka_sink.formats.records.batch import Share
from kafka_sink.kafka.client.commands import Disconnect
from kafka_sink.kafka.wire.apis import INIT_PRODUCER_ID, PRODUCE
from kafka_sink.producer.engine.batch_sender import REQUEST_OVERHEAD_BYTES
from kafka_sink.producer.engine.commands import Append, BatchObserved, Close, Drained
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from tests.unit.producer.engine.driver import (
    BACKOFF_MS,
    INVALID_RECORD,
    NOT_LEADER,
    START_MS,
    TOO_LARGE,
    WARM_UP_MS,
    EngineDriver,
    batches_of,
    new_batch,
)
from tests.unit.producer.engine.fake_cluster import FakeCluster

TOPIC_AUTHORIZATION_FAILED = 29


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
    batch = driver.send()
    driver.answer(INVALID_RECORD, error_message="\x1b[2Jno key\n25/11/25 INFO all rows delivered" + "x" * 30_000)
    text = str(driver.error_of(batch))
    assert "no key 25/11/25" in text and text.isprintable() and len(text) < 3000


def test_errors_of_single_records_are_passed_on_with_their_positions() -> None:
    driver = EngineDriver()
    batch = driver.send(record_count=5)
    record_errors = [
        {"batch_index": 1, "batch_index_error_message": "key is\nmissing"},
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


def test_a_broker_that_speaks_no_common_version_of_produce_fails_the_batch_at_once() -> None:
    cluster = FakeCluster({0: ("host0", 9092)}, {"t": {0: 0}}, api_versions={PRODUCE.key: (0, 2)})
    driver = EngineDriver(cluster=cluster)
    batch = driver.send()
    error = driver.error_of(batch)
    assert "Produce needs one of the versions" in str(error)
    assert isinstance(error, DeliveryError) and not error.ambiguous
    assert isinstance(error.__cause__, BrokerError)
    assert driver.sent == []
    assert driver.engine.refusal is error.__cause__, "the producer is finished, as with Java's"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (31, "The principal needs IdempotentWrite on the cluster"),
        (35, "UNSUPPORTED_VERSION"),
        (49, "INVALID_PRODUCER_ID_MAPPING"),
        (53, "The principal needs Write on transactional id"),
        (90, "PRODUCER_FENCED"),
    ],
)
def test_codes_that_end_a_producer_in_java_end_this_one_and_later_calls_say_why(code: int, words: str) -> None:
    driver = EngineDriver()
    first = driver.send()
    driver.answer(code)
    refusal = driver.engine.refusal
    assert driver.error_of(first) is refusal and words in str(refusal)
    late = driver.send(1)
    assert driver.error_of(late).__cause__ is refusal
    driver.sleep(60_000)
    assert len(driver.sent) == 1 and len(driver.cluster.requests_of(INIT_PRODUCER_ID)) == 1


@pytest.mark.parametrize("code", [29, 47, 87], ids=str)
def test_codes_that_fail_one_batch_do_not_end_the_producer(code: int) -> None:
    driver = EngineDriver()
    first = driver.send()
    driver.answer(code)
    assert first in driver.failed and driver.engine.refusal is None


# ---- without idempotence -------------------------------------------------------------------------------------------


def test_without_idempotence_batches_carry_neither_id_nor_sequence() -> None:
    driver = EngineDriver(enable_idempotence=False)
    driver.send()
    (sent,) = driver.sent
    assert (sent.identity, sent.base_sequence) == ((-1, -1), -1)


# ---- the end -------------------------------------------------------------------------------------------------------


def test_a_closed_producer_keeps_no_connection_and_no_deadline() -> None:
    driver = EngineDriver()
    driver.send()
    driver.answer()
    driver.run(Close(1))
    assert driver.cluster.connections == {}
    assert driver.engine.step(driver.now_ms).wake_at_ms is None


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


# ---- delivery.timeout.ms ---------------------------------------------------------------------------------------------


DELIVERY_TIMEOUT_MS = 10_000
# The request time-out is longer than that of a delivery, so batches expire while they are on the wire.
OPTIONS: dict[str, Any] = {"delivery_timeout_ms": DELIVERY_TIMEOUT_MS, "request_timeout_ms": 30_000}
NOT_ENOUGH_REPLICAS, UNKNOWN_TOPIC_ID = 19, 100


def timeout_of(driver: EngineDriver, batch: ProducerBatch) -> DeliveryTimeout:
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryTimeout) and error.name == "PKS-5002"
    return error


def without_a_leader() -> EngineDriver:
    driver = EngineDriver(warm=[0], **OPTIONS)
    driver.cluster.topics["lost"] = {0: 9, 1: 9}
    return driver


# ---- expiry --------------------------------------------------------------------------------------------------------


def test_a_batch_that_cannot_be_sent_expires_exactly_in_time_and_is_not_in_the_log() -> None:
    driver = without_a_leader()
    batch = driver.send(topic="lost")
    driver.sleep(DELIVERY_TIMEOUT_MS - 1)
    assert driver.is_open(batch)
    driver.sleep(1)
    error = timeout_of(driver, batch)
    assert (error.ambiguous, error.attempts) == (False, 0)
    assert "delivery.timeout.ms=10000" in str(error)


def test_a_batch_that_expires_behind_a_quota_says_so() -> None:
    """Of two batches the first uses up the quota: nothing has failed, and nothing but the pause is in the way."""
    driver = EngineDriver(warm=[0], max_in_flight_requests_per_connection=1, **OPTIONS)
    driver.send()
    behind = driver.send()
    driver.answer(throttle_time_ms=2 * DELIVERY_TIMEOUT_MS)
    assert "quota" in driver.engine.trouble
    driver.sleep(DELIVERY_TIMEOUT_MS)
    assert "throttles this client, because a quota" in str(timeout_of(driver, behind))


def test_each_batch_expires_in_its_own_time_whatever_became_of_the_others() -> None:
    driver = without_a_leader()
    batches = []
    for _ in range(3):
        batches.append(driver.send(topic="lost"))
        driver.sleep(1_000)
    delivered = driver.send()
    driver.answer()
    assert driver.offset_of(delivered) == 0
    driver.sleep(DELIVERY_TIMEOUT_MS - 3_000 - 1)
    for number, batch in enumerate(batches):
        assert [driver.is_open(each) for each in batches] == [index >= number for index in range(3)]
        driver.sleep(1)
        assert batch.opened_ms + DELIVERY_TIMEOUT_MS == driver.now_ms
        assert not timeout_of(driver, batch).ambiguous
        driver.sleep(999)


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


# ---- too large -------------------------------------------------------------------------------------------------------


def keys_sent(driver: EngineDriver, start: int = 0) -> list[bytes | None]:
    return [record.key for sent in driver.sent[start:] for record in sent.decoded.records]


def answer_all(driver: EngineDriver) -> None:
    """Answers every Produce with success and the offsets that a log would give."""
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


def test_a_part_that_is_still_too_large_is_split_again_until_single_records_are_left() -> None:
    driver = EngineDriver(warm=[0])
    driver.send(record_count=4)
    while driver.produces:
        driver.answer(TOO_LARGE)
    assert [batch.record_count for batch in driver.failed] == [1, 1, 1, 1]
    assert driver.delivered == {}


def test_without_sequences_the_parts_go_before_what_was_queued_behind_the_whole() -> None:
    driver = EngineDriver(enable_idempotence=False, max_in_flight_requests_per_connection=1)
    driver.send(record_count=4)
    driver.send(record_count=1)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    assert keys_sent(driver, 1) == [b"0", b"1", b"2", b"3", b"0"]


def test_a_split_is_observed_once() -> None:
    driver = EngineDriver(warm=[0])
    whole = driver.send(record_count=2)
    driver.answer(TOO_LARGE)
    assert [event for event in driver.observed if event == BatchObserved("split", whole)] == [
        BatchObserved("split", whole)
    ]


def test_of_what_a_topic_has_refused_the_smallest_says_into_which_parts_the_next_is_split() -> None:
    """Halving a batch of twenty times the limit again and again would encode each of its records five times."""
    driver = EngineDriver(warm=[0])
    small = driver.send(record_count=8)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    assert driver.engine.refused_sizes["t"].bytes == small.size
    large = driver.send(record_count=64)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    assert driver.engine.refused_sizes["t"].bytes == small.size
    assert max(part.size for part in parts_of(large, driver)) <= small.size
    assert sum(part.record_count for part in parts_of(large, driver)) == 64


def test_the_size_that_a_topic_has_refused_is_known_for_metadata_max_age_ms_and_told_once() -> None:
    driver = EngineDriver(warm=[0], metadata_max_age_ms=60_000)
    driver.send(record_count=8)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    driver.sleep(60_000)
    large = driver.send(record_count=64)
    driver.answer(TOO_LARGE)
    answer_all(driver)
    assert driver.engine.refused_sizes["t"].bytes == large.size
    assert parts_of(large, driver)[0].record_count == 32
    (told,) = [notice for notice in driver.notices if "max.message.bytes" in notice.text]
    assert told.level == "warning"
    assert told.text.startswith("topic t does not take a batch of ")


def test_a_split_leaves_the_batches_behind_it_where_they_are() -> None:
    """Others that wait may be thousands, and each batch of a topic may be split."""

    class Moves(OrderedDict[ProducerBatch, None]):
        count = 0

        def move_to_end(self, key: ProducerBatch, last: bool = True) -> None:
            self.count += 1
            super().move_to_end(key, last)

    driver = EngineDriver(warm=[0])
    batches = driver.engine._batches
    batches.incomplete = moves = Moves()
    first = driver.send(record_count=4)
    others = [driver.send(record_count=1) for _ in range(1000)]
    driver.answer(TOO_LARGE)
    assert batches.incomplete is moves
    assert moves.count == 2
    assert [batch.split_from or batch for batch in moves] == [first, first, *others]
