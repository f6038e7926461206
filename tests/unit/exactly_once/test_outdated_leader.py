"""What a leader tells that was frozen or cut off and leads no longer: the end of the log as it was."""

import pytest

from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.exactly_once.ledger import Kind
from kafka_sink.exactly_once.session import Conclusion, DriverOperation
from tests.model.tiny_broker import LEDGER
from tests.unit.exactly_once.driver_bench import LOST, SINK, Bench

CLAIM, COMMIT = "claim ledger", "commit transaction"
SECOND = "2" * 16
CLAIM_INTENT_AND_MARKER = 3
THE_LEDGER, OF_TASK_0 = (LEDGER, 0), ("t", 0)


def decided(bench: Bench) -> None:
    """Batch 0 of the first run: nothing of it is committed yet, and its driver is gone."""
    verdict = bench.commit(bench.receipts(), answers={COMMIT: [LOST] * 100_000})
    assert isinstance(verdict.error, CommitPending)
    bench.settle()
    bench.asked.clear()


def test_a_decision_behind_the_end_that_an_outdated_leader_tells_is_found_all_the_same(bench: Bench) -> None:
    decided(bench)
    bench.outdated = (THE_LEDGER, 0, bench.now_ms + 5_000)
    # Planning cannot know: it fences nobody and writes nothing.
    assert bench.run(DriverOperation.RECOVER).conclusion is Conclusion.NOTHING_TO_DO
    verdict = bench.commit(bench.receipts(run=SECOND), bench.session(SECOND))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED
    bench.settle()
    assert [bench.visible(task) for task in (0, 1)] == [1, 1]
    assert bench.ledger()[SINK].kind is Kind.DONE


def test_the_ledger_is_read_to_the_claim_without_asking_for_its_end(bench: Bench) -> None:
    bench.commit(bench.receipts())
    assert bench.purposes().count(CLAIM) == 1
    assert "ledger stop" not in bench.purposes()


def test_a_process_claims_the_ledger_once(bench: Bench) -> None:
    session = bench.session()
    for batch in (0, 1, 2):
        bench.settle()
        assert bench.commit(bench.receipts(batch), session).conclusion is Conclusion.DELIVERED
    assert bench.purposes().count(CLAIM) == 1


def test_a_claim_without_an_answer_is_written_again(bench: Bench) -> None:
    verdict = bench.commit(bench.receipts(), answers={CLAIM: [LOST, 19, 7]})
    assert verdict.conclusion is Conclusion.DELIVERED
    assert bench.purposes().count(CLAIM) == 4


def test_a_claim_that_nobody_acknowledges_in_time_leaves_the_batch_undecided(bench: Bench) -> None:
    verdict = bench.commit(bench.receipts(), answers={CLAIM: [7] * 100_000})
    assert isinstance(verdict.error, CommitAborted)
    assert "REQUEST_TIMED_OUT" in str(verdict.error)
    assert bench.ledger() == {}


def test_a_claim_that_is_not_allowed_is_told_with_the_ledger_it_is_about(bench: Bench) -> None:
    verdict = bench.commit(bench.receipts(), answers={CLAIM: [29]})
    assert isinstance(verdict.error, CommitAborted)
    assert f"ledger {LEDGER}-0" in str(verdict.error) and "TOPIC_AUTHORIZATION_FAILED" in str(verdict.error)


@pytest.mark.parametrize("outdated_ms", [1_000, 59_000])
def test_a_marker_is_looked_for_again_while_the_log_ends_before_what_it_acknowledged(
    bench: Bench, outdated_ms: int
) -> None:
    decided(bench)
    # Somebody has finished it; to the repetition the coordinator says "fenced", so the log has to tell.
    assert bench.run(DriverOperation.FINISH).conclusion is Conclusion.RECOVERED
    bench.settle()
    bench.outdated = (OF_TASK_0, 0, bench.now_ms + outdated_ms)
    # The record that says so is lost with the ledger's tail, so it has to be finished once more.
    del bench.broker.logs[THE_LEDGER][CLAIM_INTENT_AND_MARKER:]
    verdict = bench.run(DriverOperation.RECOVER, answers={COMMIT: [90, 90]})
    assert verdict.conclusion is Conclusion.RECOVERED


def test_a_log_that_stays_shorter_than_what_it_acknowledged_is_another_one(bench: Bench) -> None:
    decided(bench)
    began_ms = bench.now_ms
    bench.outdated = (OF_TASK_0, 0, 10**9)
    verdict = bench.run(DriverOperation.FINISH, answers={COMMIT: [90]})
    assert isinstance(verdict.error, CommitLost)
    assert "Ended in a way that can no longer be read" in str(verdict.error)
    assert bench.now_ms - began_ms >= bench.settings.short_log_ms


def test_a_batch_waits_for_another_one_that_was_decided_and_cannot_be_finished(bench: Bench) -> None:
    assert isinstance(bench.commit(bench.receipts("first"), answers={COMMIT: [LOST] * 100_000}).error, CommitPending)
    verdict = bench.commit(
        bench.receipts("second", run=SECOND), bench.session(SECOND), answers={COMMIT: [LOST] * 100_000}
    )
    assert isinstance(verdict.error, CommitPending)
    assert verdict.error.name == "PKS-6015"
    assert "was decided earlier and is not finished" in str(verdict.error)
    assert "nothing of it is visible and it may run again" in str(verdict.error)
