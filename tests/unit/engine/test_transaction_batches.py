"""What happens to a transaction when batches expire, are refused, come back late or lose their leader."""

from __future__ import annotations

import pytest
from driver import new_batch
from transaction_driver import TransactionDriver, started

from kafka_sink.engine.commands import Append, Flush
from kafka_sink.errors import DeliveryTimeout, TransactionAborted
from kafka_sink.wire.apis import END_TXN, PRODUCE

both_versions = pytest.mark.parametrize("transaction_version", [1, 2])
SHORT = {"delivery_timeout_ms": 5_000, "request_timeout_ms": 4_000, "linger_ms": 0}


def apart(transaction_version: int, **options: object) -> TransactionDriver:
    """Leader and coordinator on different brokers, a transaction begun."""
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1, **options)  # type: ignore[arg-type]
    driver.begin()
    return driver


@both_versions
def test_a_record_that_was_never_sent_and_expires_forbids_the_commit(transaction_version: int) -> None:
    driver = apart(transaction_version, **SHORT)
    driver.cluster.refusing.add(0)
    batch = driver.send()
    driver.run_for(6_000)
    late = driver.error_of(batch)
    assert isinstance(late, DeliveryTimeout) and late.name == "PKS-5002"
    error = driver.refusal_of(driver.commit())
    assert isinstance(error, TransactionAborted) and "delivery.timeout.ms" in str(error)
    assert driver.ok(driver.abort())
    assert not any(request.body["committed"] for request in driver.cluster.requests_of(END_TXN))


@both_versions
def test_a_record_that_expires_while_the_commit_waits_for_it_fails_the_commit(transaction_version: int) -> None:
    driver = apart(transaction_version, **SHORT)
    driver.cluster.refusing.add(0)
    driver.send()
    commit = driver.commit()
    driver.run_for(6_000)
    assert isinstance(driver.refusal_of(commit), TransactionAborted)
    assert driver.count(END_TXN) == 0
    assert driver.ok(driver.abort())


@both_versions
def test_a_record_that_expires_on_the_wire_is_waited_for_before_the_abort(transaction_version: int) -> None:
    driver = apart(transaction_version, delivery_timeout_ms=4_000, request_timeout_ms=4_000, linger_ms=0)
    driver.send()
    driver.hold(PRODUCE)
    driver.now_ms += 100
    batch = new_batch(opened_ms=driver.now_ms - 3_000)
    driver.run(Append([batch]))
    driver.run_for(1_500)
    assert batch in driver.failed and isinstance(driver.error_of(batch), DeliveryTimeout)
    abort = driver.abort()
    assert driver.is_waiting(abort) and driver.count(END_TXN) == 0
    driver.release(PRODUCE)
    driver.run_for(200)
    assert driver.ok(abort) and driver.count(END_TXN) == 1


@both_versions
def test_several_records_that_expire_at_once_fail_one_by_one_and_the_first_reason_stays(
    transaction_version: int,
) -> None:
    driver = apart(transaction_version, **SHORT)
    driver.cluster.refusing.add(0)
    batches = [driver.send(0), driver.send(1), driver.send(0)]
    driver.run_for(6_000)
    assert all(isinstance(driver.error_of(batch), DeliveryTimeout) for batch in batches)
    assert driver.ok(driver.abort())


@both_versions
def test_a_record_resent_until_it_expires_dooms_the_transaction_and_not_the_producer(transaction_version: int) -> None:
    driver = apart(transaction_version, **SHORT)
    driver.fail(PRODUCE, *[7] * 100)
    batch = driver.send()
    driver.run_for(6_000)
    assert isinstance(driver.error_of(batch), DeliveryTimeout)
    assert driver.count(PRODUCE) > 2
    driver._codes.clear()
    assert driver.ok(driver.abort())
    driver.run_for(1_000)
    assert driver.ok(driver.begin()) and driver.send() in driver.delivered and driver.ok(driver.commit())
    assert driver.epochs_and_sequences_sent[-1] == (1, 0)


@both_versions
def test_retries_used_up_forbid_the_commit(transaction_version: int) -> None:
    driver = apart(transaction_version, retries=1)
    driver.fail(PRODUCE, 19, 19)
    batch = driver.send()
    driver.run_for(2_000)
    assert batch in driver.failed
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)


