"""Prepare, hand over, resume: a prepared transaction is ended by the holder of its receipt and by nobody else."""

from __future__ import annotations

import pickle

import pytest
from transaction_driver import PRODUCER_ID, TransactionDriver, started

from kafka_sink.engine.commands import Abandon
from kafka_sink.engine.transaction import TransactionReceipt
from kafka_sink.errors import (
    BrokerError,
    LocalProtocolError,
    OperationTimeout,
    ProducerFenced,
    TransactionAborted,
)
from kafka_sink.wire.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE

both_versions = pytest.mark.parametrize("transaction_version", [1, 2])
both_ends = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


def receipt(transaction_version: int, *, is_started: bool = True) -> TransactionReceipt:
    return TransactionReceipt("ledger", PRODUCER_ID, 4, transaction_version, is_started, {("t", 0): 0})


def resumed(
    transaction_version: int, *, cluster_version: int | None = None, is_started: bool = True
) -> TransactionDriver:
    """Another producer, in another process, that has just taken over the receipt."""
    driver = TransactionDriver(cluster_version or transaction_version, is_initialised=False)
    driver.producer_epoch = 4
    assert driver.ok(driver.resume(receipt(transaction_version, is_started=is_started)))
    return driver


def end(driver: TransactionDriver, commit: bool) -> int:
    return driver.commit() if commit else driver.abort()


