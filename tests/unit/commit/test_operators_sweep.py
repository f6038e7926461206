"""An operator's command aborts what is open while drivers commit: what it aborts is in no decision.

Its requests to abort may arrive at any time after it was fenced by a driver that goes on, so that driver must not
decide until it is told that all of them are answered.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import code_of_label, run_of_label
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.commit.takeover import Claim
from kafka_sink.errors import CommitAborted
from tests.support.tiny_broker import ONGOING
from tests.unit.commit.driver_bench import SINK, Bench

SWEEP, LABEL = "0123456789abcdef", "monday"
FIRST, SECOND = run_of_label(LABEL, "a"), run_of_label(LABEL, "b")
OTHER_RUN = "2" * 16
ABORT = "abort transaction"


class Operator:
    """As `pykafka-sink transactions --abort` does it (SinkClient.run_for_each), in steps."""

    def __init__(self, bench: Bench, codes: tuple[str, ...] = ()) -> None:
        self._bench = bench
        self._codes = codes
        self._ids = frozenset(name for name, known in bench.broker.transactions.items() if known[2] == ONGOING)

    def fence_labels(self) -> None:
        for code in self._codes:
            assert self._run(Job(DriverOperation.FINISH, sweep=SWEEP), code).error is None

    def sweep(self) -> CommitResult:
        codes = frozenset(self._codes)
        return self._run(Job(DriverOperation.SWEEP, sweep=SWEEP, codes=codes, listed_ids=self._ids))

    def tell_the_end(self) -> None:
        for code in ("", *self._codes):
            told = Claim(self._bench.settings, DriverSession(SINK, code=code), 0, SWEEP, is_over=True)
            assert self._bench.drive(SingleStep(told, 10**9)).offset is not None

    def _run(self, job: Job, code: str = "") -> CommitResult:
        session = DriverSession(SINK, code=code)
        found: CommitResult = self._bench.drive(Committer(self._bench.settings, session, job, self._bench.now_ms))
        return found


def prepared(bench: Bench, run: str) -> list[TaskReceipt]:
    return bench.receipts(LABEL, run=run, query="")


def commit(bench: Bench, receipts: list[TaskReceipt]) -> CommitResult:
    return bench.commit(receipts, bench.session(receipts[0].run, receipts[0].key))


def test_an_export_is_not_decided_while_an_operator_is_about_to_abort_it(bench: Bench) -> None:
    """Its driver fences the command, which has fenced it before, and finds all of its transactions open."""
    receipts = prepared(bench, FIRST)
    operator = Operator(bench, (code_of_label(LABEL),))
    operator.fence_labels()
    bench.before_next("commit transaction", lambda: operator.sweep())
    refused = commit(bench, receipts)
    bench.before = None
    assert isinstance(refused.error, CommitAborted) and "was aborting what this sink has open" in str(refused.error)
    assert operator.sweep().error is None
    assert bench.seen() == [0, 0]
    assert commit(bench, prepared(bench, SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


def test_when_all_is_answered_an_export_of_which_nothing_was_aborted_is_delivered(bench: Bench) -> None:
    operator = Operator(bench, (code_of_label(LABEL),))
    receipts = prepared(bench, FIRST)  # began behind the list
    operator.fence_labels()
    operator.sweep()
    operator.tell_the_end()
    assert commit(bench, receipts).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


def test_a_command_that_goes_on_for_long_leaves_what_began_after_its_list(bench: Bench) -> None:
    """The first attempt fails because of it, and the second is delivered, and is not among what the command aborts."""
    receipts = prepared(bench, FIRST)
    operator = Operator(bench, (code_of_label(LABEL),))
    operator.fence_labels()
    assert isinstance(commit(bench, receipts).error, CommitAborted)
    again = prepared(bench, SECOND)
    bench.before_next("commit transaction", lambda: operator.sweep())
    assert commit(bench, again).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


@pytest.mark.parametrize("is_told", [False, True])
def test_a_stream_that_fences_the_command_does_not_decide_what_it_aborts(bench: Bench, is_told: bool) -> None:
    """The request to abort is on its way when the stream's driver fences the command, looks and would decide."""
    session = bench.session()
    assert bench.commit(bench.receipts(0), session).conclusion is Conclusion.DELIVERED
    bench.settle()
    receipts = bench.receipts(1)
    operator, verdicts = Operator(bench), []
    act: Callable[[], object] = lambda: verdicts.append(bench.commit(receipts, session))  # noqa: E731
    bench.before_next(ABORT, act)
    swept = operator.sweep()
    assert isinstance(verdicts[0].error, CommitAborted)
    assert swept.error is None and bench.seen() == [1, 1]
    if is_told:
        operator.tell_the_end()
    # The next run: the one that failed has claimed since, and its tasks began later than the list.
    again = bench.commit(bench.receipts(1, run=OTHER_RUN), bench.session(OTHER_RUN))
    assert again.conclusion is Conclusion.DELIVERED and bench.seen() == [2, 2]


def test_the_end_of_one_command_is_not_that_of_another(bench: Bench) -> None:
    receipts = prepared(bench, FIRST)
    operator = Operator(bench, (code_of_label(LABEL),))
    operator.fence_labels()
    other = Claim(bench.settings, DriverSession(SINK, code=code_of_label(LABEL)), 0, "another", is_over=True)
    bench.drive(SingleStep(other, 10**9))
    assert isinstance(commit(bench, receipts).error, CommitAborted)
