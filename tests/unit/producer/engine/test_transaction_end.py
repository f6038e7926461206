"""Commit, abort, prepare and resume: when EndTxn is sent, what it waits for, and who may send it."""

from __future__ import annotations

import pickle

import pytest

from kafka_sink.errors import (
    BrokerError,
    KafkaSinkError,
    LocalProtocolError,
    OperationTimeout,
    ProducerFenced,
    TransactionAborted,
)
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kafka_sink.kafka.wire.codes import TOPIC_AUTHORIZATION_FAILED
from kafka_sink.producer.engine.commands import Abandon, Append, TransactionReceipt
from tests.unit.producer.engine.driver import DUPLICATE, INVALID_RECORD
from tests.unit.producer.engine.transaction_driver import PRODUCER_ID, TRANSACTION, TransactionDriver, started


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


def test_the_end_is_asked_of_the_coordinator_and_the_records_of_the_leader(transaction_version: int) -> None:
    driver = started(transaction_version, brokers=3, leaders=(0, 2), coordinator=1)
    assert driver.ok(driver.abort())
    assert driver.last(PRODUCE).node_id == 0 and driver.last(END_TXN).node_id == 1


def test_a_transaction_without_records_ends_without_asking_anybody(transaction_version: int, commit: bool) -> None:
    driver = TransactionDriver(transaction_version)
    asked = driver.names()
    driver.begin()
    assert driver.ok(end(driver, commit))
    assert driver.names() == asked
    assert driver.ok(driver.begin())


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


def close_without_leader(driver: TransactionDriver) -> None:
    """The producer does not notice that the leader is lost: it has nothing more to send."""
    driver.cluster.move_leader("t", 0, -1)
    closed = driver.close()
    driver.run_for(2_000)
    assert driver.ok(closed) and driver.count(END_TXN) == 0


def test_closing_leaves_a_transaction_open_that_brokers_could_not_end_in_every_partition(
    transaction_version: int,
) -> None:
    driver = started(transaction_version)
    driver.run_for(1_000)
    close_without_leader(driver)
    assert "the transaction was left open: t-0 has no leader now" in [notice.text for notice in driver.notices]


