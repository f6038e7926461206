"""How an open decision stands, from what coordinators say about its transactions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry
from kafka_sink.commit.open_decisions import OpenDecision, Standing, advice_text, judge_open
from kafka_sink.commit.preflight import TransactionDescription
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import DeliverySettings

RUN, START_MS, TIMEOUT_MS = "0123456789abcdef", 1_000_000, 60_000
ENTRIES = tuple(TransactionEntry(task, 0, 100 + task, 5, 2, "t", task, 9, 10) for task in (0, 1))
RECORD = LedgerRecord(Kind.INTENT, "orders", BatchKey("q", 7), RUN, topics={"t": 20}, entries=ENTRIES)
OPEN, OVERDUE, UNKNOWN = Standing.OPEN, Standing.OVERDUE, Standing.UNKNOWN


def described(task: int, state: str, epoch: int = 5, producer_id: int | None = None) -> TransactionDescription:
    identity = 100 + task if producer_id is None else producer_id
    return TransactionDescription(f"orders-{RUN}-{task}-0", state, identity, epoch, TIMEOUT_MS, START_MS)


def judged(*found: TransactionDescription, wall_ms: int = START_MS + 20_000, **more: Any) -> OpenDecision:
    part: Any = SimpleNamespace(
        failure=None, is_supported=True, found={each.transactional_id: each for each in found}, **more
    )
    (decision,) = judge_open(part, [RECORD], wall_ms)
    return decision


@pytest.mark.parametrize(
    ("second", "standing", "left_ms"),
    [
        (described(1, "Ongoing"), OPEN, 40_000),
        (described(1, "CompleteCommit"), OPEN, 40_000),
        (described(1, "PrepareCommit", epoch=6), OPEN, 40_000),
        (described(1, "CompleteAbort"), OVERDUE, None),
        (described(1, "PrepareAbort", epoch=6), OVERDUE, None),
        (described(1, "Ongoing", epoch=7), OVERDUE, None),
        (described(1, "CompleteCommit", producer_id=9), OVERDUE, None),
        (described(2, "Ongoing"), OVERDUE, None),
    ],
)
def test_a_transaction_that_is_neither_open_nor_committed_makes_it_overdue(
    second: TransactionDescription, standing: Standing, left_ms: int | None
) -> None:
    assert judged(described(0, "Ongoing"), second) == OpenDecision(RECORD, standing, left_ms)


def test_a_transaction_whose_time_is_over_makes_it_overdue_before_its_coordinator_has_noticed() -> None:
    both = [described(task, "Ongoing") for task in (0, 1)]
    assert judged(*both, wall_ms=START_MS + TIMEOUT_MS - 1).standing is OPEN
    assert judged(*both, wall_ms=START_MS + TIMEOUT_MS).standing is OVERDUE


def test_brokers_that_do_not_tell_leave_it_unknown() -> None:
    for part in (SimpleNamespace(failure="refused"), SimpleNamespace(failure=None, is_supported=False)):
        found: Any = part
        assert judge_open(found, [RECORD], 0) == [OpenDecision(RECORD, UNKNOWN)]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (OpenDecision(RECORD, OPEN, 40_900), "within 40 s: then they time out"),
        (OpenDecision(RECORD, OPEN), "all of its transactions are committed; only the ledger has to be told"),
        (OpenDecision(RECORD, OVERDUE), "rows may be missing"),
        (OpenDecision(RECORD, UNKNOWN), "15 minutes unless set"),
    ],
)
def test_each_standing_is_said_with_the_command_that_works_then(found: OpenDecision, words: str) -> None:
    text = advice_text(found, DeliverySettings())
    assert words in text and "`pykafka-sink recover --bootstrap-server HOST:PORT --sink-id orders`" in text
    assert text.endswith("HOST:PORT stands for the brokers of the job")
