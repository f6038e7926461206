"""Commits whose outcome is not known: the ways in which a producer ends while an EndTxn is unanswered."""

from __future__ import annotations

import pytest

from kafka_sink.errors import AuthenticationError, TransactionAborted, TransportError
from kafka_sink.kafka.wire.apis import END_TXN, PRODUCE
from kafka_sink.producer.engine.commands import Abandon, TransactionReceipt
from tests.unit.producer.engine.transaction_driver import PRODUCER_ID, TransactionDriver, started


@pytest.mark.parametrize("node_id", [0, 1], ids=["of another node", "of the coordinator"])
def test_a_login_that_is_refused_while_a_commit_is_in_flight_leaves_it_in_doubt(
    transaction_version: int, node_id: int
) -> None:
    driver = started(transaction_version, brokers=2, coordinator=1)
    driver.hold(END_TXN)
    commit = driver.commit()
    connection_id = driver.cluster.connections_of(node_id)[-1]
    driver.cluster.lose(connection_id, AuthenticationError("the password has changed"))
    driver.run()
    error = driver.refusal_of(commit)
    assert isinstance(error, AuthenticationError) and "the password has changed" in str(error)
    assert error.name == "PKS-5009" and "is not known" in str(error)
    assert driver.refusal_of(driver.begin()).name == "PKS-4001"


def test_a_login_that_is_refused_after_an_earlier_try_was_lost_leaves_the_commit_in_doubt(
    transaction_version: int,
) -> None:
    driver = started(transaction_version, brokers=2, coordinator=1)
    driver.fail(END_TXN, -1)
    commit = driver.commit()
    driver.cluster.lose(driver.cluster.connections_of(0)[-1], AuthenticationError("the password has changed"))
    driver.run()
    assert driver.refusal_of(commit).name == "PKS-5009"


@pytest.mark.parametrize("code", [90, 49, 53], ids=str)
def test_a_refusal_of_a_repeated_commit_says_that_an_earlier_try_may_have_committed(
    transaction_version: int, code: int
) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, -1, code)
    commit = driver.commit()
    driver.run_for(1_000)
    assert driver.refusal_of(commit).name == "PKS-5009" and "is not known" in str(driver.refusal_of(commit))


@pytest.mark.parametrize(("codes", "name"), [((90,), "PKS-5005"), ((49,), "PKS-3004"), ((-1, 48), "PKS-3004")], ids=str)
def test_a_refusal_that_rules_out_a_commit_leaves_no_doubt(
    transaction_version: int, codes: tuple[int, ...], name: str
) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, *codes)
    commit = driver.commit()
    driver.run_for(1_000)
    assert driver.refusal_of(commit).name == name
    driver = started(transaction_version)
    driver.fail(END_TXN, -1, 90)
    abort = driver.abort()
    driver.run_for(1_000)
    assert driver.refusal_of(abort).name == "PKS-5005"


def test_a_commit_that_ends_while_it_is_in_flight_is_of_unknown_outcome(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    commit = driver.commit()
    driver.run(Abandon(TransportError("close() did not end within 5 s")))
    error = driver.refusal_of(commit)
    assert isinstance(error, TransportError) and error.name == "PKS-5009"
    assert str(error).startswith("close() did not end within 5 s. ") and "is not known" in str(error)


def test_a_commit_that_ends_before_it_was_sent_is_not_in_doubt(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send()
    commit = driver.commit()
    driver.run(Abandon(TransportError("enough")))
    assert str(driver.refusal_of(commit)) == "enough"


def test_an_abort_that_ends_while_it_is_in_flight_is_not_in_doubt(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    abort = driver.abort()
    driver.run(Abandon(TransportError("enough")))
    assert str(driver.refusal_of(abort)) == "enough"


def test_a_commit_that_is_to_be_aborted_after_a_lost_try_keeps_the_doubt_until_the_abort_is_answered() -> None:
    driver = started(2)
    driver.fail(END_TXN, -1, 120, 48)
    commit = driver.commit()
    driver.run_for(1_000)
    assert isinstance(driver.refusal_of(commit), TransactionAborted)
    abort = driver.abort()
    driver.run_for(1_000)
    assert driver.refusal_of(abort).name == "PKS-5009"


def test_a_resumed_commit_that_is_fenced_may_have_been_committed_by_another_holder(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, is_initialised=False)
    receipt = TransactionReceipt("ledger", PRODUCER_ID, 4, transaction_version, True, {("t", 0): 0})
    assert driver.ok(driver.resume(receipt))
    driver.fail(END_TXN, 90)
    assert driver.refusal_of(driver.commit()).name == "PKS-5009"


def test_the_next_transaction_is_not_in_doubt_because_of_the_one_before(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, -1)
    commit = driver.commit()
    driver.run_for(1_000)
    assert driver.ok(commit)
    driver.begin()
    driver.run(Abandon(TransportError("enough")))
    assert str(driver.refusal_of(driver.commit())) == "enough"