def test_closing_believes_no_answer_from_before_however_young_it_is(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.run_for(1_000)
    driver.engine.metadata.request_update()
    driver.run()
    close_without_leader(driver)


def test_closing_believes_no_answer_that_was_requested_before_however_late_it_comes(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.run_for(1_000)
    answer, driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body, lambda _: None
    driver.engine.metadata.request_update()
    driver.run()
    (older,) = driver.cluster.pending_of(METADATA)
    body = answer(older)
    driver.cluster.move_leader("t", 0, -1)
    closed = driver.close()
    driver.cluster.scripts[METADATA.key] = answer
    driver.cluster.answer(older, body)
    driver.run()
    driver.run_for(2_000)
    assert driver.ok(closed) and driver.count(END_TXN) == 0


@pytest.mark.parametrize("had_leader", [True, False])
def test_closing_believes_what_was_told_before_a_broker_did_not_know_the_topic(
    transaction_version: int, had_leader: bool
) -> None:
    """A broker that lags behind may not know a topic that is there. One that was deleted has nothing to end."""
    driver = started(transaction_version)
    driver.run_for(1_000)
    if not had_leader:
        driver.cluster.move_leader("t", 0, -1)
        driver.engine.metadata.request_update()
        driver.run()
    driver.cluster.topic_errors["t"] = 3
    closed = driver.close()
    driver.run_for(2_000)
    assert driver.ok(closed) and driver.count(END_TXN) == had_leader


def test_closing_looks_for_leaders_again_before_each_try_of_the_abort(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.run_for(1_000)
    driver.fail(END_TXN, 16)
    closed = driver.close()
    assert driver.is_waiting(closed) and driver.count(END_TXN) == 1
    driver.cluster.move_leader("t", 0, -1)
    driver.run_for(2_000)
    assert driver.ok(closed) and driver.count(END_TXN) == 1


def test_a_coordinator_is_not_given_up_because_older_metadata_do_not_have_it(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, leaders=(0, 1))
    driver.begin()
    driver.send(0)
    driver.send(1)
    driver.run_for(1_000)
    answer, driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body, lambda _: None
    driver.engine.metadata.request_update()
    driver.run()
    (older,) = driver.cluster.pending_of(METADATA)
    body = answer(older)
    driver.cluster.brokers[7] = ("host7", 9092)  # it joins, and takes over
    driver.coordinators[TRANSACTION] = 7
    driver.fail(END_TXN, 16)
    commit = driver.commit()
    driver.run_for(200)
    assert driver.count(FIND_COORDINATOR) == 2
    driver.cluster.scripts[METADATA.key] = answer
    driver.cluster.answer(older, body)
    driver.run()
    driver.run_for(1_000)
    assert driver.ok(commit) and driver.count(FIND_COORDINATOR) == 2


def test_closing_leaves_a_transaction_open_also_if_its_topic_was_not_written_to_for_long(
    transaction_version: int,
) -> None:
    driver = started(transaction_version, metadata_max_idle_ms=5_000, metadata_max_age_ms=1_000)
    driver.run_for(7_000)
    assert "t" not in driver.engine.cluster.topics
    close_without_leader(driver)


def test_closing_aborts_a_transaction_whatever_partitions_without_a_leader_it_did_not_write_to(
    transaction_version: int,
) -> None:
    driver = started(transaction_version)
    driver.cluster.move_leader("t", 1, -1)
    closed = driver.close()
    driver.run_for(2_000)
    assert driver.ok(closed) and driver.last(END_TXN).body["committed"] is False


def test_an_end_called_again_while_it_runs_waits_for_the_same_end(transaction_version: int, commit: bool) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    calls = [end(driver, commit) for _ in range(3)]
    driver.release(END_TXN)
    assert all(driver.ok(call) for call in calls) and driver.count(END_TXN) == 1


def test_the_opposite_end_is_refused_while_one_runs(transaction_version: int, commit: bool) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    running = end(driver, commit)
    error = driver.refusal_of(end(driver, not commit))
    assert isinstance(error, LocalProtocolError)
    assert ("being committed" if commit else "being aborted") in str(error)
    driver.release(END_TXN)
    assert driver.ok(running) and driver.last(END_TXN).body["committed"] is commit


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


def test_a_coordinator_that_asks_for_a_pause_is_waited_for_and_not_looked_up_again(transaction_version: int) -> None:
    """Each lookup would exhaust the quota again, without end."""
    driver = started(transaction_version)
    driver.hold(PRODUCE)
    driver.send()
    driver.reply(PRODUCE, throttle_ms=1_000)
    before = len(driver.names())
    commit = driver.commit()
    driver.run_for(999)
    assert driver.names(skip=before) == [] and "quota" in driver.engine.trouble
    driver.run_for(1)
    assert driver.names(skip=before) == ["EndTxn"] and driver.ok(commit) and not driver.engine.trouble


def test_a_coordinator_that_left_the_cluster_between_requests_is_looked_up_again(transaction_version: int) -> None:
    driver = started(transaction_version, brokers=3, coordinator=1)
    del driver.cluster.brokers[1]
    driver.cluster.disconnect(1)
    driver.coordinators[TRANSACTION] = 2
    driver.run_for(10_000)
    commit = driver.commit()
    driver.run_for(5_000)
    assert driver.ok(commit) and driver.last(END_TXN).node_id == 2


def test_a_record_refused_while_the_commit_is_on_its_way_does_not_touch_the_commit(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    commit = driver.commit()
    batch = driver.send()
    assert "being committed" in str(driver.error_of(batch))
    driver.release(END_TXN)
    assert driver.ok(commit) and driver.ok(driver.begin())


def test_an_answer_in_the_step_in_which_all_is_given_up_changes_nothing_more(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.hold(END_TXN)
    commit = driver.commit()
    request = driver.cluster.pending_of(END_TXN)[0]
    driver.cluster.answer(request, {"error_code": 0, "producer_id": PRODUCER_ID, "producer_epoch": 1})
    driver.run(Abandon(OperationTimeout("close")))
    assert isinstance(driver.refusal_of(commit), OperationTimeout)
    assert isinstance(driver.engine.refusal, OperationTimeout) and driver.engine.refusal.name == "PKS-3009"


@pytest.mark.parametrize("code", [47, 90], ids=str)
def test_fenced_at_the_end_is_final_and_later_calls_say_the_same(
    transaction_version: int, commit: bool, code: int
) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, code)
    error = driver.refusal_of(end(driver, commit))
    assert isinstance(error, ProducerFenced) and error.name == "PKS-5005"
    assert driver.refusal_of(driver.begin()) is error and driver.refusal_of(driver.abort()) is error
    assert driver.error_of(driver.send()).__cause__ is error
    asked = driver.names()
    driver.run_for(60_000)
    assert driver.names() == asked


def test_an_abort_that_the_coordinator_wants_aborted_is_final(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(END_TXN, 120)
    assert "TRANSACTION_ABORTABLE" in str(driver.refusal_of(driver.abort()))
    assert driver.engine.refusal is not None and "TRANSACTION_ABORTABLE" in str(driver.engine.refusal)


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


def test_ending_what_was_never_begun_is_refused(commit: bool) -> None:
    driver = TransactionDriver()
    assert "begin_transaction" in str(driver.refusal_of(end(driver, commit)))
    driver.run(Append([]))
    assert driver.ok(driver.begin())


# ---- prepare, hand over, resume --------------------------------------------------------------------------------------


def receipt(transaction_version: int, *, is_started: bool = True) -> TransactionReceipt:
    return TransactionReceipt("ledger", PRODUCER_ID, 4, transaction_version, is_started, {("t", 0): 0})


def resumed(
    transaction_version: int, *, cluster_version: int | None = None, is_started: bool = True
) -> TransactionDriver:
    """A producer in another process that has just taken over the receipt."""
    driver = TransactionDriver(cluster_version or transaction_version, is_initialised=False)
    driver.producer_epoch = 4
    assert driver.ok(driver.resume(receipt(transaction_version, is_started=is_started)))
    return driver


def test_prepare_waits_for_every_record_and_gives_a_receipt(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send(0)
    driver.send(1)
    prepares = [driver.prepare(), driver.prepare()]
    driver.reply(PRODUCE)
    driver.run_for(5_000)
    assert all(driver.is_waiting(prepare) for prepare in prepares)
    driver.release(PRODUCE)
    given, again = (driver.receipt_of(prepare) for prepare in prepares)
    assert given == again
    last_offsets, topic_ids = {("t", 0): 0, ("t", 1): 0}, {"t": driver.cluster.topic_ids["t"]}
    assert given == TransactionReceipt("ledger", PRODUCER_ID, 0, transaction_version, True, last_offsets, topic_ids)
    assert pickle.loads(pickle.dumps(given)) == given


def test_a_receipt_names_the_last_known_offset_of_each_partition(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    driver.hold(PRODUCE)
    driver.send(0, 3)
    driver.answer(base_offset=7)
    driver.send(0)
    driver.answer(DUPLICATE)  # it is in the log, and nobody says where
    driver.send(1)
    driver.answer(base_offset=20)
    assert driver.receipt_of(driver.prepare()).last_offsets == {("t", 0): 9, ("t", 1): 20}


def test_the_next_transaction_knows_nothing_of_the_one_before(transaction_version: int, commit: bool) -> None:
    driver = started(transaction_version)
    assert driver.ok(end(driver, commit))
    driver.begin()
    ended_count = driver.count(END_TXN)
    empty = driver.receipt_of(driver.prepare())
    assert (empty.is_started, empty.last_offsets, empty.topic_ids) == (False, {}, {})
    assert driver.ok(driver.commit()) and driver.count(END_TXN) == ended_count


def test_a_partition_that_was_not_registered_before_an_abort_does_not_belong_to_the_next_transaction() -> None:
    driver = TransactionDriver(1)
    driver.begin()
    driver.hold(ADD_PARTITIONS_TO_TXN)
    driver.send(0)
    driver.send(1)
    abort = driver.abort()
    driver.release(ADD_PARTITIONS_TO_TXN)
    assert driver.ok(abort)
    driver.begin()
    ended_count, asked_count = driver.count(END_TXN), driver.count(ADD_PARTITIONS_TO_TXN)
    assert driver.ok(driver.commit())
    assert (driver.count(END_TXN), driver.count(ADD_PARTITIONS_TO_TXN)) == (ended_count, asked_count)


def test_a_refused_registration_says_nothing_of_an_earlier_one_that_was_lost() -> None:
    driver = TransactionDriver(1)
    driver.begin()
    driver.hold(ADD_PARTITIONS_TO_TXN)
    driver.send()
    driver.disconnect()
    driver.fail(ADD_PARTITIONS_TO_TXN, TOPIC_AUTHORIZATION_FAILED)
    driver.release(ADD_PARTITIONS_TO_TXN)
    driver.run_for(1_000)
    assert driver.ok(driver.abort())
    assert driver.count(END_TXN) == 1


def test_a_reason_to_abort_is_not_told_of_the_next_transaction(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(PRODUCE, INVALID_RECORD)
    driver.send()
    assert driver.ok(driver.abort())
    driver.begin()
    driver.send()
    driver.hold(PRODUCE)
    on_wire, queued = driver.send(1), driver.send(1)
    driver.abort()
    assert driver.is_open(on_wire)
    assert "the transaction was aborted" in str(driver.error_of(queued))


def test_prepare_waits_for_offsets_too(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    driver.hold(ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT)
    offsets = driver.send_offsets()
    prepare = driver.prepare()
    for _ in ("begun", "the coordinator has the group"):
        assert driver.is_waiting(offsets) and driver.is_waiting(prepare)
        driver.release(ADD_OFFSETS_TO_TXN)
    driver.release(TXN_OFFSET_COMMIT)
    assert driver.ok(offsets) and driver.receipt_of(prepare).is_started is True
    assert driver.names()[-1] == "TxnOffsetCommit"


def test_the_receipt_of_an_empty_transaction_says_so_and_ending_it_asks_nobody(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    assert driver.receipt_of(driver.prepare()).is_started is False
    other = resumed(transaction_version, is_started=False)
    assert other.ok(other.commit()) and other.names() == []


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


def test_giving_up_after_prepare_leaves_the_transaction_alone(transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.prepare()
    driver.run(Abandon(OperationTimeout("close")))
    assert driver.count(END_TXN) == 0


def test_whoever_prepared_may_end_it_too(transaction_version: int, commit: bool) -> None:
    driver = started(transaction_version)
    driver.prepare()
    assert driver.ok(end(driver, commit))
    assert driver.last(END_TXN).body["committed"] is commit


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


@pytest.mark.parametrize(("transaction_version", "cluster_version"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_a_resumed_transaction_is_ended_by_the_rules_of_its_receipt_whatever_the_cluster_prefers(
    transaction_version: int, cluster_version: int, commit: bool
) -> None:
    driver = resumed(transaction_version, cluster_version=cluster_version)
    assert driver.ok(end(driver, commit))
    request = driver.last(END_TXN)
    assert (request.version >= 5) is (transaction_version == 2)
    assert (request.body["producer_id"], request.body["producer_epoch"]) == (PRODUCER_ID, 4)
    assert request.body["committed"] is commit


def test_ending_a_resumed_transaction_takes_no_new_epoch_because_others_may_repeat_the_end(
    transaction_version: int, commit: bool
) -> None:
    driver = resumed(transaction_version)
    assert driver.ok(end(driver, commit))
    driver.run_for(60_000)
    assert driver.count(INIT_PRODUCER_ID) == 0 and driver.ok(driver.close())


def test_after_a_resumed_transaction_a_new_one_needs_an_identity_of_its_own(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    driver.commit()
    assert "init_transactions" in str(driver.refusal_of(driver.begin()))
    assert driver.ok(driver.init()) and driver.ok(driver.begin())
    driver.send()
    assert driver.ok(driver.commit()) and driver.ok(driver.begin())
    driver.send()
    assert driver.sent[-1].identity.producer_epoch > 4


def test_the_same_receipt_may_be_resumed_and_ended_the_same_way_again(transaction_version: int, commit: bool) -> None:
    driver = resumed(transaction_version)
    first = end(driver, commit)
    assert driver.ok(driver.resume(receipt(transaction_version)))
    second = end(driver, commit)
    assert driver.ok(first) and driver.ok(second)
    bodies = [(request.version, request.body) for request in driver.cluster.requests_of(END_TXN)]
    assert len(bodies) == 2 and bodies[0] == bodies[1]


def test_a_resumed_commit_of_unknown_fate_is_repeated_until_the_answer_is_definite(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    driver.fail(END_TXN, 51, 14, 15, 16, 7, -1)
    commit = driver.commit()
    driver.run_for(10_000)
    assert driver.ok(commit) and driver.count(END_TXN) == 7


@pytest.mark.parametrize(
    ("code", "kind"), [(48, BrokerError), (49, BrokerError), (47, ProducerFenced), (90, ProducerFenced)]
)
def test_a_receipt_that_is_superseded_or_unknown_is_told_as_such(
    transaction_version: int, code: int, kind: type[KafkaSinkError]
) -> None:
    driver = resumed(transaction_version)
    driver.fail(END_TXN, code)
    error = driver.refusal_of(driver.commit())
    assert type(error) is kind
    if isinstance(error, BrokerError):
        assert error.code == code and error.api == "EndTxn"


def test_a_resumed_transaction_takes_no_records(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    assert driver.send() in driver.failed
    assert driver.ok(driver.commit()) and driver.count(PRODUCE) == 0


def test_closing_after_resume_without_an_end_leaves_the_transaction_alone(transaction_version: int) -> None:
    driver = resumed(transaction_version)
    assert driver.ok(driver.close()) and driver.names() == []


def test_resume_on_a_producer_with_an_identity_of_its_own_is_refused() -> None:
    driver = TransactionDriver(2)
    assert isinstance(driver.refusal_of(driver.resume(receipt(2))), LocalProtocolError)
    assert driver.ok(driver.begin())


# ---- leaders ---------------------------------------------------------------------------------------------------------


SHORT = {"delivery_timeout_ms": 5_000, "request_timeout_ms": 4_000, "linger_ms": 0}


def apart(transaction_version: int, **options: object) -> TransactionDriver:
    """An open transaction, with leader and coordinator on different brokers."""
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1, **options)  # type: ignore[arg-type]
    driver.begin()
    return driver


def test_a_moved_leader_costs_a_retry_and_nothing_else(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version, brokers=3, coordinator=1)
    driver.begin()
    driver.fail(PRODUCE, 6)
    driver.cluster.move_leader("t", 0, 2)
    batch = driver.send()
    driver.run_for(1_000)
    assert batch in driver.delivered and driver.last(PRODUCE).node_id == 2
    assert driver.ok(driver.commit())


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
