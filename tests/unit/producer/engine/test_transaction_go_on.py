"""A producer that goes on with the epoch that the end of the last transaction gave, and what follows if it is wrong.

The leader is asked by the first record: it accepts the expected identity, or refuses it and has appended nothing.
"""

from __future__ import annotations

import pytest

from kafka_sink.errors import DeliveryError, ProducerFenced, TransactionAborted
from kafka_sink.kafka.client.nodes import METADATA_OF_4_2
from kafka_sink.kafka.wire.apis import END_TXN, FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE
from kafka_sink.producer.engine.commands import Flush
from kafka_sink.producer.engine.producer_batch import ProducerIdentity
from kafka_sink.producer.engine.transaction import TransactionState
from tests.unit.producer.engine.transaction_driver import PRODUCER_ID, TransactionDriver

EXPECTED, GIVEN = ProducerIdentity(PRODUCER_ID, 6), ProducerIdentity(PRODUCER_ID, 9)
# INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
REFUSALS = (47, 49, 90)


def going_on(**more: object) -> TransactionDriver:
    """A transaction with the expected identity has begun; the coordinator would give another one."""
    driver = TransactionDriver(2, is_initialised=False, **more)  # type: ignore[arg-type]
    driver.producer_epoch = GIVEN.producer_epoch - 1
    assert driver.ok(driver.begin_expected(EXPECTED))
    return driver


def over_two_leaders() -> TransactionDriver:
    driver = going_on(brokers=2, leaders=(0, 1), coordinator=1)
    driver.hold(PRODUCE)
    driver.send(0)
    driver.send(1)
    assert driver.count(PRODUCE) == 2
    return driver


def test_the_expected_identity_asks_no_coordinator_and_is_in_the_receipt() -> None:
    driver = going_on()
    driver.send(0)
    driver.send(1)
    receipt = driver.receipt_of(driver.prepare())
    assert driver.names() == ["Produce", "Produce"]
    assert {sent.identity for sent in driver.sent} == {EXPECTED} and driver.sequences_sent == [0, 0]
    assert (receipt.producer_id, receipt.producer_epoch, receipt.transaction_version) == (*EXPECTED, 2)


@pytest.mark.parametrize(
    ("version", "metadata"), [(1, METADATA_OF_4_2), (2, METADATA_OF_4_2 - 1), (2, 0)], ids=["old", "4.1", "unknown"]
)
def test_where_the_end_gives_no_epoch_or_a_late_marker_could_end_the_next_one_the_coordinator_is_asked(
    version: int, metadata: int
) -> None:
    driver = TransactionDriver(version, is_initialised=False, metadata_version=metadata)
    assert driver.ok(driver.begin_expected(EXPECTED))
    assert "init_transactions" in str(driver.refusal_of(driver.begin()))
    assert driver.ok(driver.init())
    assert driver.names() == ["FindCoordinator", "InitProducerId"]
    assert driver.engine._transaction is not None and driver.engine._transaction.identity == (PRODUCER_ID, 0)


@pytest.mark.parametrize("code", REFUSALS)
def test_an_identity_that_is_refused_is_replaced_and_the_records_go_out_under_the_new_one(code: int) -> None:
    driver = going_on()
    driver.fail(PRODUCE, code)
    first, second = driver.send(0), driver.send(0)
    receipt = driver.receipt_of(driver.prepare())
    assert driver.names() == ["Produce", "FindCoordinator", "InitProducerId", "Produce", "Produce"]
    body = driver.last(INIT_PRODUCER_ID).body
    assert (body["producer_id"], body["producer_epoch"]) == (-1, -1)
    assert [(sent.identity, sent.base_sequence) for sent in driver.sent] == [(EXPECTED, 0), (GIVEN, 0), (GIVEN, 1)]
    assert set(driver.delivered) == {first, second}
    assert (receipt.producer_id, receipt.producer_epoch) == GIVEN and receipt.is_started
    [notice] = [notice for notice in driver.notices if "another epoch" in notice.text]
    assert notice.level == "debug"


def test_rows_are_accepted_and_wait_while_the_identity_is_replaced() -> None:
    driver = going_on()
    driver.hold(INIT_PRODUCER_ID)
    driver.fail(PRODUCE, 47)
    driver.send(0)
    assert driver.engine.refusal is None
    later = driver.send(1)
    flush = driver.operation_id()
    driver.run(Flush(flush))
    assert driver.count(PRODUCE) == 1 and driver.is_waiting(flush)
    driver.release(INIT_PRODUCER_ID)
    assert driver.ok(flush) and later in driver.delivered


def test_of_two_leaders_that_both_refuse_both_are_waited_for_before_another_epoch_is_asked() -> None:
    driver = over_two_leaders()
    driver.reply(PRODUCE, 47)
    driver.run_for(1_000)
    assert driver.count(INIT_PRODUCER_ID) == 0
    driver.reply(PRODUCE, 47)
    driver.release(PRODUCE)
    assert driver.count(INIT_PRODUCER_ID) == 1
    assert {sent.identity for sent in driver.sent[2:]} == {GIVEN} and len(driver.delivered) == 2


@pytest.mark.parametrize("codes", [(0, 47), (47, 0)], ids=["accepted first", "refused first"])
def test_an_identity_that_one_leader_has_accepted_and_another_refuses_was_fenced_in_between(
    codes: tuple[int, int],
) -> None:
    driver = over_two_leaders()
    for code in codes:
        driver.reply(PRODUCE, code)
    driver.run_for(1_000)
    assert driver.count(INIT_PRODUCER_ID) == 0 and driver.count(PRODUCE) == 2
    assert len(driver.delivered) == 1 and len(driver.failed) == 1
    assert isinstance(driver.refusal_of(driver.prepare()), TransactionAborted)


