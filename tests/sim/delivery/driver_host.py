"""A process on the driver: the commit state machine, the admin engine, and an inbox. It replaces `admin.client.Client`.

Without an operation it reads nothing from the network, like a process that waits for Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kafka_sink.commit.admin.client import PIPELINED_MAX
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.phase import Phase
from kafka_sink.kafka.client.admin_engine import AdminEngine
from kafka_sink.kafka.client.ask import Ask, Reply, ReplyKind
from kafka_sink.kafka.client.commands import NetworkEvent
from kafka_sink.options import ProducerOptions
from tests.sim.host import Host
from tests.sim.loop import Loop
from tests.sim.network import NETWORK_COMMANDS, Network
from tests.sim.trace import Trace, Violation

NO_LEADER = "has no leader"


class DriverHost(Host):
    steps_per_ms_max = 200

    def __init__(
        self, name: str, options: ProducerOptions, *, loop: Loop, network: Network, trace: Trace,
        jitter: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(name, loop, network, trace)
        # When the check before a decision began; before that, when the process began.
        self.checked_since_ms = loop.now_ms
        # Called after the machine has decided and before its requests are sent: a crash or a pause may be due.
        self.on_decided: Callable[[Phase], None] = lambda _phase: None
        # Called when a request was not sent because a partition has no leader.
        self.on_leaderless: Callable[[str, Ask], None] = lambda _name, _ask: None
        options = replace(
            options,
            client_id=name,
            max_in_flight_requests_per_connection=PIPELINED_MAX,
            allow_auto_create_topics=False,
        )
        # A simulated batch has few transactions; this limit spreads them over several connections all the same.
        self._engine = AdminEngine(options, jitter=jitter, ends_in_flight=1)
        # A `Committer`, or what writes the last record after it.
        self._machine: Any = None
        self._on_result: Callable[[Any], None] = lambda _result: None
        self._machine_wake_ms = 0
        # Requests that the machine has decided on, but which were not sent because the process was paused.
        self._held: tuple[Ask, ...] = ()
        self._waits_for_leader = False

    @property
    def is_busy(self) -> bool:
        return self._machine is not None

    def run(self, machine: Any, on_result: Callable[[Any], None]) -> None:
        self._machine, self._on_result = machine, on_result
        self._machine_wake_ms = self.loop.now_ms
        self.plan_step(self.loop.now_ms)

    # ---- events ----

    def post(self, event: NetworkEvent) -> None:
        if self.is_busy:
            super().post(event)
        elif self.is_alive:
            self._inbox.append(event)

    def step(self) -> None:
        if not self.is_busy:
            return
        now_ms, events = self.loop.now_ms, self.take_inbox()
        held, self._held = self._held, ()
        answers, wake_ms = self._step(now_ms, events, held)
        while self._machine is not None and (answers or now_ms >= self._machine_wake_ms):
            was_checking = self.phase is Phase.CHECKING
            progress = self._machine.step(now_ms, answers)
            if self.phase is Phase.CHECKING:
                self._on_checking(now_ms, progress.trouble, is_first=not was_checking)
            self.on_decided(self.phase)
            if not self.is_alive:
                return
            if progress.result is not None:
                self._end(progress.result)
                return
            if not progress.asks and not self._engine.is_asking and progress.wake_at_ms is None:
                raise Violation("I12", f"{self.name} waits for nothing and has no result")
            self._machine_wake_ms = max(progress.wake_at_ms or 1 << 60, now_ms + 1)
            if now_ms < self.paused_until_ms:
                self._held = tuple(progress.asks)
                self.plan_step(self.paused_until_ms)
                return
            answers, wake_ms = self._step(now_ms, [], tuple(progress.asks))
        self.plan_step(min(self._machine_wake_ms, wake_ms))

    @property
    def phase(self) -> Phase:
        """A single step of a command is of no phase."""
        return getattr(self._machine, "phase", Phase.START)

    @property
    def machine(self) -> Committer | None:
        return self._machine if isinstance(self._machine, Committer) else None

    def _on_checking(self, now_ms: int, trouble: str, *, is_first: bool) -> None:
        if is_first:
            self.checked_since_ms = now_ms
            self.trace.count("check before a decision")
        if trouble.endswith(NO_LEADER) and not self._waits_for_leader:
            self._waits_for_leader = True
            self.trace.count("leader wait before a decision")

    def _step(self, now_ms: int, events: list[NetworkEvent], questions: tuple[Ask, ...]) -> tuple[list[Reply], int]:
        step = self._engine.step(now_ms, events, questions)
        for command in step.commands:
            if isinstance(command, NETWORK_COMMANDS):
                self.network.carry_out(self, command)
        for reply in step.replies:
            if reply.kind is ReplyKind.LEADERLESS:
                self.trace.count(f"leader wait: {reply.ask.purpose}")
                self.on_leaderless(self.name, reply.ask)
        return step.replies, 1 << 60 if step.wake_at_ms is None else step.wake_at_ms

    def _end(self, result: Any) -> None:
        self._machine = None
        self._engine.forget_asks()
        self._on_result(result)
