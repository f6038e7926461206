"""init_transactions(): find the coordinator, take an identity; what is repeated, what is final, what is said."""

from __future__ import annotations

import pytest
from transaction_driver import PRODUCER_ID, TRANSACTION, TransactionDriver

from kafka_sink.engine.commands import Abandon, Append, StartOver
from kafka_sink.engine.producer_batch import ProducerIdentity
from kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    LocalProtocolError,
    OperationTimeout,
    ProducerFenced,
)
from kafka_sink.wire.apis import FIND_COORDINATOR, INIT_PRODUCER_ID

both_versions = pytest.mark.parametrize("transaction_version", [1, 2])


def fresh(transaction_version: int = 1, **options: object) -> TransactionDriver:
    return TransactionDriver(transaction_version, is_initialised=False, **options)  # type: ignore[arg-type]


@both_versions
def test_nothing_is_asked_of_a_coordinator_before_init(transaction_version: int) -> None:
    driver = fresh(transaction_version)
    driver.run_for(10_000)
    assert driver.names() == []


@both_versions
def test_init_finds_the_coordinator_and_takes_an_identity_from_it(transaction_version: int) -> None:
    driver = fresh(transaction_version, brokers=2, coordinator=1, transaction_timeout_ms=12_345)
    assert driver.ok(driver.init())
    assert driver.names() == ["FindCoordinator", "InitProducerId"]
    asked = driver.last(INIT_PRODUCER_ID)
    assert asked.node_id == 1
    assert asked.body["transactional_id"] == "ledger" and asked.body["transaction_timeout_ms"] == 12_345
    assert (asked.body["producer_id"], asked.body["producer_epoch"]) == (-1, -1)
    driver.begin()
    driver.send()
    assert driver.sent[-1].identity == ProducerIdentity(PRODUCER_ID, 0)


def test_a_record_before_init_is_refused_and_asks_for_nothing() -> None:
    driver = fresh()
    batch = driver.send()
    assert "init_transactions" in str(driver.error_of(batch))
    assert isinstance(driver.engine.refusal, LocalProtocolError)
    assert driver.names() == []


def test_a_record_before_begin_is_refused_and_the_next_transaction_is_not_touched_by_it() -> None:
    driver = TransactionDriver()
    batch = driver.send()
    assert "begin_transaction" in str(driver.error_of(batch))
    driver.begin()
    driver.send()
    assert driver.ok(driver.commit())


def test_init_twice_is_refused_and_the_producer_goes_on() -> None:
    driver = TransactionDriver()
    assert isinstance(driver.refusal_of(driver.init()), LocalProtocolError)
    assert driver.ok(driver.begin())


def test_init_called_again_while_it_runs_waits_for_the_same_answer() -> None:
    driver = fresh()
    driver.hold(INIT_PRODUCER_ID)
    first = driver.init()
    second = driver.init()
    assert driver.is_waiting(first) and driver.is_waiting(second)
    driver.release(INIT_PRODUCER_ID)
    assert driver.ok(first) and driver.ok(second)
    assert driver.count(INIT_PRODUCER_ID) == 1


def test_begin_while_init_runs_is_refused() -> None:
    driver = fresh()
    driver.hold(FIND_COORDINATOR)
    driver.init()
    assert "has not finished" in str(driver.refusal_of(driver.begin()))


@pytest.mark.parametrize("code", [14, 15, 16, 7, -1], ids=str)
def test_a_coordinator_that_cannot_be_told_yet_is_asked_for_again(code: int) -> None:
    driver = fresh()
    driver.fail(FIND_COORDINATOR, code, code)
    init = driver.init()
    assert driver.is_waiting(init) and driver.count(FIND_COORDINATOR) == 1
    driver.run_for(1_000)
    assert driver.ok(init)
    assert driver.names() == ["FindCoordinator"] * 3 + ["InitProducerId"]


@pytest.mark.parametrize(("code", "lookups"), [(14, 1), (51, 1), (7, 1), (120, 1), (15, 2), (16, 2)], ids=str)
def test_an_id_that_cannot_be_given_yet_is_asked_for_again(code: int, lookups: int) -> None:
    driver = fresh()
    driver.fail(INIT_PRODUCER_ID, code)
    init = driver.init()
    assert driver.is_waiting(init)
    driver.run_for(1_000)
    assert driver.ok(init)
    assert driver.count(FIND_COORDINATOR) == lookups and driver.count(INIT_PRODUCER_ID) == 2


def test_while_markers_are_written_the_id_is_asked_for_after_20_ms_and_then_after_longer_waits() -> None:
    driver = fresh()
    driver.fail(INIT_PRODUCER_ID, 51, 51, 51)
    driver.init()
    waits = [driver.sleep_until_due() for _ in range(3)]
    assert waits == [20, 40, 60]


def test_a_connection_lost_while_the_coordinator_is_looked_up_is_survived() -> None:
    driver = fresh()
    driver.hold(FIND_COORDINATOR)
    init = driver.init()
    driver.disconnect()
    driver.release(FIND_COORDINATOR)
    driver.run_for(1_000)
    assert driver.ok(init)


