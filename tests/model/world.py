"""The small world: drivers with the real machine, tasks, a tiny broker, a network that may lose and delay requests.

A state is a tuple of values. Machines are objects, so each distinct one is stored once and represented by a number. The
results of a machine's step with an answer, and of a broker's answer to a request, are cached, because most paths
contain the same steps. `actions` lists the named actions of a state; each leads to another state or to a violation.

Spark follows its rules: planning, tasks, commit; after a failed commit an abort; after that, or after a crash, a new
run of the same batch. No action is skipped silently: each fault is paid from a budget, and only the budgets limit the
size of the world.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

from kafka_sink.commit.commit_step import CommitStep, Progress, SingleStep
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.describe_transactions import DESCRIBE
from kafka_sink.commit.end_txn import ABORT, COMMIT
from kafka_sink.commit.identity import TaskIdentity, parse_task_identity, run_of_label
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState
from kafka_sink.commit.listing import LIST
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.preflight import LEADERS, OPEN_PARTS
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.same_cluster import CLUSTER
from kafka_sink.commit.session import (
    CommitResult,
    Conclusion,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
)
from kafka_sink.commit.takeover import StopRuns
from kafka_sink.errors import CommitAborted, CommitLost, TransportError
from kafka_sink.kafka.client.ask import AllBrokers, Ask, Leader, Reply, ReplyKind
from tests.support import tiny_broker
from tests.support.closing import Closing
from tests.support.tiny_broker import COMPLETE, LEDGER, ONGOING, PREPARE, TIMEOUT_MS, TinyBroker

SINK, QUERY = "sink", "query"
LATE_MS = 10**9
# Words in the error of a driver that ended because of another one, whether it knows that one or not.
TAKEN_OVER = ("has taken over", "epoch was refused again and again")
LATE, BEGIN = -1, -2
# Of a command: stages, and what it does before it sweeps.
WAITING, GONE, STOPPING = "waiting", "gone", "stop"
TASKS = 2
# How an operator ends a transaction: by the rules of version 1 or 2, or with a marker in one partition.
MARKER = "a marker"
# This prefix of a row names its batch and task; the rest is the number of the content.
PLACE_BYTES = len(b"b0-t0")
# Requests that change state. Losing or delaying any other request has the same effect as repeating it.
EFFECTIVE = frozenset({"InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"})


class Budget(NamedTuple):
    crashes: int = 0
    losses: int = 0
    time_outs: int = 0
    deadlines: int = 0
    restarts: int = 0
    seconds: int = 0  # second drivers
    # Requests about the ledger answered by a former leader, from any earlier state of its log.
    outdated: int = 0
    # Lost markers of the driver's own transactions: of commits and of aborts.
    markers: int = 0
    # How often a commit runs in the other process of its run, with the session that is cached there.
    processes: int = 0
    # How often a restarted run has different rows, and more of them, under the same batch id.
    others: int = 0
    # How often an operator, or another client, ends a transaction of a task.
    operators: int = 0
    # How often an operator runs the command that aborts what is open.
    commands: int = 0
    # How often the newest marker of the ledger arrives a second time, at leaders as before Kafka 4.2.
    copies: int = 0
    # Answers to the check of a batch by a broker that was frozen when its tasks wrote: as of before.
    frozen: int = 0
    # How often the drivers may interrupt each other. A mistake that needs more switches is not found. Those found in
    # practice need one or two, and without a limit there are too many orders of two machines to search.
    switches: int = 0


class TaskResult(NamedTuple):
    """`written`: partition, first and last offset. Only a task that an operator has interrupted writes a second row."""

    task: int
    producer_id: int
    epoch: int
    written: tuple[tuple[int, int, int], ...]
    has_second_row: bool = False


class Driver(NamedTuple):
    """`stage`: idle, plan, tasks, operation, failed, down, stuck, finished. Of an operator's command, which is here as
    if it were a driver: waiting, operation, gone."""

    stage: str
    number: int
    run: int = 0
    batch: int = 0
    operation: str = ""
    machine: int = -1
    out: tuple[int, ...] = ()
    receipts: tuple[TaskResult, ...] = ()
    # The machine of the process that did not commit last, which has its session; -1: it has none.
    elsewhere: int = -1
    # The number of the content that Spark has under this batch id.
    content: int = 0
    # The machine that writes the record of the last batch, and its requests; -1: there is none. Its process has no
    # session for anything else meanwhile.
    closing: int = -1
    closing_out: tuple[int, ...] = ()
    # The runs that a command has listed.
    listed: tuple[str, ...] = ()


class WorldState(NamedTuple):
    """`broker` and requests are numbers too: a nested tuple would be hashed again at each lookup."""

    broker: int
    drivers: tuple[Driver, ...]
    orphans: tuple[int, ...]
    budget: Budget
    turn: int = 0
    # A request to abort, of a driver that had refused its batch and died, was carried out late (`has_drafts`).
    has_late_abort: bool = False


@dataclass(frozen=True, slots=True)
class Violation:
    text: str


class Stopping:
    """What a command writes before it fences the line (`each_line.py`)."""

    phase = Phase.START

    def __init__(self, settings: DeliverySettings, runs: tuple[str, ...]) -> None:
        self._stops = StopRuns(settings, [(SINK, run) for run in runs], 0)
        self._single = SingleStep(self._stops, 2 * LATE_MS)

    def step(self, now_ms: int, replies: Sequence[Reply] = ()) -> Progress[StopRuns]:
        return self._single.step(now_ms, replies)

    def steps(self) -> Iterator[CommitStep]:
        yield self._stops


@dataclass(slots=True)
class Machine:
    committer: Committer | Closing | Stopping
    session: DriverSession


class World:
    def __init__(
        self,
        transaction_version: int,
        budget: Budget,
        *,
        batches: int = 1,
        drivers: int = 1,
        has_labels: bool = False,
        closes_later: bool = False,
        has_drafts: bool = False,
    ) -> None:
        """`has_labels`: each driver writes one labelled batch of its own, under one sink id. `closes_later`: processes
        write the record that closes a decision after their commit. `has_drafts`: the intent of each batch is appended
        while it is checked, also that of the first one of a run."""
        self.transaction_version = transaction_version
        self.batches = batches
        self.has_labels = has_labels
        self.closes_later = closes_later
        self.age_max_ms = None if has_drafts else 0
        # The claim of a crashed run may still arrive.
        self._has_rivals = (0 if has_labels else budget.seconds) + budget.crashes + budget.restarts > 0
        self.settings = DeliverySettings(
            ledger_topic=LEDGER,
            transaction_version=transaction_version,
            epoch_of_end_is_safe=not budget.copies,
            margin_ms=0,
            retry_backoff_ms=0,
            markers_backoff_ms=0,
            parallel_requests=10,
        )
        first = Driver("plan", 0)
        others = tuple(Driver("idle", number, batch=number if has_labels else 0) for number in range(1, drivers))
        if budget.commands:
            others += (Driver(WAITING, drivers),)
        self._brokers: list[Any] = []
        self._broker_numbers: dict[Any, int] = {}
        self._rows: list[dict[bytes, list[str]]] = []
        self._doubled: list[str] = []
        self._moves: dict[int, list[tuple[str, str, int]]] = {}
        self.initial = WorldState(self._broker_number(tiny_broker.NEW), (first, *others), (), budget)
        self._machines: list[bytes] = []
        self._machine_numbers: dict[Any, int] = {}
        self._requests: list[Ask] = []
        self._request_numbers: dict[Any, int] = {}
        self._driver_answers: list[Reply] = []
        self._answer_numbers: dict[Any, int] = {}
        self._steps: dict[Any, Any] = {}
        self._answers: dict[Any, Any] = {}
        self.verdicts: dict[str, int] = {}

    # ---- actions ----

    def actions(self, state: WorldState) -> list[tuple[str, WorldState | Violation]]:
        found: list[tuple[str, WorldState | Violation]] = []
        for driver in state.drivers:
            turned = self._turned(state, driver)
            if turned is not None:
                found += self._driver_actions(turned, driver)
        for request in sorted(set(state.orphans)):
            rest = list(state.orphans)
            rest.remove(request)
            _, broker = self._answered(state.broker, request)
            is_abort = self._requests[request].purpose == ABORT and broker != state.broker
            late = state._replace(
                broker=broker,
                orphans=tuple(rest),
                has_late_abort=state.has_late_abort or (self.age_max_ms is None and is_abort),
            )
            found.append((f"late {self._title(request)}", self._checked(late)))
        return found + self._broker_actions(state)

    def _turned(self, state: WorldState, driver: Driver) -> WorldState | None:
        """The current driver continues. Another driver costs a switch, unless the current one has nothing to do."""
        if driver.number == state.turn:
            return state
        if state.drivers[state.turn].stage in ("plan", "tasks", "operation", "failed"):
            if not state.budget.switches:
                return None
            state = state._replace(budget=state.budget._replace(switches=state.budget.switches - 1))
        return state._replace(turn=driver.number)

    def _broker_actions(self, state: WorldState) -> list[tuple[str, WorldState | Violation]]:
        found: list[tuple[str, WorldState | Violation]] = []
        for title, costs, broker in self._broker_moves(state.broker):
            moved = state._replace(broker=broker)
            if not costs:
                found.append((title, self._checked(moved)))
            elif left := getattr(state.budget, costs):
                budget = state.budget._replace(**{costs: left - 1})
                found.append((title, self._checked(moved._replace(budget=budget))))
        return found

    def _broker_moves(self, number: int) -> list[tuple[str, str, int]]:
        """Title, the budget it is paid from, and the next state of the brokers."""
        found = self._moves.get(number)
        if found is None:
            found = self._moves[number] = []
            broker = self._opened(number)
            if broker.has_open((LEDGER, 0)):
                broker.repeat_marker((LEDGER, 0))
                found.append(("the last marker arrives again", "copies", self._broker_number(broker.state())))
            for name, known in self._brokers[number][0]:
                broker = self._opened(number)
                if known[2] in COMPLETE:
                    broker.complete(name)
                    found.append((f"markers of {name}", "", self._broker_number(broker.state())))
                    if parse_task_identity(name) is None:
                        broker = self._opened(number)
                        broker.complete(name, is_lost=True)
                        found.append((f"markers of {name} are lost", "markers", self._broker_number(broker.state())))
                elif known[2] == ONGOING and parse_task_identity(name):
                    broker.time_out(name)
                    found.append((f"time-out of {name}", "time_outs", self._broker_number(broker.state())))
                    for version in range(1, self.transaction_version + 1):
                        broker = self._opened(number)
                        broker.end(name, known[0], known[1], commit=False, is_first=version == 1)
                        title = f"operator ends {name} by version {version}"
                        found.append((title, "operators", self._broker_number(broker.state())))
        return found

    def _driver_actions(self, state: WorldState, driver: Driver) -> list[tuple[str, WorldState | Violation]]:
        title = f"driver {driver.number}"
        budget = state.budget
        found: list[tuple[str, WorldState | Violation]] = []
        if driver.stage == "idle" and budget.seconds:
            spent = state._replace(budget=budget._replace(seconds=budget.seconds - 1))
            found.append((f"{title} comes", self._with(spent, driver._replace(stage="plan"))))
        elif driver.stage == WAITING and budget.commands:
            found += self._command_comes(state, driver)
        elif driver.stage == "plan":
            found.append((f"{title} plans", self._begin(state, driver, DriverOperation.RECOVER, None)))
        elif driver.stage == "tasks":
            written = {receipt[0] for receipt in driver.receipts}
            for task in range(TASKS):
                if task not in written:
                    found += self._task(state, driver, task)
        elif driver.stage == "failed":
            found.append((f"{title} aborts", self._begin(state, driver, DriverOperation.ABORT, None)))
        elif driver.stage == "down" and budget.restarts:
            spent = state._replace(budget=budget._replace(restarts=budget.restarts - 1))
            found += [(f"{title} restarts{how}", other) for how, other in self._starts(spent, driver)]
        elif driver.stage == "operation":
            found += self._request_actions(state, driver, is_closing=False)
        if driver.closing >= 0:
            found += self._request_actions(state, driver, is_closing=True)
        if driver.stage in ("operation", "tasks", "failed") and budget.crashes:
            spent = state._replace(budget=budget._replace(crashes=budget.crashes - 1))
            orphaned = self._orphaned(spent, (*driver.out, *driver.closing_out))
            if driver.listed:
                return [*found, (f"{title} crashes", self._with(orphaned, Driver(GONE, driver.number)))]
            found += [(f"{title} crashes{how}", other) for how, other in self._starts(orphaned, driver)]
        return found

    # ---- an operator's command ----

    def _command_comes(self, state: WorldState, driver: Driver) -> list[tuple[str, WorldState | Violation]]:
        """It lists what is open in one step: an order in between gives another list, as if it came earlier or later."""
        identities = [
            parse_task_identity(name) for name, known in self._brokers[state.broker][0] if known[2] == ONGOING
        ]
        listed = tuple(sorted({one.run for one in identities if one is not None}))
        if not listed:
            return []
        spent = state._replace(budget=state.budget._replace(commands=state.budget.commands - 1))
        machine = self._interned(Machine(Stopping(self.settings, listed), DriverSession(SINK)))
        moved = driver._replace(stage="operation", operation=STOPPING, machine=machine, listed=listed)
        return [(f"command of driver {driver.number} comes", self._step(spent, moved, BEGIN))]

    def _command_goes_on(self, state: WorldState, driver: Driver, verdict: Any) -> WorldState | Violation:
        """It aborts when the runs are stopped, and then it is gone."""
        if driver.operation != STOPPING:
            gone = self._with(state, Driver(GONE, driver.number))
            return self._unexplained(gone, is_lost=verdict[1]) or self._checked(gone)
        job = Job(DriverOperation.SWEEP, stopped_runs=frozenset(driver.listed))
        session = DriverSession(SINK)
        machine = self._interned(Machine(Committer(self.settings, session, job, 0), session))
        moved = driver._replace(operation=DriverOperation.SWEEP.value, machine=machine, out=())
        return self._step(state, moved, BEGIN)

    def _starts(self, state: WorldState, driver: Driver) -> list[tuple[str, WorldState | Violation]]:
        """Restarts with the same rows, or with different ones."""
        started = self._restarted(driver)
        found: list[tuple[str, WorldState | Violation]] = [("", self._with(state, started))]
        if state.budget.others:
            spent = state._replace(budget=state.budget._replace(others=state.budget.others - 1))
            found.append((", with other rows", self._with(spent, started._replace(content=driver.content + 1))))
        return found

    def _request_actions(
        self, state: WorldState, driver: Driver, *, is_closing: bool
    ) -> list[tuple[str, WorldState | Violation]]:
        """What may become of the requests of its operation, or of its record that closes a decision."""
        name, field, step = f"driver {driver.number}", "out", self._step
        if is_closing:
            name, field, step = f"{name} closing", "closing_out", self._closing_step
        out: tuple[int, ...] = getattr(driver, field)
        found: list[tuple[str, WorldState | Violation]] = []
        for request in out:
            if not self._may_be_answered(request, out):
                continue
            title = f"{name} {self._title(request)}"
            rest = driver._replace(**{field: tuple(other for other in out if other != request)})
            answer, broker = self._answered(state.broker, request)
            found.append((title, step(state._replace(broker=broker), rest, answer)))
            if state.budget.losses and self._requests[request].api.name in EFFECTIVE:
                spent = state._replace(budget=state.budget._replace(losses=state.budget.losses - 1))
                lost = self._answer_number(request, None)
                found.append((f"{title}: no answer", step(self._orphaned(spent, (request,)), rest, lost)))
            if state.budget.outdated and self._is_about_ledger(request):
                spent = state._replace(budget=state.budget._replace(outdated=state.budget.outdated - 1))
                for length, outdated in self._outdated_answers(state.broker, request, answer):
                    found.append((f"{title}: as of {length}", step(spent, rest, outdated)))
            if state.budget.frozen and self._requests[request].purpose in (DESCRIBE, OPEN_PARTS):
                spent = state._replace(budget=state.budget._replace(frozen=state.budget.frozen - 1))
                for about, outdated in self._frozen_answers(state.broker, request, answer):
                    found.append((f"{title}: {about} as of before", step(spent, rest, outdated)))
        if state.budget.deadlines and (is_closing or driver.operation == DriverOperation.COMMIT.value):
            spent = state._replace(budget=state.budget._replace(deadlines=state.budget.deadlines - 1))
            found.append((f"{name} is late", step(spent, driver, LATE)))
        return found

    def _closing_step(self, state: WorldState, driver: Driver, answer: int) -> WorldState | Violation:
        number, requests, is_closed = self._stepped(driver.closing, answer)
        moved = driver._replace(closing=number, closing_out=tuple(sorted((*driver.closing_out, *requests))))
        if is_closed is None:
            return self._checked(self._with(state, moved))
        state = self._orphaned(state, moved.closing_out)
        # A process whose record was not written forgets its session.
        kept = number if is_closed else -1
        moved = moved._replace(closing=-1, closing_out=())
        if driver.stage != "tasks":
            return self._checked(self._with(state, moved if moved.elsewhere >= 0 else moved._replace(elsewhere=kept)))
        moved = moved._replace(machine=kept)
        if len(moved.receipts) < TASKS:
            return self._checked(self._with(state, moved))
        return self._begin(self._with(state, moved), moved, DriverOperation.COMMIT, self._session(kept))

    def _may_be_answered(self, request: int, out: tuple[int, ...]) -> bool:
        """The list of open transactions is requested together with a decision's commits, and what it says about them
        is ignored. So it is answered before all of them, or alone; any order in between gives the same result. Every
        partition has a leader, and all brokers are of one cluster, so what is asked about these is answered first."""
        if any(self._requests[other].purpose in (LEADERS, CLUSTER) for other in out if other != request):
            return False
        if self._requests[request].purpose != LIST:
            return True
        others = [self._requests[other].purpose for other in out if other != request]
        return not others or others == [COMMIT] * TASKS

    # ---- Spark ----

    def _restarted(self, driver: Driver) -> Driver:
        return Driver("plan", driver.number, driver.run + 1, driver.batch, content=driver.content)

    def _task(self, state: WorldState, driver: Driver, task: int) -> list[tuple[str, WorldState | Violation]]:
        broker = self._opened(state.broker)
        name = self._task_identity(driver, task).transactional_id
        producer_id, epoch, offset = broker.write_in_task(
            name, ("t", task), self._row(driver.batch, task, driver.content)
        )
        if epoch < 0:
            # The transaction that was open under the id is being aborted; the task repeats after its markers.
            waiting = state._replace(broker=self._broker_number(broker.state()))
            return [(f"driver {driver.number} task {task} waits", self._checked(waiting))]
        result = TaskResult(task, producer_id, epoch, ((task, offset, offset),))
        title = f"driver {driver.number} task {task}"
        found = self._prepared(state._replace(broker=self._broker_number(broker.state())), driver, result, title)
        if state.budget.operators:
            found += self._interrupted(state, driver, result, broker)
        return found

    def _interrupted(
        self, state: WorldState, driver: Driver, first: TaskResult, written: TinyBroker
    ) -> list[tuple[str, WorldState | Violation]]:
        """An operator ends the transaction in the middle of the task, which then writes a second row: to the same
        partition, to another one, or to none; then a late copy of its first request adds its partition again. A task
        whose second row is refused is run again."""
        found: list[tuple[str, WorldState | Violation]] = []
        spent = state._replace(budget=state.budget._replace(operators=state.budget.operators - 1))
        name = self._task_identity(driver, first.task).transactional_id
        row = self._second_row(driver, first.task)
        for way in (*range(1, self.transaction_version + 1), MARKER):
            for number in (first.task, first.task + TASKS, None):
                broker = TinyBroker(written.state(), self.transaction_version)
                if way == MARKER:
                    broker.write_marker(("t", first.task), first.producer_id, first.epoch, commit=False)
                else:
                    broker.end(name, first.producer_id, first.epoch, commit=False, is_first=way == 1)
                    broker.complete(name)
                result: TaskResult | None = first
                if number is not None:
                    is_new = number != first.task
                    at = broker.write_more(name, ("t", number), row, first.producer_id, first.epoch, is_new=is_new)
                    result = (
                        None if at is None else first._replace(written=_joined(first, number, at), has_second_row=True)
                    )
                elif way != MARKER:
                    broker.repeat_adding(name, ("t", first.task), first.producer_id, first.epoch)
                title = f"driver {driver.number} task {first.task}, ended by {way}, goes on to {number}"
                moved = spent._replace(broker=self._broker_number(broker.state()))
                found += [(title, moved)] if result is None else self._prepared(moved, driver, result, title)
        return found

    def _prepared(
        self, state: WorldState, driver: Driver, result: TaskResult, title: str
    ) -> list[tuple[str, WorldState | Violation]]:
        receipts = tuple(sorted((*driver.receipts, result)))
        moved = driver._replace(receipts=receipts)
        written = self._with(state, moved)
        if len(receipts) < TASKS:
            return [(title, written)]
        # The commit of a process that still closes the last decision begins when that is done.
        is_free = driver.closing < 0
        commit = (
            self._begin(written, moved, DriverOperation.COMMIT, self._session(driver.machine)) if is_free else written
        )
        found: list[tuple[str, WorldState | Violation]] = [(title, commit)]
        if written.budget.processes:
            spent = written._replace(budget=written.budget._replace(processes=written.budget.processes - 1))
            swapped = moved._replace(elsewhere=driver.machine)
            commit = self._begin(spent, swapped, DriverOperation.COMMIT, self._session(driver.elsewhere))
            found.append((f"{title}, committed in the other process", commit))
        return found

    def _session(self, machine: int) -> DriverSession | None:
        return self._machine(machine).session if machine >= 0 else None

    def _begin(
        self, state: WorldState, driver: Driver, operation: DriverOperation, session: DriverSession | None
    ) -> WorldState | Violation:
        run = self._run(driver)
        if session is None or session.run != run:
            session = DriverSession(SINK, run, code=self.settings.line_of(SINK, self._key(driver)).code)
        key = None if operation is DriverOperation.RECOVER else self._key(driver)
        receipts = [self._receipt(driver, receipt) for receipt in driver.receipts]
        job = Job(operation, key, receipts, may_close_later=self.closes_later, age_max_ms=self.age_max_ms)
        committer = Committer(self.settings, session, job, 0)
        number = self._interned(Machine(committer, session))
        moved = driver._replace(stage="operation", operation=operation.value, machine=number, out=())
        return self._step(state, moved, BEGIN)

    def _step(self, state: WorldState, driver: Driver, answer: int) -> WorldState | Violation:
        """`answer` is the number of an answer, LATE (the deadline has passed) or BEGIN (there is no answer yet)."""
        number, requests, verdict = self._stepped(driver.machine, answer)
        moved = driver._replace(machine=number, out=tuple(sorted((*driver.out, *requests))))
        if verdict is None:
            return self._checked(self._with(state, moved))
        state = self._orphaned(state, moved.out)
        moved = moved._replace(out=())
        if driver.listed:
            return self._command_goes_on(state, moved, verdict)
        conclusion, is_lost, is_replaced, closing, is_refused = verdict
        if is_refused and self._is_undisturbed(state):
            return Violation(f"batch {moved.batch} was refused, and nobody has ended a transaction of it")
        if is_replaced and not self._has_rivals:
            return Violation(f"driver {driver.number} ended because another had taken over, and there was none")
        title = f"{driver.operation}: {conclusion.value}{', lost' if is_lost else ''}"
        self.verdicts[title] = self.verdicts.get(title, 0) + 1
        problem = self._verdict_problem(state, moved, conclusion, is_lost)
        if problem is not None:
            return problem
        after = self._after(moved, conclusion, is_lost)
        if closing < 0:
            return self._checked(self._with(state, after))
        # As if the process of a record that is still being written ended at the next commit that leaves one.
        state = self._orphaned(state, after.closing_out)
        return self._closing_step(state, after._replace(machine=-1, closing=closing, closing_out=()), BEGIN)

    def _after(self, driver: Driver, conclusion: Conclusion, is_lost: bool) -> Driver:
        if is_lost:
            return driver._replace(stage="stuck", machine=-1)
        if driver.operation == DriverOperation.RECOVER.value:
            return driver._replace(stage="down" if conclusion is Conclusion.FAILED else "tasks", machine=-1)
        if driver.operation == DriverOperation.ABORT.value:
            return driver._replace(stage="down", machine=-1, receipts=())
        if conclusion is Conclusion.FAILED:
            return driver._replace(stage="failed")
        if self.has_labels or driver.batch + 1 == self.batches:
            return driver._replace(stage="finished", machine=-1, receipts=())
        return driver._replace(stage="tasks", batch=driver.batch + 1, receipts=())

    # ---- violations ----

    def _verdict_problem(
        self, state: WorldState, driver: Driver, conclusion: Conclusion, is_lost: bool
    ) -> Violation | None:
        delivered = (Conclusion.DELIVERED, Conclusion.ALREADY_DELIVERED, Conclusion.NOTHING_TO_DO)
        fates = self._rows[state.broker]
        counts = [self._count(fates, driver.batch, task, driver.content) for task in range(TASKS)]
        if driver.operation == DriverOperation.COMMIT.value and conclusion in delivered and counts != [1] * TASKS:
            return Violation(
                f"batch {driver.batch} is called {conclusion.value}, but its rows are there {counts} times"
            )
        if driver.operation == DriverOperation.COMMIT.value and conclusion is Conclusion.DELIVERED:
            seconds = [self._second_row(driver, one.task) for one in driver.receipts if one.has_second_row]
            if any(not {"visible", "coming"}.intersection(fates.get(row, [])) for row in seconds):
                return Violation(f"batch {driver.batch} is called delivered, but a second row of {seconds} is missing")
        contents = range(driver.content + 1)
        if is_lost and all(
            sum(self._count(fates, batch, task, content) for content in contents) == 1
            for batch in range(driver.batch if self.has_labels else 0, driver.batch + 1)
            for task in range(TASKS)
        ):
            return Violation("a loss was reported, but every row is there")
        return self._unexplained(state, is_lost=is_lost)

    def _unexplained(self, state: WorldState, *, is_lost: bool) -> Violation | None:
        """An intent without a marker whose transactions are all open may be decided, so it is committed. If it was
        refused, a late request to abort may then meet one of them: nothing bounds its time."""
        untouched, now = self.initial.budget, state.budget
        if (
            is_lost
            and not state.has_late_abort
            and (now.time_outs, now.operators) == (untouched.time_outs, untouched.operators)
        ):
            return Violation("a loss was reported, but nobody has aborted a transaction")
        return None

    def _is_undisturbed(self, state: WorldState) -> bool:
        """Nothing has happened for which a batch may be refused."""
        kept = ("time_outs", "deadlines", "others", "operators", "commands")
        is_spent = any(getattr(state.budget, name) != getattr(self.initial.budget, name) for name in kept)
        return not self._has_rivals and not is_spent

    def _count(self, fates: dict[bytes, list[str]], batch: int, task: int, content: int) -> int:
        return sum(fate in ("visible", "coming") for fate in fates.get(self._row(batch, task, content), []))

    def _checked(self, state: WorldState) -> WorldState | Violation:
        doubled = self._doubled[state.broker]
        return Violation(doubled) if doubled else state

    # ---- helpers ----

    def _with(self, state: WorldState, driver: Driver) -> WorldState:
        drivers = tuple(driver if other.number == driver.number else other for other in state.drivers)
        return state._replace(drivers=drivers)

    def _orphaned(self, state: WorldState, requests: tuple[int, ...]) -> WorldState:
        kept = [request for request in requests if self._requests[request].api.name in EFFECTIVE]
        return state._replace(orphans=tuple(sorted((*state.orphans, *kept))))

    def _key(self, driver: Driver) -> BatchKey:
        return BatchKey("", f"day-{driver.batch}") if self.has_labels else BatchKey(QUERY, driver.batch)

    def _run(self, driver: Driver) -> str:
        if self.has_labels:
            return run_of_label(f"day-{driver.batch}", str(driver.run), LEDGER)
        return f"{driver.number * 256 + driver.run:016x}"

    def _task_identity(self, driver: Driver, task: int) -> TaskIdentity:
        return TaskIdentity(SINK, self._run(driver), task, 0)

    def _row(self, batch: int, task: int, content: int) -> bytes:
        return f"b{batch}-t{task}-{content}".encode()

    def _second_row(self, driver: Driver, task: int) -> bytes:
        return f"b{driver.batch}-s{task}-{driver.content}".encode()

    def _receipt(self, driver: Driver, receipt: TaskResult) -> TaskReceipt:
        task, producer_id, epoch, written, _ = receipt
        name = self._task_identity(driver, task).transactional_id
        return TaskReceipt(
            key=self._key(driver),
            run=self._run(driver),
            spark_partition=task,
            attempt=0,
            transaction=PreparedTransaction(name, producer_id, epoch, self.transaction_version),
            timeout_ms=TIMEOUT_MS,
            remaining_ms=TIMEOUT_MS,
            # Different rows means a higher row count in the receipt; the log has one record for each task.
            written=tuple(WrittenPartition("t", where, 1 + driver.content, *offsets) for where, *offsets in written),
            row_count=1 + driver.content,
        )

    def _title(self, request: int) -> str:
        asked = self._requests[request]
        return f"{asked.purpose} {asked.number}"

    def _opened(self, number: int) -> TinyBroker:
        broker = TinyBroker(self._brokers[number], self.transaction_version)
        broker.tells_sequences = False
        return broker

    def _broker_number(self, broker: Any) -> int:
        number = self._broker_numbers.get(broker)
        if number is None:
            number = self._broker_numbers[broker] = len(self._brokers)
            self._brokers.append(broker)
            self._rows.append(tiny_broker.rows_of(broker))
            self._doubled.append(doubled_row(self._rows[-1]))
        return number

    def _answered(self, broker: int, request: int) -> Any:
        found = self._answers.get((broker, request))
        if found is None:
            opened = self._opened(broker)
            answer = self._answer_number(request, opened.answer(self._requests[request]))
            found = self._answers[broker, request] = (answer, self._broker_number(opened.state()))
        return found

    def _is_about_ledger(self, request: int) -> bool:
        asked = self._requests[request]
        is_reading = asked.api.name in ("ListOffsets", "Fetch")
        return is_reading and isinstance(asked.target, Leader) and asked.target.topic == LEDGER

    def _outdated_answers(self, broker: int, request: int, answer: int) -> list[tuple[int, int]]:
        """Answers from the log at each shorter length, where they differ from the given answer."""
        asked = self._requests[request]
        found = []
        for length in range(len(self._opened(broker).logs.get((LEDGER, 0), []))):
            opened = self._opened(broker)
            del opened.logs[LEDGER, 0][length:]
            outdated = self._answer_number(request, opened.answer(asked))
            if outdated != answer:
                found.append((length, outdated))
        return found

    def _frozen_answers(self, broker: int, request: int, answer: int) -> list[tuple[str, int]]:
        """Answers about one id or partition as of before the batch, or of before everything."""
        asked = self._requests[request]
        found = {}
        if asked.purpose == OPEN_PARTS:
            topics = [(topic["name"], topic["partition_indexes"]) for topic in asked.body["topics"]]
            for where in [(name, index) for name, indexes in topics for index in indexes]:
                for length in range(len(self._opened(broker).logs.get(where, []))):
                    opened = self._opened(broker)
                    del opened.logs[where][length:]
                    found[f"{where} to {length}"] = opened.answer(asked)
        else:
            for name in asked.body["transactional_ids"]:
                opened = self._opened(broker)
                known = opened.transactions.pop(name, None)
                found[name] = opened.answer(asked)
                if known is not None:
                    # Version 2 begins a transaction without another epoch, version 1 has asked for one.
                    epoch = known[1] if self.transaction_version == 2 else known[1] - 1
                    opened.transactions[name] = (known[0], epoch, COMPLETE[PREPARE[True]], (), 0)
                    found[f"{name}, of the batch before,"] = opened.answer(asked)
        numbers = {about: self._answer_number(request, body) for about, body in found.items()}
        return [(about, number) for about, number in numbers.items() if number != answer]

    def _answer_number(self, request: int, body: Mapping[str, Any] | None) -> int:
        """`body` is None if the answer was lost."""
        key = (request, repr(body))
        number = self._answer_numbers.get(key)
        if number is None:
            number = self._answer_numbers[key] = len(self._driver_answers)
            asked = self._requests[request]
            if body is None:
                answer = Reply(asked, ReplyKind.LOST, (), TransportError("lost"))
            else:
                answer = Reply(asked, ReplyKind.ANSWERED, (body,))
            self._driver_answers.append(answer)
        return number

    # ---- machines as numbers ----

    def _machine(self, number: int) -> Machine:
        machine: Machine = pickle.loads(self._machines[number])
        return machine

    def _interned(self, machine: Machine) -> int:
        _forget_tries(machine.committer)
        key = canonical(machine)
        number = self._machine_numbers.get(key)
        if number is None:
            number = self._machine_numbers[key] = len(self._machines)
            self._machines.append(pickle.dumps(machine))
        return number

    def _request_number(self, request: Ask) -> int:
        key = (
            request.purpose,
            request.number,
            request.target,
            request.version_max,
            request.find_again,
            repr(request.body),
        )
        number = self._request_numbers.get(key)
        if number is None:
            number = self._request_numbers[key] = len(self._requests)
            self._requests.append(request)
        return number

    def _stepped(self, number: int, answer: int) -> Any:
        key = (number, answer)
        found = self._steps.get(key)
        if found is None:
            machine = self._machine(number)
            replies = _to_its_own(machine.committer, self._driver_answers[answer]) if answer >= 0 else ()
            progress = machine.committer.step(LATE_MS if answer == LATE else 0, replies)
            requests = [self._request_number(request) for request in progress.asks]
            verdict = progress.result
            ended = None if verdict is None else self._ended(machine.session, verdict)
            found = self._steps[key] = (self._interned(machine), requests, ended)
        return found

    def _ended(self, session: DriverSession, verdict: CommitResult | LedgerWrite | StopRuns) -> Any:
        """Of a closing machine: whether its record is written. What a command hears changes nothing."""
        if isinstance(verdict, StopRuns):
            return True
        if isinstance(verdict, LedgerWrite):
            return verdict.state is WriteState.WRITTEN
        is_replaced = any(words in str(verdict.error) for words in TAKEN_OVER)
        closing = -1
        if verdict.closing is not None:
            closing = self._interned(Machine(Closing(self.settings, session, verdict.closing, 0), session))
        is_refused = isinstance(verdict.error, CommitAborted)
        return verdict.conclusion, isinstance(verdict.error, CommitLost), is_replaced, closing, is_refused


def _joined(result: TaskResult, number: int, offset: int) -> tuple[tuple[int, int, int], ...]:
    ((task, first, last),) = result.written
    return ((task, first, offset),) if number == task else ((task, first, last), (number, offset, offset))


def doubled_row(fates_of: Mapping[bytes, list[str]]) -> str:
    """Returns an error text if a task's row is there more than once, counted over all its contents."""
    counts: dict[bytes, int] = {}
    for row, fates in fates_of.items():
        place = row[:PLACE_BYTES]
        counts[place] = counts.get(place, 0) + sum(fate in ("visible", "coming") for fate in fates)
        if counts[place] > 1:
            return f"row {row.decode()} is there twice: {fates}"
    return ""


