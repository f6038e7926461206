"""What all participants of a run share: clock, network, history, books, and functions that create hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from kafka_sink.commit.identity import sink_id_of_query
from kafka_sink.commit.identity_pool import IdentityPool
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import DeliverySettings, OnMismatch
from tests.sim.delivery.assumptions import Assumptions
from tests.sim.delivery.books import Books
from tests.sim.delivery.breakers import FAULTS_OF, LATE_LEADERS, POOL, PROCESSES, UNNAMED
from tests.sim.delivery.checkpoint import Checkpoint
from tests.sim.delivery.claims import Claims
from tests.sim.delivery.commands import Commands
from tests.sim.delivery.driver_host import DriverHost
from tests.sim.delivery.executor import Executor
from tests.sim.delivery.foreign_records import ForeignRecords
from tests.sim.delivery.frozen_brokers import FrozenBrokers
from tests.sim.delivery.leaders import Leaders
from tests.sim.delivery.lost_tails import LostTails
from tests.sim.delivery.operators import Operators
from tests.sim.delivery.plan import LEDGER, SINK, STREAM, UNNAMED_SINKS, Plan
from tests.sim.delivery.results import Results
from tests.sim.dice import Dice
from tests.sim.history import History
from tests.sim.loop import Loop
from tests.sim.network import Armed, Network
from tests.sim.scenario import TRANSACTIONAL, ProducerPlan
from tests.sim.trace import Trace

if TYPE_CHECKING:
    from tests.sim.delivery.query import Query

QUERY_ID, OTHER_QUERY_ID = "query", "other"
# A leader that stays away does so for longer than transactions live.
LONGER_MS = 3_000


class Stage:
    first_query_id = QUERY_ID

    def __init__(self, plan: Plan, dice: Dice, loop: Loop, network: Network, trace: Trace) -> None:
        self.plan = plan
        self.dice = dice
        self.loop = loop
        self.network = network
        self.trace = trace
        self.history = History()
        self.books = Books()
        self.assumptions = Assumptions(network.core, trace)
        self.leaders = Leaders(
            network, trace, self.books, self.assumptions.lied_about, freshness_ms=plan.options.retry_backoff_ms,
            has_no_other_faults={event.kind for event in plan.faults} <= {FAULTS_OF[LATE_LEADERS]},
        )  # fmt: skip
        self.operators = Operators(network, trace, self.books, plan.transaction_version)
        self.lost_tails = LostTails(network, trace, self.books)
        self.frozen_brokers = FrozenBrokers(network, trace, self.assumptions)
        has_one_process = plan.forgetful == 0 and PROCESSES not in plan.breakers
        claims = Claims(
            network.core.cluster.topics[LEDGER].partitions[0].log, self.books.decided, is_strict=has_one_process
        )
        self.results = Results(
            self.books, network.core, loop, trace, dice["operator"], self.assumptions, claims,
            is_skipping=plan.replay_mismatch == "skip",
        )  # fmt: skip
        self.commands = Commands(self)
        self.executors: list[Executor] = []
        self.checkpoints = [Checkpoint(QUERY_ID, self, plan.batches)]
        # Called when a query was told that its checkpoint has been set back.
        self.on_refused: Callable[[Query], None] = lambda _query: None
        # A broker stalls for so many milliseconds.
        self.stall: Callable[[int], object] = lambda _ms: None
        # After that nothing happens any more that only a fault would cause.
        self.is_healed = False
        self.foreign_records = ForeignRecords(network.core, trace)
        self._names: dict[str, str] = {}
        self._names_of_runs: dict[tuple[str, str], str] = {}
        self._hosts: Counter[str] = Counter()
        self._attempts = 0
        # Faults of a request or an answer that wait for the next process of a driver.
        self.armed_for_drivers: list[tuple[str, Armed]] = []
        # Faults for the first InitProducerId of the next new executor.
        self.armed_for_tasks: list[Armed] = []

    def note(self, text: str) -> None:
        self.trace.note(self.loop.now_ms, text)

    def count(self, what: str, times: int = 1) -> None:
        self.trace.count(what, times)

    def arm(self, host: str, direction: str, armed: Armed) -> None:
        for broker_id in self.network.core.cluster.brokers:
            self.network.link(host, broker_id).armed[direction].append(armed)

    def repair_ledger(self) -> None:
        self.foreign_records.repair()
        self.network.route(self.network.core.tick(self.loop.now_ms))

    def lose_leader_for_long(self, pick: Random) -> bool:
        is_lost = self.leaders.lose(pick, self.plan.options.transaction_timeout_ms + LONGER_MS)
        if is_lost:
            self.count("fault leader_away")
        return is_lost

    def fence_drivers(self) -> None:
        if not self.is_healed:
            self.network.core.cluster.topics[LEDGER].partitions[0].log.roll()
            self.assumptions.fence_drivers()
            self.network.route(self.network.core.tick(self.loop.now_ms))

    @property
    def settings(self) -> DeliverySettings:
        plan = self.plan
        return DeliverySettings(
            ledger_topic=LEDGER,
            cluster_id=self.network.core.cluster.cluster_id,
            transaction_version=plan.transaction_version,
            margin_ms=plan.options.transaction_timeout_ms // 4,
            request_timeout_ms=plan.options.request_timeout_ms,
            parallel_requests=plan.parallel_requests,
            patience_ms=plan.patience_ms,
            accept_unknown_sink=plan.kind != STREAM,
            # If a row's topic is random, the counts per topic do not identify the rows.
            on_mismatch=OnMismatch(plan.replay_mismatch) if plan.breakers else OnMismatch.SKIP,
        )

    # ---- hosts ----

    def _next_name(self, kind: str) -> str:
        self._hosts[kind] += 1
        return f"{kind}{self._hosts[kind]}"

    def new_driver_host(self, query: str) -> DriverHost:
        name = self._next_name(f"{query}.d")
        waiting, self.armed_for_drivers = self.armed_for_drivers, []
        for direction, armed in waiting:
            self.arm(name, direction, armed)
        jitter = self.dice["jitter of drivers"].random
        host = DriverHost(
            name, self.plan.options, loop=self.loop, network=self.network, trace=self.trace, jitter=jitter
        )
        host.on_leaderless = self.leaders.check_wait
        return host

    def executor_for(self, query: str, transactional_id: str) -> Executor:
        """An idle executor of the same application, or a new one."""
        self.executors = [one for one in self.executors if one.is_alive]
        idle = [one for one in self.executors if one.is_idle and one.name.startswith(f"{query}.")]
        has_pool = POOL in self.plan.breakers
        if idle and (self.dice["reuse"].random() < self.plan.reuse or has_pool):
            return idle[0]
        name = self._next_name(f"{query}.e")
        options = replace(self.plan.options, transactional_id=transactional_id)
        producer = ProducerPlan(name, TRANSACTIONAL, options, self.plan.codec, 3, self.plan.pause_ms)
        executor = Executor(
            name, producer, loop=self.loop, network=self.network, history=self.history, trace=self.trace,
            pick=self.dice[f"task {name}"], jitter=self.dice["jitter of tasks"].random,
        )  # fmt: skip
        executor.books = self.books
        executor.pool = IdentityPool() if has_pool else None
        self.executors.append(executor)
        if self.armed_for_tasks:
            self.arm(name, "request", self.armed_for_tasks.pop(0))
        return executor

    @property
    def cores(self) -> int:
        return self.plan.cores if POOL in self.plan.breakers else self.plan.tasks_max

    def next_attempt(self) -> int:
        self._attempts += 1
        return self._attempts

    # ---- names ----

    def sink_id(self, key: BatchKey, run: str) -> str:
        """As planning and tasks compute it: with the query in it, or, for a write without a name, with the run."""
        if self.plan.kind == UNNAMED:
            return f"{UNNAMED_SINKS}-{run}"
        return sink_id_of_query(self.name_of(key.query_id, run), key.query_id)

    def named_sink_id(self, key: BatchKey, run: str = "") -> str:
        return self.name_of(key.query_id, run) if key.query_id else ""

    def name_of(self, query_id: str, run: str = "") -> str:
        """The option `sink.id`, or the hash of a checkpoint's place. Options hold for a run: a checkpoint that is moved
        meanwhile does not rename its planning, tasks or commits."""
        name = self._names.get(query_id, SINK)
        return self._names_of_runs.setdefault((query_id, run), name) if run else name

    def rename(self, query_id: str, name: str) -> None:
        self.note(f"query {query_id} has the name {name}")
        self.assumptions.abandoned.add(sink_id_of_query(self.name_of(query_id), query_id))
        self.assumptions.abandoned.discard(sink_id_of_query(name, query_id))
        self._names[query_id] = name

    # ---- Spark's checkpoints ----

    def other_checkpoint(self) -> Checkpoint:
        """The checkpoint of the query that has the same sink id and nothing else in common."""
        if len(self.checkpoints) == 1:
            self.checkpoints.append(Checkpoint(OTHER_QUERY_ID, self, max(1, self.plan.batches // 2)))
        return self.checkpoints[1]
