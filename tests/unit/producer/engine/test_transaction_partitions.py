"""Partitions of a transaction, which version 1 registers before the first record, and offsets of groups."""

from __future__ import annotations

import pytest

from kafka_sink.errors import AuthorizationError, KafkaSinkError, LocalProtocolError, TransactionAborted
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kafka_sink.producer.engine.commands import Append
from tests.unit.producer.engine.driver import new_batch
from tests.unit.producer.engine.transaction_driver import (
    GROUP,
    PRODUCER_ID,
    TRANSACTION,
    TransactionDriver,
    registered,
    started,
)


def begun(transaction_version: int = 1, **options: object) -> TransactionDriver:
    driver = TransactionDriver(transaction_version, **options)  # type: ignore[arg-type]
    driver.begin()
    return driver


def asked_partitions(driver: TransactionDriver) -> list[list[int]]:
    return [
        sorted(index for topic in request.body["v3_and_below_topics"] for index in topic["partitions"])
        for request in driver.cluster.requests_of(ADD_PARTITIONS_TO_TXN)
    ]


@pytest.mark.parametrize("in_flight_max", [1, 5])
def test_no_record_leaves_before_its_partition_is_registered(in_flight_max: int) -> None:
    driver = begun(brokers=2, coordinator=1, max_in_flight_requests_per_connection=in_flight_max)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    batch = driver.send()
    driver.run_for(10_000)
    assert driver.count(PRODUCE) == 0 and driver.is_open(batch)
    driver.release(ADD_PARTITIONS_TO_TXN)
    assert batch in driver.delivered


def test_generation_2_registers_nothing() -> None:
    driver = started(2)
    driver.send(1)
    assert driver.count(ADD_PARTITIONS_TO_TXN) == 0 and driver.count(PRODUCE) == 2


def test_the_registration_names_id_epoch_and_partitions_in_the_version_of_clients() -> None:
    driver = begun()
    driver.run(Append([new_batch(0), new_batch(1)]))
    request = driver.last(ADD_PARTITIONS_TO_TXN)
    assert request.version <= 3
    assert request.body["v3_and_below_transactional_id"] == "ledger"
    assert (request.body["v3_and_below_producer_id"], request.body["v3_and_below_producer_epoch"]) == (7000, 0)
    assert asked_partitions(driver) == [[0, 1]]


def test_a_partition_is_registered_once_in_a_transaction_and_again_in_the_next() -> None:
    driver = begun()
    driver.send()
    driver.send()
    assert asked_partitions(driver) == [[0]]
    driver.commit()
    driver.begin()
    driver.send()
    assert asked_partitions(driver) == [[0], [0]]


def test_partitions_that_come_while_a_registration_runs_go_together_into_the_next_one() -> None:
    driver = begun(leaders=(0, 0, 0, 0))
    driver.hold(ADD_PARTITIONS_TO_TXN)
    batches = [driver.send(partition) for partition in (0, 1, 2)]
    assert asked_partitions(driver) == [[0]]
    driver.reply(ADD_PARTITIONS_TO_TXN)
    assert asked_partitions(driver) == [[0], [1, 2]]
    batches.append(driver.send(3))
    driver.release(ADD_PARTITIONS_TO_TXN)
    assert asked_partitions(driver) == [[0], [1, 2], [3]]
    assert all(batch in driver.delivered for batch in batches)


def test_while_one_partition_waits_for_its_registration_the_registered_ones_go_on() -> None:
    driver = started(1, brokers=2, coordinator=1)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    waiting = driver.send(1)
    going = driver.send(0)
    assert going in driver.delivered and driver.is_open(waiting)


def test_commit_registers_and_sends_what_is_left_before_it_ends() -> None:
    driver = begun(brokers=2, coordinator=1)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    batch = driver.send()
    commit = driver.commit()
    driver.run_for(2_000)
    assert driver.count(END_TXN) == 0
    driver.release(ADD_PARTITIONS_TO_TXN)
    assert batch in driver.delivered and driver.ok(commit)
    assert driver.names()[-3:] == ["AddPartitionsToTxn", "Produce", "EndTxn"]


