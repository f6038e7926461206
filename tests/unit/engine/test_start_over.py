"""A producer at rest becomes a new one: nothing of the old one is left but its connections and what it knows."""

from __future__ import annotations

import pytest
from transaction_driver import TRANSACTION, TransactionDriver, started

from kafka_sink.engine import engine
from kafka_sink.engine.commands import Flush, StartOver
from kafka_sink.errors import LocalProtocolError
from kafka_sink.wire.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE

NOT_COORDINATOR = 16
both_versions = pytest.mark.parametrize("transaction_version", [1, 2])


def start_over(driver: TransactionDriver, transactional_id: str | None) -> int:
    wish = StartOver(driver.operation_id(), transactional_id)
    driver.run(wish)
    return wish.operation_id


@both_versions
def test_the_next_producer_has_its_own_transaction_and_leaves_the_prepared_one_alone(transaction_version: int) -> None:
    driver = started(transaction_version)
    receipt = driver.receipt_of(driver.prepare())
    connection_count = len(driver.cluster.connections)
    assert driver.ok(start_over(driver, "next"))
    assert driver.ok(driver.init()) and driver.ok(driver.begin())
    driver.send()
    next_receipt = driver.receipt_of(driver.prepare())
    assert (receipt.transactional_id, next_receipt.transactional_id) == ("ledger", "next")
    assert next_receipt.producer_epoch != receipt.producer_epoch
    assert driver.count(END_TXN) == 0
    assert driver.sequences_sent[-1] == 0
    assert len(driver.cluster.connections) == connection_count


def test_without_an_id_it_becomes_an_idempotent_producer_with_a_fresh_identity() -> None:
    driver = started(2)
    driver.prepare()
    init_count = driver.count(INIT_PRODUCER_ID)
    assert driver.ok(start_over(driver, None))
    batch = driver.send()
    assert driver.offset_of(batch) == 0
    assert driver.count(INIT_PRODUCER_ID) == init_count + 1
    assert driver.last(INIT_PRODUCER_ID).body["transactional_id"] is None
    assert driver.last(PRODUCE).body["transactional_id"] is None


@both_versions
def test_an_open_transaction_stays_and_can_still_be_committed(transaction_version: int) -> None:
    driver = started(transaction_version)
    refusal = driver.refusal_of(start_over(driver, "next"))
    assert isinstance(refusal, LocalProtocolError) and "start over" in str(refusal)
    assert driver.ok(driver.commit())


def test_records_under_way_and_flushes_that_wait_forbid_it() -> None:
    driver = TransactionDriver(2)
    start_over(driver, None)
    driver.hold(PRODUCE)
    batch = driver.send()
    flush = Flush(driver.operation_id())
    driver.run(flush)
    assert isinstance(driver.refusal_of(start_over(driver, None)), LocalProtocolError)
    driver.release(PRODUCE)
    assert batch in driver.delivered and driver.ok(flush.operation_id)
    assert driver.ok(start_over(driver, None))


def test_a_coordinator_request_under_way_forbids_it_so_that_its_answer_finds_whoever_asked() -> None:
    driver = TransactionDriver(1, is_initialised=False)
    driver.hold(INIT_PRODUCER_ID)
    init = driver.init()
    assert isinstance(driver.refusal_of(start_over(driver, "next")), LocalProtocolError)
    driver.release(INIT_PRODUCER_ID)
    assert driver.ok(init)
    assert driver.ok(start_over(driver, "next"))


def test_a_producer_id_under_way_forbids_nothing_and_its_answer_is_nobodys() -> None:
    driver = TransactionDriver(2)
    driver.hold(INIT_PRODUCER_ID)
    start_over(driver, None)
    assert driver.ok(start_over(driver, None))
    driver.release(INIT_PRODUCER_ID)
    batch = driver.send()
    assert driver.offset_of(batch) == 0
    asked = [
        request for request in driver.cluster.requests_of(INIT_PRODUCER_ID) if not request.body["transactional_id"]
    ]
    assert len(asked) == 2


# ---- the coordinator of an id that is used again ----


def began_over(driver: TransactionDriver, transactional_id: str) -> list[str]:
    """What it takes until the next life has its identity."""
    before = len(driver.names())
    assert driver.ok(start_over(driver, transactional_id))
    init = driver.init()
    driver.run_for(1_000)
    assert driver.ok(init)
    return driver.names(skip=before)


@both_versions
def test_an_id_that_was_used_before_does_not_ask_for_its_coordinator_again(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.prepare()
    assert began_over(driver, "next") == ["FindCoordinator", "InitProducerId"]
    assert began_over(driver, "ledger") == ["InitProducerId"]
    assert driver.last(INIT_PRODUCER_ID).body["transactional_id"] == "ledger"
    assert began_over(driver, "next") == ["InitProducerId"]


def test_a_coordinator_that_has_moved_meanwhile_is_looked_for() -> None:
    driver = started(2, brokers=2)
    driver.prepare()
    driver.coordinators[TRANSACTION] = 1
    driver.fail(INIT_PRODUCER_ID, NOT_COORDINATOR)
    assert began_over(driver, "ledger") == ["InitProducerId", "FindCoordinator", "InitProducerId"]
    assert driver.last(INIT_PRODUCER_ID).node_id == 1


def test_what_is_known_of_coordinators_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "COORDINATORS_MAX", 2)
    driver = started(2)
    driver.prepare()
    for name in ("a", "b", "c"):
        began_over(driver, name)
    assert began_over(driver, "ledger") == ["FindCoordinator", "InitProducerId"]
    assert began_over(driver, "c") == ["InitProducerId"]
