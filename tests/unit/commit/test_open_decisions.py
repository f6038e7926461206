"""How an open decision stands, from what coordinators say about its transactions."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry
from kafka_sink.commit.open_decisions import OpenDecision, Standing, advice_text, judge_open
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.operate.cli.report import verdict_word

RUN, START_MS, TIMEOUT_MS = "0123456789abcdef", 1_000_000, 60_000
ENTRIES = tuple(TransactionEntry(task, 0, 100 + task, 5, 2, "t", task, 9, 10) for task in (0, 1))
RECORD = LedgerRecord(Kind.INTENT, "orders", BatchKey("q", 7), RUN, topics={"t": 20}, entries=ENTRIES)
OPEN, OVERDUE, UNKNOWN = Standing.OPEN, Standing.OVERDUE, Standing.UNKNOWN


def described(task: int, state: str, epoch: int = 5, producer_id: int | None = None) -> TransactionDescription:
    identity = 100 + task if producer_id is None else producer_id
    return TransactionDescription(f"orders-{RUN}-{task}-0", state, identity, epoch, TIMEOUT_MS, START_MS)


def answered(*found: TransactionDescription, refused: Set[str] = frozenset()) -> Any:
    told = {each.transactional_id: each for each in found}
    return SimpleNamespace(failure=None, is_supported=True, found=told, refused=refused)


def judged(
    *found: TransactionDescription, wall_ms: int = START_MS + 20_000, refused: Set[str] = frozenset()
) -> OpenDecision:
    (decision,) = judge_open(answered(*found, refused=refused), [RECORD], wall_ms, {})
    return decision


@pytest.mark.parametrize(
    ("second", "standing", "left_ms"),
    [
        (described(1, "Ongoing"), OPEN, 40_000),
        (described(1, "CompleteCommit"), OPEN, 40_000),
        (described(1, "PrepareCommit", epoch=6), OPEN, 40_000),
        (described(1, "CompleteAbort"), OVERDUE, None),
        (described(1, "PrepareAbort", epoch=6), OVERDUE, None),
        (described(1, "Ongoing", epoch=6), OPEN, 40_000),
        (described(1, "CompleteCommit", epoch=7), OPEN, 40_000),
        (described(1, "CompleteAbort", epoch=7), OVERDUE, None),
        (described(1, "Ongoing", epoch=4), OVERDUE, None),
        (described(1, "Ongoing", epoch=6, producer_id=9), OVERDUE, None),
        (described(1, "CompleteCommit", producer_id=9), OVERDUE, None),
        (described(2, "Ongoing"), OVERDUE, None),
    ],
)
def test_a_transaction_that_is_neither_open_nor_committed_makes_it_overdue(
    second: TransactionDescription, standing: Standing, left_ms: int | None
) -> None:
    assert judged(described(0, "Ongoing"), second) == OpenDecision(RECORD, standing, left_ms)


@pytest.mark.parametrize(
    "second",
    [
        described(1, "CompleteCommit", epoch=6),
        # A task of the next batch has taken its id.
        described(1, "Ongoing", epoch=6),
        described(1, "Ongoing", epoch=7),
        described(1, "PrepareCommit", epoch=8),
    ],
)
def test_a_batch_of_which_all_is_committed_is_not_said_to_be_open(second: TransactionDescription) -> None:
    found = judged(described(0, "CompleteCommit", epoch=6), second)
    assert found == OpenDecision(RECORD, Standing.COMMITTED)
    assert verdict_word(RECORD, found) == "committed"


@pytest.mark.parametrize(
    ("version", "epoch", "second", "standing"),
    [
        (2, 32_766, described(1, "CompleteCommit", epoch=0, producer_id=9), Standing.COMMITTED),
        (2, 32_766, described(1, "PrepareCommit", epoch=32_767), Standing.COMMITTED),
        (2, 32_766, described(1, "CompleteAbort", epoch=0, producer_id=9), OVERDUE),
        # Another producer's own commit.
        (2, 32_766, described(1, "CompleteCommit", epoch=1, producer_id=9), OVERDUE),
        (2, 32_765, described(1, "CompleteCommit", epoch=0, producer_id=9), OVERDUE),
        (1, 32_766, described(1, "CompleteCommit", epoch=0, producer_id=9), OVERDUE),
    ],
)
def test_the_commit_of_the_last_epoch_gives_another_producer_id(
    version: int, epoch: int, second: TransactionDescription, standing: Standing
) -> None:
    used_up = replace(ENTRIES[1], producer_epoch=epoch, transaction_version=version)
    record = replace(RECORD, entries=(ENTRIES[0], used_up))
    states = [described(0, "CompleteCommit", epoch=6), second]
    found: Any = answered(*states)
    assert judge_open(found, [record], START_MS, {})[0].standing is standing


def test_in_transaction_version_1_an_id_in_use_again_proves_nothing() -> None:
    old = replace(RECORD, entries=tuple(replace(entry, transaction_version=1) for entry in ENTRIES))
    states = [described(0, "CompleteCommit"), described(1, "Ongoing", epoch=6)]
    found: Any = answered(*states)
    assert judge_open(found, [old], START_MS, {})[0].standing is OVERDUE


def test_a_transaction_whose_time_is_over_makes_it_overdue_before_its_coordinator_has_noticed() -> None:
    both = [described(task, "Ongoing") for task in (0, 1)]
    assert judged(*both, wall_ms=START_MS + TIMEOUT_MS - 1).standing is OPEN
    assert judged(*both, wall_ms=START_MS + TIMEOUT_MS).standing is OVERDUE


def test_a_decision_with_an_id_that_may_not_be_described_is_hidden_and_no_other_one() -> None:
    other = replace(RECORD, sink_id="payments")
    theirs = {one.transactional_id for one in other.transactions[:1]}
    states = answered(described(0, "CompleteCommit"), described(1, "CompleteCommit"), refused=theirs)
    assert [one.standing for one in judge_open(states, [other, RECORD], START_MS, {})] == [
        Standing.HIDDEN,
        Standing.COMMITTED,
    ]
    text = advice_text(OpenDecision(other, Standing.HIDDEN), DeliverySettings())
    assert "not yours to see: this login may not describe its transactional ids" in text and "pykafka-sink" not in text


def test_brokers_that_do_not_tell_leave_it_unknown() -> None:
    for part in (SimpleNamespace(failure="refused"), SimpleNamespace(failure=None, is_supported=False)):
        found: Any = part
        assert judge_open(found, [RECORD], 0, {}) == [OpenDecision(RECORD, UNKNOWN)]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (OpenDecision(RECORD, OPEN, 40_900), "within 40 s: then they time out"),
        (
            OpenDecision(RECORD, Standing.COMMITTED),
            "all of its transactions are committed; only the ledger has to be told",
        ),
        (OpenDecision(RECORD, OVERDUE), "rows may be missing"),
        (OpenDecision(RECORD, UNKNOWN), "15 minutes unless set"),
    ],
)
def test_each_standing_is_said_with_the_command_that_works_then(found: OpenDecision, words: str) -> None:
    text = advice_text(found, DeliverySettings())
    assert words in text and "`pykafka-sink recover --bootstrap-server HOST:PORT --sink-id orders`" in text
    assert text.endswith("HOST:PORT stands for the brokers of the job")
