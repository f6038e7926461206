"""The id of an idempotent producer: fetched first, fetched again when its epochs are used up, refused for good."""

from __future__ import annotations

import pytest
from driver import BACKOFF_MS, INVALID_RECORD, NOT_LEADER, OUT_OF_ORDER, EngineDriver
from fake_cluster import FakeCluster

from kafka_sink.engine.commands import Abandon, Close, Flush
from kafka_sink.engine.producer_batch import ProducerIdentity
from kafka_sink.engine.sequences import PRODUCER_EPOCH_MAX
from kafka_sink.errors import AuthorizationError, BrokerError, DeliveryError, TransportError
from kafka_sink.wire.apis import INIT_PRODUCER_ID

CLUSTER_AUTHORIZATION_FAILED, COORDINATOR_LOAD_IN_PROGRESS, NOT_SUPPORTED = 31, 14, 35
LAST_EPOCH = ProducerIdentity(1000, PRODUCER_EPOCH_MAX)
NEXT_ID = ProducerIdentity(1001, 0)


def cluster_with_ids(*answers: int | ProducerIdentity) -> FakeCluster:
    """InitProducerId is answered with these in turn: an error code or an id; after the last one not at all."""
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
    driver = EngineDriver(cluster=cluster_with_ids())
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


# ---- used up -------------------------------------------------------------------------------------------------------


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
