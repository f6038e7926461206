"""Commit and abort: when EndTxn goes out, what it waits for, and what calling again does."""

from __future__ import annotations

import pytest
from transaction_driver import PRODUCER_ID, TRANSACTION, TransactionDriver, started

from kafka_sink.engine.commands import Abandon, Append, Flush
from kafka_sink.errors import LocalProtocolError, OperationTimeout, ProducerFenced, TransactionAborted
from kafka_sink.wire.apis import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, PRODUCE

both_versions = pytest.mark.parametrize("transaction_version", [1, 2])
both_ends = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


def end(driver: TransactionDriver, commit: bool) -> int:
    return driver.commit() if commit else driver.abort()


@pytest.mark.parametrize(
    ("transaction_version", "asked"),
    [
        (1, ["FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"]),
        (2, ["FindCoordinator", "InitProducerId", "Produce", "EndTxn"]),
    ],
)
def test_a_transaction_from_first_to_last_request(transaction_version: int, asked: list[str]) -> None:
    driver = started(transaction_version)
    assert driver.ok(driver.commit())
    assert driver.names() == asked
    sent = driver.last(PRODUCE)
    assert sent.body["transactional_id"] == "ledger" and sent.body["acks"] == -1
    assert driver.sent[-1].decoded.is_transactional
    ended = driver.last(END_TXN)
    assert ended.body["committed"] is True and ended.body["transactional_id"] == "ledger"
    assert (ended.body["producer_id"], ended.body["producer_epoch"]) == (PRODUCER_ID, 0)


@both_versions
def test_the_end_is_asked_of_the_coordinator_and_the_records_of_the_leader(transaction_version: int) -> None:
    driver = started(transaction_version, brokers=3, leaders=(0, 2), coordinator=1)
    assert driver.ok(driver.abort())
    assert driver.last(PRODUCE).node_id == 0 and driver.last(END_TXN).node_id == 1


@both_versions
@both_ends
def test_a_transaction_without_records_ends_without_asking_anybody(transaction_version: int, commit: bool) -> None:
    driver = TransactionDriver(transaction_version)
    asked = driver.names()
    driver.begin()
    assert driver.ok(end(driver, commit))
    assert driver.names() == asked
    assert driver.ok(driver.begin())


