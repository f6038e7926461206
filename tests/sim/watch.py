"""Checks every request of one engine when it is sent, and the engine's own bookkeeping after every step.

It checks I7 (bookkeeping), I8 (requests in flight, sequences, epochs, identical resends, throttling), I9 (nothing after
the end, nothing unregistered, no EndTxn with records open), I10 (one decision per transaction, none after a prepare),
I11 (no storm of commands, no batch before its back-off is over).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_sink.kafka.client.commands import Connect, NetworkCommand, Notice, RequestObserved, Send
from kafka_sink.kafka.wire import frames
from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, END_TXN, PRODUCE
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.accumulator import Accumulator
from kafka_sink.producer.engine.engine import Engine
from kafka_sink.producer.engine.producer_batch import ProducerBatch, TopicPartition
from tests.sim.decoder import Seen, read_batch
from tests.sim.history import History, Transaction
from tests.sim.network import Connection
from tests.sim.trace import Trace, Violation

PRODUCE_FIRST_V2 = 12
COMMANDS_PER_SECOND_MAX = 4_000
Numbered = tuple[int, int, str, int]


class Watch:
    def __init__(self, engine: Engine, name: str, options: ProducerOptions, history: History, trace: Trace) -> None:
        self._engine = engine
        self._history = history
        self._name = name
        self._options = options
        self._trace = trace
        # (producer id, epoch, topic, partition) -> sequence -> record number, and the next sequence.
        self._sent: dict[Numbered, dict[int, int]] = {}
        self._throttled_until_ms: dict[int, int] = {}
        self._was_over = False
        self._epochs: dict[tuple[int, int], Transaction | None] = {}
        self._second = (-1, 0)
        self._watch_back_offs(engine._batches.accumulator)

    def _watch_back_offs(self, accumulator: Accumulator) -> None:
        """Checked when batches are drained, since one step can process the refusal of a batch, learn of a new leader
        and send the batch there."""
        drain = accumulator.drain

        def watched(now_ms: int, *rest: Any) -> dict[TopicPartition, ProducerBatch]:
            batches, cluster = drain(now_ms, *rest), accumulator.cluster
            for batch in batches.values():
                if now_ms < batch.retry_at_ms and batch.sent_to == cluster.leader_with_epoch(*batch.topic_partition):
                    raise Violation("I11", f"{self._name}: {batch} goes out before its back-off is over")
            return batches

        accumulator.drain = watched  # type: ignore[method-assign]

    # ---- after each step ----

    def after_step(self) -> None:
        self._was_over = self._engine._end is not None
        batches = self._engine._batches
        queued = list(batches.accumulator)
        self._check_queues(queued)
        on_wire = [batch for batch in batches.incomplete if batch.is_on_wire]
        if len(queued) + len(on_wire) != len(batches.incomplete) or any(one.is_on_wire for one in queued):
            raise Violation(
                "I7",
                f"{self._name}: {len(queued)} queued and {len(on_wire)} on the wire, {len(batches.incomplete)} open",
            )

    def _check_queues(self, queued: list[ProducerBatch]) -> None:
        """The counts, updated as batches come and go, equal those of a walk through the queues."""
        accumulator = self._engine._batches.accumulator
        counted = {key: count for topic, each in accumulator.loads.items() for key, count in _keyed(topic, each)}
        found = Counter(batch.topic_partition for batch in queued)
        if accumulator.batch_count != len(queued) or counted != dict(found):
            raise Violation("I7", f"{self._name}: {counted} batches are counted, {dict(found)} are queued")
        numbers = [batch.number for batch in self._engine._batches.incomplete]
        if numbers != sorted(numbers):
            raise Violation("I7", f"{self._name}: the oldest batch that is not done is not the first: {numbers}")

    def check_empty(self) -> None:
        """The producer is closed: nothing may be left in it."""
        batches = self._engine._batches
        left = (batches.accumulator.batch_count, len(batches.incomplete), batches.requests_in_flight)
        if any(left):
            raise Violation("I7", f"{self._name} is closed with (queued, open, flights) = {left}")

    def on_observation(
        self,
        now_ms: int,
        command: Notice | RequestObserved | c.Drained | c.BatchObserved,
    ) -> None:
        if isinstance(command, RequestObserved) and command.throttle_ms > 0:
            until_ms = now_ms + command.throttle_ms
            self._throttled_until_ms[command.node_id] = max(self._throttled_until_ms.get(command.node_id, 0), until_ms)
        elif isinstance(command, c.BatchObserved):
            self._trace.count(f"batch {command.event}")
        elif isinstance(command, Notice) and command.text.startswith("back to the bootstrap"):
            self._trace.count("went back to the bootstrap servers")
        elif isinstance(command, Notice) and command.text.startswith("another epoch is asked for"):
            self._trace.count("expected epoch was refused")

    # ---- at each send ----

    def on_network_command(
        self, now_ms: int, command: NetworkCommand, connection: Connection | None, transaction: Transaction | None
    ) -> None:
        self._count(now_ms)
        if isinstance(command, Connect):
            # A broker throttles a client across connections, but the engine is only bound by what it got over this one.
            self._throttled_until_ms.pop(command.node_id, None)
        if not isinstance(command, Send):
            return
        if self._was_over:
            raise Violation("I9", f"{self._name} sends after its end")
        if connection is None:
            return
        data = b"".join(command.buffers)
        key, version, _, _, offset = frames.decode_request_header(data[4:])
        self._trace.note(now_ms, f"{self._name} asks {connection.link.broker_id} {APIS[key].name} v{version}")
        if key != API_VERSIONS.key:
            self._check_connection(now_ms, connection)
        if key == PRODUCE.key:
            self._on_produce(version, PRODUCE.decode_request(version, data[4 + offset :]), transaction)
        elif key == END_TXN.key:
            self._on_end(END_TXN.decode_request(version, data[4 + offset :]), transaction)

    def _count(self, now_ms: int) -> None:
        second, count = self._second
        self._second = (now_ms // 1000, count + 1 if second == now_ms // 1000 else 1)
        if self._second[1] > COMMANDS_PER_SECOND_MAX:
            raise Violation("I11", f"{self._name}: more than {COMMANDS_PER_SECOND_MAX} network commands in a second")

    def _check_connection(self, now_ms: int, connection: Connection) -> None:
        in_flight = len(connection.unanswered)
        # Requests with acks=0 have no answer to count.
        if self._options.acks != 0 and in_flight > self._options.max_in_flight_requests_per_connection:
            raise Violation("I8", f"{self._name}: {in_flight} requests in flight on one connection")
        if now_ms < self._throttled_until_ms.get(connection.node_id, 0):
            raise Violation("I8", f"{self._name} sends to node {connection.node_id} while it is throttled")

    def _on_produce(self, version: int, body: dict[str, Any], transaction: Transaction | None) -> None:
        ids = {topic_id: name for name, topic_id in self._engine.cluster.topic_ids().items()}
        for topic in body["topic_data"]:
            name = topic.get("name") or ids.get(topic.get("topic_id", b""), "")
            for partition in topic["partition_data"]:
                seen = read_batch(partition["records"])
                self._on_batch(seen, (name, partition["index"]), version, transaction)

    def _on_batch(
        self, seen: Seen, topic_partition: tuple[str, int], version: int, transaction: Transaction | None
    ) -> None:
        where = f"{self._name} {topic_partition} epoch {seen.producer_epoch} sequence {seen.base_sequence}"
        if seen.is_transactional != (self._options.transactional_id is not None):
            raise Violation("I8", f"{where}: wrong transactional flag")
        if not self._options.enable_idempotence:
            return
        if seen.producer_id < 0 or seen.base_sequence < 0:
            raise Violation("I8", f"{where}: no identity")
        sent = self._sent.setdefault((seen.producer_id, seen.producer_epoch, *topic_partition), {})
        for index, number in enumerate(seen.numbers):
            sequence = seen.sequence_of(index)
            if sequence not in sent:
                # After a batch whose fate is unknown a gap is possible; the result of the next batch shows it.
                sequences = self._engine._sequences
                partition = None if sequences is None else sequences._partitions.get(topic_partition)
                is_unresolved = partition is not None and partition.is_unresolved
                if sequence != max(sent, default=-1) + 1 and not is_unresolved:
                    raise Violation("I8", f"{where}: gap, {max(sent, default=-1) + 1} was next")
                sent[sequence] = number
            elif sent[sequence] != number:
                raise Violation("I8", f"{where}: record {number} takes the sequence of record {sent[sequence]}")
        if seen.is_transactional:
            self._on_transactional_batch(seen, topic_partition, version, transaction, where)

    def _on_transactional_batch(
        self, seen: Seen, topic_partition: tuple[str, int], version: int, transaction: Transaction | None, where: str
    ) -> None:
        engine_transaction = self._engine._transaction
        assert engine_transaction is not None
        if version < PRODUCE_FIRST_V2 and topic_partition not in engine_transaction.registered:
            raise Violation("I9", f"{where}: the partition is not registered")
        if transaction is None or any(
            self._history.records[number].transaction is not transaction for number in seen.numbers
        ):
            raise Violation("I8", f"{where}: records of another transaction")
        if transaction.is_prepared:
            raise Violation("I10", f"{where}: records after the prepare")
        if version >= PRODUCE_FIRST_V2:
            owner = self._epochs.setdefault((seen.producer_id, seen.producer_epoch), transaction)
            if owner is not transaction:
                raise Violation("I8", f"{where}: the epoch was that of another transaction")

    def _on_end(self, body: dict[str, Any], transaction: Transaction | None) -> None:
        batches = self._engine._batches
        if batches.requests_in_flight or batches.incomplete:
            raise Violation("I9", f"{self._name}: EndTxn with {len(batches.incomplete)} batches open")
        if transaction is None:
            raise Violation("I10", f"{self._name}: EndTxn without a transaction")
        if transaction.is_prepared:
            raise Violation("I10", f"{self._name}: EndTxn of a prepared transaction that nobody asked for")
        if transaction.has_decision not in (None, body["committed"]):
            # The decision may change from commit to abort only if the coordinator has refused the commit for good.
            self._trace.count("decision changed")
        transaction.has_decision = body["committed"]
        if body["committed"] and not transaction.wanted_commit:
            raise Violation("I10", f"{self._name}: EndTxn(commit) that nobody asked for")


def _keyed(topic: str, counts: Mapping[int, int]) -> Iterator[tuple[TopicPartition, int]]:
    return (((topic, partition), count) for partition, count in counts.items())
