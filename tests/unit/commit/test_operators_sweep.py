"""An operator's command aborts what is open while drivers commit: what it aborts is in no decision.

Its requests to abort may arrive at any time, also after a driver has fenced the command and goes on. So it stops the
runs of what it has listed first, and those decide nothing any more, whoever fences whom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.each_line import carry_out, operate_each_line
from kafka_sink.commit.identity import run_of_label, sink_id_of_write
from kafka_sink.commit.ledger import line_of
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.errors import CommitAborted
from kafka_sink.formats.records.scalar import decode_batch
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import SINK, Bench

# A batch of a stream; one with a label; one without a name.
STREAM, EXPORT, NAMELESS = 1, "monday", ""
FIRST, SECOND, THIRD = (run_of_label(EXPORT, nonce, LEDGER) for nonce in "abc")
ABORT, FENCE, CLAIM = "abort transaction", "fence older drivers", "claim ledger"
# Each request of a command that a commit may come before.
REQUESTS = ("list transactions", "stop runs", FENCE, CLAIM, "read ledger", ABORT)


def command(bench: Bench, sink_id: str = SINK) -> list[CommitResult]:
    script = operate_each_line(bench.settings, sink_id, DriverOperation.SWEEP, 0)
    return carry_out(script, lambda begin: bench.drive(begin(bench.now_ms)))


def prepared(bench: Bench, batch: int | str, run: str) -> list[TaskReceipt]:
    if batch == STREAM:
        return bench.receipts(batch, run=run)
    return [bench.receipt(batch, task, run=run, query="", sink_id=sink_of(batch, run)) for task in range(2)]


def sink_of(batch: int | str, run: str) -> str:
    return sink_id_of_write(SINK, run) if batch == NAMELESS else SINK


def session_of(batch: int | str, run: str) -> DriverSession:
    sink_id = sink_of(batch, run)
    return DriverSession(sink_id, run, code=line_of(sink_id, BatchKey("", batch), LEDGER).code)


def commit(bench: Bench, receipts: Sequence[TaskReceipt]) -> CommitResult:
    return bench.commit(receipts, session_of(receipts[0].key.batch_id, receipts[0].run))


def first_batch(bench: Bench, batch: int | str) -> tuple[list[TaskReceipt], DriverSession]:
    """What the run has prepared: of a batch write, or of a stream whose driver knows the ledger."""
    if batch != STREAM:
        run = FIRST if batch == EXPORT else "1" * 16
        return prepared(bench, batch, run), session_of(batch, run)
    session = bench.session()
    assert bench.commit(bench.receipts(0), session).conclusion is Conclusion.DELIVERED
    bench.settle()
    return prepared(bench, batch, session.run), session


@pytest.mark.parametrize("batch", [STREAM, EXPORT, NAMELESS])
@pytest.mark.parametrize("purpose", REQUESTS)
@pytest.mark.parametrize("which", [1, 2])
def test_a_batch_that_commits_beside_a_command_is_delivered_whole_or_not_at_all(
    bench: Bench, purpose: str, batch: int | str, which: int
) -> None:
    """Before any request of the command: its driver fences the command, and finds all of its transactions open."""
    receipts, session = first_batch(bench, batch)
    before, verdicts = sum(bench.seen()), []
    bench.before_next(purpose, lambda: verdicts.append(bench.commit(receipts, session)), which=which)
    results = command(bench)
    bench.before = None
    if not verdicts:  # there is no second request of this kind
        verdicts.append(bench.commit(receipts, session))
    assert all(result.error is None for result in results)
    if verdicts[0].error is None:
        assert sum(bench.seen()) - before == len(receipts)
        return
    assert isinstance(verdicts[0].error, CommitAborted) and sum(bench.seen()) == before
    # The repetition is another run, which began later than the list.
    run = SECOND if batch == EXPORT else "2" * 16
    assert commit(bench, prepared(bench, batch, run)).conclusion is Conclusion.DELIVERED
    assert sum(bench.seen()) - before == len(receipts)


def test_of_two_attempts_of_one_export_none_is_decided_while_both_are_about_to_be_aborted(bench: Bench) -> None:
    attempts = [prepared(bench, EXPORT, run) for run in (FIRST, SECOND)]
    verdicts: list[CommitResult] = []
    bench.before_next(ABORT, lambda: verdicts.extend(commit(bench, each) for each in attempts))
    command(bench)
    assert [type(each.error) for each in verdicts] == [CommitAborted] * 2
    assert "was aborting what this sink has open" in str(verdicts[0].error) and bench.seen() == [0, 0]
    assert commit(bench, prepared(bench, EXPORT, THIRD)).conclusion is Conclusion.DELIVERED


@pytest.mark.parametrize("batch", [STREAM, EXPORT])
def test_a_driver_that_fences_a_command_before_its_claim_decides_nothing_behind_it(
    bench: Bench, batch: int | str
) -> None:
    """The command has fenced the line; the driver fences it, claims, reads and is to decide; the command claims."""
    receipts, session = first_batch(bench, batch)
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts)
    driver, before = Paused(bench, Committer(bench.settings, session, job, bench.now_ms)), sum(bench.seen())
    bench.before_next(CLAIM, lambda: driver.run(until="write ledger record"))
    results = command(bench)
    driver.run()
    assert all(result.error is None for result in results) and driver.result is not None
    assert isinstance(driver.result.error, CommitAborted) and sum(bench.seen()) == before


def test_what_began_behind_the_list_of_a_command_is_decided_and_not_aborted(bench: Bench) -> None:
    prepared(bench, EXPORT, FIRST)
    verdicts: list[CommitResult] = []
    bench.before_next(ABORT, lambda: verdicts.append(commit(bench, prepared(bench, EXPORT, SECOND))))
    command(bench)
    assert verdicts[0].conclusion is Conclusion.DELIVERED and bench.seen() == [1, 1]


@pytest.mark.parametrize("deaths_at", ["stop runs", FENCE, CLAIM, ABORT])
def test_a_command_that_dies_stops_the_runs_that_it_has_listed_and_no_other_one(bench: Bench, deaths_at: str) -> None:
    receipts = prepared(bench, EXPORT, FIRST)
    bench.before_next(deaths_at, die)
    with pytest.raises(InterruptedError):
        command(bench)
    first = commit(bench, receipts)
    if deaths_at == "stop runs":
        assert first.conclusion is Conclusion.DELIVERED
        return
    assert isinstance(first.error, CommitAborted) and bench.seen() == [0, 0]
    assert commit(bench, prepared(bench, EXPORT, SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


def test_a_command_stops_no_query_that_is_between_two_batches(bench: Bench) -> None:
    session = bench.session()
    assert bench.commit(bench.receipts(0), session).conclusion is Conclusion.DELIVERED
    bench.settle()
    prepared(bench, STREAM, "2" * 16)  # of another run, which has died
    command(bench)
    assert bench.commit(bench.receipts(1), session).conclusion is Conclusion.DELIVERED


def test_a_stop_outlives_later_stops_and_claims_when_the_ledger_is_compacted(bench: Bench) -> None:
    """The newest record of each key stays."""
    for run in (FIRST, SECOND):
        prepared(bench, EXPORT, run)
        command(bench)
    plain = [decode_batch(entry[2]) for entry in bench.broker.logs[LEDGER, 0] if entry[0] < 0 and entry[2] is not None]
    keys = [record.key for batch in plain for record in batch.records if (record.key or b"").startswith(b"/stop/")]
    assert keys == [f"/stop/{SINK}/{run}".encode() for run in (FIRST, SECOND)]


class Paused:
    """A machine that is run up to a request, and then on: something else happens in between."""

    def __init__(self, bench: Bench, machine: Committer) -> None:
        self.result: CommitResult | None = None
        self._requests = self._run(bench, machine)

    def run(self, until: str = "") -> None:
        next((purpose for purpose in self._requests if purpose == until), None)

    def _run(self, bench: Bench, machine: Committer) -> Iterator[str]:
        """The purpose of each request before the broker gets it."""
        progress = machine.step(bench.now_ms, ())
        while progress.result is None:
            answered = []
            for request in progress.asks:
                yield request.purpose
                answered.append(bench._answer(request, {}))
            if not answered:
                assert progress.wake_at_ms is not None
                bench.now_ms = max(bench.now_ms + 1, progress.wake_at_ms)
                bench.settle()
            progress = machine.step(bench.now_ms, answered)
        self.result = progress.result


def die() -> None:
    raise InterruptedError
