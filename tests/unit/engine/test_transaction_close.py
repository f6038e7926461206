"""Closing in every state: what is open is aborted, what is decided is finished, every call that waits is answered."""

from __future__ import annotations

import pytest
from transaction_driver import TransactionDriver, started

from kafka_sink.engine.commands import Abandon
from kafka_sink.errors import LocalProtocolError, OperationTimeout, ProducerFenced, TransactionAborted
from kafka_sink.wire.apis import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, PRODUCE

both_versions = pytest.mark.parametrize("transaction_version", [1, 2])


def hanging(state: str, transaction_version: int) -> tuple[TransactionDriver, list[int]]:
    """A producer in the state, with the calls that wait there."""
    if state in ("uninitialized", "initializing"):
        driver = TransactionDriver(transaction_version, is_initialised=False)
        driver.hold(INIT_PRODUCER_ID)
        return driver, [driver.init()] if state == "initializing" else []
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    if state == "ready":
        return driver, []
    driver.begin()
    if state == "renewing":
        driver.send()
        driver.hold(INIT_PRODUCER_ID)
        driver.cluster.features["transaction.version"] = 3 - transaction_version
        driver.abort()
        driver.engine.nodes.finalized_features = {"transaction.version": 3 - transaction_version}
        return driver, [driver.begin()]
    driver.hold(PRODUCE, END_TXN)
    driver.send()
    if state == "in transaction":
        return driver, []
    if state == "abortable":
        driver.reply(PRODUCE, 87)
        return driver, []
    wish = {"preparing": driver.prepare, "committing": driver.commit, "aborting": driver.abort}[state]
    calls = [wish()]
    if state in ("committing", "aborting"):
        driver.reply(PRODUCE)
    return driver, calls


STATES = (
    "uninitialized", "initializing", "ready", "renewing", "in transaction", "abortable", "preparing", "committing",
    "aborting",
)  # fmt: skip


@both_versions
@pytest.mark.parametrize("state", STATES)
def test_every_call_is_answered_when_the_producer_is_given_up(state: str, transaction_version: int) -> None:
    driver, calls = hanging(state, transaction_version)
    calls.append(driver.close())
    driver.run(Abandon(OperationTimeout("close")))
    assert not [call for call in calls if driver.is_waiting(call)]
    assert not driver.engine._production.incomplete
    assert not driver.cluster.connections


@both_versions
@pytest.mark.parametrize("state", STATES)
def test_every_call_is_answered_when_the_producer_is_closed_and_the_brokers_answer(
    state: str, transaction_version: int
) -> None:
    driver, calls = hanging(state, transaction_version)
    calls.append(driver.close())
    driver.release(PRODUCE, END_TXN, INIT_PRODUCER_ID)
    driver.run_for(2_000)
    assert not [call for call in calls if driver.is_waiting(call)]
    assert not driver.cluster.connections
    assert isinstance(driver.refusal_of(driver.begin()), LocalProtocolError)


@both_versions
@pytest.mark.parametrize(
    ("state", "ends"),
    [("in transaction", [False]), ("abortable", [False]), ("preparing", [False]), ("committing", [True]),
     ("aborting", [False]), ("ready", []), ("uninitialized", [])],
)  # fmt: skip
def test_close_aborts_what_is_open_and_finishes_what_is_decided(
    state: str, ends: list[bool], transaction_version: int
) -> None:
    driver, _ = hanging(state, transaction_version)
    close = driver.close()
    driver.release(PRODUCE, END_TXN)
    driver.run_for(2_000)
    assert driver.ok(close)
    assert [request.body["committed"] for request in driver.cluster.requests_of(END_TXN)] == ends


@both_versions
def test_close_waits_for_records_on_the_wire_before_it_aborts(transaction_version: int) -> None:
    driver, _ = hanging("in transaction", transaction_version)
    close = driver.close()
    driver.run_for(1_000)
    assert driver.is_waiting(close) and driver.count(END_TXN) == 0
    driver.reply(PRODUCE)
    assert driver.count(END_TXN) == 1
    driver.release(END_TXN)
    assert driver.ok(close)


@both_versions
def test_close_drops_records_that_had_not_left_with_the_reason(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.cluster.refusing.add(0)
    batch = driver.send()
    assert driver.ok(driver.close())
    assert "closed" in str(driver.error_of(batch)) and driver.count(PRODUCE) == 0


@both_versions
def test_close_ends_offsets_that_were_on_their_way(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.hold(ADD_PARTITIONS_TO_TXN)
    driver.fail(END_TXN, 51)
    offsets = driver.send_offsets()
    driver.run_for(1_000)
    close = driver.close()
    driver.run_for(1_000)
    assert driver.ok(offsets) and driver.ok(close)


def test_a_commit_called_while_closing_is_refused() -> None:
    driver, _ = hanging("in transaction", 2)
    driver.close()
    assert "closed" in str(driver.refusal_of(driver.commit()))


@both_versions
def test_a_producer_whose_abort_at_close_is_fenced_is_closed_all_the_same(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, 90)
    assert not driver.is_waiting(driver.close())
    assert isinstance(driver.engine.refusal, ProducerFenced)


def test_a_fatal_error_while_records_are_on_the_wire_ends_the_close() -> None:
    driver = TransactionDriver(1, brokers=2, coordinator=1)
    driver.begin()
    driver.send(0)
    driver.hold(PRODUCE, ADD_PARTITIONS_TO_TXN)
    on_wire = driver.send(0)
    driver.send(1)
    close = driver.close()
    driver.reply(ADD_PARTITIONS_TO_TXN, 90)
    assert on_wire in driver.failed and not driver.is_waiting(close)


@both_versions
def test_close_after_a_fatal_error_ends_at_once(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, 90)
    driver.commit()
    assert not driver.is_waiting(driver.close())


@both_versions
def test_closing_twice_answers_both(transaction_version: int) -> None:
    driver, _ = hanging("in transaction", transaction_version)
    closes = [driver.close(), driver.close()]
    driver.release(PRODUCE, END_TXN)
    driver.run_for(1_000)
    assert all(driver.ok(close) for close in closes)
    assert driver.ok(driver.close())


@both_versions
def test_a_transaction_that_close_ended_by_itself_was_aborted_for_those_who_wait(transaction_version: int) -> None:
    driver, calls = hanging("preparing", transaction_version)
    driver.close()
    assert isinstance(driver.refusal_of(calls[0]), TransactionAborted)
    assert "closed" in str(driver.refusal_of(calls[0]))


@both_versions
@pytest.mark.parametrize("state", ["initializing", "renewing"])
def test_close_does_not_wait_for_an_identity_that_nobody_needs_any_more(state: str, transaction_version: int) -> None:
    driver, calls = hanging(state, transaction_version)
    close = driver.close()
    assert driver.ok(close)
    assert isinstance(driver.refusal_of(calls[0]), LocalProtocolError)
    assert not driver.cluster.connections
