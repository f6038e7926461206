"""Spark commits the batches of one query in whichever Python process is free: what a process remembers may be old.

Each process has a `DriverSession` of its own here, all of one run, as Spark's planner and commit processes have.
"""

import random

import pytest

from kafka_sink.client.admin_request import AdminRequest
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.exactly_once.ledger import Kind
from kafka_sink.exactly_once.session import DECISIONS_MAX, Conclusion, DriverOperation, DriverSession
from tests.unit.exactly_once.driver_bench import LOST, REFUSED, SINK, Bench, after

FENCE, CLAIM, WRITE, END = "fence older drivers", "claim ledger", "write ledger record", "end ledger transaction"
SECOND = "2" * 16
TASKS = (0, 1)


def delivered(bench: Bench, batch: int, session: DriverSession, **more: object) -> None:
    bench.settle()
    verdict = bench.commit(bench.receipts(batch), session, **more)
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error
    bench.settle()


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_batches_that_move_between_processes_of_one_run_are_delivered(bench: Bench, processes: int) -> None:
    sessions = [bench.session() for _ in range(processes)]
    choice = random.Random(processes)
    for batch in range(24):
        delivered(bench, batch, choice.choice(sessions))
    assert [bench.visible(task) for task in TASKS] == [24, 24]


def test_a_process_that_is_alone_fences_once(bench: Bench) -> None:
    session = bench.session()
    for batch in range(5):
        delivered(bench, batch, session)
    assert bench.purposes().count(FENCE) == 1


def test_a_process_that_comes_back_fences_again_once_and_then_goes_on(bench: Bench) -> None:
    first, second = bench.session(), bench.session()
    delivered(bench, 0, first)
    delivered(bench, 1, second)
    bench.asked.clear()
    delivered(bench, 2, first)
    delivered(bench, 3, first)
    assert bench.purposes().count(FENCE) == 1
    assert [bench.visible(task) for task in TASKS] == [4, 4]


@pytest.mark.parametrize("expired", [WRITE, "add ledger partition"])
def test_an_id_that_expired_while_the_stream_was_idle_is_taken_again(bench: Bench, expired: str) -> None:
    session = bench.session()
    delivered(bench, 0, session)
    unknown_id = {expired: [49]}
    delivered(bench, 1, session, answers=unknown_id)
    assert [bench.visible(task) for task in TASKS] == [2, 2]


def test_a_process_that_is_fenced_before_its_done_record_finishes_the_batch(bench: Bench) -> None:
    session = bench.session()

    def latecomer(request: object) -> None:
        # A request of a process that was killed arrives between decision and done record.
        if bench.purposes().count("commit transaction") == len(TASKS):
            bench.before = None
            while bench.broker.init(session.transactional_id, None)[0]:
                bench.settle()

    bench.before = latecomer
    verdict = bench.commit(bench.receipts(), session)
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error
    assert bench.purposes().count(FENCE) == 2
    bench.settle()
    assert [bench.visible(task) for task in TASKS] == [1, 1]
    assert bench.ledger()[SINK].kind is Kind.DONE


def test_a_driver_that_is_fenced_again_and_again_gives_up_and_nothing_is_visible(bench: Bench) -> None:
    session = bench.session()

    def rival(request: object) -> None:
        if request.key.purpose == WRITE:
            while bench.broker.init(session.transactional_id, None)[0]:
                bench.settle()

    bench.before = rival
    verdict = bench.commit(bench.receipts(), session)
    assert isinstance(verdict.error, CommitAborted) and "no other run has claimed the ledger" in str(verdict.error)
    assert bench.ledger() == {}


def test_a_coordinator_that_refuses_the_epoch_for_seconds_delays_the_batch(bench: Bench) -> None:
    """It was frozen and leads no more; nobody else has come."""
    verdict = bench.commit(bench.receipts(), answers={END: [48, 90, 48, 90, 48, 48]})
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error
    bench.settle()
    assert [bench.visible(task) for task in TASKS] == [1, 1]