def test_while_the_last_transaction_is_being_finished_a_registration_is_repeated_after_20_ms() -> None:
    driver = begun()
    driver.fail(ADD_PARTITIONS_TO_TXN, 51, 51)
    batch = driver.send()
    assert [driver.sleep_until_due(), driver.sleep_until_due()] == [20, 40]
    assert batch in driver.delivered


@pytest.mark.parametrize("code", [3, 14, 7, 6, 19, -1], ids=str)
def test_other_passing_trouble_has_the_usual_back_off(code: int) -> None:
    driver = begun()
    driver.fail(ADD_PARTITIONS_TO_TXN, code, code)
    batch = driver.send()
    assert [driver.sleep_until_due(), driver.sleep_until_due()] == [100, 200]
    assert batch in driver.delivered and driver.count(FIND_COORDINATOR) == 1


@pytest.mark.parametrize("code", [15, 16], ids=str)
def test_a_coordinator_that_moved_is_found_and_asked_the_same(code: int) -> None:
    driver = begun(brokers=3, coordinator=1)
    driver.fail(ADD_PARTITIONS_TO_TXN, code)
    driver.coordinators[TRANSACTION] = 2
    batch = driver.send()
    driver.run_for(1_000)
    assert batch in driver.delivered
    assert [request.node_id for request in driver.cluster.requests_of(ADD_PARTITIONS_TO_TXN)] == [1, 2]
    assert asked_partitions(driver) == [[0], [0]]


def test_a_missing_permission_for_a_topic_dooms_the_transaction_and_names_the_topic() -> None:
    driver = begun()
    driver.fail(ADD_PARTITIONS_TO_TXN, 29)
    batch = driver.send()
    error = driver.refusal_of(driver.commit())
    assert isinstance(error, TransactionAborted) and isinstance(error.__cause__, AuthorizationError)
    assert "'t'" in str(error) and batch in driver.failed
    assert driver.ok(driver.abort())
    driver.run_for(1_000)
    assert driver.ok(driver.begin())
    assert driver.send() in driver.delivered


def test_of_several_codes_the_one_that_says_why_counts() -> None:
    driver = begun()
    driver.hold(ADD_PARTITIONS_TO_TXN)
    driver.run(Append([new_batch(0), new_batch(1)]))
    [request] = driver.cluster.pending_of(ADD_PARTITIONS_TO_TXN)
    driver.cluster.answer(request, {"results_by_topic_v3_and_below": registered(request, {0: 55, 1: 29})})
    driver.run()
    assert "TOPIC_AUTHORIZATION_FAILED" in str(driver.engine.refusal)


def test_when_no_partition_was_tried_the_transaction_is_doomed() -> None:
    driver = begun()
    driver.fail(ADD_PARTITIONS_TO_TXN, 55)
    driver.send()
    assert isinstance(driver.engine.refusal, TransactionAborted)


def test_abort_cancels_registrations_that_were_not_sent() -> None:
    driver = begun(brokers=2, coordinator=1)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    driver.send(0)
    unsent = driver.send(1)
    abort = driver.abort()
    assert unsent in driver.failed and driver.is_waiting(abort)
    driver.release(ADD_PARTITIONS_TO_TXN)
    assert driver.ok(abort)
    assert asked_partitions(driver) == [[0]] and driver.count(PRODUCE) == 0
    assert driver.last(END_TXN).body["committed"] is False


def test_abort_does_not_ask_to_end_what_the_coordinator_refused_to_begin() -> None:
    driver = begun()
    driver.fail(ADD_PARTITIONS_TO_TXN, 29)
    driver.send()
    assert driver.ok(driver.abort())
    assert driver.count(END_TXN) == 0


