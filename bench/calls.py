"""Counts the Python calls of a record batch: `python -m bench.calls` writes docs/benchmarks/calls.md.

Microseconds depend on the machine and its load; a number of calls does not: the same code makes the same calls. A test
can therefore limit it (tests/integration/test_calls.py), and it shows where work is done for a batch.

The whole producer runs here, sockets included, but in lockstep: neither side waits. Rows are sent, then turns of
the sender alternate with a broker (the core of the embedded one) that answers one request at a time, as a broker does
that has a steady stream to write. Everything runs in one thread, so both sides of the producer are counted: calls in
`send_arrow` belong to the application, calls in a turn to the sender. Calls into C and calls of the broker are not
counted.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import FrameType
from typing import TypeVar
from unittest.mock import patch

import pyarrow as pa

from bench.report import code, conditions, publish
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.options import ProducerOptions
from kafka_sink.producer import core as core_module
from kafka_sink.producer import producer as producer_module
from kafka_sink.producer.core import Core
from kafka_sink.producer.engine.commands import Flush, PendingOperation, WantTopic
from kafka_sink.producer.producer import Producer
from kafka_sink.producer.sender import Sender
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.topics import BrokerState

TOPIC = "calls"
ROW_COUNT = 10_000
BATCH_BYTES = 128 * 1024
ROUNDS = 3
# More turns than any round needs: a round without progress is an error, not an endless loop.
TURNS_MAX = 20_000
# The number of consecutive idle turns after which a producer counts as idle.
IDLE_TURNS = 3
READ_BYTES = 2**20

INTRODUCTION = """# Python calls per batch

Written by `python -m bench.calls`. It counts the Python functions that a record batch passes through from `send_arrow`
to its acknowledgement: with one partition and with four, full batches of 128 KiB of 1000-byte rows without compression;
with 1000 partitions small batches (ten rows of 100 bytes each). The broker answers one request per turn of the sender.
Calls into C and calls of the broker are not counted. A count says where work is done, not how long it takes: for that
see [producers.md](producers.md). `tests/integration/test_calls.py` limits the counts.

"""

T = TypeVar("T")


class Counter:
    """Counts the Python calls made while it is open, in any module except this one."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Counter:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename != __file__:
            self.count += 1


def count_calls(call: Callable[[], T]) -> tuple[int, T]:
    with Counter() as counter:
        result = call()
    return counter.count, result


class SteppingClock(Clock):
    """Advances only when it is told to, so that periodic work happens in the same turns of every run. It also reads the
    real clock, because those calls count."""

    def __init__(self) -> None:
        self.now_ms = super().monotonic_ms()

    def monotonic_ms(self) -> int:
        super().monotonic_ms()
        return self.now_ms


