"""Consumer offsets in a transaction: whom they are sent to, in which order, and what each answer means."""

from __future__ import annotations

import pytest
from transaction_driver import GROUP, PRODUCER_ID, TransactionDriver, started

from kafka_sink.errors import (
    AuthorizationError,
    LocalProtocolError,
    ProducerFenced,
    TransactionAborted,
)
from kafka_sink.wire.apis import ADD_OFFSETS_TO_TXN, END_TXN, FIND_COORDINATOR, PRODUCE, TXN_OFFSET_COMMIT

both_versions = pytest.mark.parametrize("transaction_version", [1, 2])


def begun(transaction_version: int, **options: object) -> TransactionDriver:
    driver = TransactionDriver(transaction_version, **options)  # type: ignore[arg-type]
    driver.begin()
    return driver


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


@both_versions
def test_offsets_before_begin_are_refused(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    assert "begin_transaction" in str(driver.refusal_of(driver.send_offsets()))
    assert driver.count(TXN_OFFSET_COMMIT) == 0


@both_versions
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


@both_versions
def test_another_group_has_a_coordinator_of_its_own_that_is_found_by_its_refusal(transaction_version: int) -> None:
    driver = begun(transaction_version, brokers=3)
    assert driver.ok(driver.send_offsets("a"))
    driver.coordinators[GROUP] = 2
    driver.fail(TXN_OFFSET_COMMIT, 16)
    other = driver.send_offsets("b")
    driver.run_for(1_000)
    assert driver.ok(other) and driver.last(TXN_OFFSET_COMMIT).node_id == 2
    assert driver.last(FIND_COORDINATOR).body["key"] == "b"


@both_versions
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


@both_versions
def test_abort_ends_the_waiting_for_offsets_and_is_sent_after_their_answer(transaction_version: int) -> None:
    driver = begun(transaction_version)
    driver.hold(TXN_OFFSET_COMMIT)
    offsets = driver.send_offsets()
    abort = driver.abort()
    assert isinstance(driver.refusal_of(offsets), TransactionAborted)
    assert driver.is_waiting(abort) and driver.count(END_TXN) == 0
    driver.release(TXN_OFFSET_COMMIT)
    assert driver.ok(abort) and driver.last(END_TXN).body["committed"] is False


@both_versions
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
@both_versions
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


@both_versions
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


@both_versions
@pytest.mark.parametrize("code", [22, 25, 82, 12, 113], ids=str)
def test_a_group_that_moved_on_dooms_the_transaction_and_not_the_producer(transaction_version: int, code: int) -> None:
    driver = begun(transaction_version)
    driver.fail(TXN_OFFSET_COMMIT, code)
    assert isinstance(driver.refusal_of(driver.send_offsets()), TransactionAborted)
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)
    assert driver.ok(driver.abort()) and driver.count(END_TXN) == 1
    driver.run_for(1_000)
    assert driver.ok(driver.begin()) and driver.ok(driver.send_offsets()) and driver.ok(driver.commit())


@pytest.mark.parametrize("api", [FIND_COORDINATOR, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT], ids=lambda api: api.name)
def test_a_missing_permission_for_the_group_dooms_the_transaction_and_names_the_group(api: object) -> None:
    driver = begun(1)
    driver.fail(api, 30)  # type: ignore[arg-type]
    error = driver.refusal_of(driver.send_offsets())
    assert isinstance(error, TransactionAborted) and isinstance(error.__cause__, AuthorizationError)
    assert "'readers'" in str(error) and "Read" in str(error)
    assert driver.ok(driver.abort())


def test_a_refused_group_that_was_never_registered_is_not_ended_at_the_coordinator() -> None:
    driver = begun(1)
    driver.fail(ADD_OFFSETS_TO_TXN, 30)
    driver.send_offsets()
    assert driver.ok(driver.abort()) and driver.count(END_TXN) == 0


@both_versions
def test_records_go_on_while_offsets_are_on_their_way(transaction_version: int) -> None:
    driver = started(transaction_version, brokers=2, coordinator=1)
    driver.hold(TXN_OFFSET_COMMIT)
    driver.send_offsets()
    assert driver.send() in driver.delivered


@both_versions
def test_offsets_after_a_fatal_error_get_that_error(transaction_version: int) -> None:
    driver = begun(transaction_version)
    driver.fail(TXN_OFFSET_COMMIT, 90)
    error = driver.refusal_of(driver.send_offsets())
    assert isinstance(error, ProducerFenced) and driver.refusal_of(driver.send_offsets()) is error
