"""Listing the ledger and open transactions, and the errors when that is not possible."""

from __future__ import annotations

import itertools

import pytest

from kafka_sink.commit import open_parts
from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.ledger_read import MARKER_QUESTIONS
from kafka_sink.commit.listing import MARKS, LedgerListing, Listed, ProducerMarks, TransactionListing
from kafka_sink.kafka.client.ask import ReplyKind
from kafka_sink.kafka.wire.codes import THROTTLING_QUOTA_EXCEEDED
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import LOST, REFUSED, SINK, UNSUPPORTED, Bench


def transactions(bench: Bench, sink_id: str | None = SINK, **told: ReplyKind) -> TransactionListing:
    """`told`: the answer that such requests always get instead of that of the broker."""
    answers = {purpose.replace("_", " "): [kind] * 1_000 for purpose, kind in told.items()}
    machine = SingleStep(TransactionListing(bench.settings, sink_id), bench.now_ms + 1_000)
    listing: TransactionListing = bench.drive(machine, answers)
    return listing


def test_open_transactions_of_one_sink_or_of_all_are_found_and_left_as_they_are(bench: Bench) -> None:
    receipts = bench.receipts(tasks=3)
    bench.commit(receipts[:1])
    left = [bench.receipt(1, task) for task in range(2)]
    expected = [receipt.transaction.transactional_id for receipt in left if receipt.transaction is not None]
    for sink_id in (SINK, None):
        assert [one.transactional_id for one in transactions(bench, sink_id).found] == expected
    assert transactions(bench, "another").found == []
    assert {bench.state_of(receipt) for receipt in left} == {"Ongoing"}


@pytest.mark.parametrize(("most", "asked"), [(100, [[0], [1, 2]]), (1, [[0]])], ids=["few", "too many"])
def test_leaders_are_asked_for_the_producers_of_one_partition_before_those_of_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, most: int, asked: list[list[int]]
) -> None:
    """A partition may have a million of them, of whichever application."""
    monkeypatch.setattr(open_parts, "PRODUCERS_ASKED_MAX", most)
    bench.receipts(tasks=3)
    found = transactions(bench).found
    marks = bench.drive(SingleStep(ProducerMarks(bench.settings, found), bench.now_ms + 1_000))
    assert [ask.body["topics"][0]["partition_indexes"] for ask in bench.asked if ask.purpose == MARKS] == asked
    assert sorted(where[1] for where in marks.last) == sorted(itertools.chain(*asked))


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"list_transactions": UNSUPPORTED}, "not offered"),
        ({"list_transactions": REFUSED}, "no Write"),
        ({"describe_transactions": UNSUPPORTED}, "do not speak DescribeTransactions"),
        ({"describe_transactions": LOST}, "no time left"),
    ],
)
def test_a_list_that_is_not_to_be_had_is_no_empty_list(told: dict[str, ReplyKind], reason: str, bench: Bench) -> None:
    bench.receipts()
    listing = transactions(bench, **told)
    assert listing.failure is not None and reason in listing.failure


def test_a_broker_that_did_not_answer_is_mentioned(bench: Bench) -> None:
    bench.receipts()
    listing = transactions(bench, list_transactions=LOST)
    assert listing.failure is None and listing.found == [] and "not every broker" in listing.notes[0]


def test_the_ledger_is_looked_at_until_the_deadline_and_no_longer(bench: Bench) -> None:
    machine = SingleStep(LedgerListing(bench.settings, None), bench.now_ms + 1_000)
    progress = machine.step(bench.now_ms, ())
    assert len(progress.asks) == 2 and progress.wake_at_ms == bench.now_ms + 1_000
    progress = machine.step(bench.now_ms + 1_000, ())
    assert progress.result is not None and progress.result.failure is not None
    assert progress.result.failure == "no time left (no answer)"


def listed(bench: Bench, *fetched: int | None) -> list[Listed]:
    """`fetched`: the answers to the reads of the ledger, one for each try; None is the broker's answer."""
    machine = SingleStep(LedgerListing(bench.settings, SINK), bench.now_ms + 60_000)
    listing: LedgerListing = bench.drive(machine, {"read ledger": [*fetched]})
    assert listing.listed is not None, listing.failure
    return listing.listed


def test_a_decision_whose_marker_is_still_on_its_way_is_waited_for(bench: Bench) -> None:
    """A coordinator answers a commit before its marker is in the ledger."""
    bench.commit(bench.receipts())
    bench.before_next("read ledger", bench.settle, which=2)
    (decided,) = listed(bench)
    assert decided.record is not None and decided.record.kind is Kind.DONE


def test_what_was_never_decided_is_waited_for_a_moment_and_counts_as_not_written(bench: Bench) -> None:
    bench.decide(bench.receipts())
    bench.commit(bench.receipts(batch=1), answers={"end ledger transaction": [LOST] * 100_000})
    bench.asked.clear()
    (before,) = listed(bench)
    assert before.record is not None and before.record.key.batch_id == 0
    assert bench.purposes().count("read ledger") == 1 + MARKER_QUESTIONS


def test_a_quota_that_is_used_up_while_a_marker_is_waited_for_hides_no_decision(bench: Bench) -> None:
    bench.commit(bench.receipts())
    bench.before_next("read ledger", bench.settle, which=2)
    (decided,) = listed(bench, None, *[THROTTLING_QUOTA_EXCEEDED] * MARKER_QUESTIONS)
    assert decided.record is not None and decided.record.kind is Kind.DONE


def test_a_ledger_that_others_write_to_all_the_time_is_not_read_for_ever(bench: Bench) -> None:
    bench.commit(bench.receipts())
    bench.before = lambda request: bench.broker.write_in_task(f"a-{len(bench.asked)}", (LEDGER, 0), b"of another")
    bench.asked.clear()
    listed(bench)
    assert bench.purposes().count("read ledger") == 1 + MARKER_QUESTIONS