@both_versions
def test_a_failure_drops_what_is_queued_and_lets_the_wire_finish(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=3, leaders=(0, 2), coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    bad, good = driver.send(0), driver.send(1)
    driver.cluster.refusing.add(0)
    driver.reply(PRODUCE, 87)
    assert bad in driver.failed and driver.is_open(good)
    abort = driver.abort()
    driver.release(PRODUCE)
    assert good in driver.delivered and driver.ok(abort)


@both_versions
def test_a_second_failure_during_the_abort_does_not_hang_it(transaction_version: int) -> None:
    driver = apart(transaction_version)
    driver.hold(PRODUCE)
    batches = [driver.send(0), driver.send(1)]
    driver.reply(PRODUCE, 87)
    abort = driver.abort()
    driver.reply(PRODUCE, 17)
    assert all(batch in driver.failed for batch in batches)
    driver.run_for(1_000)
    assert driver.ok(abort)


@both_versions
def test_a_record_that_waits_for_another_try_is_dropped_when_the_transaction_is_doomed(
    transaction_version: int,
) -> None:
    driver = apart(transaction_version)
    driver.fail(PRODUCE, 19)
    waiting = driver.send(0)
    assert driver.is_open(waiting)
    driver.fail(PRODUCE, 87)
    driver.send(1)
    assert waiting in driver.failed
    assert isinstance(driver.error_of(waiting).__cause__, Exception)
    driver.run_for(1_000)
    assert driver.count(PRODUCE) == 2
    assert driver.ok(driver.abort())


@both_versions
def test_a_flush_ends_when_the_records_of_a_doomed_transaction_are_dropped(transaction_version: int) -> None:
    driver = apart(transaction_version)
    driver.cluster.refusing.add(0)
    driver.send()
    driver.run(Flush(900))
    driver.abort()
    assert driver.ok(900)


@both_versions
def test_commit_is_sent_only_after_a_batch_with_a_lost_answer_was_acknowledged(transaction_version: int) -> None:
    driver = apart(transaction_version)
    driver.hold(PRODUCE)
    batch = driver.send()
    commit = driver.commit()
    driver.disconnect(0)
    assert driver.count(END_TXN) == 0
    driver.release(PRODUCE)
    driver.run_for(2_000)
    assert batch in driver.delivered and driver.ok(commit)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 0)]


@both_versions
def test_a_moved_leader_costs_a_retry_and_nothing_else(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=3, coordinator=1)
    driver.begin()
    driver.fail(PRODUCE, 6)
    driver.cluster.move_leader("t", 0, 2)
    batch = driver.send()
    driver.run_for(1_000)
    assert batch in driver.delivered and driver.last(PRODUCE).node_id == 2
    assert driver.ok(driver.commit())


@both_versions
def test_a_batch_too_large_for_the_broker_is_split_inside_the_transaction(transaction_version: int) -> None:
    driver = apart(transaction_version)
    driver.fail(PRODUCE, 10)
    driver.send(0, record_count=4)
    commit = driver.commit()
    driver.run_for(1_000)
    assert driver.ok(commit)
    whole, *parts = [len(sent.decoded.records) for sent in driver.sent]
    assert whole == sum(parts) == 4 and len(parts) > 1
    assert driver.sequences_sent == [0] + [sum(parts[:index]) for index in range(len(parts))]


@both_versions
def test_one_record_too_large_for_the_broker_forbids_the_commit(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(PRODUCE, 10)
    batch = driver.send()
    assert "max.message.bytes" in str(driver.error_of(batch))
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)


@both_versions
def test_a_topic_that_is_gone_for_a_while_keeps_its_sequences(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.cluster.topic_errors["t"] = 3
    driver.fail(PRODUCE, 3)
    batch = driver.send()
    driver.run_for(2_000)
    del driver.cluster.topic_errors["t"]
    driver.run_for(5_000)
    assert batch in driver.delivered and driver.ok(driver.commit())
    assert driver.sequences_sent == [0, 1, 1]


@both_versions
def test_with_one_request_in_flight_transactions_work_too(transaction_version: int) -> None:
    driver = started(transaction_version, max_in_flight_requests_per_connection=1)
    batches = [driver.send(0), driver.send(1)]
    assert driver.ok(driver.commit()) and all(batch in driver.delivered for batch in batches)


@both_versions
def test_an_answer_after_the_abort_was_asked_for_delivers_and_changes_nothing(transaction_version: int) -> None:
    driver = apart(transaction_version)
    driver.hold(PRODUCE)
    batch = driver.send()
    abort = driver.abort()
    driver.reply(PRODUCE)
    assert batch in driver.delivered and driver.ok(abort)
    driver.run_for(1_000)
    assert driver.ok(driver.begin())
    driver.release(PRODUCE)
    driver.send()
    assert driver.epochs_and_sequences_sent[-1] == (1, 0)
