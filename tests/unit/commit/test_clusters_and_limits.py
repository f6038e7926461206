"""Properties of the brokers: another cluster than that of the decision, a lower time limit, no verification.

The assumptions: a ledger topic may be copied to another cluster, with or without the other topics, and the address may
lead to that one at any moment; brokers may allow less than a minute for a transaction; brokers before 3.6 accept a
record of a transaction that has ended.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit import ledger_codec
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey
from kafka_sink.commit.same_cluster import CLUSTER
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.commit.sweep import NOT_VERIFIED
from kafka_sink.errors import CommitAborted, CommitLost
from kafka_sink.errors.table.commits import OTHER_CLUSTER
from tests.unit.commit.driver_bench import (
    CLAIM,
    COMMIT,
    END,
    LOST,
    NOT_SENT,
    QUERY,
    SECOND,
    Bench,
    without_rows,
)


def decided(bench: Bench) -> None:
    """Makes a decision in cluster "old"; then the ledger is copied to cluster "new"."""
    bench.settings = replace(bench.settings, cluster_id="old")
    bench.decide(bench.receipts())
    bench.settings = replace(bench.settings, cluster_id="new")
    bench.asked.clear()


# ---- a copied ledger ----


def test_a_decision_names_the_cluster_that_its_transactions_are_in(bench: Bench) -> None:
    bench.settings = replace(bench.settings, cluster_id="old")
    bench.commit(bench.receipts())
    assert bench.ledger()["sink"].cluster_id == "old"


def test_brokers_that_name_no_cluster_leave_the_record_as_it_always_was(bench: Bench) -> None:
    bench.commit(bench.receipts())
    record = bench.ledger()["sink"]
    assert record.cluster_id == "" and b"cluster" not in ledger_codec.encode_record(record)
    assert not record.is_of_another_cluster("new") and not replace(record, cluster_id="old").is_of_another_cluster("")


@pytest.mark.parametrize("operation", [DriverOperation.RECOVER, DriverOperation.FINISH])
def test_an_open_decision_of_another_cluster_is_refused_and_nothing_is_ended(
    bench: Bench, operation: DriverOperation
) -> None:
    decided(bench)
    verdict = bench.run(operation)
    assert isinstance(verdict.error, CommitAborted)
    for word in ("'old'", "'new'", "was copied", "resolve --accept", "resolve --replay"):
        assert word in str(verdict.error)
    assert COMMIT not in bench.purposes() and bench.ledger()["sink"].kind is Kind.INTENT


@pytest.mark.parametrize(
    ("operation", "kind"), [(DriverOperation.ACCEPT, Kind.DONE), (DriverOperation.REPLAY, Kind.REPLAY)]
)
def test_a_person_says_whether_the_rows_of_the_other_cluster_are_here(
    bench: Bench, operation: DriverOperation, kind: Kind
) -> None:
    decided(bench)
    assert bench.run(operation, key=BatchKey(QUERY, 0)).conclusion is Conclusion.RESOLVED
    assert bench.ledger()["sink"].kind is kind
    batch = 1 if operation is DriverOperation.ACCEPT else 0
    receipts = bench.receipts(batch, run=SECOND, attempt=1)
    assert bench.commit(receipts, bench.session(SECOND)).conclusion is Conclusion.DELIVERED


# ---- an address that leads to another cluster ----


def move(bench: Bench, name: str = "new") -> None:
    """The brokers there have the topics, and know no id of the driver."""
    bench.broker.cluster_id = name
    bench.take_the_drivers_id()


def check_moved(error: Exception | None) -> None:
    assert isinstance(error, CommitAborted)
    assert "planned with the Kafka cluster 'old', and 'new' answers now" in str(error)


@pytest.fixture
def planned(bench: Bench) -> Bench:
    bench.settings = replace(bench.settings, cluster_id="old")
    bench.broker.cluster_id = "old"
    return bench


def test_a_driver_that_remembers_another_cluster_decides_nothing(planned: Bench) -> None:
    session = planned.session()
    assert planned.commit(planned.receipts(), session).conclusion is Conclusion.DELIVERED
    move(planned)
    receipts = planned.receipts(1)
    check_moved(planned.commit(receipts, session).error)
    planned.settle()
    assert [planned.state_of(one) for one in receipts] == ["CompleteAbort"] * 2
    assert planned.ledger()["sink"].key == BatchKey(QUERY, 0)


def test_a_batch_that_is_only_recorded_is_not_recorded_in_another_cluster(planned: Bench) -> None:
    move(planned)
    check_moved(planned.commit([without_rows(0)]).error)
    assert not planned.ledger()


def test_a_write_without_a_label_which_claims_nothing_is_refused_as_well(planned: Bench) -> None:
    move(planned)
    planned.broker.transactions.clear()
    receipts = planned.receipts("", query="")
    check_moved(planned.commit(receipts, planned.session(key=UNNAMED_BATCH)).error)
    assert CLAIM not in planned.purposes() and not planned.ledger()


@pytest.mark.parametrize(
    "operation", [DriverOperation.FINISH, DriverOperation.SWEEP, DriverOperation.ACCEPT, DriverOperation.REPLAY]
)
def test_a_decision_of_the_cluster_from_before_is_not_ended_nor_chosen_about_in_its_copy(
    planned: Bench, operation: DriverOperation
) -> None:
    planned.decide(planned.receipts())
    move(planned)
    planned.asked.clear()
    check_moved(planned.run(operation, key=BatchKey(QUERY, 0)).error)
    assert COMMIT not in planned.purposes() and planned.ledger()["sink"].kind is Kind.INTENT


def test_a_cluster_that_changes_between_the_check_and_the_decision_is_noticed_at_the_next_fence(planned: Bench) -> None:
    receipts = planned.receipts()
    planned.before_next(END, lambda: move(planned))
    check_moved(planned.commit(receipts).error)
    assert not planned.ledger() and planned.seen() == [0, 0]


def test_a_cluster_that_changes_after_the_decision_gets_no_record_of_how_it_ended(planned: Bench) -> None:
    """Its transactions are in the other one, where they time out, and their markers are looked for here: the rows of
    the mirror are of the producer that copies them."""

    def move_all() -> None:
        planned.settle()
        for task, receipt in enumerate(receipts):
            assert receipt.transaction is not None
            del planned.broker.transactions[receipt.transaction.transactional_id]
            planned.broker.logs["t", task] = [(77, 0, b"copied", None), (77, 0, None, True)]
        move(planned)

    receipts = planned.receipts()

    planned.before_next(COMMIT, move_all)
    found = planned.commit(receipts)
    assert isinstance(found.error, CommitLost)
    assert planned.ledger()["sink"].kind is Kind.INTENT
    planned.settings = replace(planned.settings, cluster_id="new")
    refused = planned.commit(planned.receipts(run=SECOND, attempt=1), planned.session(SECOND))
    assert isinstance(refused.error, CommitAborted) and refused.error.entry is OTHER_CLUSTER


def test_a_lost_answer_about_the_cluster_is_asked_for_again(planned: Bench) -> None:
    found = planned.commit(planned.receipts(), answers={CLUSTER: [LOST, NOT_SENT]})
    assert found.conclusion is Conclusion.DELIVERED and planned.purposes().count(CLUSTER) == 3


# ---- transaction.max.timeout.ms ----


def test_a_driver_asks_for_half_the_time_until_the_brokers_allow_it_and_stays_there(bench: Bench) -> None:
    session = bench.session()
    verdict = bench.commit(bench.receipts(), session, answers={"fence older drivers": [50, 50]})
    assert verdict.conclusion is Conclusion.DELIVERED and session.timeout_ms == 15_000
    asked = [request.body["transaction_timeout_ms"] for request in bench.asked if request.api.name == "InitProducerId"]
    assert asked[:3] == [60_000, 30_000, 15_000] and set(asked[3:]) <= {15_000}
    session.forget_identity()
    bench.asked.clear()
    assert bench.commit(bench.receipts(1), session).conclusion is Conclusion.DELIVERED
    asked = [request.body["transaction_timeout_ms"] for request in bench.asked if request.api.name == "InitProducerId"]
    assert set(asked) == {15_000}


def test_brokers_that_allow_no_second_are_refused_by_the_answer_they_gave(bench: Bench) -> None:
    verdict = bench.commit(bench.receipts(), answers={"fence older drivers": [50] * 20})
    assert isinstance(verdict.error, CommitAborted) and "INVALID_TRANSACTION_TIMEOUT" in str(verdict.error)
    assert len(bench.asked) <= 10


# ---- brokers that do not verify ----


def test_where_a_late_record_could_open_a_transaction_again_nothing_is_swept(bench: Bench) -> None:
    bench.settings = replace(bench.settings, brokers_verify=False)
    receipts = bench.receipts()
    silent = bench.receipt(0, 1, attempt=3)
    verdict = bench.commit(receipts)
    bench.settle()
    assert verdict.conclusion is Conclusion.DELIVERED
    if bench.transaction_version == 2:  # each transaction has its own epoch, on any broker
        assert bench.state_of(silent) == "CompleteAbort" and NOT_VERIFIED not in verdict.notes
    else:
        assert bench.state_of(silent) == "Ongoing" and verdict.notes == (NOT_VERIFIED,)
        assert "list transactions" not in bench.purposes()