@pytest.mark.parametrize("has_arrived", [True, False], ids=["it had arrived", "it had not"])
@pytest.mark.parametrize("aborts_first", [True, False], ids=["abort before the loss", "abort after the loss"])
def test_a_registration_of_unknown_fate_is_ended_first_and_then_shut_out_by_a_new_epoch(
    aborts_first: bool, has_arrived: bool
) -> None:
    # A coordinator that is asked for a new epoch while the transaction is open fences the producer that asks.
    driver = begun(brokers=2, coordinator=1)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    driver.send()
    abort = driver.abort() if aborts_first else 0
    driver.fail(END_TXN, 0 if has_arrived else 48)
    driver.disconnect(1)
    abort = abort or driver.abort()
    driver.run_for(1_000)
    assert driver.ok(abort) and driver.names()[-2:] == ["EndTxn", "InitProducerId"]
    assert driver.last(END_TXN).body["committed"] is False
    renewal = driver.last(INIT_PRODUCER_ID)
    assert (renewal.body["producer_id"], renewal.body["producer_epoch"]) == (7000, 0)
    driver.release(ADD_PARTITIONS_TO_TXN)
    driver.begin()
    driver.send()
    assert driver.epochs_and_sequences_sent == [(1, 0)]


def test_an_abort_of_a_transaction_that_began_for_certain_must_not_be_unknown_to_the_coordinator() -> None:
    driver = begun()
    driver.send()
    driver.fail(END_TXN, 48)
    abort = driver.abort()
    assert not driver.ok(abort) and isinstance(driver.engine.refusal, KafkaSinkError)


def test_a_registration_that_gets_through_at_the_second_try_is_ended_as_usual() -> None:
    driver = begun(brokers=2, coordinator=1)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    batch = driver.send()
    driver.disconnect(1)
    driver.release(ADD_PARTITIONS_TO_TXN)
    driver.run_for(1_000)
    assert batch in driver.delivered and asked_partitions(driver) == [[0], [0]]
    assert driver.ok(driver.commit()) and driver.count(END_TXN) == 1


@pytest.mark.parametrize("code", [29, 3, 51, 15], ids=str)
def test_a_refused_registration_after_the_abort_was_asked_for_does_not_delay_it_for_ever(code: int) -> None:
    driver = begun(brokers=2, coordinator=1)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    driver.send()
    abort = driver.abort()
    driver.reply(ADD_PARTITIONS_TO_TXN, code)
    driver.run_for(1_000)
    assert driver.ok(abort) and driver.count(ADD_PARTITIONS_TO_TXN) == 1


def test_a_record_that_expires_while_its_partition_is_registered_dooms_the_transaction() -> None:
    driver = begun(brokers=2, coordinator=1, delivery_timeout_ms=5_000, request_timeout_ms=4_000)
    driver.fail(ADD_PARTITIONS_TO_TXN, *[3] * 100)
    batch = driver.send()
    driver.run_for(6_000)
    assert "delivery.timeout.ms" in str(driver.error_of(batch))
    asked = driver.count(ADD_PARTITIONS_TO_TXN)
    driver.run_for(6_000)
    assert driver.count(ADD_PARTITIONS_TO_TXN) == asked
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)


# ---- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("transaction_version", "asked"),
    [
        (1, ["AddOffsetsToTxn", "FindCoordinator", "TxnOffsetCommit", "EndTxn"]),
        (2, ["FindCoordinator", "TxnOffsetCommit", "EndTxn"]),
    ],
)
def test_offsets_alone_make_a_transaction_that_is_ended(transaction_version: int, asked: list[str]) -> None:
    driver = begun(transaction_version, brokers=3, coordinator=1)
    driver.coordinators[GROUP] = 2
    before = len(driver.names())
    assert driver.ok(driver.send_offsets())
    assert driver.ok(driver.commit())
    assert driver.names(skip=before) == asked
    assert driver.last(TXN_OFFSET_COMMIT).node_id == 2 and driver.last(END_TXN).node_id == 1
    lookup = driver.last(FIND_COORDINATOR).body
    assert (lookup["key"], lookup["key_type"]) == ("readers", GROUP)


