"""The course of a run of either simulation: it puts the drawn faults into the loop and runs what the loop contains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from kafka_sink.testing import BrokerCluster
from tests.sim import network_faults
from tests.sim.cluster_faults import ClusterFaults
from tests.sim.dice import Dice, exponential_ms
from tests.sim.loop import Loop
from tests.sim.network import ARMED_FOR_MS, Armed, Link, Network
from tests.sim.scenario import Drawn, FaultEvent
from tests.sim.trace import Trace, Violation

# Sixty attempts at once (speculation, and runs that are over) whose back-off is 1 ms and does not grow, and that ask
# for a missing leader, took up to 471,000 events. A single engine that sends requests without a pause is caught by its
# own limit.
EVENTS_MAX = 1_000_000

PlanT = TypeVar("PlanT", bound=Drawn)


@dataclass(slots=True)
class Ran(Generic[PlanT]):
    """How a run ended, and what happened in it."""

    plan: PlanT
    digest: str
    simulated_ms: int
    events: int
    counts: Counter[str]
    violation: Violation | None
    lines: list[str]


class Course(ABC, Generic[PlanT]):
    core: BrokerCluster
    network: Network
    faults: ClusterFaults

    def __init__(self, plan: PlanT, dice: Dice, *, keep_trace: bool) -> None:
        self.plan = plan
        self.dice = dice
        self.loop = Loop()
        self.trace = Trace(keep=keep_trace)

    def connect(self, core: BrokerCluster) -> None:
        self.core = core
        self.network = Network(self.loop, core, self.dice, self.trace, latency_ms=self.plan.latency_ms)
        network_faults.attach(self.network)

    def broker_delay_ms(self, what: str) -> int:
        delay_ms = exponential_ms(self.dice[f"broker {what}"], self.plan.delay_means_ms.get(what, 0))
        if what == "replication":
            # During construction topics are created without any delay.
            faults = getattr(self, "faults", None)
            if faults is not None:
                delay_ms = max(delay_ms, faults.replication_stalled_until_ms - self.loop.now_ms)
        return delay_ms

    def run(self) -> Ran[PlanT]:
        """Any exception counts as a violation."""
        violation = None
        try:
            self.play()
        except Violation as broken:
            violation = broken
        except Exception as crash:
            violation = Violation("crash", f"{type(crash).__name__}: {crash}")
            violation.__cause__ = crash
        trace, loop = self.trace, self.loop
        return Ran(self.plan, trace.digest, loop.now_ms, loop.events_count, trace.counts, violation, trace.lines or [])

    @abstractmethod
    def play(self) -> None:
        """Everything from the first start to the last check."""

    def run_until(self, end_ms: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Asks after each event whether it is over, that is, before `end_ms`."""
        while (next_ms := self.loop.next_ms) is not None and next_ms <= end_ms:
            if self.loop.events_count >= EVENTS_MAX:
                raise Violation("I11", f"more than {EVENTS_MAX} events")
            self.loop.run_next()
            self.after_event()
            if is_over():
                return
        self.loop.now_ms = max(self.loop.now_ms, end_ms)

    def after_event(self) -> None:
        """What a simulation does after each event."""
        return

    def plan_faults(self) -> None:
        for event in self.plan.faults:
            self.loop.at(event.at_ms, lambda event=event: self._act(event))  # type: ignore[misc]

    def _act(self, event: FaultEvent) -> None:
        pick, kind = Random(event.pick), event.kind
        if self.network.is_healed:
            return
        if kind in network_faults.REQUEST_FAULTS or kind in network_faults.ANSWER_FAULTS:
            self.arm(kind, pick)
            return
        if kind in network_faults.LINK_FAULTS:
            links = list(self.links_to_hurt())
            acted = bool(links)
            if links:
                network_faults.LINK_FAULTS[kind](self.network, pick.choice(links), pick, event.length_ms)
        elif kind in self.faults.table:
            acted = self.faults.table[kind](pick, event.length_ms)
            self.faults.flush()
        else:
            acted = self.hurt(kind, pick, event.length_ms)
        if acted:
            self.trace.count(f"fault {kind}")
            self.trace.note(self.loop.now_ms, f"fault {kind}")

    @abstractmethod
    def arm(self, kind: str, pick: Random) -> None:
        """Arms a fault for a request to come, or its answer."""

    def armed(self, kind: str, pick: Random, api_key: int | None) -> tuple[str, Armed]:
        """The fault, and the direction in which it waits."""
        direction = "request" if kind in network_faults.REQUEST_FAULTS else "answer"
        return direction, Armed(kind, pick, self.loop.now_ms + ARMED_FOR_MS, api_key)

    @abstractmethod
    def links_to_hurt(self) -> Iterable[Link]: ...

    @abstractmethod
    def hurt(self, kind: str, pick: Random, length_ms: int) -> bool:
        """A fault of a process; false if nothing was there to hurt."""
