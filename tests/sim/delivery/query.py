"""Simulates Spark: planning with recovery, tasks, commit, Spark's own commit log; after a failure abort and restart.

A stream has one run per start. A labelled batch write (`batch.id`) is a new run each time it is tried. A process that
commits may have no state of earlier ones. Drivers crash at any event, and executors outlive them for a while.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from random import Random

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import Line, run_of_label, run_of_query
from kafka_sink.commit.ledger import Kind, line_of
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import (
    CommitResult,
    Conclusion,
    DriverOperation,
    DriverSession,
    Job,
)
from kafka_sink.errors import CommitLost
from kafka_sink.kafka.wire.apis import FETCH
from tests.sim.delivery.books import Batch
from tests.sim.delivery.breakers import SET_BACK, UNNAMED
from tests.sim.delivery.cancelled import check_swept
from tests.sim.delivery.checkpoint import Checkpoint
from tests.sim.delivery.closings import Closings
from tests.sim.delivery.driver_host import DriverHost
from tests.sim.delivery.job import SparkJob
from tests.sim.delivery.ledger_log import ledger_entries
from tests.sim.delivery.moments import Moment
from tests.sim.delivery.plan import LABELLED, LEDGER, MANIFESTS, SINK, STREAM
from tests.sim.delivery.processes import Processes, new_session
from tests.sim.delivery.results import Asked
from tests.sim.delivery.script import Life, Resume, Script
from tests.sim.delivery.stage import Stage
from tests.sim.delivery.time_left import check_time_left
from tests.sim.network import ARMED_FOR_MS, Armed
from tests.sim.trace import Violation

DELIVERED = (Conclusion.DELIVERED, Conclusion.ALREADY_DELIVERED)


PAUSE_MS_MAX = 5_000
# Of the batches that take their time, and of those whose driver does not know since when they were planned.
LATE_SHARE, EARLY_SHARE, UNDATED_SHARE = 0.4, 0.3, 0.1
# A broker stalls while a job is cancelled.
STALL_MS = 1_500
# After the faults, until one more batch is committed. Most seeds need one or two.
STARTS_MAX = 100
_FOREIGN_RECORD = "written without a transaction"
# The text if the query was delivered under another name. Without a record of it the user knows the name.
_OTHER_NAME = re.compile(r"[Ss]et sink\.id=(\S+) and start|has no record of sink")


class Query:
    """One driver application. `is_second`: it runs beside the first, on the same checkpoint, only once."""

    def __init__(self, name: str, stage: Stage, checkpoint: Checkpoint, *, is_second: bool = False) -> None:
        self.name = name
        self.stage = stage
        self.checkpoint = checkpoint
        self.processes = Processes(stage, name)
        self.closings = Closings(self)
        self.is_second = is_second
        self.is_over = False
        # Whether it will be started again.
        self.is_waiting = False
        self.job: SparkJob | None = None
        self.crash_at: Moment | None = None
        self.pause_at: Moment | None = None
        self.pause_ms = 0
        self.cut_at: Moment | None = None
        self.fence_at: Moment | None = None
        self.leader_lost_at: Moment | None = None
        self.leader_lost_ms = 0
        self.leader_away_at: Moment | None = None
        self.crashes_before_spark_commits = False
        self.cancels_next_job = False
        self.downtime_ms = 0
        self.operation: DriverOperation | None = None
        # Ends the operation without a result: its process died.
        self._on_process_died: Callable[[], None] | None = None
        self._waits: Random = stage.dice[f"waits {name}"]
        self._deaths: Random = stage.dice[f"process deaths {name}"]
        self._pick: Random = stage.dice[f"query {name}"]
        self._hosts: list[DriverHost] = []
        self._starts = 0
        self._starts_in_vain = self._committed = 0
        # Its last operation was refused by a foreign record, which nobody repairs before an open transaction has ended.
        self._waits_for_repair = False
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
        self._check_progress()
        self.run = self._new_run(self.checkpoint.next_batch() if self.stage.plan.kind == LABELLED else None)
        self.stage.note(f"{self.name} starts run {self.run}")
        scripts = {STREAM: self._stream, UNNAMED: self._unnamed}
        script = scripts.get(self.stage.plan.kind, self._labelled)()
        self._life = Life(self.stage.loop, script, self._ended)

    def _check_progress(self) -> None:
        """A query that is started again and again reaches the limit of events as well, but only after some minutes."""
        committed = sum(batch.is_committed for batch in self.checkpoint.batches)
        is_in_vain = self.stage.is_healed and committed == self._committed
        if is_in_vain and self._waits_for_repair:
            self._waits_for_repair = False
            return
        self._starts_in_vain, self._committed = (self._starts_in_vain + 1 if is_in_vain else 0), committed
        if self._starts_in_vain > STARTS_MAX:
            raise Violation("I12", f"{self.name} was started {STARTS_MAX} times after the faults and commits nothing")

    def _new_run(self, batch: Batch | None, more: str = "") -> str:
        """The run of a named batch write contains the name, as in planning."""
        unique = f"{self.name} {self._starts}{more}"
        if batch is None or not batch.key.is_label:
            return run_of_query(unique)
        return run_of_label(str(batch.key.batch_id), unique, LEDGER)

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
        self.closings.forget_all()
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
        may_be_decided: bool = True,
        has_late_tasks: bool = False,
        planned_ms: int | None = None,
    ) -> Callable[[Resume], None]:
        key = None if batch is None else batch.key
        asked = Asked(operation, session.line, session.run, batch, receipts)

        def begin(resume: Resume) -> None:
            life = self._life

            def go_on(session: DriverSession) -> None:
                if life is self._life and self.is_running:
                    start(session, resume)

            self.closings.wait(session, go_on)

        def start(session: DriverSession, resume: Resume) -> None:
            stage = self.stage
            host = self._host()
            known = {
                "may_be_decided": may_be_decided,
                "has_late_tasks": has_late_tasks,
                "may_close_later": stage.plan.closes_later,
                "age_max_ms": None if planned_ms is None else stage.loop.now_ms - planned_ms,
            }
            manifest = None
            if operation is DriverOperation.COMMIT and stage.plan.has_manifests:
                manifest = Manifest(MANIFESTS, 0, session.named_sink_id or session.sink_id)
            job = Job(operation, key, receipts, stage.loop.now_ms, manifest=manifest, **known)
            if operation is DriverOperation.COMMIT:
                stage.lost_tails.on_commit(receipts)
                stage.frozen_brokers.on_commit()
            self.operation = operation
            stage.note(f"{self.name} {operation.value} {batch} with {len(receipts)} receipts")

            def on_process_died() -> None:
                self.operation = self._on_process_died = None
                self.processes.forget(session)
                stage.note(f"{self.name}: the process of {operation.value} died")
                stage.loop.after(1, lambda: resume(None))

            self._on_process_died = on_process_died

            def on_result(result: CommitResult) -> None:
                if _FOREIGN_RECORD in str(result.error):
                    self._waits_for_repair = True
                    stage.count(f"{operation.value}: refused by a foreign record")
                    stage.loop.after(self._pause_ms(), stage.repair_ledger)
                self.operation = self._on_process_died = None
                host.kill(is_silent=False)
                if result.error is not None:
                    self.processes.forget(session)
                stage.results.on_result(asked, result)
                stage.commands.check_refused(asked.run, result.error)
                if result.closing is not None:
                    self.closings.begin(self.stage.settings, session, result.closing, self._host())
                resume(result)

            host.run(Committer(self.stage.settings, session, job, stage.loop.now_ms), on_result)

        return begin

    def _session(self, batch: Batch, *, is_forgetful: bool = False) -> DriverSession:
        line = line_of(self.stage.sink_id(batch.key, self.run), batch.key, LEDGER)
        return self.processes.session(
            line, self.stage.named_sink_id(batch.key, self.run), self.run, is_forgetful=is_forgetful
        )

    def _host(self) -> DriverHost:
        host = self.stage.new_driver_host(self.name)
        host.on_decided = self._on_decided
        self._hosts = [*self.hosts, host]
        return host

    def end_process(self) -> bool:
        was_of_use = self.processes.end_one()
        self.closings.end_with_processes()
        return was_of_use

    def forget_accidents(self) -> None:
        self.crash_at = self.pause_at = self.cut_at = self.leader_lost_at = self.fence_at = None
        self.leader_away_at = None
        self.crashes_before_spark_commits = self.cancels_next_job = False
        self.downtime_ms = 0

    def _on_decided(self, phase: Phase) -> None:
        if phase is Phase.DECIDING:
            check_time_left(self.stage, [host.machine for host in self.hosts if host.machine is not None])
        if phase is Phase.DISCARDING:
            for machine in [host.machine for host in self.hosts if host.machine is not None]:
                self.stage.frozen_brokers.check_refused(machine)
        if phase is Phase.CHECKING:
            machines = [host.machine for host in self.hosts if host.machine is not None]
            for machine in machines:
                self.stage.frozen_brokers.on_checking(machine)
            prepared = [one.transaction for machine in machines for one in machine._receipts]
            self.stage.books.checked.update(one[:3] for one in prepared if one is not None)
        self.stage.commands.on_step(phase)
        if self.cut_at is not None and self.cut_at.is_now(phase):
            self.cut_at = None
            self._cut_off()
        if self.fence_at is not None and self.fence_at.is_now(phase):
            self.fence_at = None
            self._fence_while_it_reads()
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
            if not self._loses_process():
                self.stage.count(f"driver crashed while {phase.value}")
                self.crash(is_silent=self._pick.random() < 0.5)

        if self.leader_away_at is not None and self.leader_away_at.is_now(phase):
            self.leader_away_at = None
            if self.stage.lose_leader_for_long(self._pick) and not self._loses_process():
                self.crash(is_silent=self._pick.random() < 0.5)

    def _loses_process(self) -> bool:
        """Of a batch write, sometimes only the process that commits dies. The driver lives, and Spark has it aborted in
        another process."""
        is_of_write = self.stage.plan.kind in (UNNAMED, LABELLED) and self.operation is DriverOperation.COMMIT
        if not is_of_write or self._on_process_died is None or self._deaths.random() < 0.4:
            return False
        self.stage.count("only the process that commits died")
        for host in self.hosts:
            host.kill(is_silent=self._deaths.random() < 0.5)
        self._hosts.clear()
        self._on_process_died()
        return True

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

    def _fence_while_it_reads(self) -> None:
        """The end of the log is told, the records come later. In between the driver's id is taken."""
        stage, pick = self.stage, self._pick
        stage.count("fault fence_in_read")
        for host in self.hosts:
            until_ms = stage.loop.now_ms + ARMED_FOR_MS
            stage.arm(host.name, "request", Armed("late_request", pick, until_ms, FETCH.key))
        stage.loop.after(pick.randrange(20, 200), stage.fence_drivers)

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
        yield from self._close_last()
        return "finished"

    def _close_last(self) -> Script:
        """There is no next commit that closes the last decision. An operator's command does. It may be a decision whose
        marker is still on its way."""
        yield self.closings.wait_for_all
        key = self.checkpoint.batches[-1].key
        entries = ledger_entries(self.stage.results.core, self.stage.assumptions.lost_markers)
        newest = next((one for one in reversed(entries) if one.record.key == key), None)
        if key.is_named and newest is not None and (newest.record.kind is Kind.INTENT or not newest.is_committed):
            self.stage.count("last decision closed by a command")
            session = new_session(line_of(newest.record.sink_id, key, LEDGER), self.stage.named_sink_id(key))
            yield self._operate(session, DriverOperation.FINISH, None, [])

    def _plan(self) -> Script:
        """Planning does not know its query: it looks at every query under the sink's name, or at one label."""
        name = self.stage.name_of(self.checkpoint.query_id, self.run)
        batch = self.checkpoint.next_batch() if self.stage.plan.kind == LABELLED else None
        line = Line(name) if batch is None else line_of(name, batch.key, LEDGER)
        result = yield self._operate(new_session(line), DriverOperation.RECOVER, None, [])
        if result.error is None:
            self.stage.results.on_planned(self.checkpoint.query_id)
            return None
        if isinstance(result.error, CommitLost):
            return (yield from self._ask_operator(result.error))
        return "planning failed"

    # ---- labelled batch writes ----

    def _labelled(self) -> Script:
        batch = self.checkpoint.next_batch()
        if batch is None:
            yield from self._close_last()
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
        if (yield from self._plan_unnamed()) is not None:
            return "planning failed"
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

    def _plan_unnamed(self) -> Script:
        """Finishes what other writes have decided. It sometimes closes their decisions as well, as if they were old:
        that may fence a driver that is alive."""
        result = yield self._operate(new_session(Line("")), DriverOperation.RECOVER, None, [])
        for record in result.others:
            self.stage.count("open decision of another write")
            if self._deaths.random() < 0.5:
                line = line_of(record.sink_id, record.key, LEDGER)
                closed = yield self._operate(new_session(line), DriverOperation.FINISH, None, [])
                self.stage.count("decision of another write closed" if closed.error is None else "not closed")
        return None if result.error is None else "planning failed"

    # ---- one batch ----

    def _one_batch(self, batch: Batch, *, is_forgetful: bool, is_again: bool = False) -> Script:
        self.job = job = SparkJob(self.stage, self.name, batch, self.run)
        self.stage.frozen_brokers.on_job()
        planned_ms = self._planned_ms()
        if self.cancels_next_job:
            self.cancels_next_job = False
            self.stage.stall(STALL_MS)
            self.stage.loop.after(self._pick.randrange(STALL_MS), job.cancel)
        spark_ms = self.stage.commands.on_job()
        messages, is_complete = yield job.start
        if spark_ms:
            yield spark_ms
        self.job = None
        if job.is_cancelled:
            result = yield self._abort_cancelled(batch, messages)
            check_swept(self.stage, self.run, result)
            return "the job was cancelled"
        if not is_complete:
            yield from self._abort(batch, messages, is_complete=False)
            return "a task failed too often"
        late_ms = self._late_ms()
        if late_ms:
            yield late_ms
        is_recorded = batch.key.is_first or (self.stage.plan.has_manifests and batch.key.is_named)
        if is_recorded or any(receipt.transaction is not None for receipt in messages):
            session = self._session(batch, is_forgetful=is_forgetful)
            result = yield self._operate(session, DriverOperation.COMMIT, batch, messages, planned_ms=planned_ms)
            if result is None or result.error is not None:
                return (yield from self._on_commit_failed(batch, messages, result))
            if result.conclusion not in DELIVERED:
                raise Violation("I13", f"a commit of {batch} ended with {result.conclusion.value}")
            self.stage.results.on_delivered(batch, result)
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

    def _planned_ms(self) -> int | None:
        """A batch is planned before its tasks begin, sometimes long before: behind a long shuffle."""
        pick, now_ms = self._waits, self.stage.loop.now_ms
        if pick.random() < UNDATED_SHARE:
            return None
        is_early = self.stage.plan.is_late and pick.random() < EARLY_SHARE
        return now_ms - pick.randrange(2 * self.stage.plan.options.transaction_timeout_ms) if is_early else now_ms

    def _late_ms(self) -> int:
        """The time after the last row: for a task that writes none, a frozen host, planning in the commit's process."""
        if self.stage.is_healed or not self.stage.plan.is_late or self._waits.random() >= LATE_SHARE:
            return 0
        self.stage.count("commit long after the last row")
        return 1 + self._waits.randrange(self.stage.plan.options.transaction_timeout_ms)

    def _on_commit_failed(self, batch: Batch, messages: list[TaskReceipt], result: CommitResult | None) -> Script:
        error = None if result is None else result.error
        is_aborted = not isinstance(error, CommitLost) or self._pick.random() < 0.5
        if is_aborted and (yield from self._abort(batch, messages)) is Conclusion.RECOVERED:
            # Said to be visible, and not to be written again.
            batch.is_committed = batch.must_be_there = True
            return "finished by its abort"
        if isinstance(error, CommitLost) and self.stage.plan.kind != UNNAMED:
            yield from self._ask_operator(error)
        elif (found := _OTHER_NAME.search(str(error))) is not None:
            self.stage.count("commit: the ledger has another name for the query")
            self.stage.rename(self.checkpoint.query_id, found[1] or SINK)
        elif self.stage.results.is_refusal(str(error)):
            self.stage.count("commit: refused after the checkpoint was set back")
            self.stage.on_refused(self)
        return "the commit failed"

    def _abort(self, batch: Batch, receipts: list[TaskReceipt], *, is_complete: bool = True) -> Script:
        """Runs in a process without state, since the failed one is closed; if processes are reused, in any. Spark
        begins no commit before each task has ended, but the run of a query may have decided another batch."""
        has_transactions = any(receipt.transaction is not None for receipt in receipts)
        is_own_run = self.stage.plan.kind in (UNNAMED, LABELLED)
        if not (has_transactions or is_own_run):
            return None
        session = self._session(batch, is_forgetful=True)
        may_be_decided = has_transactions and (is_complete or not is_own_run)
        result = yield self._operate(
            session, DriverOperation.ABORT, batch, receipts,
            may_be_decided=may_be_decided, has_late_tasks=not is_complete,
        )  # fmt: skip
        return None if result is None else result.conclusion

    def _abort_cancelled(self, batch: Batch, receipts: list[TaskReceipt]) -> Callable[[Resume], None]:
        """Of a batch write, whose run has no other batch: also if no task has given a receipt."""
        session = self._session(batch, is_forgetful=True)
        return self._operate(session, DriverOperation.ABORT, batch, receipts, may_be_decided=False, has_late_tasks=True)

    # ---- a lost batch ----

    def _ask_operator(self, error: CommitLost) -> Script:
        """Each start reports the same loss again until an operator chooses."""
        key = BatchKey(error.query_id or "", error.batch_id)  # type: ignore[arg-type]  # a loss names its batch
        loss = self.stage.results.open_loss(key)
        if loss is None or self.is_second or loss.said_count < 2 + self._pick.randrange(2):
            return "a batch is lost"
        choice = DriverOperation.REPLAY if loss.is_replayed else DriverOperation.ACCEPT
        line, named_sink_id = line_of(self.stage.sink_id(key, ""), key, LEDGER), self.stage.named_sink_id(key)
        result = yield self._operate(new_session(line, named_sink_id), DriverOperation.FINISH, None, [])
        result = yield self._operate(new_session(line, named_sink_id), choice, loss.batch, [])
        if result.conclusion is Conclusion.RESOLVED or self.stage.results.is_resolved_in_ledger(loss):
            self.stage.results.on_resolved(loss)
        return "resolved"

    def _trigger_ms(self) -> int:
        """The time until the source has rows for the next batch."""
        if self.stage.is_healed:
            return self._pause_ms()
        return 1 + int(self._pick.expovariate(1 / self.stage.plan.trigger_ms))

    def _pause_ms(self) -> int:
        return 1 + int(self._pick.expovariate(1 / self.stage.plan.pause_ms))