@pytest.mark.parametrize(("transaction_version", "versions"), [(1, range(5)), (2, range(5, 6))])
def test_the_commit_of_offsets_carries_group_member_and_identity(transaction_version: int, versions: range) -> None:
    driver = begun(transaction_version)
    assert driver.ok(driver.send_offsets(generation_id=5, member_id="m", group_instance_id="i"))
    request = driver.last(TXN_OFFSET_COMMIT)
    assert request.version in versions
    body = request.body
    assert (body["transactional_id"], body["group_id"]) == ("ledger", "readers")
    assert (body["producer_id"], body["producer_epoch"]) == (PRODUCER_ID, 0)
    assert (body["generation_id"], body["member_id"], body["group_instance_id"]) == (5, "m", "i")
    [topic] = body["topics"]
    [partition] = topic["partitions"]
    assert topic["name"] == "source" and partition["partition_index"] == 0 and partition["committed_offset"] == 42


def test_member_data_for_a_coordinator_too_old_to_take_them_is_an_error_and_not_left_out() -> None:
    driver = begun(1, api_versions={TXN_OFFSET_COMMIT.key: (0, 2)})
    error = driver.refusal_of(driver.send_offsets(generation_id=5, member_id="m"))
    assert isinstance(error, LocalProtocolError) and driver.count(TXN_OFFSET_COMMIT) == 0


def test_offsets_without_member_data_reach_an_old_coordinator() -> None:
    driver = begun(1, api_versions={TXN_OFFSET_COMMIT.key: (0, 2)})
    assert driver.ok(driver.send_offsets())