def test_a_refusal_after_a_send_without_an_answer_dooms_the_transaction() -> None:
    """The first send may be in the log: then somebody has ended the transaction since."""
    driver = going_on()
    driver.hold(PRODUCE)
    batch = driver.send(0)
    driver.disconnect()
    driver.run_for(1_000)
    driver.reply(PRODUCE, 47)
    assert driver.count(INIT_PRODUCER_ID) == 0
    error = driver.error_of(batch)
    assert isinstance(error, DeliveryError) and error.ambiguous


def test_a_send_that_is_lost_while_another_leader_refuses_dooms_the_transaction() -> None:
    driver = over_two_leaders()
    driver.reply(PRODUCE, 47)
    driver.disconnect(node_id=1)
    driver.run_for(1_000)
    assert driver.count(INIT_PRODUCER_ID) == 0 and len(driver.failed) == 2


def test_markers_that_are_still_being_written_are_waited_for() -> None:
    driver = going_on()
    driver.fail(PRODUCE, 51, 51)
    driver.send(0)
    driver.run_for(1_000)
    assert driver.names() == ["Produce"] * 3 and {sent.identity for sent in driver.sent} == {EXPECTED}
    assert driver.ok(driver.prepare())


def test_a_second_refusal_is_no_matter_of_the_expectation() -> None:
    driver = going_on()
    driver.fail(PRODUCE, 47, 47)
    batch = driver.send(0)
    assert driver.count(INIT_PRODUCER_ID) == 1
    assert "INVALID_PRODUCER_EPOCH" in str(driver.error_of(batch))


def test_an_identity_from_the_coordinator_that_is_refused_ends_the_transaction_as_ever() -> None:
    driver = TransactionDriver(2)
    driver.begin()
    driver.fail(PRODUCE, 47)
    batch = driver.send(0)
    assert "INVALID_PRODUCER_EPOCH" in str(driver.error_of(batch))
    assert driver.count(INIT_PRODUCER_ID) == 1


def test_a_question_for_another_epoch_without_an_answer_dooms_the_transaction() -> None:
    """It may arrive when the transaction is prepared or decided, and no other transactional id can be taken now."""
    driver = going_on(brokers=2, coordinator=1)
    driver.hold(INIT_PRODUCER_ID)
    driver.fail(PRODUCE, 47)
    batch = driver.send(0)
    driver.disconnect(node_id=1)
    driver.run_for(1_000)
    assert "may still arrive" in str(driver.error_of(batch)) and driver.count(INIT_PRODUCER_ID) == 1
    close = driver.close()
    driver.run_for(1_000)
    assert driver.ok(close) and driver.count(END_TXN) == 0


@pytest.mark.parametrize("code", [0, 47])
def test_closing_while_the_identity_is_replaced_waits_for_the_answer_and_ends_nothing(code: int) -> None:
    driver = going_on()
    driver.hold(INIT_PRODUCER_ID)
    driver.fail(PRODUCE, 47)
    driver.send(0)
    close = driver.close()
    driver.reply(INIT_PRODUCER_ID, code)
    driver.run_for(1_000)
    assert driver.count(END_TXN) == 0 and driver.count(PRODUCE) == 1
    assert driver.ok(close) or isinstance(driver.refusal_of(close), ProducerFenced)


def test_after_an_abort_in_that_moment_the_producer_has_no_identity() -> None:
    driver = going_on()
    driver.hold(INIT_PRODUCER_ID)
    driver.fail(PRODUCE, 47)
    driver.send(0)
    abort = driver.abort()
    driver.release(INIT_PRODUCER_ID)
    assert driver.ok(abort) and driver.count(END_TXN) == 0
    assert "init_transactions" in str(driver.refusal_of(driver.begin()))
    assert driver.ok(driver.init()) and driver.ok(driver.begin())


def test_an_abort_of_an_identity_that_nobody_has_confirmed_ends_what_may_have_begun() -> None:
    driver = going_on()
    driver.hold(PRODUCE)
    driver.send(0)
    driver.disconnect()
    abort = driver.abort()
    driver.run_for(1_000)
    assert driver.ok(abort)
    body = driver.last(END_TXN).body
    assert (body["producer_id"], body["producer_epoch"], body["committed"]) == (*EXPECTED, False)


def test_a_transaction_without_records_leaves_the_expected_identity_to_the_next_one() -> None:
    driver = going_on()
    receipt = driver.receipt_of(driver.prepare())
    assert (receipt.producer_id, receipt.producer_epoch, receipt.is_started) == (*EXPECTED, False)
    assert driver.names() == []
    assert driver.ok(driver.begin_expected(EXPECTED))
    driver.send(0)
    assert driver.sent[-1].identity == EXPECTED and driver.count(FIND_COORDINATOR) == 0


def test_a_version_that_changes_before_the_transaction_begins_asks_for_an_identity_without_naming_this_one() -> None:
    driver = going_on()
    assert driver.ok(driver.abort())
    driver.engine.nodes.finalized_features = {"transaction.version": 1}
    assert driver.ok(driver.begin())
    body = driver.last(INIT_PRODUCER_ID).body
    assert (body["producer_id"], body["producer_epoch"]) == (-1, -1)


def test_a_refusal_while_the_transaction_is_being_prepared_dooms_it() -> None:
    driver = going_on()
    driver.hold(PRODUCE)
    driver.send(0)
    prepare = driver.prepare()
    driver.reply(PRODUCE, 47)
    assert isinstance(driver.refusal_of(prepare), TransactionAborted)
    assert driver.engine._transaction is not None
    assert driver.engine._transaction.state is TransactionState.ABORTABLE
