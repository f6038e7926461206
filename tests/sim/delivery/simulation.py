"""One run: a query and its cluster under faults; then the faults end, and the query must finish and is checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from unittest import mock

from kafka_sink.commit.admin.ledger_topic import LEDGER_CONFIGS
from kafka_sink.commit.phase import Phase
from kafka_sink.kafka.wire.apis import INIT_PRODUCER_ID
from kafka_sink.testing import BrokerCluster, Settings
from kafka_sink.testing.batches import Batch
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.settings import TopicConfig
from kafka_sink.testing.topics import BrokerState
from kafka_sink.testing.transaction_state import CoordinatorState
from kafka_sink.testing.transactions import DoneWithProducer, ProducerClaim, TransactionCoordinator
from tests.sim.cluster_faults import REFUSALS, REFUSED_ALTHOUGH_DONE, ClusterFaults
from tests.sim.course import Course, Ran
from tests.sim.delivery.breakers import LOST_MARKERS, UNNAMED
from tests.sim.delivery.checks import Checks, check_nothing_is_open
from tests.sim.delivery.commands import Planned
from tests.sim.delivery.ledger_log import open_sinks
from tests.sim.delivery.manifests import check_manifests
from tests.sim.delivery.moments import LEADER_PHASES
from tests.sim.delivery.plan import LABELLED, LEDGER, MANIFESTS, STREAM, UNNAMED_SINKS, Plan
from tests.sim.delivery.query import Moment, Query
from tests.sim.delivery.stage import Stage
from tests.sim.dice import Dice
from tests.sim.network import Link
from tests.sim.scenario import TOPICS

# After the last fault: recovery waits up to 120 s, and a lost batch needs some starts until it is resolved.
TIME_TO_END_MS = 600_000
# A request may come 12 s late and begin a transaction, which then ends by its time-out. This is the additional time
# until the coordinator notices that and slow brokers carry it out.
TIME_TO_SETTLE_MS = 40_000
BATCHES_AFTER_HEALING = 2
# After healing: markers of what ended before may still be on their way, then the operator looks.
OPERATOR_AFTER_MS = 5_000
TIME_TO_REPLICATE_MS = 5_000
MORE_REFUSALS = {
    "DescribeTransactions": (14, 15, 16),
    "ListTransactions": (14, 15),
    "ListOffsets": (5, 6, 3),
    "Fetch": (5, 6, 3),
}
API_KEYS = (None, 0, 0, 1, 2, 3, 10, 22, 22, 24, 26, 26, 26, 26, 65, 66)
# More than the longest interval at which a coordinator looks for transactions that have timed out.
TIME_OUT_NOTICED_MS = 3_000
# As the sink creates its ledger. An intent that has lost its marker is still there when the next driver reads it within
# an hour. Everything else must also hold with a cleaner that runs at once.
LEDGER_LAG_MS = int(LEDGER_CONFIGS["min.compaction.lag.ms"])
LEDGER_SHARE = 2
DRIVER_SHARE = 0.75
OVERSLEEPING_SHARE = 0.2


class DeliveryFaults(ClusterFaults):
    """No topic is deleted here. One that grows while brokers are down might have to be, to become writable again."""

    def grow_topic(self, pick: Random, length_ms: int) -> bool:
        return len(self.core.cluster.alive) == len(self.core.cluster.brokers) and super().grow_topic(pick, length_ms)


class RollingLog(PartitionLog):
    """Begins a segment at random, as a busy topic does when its segment is full."""

    def __init__(self, pick: Random, share: float) -> None:
        super().__init__()
        self._pick = pick
        self._share = share

    def _store(self, batch: Batch, config: TopicConfig) -> None:
        if self._pick.random() < self._share:
            self.roll()
        super()._store(batch, config)


Result = Ran[Plan]


class DeliverySimulation(Course[Plan]):
    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        super().__init__(plan, Dice(f"delivery run {plan.seed}"), keep_trace=keep_trace)
        timed_out: set[tuple[str, int, int]] = set()
        with _time_outs_noted(timed_out):
            # The scheduled housekeeping of the core keeps the patched method.
            self.connect(self._build_core())
        more = [MANIFESTS] if plan.has_manifests else []
        self.faults = DeliveryFaults(
            self.core, self.network, self.trace, topics=(*TOPICS, *[LEDGER] * LEDGER_SHARE, *more),
            refusals={**REFUSALS, **MORE_REFUSALS}, refused_although_done=REFUSED_ALTHOUGH_DONE,
        )  # fmt: skip
        self.stage = Stage(plan, self.dice, self.loop, self.network, self.trace)
        self.stage.books.timed_out = timed_out
        _note_aborts(self.core.coordinator, self.stage.books.aborted)
        self.stage.on_refused = self._on_refused
        self.stage.frozen_brokers.outdated_until_ms = self.faults.outdated_until_ms
        self.stage.stall = partial(self.faults.pause_broker, self.dice["stalls"])
        self.first = Query("q1", self.stage, self.stage.checkpoints[0])
        # The same query, started again beside the first; and another one under the same sink id.
        self.second: Query | None = None
        self.twin: Query | None = None
        self._seconds = self._moves = 0

    def _build_core(self) -> BrokerCluster:
        plan, chance = self.plan, self.dice["coordinator"]
        settings = Settings(
            properties=plan.properties, delay_ms=self.broker_delay_ms, chance=lambda _what: chance.random() < 0.5
        )
        brokers = [BrokerState(number, f"b{number}", 9092) for number in range(1, plan.brokers + 1)]
        core = BrokerCluster(brokers, topics=plan.partitions, settings=settings)
        lag_ms = LEDGER_LAG_MS if LOST_MARKERS in plan.breakers else 0
        configs = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(lag_ms)}
        core.cluster.create_topic(LEDGER, 1, min(3, plan.brokers), configs)
        if plan.has_manifests:
            core.cluster.create_topic(MANIFESTS, 1, min(3, plan.brokers), {})
        for name in (LEDGER, *plan.partitions, *([MANIFESTS] if plan.has_manifests else [])):
            for partition in core.cluster.topics[name].partitions:
                partition.log = RollingLog(self.dice[f"segments of {name}-{partition.index}"], plan.roll_share)
        return core

    # ---- the course of a run ----

    def play(self) -> None:
        self.first.start()
        self.plan_faults()
        self.run_until(self.plan.busy_ms)
        self._heal()
        self.run_until(self.loop.now_ms + TIME_TO_END_MS, self._is_finished)
        check_nothing_is_open(self.core, self.stage.assumptions, self.plan.kind)
        self._end_executors()
        self.run_until(self.loop.now_ms + self.plan.options.transaction_timeout_ms + TIME_TO_SETTLE_MS)
        self._operate()
        self.run_until(self.loop.now_ms + TIME_TO_REPLICATE_MS)
        stage = self.stage
        in_doubt = stage.leaders.in_doubt
        shown = open_sinks(self.core, stage.assumptions.lost_markers)
        Checks(self.core, stage.books, stage.history, stage.checkpoints, self.plan.kind, in_doubt, shown).check_all()
        if self.plan.has_manifests:
            lost = stage.assumptions.lost_markers
            check_manifests(self.core, stage.books, lost, in_doubt, stage.leaders.manifests_in_doubt)

    def _is_finished(self) -> bool:
        is_over = not any(query.is_running for query in self._lasting())
        return is_over and all(checkpoint.is_finished for checkpoint in self.stage.checkpoints)

    def _lasting(self) -> list[Query]:
        """Queries that are started again until everything is done."""
        return [self.first] if self.twin is None else [self.first, self.twin]

    def _heal(self) -> None:
        """Ends all faults and all executors; the queries start again and have more batches to write."""
        self.stage.note("healed")
        self.stage.is_healed = True
        self.faults.heal()
        self.stage.assumptions.heal()
        self.stage.lost_tails.heal()
        self.stage.frozen_brokers.heal()
        self.stage.leaders.heal()
        self.loop.after(OPERATOR_AFTER_MS, self._operate)
        self.network.heal()
        if self.second is not None:
            self.second.stop_for_good()
        for query in self._lasting():
            query.forget_accidents()
            query.crash(is_silent=False)
        self._end_executors()
        for checkpoint in self.stage.checkpoints:
            checkpoint.batches_max = max(len(checkpoint.batches), checkpoint.batches_max) + BATCHES_AFTER_HEALING
        for query in self._lasting():
            if not query.is_waiting:
                query.start()

    def _operate(self) -> None:
        self.stage.leaders.end_forgotten()
        self.network.route(self.core.tick(self.loop.now_ms))

    def _end_executors(self) -> None:
        for executor in self.stage.executors:
            if executor.is_alive:
                executor.kill(is_silent=False)

    # ---- faults ----

    def _queries(self) -> list[Query]:
        return [query for query in (self.first, self.second, self.twin) if query is not None and query.is_running]

    def _drivers(self) -> list[str]:
        return [*(host.name for query in self._queries() for host in query.hosts), *self.stage.commands.hosts]

    def _tasks(self) -> list[str]:
        return [one.name for one in self.stage.executors if one.is_alive and one.attempt is not None]

    def links_to_hurt(self) -> Iterable[Link]:
        alive = {*self._drivers(), *self._tasks()}
        return [link for link in self.network.links.values() if link.host in alive]

    def arm(self, kind: str, pick: Random) -> None:
        """For the next request of some kind, of one live host: more often a driver than a task."""
        drivers, tasks = self._drivers(), self._tasks()
        is_for_driver = not tasks or pick.random() < DRIVER_SHARE
        direction, armed = self.armed(kind, pick, pick.choice(API_KEYS))
        if is_for_driver and not drivers:
            # Each operation has its own process: the fault waits for the next one.
            self.stage.armed_for_drivers.append((direction, armed))
        else:
            self.stage.arm(pick.choice(drivers if is_for_driver else tasks), direction, armed)

    def hurt(self, kind: str, pick: Random, length_ms: int) -> bool:
        for table in (
            self.stage.assumptions.table,
            self.stage.operators.table,
            self.stage.lost_tails.table,
            self.stage.frozen_brokers.table,
        ):
            if kind in table:
                return table[kind](pick, length_ms)
        if kind == "no_leader":
            return self.stage.leaders.lose(pick, length_ms)
        if kind == "second_driver":
            return self._second_driver()
        if kind == "second_query":
            return self._second_query()
        if kind == "set_back":
            return self._set_back(pick)
        if kind == "run_command":
            return self._run_command(pick, length_ms)
        if kind == "foreign_record":
            return self.stage.foreign_records.write(pick)
        if kind == "move_checkpoint":
            return self._move_checkpoint(pick)
        queries = self._queries()
        if not queries:
            return False
        query = pick.choice(queries)
        if kind in ("speculate", "fail_task", "kill_task", "pause_task"):
            return query.job is not None and query.job.hurt(kind, pick, length_ms)
        if kind == "end_process":
            return query.end_process()
        if kind == "crash_driver":
            query.crash(is_silent=pick.random() < 0.3)
        elif kind == "long_downtime":
            query.downtime_ms = self.plan.options.transaction_timeout_ms + TIME_OUT_NOTICED_MS
            query.crash_at = query.crash_at or Moment(pick)
            return True
        elif kind == "crash_in_commit":
            query.crash_at = query.crash_at or Moment(pick)
            return False  # counted when it happens
        elif kind == "pause_driver":
            query.pause_at, query.pause_ms = Moment(pick), length_ms * 2
            if pick.random() < OVERSLEEPING_SHARE:
                query.pause_ms += self.plan.options.transaction_timeout_ms + TIME_OUT_NOTICED_MS
            return False
        elif kind == "no_leader_in_commit":
            # One that waits for a rare phase is not kept for long.
            if query.leader_lost_at is None or pick.random() < 0.1:
                query.leader_lost_at, query.leader_lost_ms = Moment(pick, LEADER_PHASES), length_ms
            return False
        elif kind == "leader_away":
            query.leader_away_at = query.leader_away_at or Moment(pick, (Phase.COMMITTING,))
            return False
        elif kind == "fence_in_read":
            # There is something to abort if a driver dies with an open record, or is fenced before its claim.
            query.crash_at = query.crash_at or Moment(pick, (Phase.DECIDING,))
            query.fence_at = Moment(pick, (Phase.READING,))
            return False
        elif kind == "cut_in_commit":
            query.cut_at = Moment(pick)
            return False
        elif kind == "late_start":
            _, armed = self.armed("overtaken", pick, INIT_PRODUCER_ID.key)
            self.stage.armed_for_tasks.append(armed)
        elif kind == "cancel_job":
            query.cancels_next_job = True
            return False
        elif kind == "crash_before_spark_commits":
            query.crashes_before_spark_commits = True
            return False
        else:
            for host in query.hosts:
                host.plan_step(self.loop.now_ms)
            return bool(query.hosts)
        return True

    def _second_driver(self) -> bool:
        """The same query is started again, on the same checkpoint, while the first one runs."""
        has_old_checkpoint = self.first.checkpoint.saved is not None
        if has_old_checkpoint or (self.second is not None and self.second.is_running):
            return False
        self._seconds += 1
        self.second = Query(f"s{self._seconds}", self.stage, self.first.checkpoint, is_second=True)
        self.second.start()
        return True

    def _second_query(self) -> bool:
        """Another user has the same sink id for another query, or for exports with other labels. Exports have no query
        in their sink id, so they share driver id and ledger."""
        if self.twin is not None:
            return False
        self.twin = Query("t1", self.stage, self.stage.other_checkpoint())
        self.twin.start()
        return True

    def _run_command(self, pick: Random, length_ms: int) -> bool:
        """About the sink of a query that runs or does not, or about those of all writes without a name."""
        query = pick.choice(self._lasting())
        name = UNNAMED_SINKS if self.plan.kind == UNNAMED else self.stage.name_of(query.checkpoint.query_id)
        return self.stage.commands.plan(Planned(pick, length_ms, name))

    def _move_checkpoint(self, pick: Random) -> bool:
        """The query is stopped, its checkpoint is moved, and it starts again. The name is that of the place."""
        query = pick.choice(self._lasting())
        if self.plan.kind != STREAM:
            return False
        if self.second is not None and query is self.first:
            self.second.stop_for_good()
        query.crash(is_silent=False)
        self._moves += 1
        self.stage.rename(query.checkpoint.query_id, f"moved{self._moves}")
        return True

    def _set_back(self, pick: Random) -> bool:
        """The query is stopped, an older copy of its checkpoint is restored, and it starts again."""
        query = pick.choice(self._lasting())
        if self.plan.kind == LABELLED or not query.checkpoint.set_back(pick):
            return False
        if self.second is not None and query is self.first:
            self.second.stop_for_good()
        query.crash(is_silent=False)
        return True

    def _on_refused(self, query: Query) -> None:
        if query.checkpoint.on_refused() and self.second is not None and query is not self.second:
            self.second.stop_for_good()


@contextmanager
def _time_outs_noted(timed_out: set[tuple[str, int, int]]) -> Iterator[None]:
    """Notes which transactions the coordinator aborts because they timed out; no other abort excuses a loss."""
    abort_timed_out = TransactionCoordinator.abort_timed_out

    def noting(self: TransactionCoordinator) -> None:
        candidates = {
            transactional_id: (transactional_id, transaction.record.producer_id, transaction.record.producer_epoch)
            for transactional_id, transaction in self.transactions.items()
            if transaction.record.state is CoordinatorState.ONGOING and transaction.pending is None
        }
        abort_timed_out(self)
        for transactional_id, exact in candidates.items():
            transaction = self.transactions[transactional_id]
            if transaction.pending is not None or transaction.record.state is not CoordinatorState.ONGOING:
                timed_out.add(exact)

    with mock.patch.object(TransactionCoordinator, "abort_timed_out", noting):
        yield


def _note_aborts(coordinator: TransactionCoordinator, aborted: set[tuple[str, int, int]]) -> None:
    """Notes which open transactions were aborted because somebody asked for it, by their exact epoch."""
    end = coordinator.end

    def noting(claim: ProducerClaim, is_commit: bool, version: int, done: DoneWithProducer) -> None:
        known = coordinator.transactions.get(claim.transactional_id)
        was_open = known is not None and known.record.state is CoordinatorState.ONGOING
        end(claim, is_commit, version, done)
        if was_open and not is_commit:
            aborted.add((claim.transactional_id, claim.producer_id, claim.epoch))

    coordinator.end = noting  # type: ignore[method-assign]


def run(plan: Plan, *, keep_trace: bool = False) -> Result:
    return DeliverySimulation(plan, keep_trace=keep_trace).run()
