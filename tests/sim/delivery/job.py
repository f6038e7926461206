"""The tasks of a micro-batch in one run, as Spark schedules them: retries, speculation, forgotten attempts.

Each run divides the rows anew, among another number of tasks. The first attempt of a task that succeeds wins; nobody
hears what the others report after that, or after their driver is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.receipt import TaskReceipt
from tests.sim.delivery.books import Attempt, Batch
from tests.sim.delivery.executor import Executor
from tests.sim.delivery.script import Resume

if TYPE_CHECKING:
    from tests.sim.delivery.stage import Stage

FAILURES_MAX = 4
ZOMBIE_MS_MAX = 20_000
# Spark destroys the worker of a cancelled task within 2 s plus spark.python.task.killTimeout.
DESTROYED_MS_MAX = 4_000
CLOSED_SHARE = 0.4
SLOW_MS_MAX = 20_000
# An executor without a heartbeat for this long counts as dead.
HEARTBEAT_MS = 3_000


@dataclass(slots=True, eq=False)
class _Task:
    spark_partition: int
    rows: tuple[int, ...]
    running: dict[Attempt, Executor] = field(default_factory=dict)
    failures: int = 0
    receipt: TaskReceipt | None = None


class SparkJob:
    def __init__(self, stage: Stage, query: str, batch: Batch, run: str) -> None:
        self.stage = stage
        self.batch = batch
        self._query = query
        self._run = run
        self.is_cancelled = False
        self._pick: Random = stage.dice[f"job {query}"]
        self._tasks = self._divided()
        # Tasks that no core was free for yet.
        self._waiting: list[_Task] = []
        self._resume: Resume | None = None

    def _divided(self) -> list[_Task]:
        """Some tasks may have no rows."""
        pick, count = self._pick, self.batch.row_count
        task_count = pick.randint(1, self.stage.plan.tasks_max)
        cuts = sorted(pick.randint(0, count) for _ in range(task_count - 1))
        bounds = [0, *cuts, count]
        return [_Task(index, tuple(range(bounds[index], bounds[index + 1]))) for index in range(task_count)]

    def start(self, resume: Resume) -> None:
        """`resume` gets the receipts, and whether the job succeeded."""
        self._resume = resume
        for task in self._tasks:
            if task.rows:
                self._waiting.append(task)
            else:
                # A task without rows does not contact a broker.
                task.receipt = TaskReceipt(self.batch.key, self._run, task.spark_partition, self.stage.next_attempt())
        self._launch_waiting()
        self._look()

    def _launch_waiting(self) -> None:
        while self._waiting and self._resume is not None and len(self._running()) < self.stage.cores:
            self._launch(self._waiting.pop(0))

    def _launch(self, task: _Task) -> None:
        number = self.stage.next_attempt()
        identity = self.identity(task.spark_partition, number)
        name = f"{self.batch.key.query_id or 'write'} {identity.transactional_id}"
        attempt = Attempt(name, identity, self.batch, task.rows)
        self.stage.books.attempts[name] = attempt
        executor = self.stage.executor_for(self._query, identity.transactional_id)
        executor.take_used(attempt)
        task.running[attempt] = executor
        executor.begin(attempt, self._on_report)

    def identity(self, spark_partition: int, number: int) -> TaskIdentity:
        return TaskIdentity(self.stage.sink_id(self.batch.key, self._run), self._run, spark_partition, number)

    # ---- results of attempts ----

    def _on_report(self, attempt: Attempt, receipt: TaskReceipt | None) -> None:
        task = self._tasks[attempt.spark_partition]
        if task.running.pop(attempt, None) is None or self._resume is None:
            self.stage.count("attempt ended that nobody waited for" if receipt is None else "receipt that nobody took")
            self.stage.books.losers.add(attempt)
        elif task.receipt is not None:
            self.stage.count("losing attempt")
            self.stage.books.losers.add(attempt)
        elif receipt is not None:
            task.receipt = receipt
            self._drop_losers(task)
        else:
            task.failures += 1
            if not task.running and task.failures < FAILURES_MAX:
                self._launch(task)
        self._launch_waiting()
        self._look()

    def _drop_losers(self, task: _Task) -> None:
        for executor in task.running.values():
            self._let_go(executor)

    def _let_go(self, executor: Executor) -> None:
        """Kills the attempt at once or later, unless it has ended by then."""
        delay_ms = self._pick.choice((0, self._pick.randrange(1, ZOMBIE_MS_MAX), ZOMBIE_MS_MAX))
        if delay_ms:
            self.stage.count("attempt goes on as a zombie")
        self._kill_later(executor, executor.attempt, delay_ms)

    def _kill_later(self, executor: Executor, attempt: Attempt | None, delay_ms: int) -> None:
        def kill() -> None:
            if executor.attempt is attempt:
                executor.kill(is_silent=False)

        self.stage.loop.after(delay_ms, kill)

    def _look(self) -> None:
        if self._resume is None:
            return
        failed = any(task.failures >= FAILURES_MAX for task in self._tasks)
        if not failed and any(task.receipt is None for task in self._tasks):
            return
        for task in self._tasks:
            if failed:
                self._drop_losers(task)
        resume, self._resume = self._resume, None
        resume(([task.receipt for task in self._tasks if task.receipt is not None], not failed))

    def lose_driver(self) -> None:
        self._resume = None
        for task in self._tasks:
            self._drop_losers(task)

    # ---- faults ----

    def cancel(self) -> None:
        """As cancelJobGroup: Spark fails the job and later destroys the workers of its tasks, which see nothing of it;
        or it has closed the connection to them, and lets them live."""
        running = self._running()
        if self._resume is None or not running:
            return
        self.stage.count("fault cancel_job")
        self.is_cancelled = True
        self._waiting.clear()
        for _, attempt, executor in running:
            self.stage.count("worker of a cancelled job lives on")
            if self._pick.random() < CLOSED_SHARE:
                executor.is_waited_for = False
                if not attempt.records:
                    # It still computes its first row.
                    executor.pause(self.stage.loop.now_ms + self._pick.randrange(SLOW_MS_MAX))
            else:
                self._kill_later(executor, attempt, self._pick.randrange(DESTROYED_MS_MAX))
        resume, self._resume = self._resume, None
        resume(([task.receipt for task in self._tasks if task.receipt is not None], False))

    def _running(self) -> list[tuple[_Task, Attempt, Executor]]:
        return [
            (task, attempt, executor)
            for task in self._tasks
            if task.receipt is None
            for attempt, executor in task.running.items()
        ]

    def hurt(self, kind: str, pick: Random, length_ms: int) -> bool:
        running = self._running()
        if not running:
            return False
        task, attempt, executor = pick.choice(running)
        if kind == "speculate":
            self._launch(task)
        elif kind == "fail_task":
            executor.must_fail = True
        elif kind == "kill_task":
            executor.kill(is_silent=pick.random() < 0.3)
            self._on_lost(task, attempt)
        else:
            executor.pause(self.stage.loop.now_ms + length_ms)
            if length_ms > HEARTBEAT_MS:
                self.stage.loop.after(HEARTBEAT_MS, lambda: self._on_silent(task, attempt))
        return True

    def _on_lost(self, task: _Task, attempt: Attempt) -> None:
        """A lost executor does not count as a failure of the task."""
        task.running.pop(attempt, None)
        if not task.running and task.receipt is None and self._resume is not None:
            self._launch(task)

    def _on_silent(self, task: _Task, attempt: Attempt) -> None:
        if attempt in task.running and task.receipt is None and self._resume is not None:
            self.stage.count("silent executor was replaced")
            self._launch(task)
