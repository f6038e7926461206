"""The identity of a transactional producer: fetched, renewed after an abort or a doubt, replaced by another one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    DeliveryError,
    LocalProtocolError,
    ProducerFenced,
    TransactionAborted,
)
from kafka_sink.kafka.client.nodes import METADATA_OF_4_2
from kafka_sink.kafka.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kafka_sink.producer.engine import transaction_requests
from kafka_sink.producer.engine.commands import Append, Flush, StartOver, TransactionEvent, TransactionStep
from kafka_sink.producer.engine.producer_batch import ProducerIdentity
from kafka_sink.producer.engine.sequences import SEQUENCE_MODULUS, sequence_after
from tests.unit.producer.engine.driver import new_batch
from tests.unit.producer.engine.transaction_driver import PRODUCER_ID, TRANSACTION, TransactionDriver, started


def fresh(transaction_version: int = 1, **options: object) -> TransactionDriver:
    return TransactionDriver(transaction_version, is_initialised=False, **options)  # type: ignore[arg-type]


def test_nothing_is_asked_of_a_coordinator_before_init(transaction_version: int) -> None:
    driver = fresh(transaction_version)
    driver.run_for(10_000)
    assert driver.names() == []


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
    assert "host1:9092 (node 1) could not be established" in driver.engine.trouble
    driver.coordinators[TRANSACTION] = 2
    driver.run_for(5_000)
    assert driver.ok(init) and driver.last(INIT_PRODUCER_ID).node_id == 2
    assert driver.engine.trouble == ""


def test_a_code_that_comes_again_and_again_is_what_a_step_waits_for() -> None:
    driver = fresh()
    driver.hold(INIT_PRODUCER_ID)
    init = driver.init()
    driver.reply(INIT_PRODUCER_ID, 15)
    assert driver.is_waiting(init)
    assert driver.engine.trouble.startswith("InitProducerId is answered with COORDINATOR_NOT_AVAILABLE (15)")


def test_a_coordinator_that_metadata_does_not_know_yet_is_waited_for() -> None:
    driver = fresh(coordinator=5)
    init = driver.init()
    assert driver.is_waiting(init)
    driver.cluster.brokers[5] = ("host5", 9092)
    driver.run_for(1_000)
    assert driver.ok(init) and driver.last(INIT_PRODUCER_ID).node_id == 5


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
    assert isinstance(error, BrokerError) and (error.code, error.name) == (50, "PKS-3007")
    assert "transaction.timeout.ms=3600000" in str(error) and "transaction.max.timeout.ms" in str(error)


@pytest.mark.parametrize("api", [FIND_COORDINATOR, INIT_PRODUCER_ID], ids=lambda api: api.name)
def test_a_broker_without_transactions_is_an_error_and_no_endless_try(api: object) -> None:
    driver = fresh(api_versions={api.key: None})  # type: ignore[attr-defined]
    error = driver.refusal_of(driver.init())
    assert api.name in str(error)  # type: ignore[attr-defined]
    assert driver.engine.refusal is error


def test_a_record_that_comes_while_init_runs_is_refused_and_init_goes_on() -> None:
    driver = fresh()
    driver.hold(INIT_PRODUCER_ID)
    init = driver.init()
    batch = driver.send()
    driver.run(Append([]))
    driver.release(INIT_PRODUCER_ID)
    assert batch in driver.failed and driver.ok(init)


def test_init_says_that_no_other_try_can_still_arrive(transaction_version: int) -> None:
    driver = fresh(transaction_version)
    driver.fail(INIT_PRODUCER_ID, 51, 16)
    init = driver.init()
    driver.run_for(1_000)
    assert driver.count(INIT_PRODUCER_ID) == 3 and driver.finished[init].result is True


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
    assert driver.ok(driver._call(StartOver(driver.operation_id(), "another id")))
    again = driver.init()
    assert driver.finished[again].result is True


# ---- epochs ----------------------------------------------------------------------------------------------------------


def set_features(driver: TransactionDriver, features: Mapping[str, int]) -> None:
    """Sets the features as a newer connection would have reported them."""
    driver.engine.nodes.finalized_features = features


def next_transaction(driver: TransactionDriver) -> ProducerIdentity:
    begin = driver.begin()
    driver.run_for(1_000)
    assert driver.ok(begin)
    driver.send()
    assert driver.ok(driver.commit())
    return driver.sent[-1].identity


@pytest.mark.parametrize(("transaction_version", "renewals"), [(1, 1), (2, 0)])
def test_after_an_abort_the_next_transaction_has_a_new_epoch(transaction_version: int, renewals: int) -> None:
    driver = started(transaction_version)
    before = driver.count(INIT_PRODUCER_ID)
    driver.abort()
    assert next_transaction(driver) == (PRODUCER_ID, 1)
    assert driver.count(INIT_PRODUCER_ID) == before + renewals
    assert driver.sequences_sent == [0, 0]


def test_a_renewal_names_the_identity_it_renews_so_that_a_fenced_producer_cannot_fence_back() -> None:
    driver = started(1)
    driver.abort()
    body = driver.last(INIT_PRODUCER_ID).body
    assert (body["producer_id"], body["producer_epoch"]) == (PRODUCER_ID, 0)
    assert driver.last(INIT_PRODUCER_ID).version >= 3


def test_generation_2_goes_on_with_the_identity_that_the_end_brought_a_new_producer_id_included() -> None:
    driver = started(2)
    driver.producer_id, driver.producer_epoch = 8000, -1
    assert driver.ok(driver.commit())
    assert next_transaction(driver) == (8000, 0)
    assert driver.sequences_sent == [0, 0]


def test_a_renewal_that_brings_a_new_producer_id_is_followed() -> None:
    driver = started(1)
    driver.producer_id, driver.producer_epoch = 8000, -1
    driver.abort()
    assert next_transaction(driver) == (8000, 0)


@pytest.mark.parametrize("api", [ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN], ids=lambda api: api.name)
def test_in_version_1_a_request_that_stayed_without_an_answer_costs_the_epoch(api: object) -> None:
    # The request may arrive after the end of the transaction, and would then count for the next one.
    driver = TransactionDriver(1, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(api)  # type: ignore[arg-type]
    if api is TXN_OFFSET_COMMIT:
        driver.send_offsets()
    else:
        driver.send()
    commit = driver.commit()
    driver.disconnect(1)
    driver.release(api)  # type: ignore[arg-type]
    driver.run_for(1_000)
    assert driver.ok(commit)
    assert next_transaction(driver) == (PRODUCER_ID, 1)


def test_a_look_up_that_stayed_without_an_answer_costs_nothing() -> None:
    driver = TransactionDriver(1, brokers=2, coordinator=1)
    driver.begin()
    driver.fail(ADD_PARTITIONS_TO_TXN, 16)
    driver.hold(FIND_COORDINATOR)
    driver.send()
    driver.run_for(200)
    driver.disconnect(0)
    driver.disconnect(1)
    driver.release(FIND_COORDINATOR)
    driver.run_for(2_000)
    assert driver.ok(driver.commit()) and driver.count(INIT_PRODUCER_ID) == 1


def test_in_version_2_a_lost_answer_costs_nothing_because_every_transaction_has_its_epoch() -> None:
    driver = started(2, brokers=2, coordinator=1)
    driver.hold(END_TXN)
    commit = driver.commit()
    driver.disconnect(1)
    driver.release(END_TXN)
    driver.run_for(1_000)
    assert driver.ok(commit) and driver.count(INIT_PRODUCER_ID) == 1


def test_begin_while_the_epoch_is_renewed_waits_for_it() -> None:
    driver = started(1)
    driver.hold(INIT_PRODUCER_ID)
    assert driver.ok(driver.abort())
    begins = [driver.begin(), driver.begin()]
    assert all(driver.is_waiting(begin) for begin in begins)
    assert driver.send() in driver.failed
    driver.release(INIT_PRODUCER_ID)
    assert all(driver.ok(begin) for begin in begins)
    assert driver.send() in driver.delivered and driver.sent[-1].identity.producer_epoch == 1


def test_a_slow_renewal_goes_on_by_itself_and_a_later_begin_does_not_wait() -> None:
    driver = started(1)
    driver.fail(INIT_PRODUCER_ID, 51, 14, 7, 16)
    driver.abort()
    driver.run_for(5_000)
    assert driver.ok(driver.begin()) and driver.count(INIT_PRODUCER_ID) == 6


def test_a_renewal_survives_the_loss_of_the_coordinator() -> None:
    driver = started(1, brokers=3, coordinator=1)
    driver.hold(INIT_PRODUCER_ID)
    driver.abort()
    driver.coordinators[1] = 2
    driver.disconnect(1)
    begin = driver.begin()
    driver.release(INIT_PRODUCER_ID)
    driver.run_for(2_000)
    assert driver.ok(begin) and driver.last(INIT_PRODUCER_ID).node_id == 2


@pytest.mark.parametrize(("code", "kind"), [(90, ProducerFenced), (47, ProducerFenced), (53, AuthorizationError),
                                            (49, BrokerError)])  # fmt: skip
def test_a_renewal_that_is_refused_ends_the_producer_and_the_waiting_begin(code: int, kind: type[Exception]) -> None:
    driver = started(1)
    driver.hold(INIT_PRODUCER_ID)
    assert driver.ok(driver.abort())
    begin = driver.begin()
    driver.reply(INIT_PRODUCER_ID, code)
    assert type(driver.refusal_of(begin)) is kind and driver.refusal_of(driver.begin()) is driver.refusal_of(begin)


def test_a_broker_that_cannot_renew_an_epoch_is_an_error_and_no_silent_reuse() -> None:
    driver = TransactionDriver(1, api_versions={INIT_PRODUCER_ID.key: (0, 2)})
    driver.begin()
    driver.send()
    driver.abort()
    driver.run()
    assert "InitProducerId" in str(driver.engine.refusal)


@pytest.mark.parametrize(("old", "new"), [(1, 2), (2, 1)])
def test_a_change_of_version_happens_between_transactions_and_with_an_epoch_of_its_own(old: int, new: int) -> None:
    driver = started(old)
    set_features(driver, {"transaction.version": new})
    driver.send(1)
    assert driver.count(ADD_PARTITIONS_TO_TXN) == (2 if old == 1 else 0), "the open transaction keeps its rules"
    assert driver.ok(driver.commit()) and (driver.last(END_TXN).version >= 5) is (old == 2)
    epoch = driver.producer_epoch
    assert next_transaction(driver) == (PRODUCER_ID, epoch + 1)
    assert (driver.last(END_TXN).version >= 5) is (new == 2)
    assert (driver.last(PRODUCE).version >= 12) is (new == 2)
    assert driver.count(INIT_PRODUCER_ID) == 2


def test_the_same_version_again_costs_no_renewal() -> None:
    driver = started(2)
    driver.commit()
    set_features(driver, {"transaction.version": 3, "metadata.version": METADATA_OF_4_2})
    assert next_transaction(driver).producer_epoch == 1 and driver.count(INIT_PRODUCER_ID) == 1


def test_before_kafka_4_2_each_further_transaction_has_an_epoch_that_no_late_marker_has() -> None:
    driver = TransactionDriver(2, metadata_version=METADATA_OF_4_2 - 1)
    driver.begin()
    driver.send()
    assert driver.ok(driver.commit())
    of_end = driver.producer_epoch
    assert driver.count(INIT_PRODUCER_ID) == 1, "nothing is asked for that may never be used"
    assert next_transaction(driver) == (PRODUCER_ID, of_end + 1)
    body = driver.last(INIT_PRODUCER_ID).body
    assert (body["producer_id"], body["producer_epoch"]) == (PRODUCER_ID, of_end)
    # An empty transaction has no markers.
    assert driver.ok(driver.begin()) and driver.ok(driver.abort()) and driver.ok(driver.begin())
    assert driver.count(INIT_PRODUCER_ID) == 3


@pytest.mark.parametrize(("transaction_version", "versions"), [(1, range(3, 12)), (2, range(12, 14))])
def test_records_travel_in_a_version_of_their_version(transaction_version: int, versions: range) -> None:
    assert started(transaction_version).last(PRODUCE).version in versions


def test_every_request_of_a_transaction_carries_one_identity(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.send_offsets()
    driver.send(1)
    driver.commit()
    epochs = {sent.identity for sent in driver.sent}
    for api, prefix in ((ADD_PARTITIONS_TO_TXN, "v3_and_below_"), (TXN_OFFSET_COMMIT, ""), (END_TXN, "")):
        for request in driver.cluster.requests_of(api):
            epochs.add(ProducerIdentity(request.body[f"{prefix}producer_id"], request.body[f"{prefix}producer_epoch"]))
    assert epochs == {ProducerIdentity(PRODUCER_ID, 0)}


@pytest.mark.parametrize("code", [45, 59, 47], ids=str)
def test_no_batch_gets_another_number_inside_a_transaction(transaction_version: int, code: int) -> None:
    driver = started(transaction_version)
    driver.hold(PRODUCE)
    batch = driver.send()
    driver.reply(PRODUCE, code)
    driver.release(PRODUCE)
    driver.run_for(1_000)
    numbers = driver.epochs_and_sequences_sent
    assert set(numbers) <= {(0, 0), (0, 1)} and batch in driver.failed | driver.delivered.keys()
    if batch in driver.failed:
        assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)
        assert driver.ok(driver.abort())
        driver.run_for(1_000)
        assert driver.ok(driver.begin()) and driver.send() in driver.delivered
        assert driver.epochs_and_sequences_sent[-1] == (1, 0)


def test_sequences_wrap_from_the_largest_to_0() -> None:
    assert sequence_after(SEQUENCE_MODULUS - 1, 100) == 99


def test_a_doubt_about_records_of_an_aborted_transaction_does_not_spoil_the_next_one() -> None:
    """begin waits for the new epoch: the new transaction starts and the old sequences end in one step."""
    driver = started(1, delivery_timeout_ms=5_000, request_timeout_ms=4_000, linger_ms=0)
    driver.hold(PRODUCE, INIT_PRODUCER_ID)
    lost = driver.send()
    driver.run_for(6_000)
    assert lost in driver.failed
    driver.abort()
    driver.run_for(4_000)
    begin = driver.begin()
    assert driver.is_waiting(begin)
    driver.release(PRODUCE, INIT_PRODUCER_ID)
    assert driver.ok(begin)
    driver.send()
    assert driver.ok(driver.commit())


# ---- an idle producer starts over ------------------------------------------------------------------------------------


NOT_COORDINATOR = 16


def start_over(driver: TransactionDriver, transactional_id: str | None) -> int:
    call = StartOver(driver.operation_id(), transactional_id)
    driver.run(call)
    return call.operation


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
    assert batch in driver.delivered and driver.ok(flush.operation)
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


def test_what_was_refused_in_the_same_step_is_still_told() -> None:
    driver = TransactionDriver(2)
    batch, begun = new_batch(), driver.operation_id()
    driver.run(
        Append([batch]),
        TransactionStep(begun, TransactionEvent.COMMIT),
        StartOver(driver.operation_id(), "next"),
    )
    assert isinstance(driver.failed[batch].error, DeliveryError)
    assert isinstance(driver.refusal_of(begun), LocalProtocolError)


# ---- the coordinator of a reused id ----


def began_over(driver: TransactionDriver, transactional_id: str) -> list[str]:
    """The requests until the producer that started over has its identity."""
    before = len(driver.names())
    assert driver.ok(start_over(driver, transactional_id))
    init = driver.init()
    driver.run_for(1_000)
    assert driver.ok(init)
    return driver.names(skip=before)


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
    monkeypatch.setattr(transaction_requests, "COORDINATORS_MAX", 2)
    driver = started(2)
    driver.prepare()
    for name in ("a", "b", "c"):
        began_over(driver, name)
    assert began_over(driver, "ledger") == ["FindCoordinator", "InitProducerId"]
    assert began_over(driver, "c") == ["InitProducerId"]
