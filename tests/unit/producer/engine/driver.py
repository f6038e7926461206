"""A whole engine in front of a `FakeCluster`, with a clock that a test moves and a record of all results.

    driver = EngineDriver()                 # one broker, topic "t" with two partitions; id and metadata known
    batch = driver.send()                   # appended and sent
    driver.answer()                         # the oldest Produce request is answered: all its partitions succeed
    assert driver.offset_of(batch) == 0

Only ApiVersions, Metadata and InitProducerId are answered automatically. The test answers Produce and the requests of
transactions (`answer`, or `cluster.scripts`). `run` steps until the network is quiet at the current time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from kafka_sink.errors import KafkaSinkError
from kafka_sink.formats.records.batch import EncodedBatch
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import DecodedBatch, Record, decode_batch, encode_batch
from kafka_sink.kafka.client.commands import Notice
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.commands import (
    Append,
    BatchObserved,
    Call,
    Delivered,
    Drained,
    Failed,
    Finished,
    WantTopic,
)
from kafka_sink.producer.engine.engine import Engine
from kafka_sink.producer.engine.producer_batch import ProducerBatch, ProducerIdentity
from kafka_sink.producer.engine.sequences import SEQUENCE_MODULUS
from tests.unit.producer.engine.fake_cluster import Asked, FakeCluster, Result

NO_JITTER = 0.5
START_MS = 1_000_000
# The age of the first metadata when a test begins: metadata may then be requested again at once.
WARM_UP_MS = 1_000
BACKOFF_MS = 100
NOT_LEADER, TOO_LARGE, OUT_OF_ORDER, DUPLICATE, UNKNOWN_PRODUCER_ID, INVALID_RECORD = 6, 10, 45, 46, 59, 87


def encoded(record_count: int = 1, *, value: bytes = b"value", codec: str = "none") -> EncodedBatch:
    records = [Record(1_700_000_000_000 + i, b"%d" % i, value, (("h", b"%d" % i),)) for i in range(record_count)]
    return encode_batch(records, make_compressor(codec, None))


def new_batch(
    partition: int = 0, record_count: int = 1, *, topic: str = "t", opened_ms: int = START_MS
) -> ProducerBatch:
    return ProducerBatch(topic, partition, encoded(record_count), opened_ms)


@dataclass(frozen=True)
class Sent:
    """One batch as it was sent in a Produce request."""

    node_id: int
    partition: int
    identity: ProducerIdentity
    base_sequence: int
    decoded: DecodedBatch


class EngineDriver:
    """`leaders` holds the leader of each partition of the topic "t": (0, 1) makes two brokers and two partitions."""

    def __init__(
        self,
        *,
        leaders: Sequence[int] = (0, 0),
        cluster: FakeCluster | None = None,
        jitter: float = NO_JITTER,
        warm: Sequence[int] = (),
        **options: Any,
    ) -> None:
        brokers = {node_id: (f"host{node_id}", 9092) for node_id in sorted(set(leaders))}
        self.cluster = cluster or FakeCluster(brokers, {"t": dict(enumerate(leaders))})
        options.setdefault("bootstrap_servers", (next(iter(self.cluster.brokers.values())),))
        self.options = ProducerOptions(**options)
        self.engine = Engine(self.options, jitter=lambda: jitter)
        self.now_ms = START_MS - WARM_UP_MS
        self.delivered: dict[ProducerBatch, ProducerBatch] = {}
        self.failed: dict[ProducerBatch, Failed] = {}
        self.finished: dict[int, Finished] = {}
        self.observed: list[BatchObserved | Drained] = []
        self.notices: list[Notice] = []
        self._operation_ids = count(1)
        self._warm_requests_count = 0
        self.run(WantTopic("t"))
        self.sleep(WARM_UP_MS)
        self.warm(*warm)

    def warm(self, *partitions: int) -> None:
        """The first batch of a partition is sent alone, so tests with several batches in flight write one before.

        The broker then knows the producer; apart from that the next sequence is 0 again, as after 2**31 records.
        """
        for partition in partitions:
            batch = self.send(partition)
            if self.is_open(batch):
                self.answer()
            assert batch in self.delivered
            if self.engine._sequences is not None:
                sequences = self.engine._sequences._partitions["t", partition]
                sequences.next_sequence, sequences.last_acked_sequence = 0, SEQUENCE_MODULUS - 1
        self._warm_requests_count = len(self.cluster.requests_of(PRODUCE))
        self.delivered.clear()
        self.observed.clear()

    # ---- time ------------------------------------------------------------------------------------------------------

    def run(self, *calls: Call) -> list[Result]:
        commands = self.cluster.run(self.engine, self.now_ms, calls)
        for command in commands:
            if isinstance(command, Delivered):
                for batch in command.batches:
                    assert self.is_open(batch), "a batch ended twice"
                    self.delivered[batch] = batch
            elif isinstance(command, Failed):
                assert self.is_open(command.batch), "a batch ended twice"
                self.failed[command.batch] = command
            elif isinstance(command, Finished):
                assert command.operation not in self.finished, "an operation ended twice"
                self.finished[command.operation] = command
            elif isinstance(command, (BatchObserved, Drained)):
                self.observed.append(command)
            elif isinstance(command, Notice):
                self.notices.append(command)
        return commands

    def sleep(self, time_ms: int) -> list[Result]:
        """Steps once, at the end of this time. Deadlines in between are noticed only then; see `sleep_until_due`."""
        self.now_ms += time_ms
        return self.run()

    def sleep_until_due(self) -> int:
        """Sleeps until the time at which the engine asked to be called again; returns the duration."""
        step = self.engine.step(self.now_ms)
        assert not (step.commands or step.completions or step.finished), (
            "a step did something although nothing had happened since the last one"
        )
        assert step.wake_at_ms is not None and step.wake_at_ms > self.now_ms
        waited_ms = step.wake_at_ms - self.now_ms
        self.sleep(waited_ms)
        return waited_ms

    # ---- user side -------------------------------------------------------------------------------------------------

    def operation_id(self) -> int:
        return next(self._operation_ids)

    def send(self, partition: int = 0, record_count: int = 1, *, topic: str = "t") -> ProducerBatch:
        batch = new_batch(partition, record_count, topic=topic, opened_ms=self.now_ms)
        self.run(Append([batch]))
        return batch

    def offset_of(self, batch: ProducerBatch) -> int:
        return self.delivered[batch].base_offset

    def error_of(self, batch: ProducerBatch) -> KafkaSinkError:
        return self.failed[batch].error

    def is_open(self, *batches: ProducerBatch) -> bool:
        """True if none of the batches has ended yet."""
        return not any(batch in self.delivered or batch in self.failed for batch in batches)

    # ---- broker side -----------------------------------------------------------------------------------------------

    @property
    def produces(self) -> list[Asked]:
        """Unanswered Produce requests, in the order in which they were sent."""
        return self.cluster.pending_of(PRODUCE)

    @property
    def sent(self) -> list[Sent]:
        """Every batch of every Produce request so far, without those of `warm`."""
        requests = self.cluster.requests_of(PRODUCE)[self._warm_requests_count :]
        return [batch for request in requests for batch in batches_of(request)]

    @property
    def drained(self) -> list[ProducerBatch]:
        """Every batch that was sent for the first time."""
        return [batch for each in self.observed if isinstance(each, Drained) for batch in each.batches]

    @property
    def sequences_sent(self) -> list[int]:
        return [sent.base_sequence for sent in self.sent]

    @property
    def epochs_and_sequences_sent(self) -> list[tuple[int, int]]:
        return [(sent.identity.producer_epoch, sent.base_sequence) for sent in self.sent]

    def answer(
        self,
        codes: int | Mapping[int, int] = 0,
        *,
        request: Asked | None = None,
        base_offset: int = 0,
        endpoints: Sequence[Mapping[str, Any]] = (),
        throttle_time_ms: int = 0,
        **fields: Any,
    ) -> list[Result]:
        """Answers the oldest (or the given) Produce request: one code for all its partitions, or one for each."""
        request = request or self.produces[0]
        topics = []
        for topic in request.body["topic_data"]:
            rows = []
            for partition in topic["partition_data"]:
                index = partition["index"]
                code = codes if isinstance(codes, int) else codes.get(index, 0)
                offset = base_offset if code == 0 else -1
                rows.append({"index": index, "error_code": code, "base_offset": offset, **fields})
            names = {key: topic[key] for key in ("name", "topic_id") if key in topic}
            topics.append({**names, "partition_responses": rows})
        body = {"responses": topics, "node_endpoints": list(endpoints), "throttle_time_ms": throttle_time_ms}
        self.cluster.answer(request, body)
        return self.run()

    def disconnect(self, node_id: int = 0) -> list[Result]:
        self.cluster.disconnect(node_id)
        return self.run()


def batches_of(request: Asked) -> list[Sent]:
    batches = []
    for topic in request.body["topic_data"]:
        for partition in topic["partition_data"]:
            decoded = decode_batch(bytes(partition["records"]))
            identity = ProducerIdentity(decoded.producer_id, decoded.producer_epoch)
            batches.append(Sent(request.node_id, partition["index"], identity, decoded.base_sequence, decoded))
    return batches