def test_a_decided_batch_is_never_said_to_be_undecided_when_its_done_record_is_refused_and_fencing_fails(
    bench: Bench,
) -> None:
    session = bench.session()

    def latecomer(request: AdminRequest) -> None:
        if bench.purposes().count("commit transaction") == len(TASKS):
            bench.before = None
            while bench.broker.init(session.transactional_id, None)[0]:
                bench.settle()

    bench.before = latecomer
    receipts = bench.receipts()
    verdict = bench.commit(receipts, session, answers={"claim ledger": [None, *[7] * 100_000]})
    assert isinstance(verdict.error, CommitPending) and "committed and visible" in str(verdict.error)
    left = bench.run(DriverOperation.ABORT, receipts, session)
    assert left.conclusion is Conclusion.LEFT_ALONE
    bench.settle()
    assert [bench.visible(task) for task in TASKS] == [1, 1]


def test_an_elder_run_that_wakes_up_stops_and_its_successor_goes_on(bench: Bench) -> None:
    elder, younger = bench.session(), bench.session(SECOND)
    delivered(bench, 0, elder)
    verdict = bench.commit(bench.receipts(1, run=SECOND), younger)
    assert verdict.conclusion is Conclusion.DELIVERED
    bench.settle()
    refused = bench.commit(bench.receipts(2), elder)
    assert isinstance(refused.error, CommitAborted) and "has taken over" in str(refused.error)
    bench.settle()
    assert bench.commit(bench.receipts(2, run=SECOND), younger).conclusion is Conclusion.DELIVERED


def test_an_elder_run_that_comes_in_a_new_process_does_not_end_its_successor(bench: Bench) -> None:
    younger = bench.session(SECOND)
    delivered(bench, 0, bench.session())
    # The younger one has claimed, and has decided nothing yet.
    bench.commit(bench.receipts(1, run=SECOND), younger, answers={WRITE: [29]})
    bench.commit(bench.receipts(1), bench.session(), answers={WRITE: [29]})
    bench.settle()
    verdict = bench.commit(bench.receipts(1, run=SECOND, attempt=1), younger)
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error


def test_what_was_remembered_of_the_ledger_stops_no_batch_without_being_read_again(bench: Bench) -> None:
    session, other = bench.session(), bench.session()
    delivered(bench, 0, session)
    # Another process of the run decides batch 1 and dies; the first one remembers batch 0.
    pending = bench.commit(bench.receipts(1), other, answers={"commit transaction": [LOST] * 100_000})
    assert isinstance(pending.error, CommitPending)
    bench.settle()
    again = bench.commit(bench.receipts(1, attempt=1), session)
    assert again.conclusion is Conclusion.ALREADY_DELIVERED
    bench.settle()
    assert [bench.visible(task) for task in TASKS] == [2, 2]


def test_a_process_forgets_what_it_decided_long_ago(bench: Bench) -> None:
    session = bench.session()
    for batch in range(DECISIONS_MAX + 10):
        delivered(bench, batch, session)
    assert len(session.decisions) == DECISIONS_MAX


@pytest.mark.parametrize("operation", [DriverOperation.FINISH, DriverOperation.ACCEPT, DriverOperation.SWEEP])
def test_a_command_of_an_operator_that_is_fenced_in_between_fences_again(
    bench: Bench, operation: DriverOperation
) -> None:
    receipts = bench.receipts()
    if operation is DriverOperation.ACCEPT:
        bench.times_out_before_its_commit(receipts[0])
        assert isinstance(bench.commit(receipts).error, CommitLost)
    else:
        assert isinstance(bench.commit(receipts, answers={"commit transaction": [LOST] * 100_000}).error, CommitPending)
    bench.settle()
    bench.asked.clear()

    def rival(request: AdminRequest) -> None:
        if request.key.purpose == WRITE:
            bench.before = None
            while bench.broker.init("sink-driver", None)[0]:
                bench.settle()

    bench.before = rival
    verdict = bench.run(operation, session=DriverSession(SINK))
    assert verdict.error is None
    assert bench.purposes().count(FENCE) == 2
    assert bench.ledger()[SINK].kind is Kind.DONE


