"""The breaker `command`: an operator runs `pykafka-sink transactions --abort` at any moment, also twice at a time.

What the command does to each line of the sink (`each_line.py`) runs in a process of its own, which loses answers,
pauses and dies like a driver's, at any step, also between two aborts. It goes on when a driver is about to decide.

I23: nothing that was decided is aborted on request, by whomever; a batch is refused because of a command only if a
command had listed its run; and what a command has listed is not open when it says that all is done.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.each_line import Begin, operate_each_line
from kafka_sink.commit.end_txn import AbortTransactions
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.listing import TransactionListing
from kafka_sink.commit.messages import SWEPT
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.session import CommitResult, DriverOperation
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.wire.apis import END_TXN, INIT_PRODUCER_ID, ONGOING, PRODUCE
from kafka_sink.testing.transaction_state import CoordinatorState
from tests.sim.delivery.driver_host import DriverHost
from tests.sim.delivery.moments import Moment
from tests.sim.delivery.script import Life, Script
from tests.sim.network import ARMED_FOR_MS, Armed
from tests.sim.trace import Violation

if TYPE_CHECKING:
    from tests.sim.delivery.stage import Stage

AT_ONCE_MAX = 2
DEATH_SHARE, PAUSE_SHARE, HELD_SHARE = 0.2, 0.2, 0.5
HELD_MS_MAX = 5_000
READ = (Phase.READING, Phase.CHECKING, Phase.CHECKING)
DECIDING = (Phase.CHECKING, Phase.DECIDING, Phase.DECIDING, Phase.COMMITTING, Phase.COMMITTING)
# At these steps it dies or pauses; START is between two operations, and in its claims and lists.
PHASES = (
    *[Phase.SWEEPING] * 4, *[Phase.START] * 3, Phase.FENCING, Phase.FENCING, Phase.CLAIMING, Phase.READING,
    Phase.FINISHING, Phase.CLOSING,
)  # fmt: skip
# What becomes of its requests: of which API, and how often.
ACCIDENTS = (
    ("request", "late_request"), ("request", "late_request_after_reset"), ("request", "reset_before"),
    ("answer", "lost_answer"),
)  # fmt: skip
APIS = (END_TXN.key, END_TXN.key, PRODUCE.key, INIT_PRODUCER_ID.key)


AT_ONCE, IN_JOB, AT_STEP = "at once", "in a job", "at a step"
WHEN = (AT_ONCE, IN_JOB, IN_JOB, IN_JOB, AT_STEP)
STEPS = (Phase.START, Phase.FENCING, Phase.CLAIMING, Phase.READING, Phase.CHECKING, Phase.DECIDING, Phase.COMMITTING)
# A job lives for about so many pauses of its tasks.
ROWS_WAITED_FOR = 3
SPARK_MS = (0, 50, 200, 500)


class Planned(NamedTuple):
    pick: Random
    length_ms: int
    sink_id: str


class Commands:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._running: list[Command] = []
        # Those that wait for tasks, or for a step of a driver.
        self._for_jobs: list[Planned] = []
        self._for_steps: list[tuple[Moment, Planned]] = []
        # Runs whose transactions a command has listed, and is about to abort.
        self.listed_runs: set[str] = set()

    @property
    def hosts(self) -> list[str]:
        return [command.host.name for command in self._running]

    def plan(self, planned: Planned) -> bool:
        """At once, or when tasks have transactions open, or at a step of a driver: counted when it happens."""
        when = planned.pick.choice(WHEN)
        if when == AT_ONCE:
            return self._run(planned)
        if when == IN_JOB:
            self._for_jobs = [planned]
        else:
            self._for_steps = [(Moment(planned.pick, STEPS), planned)]
        return False

    def on_job(self) -> int:
        """How long Spark then takes from the last receipt to the commit."""
        waiting, self._for_jobs = self._for_jobs, []
        for planned in waiting:
            delay_ms = planned.pick.randrange(self._stage.plan.pause_ms * ROWS_WAITED_FOR)
            self._stage.loop.after(delay_ms, lambda planned=planned: self._run_later(planned))  # type: ignore[misc]
        return max((planned.pick.choice(SPARK_MS) for planned in waiting), default=0)

    def on_step(self, phase: Phase) -> None:
        """Of a driver."""
        for command in self._running:
            command.on_drivers_step(phase)
        due = [one for one in self._for_steps if one[0].is_now(phase)]
        self._for_steps = [one for one in self._for_steps if one not in due]
        for _, planned in due:
            self._run_later(planned)

    def _run_later(self, planned: Planned) -> None:
        if not self._stage.is_healed and self._run(planned):
            self._stage.count("fault run_command")

    def _run(self, planned: Planned) -> bool:
        if len(self._running) >= AT_ONCE_MAX:
            return False
        command = Command(self._stage, planned)
        self._running.append(command)
        command.start(self.listed_runs, lambda: self._running.remove(command))
        return True

    def check_refused(self, run: str, error: KafkaSinkError | None) -> None:
        if error is None or SWEPT not in str(error):
            return
        self._stage.count("commit: refused because of a command")
        if run not in self.listed_runs:
            raise Violation("I23", f"no command has listed run {run}, and yet: {error}")


class Command:
    """One command, from its lists to its last abort."""

    def __init__(self, stage: Stage, planned: Planned) -> None:
        pick, length_ms = planned.pick, planned.length_ms
        self.host: DriverHost = stage.new_driver_host("command")
        self._stage = stage
        # Whatever it asks for has the same time.
        self._settings = replace(stage.settings, sweep_ms=stage.settings.patience_ms)
        self._sink_id = planned.sink_id
        self._listed: list[TransactionDescription] = []
        self._dies_at = Moment(pick, PHASES) if pick.random() < DEATH_SHARE else None
        self._pauses_at = Moment(pick, PHASES) if pick.random() < PAUSE_SHARE else None
        self._pause_ms = length_ms * pick.choice((1, 1, 4))
        # It is held before it claims a line, and before it sends its aborts, until a driver is at this step.
        self._claims_at = Moment(pick, READ) if pick.random() < HELD_SHARE else None
        self._aborts_at = Moment(pick, DECIDING) if pick.random() < HELD_SHARE else None
        self._held_until: Moment | None = None
        self.host.on_decided = self._on_step
        for _ in range(pick.choice((0, 0, 1, 2))):
            direction, kind = pick.choice(ACCIDENTS)
            until_ms = stage.loop.now_ms + ARMED_FOR_MS
            stage.arm(self.host.name, direction, Armed(kind, Random(pick.getrandbits(64)), until_ms, pick.choice(APIS)))

    def start(self, listed_runs: set[str], on_end: Any) -> None:
        def ended(why: object) -> None:
            self.host.kill(is_silent=False)
            self._stage.count(f"command: {why}")
            self._stage.note(f"{self.host.name} ends: {why}")
            on_end()

        self._ended = ended
        self._stage.note(f"{self.host.name} aborts what is open of {self._sink_id}")
        self._life = Life(self._stage.loop, self._script(listed_runs), ended)

    def _script(self, listed_runs: set[str]) -> Script:
        wall_ms = self._stage.loop.now_ms
        machines: Generator[Begin, Any, list[CommitResult]] = operate_each_line(
            self._settings, self._sink_id, DriverOperation.SWEEP, wall_ms
        )
        result: Any = None
        while True:
            try:
                begin = machines.send(result)
            except StopIteration as ended:
                return self._verdict(ended.value)
            except KafkaSinkError:
                return "gave up"
            result = yield lambda resume, begin=begin: self.host.run(begin(self._stage.loop.now_ms), resume)
            if isinstance(result, TransactionListing):
                self._listed = [one for one in result.found if one.state == ONGOING]
                identities = [parse_task_identity(one.transactional_id) for one in self._listed]
                listed_runs.update(one.run for one in identities if one is not None)

    def on_drivers_step(self, phase: Phase) -> None:
        if self._held_until is not None and self._held_until.is_now(phase):
            self._held_until = None
            self._stage.count(f"command goes on while a driver is {phase.value}")
            self.host.pause(self._stage.loop.now_ms)
            self.host.plan_step(self._stage.loop.now_ms)

    def _aborts(self) -> AbortTransactions | None:
        """If it has begun to abort."""
        step = None if self.host.machine is None else self.host.machine._current
        current = getattr(step, "current", None)
        return current if isinstance(current, AbortTransactions) else None

    def _on_step(self, phase: Phase) -> None:
        if self._aborts_at is not None and self._aborts() is not None:
            self._held_until, self._aborts_at = self._aborts_at, None
        elif self._claims_at is not None and phase is Phase.CLAIMING:
            self._held_until, self._claims_at = self._claims_at, None
        else:
            self._held_until = None
        if self._held_until is not None:
            self.host.pause(self._stage.loop.now_ms + HELD_MS_MAX)
            return
        if self._pauses_at is not None and self._pauses_at.is_now(phase):
            self._pauses_at = None
            self._stage.count("command paused")
            self.host.pause(self._stage.loop.now_ms + self._pause_ms)
        if self._dies_at is not None and self._dies_at.is_now(phase):
            self._dies_at = None
            self._stage.count(f"command died {self._where(phase)}")
            self._life.end()
            self._ended("died")

    def _where(self, phase: Phase) -> str:
        aborts = self._aborts()
        if aborts is not None and aborts.aborted:
            return "between its aborts"
        return "between two operations" if phase is Phase.START else f"while {phase.value}"

    def _verdict(self, results: list[CommitResult]) -> str:
        error = next((result.error for result in results if result.error is not None), None)
        if error is not None:
            self._stage.note(f"{self.host.name}: {error}")
            return f"{type(error).__name__}"
        self._stage.count("aborted by a command", sum(len(result.swept) for result in results))
        if any(result.notes for result in results):
            return "done, with notes"
        self._check_nothing_listed_is_open()
        return "done"

    def _check_nothing_listed_is_open(self) -> None:
        """In version 1 a task that is still writing begins another transaction with the same epoch."""
        known = self._stage.network.core.coordinator.transactions
        for one in self._listed:
            now = known.get(one.transactional_id)
            if now is None or now.pending is not None or now.record.state is not CoordinatorState.ONGOING:
                continue
            is_same = (now.record.producer_id, now.record.producer_epoch, now.record.start_ms) == (
                *one.identity, one.start_ms,
            )  # fmt: skip
            if is_same and one.transactional_id not in self._stage.assumptions.lied_about:
                raise Violation("I23", f"{one.transactional_id} is open, and a command has said that all is done")
