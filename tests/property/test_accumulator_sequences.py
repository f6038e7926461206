"""Batches, queues and sequences in any order of events, with a model broker that follows the rules of the log.

The machine drives `BatchSender` (with the real `Accumulator`, `Sequences` and `ProducerBatch` inside) and creates the
events: it appends, sends, lets a leader take or refuse requests, loses connections with requests unread or answers
unsent, fails with every kind of code, moves the leader, lets time pass. The model broker knows the last five batches of
a producer id and epoch per partition. It answers a batch that it already has with success, and refuses one whose
sequence number does not follow.

These invariants hold in every run:
- every record has exactly one end; parts of a split batch end for the whole
- the log contains the records of a partition at most once, in the order in which they were appended
- an acknowledged record is in the log; a failed record that is in the log was reported as ambiguous
- a sequence number belongs to one batch; the batch is sent again with the same number, unless it was renumbered
- no batch gets a new number while it is on the wire or in the log
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_sink.errors import DeliveryError, TransportError
from kafka_sink.formats.records.batch import EncodedBatch, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, decode_batch, encode_batch
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.cluster import ClusterView, Endpoint, PartitionLeader, TopicView
from kafka_sink.kafka.client.producer_identity import PRODUCER_EPOCH_MAX
from kafka_sink.kafka.client.request import Answer
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.kafka.wire.frames import encode_response
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.batch_sender import BatchSender
from kafka_sink.producer.engine.commands import Delivered, Failed
from kafka_sink.producer.engine.produce_request import ProduceRequest
from kafka_sink.producer.engine.producer_batch import ProducerBatch, ProducerIdentity
from kafka_sink.producer.engine.sequences import SEQUENCE_MODULUS, Sequences

TOPIC_ID = bytes(15) + b"\1"
PARTITIONS, NODES, IN_FLIGHT_MAX, CACHED_BATCHES = 2, 2, 5, 5
DELIVERY_TIMEOUT_MS = 5_000
OPTIONS = ProducerOptions(bootstrap_servers=(("h", 1),), delivery_timeout_ms=DELIVERY_TIMEOUT_MS, retries=20)

NOT_LEADER, REQUEST_TIMED_OUT, TOO_LARGE, NOT_ENOUGH_REPLICAS, AFTER_APPEND = 6, 7, 10, 19, 20
OUT_OF_ORDER, STALE_EPOCH, STORAGE_ERROR, INVALID_RECORD = 45, 47, 56, 87
# Codes that a leader returns instead of an append (REFUSALS) or in spite of one (TROUBLE).
REFUSALS = st.sampled_from([TOO_LARGE, INVALID_RECORD, NOT_ENOUGH_REPLICAS])
TROUBLE = st.sampled_from([AFTER_APPEND, REQUEST_TIMED_OUT, NOT_LEADER, STORAGE_ERROR])
TROUBLES = st.tuples(REFUSALS, st.just(0)) | st.tuples(st.none(), TROUBLE)


def keys_of(encoded: EncodedBatch) -> list[int]:
    return [int(record.key or b"-1") for record in decode_batch(seal(encoded) + encoded.payload).records]


@dataclass(eq=False)
class Copy:
    """One batch as it was sent in one request."""

    batch: ProducerBatch
    identity: ProducerIdentity
    base_sequence: int
    keys: list[int]


@dataclass(eq=False)
class Travelling:
    request: ProduceRequest
    node_id: int
    copies: dict[int, Copy]
    # Partition -> row of the answer, once the broker has handled the request.
    rows: dict[int, dict[str, Any]] | None = None


@dataclass
class ProducerState:
    """What a broker knows of one producer id in one partition."""

    producer_epoch: int
    next_sequence: int
    # (base sequence, record count, base offset) of the last batches
    cached: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class Log:
    keys: list[int] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)

    def take(self, copy: Copy) -> tuple[int, int]:
        """Returns error code and offset. An unknown producer id may begin with any sequence."""
        producer_id, producer_epoch = copy.identity
        first = ProducerState(producer_epoch, copy.base_sequence)
        known = self.producers.get(producer_id, first)
        if producer_epoch < known.producer_epoch:
            return STALE_EPOCH, -1
        if producer_epoch > known.producer_epoch:
            known = ProducerState(producer_epoch, 0)
        for base_sequence, record_count, base_offset in known.cached:
            if (base_sequence, record_count) == (copy.base_sequence, len(copy.keys)):
                return 0, base_offset
        if copy.base_sequence != known.next_sequence:
            return OUT_OF_ORDER, -1
        base_offset = len(self.keys)
        self.keys += copy.keys
        known.next_sequence = (copy.base_sequence + len(copy.keys)) % SEQUENCE_MODULUS
        known.cached = [*known.cached, (copy.base_sequence, len(copy.keys), base_offset)][-CACHED_BATCHES:]
        self.producers[producer_id] = known
        return 0, base_offset


class AccumulatorAndSequences(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.sequences = Sequences()
        self.batches = BatchSender(
            OPTIONS, Backoff(100, 1_000, lambda: 0.5), self.sequences, None, {}, {}, lambda *_: None
        )
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.leaders = [(0, 0) for _ in range(PARTITIONS)]
        # One connection per node: requests are read and answered in order.
        self.connections: list[list[Travelling]] = [[] for _ in range(NODES)]
        self.keys = count()
        self.appended: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.ends: dict[int, ProducerBatch] = {}
        self.owners: dict[tuple[int, ProducerIdentity, int], ProducerBatch] = {}
        self.numbers: dict[ProducerBatch, tuple[ProducerIdentity, int]] = {}
        self.next_producer_id = count(2)

    @initialize(producer_epoch=st.sampled_from([0, PRODUCER_EPOCH_MAX - 1]))
    def start(self, producer_epoch: int) -> None:
        self.sequences.adopt(ProducerIdentity(1, producer_epoch))

    # ---- the user ----

    @rule(partition=st.integers(0, PARTITIONS - 1), record_counts=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def append_and_send(self, partition: int, record_counts: list[int]) -> None:
        for record_count in record_counts:
            self.append(partition, record_count)
            self.send(self.leaders[partition][0])

    def append(self, partition: int, record_count: int) -> None:
        keys = [next(self.keys) for _ in range(record_count)]
        encoded = encode_batch([Record(0, b"%d" % key, None) for key in keys], make_compressor("none", None))
        self.appended[partition] += keys
        self.batches.append([ProducerBatch("t", partition, encoded, self.now_ms)])

    # ---- time and the sender ----

    @rule(time_ms=st.sampled_from([1, 100, 400, 2_000, DELIVERY_TIMEOUT_MS]))
    def let_time_pass(self, time_ms: int) -> None:
        self.now_ms += time_ms
        self.settle()

    @rule(node_id=st.integers(0, NODES - 1))
    def send(self, node_id: int) -> None:
        self.settle()
        if len(self.connections[node_id]) >= IN_FLIGHT_MAX:
            return
        self.batches.accumulator.regroup(self.cluster)
        request = self.batches.make_request(self.now_ms, node_id)
        if request is None:
            return
        copies = {
            batch.partition: Copy(batch, batch.identity, batch.base_sequence, keys_of(batch.encoded))
            for batch in request.batches.values()
        }
        for partition, copy in copies.items():
            self.check_number(partition, copy)
        self.connections[node_id].append(Travelling(request, node_id, copies))

    @precondition(lambda self: self.sequences.identity.producer_id < 0)
    @rule()
    def fetch_producer_id(self) -> None:
        with self.checked_numbers():
            self.sequences.adopt(ProducerIdentity(next(self.next_producer_id), PRODUCER_EPOCH_MAX - 1))
        self.settle()

    # ---- the brokers ----

    @rule(node_id=st.integers(0, NODES - 1), refusal=st.none() | REFUSALS, after_append=st.just(0) | TROUBLE)
    def read_a_request(self, node_id: int, refusal: int | None = None, after_append: int = 0) -> None:
        travelling = next((each for each in self.connections[node_id] if each.rows is None), None)
        if travelling is None:
            return
        travelling.rows = {}
        for partition, copy in travelling.copies.items():
            code, offset = refusal or 0, -1
            if self.leaders[partition][0] != node_id:
                code = NOT_LEADER
            elif code == 0:
                code, offset = self.logs[partition].take(copy)
                if code == 0 and after_append:
                    code, offset = after_append, -1
            row = {"index": partition, "error_code": code, "base_offset": offset, "log_start_offset": 0}
            travelling.rows[partition] = row

    @rule(node_id=st.integers(0, NODES - 1))
    def answer(self, node_id: int) -> None:
        connection = self.connections[node_id]
        if not connection or connection[0].rows is None:
            return
        travelling = connection.pop(0)
        rows = list((travelling.rows or {}).values())
        body = {"responses": [{"topic_id": TOPIC_ID, "partition_responses": rows}]}
        self.end_flight(travelling, body, None)
        self.settle()

    @rule(node_id=st.integers(0, NODES - 1), troubles=st.lists(st.just((None, 0)) | TROUBLES, min_size=1, max_size=4))
    def read_and_answer(self, node_id: int, troubles: list[tuple[int | None, int]]) -> None:
        for refusal, after_append in troubles:
            self.read_a_request(node_id, refusal, after_append)
        for _ in troubles:
            self.answer(node_id)

    @rule(node_id=st.integers(0, NODES - 1), read_count=st.integers(0, IN_FLIGHT_MAX))
    def lose_the_connection(self, node_id: int, read_count: int) -> None:
        """The broker still reads some of the requests in flight; no answer is received."""
        for _ in range(read_count):
            self.read_a_request(node_id)
        lost, self.connections[node_id] = self.connections[node_id], []
        for travelling in lost:
            self.end_flight(travelling, None, TransportError("lost"))
        self.settle()

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def move_the_leader(self, partition: int) -> None:
        node_id, leader_epoch = self.leaders[partition]
        self.leaders[partition] = ((node_id + 1) % NODES, leader_epoch + 1)

    # ---- helpers ----

    @property
    def cluster(self) -> ClusterView:
        partitions = {index: PartitionLeader(*leader) for index, leader in enumerate(self.leaders)}
        brokers = {node_id: Endpoint("host", 9092) for node_id in range(NODES)}
        return ClusterView(brokers=brokers, topics={"t": TopicView("t", TOPIC_ID, partitions)})

    def end_flight(self, travelling: Travelling, body: dict[str, Any] | None, failure: TransportError | None) -> None:
        request, read = travelling.request, None
        if body is not None:  # as bytes, so that good answers take the hand-written reader and others the generic one
            request.version, request.correlation_id = PRODUCE.version_max, 0
            read, _ = request.decode(encode_response(PRODUCE, request.version, 0, body)[4:])
        answer = Answer(request, travelling.node_id, read, failure)
        self.batches.on_answer(self.now_ms, answer)
        self.take_results()

    def settle(self) -> None:
        with self.checked_numbers():
            self.batches.expire(self.now_ms, lambda batch: "")
            self.batches.settle()
        self.take_results()

    @contextmanager
    def checked_numbers(self) -> Iterator[None]:
        """Checks every change of a sequence number that happens in the block."""
        before = {batch: (batch.identity, batch.base_sequence) for batch in self.batches.incomplete}
        yield
        for batch, number in before.items():
            if number != (batch.identity, batch.base_sequence) and not batch.is_done:
                self.check_renumbering(batch)

    def check_renumbering(self, batch: ProducerBatch) -> None:
        on_wire = [
            copy.batch for connection in self.connections for each in connection for copy in each.copies.values()
        ]
        assert batch not in on_wire, "renumbered on the wire"
        assert not set(keys_of(batch.encoded)) & set(self.logs[batch.partition].keys), "renumbered while in the log"
        self.numbers.pop(batch, None)

    def check_number(self, partition: int, copy: Copy) -> None:
        place = (partition, copy.identity, copy.base_sequence)
        known = self.owners.setdefault(place, copy.batch)
        assert known is copy.batch or copy.batch.split_from is not None, "a number for two batches"
        number = (copy.identity, copy.base_sequence)
        assert self.numbers.setdefault(copy.batch, number) == number, "resent under another number"

    def take_results(self) -> None:
        for command in self.batches.completions:
            if isinstance(command, Delivered):
                for batch in command.batches:
                    self.end(batch)
                    self.check_delivered(batch)
            elif isinstance(command, Failed):
                self.end(command.batch)
                self.check_failed(command)
        self.batches.completions.clear()

    def end(self, batch: ProducerBatch) -> None:
        for key in keys_of(batch.encoded):
            assert key not in self.ends, "a record ended twice"
            self.ends[key] = batch

    def check_delivered(self, batch: ProducerBatch) -> None:
        keys = keys_of(batch.encoded)
        log = self.logs[batch.partition].keys
        assert log[batch.base_offset : batch.base_offset + len(keys)] == keys, "acknowledged but elsewhere"

    def check_failed(self, command: Failed) -> None:
        assert isinstance(command.error, DeliveryError)
        log = self.logs[command.batch.partition].keys
        if set(keys_of(command.batch.encoded)) & set(log):
            assert command.error.ambiguous, "in the log, and reported as not in it"

    # ---- invariants ----

    @invariant()
    def logs_hold_each_record_once_and_in_order(self) -> None:
        for log in self.logs:
            assert log.keys == sorted(set(log.keys))

    @invariant()
    def every_record_waits_or_has_ended(self) -> None:
        open_keys = sorted(key for batch in self.batches.incomplete for key in keys_of(batch.encoded))
        appended = sorted(key for keys in self.appended for key in keys)
        assert sorted([*self.ends, *open_keys]) == appended

    @invariant()
    def the_books_of_the_queues_are_right(self) -> None:
        accumulator = self.batches.accumulator
        queued = list(accumulator)
        loads = Counter(batch.partition for batch in queued)
        assert (accumulator.batch_count, accumulator.loads.get("t", {})) == (len(queued), dict(loads))
        numbers = [batch.number for batch in self.batches.incomplete]
        assert numbers == sorted(numbers), "a flush would not know who is the oldest"

    @invariant()
    def queues_are_in_the_order_of_appends(self) -> None:
        for partition in range(PARTITIONS):
            queued = [batch for batch in self.batches.accumulator if batch.partition == partition]
            keys = [key for batch in queued for key in keys_of(batch.encoded)]
            assert keys == sorted(keys)

    def teardown(self) -> None:
        """Without further faults every batch ends, at the latest by its delivery time-out."""
        for _ in range(400):
            if self.batches.is_quiet:
                break
            if not self.sequences.identity.producer_id >= 0:
                self.fetch_producer_id()
            for node_id in range(NODES):
                self.send(node_id)
                self.read_a_request(node_id)
                self.answer(node_id)
            self.let_time_pass(100)
        assert self.batches.is_quiet
        self.every_record_waits_or_has_ended()
        self.logs_hold_each_record_once_and_in_order()


AccumulatorAndSequences.TestCase.settings = settings(max_examples=200, stateful_step_count=40)
TestAccumulatorAndSequences = AccumulatorAndSequences.TestCase
