"""One run: it builds the cluster and producers of a scenario, runs them under faults, heals everything, waits until all
has ended, and checks the promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random
from unittest import mock

from kafka_sink.producer.engine import sequences
from kafka_sink.testing import BrokerCluster, Settings
from kafka_sink.testing.topics import TRANSACTION_TOPIC, BrokerState
from kafka_sink.testing.transaction_state import TransactionRecord
from kafka_sink.testing.transactions import CoordinatedTransaction as CoordinatorTransaction
from tests.sim import probes
from tests.sim.checkers import Checkers
from tests.sim.client import Client
from tests.sim.cluster_faults import ClusterFaults
from tests.sim.course import Course, Ran
from tests.sim.dice import Dice
from tests.sim.history import History
from tests.sim.network import Link
from tests.sim.scenario import TRANSACTIONAL, ProducerPlan, Scenario
from tests.sim.trace import Violation
from tests.sim.workload import Stage, script

# Additional time, after all time-outs, until everything must have ended.
GRACE_MS = 40_000
EPOCH_MAX_SHORT = 2
QUICK_LATENCY_MS = 0.5


Result = Ran[Scenario]


class Simulation(Course[Scenario]):
    def __init__(self, scenario: Scenario, *, keep_trace: bool = False) -> None:
        super().__init__(scenario, Dice(scenario.seed), keep_trace=keep_trace)
        self.history = History()
        self.stage = Stage(self._make_quick)
        self._is_quick = False
        self.connect(self._build_core())
        self.faults = ClusterFaults(self.core, self.network, self.trace)
        self.clients: list[Client] = []
        self._lives: Counter[str] = Counter()

    def _build_core(self) -> BrokerCluster:
        scenario = self.plan
        chance = self.dice["coordinator"]
        settings = Settings(
            properties=scenario.properties,
            delay_ms=self.broker_delay_ms,
            chance=lambda _what: chance.random() < 0.5,
            # A producer ends its transaction when it is told to, whether or not all partitions have leaders.
            forgets_leaderless=False,
        )
        brokers = [BrokerState(number, f"b{number}", 9092) for number in range(1, scenario.brokers + 1)]
        # Kafka takes offsets only of topics that it knows.
        core = BrokerCluster(brokers, topics={**scenario.partitions, "source": 1}, settings=settings)
        if scenario.first_epoch >= 0:
            for plan in scenario.producers:
                if (name := plan.options.transactional_id) is not None:
                    core.cluster.coordinator_partition(TRANSACTION_TOPIC, name)
                    record = TransactionRecord(core.cluster.new_producer_id(), 1_000, 0, scenario.first_epoch)
                    core.coordinator.transactions[name] = CoordinatorTransaction(name, record)
        return core

    def _make_quick(self) -> None:
        self._is_quick = True
        self.network.latency_ms = QUICK_LATENCY_MS

    def broker_delay_ms(self, what: str) -> int:
        return 0 if self._is_quick else super().broker_delay_ms(what)

    # ---- the course of a run ----

    def run(self) -> Result:
        # Epochs of producers without transactions start at 0; with only three epochs their ids are used up, too.
        epoch_max = EPOCH_MAX_SHORT if self.plan.first_epoch >= 0 else sequences.PRODUCER_EPOCH_MAX
        with probes.installed(self.trace), mock.patch.object(sequences, "PRODUCER_EPOCH_MAX", epoch_max):
            return super().run()

    def play(self) -> None:
        for plan in self.plan.producers:
            self.start_client(plan)
        self.plan_faults()
        self.run_until(self.plan.busy_ms)
        self._heal()
        self.run_until(self.loop.now_ms + self._time_to_end_ms(), self._is_quiet)
        self._check_ended()
        self.run_until(self.loop.now_ms + self._time_to_settle_ms())
        Checkers(self.core, self.faults, self.history, self.trace).check_all()

    def after_event(self) -> None:
        self._replace_the_dead()

    def _is_quiet(self) -> bool:
        return all(one.is_script_over for one in self.clients if one.is_alive)

    def _time_to_end_ms(self) -> int:
        options = [plan.options for plan in self.plan.producers]
        return GRACE_MS + max(
            one.delivery_timeout_ms * 2 + one.request_timeout_ms * 3 + one.transaction_timeout_ms for one in options
        )

    def _time_to_settle_ms(self) -> int:
        """The coordinator aborts transactions of dead producers after their time-out."""
        longest_ms = max(plan.options.transaction_timeout_ms for plan in self.plan.producers)
        check_ms = int(self.plan.properties["transaction.abort.timed.out.transaction.cleanup.interval.ms"])
        return longest_ms + 2 * check_ms + GRACE_MS

    def _heal(self) -> None:
        self.trace.note(self.loop.now_ms, "healed")
        self.stage.is_over = True
        self.faults.heal()
        self.network.heal()
        for client in self.clients:
            client.pause(0)
            client.plan_step(self.loop.now_ms)

    def _check_ended(self) -> None:
        for client in self.clients:
            if client.is_alive and not client.is_script_over:
                since_ms = client.open_call_since_ms
                text = f"call {client.open_call} of {client.name} has not ended since {since_ms}"
                raise Violation("I12", text)

    # ---- clients ----

    def start_client(self, plan: ProducerPlan) -> Client:
        self._lives[plan.name] += 1
        name = f"{plan.name}.{self._lives[plan.name]}"
        client = Client(
            name, plan, loop=self.loop, network=self.network, history=self.history, trace=self.trace,
            pick=self.dice[f"workload {name}"], jitter=self.dice[f"jitter {name}"].random,
        )  # fmt: skip
        self.clients.append(client)
        self.trace.note(self.loop.now_ms, f"{name} starts")
        client.run(script(client, self.stage))
        return client

    def _replace_the_dead(self) -> None:
        """A producer that ended early gets a successor, unless another one with its name is running."""
        for client in [one for one in self.clients if not one.is_alive or one.is_script_over]:
            self.clients.remove(client)
            client.is_alive = False
            rivals = [one for one in self.clients if one.plan.name == client.plan.name]
            if not rivals and not self.stage.is_over:
                self.loop.after(1, lambda plan=client.plan: self._succeed(plan))  # type: ignore[misc]

    def _succeed(self, plan: ProducerPlan) -> None:
        if not self.stage.is_over:
            self.start_client(plan)

    # ---- faults ----

    def links_to_hurt(self) -> Iterable[Link]:
        return self.network.links.values()

    def arm(self, kind: str, pick: Random) -> None:
        """For the next request of some kind, on any link of any client."""
        links = [link for link in self.network.links.values() if any(one.name == link.host for one in self.clients)]
        if not links:
            return
        direction, armed = self.armed(kind, pick, pick.choice((None, 0, 0, 0, 3, 22, 24, 26, 26)))
        # It is armed on every link of one client, so that it meets a request; its first use disarms the others.
        host = pick.choice(links).host
        for link in links:
            if link.host == host:
                link.armed[direction].append(armed)

    def hurt(self, kind: str, pick: Random, length_ms: int) -> bool:
        if not self.clients:
            return False
        client = pick.choice(self.clients)
        if kind == "pause_client":
            client.pause(self.loop.now_ms + length_ms * 2)
        elif kind == "spurious_wake":
            client.plan_step(self.loop.now_ms)
        elif kind == "kill_client":
            client.kill(is_silent=pick.random() < 0.3)
        elif client.plan.kind == TRANSACTIONAL:
            self.start_client(client.plan)
        else:
            return False
        return True


def run(scenario: Scenario, *, keep_trace: bool = False) -> Result:
    return Simulation(scenario, keep_trace=keep_trace).run()
