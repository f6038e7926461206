"""Properties of the brokers: another cluster than that of the decision, a lower time limit, no verification.

The assumptions: a ledger topic may be copied to another cluster, with or without the other topics; brokers may allow
less than a minute for a transaction; brokers before 3.6 accept a record of a transaction that has ended.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit import ledger_codec
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.commit.sweep import NOT_VERIFIED
from kafka_sink.errors import CommitAborted
from tests.unit.commit.driver_bench import COMMIT, QUERY, SECOND, Bench


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