def _to_its_own(committer: Committer | Closing | Stopping, reply: Reply) -> tuple[Reply, ...]:
    """The reply to the ask of this copy of the machine; none if it does not wait for one."""
    asked = reply.ask.purpose, reply.ask.number
    found = (ask for step in committer.steps() if (ask := step.asks.find(*asked)) is not None and ask.is_out)
    return tuple(replace(reply, ask=ask) for ask in found)[:1]


def _forget_tries(committer: Committer | Closing | Stopping) -> None:
    """Resets the numbers of retries: as a part of the state they would make the world infinite."""
    for step in committer.steps():
        for owner in (step, getattr(step, "_search", None)):
            if owner is not None:
                owner.last_trouble = ""
                for ask in owner.asks:
                    ask.failures = min(ask.failures, 1)
                    ask.due_ms = 0


# Half of all calls of canonical() would be for these.
ATOMS = frozenset({type(None), bool, int, str, bytes})


def canonical(value: Any) -> Any:
    """Returns a hashable value that is equal for all values that behave the same."""
    if value is None or isinstance(value, (int, str, bytes, Enum)):
        return value
    if isinstance(value, AllBrokers):
        return "every broker"
    if isinstance(value, (tuple, list)):
        return tuple([item if type(item) in ATOMS else canonical(item) for item in value])
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(map(repr, value)))
    if isinstance(value, dict):
        pairs = [(canonical(key), canonical(item)) for key, item in value.items()]
        return tuple(sorted(pairs, key=lambda pair: repr(pair[0])))
    if isinstance(value, DeliverySettings):
        return "settings"
    if isinstance(value, BaseException):
        return type(value).__name__
    if is_dataclass(value):
        kind = type(value)
        if kind.__name__ == "Api":
            return value.name  # type: ignore[attr-defined]
        items = [getattr(value, name) for name in _field_names(kind)]
        return (kind.__name__, *[item if type(item) in ATOMS else canonical(item) for item in items])
    return (type(value).__name__, canonical(value.__dict__))


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
