"""Records under a ledger key that were written without a transaction: by a tool that mirrors topics, or anything else.

No sink writes them. The newest of a key is unreadable: it is not skipped, because it hides the decision below it, and
compaction removes that.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_codec import encode_claim, encode_record
from kafka_sink.commit.listing import LedgerListing, Listed
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.commit.set_aside import Aside
from kafka_sink.errors import CommitAborted
from kafka_sink.errors.table.commits import LEDGER_UNREADABLE
from tests.unit.commit.driver_bench import QUERY, SECOND, SINK, Bench, put, put_plain, set_aside

HERE, THERE = "this-cluster", "the-old-cluster"


def value_of(cluster_id: str = "", sink_id: str = SINK, batch: int = 0) -> bytes:
    record = LedgerRecord(Kind.DONE, sink_id, BatchKey(QUERY, batch), "1" * 16, cluster_id=cluster_id)
    return encode_record(record)


def listed(bench: Bench, sink_id: str | None = SINK) -> list[Listed]:
    bench.settle()
    step = bench.drive(SingleStep(LedgerListing(bench.settings, sink_id), bench.now_ms + 10_000))
    assert step.listed is not None
    found: list[Listed] = step.listed
    return found


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"?", "a record of something else than a sink, written without a transaction"),
        (None, "a record of something else than a sink, written without a transaction"),
        (value_of(), "a copy of a ledger record, written without a transaction"),
        (value_of(THERE), f"a copy of a record of the Kafka cluster {THERE!r}, written without a transaction"),
    ],
)
def test_a_plain_record_above_a_decision_stops_planning_and_commits_until_it_is_set_aside(
    bench: Bench, value: bytes | None, why: str
) -> None:
    bench.settings = replace(bench.settings, cluster_id=HERE)
    bench.commit(bench.receipts())
    offset = put_plain(bench, SINK, value)
    planned = bench.run(DriverOperation.RECOVER)
    assert planned.error is not None and why in str(planned.error)
    refused = bench.commit(bench.receipts(run=SECOND), bench.session(SECOND))
    assert isinstance(refused.error, CommitAborted) and why in str(refused.error)
    assert refused.error.entry is LEDGER_UNREADABLE
    assert bench.seen() == [1, 1]
    (shown,) = listed(bench)
    assert (shown.ledger_key, shown.offset, shown.record) == (SINK, offset, None) and why in shown.problem
    assert set_aside(bench, SINK, offset).outcome is Aside.DONE
    assert listed(bench) == []


def test_a_plain_record_below_a_newer_record_of_the_sink_stops_nothing(bench: Bench) -> None:
    session = bench.session()
    bench.commit(bench.receipts(), session)
    put_plain(bench, SINK, b"?")
    # The process knows the ledger, and its next record takes the place of the plain one.
    assert bench.commit(bench.receipts(1), session).conclusion is Conclusion.DELIVERED
    assert bench.run(DriverOperation.RECOVER).error is None
    assert bench.commit(bench.receipts(2, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED


def test_an_intent_that_is_open_below_a_plain_record_does_not_take_its_place_later(bench: Bench) -> None:
    """Its marker comes after the plain record, but its offset is lower."""
    bench.before_next("end ledger transaction", lambda: put_plain(bench, SINK, b"?"))
    bench.decide(bench.receipts())
    refused = bench.commit(bench.receipts(run=SECOND), bench.session(SECOND))
    assert isinstance(refused.error, CommitAborted) and "without a transaction" in str(refused.error)


def test_plain_records_of_other_sinks_and_claims_are_left_alone(bench: Bench) -> None:
    put_plain(bench, "another", b"?")
    put_plain(bench, f"/driver/{SINK}", encode_claim(Line(SINK), "3" * 16, 0))
    put_plain(bench, f"/driver/{SINK}", b"?")
    assert bench.commit(bench.receipts()).conclusion is Conclusion.DELIVERED
    assert [(each.ledger_key, each.record is None) for each in listed(bench, None)] == [
        ("another", True),
        (SINK, False),
    ]


def test_a_ledger_that_was_copied_names_the_cluster_that_it_is_from(bench: Bench) -> None:
    """In a transaction it is read, otherwise not; where it is from is said of both."""
    bench.settings = replace(bench.settings, cluster_id=HERE)
    put_plain(bench, "plain", value_of(THERE, "plain"))
    put(bench, "whole", value_of(THERE, "whole"))
    put(bench, "own", value_of(HERE, "own"))
    put(bench, "older", value_of("", "older"))
    found = {each.ledger_key: (each.origin, each.record is None) for each in listed(bench, None)}
    assert found == {"own": ("", False), "older": ("", False), "plain": (THERE, True), "whole": (THERE, False)}
