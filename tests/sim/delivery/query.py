"""Simulates Spark: planning with recovery, tasks, commit, Spark's own commit log; after a failure abort and restart.

A stream has one run per start. A labelled batch write (`batch.id`) is a new run each time it is tried. A process that
commits may have no state of earlier ones. Drivers crash at any event, and executors outlive them for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from kafka_sink.errors import CommitLost
from kafka_sink.exactly_once.committer import Committer
from kafka_sink.exactly_once.identity import run_hash, run_of_label
from kafka_sink.exactly_once.phase import Phase
from kafka_sink.exactly_once.receipt import BatchKey, TaskReceipt
from kafka_sink.exactly_once.session import (
    CommitResult,
    Conclusion,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
    OnMismatch,
)
from tests.sim.delivery.books import Batch
from tests.sim.delivery.breakers import SET_BACK, UNNAMED
from tests.sim.delivery.cancelled import check_swept
from tests.sim.delivery.checkpoint import Checkpoint
from tests.sim.delivery.driver_host import DriverHost
from tests.sim.delivery.job import SparkJob
from tests.sim.delivery.moments import Moment
from tests.sim.delivery.plan import LABELLED, LEDGER, SINK, STREAM
from tests.sim.delivery.processes import Processes, new_session
from tests.sim.delivery.script import Life, Resume, Script
from tests.sim.delivery.stage import Stage
from tests.sim.delivery.verdicts import Asked
from tests.sim.network import ARMED_FOR_MS, Armed
from tests.sim.trace import Violation

DELIVERED = (Conclusion.DELIVERED, Conclusion.ALREADY_DELIVERED)


PAUSE_MS_MAX = 5_000
# A broker stalls while a job is cancelled.
STALL_MS = 1_500


class Query:
    """One driver application. `is_second`: it runs beside the first, on the same checkpoint, only once."""

    def __init__(self, name: str, stage: Stage, checkpoint: Checkpoint, *, is_second: bool = False) -> None:
        self.name = name
        self.stage = stage
        self.checkpoint = checkpoint
        self.processes = Processes(stage, name)
        self.is_second = is_second
        self.is_over = False
        # Whether it will be started again.
        self.is_waiting = False
        self.job: SparkJob | None = None
        self.crash_at: Moment | None = None
        self.pause_at: Moment | None = None
        self.pause_ms = 0
        self.cut_at: Moment | None = None
        self.leader_lost_at: Moment | None = None
        self.leader_lost_ms = 0
        self.crashes_before_spark_commits = False
        self.cancels_next_job = False
        self.downtime_ms = 0
        self.operation: DriverOperation | None = None
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
        self.run = self._new_run(self.checkpoint.next_batch() if self.stage.plan.kind == LABELLED else None)
        self.stage.note(f"{self.name} starts run {self.run}")
        scripts = {STREAM: self._stream, UNNAMED: self._unnamed}
        script = scripts.get(self.stage.plan.kind, self._labelled)()
        self._life = Life(self.stage.loop, script, self._ended)

    def _new_run(self, batch: Batch | None, more: str = "") -> str:
        """The run of a named batch write contains the name, as in planning."""
        unique = f"{self.name} {self._starts}{more}"
        return run_hash(unique) if batch is None else run_of_label(str(batch.key.batch_id), unique)

    def crash(self, *, is_silent: bool) -> None:
        """The driver's processes are gone; its executors notice a little later."""
        if self.is_running and self._life is not None:
            self.stage.note(f"{self.name} crashes")
            self.stage.count(f"driver crashed in {self.operation.value if self.operation else 'between'}")
            self._life.end()
            self.processes.end_all()
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
        self,
        session: DriverSession,
        operation: DriverOperation,
        batch: Batch | None,
        receipts: list[TaskReceipt],
        *,
        has_late_tasks: bool = False,
    ) -> Callable[[Resume], None]:
        key = None if batch is None else batch.key
        asked = Asked(operation, session.sink_id, session.run, batch, receipts)

        def begin(resume: Resume) -> None:
            stage = self.stage
            host = self._host()
            job = Job(operation, key, receipts, stage.loop.now_ms, has_late_tasks)
            self.operation = operation
            stage.note(f"{self.name} {operation.value} {batch} with {len(receipts)} receipts")

            def on_verdict(verdict: CommitResult) -> None:
                self.operation = None
                host.kill(is_silent=False)
                if verdict.error is not None:
                    self.processes.forget(session)
                stage.verdicts.on_verdict(asked, verdict)
                resume(verdict)

            host.run(Committer(self._settings(), session, job, stage.loop.now_ms), on_verdict)

        return begin

    def _settings(self) -> DeliverySettings:
        plan = self.stage.plan
        return DeliverySettings(
            ledger_topic=LEDGER,
            transaction_version=plan.transaction_version,
            margin_ms=plan.options.transaction_timeout_ms // 4,
            request_timeout_ms=plan.options.request_timeout_ms,
            parallel_requests=plan.parallel_requests,
            patience_ms=plan.patience_ms,
            accept_unknown_sink=plan.kind != STREAM,
            # If a row's topic is random, the counts per topic do not identify the rows.
            on_mismatch=OnMismatch(plan.replay_mismatch) if plan.breakers else OnMismatch.SKIP,
        )

    def _session(self, batch: Batch, *, is_forgetful: bool = False) -> DriverSession:
        sink_id = self.stage.sink_id(batch.key, self.run)
        return self.processes.session(sink_id, self.stage.named_sink_id(batch.key), self.run, is_forgetful=is_forgetful)

    def _host(self) -> DriverHost:
        host = self.stage.new_driver_host(self.name)
        host.on_decided = self._on_decided
        self._hosts = [*self.hosts, host]
        return host

    def forget_accidents(self) -> None:
        self.crash_at = self.pause_at = self.cut_at = self.leader_lost_at = None
        self.crashes_before_spark_commits = self.cancels_next_job = False
        self.downtime_ms = 0

    def _on_decided(self, phase: Phase) -> None:
        if self.cut_at is not None and self.cut_at.is_now(phase):
            self.cut_at = None
            self._cut_off()
        if self.leader_lost_at is not None and self.leader_lost_at.is_now(phase):
            self.leader_lost_at = None
            if self.stage.leaders.lose(self._pick, self.leader_lost_ms):
                self.stage.count("fault no_leader_in_commit")
                self.stage.count(f"leader lost while {phase.value}")
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
        """The machine's next request is lost, or its answer is, or the request arrives after the driver has given it
        up. Sometimes the driver is then paused until it is too late for a retry."""
        pick, now_ms = self._pick, self.stage.loop.now_ms
        direction, kind = pick.choice(
            (("request", "reset_before"), ("request", "late_request_after_reset"), ("answer", "lost_answer"))
        )
        self.stage.count("fault cut_in_commit")
        pause_ms = pick.choice((0, self.stage.plan.options.transaction_timeout_ms))
        for host in self.hosts:
            self.stage.arm(host.name, direction, Armed(kind, pick, now_ms + ARMED_FOR_MS))
            if pause_ms <= PAUSE_MS_MAX:
                # The pause begins after the request has been sent.
                self.stage.loop.after(0, partial(host.pause, now_ms + pause_ms))

    # ---- a stream ----

    def _stream(self) -> Script:
        error = yield from self._plan()
        if error is not None:
            return error
        while (batch := self.checkpoint.next_batch()) is not None:
            is_forgetful = self._pick.random() < self.stage.plan.forgetful
            error = yield from self._one_batch(batch, is_forgetful=is_forgetful)
            if error is not None:
                return error
            yield self._trigger_ms()
        return "finished"

    def _plan(self) -> Script:
        """Planning does not know its query: it looks at everything under the sink's name."""
        verdict = yield self._operate(new_session(SINK, "", ""), DriverOperation.RECOVER, None, [])
        if verdict.error is None:
            self.stage.verdicts.on_planned(self.checkpoint.query_id)
            return None
        if isinstance(verdict.error, CommitLost):
            return (yield from self._ask_operator(verdict.error))
        return "planning failed"

    # ---- labelled batch writes ----

    def _labelled(self) -> Script:
        batch = self.checkpoint.next_batch()
        if batch is None:
            return "finished"
        if (yield from self._plan()) is not None:
            return "planning failed"
        error = yield from self._one_batch(batch, is_forgetful=True)
        if error is None and self._pick.random() < 0.3:
            self.stage.count("a label written again")
            self.run = self._new_run(batch, " again")
            error = yield from self._one_batch(self._again(batch), is_forgetful=True, is_again=True)
        if error is None:
            yield self._trigger_ms()
        return error or "written"

    def _again(self, batch: Batch) -> Batch:
        """The same write again, or another one under the same name."""
        if self.stage.plan.kind != LABELLED or SET_BACK not in self.stage.plan.breakers or self._pick.random() < 0.4:
            return batch
        self.stage.count("a label written again with other rows")
        return self.checkpoint.with_other_rows(batch)

    # ---- batch writes without a name ----

    def _unnamed(self) -> Script:
        """Each try is an independent write; after a failure a user writes again."""
        batch = self.checkpoint.next_batch()
        if batch is None:
            return "finished"
        if batch.was_tried:
            batch = self.checkpoint.renewed(batch)
        batch.was_tried = True
        error = yield from self._one_batch(batch, is_forgetful=True)
        if error is None:
            yield self._trigger_ms()
        return error or "written"

    # ---- one batch ----

    def _one_batch(self, batch: Batch, *, is_forgetful: bool, is_again: bool = False) -> Script:
        self.job = job = SparkJob(self.stage, self.name, batch, self.run)
        if self.cancels_next_job:
            self.cancels_next_job = False
            self.stage.stall(STALL_MS)
            self.stage.loop.after(self._pick.randrange(STALL_MS), job.cancel)
        messages, is_complete = yield job.start
        self.job = None
        if job.is_cancelled:
            verdict = yield self._abort_cancelled(batch, messages)
            check_swept(self.stage, self.run, verdict)
            return "the job was cancelled"
        if not is_complete:
            yield from self._abort(batch, messages)
            return "a task failed too often"
        if batch.key.is_first or any(receipt.transaction is not None for receipt in messages):
            operation = (
                DriverOperation.COMMIT if self.stage.plan.kind != UNNAMED else DriverOperation.COMMIT_WITHOUT_LEDGER
            )
            session = self._session(batch, is_forgetful=is_forgetful)
            verdict = yield self._operate(session, operation, batch, messages)
            if verdict.error is not None:
                return (yield from self._on_commit_failed(batch, messages, verdict))
            if verdict.conclusion not in DELIVERED:
                raise Violation("I13", f"a commit of {batch} ended with {verdict.conclusion.value}")
            self.stage.verdicts.on_delivered(batch, verdict)
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
        batch.must_be_there = batch.must_be_there or not batch.excuse
        self.checkpoint.on_went_on(batch)
        self.stage.note(f"{self.name}: Spark has committed {batch}")
        return None

    def _on_commit_failed(self, batch: Batch, messages: list[TaskReceipt], verdict: CommitResult) -> Script:
        error = verdict.error
        if not isinstance(error, CommitLost) or self._pick.random() < 0.5:
            yield from self._abort(batch, messages)
        if isinstance(error, CommitLost):
            yield from self._ask_operator(error)
        elif self.stage.verdicts.is_refusal(str(error)):
            self.stage.count("commit: refused after the checkpoint was set back")
            self.stage.on_refused(self)
        return "the commit failed"

    def _abort(self, batch: Batch, receipts: list[TaskReceipt]) -> Script:
        """Runs in a process without state, since the failed one is closed; if processes are reused, in any."""
        if any(receipt.transaction is not None for receipt in receipts):
            operation = (
                DriverOperation.ABORT if self.stage.plan.kind != UNNAMED else DriverOperation.ABORT_WITHOUT_LEDGER
            )
            yield self._operate(self._session(batch, is_forgetful=True), operation, batch, receipts)

    def _abort_cancelled(self, batch: Batch, receipts: list[TaskReceipt]) -> Callable[[Resume], None]:
        """Of a batch write, whose run has no other batch: also if no task has given a receipt."""
        has_decided = self.stage.plan.kind != UNNAMED and any(receipt.transaction is not None for receipt in receipts)
        operation = DriverOperation.ABORT if has_decided else DriverOperation.ABORT_WITHOUT_LEDGER
        session = self._session(batch, is_forgetful=True)
        return self._operate(session, operation, batch, receipts, has_late_tasks=True)

    # ---- a lost batch ----

    def _ask_operator(self, error: CommitLost) -> Script:
        """Each start reports the same loss again until an operator chooses."""
        key = BatchKey(error.query_id or "", error.batch_id)  # type: ignore[arg-type]  # a loss names its batch
        loss = self.stage.verdicts.open_loss(key)
        if loss is None or self.is_second or loss.said_count < 2 + self._pick.randrange(2):
            return "a batch is lost"
        choice = DriverOperation.REPLAY if loss.is_replayed else DriverOperation.ACCEPT
        sink_id, named_sink_id = self.stage.sink_id(key, ""), self.stage.named_sink_id(key)
        verdict = yield self._operate(new_session(sink_id, named_sink_id, ""), DriverOperation.FINISH, None, [])
        verdict = yield self._operate(new_session(sink_id, named_sink_id, ""), choice, loss.batch, [])
        if verdict.conclusion is Conclusion.RESOLVED or self.stage.verdicts.is_resolved_in_ledger(loss):
            self.stage.verdicts.on_resolved(loss)
        return "resolved"

    def _trigger_ms(self) -> int:
        """The time until the source has rows for the next batch."""
        if self.stage.is_healed:
            return self._pause_ms()
        return 1 + int(self._pick.expovariate(1 / self.stage.plan.trigger_ms))

    def _pause_ms(self) -> int:
        return 1 + int(self._pick.expovariate(1 / self.stage.plan.pause_ms))
