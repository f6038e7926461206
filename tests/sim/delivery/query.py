"""Spark by its rules: planning with recovery, tasks, commit, Spark's own commit log; after a failure abort and restart.

A stream has one run per start. A labelled batch write (`batch.id`) is a run of its own each time it is tried. Processes
that commit may know nothing of those before them. Drivers crash at any event, executors outlive them for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from kafka_sink.delivery.committer import Committer
from kafka_sink.delivery.identity import run_hash
from kafka_sink.delivery.phase import Phase
from kafka_sink.delivery.receipt import BatchKey, TaskReceipt
from kafka_sink.delivery.session import Conclusion, DeliverySettings, DriverSession, Job, Operation, Verdict
from kafka_sink.errors import CommitLost
from tests.sim.delivery.books import Batch
from tests.sim.delivery.driver_host import DriverHost
from tests.sim.delivery.job import SparkJob
from tests.sim.delivery.plan import LEDGER, STREAM
from tests.sim.delivery.script import Life, Resume, Script
from tests.sim.delivery.stage import Stage
from tests.sim.network import ARMED_FOR_MS, Armed
from tests.sim.trace import Violation

SINK = "sink"
DELIVERED = (Conclusion.DELIVERED, Conclusion.ALREADY_DELIVERED)


# Those in which it matters most whether what is decided there is carried out, too.
PHASES = (
    *[Phase.DECIDING] * 3, *[Phase.COMMITTING] * 4, *[Phase.FINISHING] * 2, *[Phase.RECORDING] * 2, Phase.FENCING,
    Phase.READING, Phase.CLOSING, Phase.CHECKING, Phase.DISCARDING, Phase.SWEEPING, Phase.CLAIMING,
)  # fmt: skip


PAUSE_MS_MAX = 5_000


class Moment:
    """Some step of the machine in one phase: none, or so many, of its requests have been sent by then."""

    def __init__(self, pick: Random) -> None:
        self._phase = pick.choice(PHASES)
        self._steps = pick.choice((0, 0, 1, 2, 3))

    def is_now(self, phase: Phase) -> bool:
        if phase is not self._phase:
            return False
        self._steps -= 1
        return self._steps < 0


class Query:
    """One driver application. `is_second`: it came uninvited, and is not started again."""

    def __init__(self, name: str, stage: Stage, *, is_second: bool = False) -> None:
        self.name = name
        self.stage = stage
        self.is_second = is_second
        self.is_over = False
        # To be started again.
        self.is_waiting = False
        self.job: SparkJob | None = None
        self.crash_at: Moment | None = None
        self.pause_at: Moment | None = None
        self.pause_ms = 0
        self.cut_at: Moment | None = None
        self.crashes_before_spark_commits = False
        self.downtime_ms = 0
        self.operation: Operation | None = None
        self._pick: Random = stage.dice[f"query {name}"]
        self._hosts: list[DriverHost] = []
        self._starts = 0
        self._life: Life | None = None

    # ---- starts and ends ----

    @property
    def is_running(self) -> bool:
        return self._life is not None and self._life.is_alive

    @property
    def hosts(self) -> list[DriverHost]:
        return [host for host in self._hosts if host.is_alive]

    def start(self) -> None:
        if self.is_running or self.is_over:
            return
        self.is_waiting = False
        self._starts += 1
        self.run = run_hash(f"{self.name} {self._starts}")
        self.stage.note(f"{self.name} starts run {self.run}")
        script = self._stream() if self.stage.plan.kind == STREAM else self._labelled()
        self._life = Life(self.stage.loop, script, self._ended)

    def crash(self, *, is_silent: bool) -> None:
        """The driver's processes are gone; its executors notice a little later."""
        if self.is_running and self._life is not None:
            self.stage.note(f"{self.name} crashes")
            self.stage.count(f"driver crashed in {self.operation.value if self.operation else 'between'}")
            self._life.end()
            self._clean_up(is_silent=is_silent)
            self._ended("crash")

    def stop_for_good(self) -> None:
        self.is_over = True
        if self._life is not None:
            self._life.end()
        self._clean_up(is_silent=False)

    def _clean_up(self, *, is_silent: bool) -> None:
        for host in self.hosts:
            host.kill(is_silent=is_silent)
        self._hosts.clear()
        self.operation = None
        if self.job is not None:
            self.job.lose_driver()
            self.job = None

    def _ended(self, why: object) -> None:
        self._clean_up(is_silent=False)
        self.stage.note(f"{self.name} ends: {why}")
        if self.is_second or why == "finished":
            self.is_over = self.is_over or self.is_second
            return
        delay_ms = 1 + int(self._pick.expovariate(1 / self.stage.plan.restart_ms)) + self.downtime_ms
        if self.downtime_ms:
            self.stage.count("down for longer than a transaction lives")
        self.downtime_ms = 0
        self.is_waiting = True
        self.stage.loop.after(delay_ms, self.start)

    # ---- the driver's operations ----

    def _operate(
        self, session: DriverSession, operation: Operation, key: BatchKey | None, receipts: list[TaskReceipt]
    ) -> Callable[[Resume], None]:
        def begin(resume: Resume) -> None:
            stage, plan = self.stage, self.stage.plan
            host = self._host()
            settings = DeliverySettings(
                ledger_topic=LEDGER,
                generation=plan.generation,
                margin_ms=plan.options.transaction_timeout_ms // 4,
                request_timeout_ms=plan.options.request_timeout_ms,
                parallel_requests=plan.parallel_requests,
                patience_ms=plan.patience_ms,
                accept_unknown_sink=plan.kind != STREAM,
            )
            job = Job(operation, key, receipts, stage.loop.now_ms)
            self.operation = operation
            stage.note(f"{self.name} {operation.value} {key} with {len(receipts)} receipts")

            def on_verdict(verdict: Verdict) -> None:
                self.operation = None
                host.kill(is_silent=False)
                stage.verdicts.on_verdict(operation, key, receipts, verdict)
                resume(verdict)

            host.run(Committer(settings, session, job, stage.loop.now_ms), on_verdict)

        return begin

    def _host(self) -> DriverHost:
        host = self.stage.new_driver_host(self.name)
        host.on_decided = self._on_decided
        self._hosts = [*self.hosts, host]
        return host

    def forget_accidents(self) -> None:
        self.crash_at = self.pause_at = self.cut_at = None
        self.crashes_before_spark_commits = False
        self.downtime_ms = 0

    def _on_decided(self, phase: Phase) -> None:
        if self.cut_at is not None and self.cut_at.is_now(phase):
            self.cut_at = None
            self._cut_off()
        if self.pause_at is not None and self.pause_at.is_now(phase):
            self.pause_at = None
            self.stage.count("fault pause_driver")
            for host in self.hosts:
                host.pause(self.stage.loop.now_ms + self.pause_ms)
        if self.crash_at is not None and self.crash_at.is_now(phase):
            self.crash_at = None
            self.stage.count("fault crash_in_commit")
            self.stage.count(f"driver crashed while {phase.value}")
            self.crash(is_silent=self._pick.random() < 0.5)

    def _cut_off(self) -> None:
        """What the machine asks for next is lost on its way, or its answer is, or it arrives when nobody waits for it.
        Sometimes the driver then stands still until it is too late to ask again."""
        pick, now_ms = self._pick, self.stage.loop.now_ms
        direction, kind = pick.choice(
            (("request", "reset_before"), ("request", "late_request_after_reset"), ("answer", "lost_answer"))
        )
        self.stage.count("fault cut_in_commit")
        pause_ms = pick.choice((0, self.stage.plan.options.transaction_timeout_ms))
        for host in self.hosts:
            self.stage.arm(host.name, direction, Armed(kind, pick, now_ms + ARMED_FOR_MS))
            if pause_ms <= PAUSE_MS_MAX:
                # After it has been sent.
                self.stage.loop.after(0, partial(host.pause, now_ms + pause_ms))

    # ---- a stream ----

    def _stream(self) -> Script:
        error = yield from self._plan()
        if error is not None:
            return error
        session = DriverSession(SINK, self.run)
        while (batch := self.stage.next_batch()) is not None:
            if self._pick.random() < self.stage.plan.forgetful:
                session = DriverSession(SINK, self.run)
            error = yield from self._one_batch(batch, session)
            if error is not None:
                return error
            yield self._trigger_ms()
        return "finished"

    def _plan(self) -> Script:
        began_ms = self.stage.loop.now_ms
        verdict = yield self._operate(DriverSession(SINK, ""), Operation.RECOVER, None, [])
        if verdict.error is None:
            self.stage.verdicts.on_planned(began_ms)
            return None
        if isinstance(verdict.error, CommitLost):
            return (yield from self._ask_operator(verdict.error))
        return "planning failed"

    # ---- labelled batch writes ----

    def _labelled(self) -> Script:
        batch = self.stage.next_batch()
        if batch is None:
            return "finished"
        if (yield from self._plan()) is not None:
            return "planning failed"
        error = yield from self._one_batch(batch, DriverSession(SINK, self.run))
        if error is None and self._pick.random() < 0.3:
            self.stage.count("a label written again")
            self.run = run_hash(f"{self.name} {self._starts} again")
            error = yield from self._one_batch(batch, DriverSession(SINK, self.run), is_again=True)
        if error is None:
            yield self._trigger_ms()
        return error or "written"

    # ---- one batch ----

    def _one_batch(self, batch: Batch, session: DriverSession, *, is_again: bool = False) -> Script:
        self.job = SparkJob(self.stage, self.name, batch, self.run)
        messages, is_complete = yield self.job.start
        self.job = None
        if not is_complete:
            yield from self._abort(batch, messages)
            return "a task failed too often"
        if batch.key.is_first or any(receipt.transaction is not None for receipt in messages):
            verdict = yield self._operate(session, Operation.COMMIT, batch.key, messages)
            if verdict.error is not None:
                if not isinstance(verdict.error, CommitLost) or self._pick.random() < 0.5:
                    yield from self._abort(batch, messages)
                if isinstance(verdict.error, CommitLost):
                    yield from self._ask_operator(verdict.error)
                return "the commit failed"
            if verdict.conclusion not in DELIVERED:
                raise Violation("I13", f"a commit of {batch.key} ended with {verdict.conclusion.value}")
        else:
            self.stage.count("batch without rows")
        if self.crashes_before_spark_commits:
            self.crashes_before_spark_commits = False
            self.stage.count("fault crash_before_spark_commits")
            self.stage.loop.after(0, lambda: self.crash(is_silent=False))
            yield 1 << 40
        yield self._pause_ms() // 4
        if batch.is_committed and not is_again:
            self.stage.count("Spark's commit log was written by another driver")
            return "another driver has committed the batch"
        batch.is_committed = True
        self.stage.note(f"{self.name}: Spark has committed {batch.key}")
        return None

    def _abort(self, batch: Batch, receipts: list[TaskReceipt]) -> Script:
        """In a process that knows nothing, always: the one that failed is closed."""
        if any(receipt.transaction is not None for receipt in receipts):
            yield self._operate(DriverSession(SINK, self.run), Operation.ABORT, batch.key, receipts)

    # ---- a lost batch ----

    def _ask_operator(self, error: CommitLost) -> Script:
        """The same text comes again at each start until somebody chooses."""
        loss = self.stage.verdicts.open_loss(error)
        if loss is None or self.is_second or loss.said_count < 2 + self._pick.randrange(2):
            return "a batch is lost"
        choice = Operation.REPLAY if loss.is_replayed else Operation.ACCEPT
        verdict = yield self._operate(DriverSession(SINK, self.run), Operation.FINISH, None, [])
        verdict = yield self._operate(DriverSession(SINK, self.run), choice, loss.key, [])
        if verdict.conclusion is Conclusion.RESOLVED or self.stage.verdicts.is_resolved_in_ledger(loss):
            self.stage.verdicts.on_resolved(loss)
        return "resolved"

    def _trigger_ms(self) -> int:
        """Until the source has rows for the next batch."""
        if self.stage.is_healed:
            return self._pause_ms()
        return 1 + int(self._pick.expovariate(1 / self.stage.plan.trigger_ms))

    def _pause_ms(self) -> int:
        return 1 + int(self._pick.expovariate(1 / self.stage.plan.pause_ms))