class Peer:
    """A broker on a real socket that reads and answers only when it is told to."""

    def __init__(self, partitions: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        broker = BrokerState(1, "127.0.0.1", self.port)
        # The broker refuses records with a timestamp in the future.
        self._now_ms = time.time_ns() // 1_000_000
        self._core = BrokerCluster([broker], topics={TOPIC: partitions}, now_ms=self._now_ms)
        self._sockets: dict[int, socket.socket] = {}
        self._answers: deque[tuple[int, bytes]] = deque()
        self.answer_count = 0

    @property
    def batch_count(self) -> int:
        """Record batches in the logs."""
        return sum(partition.log.appended_count for partition in self._core.cluster.topics[TOPIC].partitions)

    def read(self) -> None:
        """Reads all data that has arrived; the answers wait."""
        with suppress(BlockingIOError):
            while True:
                accepted, _ = self._listener.accept()
                accepted.setblocking(False)
                self._sockets[accepted.fileno()] = accepted
        for connection_id, connection in self._sockets.items():
            with suppress(BlockingIOError):
                while data := connection.recv(READ_BYTES):
                    outputs = self._core.on_bytes(1, connection_id, data, self._now_ms)
                    self._answers.extend((to, answer) for to, answer in outputs if answer)

    def answer(self) -> bool:
        """Sends one answer. False if there was none."""
        self.read()
        if not self._answers:
            return False
        connection_id, answer = self._answers.popleft()
        self._sockets[connection_id].sendall(answer)
        self.answer_count += 1
        return True

    def close(self) -> None:
        for each in (self._listener, *self._sockets.values()):
            each.close()


class Lockstep:
    """A producer whose sender runs one turn per call, and its broker."""

    def __init__(self, partitions: int, **options: object) -> None:
        self.peer = Peer(partitions)
        config: dict[str, object] = {
            "bootstrap.servers": f"127.0.0.1:{self.peer.port}",
            "batch.size": BATCH_BYTES,
            "buffer.memory": 512 * 2**20,
            # Requests are written whole: the number of parts would depend on the kernel.
            "send.buffer.bytes": -1,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        cores: list[Core] = []

        def keep_core(options: ProducerOptions) -> Core:
            cores.append(Core(options))
            return cores[-1]

        self.clock = SteppingClock()
        with (
            patch.object(Sender, "run", lambda _: None),
            patch.object(core_module, "Clock", lambda: self.clock),
            patch.object(producer_module, "Core", keep_core),
        ):
            self.producer = Producer(config)
        self.core = cores[0]
        self.turn_count = self.sender_calls = 0
        self._connect()

    def _connect(self) -> None:
        """Until the producer knows its topic and has its producer id; the clock advances past the first back-offs."""
        mailbox = self.core.mailbox
        mailbox.post(WantTopic(TOPIC))
        for _ in range(TURNS_MAX):
            self.settle()
            if mailbox.cluster.partition_count(TOPIC) is not None:
                return
            self.clock.now_ms += 100
        raise RuntimeError("the producer does not learn of its topic")

    def turn(self, *, is_awaited: bool = False) -> int:
        """Runs one turn of the sender and returns the number of its calls. Unless an answer is awaited, the turn gets a
        wake-up, so that it does not block."""
        if not is_awaited:
            self.core.network.wake()
        self.clock.now_ms += 1
        calls, _ = count_calls(self.core.sender.turn)
        self.turn_count += 1
        self.sender_calls += calls
        return calls

    def settle(self) -> None:
        """Alternates turns and answers until both sides are idle."""
        idle, is_answered = 0, False
        for _ in range(TURNS_MAX):
            self.turn(is_awaited=is_answered)
            is_answered = self.peer.answer()
            idle = 0 if is_answered else idle + 1
            if idle == IDLE_TURNS:
                return
        raise RuntimeError("the producer does not become idle")

    def flush(self) -> None:
        self.core.appender.post_behind(Flush(PendingOperation("flush()")))
        self.settle()

    def close(self) -> None:
        self.producer.close(0)
        self.core.sender.run()
        self.peer.close()


@dataclass(frozen=True)
class StreamCost:
    """The cost of a stream of full batches; `calls` is per batch."""

    partitions: int
    batches: int
    requests: int
    turns: int
    application_calls: int
    sender_calls: int

    @property
    def calls(self) -> float:
        return (self.application_calls + self.sender_calls) / self.batches


@dataclass(frozen=True)
class StepCost:
    """Calls of single turns: one that finds nothing, one that sends one batch, one that gets the answer to it."""

    idle: int
    request: int
    answer: int


def rows(value_bytes: int) -> pa.RecordBatch:
    keys = pa.array([f"{number:08d}".encode() for number in range(ROW_COUNT)], pa.binary())
    values = pa.array([b"v" * value_bytes] * ROW_COUNT, pa.binary())
    return pa.record_batch({"key": keys, "value": values})


def stream(partitions: int, *, value_bytes: int = 1000, linger_ms: int = 60_000) -> StreamCost:
    """The first round is a warm-up: the first batch of each partition is sent alone, and codecs are compiled."""
    lockstep = Lockstep(partitions, linger_ms=linger_ms)
    data = rows(value_bytes)
    lockstep.producer.send_arrow(data, TOPIC)
    lockstep.settle()
    before = _Seen.of(lockstep)
    application_calls = 0
    for _ in range(ROUNDS):
        calls, _ = count_calls(lambda: lockstep.producer.send_arrow(data, TOPIC))
        application_calls += calls
        lockstep.settle()
    after = _Seen.of(lockstep)
    lockstep.close()
    return StreamCost(
        partitions,
        after.batches - before.batches,
        after.requests - before.requests,
        after.turns - before.turns,
        application_calls,
        after.sender_calls - before.sender_calls,
    )


@dataclass(frozen=True)
class _Seen:
    batches: int
    requests: int
    turns: int
    sender_calls: int

    @classmethod
    def of(cls, lockstep: Lockstep) -> _Seen:
        return cls(lockstep.peer.batch_count, lockstep.peer.answer_count, lockstep.turn_count, lockstep.sender_calls)


def steps() -> StepCost:
    """Figures of a producer that is in use already, without any first-time work."""
    lockstep = Lockstep(1, linger_ms=60_000)
    data = rows(100).slice(0, 1000)
    for _ in range(2):
        lockstep.producer.send_arrow(data, TOPIC)
        lockstep.flush()
    idle = lockstep.turn()
    lockstep.producer.send_arrow(data, TOPIC)
    lockstep.core.appender.post_behind(Flush(PendingOperation("flush()")))
    request = lockstep.turn()
    lockstep.peer.answer()
    answer = lockstep.turn(is_awaited=True)
    lockstep.close()
    return StepCost(idle, request, answer)


# The counts before the path of a batch was shortened (one partition, four, a thousand; single turns).
BEFORE = {
    "one partition": 492, "4 partitions": 211, "1000 partitions": 96,
    "a turn that finds nothing": 121, "a turn that sends one batch": 332, "a turn that takes its answer": 249,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    what: str
    before: int
    now: float
    detail: str


def measure() -> list[Row]:
    streams = {
        "one partition": stream(1),
        "4 partitions": stream(4),
        "1000 partitions": stream(1000, value_bytes=100, linger_ms=0),
    }
    rows = [Row(what, BEFORE[what], cost.calls, _detail(cost)) for what, cost in streams.items()]
    single = steps()
    found = {
        "a turn that finds nothing": single.idle,
        "a turn that sends one batch": single.request,
        "a turn that takes its answer": single.answer,
    }
    return rows + [Row(what, BEFORE[what], calls, "") for what, calls in found.items()]


def _detail(cost: StreamCost) -> str:
    return (
        f"{cost.application_calls / cost.batches:.1f} in `send_arrow`, {cost.sender_calls / cost.batches:.1f} in the "
        f"sender; {cost.batches / cost.requests:.1f} batches per request"
    )


def markdown(rows: list[Row], about: Mapping[str, str]) -> str:
    lines = ["| calls per batch, or in a turn of the sender | before it was shortened | now | |", "|---|---:|---:|---|"]
    lines += [f"| {row.what} | {row.before} | {row.now:.0f} | {row.detail} |" for row in rows]
    return INTRODUCTION + "\n".join([*lines, "", conditions(about)]) + "\n"


def main() -> None:
    rows, about = measure(), code()
    publish("calls", markdown(rows, about), {"about": about, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