@both_versions
def test_commit_waits_for_records_that_are_queued_and_on_the_wire(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    batches = [driver.send(), driver.send(), driver.send(1)]
    commit = driver.commit()
    driver.reply(PRODUCE)
    driver.run_for(5_000)
    assert driver.count(END_TXN) == 0 and driver.is_waiting(commit)
    driver.release(PRODUCE)
    assert all(batch in driver.delivered for batch in batches)
    assert driver.ok(commit) and driver.count(END_TXN) == 1


@both_versions
def test_commit_sends_records_that_had_not_left_yet(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.cluster.refusing.add(0)
    batch = driver.send()
    commit = driver.commit()
    assert driver.count(PRODUCE) == 0
    driver.cluster.refusing.clear()
    driver.run_for(5_000)
    assert batch in driver.delivered and driver.ok(commit)


@both_versions
def test_abort_drops_what_had_not_left_and_waits_for_what_had(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=3, leaders=(0, 2), coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    on_wire = driver.send(0)
    driver.cluster.refusing.add(2)
    queued = driver.send(1)
    abort = driver.abort()
    assert isinstance(driver.error_of(queued).__cause__, TransactionAborted)
    assert driver.is_open(on_wire) and driver.is_waiting(abort) and driver.count(END_TXN) == 0
    driver.release(PRODUCE)
    assert on_wire in driver.delivered and driver.ok(abort)


@both_versions
def test_a_record_on_the_wire_that_would_be_tried_again_is_dropped_by_an_abort(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    batch = driver.send()
    abort = driver.abort()
    driver.reply(PRODUCE, 6)
    driver.run_for(1_000)
    assert batch in driver.failed and driver.ok(abort)
    assert driver.count(PRODUCE) == 1


@both_versions
def test_a_flush_ends_with_the_transaction_that_its_records_belonged_to(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send()
    driver.run(Flush(900))
    commit = driver.commit()
    assert driver.is_waiting(900)
    driver.release(PRODUCE)
    assert driver.ok(900) and driver.ok(commit)


@both_versions
@both_ends
def test_an_end_called_again_while_it_runs_waits_for_the_same_end(transaction_version: int, commit: bool) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    calls = [end(driver, commit) for _ in range(3)]
    driver.release(END_TXN)
    assert all(driver.ok(call) for call in calls) and driver.count(END_TXN) == 1


@both_versions
@both_ends
def test_the_opposite_end_is_refused_while_one_runs(transaction_version: int, commit: bool) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    running = end(driver, commit)
    error = driver.refusal_of(end(driver, not commit))
    assert isinstance(error, LocalProtocolError)
    assert ("being committed" if commit else "being aborted") in str(error)
    driver.release(END_TXN)
    assert driver.ok(running) and driver.last(END_TXN).body["committed"] is commit


@both_versions
def test_commit_called_again_after_the_transaction_failed_in_between_tells_the_failure(
    transaction_version: int,
) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send()
    first = driver.commit()
    driver.reply(PRODUCE, 87)
    second = driver.commit()
    assert isinstance(driver.refusal_of(first), TransactionAborted)
    assert "INVALID_RECORD" in str(driver.refusal_of(second))
    assert driver.ok(driver.abort()) and driver.last(END_TXN).body["committed"] is False


@both_versions
@both_ends
@pytest.mark.parametrize("code", [14, 15, 16, 7, 51, -1], ids=str)
def test_an_end_of_unknown_fate_is_asked_for_again_by_the_same_rules(
    transaction_version: int, commit: bool, code: int
) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, code, code)
    ended = end(driver, commit)
    assert driver.is_waiting(ended)
    driver.run_for(1_000)
    assert driver.ok(ended)
    requests = driver.cluster.requests_of(END_TXN)
    assert len(requests) == 3
    assert all(request.body == requests[0].body and request.version == requests[0].version for request in requests)
    assert (requests[0].version >= 5) is (transaction_version == 2)


@both_versions
@both_ends
def test_a_coordinator_lost_with_the_end_in_flight_is_looked_up_and_asked_again(
    transaction_version: int, commit: bool
) -> None:
    driver = started(transaction_version, brokers=3, coordinator=1)
    driver.hold(END_TXN)
    ended = end(driver, commit)
    driver.coordinators[TRANSACTION] = 2
    driver.disconnect(1)
    driver.release(END_TXN)
    driver.run_for(2_000)
    assert driver.ok(ended)
    assert [request.node_id for request in driver.cluster.requests_of(END_TXN)] == [1, 2]


@both_versions
def test_a_coordinator_that_does_not_answer_the_end_is_given_up_after_the_request_time_out(
    transaction_version: int,
) -> None:
    driver = started(transaction_version, brokers=3, coordinator=1, request_timeout_ms=3_000)
    driver.cluster.silent.add(1)
    commit = driver.commit()
    driver.coordinators[TRANSACTION] = 2
    driver.run_for(2_900)
    assert driver.count(END_TXN) == 1
    driver.run_for(5_000)
    assert driver.ok(commit) and driver.last(END_TXN).node_id == 2


@both_versions
def test_a_coordinator_that_left_the_cluster_between_requests_is_looked_up_again(transaction_version: int) -> None:
    driver = started(transaction_version, brokers=3, coordinator=1)
    del driver.cluster.brokers[1]
    driver.cluster.disconnect(1)
    driver.coordinators[TRANSACTION] = 2
    driver.run_for(10_000)
    commit = driver.commit()
    driver.run_for(5_000)
    assert driver.ok(commit) and driver.last(END_TXN).node_id == 2


@both_versions
def test_a_record_refused_while_the_commit_is_on_its_way_does_not_touch_the_commit(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    commit = driver.commit()
    batch = driver.send()
    assert "being committed" in str(driver.error_of(batch))
    driver.release(END_TXN)
    assert driver.ok(commit) and driver.ok(driver.begin())


@both_versions
def test_an_answer_in_the_step_in_which_all_is_given_up_changes_nothing_more(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    commit = driver.commit()
    request = driver.cluster.pending_of(END_TXN)[0]
    driver.cluster.answer(request, {"error_code": 0, "producer_id": PRODUCER_ID, "producer_epoch": 1})
    driver.run(Abandon(OperationTimeout("close")))
    assert isinstance(driver.refusal_of(commit), OperationTimeout)
    assert isinstance(driver.engine.refusal, OperationTimeout) and driver.engine.refusal.name == "PKS-3009"


@both_versions
@both_ends
@pytest.mark.parametrize("code", [47, 90], ids=str)
def test_fenced_at_the_end_is_final_and_later_calls_say_the_same(
    transaction_version: int, commit: bool, code: int
) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, code)
    error = driver.refusal_of(end(driver, commit))
    assert isinstance(error, ProducerFenced)
    assert driver.refusal_of(driver.begin()) is error and driver.refusal_of(driver.abort()) is error
    asked = driver.names()
    driver.run_for(60_000)
    assert driver.names() == asked


def test_fenced_at_commit_says_that_an_earlier_try_may_have_committed() -> None:
    driver = started(1)
    driver.fail(END_TXN, -1, 90)
    commit = driver.commit()
    driver.run_for(1_000)
    assert "may have been committed" in str(driver.refusal_of(commit))
    driver = started(1)
    driver.fail(END_TXN, 90)
    assert "committed" not in str(driver.refusal_of(driver.abort()))


@both_versions
def test_an_abort_that_the_coordinator_wants_aborted_is_final(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, 120)
    assert "TRANSACTION_ABORTABLE" in str(driver.refusal_of(driver.abort()))
    assert driver.engine.refusal is not None and "TRANSACTION_ABORTABLE" in str(driver.engine.refusal)


@both_versions
def test_a_commit_that_the_coordinator_wants_aborted_can_be_aborted_and_the_producer_goes_on(
    transaction_version: int,
) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, 120)
    error = driver.refusal_of(driver.commit())
    assert isinstance(error, TransactionAborted) and error.name == "PKS-5004"
    assert driver.ok(driver.abort())
    assert driver.ok(driver.begin())


@both_versions
def test_two_transactions_in_a_row_number_their_records_in_one_line(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.commit()
    driver.begin()
    driver.send()
    assert driver.ok(driver.commit())
    expected = [(0, 0), (0, 1)] if transaction_version == 1 else [(0, 0), (1, 0)]
    assert driver.epochs_and_sequences_sent == expected
    assert driver.count(INIT_PRODUCER_ID) == 1
    assert driver.count(ADD_PARTITIONS_TO_TXN) == (2 if transaction_version == 1 else 0)


@both_ends
def test_ending_what_was_never_begun_is_refused(commit: bool) -> None:
    driver = TransactionDriver()
    assert "begin_transaction" in str(driver.refusal_of(end(driver, commit)))
    driver.run(Append([]))
    assert driver.ok(driver.begin())
