"""Retries: for which errors, when, where, in which order, under which number and id, and which one is the last."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.errors import AuthorizationError, BrokerError, DeliveryError, TransportError
from kafka_sink.kafka.client.producer_identity import PRODUCER_EPOCH_MAX
from kafka_sink.kafka.wire.apis import INIT_PRODUCER_ID, METADATA, PRODUCE
from kafka_sink.kafka.wire.codes import CODES
from kafka_sink.producer.engine.commands import Abandon, Append, BatchObserved, Close, Flush
from kafka_sink.producer.engine.producer_batch import ProducerBatch, ProducerIdentity
from tests.unit.producer.engine.driver import (
    BACKOFF_MS,
    DUPLICATE,
    INVALID_RECORD,
    NOT_LEADER,
    OUT_OF_ORDER,
    EngineDriver,
    new_batch,
)
from tests.unit.producer.engine.fake_cluster import FakeCluster
from tests.unit.producer.engine.transaction_driver import TransactionDriver

REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 7, 19, 20
CONCURRENT_TRANSACTIONS, STORAGE_ERROR = 51, 56


def hint(leader_id: int, leader_epoch: int) -> dict[str, Any]:
    """The fields of an answer that name a new leader (KIP-951)."""
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


@pytest.mark.parametrize("code_of_the_other", [0, INVALID_RECORD])
def test_a_partition_that_the_answer_left_out_is_tried_again(code_of_the_other: int) -> None:
    driver = EngineDriver()
    batch, other = new_batch(0), new_batch(1)
    driver.run(Append([batch, other]))
    (request,) = driver.produces
    (topic,) = request.body["topic_data"]
    row = {"index": 1, "error_code": code_of_the_other, "base_offset": -1}
    body = {"responses": [{"topic_id": topic["topic_id"], "partition_responses": [row]}], "throttle_time_ms": 0}
    driver.cluster.answer(request, body)
    driver.run()
    assert driver.is_open(batch) and not driver.is_open(other)
    assert batch.may_be_in_log
    driver.sleep(BACKOFF_MS)
    driver.answer()
    assert driver.offset_of(batch) == 0


# ---- when ----------------------------------------------------------------------------------------------------------


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
    driver.answer(NOT_LEADER, endpoints=[endpoint(1)], **hint(1, 5))  # metadata still names node 0
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


# ---- the last retry ------------------------------------------------------------------------------------------------


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


VERIFYING = "Unable to verify the partition has been added to the transaction. Underlying error: NOT_COORDINATOR"


def test_what_the_broker_said_last_is_told_when_a_batch_is_given_up() -> None:
    """A leader answers NOT_ENOUGH_REPLICAS also if it cannot reach the coordinator of the transaction."""
    driver = EngineDriver(retries=0)
    batch = driver.send()
    driver.answer(NOT_ENOUGH_REPLICAS, error_message=VERIFYING)
    assert f"nothing was written; the broker says: {VERIFYING}. They are not in the log" in str(driver.error_of(batch))


@pytest.mark.parametrize("code", [NOT_ENOUGH_REPLICAS, CONCURRENT_TRANSACTIONS])
def test_in_a_transaction_the_coordinator_may_be_what_is_missing(code: int) -> None:
    driver = TransactionDriver(2, retries=0)
    driver.hold(PRODUCE)
    driver.begin()
    batch = driver.send()
    driver.answer(code, error_message=VERIFYING)
    text = str(driver.error_of(batch))
    assert f"the broker says: {VERIFYING}; or the transaction's coordinator cannot be reached" in text
    assert "`check`" in text


def test_another_reason_is_told_without_the_coordinator() -> None:
    driver = TransactionDriver(2, retries=0)
    driver.hold(PRODUCE)
    driver.begin()
    batch = driver.send()
    driver.answer(NOT_LEADER)
    assert "coordinator" not in str(driver.error_of(batch))


# ---- sequence numbers ----------------------------------------------------------------------------------------------


def across_a_move() -> tuple[EngineDriver, ProducerBatch, ProducerBatch]:
    """Two batches of one partition in flight on two connections, because its leader moved from node 0 to node 1."""
    driver = EngineDriver(leaders=(0, 1), metadata_max_age_ms=2_000, warm=[0, 1])
    first = driver.send()
    driver.cluster.move_leader("t", 0, 1)
    driver.sleep(2_000)
    second = driver.send()
    assert [(sent.node_id, sent.base_sequence) for sent in driver.sent] == [(0, 0), (1, 1)]
    return driver, first, second


# ---- in flight -----------------------------------------------------------------------------------------------------


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


# ---- batches that may be in the log --------------------------------------------------------------------------------


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


# ---- the producer id -------------------------------------------------------------------------------------------------


CLUSTER_AUTHORIZATION_FAILED, COORDINATOR_LOAD_IN_PROGRESS, NOT_SUPPORTED = 31, 14, 35
LAST_EPOCH = ProducerIdentity(1000, PRODUCER_EPOCH_MAX)
NEXT_ID = ProducerIdentity(1001, 0)


def cluster_with_ids(*answers: int | ProducerIdentity) -> FakeCluster:
    """InitProducerId gets these answers in turn, each an error code or an id; later requests get no answer."""
    cluster = FakeCluster({0: ("host0", 9092)}, {"t": {0: 0, 1: 0}})
    waiting = list(answers)

    def answer(request: object) -> dict[str, int] | None:
        if not waiting:
            return None
        first = waiting.pop(0)
        if isinstance(first, ProducerIdentity):
            return {"error_code": 0, "producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
        return {"error_code": first, "producer_id": -1, "producer_epoch": -1}

    cluster.scripts[INIT_PRODUCER_ID.key] = answer
    return cluster


def asked_for_ids(driver: EngineDriver) -> int:
    return len(driver.cluster.requests_of(INIT_PRODUCER_ID))


# ---- fetching ------------------------------------------------------------------------------------------------------


def test_the_id_is_fetched_before_anything_is_appended() -> None:
    driver = EngineDriver(cluster=cluster_with_ids(NEXT_ID))
    (asked,) = driver.cluster.requests_of(INIT_PRODUCER_ID)
    assert asked.body["transactional_id"] is None
    driver.send()
    assert driver.sent[0].identity == NEXT_ID


def test_a_producer_without_idempotence_asks_for_no_id() -> None:
    driver = EngineDriver(enable_idempotence=False)
    driver.send()
    assert asked_for_ids(driver) == 0


def test_batches_wait_for_the_id_and_go_with_it() -> None:
    driver = EngineDriver(cluster=cluster_with_ids())
    driver.send()
    assert driver.sent == []
    (asked,) = driver.cluster.pending_of(INIT_PRODUCER_ID)
    driver.cluster.answer(asked, {"error_code": 0, "producer_id": 5, "producer_epoch": 3})
    driver.run()
    assert driver.sent[0].identity == (5, 3)


def test_with_one_request_in_flight_the_id_is_fetched_after_the_metadata() -> None:
    driver = EngineDriver(max_in_flight_requests_per_connection=1)
    driver.send()
    assert driver.sent[0].identity == (1000, 0)


def test_a_passing_error_is_tried_again_after_a_back_off() -> None:
    driver = EngineDriver(cluster=cluster_with_ids(COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_LOAD_IN_PROGRESS, NEXT_ID))
    driver.send()
    driver.sleep(1_000)
    assert asked_for_ids(driver) == 3
    assert driver.sent[0].identity == NEXT_ID


def test_a_lost_connection_is_no_reason_to_give_up_on_the_id() -> None:
    driver = EngineDriver(cluster=cluster_with_ids())
    batch = driver.send()
    driver.cluster.scripts[INIT_PRODUCER_ID.key] = cluster_with_ids(NEXT_ID).scripts[INIT_PRODUCER_ID.key]
    driver.disconnect()
    driver.sleep(1_000)
    driver.answer()
    assert driver.offset_of(batch) == 0


def test_a_connection_that_asks_for_a_pause_is_left_alone_and_another_one_fetches_the_id() -> None:
    cluster = cluster_with_ids()
    cluster.brokers[1] = ("host1", 9092)
    driver = EngineDriver(cluster=cluster)
    driver.send()
    (asked,) = driver.cluster.pending_of(INIT_PRODUCER_ID)
    throttled = {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "producer_id": -1, "throttle_time_ms": 5_000}
    driver.cluster.answer(asked, {**throttled, "producer_epoch": -1})
    driver.run()
    driver.sleep(BACKOFF_MS)
    (again,) = driver.cluster.pending_of(INIT_PRODUCER_ID)
    assert again.connection_id != asked.connection_id


@pytest.mark.parametrize(
    ("code", "kind"), [(CLUSTER_AUTHORIZATION_FAILED, AuthorizationError), (NOT_SUPPORTED, BrokerError)]
)
def test_a_final_refusal_of_the_id_ends_the_producer_and_says_why(code: int, kind: type[Exception]) -> None:
    driver = EngineDriver(cluster=cluster_with_ids())
    waiting = driver.send()
    driver.run(Flush(1))
    (asked,) = driver.cluster.pending_of(INIT_PRODUCER_ID)
    driver.cluster.answer(asked, {"error_code": code, "producer_id": -1, "producer_epoch": -1})
    driver.run()
    assert isinstance(driver.engine.refusal, kind)
    error = driver.error_of(waiting)
    assert isinstance(error, DeliveryError)
    assert isinstance(error.__cause__, kind)
    assert not error.ambiguous
    assert 1 in driver.finished


# ---- the last epoch ------------------------------------------------------------------------------------------------


def test_with_the_last_epoch_used_up_a_new_id_is_fetched_and_the_batch_goes_with_it() -> None:
    driver = EngineDriver(cluster=cluster_with_ids(LAST_EPOCH, NEXT_ID))
    batch = driver.send()
    driver.answer(OUT_OF_ORDER)
    driver.sleep(BACKOFF_MS)
    driver.answer(base_offset=4)
    assert [sent.identity for sent in driver.sent] == [LAST_EPOCH, NEXT_ID]
    assert driver.sequences_sent == [0, 0]
    assert driver.offset_of(batch) == 4


def test_other_partitions_finish_their_batches_under_the_old_id() -> None:
    driver = EngineDriver(cluster=cluster_with_ids(LAST_EPOCH, NEXT_ID))
    broken, other = driver.send(0), driver.send(1)
    driver.answer(OUT_OF_ORDER)
    driver.answer(NOT_LEADER)
    driver.sleep(BACKOFF_MS)
    resent = {sent.partition: sent.identity for sent in driver.sent[2:]}
    assert resent == {0: NEXT_ID, 1: LAST_EPOCH}
    driver.answer(NOT_LEADER)
    driver.sleep(2 * BACKOFF_MS)
    driver.answer()
    assert not driver.is_open(broken)
    assert not driver.is_open(other)
    driver.send(1)
    assert (driver.sent[-1].identity, driver.sent[-1].base_sequence) == (NEXT_ID, 0)


def test_a_raised_epoch_leaves_batches_of_other_partitions_with_their_number_until_they_are_through() -> None:
    driver = EngineDriver()
    driver.send(0)
    other = driver.send(1)
    driver.answer(OUT_OF_ORDER)
    driver.answer(NOT_LEADER)
    driver.sleep(BACKOFF_MS)
    driver.answer({0: 0, 1: NOT_LEADER})
    driver.sleep(2 * BACKOFF_MS)
    driver.answer()
    assert [s.identity.producer_epoch for s in driver.sent if s.partition == 1] == [0, 0, 0]
    assert other in driver.delivered
    driver.send(1)
    assert driver.epochs_and_sequences_sent[-1] == (1, 0)


def test_a_partition_that_fails_while_the_new_id_is_fetched_is_not_renumbered_on_the_wire() -> None:
    driver = EngineDriver(cluster=cluster_with_ids(LAST_EPOCH), warm=[1])
    driver.send(0)
    refused, behind = driver.send(1), driver.send(1)
    driver.answer(OUT_OF_ORDER)
    driver.answer(INVALID_RECORD)
    assert refused in driver.failed
    assert driver.cluster.pending_of(INIT_PRODUCER_ID)
    driver.answer(OUT_OF_ORDER)
    (asked,) = driver.cluster.pending_of(INIT_PRODUCER_ID)
    driver.cluster.answer(asked, {"error_code": 0, "producer_id": 1001, "producer_epoch": 0})
    driver.sleep(BACKOFF_MS)
    while driver.produces:
        driver.answer()
    assert behind in driver.delivered
    assert driver.sent[-1].identity.producer_id == NEXT_ID.producer_id


def test_a_graceful_close_waits_for_the_new_id_and_drains() -> None:
    driver = EngineDriver(cluster=cluster_with_ids(LAST_EPOCH, NEXT_ID))
    broken, other = driver.send(0), driver.send(1)
    driver.answer(OUT_OF_ORDER)
    driver.answer(NOT_LEADER)
    driver.run(Close(1))
    driver.sleep(BACKOFF_MS)
    while driver.produces:
        driver.answer()
    assert 1 in driver.finished
    assert {broken, other} == set(driver.delivered)


def test_abandoning_does_not_wait_for_the_new_id() -> None:
    driver = EngineDriver(cluster=cluster_with_ids(LAST_EPOCH))
    broken, other = driver.send(0), driver.send(1)
    driver.answer(OUT_OF_ORDER)
    driver.answer(NOT_LEADER)
    driver.run(Abandon(TransportError("enough")))
    assert set(driver.failed) == {broken, other}


# ---- topics that are out of use ------------------------------------------------------------------------------------


def test_a_topic_with_queued_batches_stays_in_use_however_long_it_has_no_leader() -> None:
    driver = EngineDriver(metadata_max_idle_ms=5_000, delivery_timeout_ms=120_000, metadata_max_age_ms=1_000)
    driver.cluster.topics["t"] = {0: -1, 1: -1}
    driver.sleep(1_000)
    batch = driver.send()
    for _ in range(10):
        driver.sleep(1_000)
    driver.cluster.topics["t"] = {0: 0, 1: 0}
    for _ in range(3):
        driver.sleep(1_000)
    driver.answer()
    assert batch in driver.delivered
