"""The table of transaction states: every event, the allowed calls, and closing in each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_sink.errors import (
    KafkaSinkError,
    LocalProtocolError,
    OperationTimeout,
    ProducerFenced,
    TransactionAborted,
    TransactionError,
)
from kafka_sink.kafka.wire.apis import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, PRODUCE
from kafka_sink.producer.engine.commands import (
    Abandon,
    ConsumerGroup,
    SendOffsets,
    TransactionEvent,
    TransactionReceipt,
)
from kafka_sink.producer.engine.producer_batch import ProducerIdentity
from kafka_sink.producer.engine.transaction import TRANSITIONS, Transaction, TransactionState
from tests.unit.producer.engine.transaction_driver import TransactionDriver, started

RECEIPT = TransactionReceipt("id", 7, 3, 2, True, {("t", 0): 9})
CAUSE = ProducerFenced("somebody else")

CALLS: dict[str, Callable[[Transaction], None]] = {
    "init": lambda transaction: transaction.start(1, TransactionEvent.INIT),
    "begin": lambda transaction: transaction.begin(1, 1, epoch_of_end_is_safe=False),
    "send_offsets": lambda transaction: transaction.send_offsets(SendOffsets(1, ConsumerGroup("g"), {})),
    "prepare": lambda transaction: transaction.start(1, TransactionEvent.PREPARE),
    "resume": lambda transaction: transaction.resume(1, RECEIPT),
    "commit": lambda transaction: transaction.start(1, TransactionEvent.COMMIT),
    "abort": lambda transaction: transaction.start(1, TransactionEvent.ABORT),
}

# The states in which a call is accepted, and the state afterwards. In all other states it is refused.
HEARD: dict[str, dict[TransactionState, TransactionState]] = {
    "init": {
        TransactionState.UNINITIALIZED: TransactionState.INITIALIZING,
        TransactionState.INITIALIZING: TransactionState.INITIALIZING,
    },
    "begin": {
        TransactionState.READY: TransactionState.IN_TRANSACTION,
        TransactionState.RENEWING: TransactionState.RENEWING,
    },
    "send_offsets": {TransactionState.IN_TRANSACTION: TransactionState.IN_TRANSACTION},
    "prepare": {
        TransactionState.IN_TRANSACTION: TransactionState.PREPARING,
        TransactionState.PREPARING: TransactionState.PREPARING,
    },
    "resume": {TransactionState.UNINITIALIZED: TransactionState.PREPARED},
    "commit": {
        TransactionState.IN_TRANSACTION: TransactionState.COMMITTING,
        TransactionState.PREPARED: TransactionState.COMMITTING,
        TransactionState.COMMITTING: TransactionState.COMMITTING,
    },
    "abort": {
        TransactionState.IN_TRANSACTION: TransactionState.ABORTING,
        TransactionState.PREPARING: TransactionState.ABORTING,
        TransactionState.PREPARED: TransactionState.ABORTING,
        TransactionState.REPLACING: TransactionState.ABORTING,
        TransactionState.ABORTABLE: TransactionState.ABORTING,
        TransactionState.ABORTING: TransactionState.ABORTING,
    },
}


def transaction_in(state: TransactionState) -> Transaction:
    transaction = Transaction("id")
    transaction.state = state
    transaction.identity = ProducerIdentity(7, 3)
    if state in (TransactionState.ABORTABLE, TransactionState.FATAL):
        transaction.error = CAUSE
    return transaction


def facts_of(transaction: Transaction) -> tuple[object, ...]:
    return (
        transaction.state,
        transaction.identity,
        transaction.transaction_version,
        transaction.error,
        transaction.is_started,
    )


@pytest.mark.parametrize("state", TransactionState, ids=lambda state: state.name.lower())
@pytest.mark.parametrize("event", TransactionEvent, ids=lambda event: event.name.lower())
def test_an_event_moves_to_the_state_of_the_table_or_raises_and_changes_nothing(
    state: TransactionState, event: TransactionEvent
) -> None:
    transaction = transaction_in(state)
    before = facts_of(transaction)
    target = TRANSITIONS.get((state, event))
    if target is None:
        with pytest.raises(LocalProtocolError, match="not possible"):
            transaction._move(event)
        assert facts_of(transaction) == before
    else:
        transaction._move(event)
        assert transaction.state is target


def test_only_a_fatal_error_is_final() -> None:
    assert set(TransactionState) - {state for state, _ in TRANSITIONS} == {TransactionState.FATAL}


def test_every_state_but_the_fatal_one_can_end_fatally() -> None:
    for state in TransactionState:
        assert (TRANSITIONS.get((state, TransactionEvent.FATAL_ERROR)) is TransactionState.FATAL) == (
            state is not TransactionState.FATAL
        ), state


def test_every_state_is_reached_from_the_first() -> None:
    reached, front = {TransactionState.UNINITIALIZED}, [TransactionState.UNINITIALIZED]
    while front:
        state = front.pop()
        new = {target for (source, _), target in TRANSITIONS.items() if source is state} - reached
        reached |= new
        front += new
    assert reached == set(TransactionState)


@pytest.mark.parametrize("state", TransactionState, ids=lambda state: state.name.lower())
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_heard_in_its_states_and_refused_in_all_others_without_a_trace(
    name: str, state: TransactionState
) -> None:
    transaction = transaction_in(state)
    before = facts_of(transaction)
    CALLS[name](transaction)
    finished = transaction.finished
    if state in HEARD[name]:
        assert transaction.state is HEARD[name][state]
        assert all(item.error is None for item in finished)
    else:
        assert facts_of(transaction) == before
        assert [item.operation for item in finished] == [1]
        assert isinstance(finished[0].error, LocalProtocolError | TransactionError)


def test_a_transaction_cannot_begin_before_the_producer_is_initialised(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, is_initialised=False)
    assert "call init_transactions() first" in str(driver.refusal_of(driver.begin()))
    assert driver.ok(driver.init()) and driver.ok(driver.begin())


@pytest.mark.parametrize("name", CALLS)
def test_after_a_fatal_error_every_call_is_answered_with_that_error(name: str) -> None:
    transaction = transaction_in(TransactionState.FATAL)
    CALLS[name](transaction)
    assert [item.error for item in transaction.finished] == [CAUSE]


@pytest.mark.parametrize("name", ["begin", "commit", "prepare", "init", "send_offsets"])
def test_in_a_doomed_transaction_a_call_is_answered_with_the_reason(name: str) -> None:
    transaction = transaction_in(TransactionState.ABORTABLE)
    CALLS[name](transaction)
    [finished] = transaction.finished
    assert isinstance(finished.error, TransactionAborted) and "somebody else" in str(finished.error)
    assert finished.error.__cause__ is CAUSE


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        (TransactionState.UNINITIALIZED, LocalProtocolError, "init_transactions"),
        (TransactionState.INITIALIZING, LocalProtocolError, "has not finished"),
        (TransactionState.READY, LocalProtocolError, "begin_transaction"),
        (TransactionState.RENEWING, LocalProtocolError, "begin_transaction"),
        (TransactionState.IN_TRANSACTION, None, ""),
        (TransactionState.REPLACING, None, ""),
        (TransactionState.PREPARING, LocalProtocolError, "being prepared"),
        (TransactionState.PREPARED, LocalProtocolError, "can only be ended"),
        (TransactionState.COMMITTING, LocalProtocolError, "being committed"),
        (TransactionState.ABORTING, LocalProtocolError, "being aborted"),
        (TransactionState.ABORTABLE, TransactionAborted, "must be aborted"),
        (TransactionState.FATAL, ProducerFenced, "somebody else"),
    ],
)
def test_a_record_is_accepted_in_an_open_transaction_only(
    state: TransactionState, kind: type[KafkaSinkError] | None, text: str
) -> None:
    refusal = transaction_in(state).refusal
    if kind is None:
        assert refusal is None
    else:
        assert isinstance(refusal, kind) and text in str(refusal)


@pytest.mark.parametrize("state", TransactionState, ids=lambda state: state.name.lower())
def test_batches_leave_while_the_transaction_may_still_be_committed_and_in_no_other_state(
    state: TransactionState,
) -> None:
    alive = state in (TransactionState.IN_TRANSACTION, TransactionState.PREPARING, TransactionState.COMMITTING)
    transaction = transaction_in(state)
    transaction.transaction_version = 2
    assert transaction.may_send(("t", 0)) is alive
    transaction.transaction_version = 1
    assert transaction.may_send(("t", 0)) is False
    transaction.registered.add(("t", 0))
    assert transaction.may_send(("t", 0)) is alive
    assert transaction.may_send(("t", 1)) is False


@pytest.mark.parametrize("state", TransactionState, ids=lambda state: state.name.lower())
def test_only_an_error_or_an_abort_makes_queued_batches_pointless(state: TransactionState) -> None:
    assert transaction_in(state).drops_unsent is (state in (TransactionState.ABORTABLE, TransactionState.ABORTING))


def test_the_first_error_of_a_transaction_is_the_one_that_is_told() -> None:
    transaction = transaction_in(TransactionState.IN_TRANSACTION)
    transaction.on_error(TransactionAborted("first"))
    transaction.on_error(TransactionAborted("second"))
    transaction.start(1, TransactionEvent.COMMIT)
    [finished] = transaction.finished
    assert "first" in str(finished.error) and "second" not in str(finished.error)


def test_the_first_fatal_error_is_the_one_that_is_told() -> None:
    transaction = transaction_in(TransactionState.READY)
    transaction.on_fatal(CAUSE)
    transaction.on_fatal(ProducerFenced("another"))
    assert transaction.refusal is CAUSE


def test_a_receipt_of_another_id_is_refused_and_changes_nothing() -> None:
    transaction = Transaction("mine")
    transaction.resume(1, RECEIPT)
    [finished] = transaction.finished
    assert isinstance(finished.error, LocalProtocolError) and "'id'" in str(finished.error)
    assert transaction.state is TransactionState.UNINITIALIZED


# ---- closing ---------------------------------------------------------------------------------------------------------


def hanging(state: str, transaction_version: int) -> tuple[TransactionDriver, list[int]]:
    """A producer in this state, and its waiting calls."""
    if state == "replacing":
        driver = TransactionDriver(2, brokers=2, coordinator=1, is_initialised=False)
        driver.hold(PRODUCE, END_TXN, INIT_PRODUCER_ID)
        driver.begin_expected(ProducerIdentity(7, 3))
        driver.send()
        driver.reply(PRODUCE, 47)
        return driver, []
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
    call = {"preparing": driver.prepare, "committing": driver.commit, "aborting": driver.abort}[state]
    calls = [call()]
    if state in ("committing", "aborting"):
        driver.reply(PRODUCE)
    return driver, calls


STATES = (
    "uninitialized", "initializing", "ready", "renewing", "in transaction", "abortable", "preparing", "committing",
    "aborting", "replacing",
)  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_every_call_is_answered_when_the_producer_is_given_up(state: str, transaction_version: int) -> None:
    driver, calls = hanging(state, transaction_version)
    calls.append(driver.close())
    driver.run(Abandon(OperationTimeout("close")))
    assert not [call for call in calls if driver.is_waiting(call)]
    assert not driver.engine._batches.incomplete
    assert not driver.cluster.connections


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


@pytest.mark.parametrize(
    ("state", "ends"),
    [("in transaction", [False]), ("abortable", [False]), ("preparing", [False]), ("committing", [True]),
     ("aborting", [False]), ("ready", []), ("uninitialized", [])],
)  # fmt: skip
def test_close_aborts_what_is_open_and_finishes_what_is_decided(
    state: str, ends: list[bool], transaction_version: int
) -> None:
    driver, calls = hanging(state, transaction_version)
    close = driver.close()
    driver.release(PRODUCE, END_TXN)
    driver.run_for(2_000)
    assert driver.ok(close)
    assert [driver.ok(call) for call in calls] == [state != "preparing" for _ in calls]
    assert [request.body["committed"] for request in driver.cluster.requests_of(END_TXN)] == ends


def test_close_waits_for_records_on_the_wire_before_it_aborts(transaction_version: int) -> None:
    driver, _ = hanging("in transaction", transaction_version)
    close = driver.close()
    driver.run_for(1_000)
    assert driver.is_waiting(close) and driver.count(END_TXN) == 0
    driver.reply(PRODUCE)
    assert driver.count(END_TXN) == 1
    driver.release(END_TXN)
    assert driver.ok(close)


def test_close_drops_records_that_had_not_left_with_the_reason(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1, bootstrap_servers=(("host1", 9092),))
    driver.begin()
    driver.cluster.refusing.add(0)
    batch = driver.send()
    assert driver.ok(driver.close())
    assert "closed" in str(driver.error_of(batch)) and driver.count(PRODUCE) == 0


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


def test_close_after_a_fatal_error_ends_at_once(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, 90)
    driver.commit()
    assert not driver.is_waiting(driver.close())


def test_closing_twice_answers_both(transaction_version: int) -> None:
    driver, _ = hanging("in transaction", transaction_version)
    closes = [driver.close(), driver.close()]
    driver.release(PRODUCE, END_TXN)
    driver.run_for(1_000)
    assert all(driver.ok(close) for close in closes)
    assert driver.ok(driver.close())


def test_a_transaction_that_close_ended_by_itself_was_aborted_for_those_who_wait(transaction_version: int) -> None:
    driver, calls = hanging("preparing", transaction_version)
    driver.close()
    assert isinstance(driver.refusal_of(calls[0]), TransactionAborted)
    assert "closed" in str(driver.refusal_of(calls[0]))


@pytest.mark.parametrize("state", ["initializing", "renewing"])
def test_close_does_not_wait_for_an_identity_that_nobody_needs_any_more(state: str, transaction_version: int) -> None:
    driver, calls = hanging(state, transaction_version)
    close = driver.close()
    assert driver.ok(close)
    assert isinstance(driver.refusal_of(calls[0]), LocalProtocolError)
    assert not driver.cluster.connections
