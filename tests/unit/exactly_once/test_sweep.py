"""Whose open transactions a sweep may end: a table of the newest record of the ledger key, an operation, and runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.exactly_once.identity import TaskIdentity, code_of_label, run_of_label
from kafka_sink.exactly_once.ledger import Kind, LedgerRecord
from kafka_sink.exactly_once.preflight import ONGOING, TransactionDescription
from kafka_sink.exactly_once.receipt import BatchKey
from kafka_sink.exactly_once.session import DriverOperation, DriverSession, Job
from kafka_sink.exactly_once.sweep import sweep_rule

SINK, NAMED, SINCE_MS = "sink-query", "sink", 1_000
OWN, REPLACED, OTHER = "1" * 16, "2" * 16, "3" * 16
STREAM, EXPORT = BatchKey("query", 7), BatchKey("", "monday")
OWN_OF_LABEL, ELDER_OF_LABEL = run_of_label("monday", "a"), run_of_label("monday", "b")
OF_OTHER_LABEL = run_of_label("tuesday", "c")


def record(key: BatchKey, run: str, kind: Kind = Kind.DONE) -> LedgerRecord:
    return LedgerRecord(kind, SINK, key, run, runs=(REPLACED,), since_ms=SINCE_MS)


def is_swept(
    newest: LedgerRecord | None,
    run: str,
    start_ms: int,
    *,
    own: str = OWN,
    key: BatchKey = STREAM,
    operation: DriverOperation = DriverOperation.COMMIT,
    sink_id: str = SINK,
    state: str = ONGOING,
    codes: frozenset[str] = frozenset(),
) -> bool:
    rule = sweep_rule(DriverSession(SINK, own, NAMED), newest, Job(operation, key, codes=codes))
    name = TaskIdentity(sink_id, run, 0, 0).transactional_id
    found = TransactionDescription(name, state, 1, 0, 60_000, start_ms, ())
    return rule.is_dangling(found)


@pytest.mark.parametrize(
    ("run", "start_ms", "swept"),
    [
        (OWN, SINCE_MS + 1, True),
        (REPLACED, SINCE_MS + 1, True),
        (OTHER, SINCE_MS - 1, True),
        # It may be a successor.
        (OTHER, SINCE_MS, False),
        # The brokers do not know when it began.
        (OTHER, -1, False),
    ],
)
def test_a_run_ends_its_own_transactions_those_of_replaced_runs_and_elder_ones(
    run: str, start_ms: int, swept: bool
) -> None:
    assert is_swept(record(STREAM, OWN), run, start_ms) is swept
    assert not is_swept(record(STREAM, OWN), run, start_ms, state="PrepareCommit")
    assert not is_swept(record(STREAM, OWN), run, start_ms, sink_id="another")


@pytest.mark.parametrize("newest", [None, record(STREAM, OTHER), replace(record(STREAM, OWN), runs=(), since_ms=-1)])
def test_without_a_record_of_its_own_a_run_ends_its_own_transactions_only(newest: LedgerRecord | None) -> None:
    assert is_swept(newest, OWN, SINCE_MS - 1)
    assert not is_swept(newest, REPLACED, SINCE_MS - 1) and not is_swept(newest, OTHER, SINCE_MS - 1)


def test_under_the_name_of_the_release_before_only_replaced_runs_are_over() -> None:
    assert is_swept(record(STREAM, OWN), REPLACED, SINCE_MS - 1, sink_id=NAMED)
    assert not is_swept(record(STREAM, OWN), OTHER, SINCE_MS - 1, sink_id=NAMED)


@pytest.mark.parametrize("operation", [DriverOperation.SWEEP, DriverOperation.FINISH])
def test_an_operator_ends_the_transactions_of_every_run_whose_line_was_fenced(operation: DriverOperation) -> None:
    codes = frozenset({code_of_label("monday")})
    for run in (OTHER, OWN_OF_LABEL):
        assert is_swept(None, run, SINCE_MS + 1, operation=operation, codes=codes)
        assert not is_swept(None, run, SINCE_MS + 1, operation=operation, codes=codes, sink_id="another")
    assert not is_swept(None, OF_OTHER_LABEL, SINCE_MS + 1, operation=operation, codes=codes)


def test_a_stream_leaves_the_transactions_of_labels_alone_though_they_began_earlier() -> None:
    """Their sink id can be the same, inside foreachBatch with query.id. They may be decided by now."""
    assert is_swept(record(STREAM, OWN), OTHER, SINCE_MS - 1)
    assert not is_swept(record(STREAM, OWN), OWN_OF_LABEL, SINCE_MS - 1)


def test_once_a_label_is_delivered_every_run_of_it_is_over_and_no_run_of_another_one() -> None:
    delivered = record(EXPORT, ELDER_OF_LABEL)
    assert is_swept(delivered, ELDER_OF_LABEL, SINCE_MS + 1, own=OWN_OF_LABEL, key=EXPORT)
    assert is_swept(delivered, REPLACED, SINCE_MS + 1, own=OWN_OF_LABEL, key=EXPORT)
    assert is_swept(delivered, run_of_label("monday", "d"), SINCE_MS - 1, own=OWN_OF_LABEL, key=EXPORT)
    assert not is_swept(delivered, OF_OTHER_LABEL, SINCE_MS - 1, own=OWN_OF_LABEL, key=EXPORT)


def test_while_a_label_is_not_delivered_the_run_of_its_record_is_not_over() -> None:
    stuck = record(EXPORT, ELDER_OF_LABEL, Kind.STUCK)
    assert not is_swept(stuck, ELDER_OF_LABEL, SINCE_MS - 1, own=OWN_OF_LABEL, key=EXPORT)
