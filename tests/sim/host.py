"""A simulated process: an inbox, the time of its next step, and pauses. A paused process (a garbage collection,
SIGSTOP) does nothing while its inbox fills."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kafka_sink.kafka.client.commands import NetworkEvent
from tests.sim.loop import Loop
from tests.sim.network import Network
from tests.sim.trace import Trace, Violation


class Host(ABC):
    # More of them are a loop that waits for nothing.
    steps_per_ms_max = 100

    def __init__(self, name: str, loop: Loop, network: Network, trace: Trace) -> None:
        self.name = name
        self.loop = loop
        self.network = network
        self.trace = trace
        self.is_alive = True
        self.paused_until_ms = 0
        self._inbox: list[NetworkEvent] = []
        self._planned_ms: int | None = None
        self._steps_at = (-1, 0)

    @abstractmethod
    def step(self) -> None:
        """Called when there may be something to do; takes the inbox."""

    def on_network(self, event: NetworkEvent) -> None:
        self.post(event)

    def post(self, event: NetworkEvent) -> None:
        if self.is_alive:
            self._inbox.append(event)
            self.plan_step(self.loop.now_ms)

    def take_inbox(self) -> list[NetworkEvent]:
        now_ms, (last_ms, count) = self.loop.now_ms, self._steps_at
        self._steps_at = (now_ms, count + 1 if last_ms == now_ms else 1)
        if self._steps_at[1] > self.steps_per_ms_max:
            raise Violation("I11", f"{self.name} wants more than {self.steps_per_ms_max} steps within {now_ms} ms")
        taken, self._inbox = self._inbox, []
        return taken

    def plan_step(self, when_ms: int) -> None:
        when_ms = max(when_ms, self.paused_until_ms, self.loop.now_ms)
        if self._planned_ms is None or when_ms < self._planned_ms:
            self._planned_ms = when_ms
            self.loop.at(when_ms, lambda: self._on_time(when_ms))

    def _on_time(self, planned_ms: int) -> None:
        if self._planned_ms != planned_ms or not self.is_alive:
            return
        self._planned_ms = None
        if self.loop.now_ms < self.paused_until_ms:
            self.plan_step(self.paused_until_ms)
        else:
            self.step()

    def pause(self, until_ms: int) -> None:
        self.paused_until_ms = until_ms

    def kill(self, *, is_silent: bool) -> None:
        self.is_alive = False
        self.network.forget_host(self.name, is_silent=is_silent)