def test_without_a_ledger_an_abort_in_another_process_claims_no_more_than_it_did(bench: Bench) -> None:
    """The commit failed when a part was visible already."""
    receipts = bench.receipts("", query="")
    bench.times_out_before_its_commit(receipts[0])
    assert isinstance(bench.run(DriverOperation.COMMIT_WITHOUT_LEDGER, receipts).error, CommitLost)
    bench.settle()
    left = bench.run(DriverOperation.ABORT_WITHOUT_LEDGER, receipts, bench.session())
    assert left.conclusion is Conclusion.LEFT_ALONE
    untouched = bench.receipts("", query="", run=SECOND)
    aborted = bench.run(DriverOperation.ABORT_WITHOUT_LEDGER, untouched, bench.session(SECOND))
    assert aborted.conclusion is Conclusion.ABORTED


def test_a_run_that_claimed_while_an_elder_one_read_is_not_taken_for_an_elder_itself(bench: Bench) -> None:
    """What is fetched may go on behind the reader's own claim."""
    elder, younger = bench.session(), bench.session(SECOND)
    receipts = bench.receipts(0, run=SECOND)

    def overtaken(request: AdminRequest) -> None:
        if request.key.purpose == "read ledger":
            bench.before = None
            assert bench.commit(receipts, younger, answers={WRITE: [REFUSED]}).error is not None

    bench.before = overtaken
    verdict = bench.commit(bench.receipts(), elder)
    assert isinstance(verdict.error, CommitAborted) and "has taken over" in str(verdict.error)
    assert not elder.elders


def test_of_two_runs_that_claim_in_turn_the_one_that_claimed_first_is_the_elder(bench: Bench) -> None:
    """The answer to its claim is lost, and what it repeats stands behind the claim of the younger one."""
    elder, younger = bench.session(), bench.session(SECOND)
    receipts = bench.receipts(0, run=SECOND)
    claims = 0

    def overtaken(request: AdminRequest) -> None:
        nonlocal claims
        claims += request.key.purpose == CLAIM
        if claims == 2:
            bench.before = None
            assert bench.commit(receipts, younger, answers={WRITE: [REFUSED]}).error is not None

    bench.before = overtaken
    verdict = bench.commit(bench.receipts(), elder, answers={CLAIM: [after(LOST)]})
    assert isinstance(verdict.error, CommitAborted) and "has taken over" in str(verdict.error)
    bench.settle()
    verdict = bench.commit(bench.receipts(0, run=SECOND, attempt=1), younger)
    assert verdict.conclusion is Conclusion.DELIVERED, verdict.error


def test_a_process_of_a_run_that_was_taken_over_meanwhile_says_so(bench: Bench) -> None:
    """It has claimed nothing itself before; its run has."""
    delivered(bench, 0, bench.session())
    younger = bench.session(SECOND)
    assert bench.commit(bench.receipts(1, run=SECOND), younger, answers={WRITE: [REFUSED]}).error is not None
    verdict = bench.commit(bench.receipts(1), bench.session())
    assert isinstance(verdict.error, CommitAborted) and "has taken over" in str(verdict.error)


def test_a_driver_whose_time_is_up_while_it_looks_whether_it_was_fenced_says_so(bench: Bench) -> None:
    said = {END: [None, LOST, 90], "look for marker": [LOST] * 5_000}
    verdict = bench.commit(bench.receipts(), bench.session(), answers=said)
    assert isinstance(verdict.error, CommitPending) and "could not be told so: no time left" in str(verdict.error)
