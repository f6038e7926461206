"""What a leader tells that was frozen or cut off and leads no longer: the end of the log as it was."""

import pytest

from kafka_sink.errors import CommitLost
from kafka_sink.exactly_once.session import Conclusion, DriverOperation
from tests.model.tiny_broker import LEDGER
from tests.unit.exactly_once.driver_bench import Bench

CLAIM, COMMIT = "claim ledger", "commit transaction"
SECOND = "2" * 16
CLAIM_INTENT_AND_MARKER = 3
THE_LEDGER, OF_TASK_0 = (LEDGER, 0), ("t", 0)


def decided(bench: Bench) -> None:
    """Batch 0 of the first run: nothing of it is committed yet, and its driver is gone."""
    bench.decide(bench.receipts())
    bench.settle()
    bench.asked.clear()


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
    assert bench.run(DriverOperation.RECOVER, answers={COMMIT: [90, 90]}).conclusion is Conclusion.RECOVERED


def test_a_log_that_stays_shorter_than_what_it_acknowledged_is_another_one(bench: Bench) -> None:
    decided(bench)
    began_ms = bench.now_ms
    bench.outdated = (OF_TASK_0, 0, 10**9)
    verdict = bench.run(DriverOperation.FINISH, answers={COMMIT: [90]})
    assert isinstance(verdict.error, CommitLost)
    assert "Ended in a way that can no longer be read" in str(verdict.error)
    assert bench.now_ms - began_ms >= bench.settings.short_log_ms
