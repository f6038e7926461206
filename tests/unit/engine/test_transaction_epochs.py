"""The epoch of a transaction: renewed after an abort or a doubt, raised by the end, changed with the version."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from transaction_driver import PRODUCER_ID, TransactionDriver, started

from kafka_sink.engine.producer_batch import ProducerIdentity
from kafka_sink.engine.sequences import SEQUENCE_MODULUS, sequence_after
from kafka_sink.errors import AuthorizationError, BrokerError, ProducerFenced, TransactionAborted
from kafka_sink.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

both_versions = pytest.mark.parametrize("transaction_version", [1, 2])


def set_features(driver: TransactionDriver, features: Mapping[str, int]) -> None:
    """What a newer connection would have told."""
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
    # It may arrive after the transaction has ended, and would be taken for one of the next.
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
    set_features(driver, {"transaction.version": 3})
    assert next_transaction(driver).producer_epoch == 1 and driver.count(INIT_PRODUCER_ID) == 1


@pytest.mark.parametrize(("transaction_version", "versions"), [(1, range(3, 12)), (2, range(12, 14))])
def test_records_travel_in_a_version_of_their_version(transaction_version: int, versions: range) -> None:
    assert started(transaction_version).last(PRODUCE).version in versions


@both_versions
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


@both_versions
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
    """begin waits for the new epoch: the new transaction and the end of the old sequences come in one step."""
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
