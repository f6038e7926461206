"""One run: it builds the cluster and producers of a scenario, runs them under faults, heals everything, waits until all
has ended, and checks the promises."""

from __future__ import annotations

from collections import Counter
from random import Random
from unittest import mock

from kafka_sink.engine import sequences
from kafka_sink.testing import BrokerCluster, Settings
from kafka_sink.testing.topics import TRANSACTION_TOPIC, BrokerState
from kafka_sink.testing.transaction_state import TransactionRecord
from kafka_sink.testing.transactions import CoordinatedTransaction as CoordinatorTransaction
from tests.sim import network_faults, probes
from tests.sim.checkers import Checkers
from tests.sim.client import Client
from tests.sim.cluster_faults import ClusterFaults
from tests.sim.dice import Dice, exponential_ms
from tests.sim.history import History
from tests.sim.loop import Loop
from tests.sim.network import ARMED_FOR_MS, Armed, Network
from tests.sim.ran import Ran, ran
from tests.sim.scenario import TRANSACTIONAL, FaultEvent, ProducerPlan, Scenario
from tests.sim.trace import Trace, Violation
from tests.sim.workload import Stage, script

EVENTS_MAX = 400_000
# Additional time, after all time-outs, until everything must have ended.
GRACE_MS = 40_000
EPOCH_MAX_SHORT = 2
QUICK_LATENCY_MS = 0.5


Result = Ran[Scenario]


class Simulation:
    def __init__(self, scenario: Scenario, *, steps_max: int | None = None, keep_trace: bool = False) -> None:
        self.scenario = scenario
        self.steps_max = steps_max or EVENTS_MAX
        self.dice = Dice(scenario.seed)
        self.loop = Loop()
        self.trace = Trace(keep=keep_trace)
        self.history = History()
        self.stage = Stage(self._make_quick)
        self._is_quick = False
        self.core = self._build_core()
        self.network = Network(self.loop, self.core, self.dice, self.trace, latency_ms=scenario.latency_ms)
        network_faults.attach(self.network)
        self.faults = ClusterFaults(self.core, self.network, self.trace)
        self.clients: list[Client] = []
        self._lives: Counter[str] = Counter()

    def _build_core(self) -> BrokerCluster:
        scenario = self.scenario
        chance = self.dice["coordinator"]
        settings = Settings(
            properties=scenario.properties,
            delay_ms=self._broker_delay_ms,
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

    def _broker_delay_ms(self, what: str) -> int:
        if self._is_quick:
            return 0
        delay_ms = exponential_ms(self.dice[f"broker {what}"], self.scenario.delay_means_ms.get(what, 0))
        if what == "replication":
            # During construction topics are created without any delay.
            faults = getattr(self, "faults", None)
            if faults is not None:
                delay_ms = max(delay_ms, faults.replication_stalled_until_ms - self.loop.now_ms)
        return delay_ms

    # ---- the course of a run ----

    def run(self) -> Result:
        # Epochs of producers without transactions start at 0; with only three epochs their ids are used up, too.
        epoch_max = EPOCH_MAX_SHORT if self.scenario.first_epoch >= 0 else sequences.PRODUCER_EPOCH_MAX
        with probes.installed(self.trace), mock.patch.object(sequences, "PRODUCER_EPOCH_MAX", epoch_max):
            return ran(self.scenario, self.loop, self.trace, self._run)

    def _run(self) -> None:
        for plan in self.scenario.producers:
            self.start_client(plan)
        for event in self.scenario.faults:
            self._plan_fault(event)
        self._run_until(self.scenario.busy_ms, self.steps_max)
        self._heal()
        self._run_until(self.loop.now_ms + self._time_to_end_ms(), EVENTS_MAX, until_quiet=True)
        self._check_ended()
        self._run_until(self.loop.now_ms + self._time_to_settle_ms(), EVENTS_MAX)
        Checkers(self.core, self.faults, self.history, self.trace).check_all()

    def _run_until(self, end_ms: int, events_max: int, *, until_quiet: bool = False) -> None:
        last = self.loop.events_count + events_max
        while (next_ms := self.loop.next_ms) is not None and next_ms <= end_ms:
            if self.loop.events_count >= last:
                if events_max == EVENTS_MAX:
                    raise Violation("I11", f"more than {EVENTS_MAX} events")
                return
            self.loop.run_next()
            self._replace_the_dead()
            if until_quiet and all(one.is_script_over for one in self.clients if one.is_alive):
                return
        self.loop.now_ms = max(self.loop.now_ms, end_ms)

    def _time_to_end_ms(self) -> int:
        options = [plan.options for plan in self.scenario.producers]
        return GRACE_MS + max(
            one.delivery_timeout_ms * 2 + one.request_timeout_ms * 3 + one.transaction_timeout_ms for one in options
        )

    def _time_to_settle_ms(self) -> int:
        """The coordinator aborts transactions of dead producers after their time-out."""
        longest_ms = max(plan.options.transaction_timeout_ms for plan in self.scenario.producers)
        check_ms = int(self.scenario.properties["transaction.abort.timed.out.transaction.cleanup.interval.ms"])
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
                since_ms = client.open_wish_since_ms
                text = f"wish {client.open_wish} of {client.name} has not ended since {since_ms}"
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

    def _plan_fault(self, event: FaultEvent) -> None:
        self.loop.at(event.at_ms, lambda: self._act(event))

    def _act(self, event: FaultEvent) -> None:
        if self.stage.is_over:
            return
        pick = Random(event.pick)
        kind = event.kind
        if kind in network_faults.REQUEST_FAULTS or kind in network_faults.ANSWER_FAULTS:
            self._arm(kind, pick)
            return
        if kind in network_faults.LINK_FAULTS:
            links = list(self.network.links.values())
            acted = bool(links)
            if links:
                network_faults.LINK_FAULTS[kind](self.network, pick.choice(links), pick, event.length_ms)
        elif kind in self.faults.table:
            acted = self.faults.table[kind](pick, event.length_ms)
            self.faults.flush()
        else:
            acted = self._hurt_client(kind, pick, event.length_ms)
        if acted:
            self.trace.count(f"fault {kind}")
            self.trace.note(self.loop.now_ms, f"fault {kind}")

    def _arm(self, kind: str, pick: Random) -> None:
        """Arms a fault for the next request of some kind, on any link of any client."""
        links = [link for link in self.network.links.values() if any(one.name == link.host for one in self.clients)]
        if not links:
            return
        api_key = pick.choice((None, 0, 0, 0, 3, 22, 24, 26, 26))
        direction = "request" if kind in network_faults.REQUEST_FAULTS else "answer"
        armed = Armed(kind, pick, self.loop.now_ms + ARMED_FOR_MS, api_key)
        # It is armed on every link of one client, so that it meets a request; its first use disarms the others.
        host = pick.choice(links).host
        for link in links:
            if link.host == host:
                link.armed[direction].append(armed)

    def _hurt_client(self, kind: str, pick: Random, length_ms: int) -> bool:
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


def run(scenario: Scenario, *, steps_max: int | None = None, keep_trace: bool = False) -> Result:
    return Simulation(scenario, steps_max=steps_max, keep_trace=keep_trace).run()