@both_versions
def test_prepare_waits_for_every_record_and_gives_a_receipt(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send(0)
    driver.send(1)
    prepare = driver.prepare()
    driver.reply(PRODUCE)
    driver.run_for(5_000)
    assert driver.is_waiting(prepare)
    driver.release(PRODUCE)
    given = driver.receipt_of(prepare)
    assert given == TransactionReceipt("ledger", PRODUCER_ID, 0, transaction_version, True, {("t", 0): 0, ("t", 1): 0})
    assert pickle.loads(pickle.dumps(given)) == given


@both_versions
def test_prepare_waits_for_offsets_too(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    driver.send_offsets()
    assert driver.receipt_of(driver.prepare()).is_started is True
    assert driver.names()[-1] == "TxnOffsetCommit"


@both_versions
def test_the_receipt_of_an_empty_transaction_says_so_and_ending_it_asks_nobody(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    assert driver.receipt_of(driver.prepare()).is_started is False
    other = resumed(transaction_version, is_started=False)
    assert other.ok(other.commit()) and other.names() == []


@both_versions
def test_after_prepare_nothing_is_sent_by_the_producer_itself(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.prepare()
    asked = driver.names()
    batch = driver.send()
    assert "can only be ended" in str(driver.error_of(batch))
    assert isinstance(driver.refusal_of(driver.begin()), LocalProtocolError)
    assert isinstance(driver.refusal_of(driver.send_offsets()), LocalProtocolError)
    driver.run_for(600_000)
    assert driver.ok(driver.close())
    assert driver.names() == asked


@both_versions
def test_giving_up_after_prepare_leaves_the_transaction_alone(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.prepare()
    driver.run(Abandon(OperationTimeout("close")))
    assert driver.count(END_TXN) == 0


@both_versions
@both_ends
def test_whoever_prepared_may_end_it_too(transaction_version: int, commit: bool) -> None:
    driver = started(transaction_version)
    driver.prepare()
    assert driver.ok(end(driver, commit))
    assert driver.last(END_TXN).body["committed"] is commit


@both_versions
def test_a_transaction_after_a_prepared_one_has_another_epoch_so_that_no_late_end_meets_it(
    transaction_version: int,
) -> None:
    driver = started(transaction_version)
    given = driver.receipt_of(driver.prepare())
    driver.commit()
    driver.begin()
    driver.send()
    assert driver.sent[-1].identity == (PRODUCER_ID, given.producer_epoch + 1)
    assert driver.count(INIT_PRODUCER_ID) == (2 if transaction_version == 1 else 1)


@both_versions
def test_a_record_that_fails_while_preparing_ends_prepare_with_the_reason(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send()
    prepare = driver.prepare()
    driver.reply(PRODUCE, 87)
    assert isinstance(driver.refusal_of(prepare), TransactionAborted)
    assert driver.ok(driver.abort()) and driver.last(END_TXN).body["committed"] is False


@both_versions
def test_prepare_called_again_while_it_runs_gives_the_same_receipt(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send()
    calls = [driver.prepare(), driver.prepare()]
    driver.release(PRODUCE)
    assert driver.receipt_of(calls[0]) == driver.receipt_of(calls[1])


@both_versions
def test_a_transaction_that_is_being_prepared_can_be_aborted_and_not_committed(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    batch = driver.send()
    prepare = driver.prepare()
    assert isinstance(driver.refusal_of(driver.commit()), LocalProtocolError)
    abort = driver.abort()
    assert isinstance(driver.refusal_of(prepare), TransactionAborted)
    driver.release(PRODUCE)
    assert batch in driver.delivered and driver.ok(abort)


@pytest.mark.parametrize(("transaction_version", "cluster_version"), [(1, 1), (1, 2), (2, 1), (2, 2)])
@both_ends
def test_a_resumed_transaction_is_ended_by_the_rules_of_its_receipt_whatever_the_cluster_prefers(
    transaction_version: int, cluster_version: int, commit: bool
) -> None:
    driver = resumed(transaction_version, cluster_version=cluster_version)
    assert driver.ok(end(driver, commit))
    request = driver.last(END_TXN)
    assert (request.version >= 5) is (transaction_version == 2)
    assert (request.body["producer_id"], request.body["producer_epoch"]) == (PRODUCER_ID, 4)
    assert request.body["committed"] is commit


@both_versions
@both_ends
def test_ending_a_resumed_transaction_takes_no_new_epoch_because_others_may_repeat_the_end(
    transaction_version: int, commit: bool
) -> None:
    driver = resumed(transaction_version)
    assert driver.ok(end(driver, commit))
    driver.run_for(60_000)
    assert driver.count(INIT_PRODUCER_ID) == 0 and driver.ok(driver.close())


@both_versions
def test_after_a_resumed_transaction_a_new_one_needs_an_identity_of_its_own(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    driver.commit()
    assert "init_transactions" in str(driver.refusal_of(driver.begin()))
    assert driver.ok(driver.init()) and driver.ok(driver.begin())
    driver.send()
    assert driver.sent[-1].identity.producer_epoch > 4


@both_versions
@both_ends
def test_the_same_receipt_may_be_resumed_and_ended_the_same_way_again(transaction_version: int, commit: bool) -> None:
    driver = resumed(transaction_version)
    first = end(driver, commit)
    assert driver.ok(driver.resume(receipt(transaction_version)))
    second = end(driver, commit)
    assert driver.ok(first) and driver.ok(second)
    bodies = [(request.version, request.body) for request in driver.cluster.requests_of(END_TXN)]
    assert len(bodies) == 2 and bodies[0] == bodies[1]


@both_versions
def test_a_resumed_commit_of_unknown_fate_is_repeated_until_the_answer_is_definite(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    driver.fail(END_TXN, 51, 14, 15, 16, 7, -1)
    commit = driver.commit()
    driver.run_for(10_000)
    assert driver.ok(commit) and driver.count(END_TXN) == 7


@both_versions
@pytest.mark.parametrize("code", [48, 49], ids=str)
def test_what_the_coordinator_knows_otherwise_is_told_with_its_code(transaction_version: int, code: int) -> None:
    driver = resumed(transaction_version)
    driver.fail(END_TXN, code)
    error = driver.refusal_of(driver.commit())
    assert isinstance(error, BrokerError) and error.code == code and error.api == "EndTxn"


@both_versions
@pytest.mark.parametrize("code", [47, 90], ids=str)
def test_a_superseded_receipt_is_fenced(transaction_version: int, code: int) -> None:
    driver = resumed(transaction_version)
    driver.fail(END_TXN, code)
    assert isinstance(driver.refusal_of(driver.commit()), ProducerFenced)


@both_versions
def test_a_resumed_transaction_takes_no_records(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    assert driver.send() in driver.failed
    assert driver.ok(driver.commit()) and driver.count(PRODUCE) == 0


@both_versions
def test_closing_after_resume_without_an_end_leaves_the_transaction_alone(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    assert driver.ok(driver.close()) and driver.names() == []


def test_resume_on_a_producer_with_an_identity_of_its_own_is_refused() -> None:
    driver = TransactionDriver(2)
    assert isinstance(driver.refusal_of(driver.resume(receipt(2))), LocalProtocolError)
    assert driver.ok(driver.begin())