def test_offsets_before_begin_are_refused(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    assert "begin_transaction" in str(driver.refusal_of(driver.send_offsets()))
    assert driver.count(TXN_OFFSET_COMMIT) == 0


def test_offsets_while_others_are_on_their_way_are_refused(transaction_version: int) -> None:
    driver = begun(transaction_version)
    driver.hold(TXN_OFFSET_COMMIT)
    first = driver.send_offsets()
    assert isinstance(driver.refusal_of(driver.send_offsets()), LocalProtocolError)
    driver.release(TXN_OFFSET_COMMIT)
    assert driver.ok(first) and driver.ok(driver.send_offsets())


def test_each_group_is_registered_once() -> None:
    driver = begun(1)
    for group_id in ("a", "a", "b"):
        assert driver.ok(driver.send_offsets(group_id))
    assert [request.body["group_id"] for request in driver.cluster.requests_of(ADD_OFFSETS_TO_TXN)] == ["a", "b"]
    assert [request.body["group_id"] for request in driver.cluster.requests_of(TXN_OFFSET_COMMIT)] == ["a", "a", "b"]
    driver.commit()
    driver.begin()
    assert driver.ok(driver.send_offsets("a")) and driver.count(ADD_OFFSETS_TO_TXN) == 3


def test_another_group_has_a_coordinator_of_its_own_that_is_found_by_its_refusal(transaction_version: int) -> None:
    driver = begun(transaction_version, brokers=3)
    assert driver.ok(driver.send_offsets("a"))
    driver.coordinators[GROUP] = 2
    driver.fail(TXN_OFFSET_COMMIT, 16)
    other = driver.send_offsets("b")
    driver.run_for(1_000)
    assert driver.ok(other) and driver.last(TXN_OFFSET_COMMIT).node_id == 2
    assert driver.last(FIND_COORDINATOR).body["key"] == "b"


def test_commit_waits_for_offsets_and_records(transaction_version: int) -> None:
    driver = begun(transaction_version, brokers=3, coordinator=1)
    driver.coordinators[GROUP] = 2
    driver.hold(TXN_OFFSET_COMMIT, PRODUCE)
    offsets, batch = driver.send_offsets(), driver.send()
    commit = driver.commit()
    driver.run_for(1_000)
    driver.release(PRODUCE)
    driver.run_for(1_000)
    assert driver.count(END_TXN) == 0 and driver.is_waiting(commit)
    driver.release(TXN_OFFSET_COMMIT)
    assert driver.ok(offsets) and driver.ok(commit) and batch in driver.delivered


def test_abort_ends_the_waiting_for_offsets_and_is_sent_after_their_answer(transaction_version: int) -> None:
    driver = begun(transaction_version)
    driver.hold(TXN_OFFSET_COMMIT)
    offsets = driver.send_offsets()
    abort = driver.abort()
    assert isinstance(driver.refusal_of(offsets), TransactionAborted)
    assert driver.is_waiting(abort) and driver.count(END_TXN) == 0
    driver.release(TXN_OFFSET_COMMIT)
    assert driver.ok(abort) and driver.last(END_TXN).body["committed"] is False


@pytest.mark.parametrize("aborts_first", [True, False], ids=["abort before the loss", "abort after the loss"])
def test_offsets_of_unknown_fate_are_aborted_at_the_coordinator(transaction_version: int, aborts_first: bool) -> None:
    driver = begun(transaction_version, brokers=3, coordinator=1)
    driver.coordinators[GROUP] = 2
    driver.hold(TXN_OFFSET_COMMIT)
    driver.send_offsets()
    abort = driver.abort() if aborts_first else 0
    driver.disconnect(2)
    abort = abort or driver.abort()
    driver.run_for(1_000)
    assert driver.ok(abort) and driver.last(END_TXN).body["committed"] is False


@pytest.mark.parametrize(
    ("code", "lookups"), [(3, 0), (14, 0), (7, 1), (15, 1), (16, 1), (-1, 0)], ids=lambda value: str(value)
)
def test_passing_trouble_with_the_commit_of_offsets_is_survived(
    transaction_version: int, code: int, lookups: int
) -> None:
    driver = begun(transaction_version)
    driver.fail(TXN_OFFSET_COMMIT, code)
    offsets = driver.send_offsets()
    before = driver.count(FIND_COORDINATOR)
    assert driver.is_waiting(offsets)
    driver.run_for(1_000)
    assert driver.ok(offsets) and driver.ok(driver.commit())
    assert driver.count(FIND_COORDINATOR) == before + lookups


def test_a_group_coordinator_lost_in_between_is_looked_up_again(transaction_version: int) -> None:
    driver = begun(transaction_version, brokers=3, coordinator=1)
    driver.coordinators[GROUP] = 2
    driver.hold(TXN_OFFSET_COMMIT)
    offsets = driver.send_offsets()
    driver.coordinators[GROUP] = 0
    driver.disconnect(2)
    driver.release(TXN_OFFSET_COMMIT)
    driver.run_for(1_000)
    assert driver.ok(offsets) and driver.last(TXN_OFFSET_COMMIT).node_id == 0
    assert driver.ok(driver.commit())


@pytest.mark.parametrize("api", [FIND_COORDINATOR, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT], ids=lambda api: api.name)
def test_a_missing_permission_for_the_group_dooms_the_transaction_and_names_the_group(api: object) -> None:
    driver = begun(1)
    driver.fail(api, 30)  # type: ignore[arg-type]
    error = driver.refusal_of(driver.send_offsets())
    assert isinstance(error, TransactionAborted) and isinstance(error.__cause__, AuthorizationError)
    assert "'readers'" in str(error) and "Read" in str(error)
    assert driver.ok(driver.abort())
    assert driver.count(END_TXN) == (api is TXN_OFFSET_COMMIT or api is FIND_COORDINATOR), (
        "what was refused never began"
    )


def test_records_go_on_while_offsets_are_on_their_way(transaction_version: int) -> None:
    driver = started(transaction_version, brokers=2, coordinator=1)
    driver.hold(TXN_OFFSET_COMMIT)
    driver.send_offsets()
    assert driver.send() in driver.delivered