def test_a_connection_lost_before_the_id_came_leads_to_a_new_look_up() -> None:
    driver = fresh(brokers=3, coordinator=1)
    driver.hold(INIT_PRODUCER_ID)
    init = driver.init()
    driver.coordinators[TRANSACTION] = 2
    driver.disconnect(1)
    driver.release(INIT_PRODUCER_ID)
    driver.run_for(1_000)
    assert driver.ok(init)
    assert driver.names() == ["FindCoordinator", "InitProducerId"] * 2
    assert driver.last(INIT_PRODUCER_ID).node_id == 2


def test_a_coordinator_whose_port_refuses_is_looked_up_again_with_a_pause() -> None:
    driver = fresh(brokers=3, coordinator=1)
    driver.cluster.refusing.add(1)
    init = driver.init()
    driver.run_for(2_000)
    assert driver.is_waiting(init) and 2 <= driver.count(FIND_COORDINATOR) <= 30
    driver.coordinators[TRANSACTION] = 2
    driver.run_for(5_000)
    assert driver.ok(init) and driver.last(INIT_PRODUCER_ID).node_id == 2


def test_a_coordinator_that_metadata_does_not_know_yet_is_waited_for() -> None:
    driver = fresh(coordinator=5)
    init = driver.init()
    assert driver.is_waiting(init)
    driver.cluster.brokers[5] = ("host5", 9092)
    driver.run_for(1_000)
    assert driver.ok(init) and driver.last(INIT_PRODUCER_ID).node_id == 5


@pytest.mark.parametrize("code", [90, 47], ids=str)
def test_fenced_while_initialising_is_final(code: int) -> None:
    driver = fresh()
    driver.fail(INIT_PRODUCER_ID, code)
    assert isinstance(driver.refusal_of(driver.init()), ProducerFenced)
    assert isinstance(driver.refusal_of(driver.begin()), ProducerFenced)
    assert isinstance(driver.engine.refusal, ProducerFenced)


@pytest.mark.parametrize("api", [FIND_COORDINATOR, INIT_PRODUCER_ID], ids=lambda api: api.name)
@pytest.mark.parametrize("code", [53, 31], ids=str)
def test_a_missing_permission_for_the_id_is_final_and_names_it(api: object, code: int) -> None:
    driver = fresh()
    driver.fail(api, code)  # type: ignore[arg-type]
    error = driver.refusal_of(driver.init())
    assert isinstance(error, AuthorizationError)
    assert "'ledger'" in str(error) and "Write and Describe" in str(error)
    assert driver.refusal_of(driver.begin()) is error


def test_a_transaction_time_out_above_the_brokers_limit_names_both_settings_and_the_value() -> None:
    driver = fresh(transaction_timeout_ms=3_600_000)
    driver.fail(INIT_PRODUCER_ID, 50)
    error = driver.refusal_of(driver.init())
    assert isinstance(error, BrokerError) and error.code == 50
    assert "transaction.timeout.ms=3600000" in str(error) and "transaction.max.timeout.ms" in str(error)


@pytest.mark.parametrize("code", [48, 49, 42, 35, 9999], ids=str)
def test_any_other_code_for_the_id_is_final(code: int) -> None:
    driver = fresh()
    driver.fail(INIT_PRODUCER_ID, code)
    error = driver.refusal_of(driver.init())
    assert isinstance(error, BrokerError) and error.code == code and error.api == "InitProducerId"


@pytest.mark.parametrize("api", [FIND_COORDINATOR, INIT_PRODUCER_ID], ids=lambda api: api.name)
def test_a_broker_without_transactions_is_an_error_and_no_endless_try(api: object) -> None:
    driver = fresh(api_versions={api.key: None})  # type: ignore[attr-defined]
    error = driver.refusal_of(driver.init())
    assert api.name in str(error)  # type: ignore[attr-defined]
    assert driver.engine.refusal is error


def test_giving_up_while_initialising_ends_every_call_with_the_reason() -> None:
    driver = fresh()
    driver.hold(INIT_PRODUCER_ID)
    calls = [driver.init(), driver.init()]
    driver.run(Abandon(OperationTimeout("close")))
    assert {type(driver.refusal_of(call)) for call in calls} == {OperationTimeout}
    driver.run_for(60_000)
    assert driver.count(INIT_PRODUCER_ID) == 1


def test_a_record_that_comes_while_init_runs_is_refused_and_init_goes_on() -> None:
    driver = fresh()
    driver.hold(INIT_PRODUCER_ID)
    init = driver.init()
    batch = driver.send()
    driver.run(Append([]))
    driver.release(INIT_PRODUCER_ID)
    assert batch in driver.failed and driver.ok(init)


@both_versions
def test_init_says_that_no_other_try_can_still_arrive(transaction_version: int) -> None:
    driver = fresh(transaction_version)
    driver.fail(INIT_PRODUCER_ID, 51, 16)
    init = driver.init()
    driver.run_for(1_000)
    assert driver.count(INIT_PRODUCER_ID) == 3 and driver.finished[init].result is True


@both_versions
def test_init_says_that_a_try_without_an_answer_may_still_arrive_and_another_id_is_free_of_it(
    transaction_version: int,
) -> None:
    driver = fresh(transaction_version)
    driver.hold(INIT_PRODUCER_ID)
    init = driver.init()
    driver.disconnect()
    driver.release(INIT_PRODUCER_ID)
    driver.run_for(1_000)
    assert driver.ok(init) and driver.finished[init].result is False
    assert driver.ok(driver._wish(StartOver(driver.operation_id(), "another id")))
    again = driver.init()
    assert driver.finished[again].result is True
