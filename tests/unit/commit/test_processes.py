"""Spark commits the batches of one query in any free Python process, so the cached state of a process may be outdated.

Each process has its own `DriverSession` here, all of the same run, like Spark's planner and commit processes.
"""

import random

import pytest

from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import claim_key
from kafka_sink.commit.ledger_codec import encode_claim
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState
from kafka_sink.commit.session import Conclusion, DriverSession
from kafka_sink.commit.verdict import VERDICT
from kafka_sink.errors import CommitAborted, CommitLost
from kafka_sink.kafka.client.ask import Ask, ReplyKind
from tests.unit.commit.driver_bench import (
    CLAIM,
    LOST,
    NOT_SENT,
    REFUSED,
    SECOND,
    SINK,
    THIRD,
    WRITE,
    Bench,
    after,
    put_plain,
)


def delivered(bench: Bench, batch: int, session: DriverSession, **more: object) -> None:
    bench.settle()
    assert bench.commit(bench.receipts(batch), session, **more).conclusion is Conclusion.DELIVERED
    bench.settle()


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_batches_that_move_between_processes_of_one_run_are_delivered(bench: Bench, processes: int) -> None:
    sessions = [bench.session() for _ in range(processes)]
    choice = random.Random(processes)
    for batch in range(24):
        delivered(bench, batch, choice.choice(sessions))
    assert bench.seen() == [24, 24]


def test_a_driver_that_is_fenced_again_and_again_gives_up_and_nothing_is_visible(bench: Bench) -> None:
    session = bench.session()

    def rival(request: Ask) -> None:
        if request.purpose == WRITE:
            bench.take_the_drivers_id()

    bench.before = rival
    verdict = bench.commit(bench.receipts(), session)
    assert isinstance(verdict.error, CommitAborted) and "no other run has claimed the ledger" in str(verdict.error)
    assert bench.ledger() == {}


def test_a_loss_that_a_successor_recorded_first_is_reported_as_a_loss(bench: Bench) -> None:
    receipts = bench.receipts()

    def take_over() -> None:
        assert isinstance(bench.commit(bench.receipts(0, run=SECOND), bench.session(SECOND)).error, CommitLost)

    def time_out() -> None:
        bench.time_out(receipts[0])
        bench.settle()
        bench.before_next(WRITE, take_over)

    bench.before_next("commit transaction", time_out)
    verdict = bench.commit(receipts)
    assert isinstance(verdict.error, CommitLost) and "1 of 2 are committed" in str(verdict.error)


def test_a_run_that_claimed_while_an_elder_one_read_is_not_taken_for_an_elder_itself(bench: Bench) -> None:
    """The fetched records may continue after the reader's own claim."""
    elder, younger = bench.session(), bench.session(SECOND)
    receipts = bench.receipts(0, run=SECOND)
    bench.before_next("read ledger", lambda: bench.commit(receipts, younger, answers={WRITE: [REFUSED]}))
    verdict = bench.commit(bench.receipts(), elder)
    assert isinstance(verdict.error, CommitAborted) and "has taken over" in str(verdict.error)
    assert not elder.elders


def test_a_first_claim_that_comes_late_stops_the_living_run_which_says_so_and_the_next_start_goes_on(
    bench: Bench,
) -> None:
    """A dead run's claim was held back in the network until its successor had claimed."""
    session = bench.session(SECOND)
    assert bench.commit(bench.receipts(0, run=SECOND), session).conclusion is Conclusion.DELIVERED
    put_plain(bench, claim_key(Line(SINK)), encode_claim(Line(SINK), "1" * 16, 0))
    # It is committed in another process of the run, which reads the ledger.
    stopped = bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    assert isinstance(stopped.error, CommitAborted) and "has claimed the ledger" in str(stopped.error)
    assert "If none lives, the claim of one that has ended came late: start this one again" in str(stopped.error)
    assert bench.commit(bench.receipts(1, run=THIRD), bench.session(THIRD)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]


def test_of_two_runs_that_claim_in_turn_the_one_that_claimed_first_is_the_elder(bench: Bench) -> None:
    """The answer to its first claim is lost, and the repeated claim follows that of the younger run."""
    elder, younger = bench.session(), bench.session(SECOND)
    receipts = bench.receipts(0, run=SECOND)
    bench.before_next(CLAIM, lambda: bench.commit(receipts, younger, answers={WRITE: [REFUSED]}), which=2)
    verdict = bench.commit(bench.receipts(), elder, answers={CLAIM: [after(LOST)]})
    assert isinstance(verdict.error, CommitAborted) and "has taken over" in str(verdict.error)
    bench.settle()
    assert bench.commit(bench.receipts(0, run=SECOND, attempt=1), younger).conclusion is Conclusion.DELIVERED


def test_a_record_that_the_log_shows_as_aborted_tells_who_ended_it(bench: Bench) -> None:
    session = bench.session()
    bench.commit(bench.receipts(0), session)
    (record,) = bench.ledger().values()
    write = LedgerWrite(bench.settings, session, record)
    bench.before_next("end ledger transaction", bench.take_the_drivers_id, which=2)
    bench.drive(SingleStep(write, bench.now_ms + 60_000), {"end ledger transaction": [LOST]})
    assert write.state is WriteState.NOT_WRITTEN and write.is_fenced
    assert write.reason.startswith("sink-driver: EndTxn was answered with PRODUCER_FENCED")


@pytest.mark.parametrize(("first", "is_asked"), [(NOT_SENT, False), (LOST, True)])
def test_only_an_end_that_may_have_arrived_puts_a_record_in_doubt(
    first: ReplyKind, is_asked: bool, bench: Bench
) -> None:
    """Fenced after a try of which no byte was sent: the record is certainly not written, and no log has to tell."""
    session = bench.session()
    bench.commit(bench.receipts(0), session)
    (record,) = bench.ledger().values()
    write = LedgerWrite(bench.settings, session, record)
    bench.before_next("end ledger transaction", bench.take_the_drivers_id, which=2)
    bench.drive(SingleStep(write, bench.now_ms + 60_000), {"end ledger transaction": [first]})
    assert write.state is WriteState.NOT_WRITTEN and write.is_fenced
    assert (VERDICT in bench.purposes()) is is_asked
