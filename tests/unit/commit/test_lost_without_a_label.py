"""A write without a label that was decided and is not finished in time: whether it may be written again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.end_txn import PARTITIONS
from kafka_sink.commit.ledger import line_of
from kafka_sink.commit.receipt import UNNAMED_BATCH, TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession
from kafka_sink.errors import CommitLost, CommitPending
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import COMMIT, LOST, REFUSED, SINK, WRITE, Bench

CODE = line_of(SINK, UNNAMED_BATCH, LEDGER).code


@pytest.fixture
def bench() -> Bench:
    return Bench(transaction_version=2)


def receipts_of(bench: Bench) -> list[TaskReceipt]:
    return [replace(receipt, key=UNNAMED_BATCH) for receipt in bench.receipts()]


def dies(bench: Bench, receipts: list[TaskReceipt], answers: dict[str, list[object]]) -> None:
    died = bench.commit(receipts, DriverSession(SINK, "1" * 16, code=CODE), answers=answers)
    assert isinstance(died.error, CommitPending)


def lost_text(bench: Bench) -> str:
    found = bench.run(DriverOperation.FINISH, session=DriverSession(SINK, code=CODE))
    assert isinstance(found.error, CommitLost)
    return str(found.error)


def forget(bench: Bench) -> None:
    """Its ids have expired and its rows are deleted; what is left is of others."""
    for name in [name for name in bench.broker.transactions if "-driver" not in name]:
        del bench.broker.transactions[name]
    for task in (0, 1):
        count = len(bench.broker.logs["t", task])
        bench.broker.logs["t", task] = [(1, 0, None, True)] * (count + 2)


def test_what_was_visible_for_a_week_is_not_said_to_be_invisible(bench: Bench) -> None:
    """All of it was committed, and the driver died before it had recorded that."""
    dies(bench, receipts_of(bench), {WRITE: [None, *[LOST] * 100_000]})
    assert bench.seen() == [1, 1]
    forget(bench)
    text = lost_text(bench)
    assert "It may be visible, in whole or in part" in text and "look into the topic first" in text
    assert "Nothing of it is visible" not in text


def test_what_has_timed_out_as_a_whole_may_be_written_again(bench: Bench) -> None:
    receipts = receipts_of(bench)
    dies(bench, receipts, {COMMIT: [LOST] * 100_000})
    for receipt in receipts:
        bench.time_out(receipt)
    bench.settle()
    assert "Nothing of it is visible: it may be written again" in lost_text(bench)
    assert bench.seen() == [0, 0]


@pytest.mark.parametrize("answers", [{PARTITIONS: [REFUSED] * 2}, {COMMIT: [53] * 2}])
def test_a_write_of_another_team_is_left_to_it_without_a_word(bench: Bench, answers: dict[str, list[object]]) -> None:
    """Planning finds the decisions of everybody who has the same ledger. Some login may neither describe nor end their
    transactions, and could do nothing about a warning."""
    theirs = f"of-another-team-{'7' * 16}"
    receipts = bench.receipts("", run="7" * 16, query="", sink_id=theirs)
    bench.decide(receipts, DriverSession(theirs, "7" * 16))
    bench.asked.clear()
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(), answers=answers)
    assert helped.error is None and not helped.notes and not helped.others
    # Without a coordinator no request to end it is made, which would look for the topic as well.
    assert any(ask.purpose == COMMIT for ask in bench.asked) is (COMMIT in answers)
    assert bench.seen() == [0, 0]
    # Whoever may does.
    helped = bench.run(DriverOperation.RECOVER, session=bench.session())
    assert [record.sink_id for record in helped.others] == [theirs] and bench.seen() == [1, 1]


# ---- closed by somebody else ----


@pytest.mark.parametrize("moment", [WRITE, COMMIT])
def test_a_write_whose_decision_another_process_closes_meanwhile_is_delivered(bench: Bench, moment: str) -> None:
    """Planning does so with an old decision, and may take a young one for old; or an operator does."""
    helped = []

    def close() -> None:
        found = bench.run(DriverOperation.FINISH, key=UNNAMED_BATCH, session=DriverSession(SINK, code=CODE))
        helped.append(found.error)

    bench.before_next(moment, close, which=2)
    result = bench.commit(receipts_of(bench), DriverSession(SINK, "1" * 16, code=CODE))
    assert helped == [None]
    assert (result.conclusion, result.error) == (Conclusion.DELIVERED, None)
    assert bench.seen() == [1, 1] and not bench.ledger()
