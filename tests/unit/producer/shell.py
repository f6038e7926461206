"""The runtime without I/O: a clock that the test moves, a network that records commands, a scripted engine."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.cluster import ClusterView, Endpoint, PartitionLeader, TopicView
from kafka_sink.kafka.client.commands import NetworkCommand, NetworkEvent
from kafka_sink.kafka.client.node import Node
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.appender import Appender
from kafka_sink.producer.collector import Collector
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.batch_sender import RefusedSize
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.producer.future import RecordFuture
from kafka_sink.producer.mailbox import Mailbox
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.sender import Sender

Result = NetworkCommand | c.Observation | c.Completion | c.Finished


def delivered(batch: ProducerBatch, base_offset: int) -> c.Delivered:
    """The command with which the engine reports a delivery."""
    batch.base_offset = base_offset
    return c.Delivered([batch])


class TakenLock:
    def acquire(self, *, blocking: bool) -> bool:
        assert not blocking
        return False


@contextmanager
def held_by_another_thread(appender: Appender) -> Iterator[None]:
    free = appender.lock
    appender.lock = TakenLock()  # type: ignore[assignment]
    yield
    appender.lock = free


class FakeLogger:
    """Replaces Python's logger, which reads the clock."""

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def log(self, level: int, text: str, *arguments: object, exc_info: object = None, stacklevel: int = 1) -> None:
        assert exc_info is not None or level < logging.CRITICAL
        self.said.append((level, text % arguments))

    def error(self, text: str, *arguments: object) -> None:
        self.log(logging.ERROR, text, *arguments)

    exception = error


class FakeClock(Clock):
    def __init__(self) -> None:
        self.now_ms = 1000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def timestamp_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms


def cluster_of(**partition_counts: int) -> ClusterView:
    topics = {
        name: TopicView(name, partitions={index: PartitionLeader(1, 0) for index in range(count)})
        for name, count in partition_counts.items()
    }
    return ClusterView(MappingProxyType({1: Endpoint("b", 9092)}), MappingProxyType(topics))


class Shell:
    """An appender with its mailbox; `posted` returns the batches that it has sent to the engine."""

    def __init__(self, *, interceptors: Any = None, **options: Any) -> None:
        options.setdefault("max_block_ms", 0)
        self.options = ProducerOptions(bootstrap_servers=(("b", 9092),), client_id="unit", **options)
        self.clock = FakeClock()
        self.wake_count = 0
        self.mailbox = Mailbox(self.clock, self._wake)
        self.mailbox.cluster = cluster_of(t=2, other=1)
        self.metrics = ProducerMetrics(self.options)
        self.appender = Appender(
            self.options, self.mailbox, self.metrics, random_number=lambda: 0.0, interceptors=interceptors
        )

    def _wake(self) -> None:
        self.wake_count += 1

    def collector(self, topic: str = "t") -> Collector:
        found = self.appender.refresh_collector(topic)
        assert found is not None
        return found

    def send(
        self, value: bytes | None = b"v", *, topic: str = "t", partition: int | None = 0, size: int | None = None,
        on_delivery: Any = None,
    ) -> RecordFuture:  # fmt: skip
        row = (None, value, None, self.clock.timestamp_ms(), partition)
        byte_count = len(value or b"") if size is None else size
        return self.appender.collect(self.collector(topic), row, byte_count, on_delivery)

    def post_behind(self, name: str = "flush()", call: Any = c.Flush) -> c.PendingOperation:
        operation = c.PendingOperation(name)
        self.appender.post_behind(call(operation))
        return operation

    def close_due(self) -> list[ProducerBatch]:
        self.appender.close_due(self.clock.now_ms, 0)
        return self.posted()

    def posted(self) -> list[ProducerBatch]:
        appends = [each for each in self.mailbox.take_calls() if isinstance(each, c.Append)]
        return [batch for each in appends for batch in each.batches]

    def complete(self, batch: ProducerBatch, failed: c.Failed | None = None, *, base_offset: int = 100) -> None:
        """Completes a batch like the sender."""
        with self.mailbox.lock:
            for share in batch.shares:
                if failed is not None:
                    share.token.on_failed(share, failed, self.mailbox.callbacks)
                else:
                    batch.base_offset = base_offset
                    share.token.on_delivered(share, batch, self.mailbox.callbacks)
            self.mailbox.completed_bytes += batch.memory_bytes
            self.mailbox.completed_records += batch.record_count
            self.mailbox.notify_change()

    def run_calls(self) -> None:
        callbacks, self.mailbox.callbacks = self.mailbox.callbacks, []
        for callback in callbacks:
            callback()


class FakeNetwork:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.executed: list[Any] = []
        self.timeouts: list[int | None] = []
        self.is_closed = False
        self.connection_count = self.wait_ns = self.io_ns = 0

    def poll(self, timeout_ms: int | None) -> list[Any]:
        self.timeouts.append(timeout_ms)
        taken, self.events = self.events, []
        return taken

    def execute(self, command: Any) -> None:
        self.executed.append(command)

    send = execute

    def close(self) -> None:
        self.is_closed = True


class FakeNodes:
    unavailable_since_ms: int | None = None

    def __init__(self) -> None:
        self.by_connection = {number: Node(7, Endpoint("h", 1)) for number in range(1, 7)}

    def in_flight_count(self, node_id: int) -> int:
        return 0

    def stalled_since_ms(self, node_id: int) -> int | None:
        return self.unavailable_since_ms


class FakeMetadata:
    def topic_error(self, topic: str) -> KafkaSinkError | None:
        return None

    def topic_trouble(self, topic: str) -> str:
        return f"trouble with {topic}"


class FakeEngine:
    """`answers` are what the next steps say: commands, observations and results."""

    def __init__(self, cluster: ClusterView) -> None:
        self.cluster = cluster
        self.nodes = FakeNodes()
        self.metadata = FakeMetadata()
        self.refusal: KafkaSinkError | None = None
        self.events: list[NetworkEvent] = []
        self.calls: list[c.Call] = []
        self.answers: list[list[Result]] = []
        self.wake_at_ms: int | None = None
        self.queue_loads: dict[str, dict[int, int]] = {}
        self.refused_sizes: dict[str, RefusedSize] = {}
        self.trouble = ""
        self.bug: BaseException | None = None

    def step(self, now_ms: int, events: Sequence[NetworkEvent], calls: Sequence[c.Call]) -> c.Step:
        if self.bug is not None:
            raise self.bug
        self.events += events
        self.calls += calls
        queued_count = sum(sum(of_topic.values()) for of_topic in self.queue_loads.values())
        said = self.answers.pop(0) if self.answers else []
        return c.Step(
            [each for each in said if isinstance(each, NetworkCommand)],
            [each for each in said if isinstance(each, c.Observation)],
            [each for each in said if isinstance(each, c.Completion)],
            [each for each in said if isinstance(each, c.Finished)],
            self.wake_at_ms,
            queued_count,
        )


class SenderShell(Shell):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.engine = FakeEngine(self.mailbox.cluster)
        self.network = FakeNetwork()
        self.sender = Sender(
            self.options,
            self.engine,
            self.network,
            self.mailbox,
            self.appender,
            self.metrics,  # type: ignore[arg-type]
        )

    def appended(self) -> list[ProducerBatch]:
        appends = [each for each in self.engine.calls if isinstance(each, c.Append)]
        return [batch for each in appends for batch in each.batches]
