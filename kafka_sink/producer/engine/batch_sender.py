"""The life cycle of batches: queue, assign sequences, send, read the response, retry, split, give up.

It decides about batches only; the engine connects it to connections, metadata and transactions. A batch is in exactly
one place: queued in the accumulator, in flight in a `ProduceRequest`, or done. `incomplete` holds all that are not
done, in order of arrival; every other batch has had its one `Delivered` or `Failed`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from itertools import takewhile
from typing import Any

from kafka_sink.errors import BrokerError, KafkaSinkError, LocalProtocolError, TransactionAborted, foreign_text
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import split
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.cluster import NO_TOPIC_ID
from kafka_sink.kafka.client.outcome import (
    ProduceOutcome,
    is_definite,
    produce_outcome,
    refuses_identity,
)
from kafka_sink.kafka.client.request import Answer
from kafka_sink.kafka.client.transaction_apis import versions_of
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.kafka.wire.produce import Acknowledgements
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine import failure
from kafka_sink.producer.engine.accumulator import Accumulator
from kafka_sink.producer.engine.commands import BatchObserved, Completion, Delivered, Drained, Failed, Observation
from kafka_sink.producer.engine.produce_request import ProduceRequest
from kafka_sink.producer.engine.producer_batch import UNKNOWN_OFFSET, ProducerBatch, TopicPartition
from kafka_sink.producer.engine.sequences import Sequences
from kafka_sink.producer.engine.transaction import Transaction

# By transaction version.
PRODUCE_VERSIONS = {number: versions_of(PRODUCE, number) for number in (1, 2)}
REQUEST_OVERHEAD_BYTES = 512


class Retry(Enum):
    """What follows for a batch that the leader did not accept."""

    NONE = auto()
    AS_IT_IS = auto()
    RENUMBERED = auto()  # with its partition, as soon as that is safe


@frozen
class RefusedSize:
    """The smallest batch that a topic has refused as too large. It is known for a while only: the topic's
    max.message.bytes may be raised."""

    bytes: int
    known_until_ms: int


class BatchSender:
    def __init__(
        self,
        options: ProducerOptions,
        backoff: Backoff,
        sequences: Sequences | None,
        transaction: Transaction | None,
        loads: dict[str, dict[int, int]],
        refused_sizes: dict[str, RefusedSize],
        log: Callable[[str, str], None],
    ) -> None:
        """`refused_sizes`, by topic: later batches are made smaller. No broker tells a producer what it takes."""
        self._options = options
        self._backoff = backoff
        # Until the engine takes them.
        self.completions: list[Completion] = []
        self.observations: list[Observation] = []
        self._sequences = sequences
        self._transaction = transaction
        # When the first batch expires; None if there is none.
        self.next_expiry_ms: int | None = None
        self._heads: dict[int, bytes] = {}
        # How many batches were appended so far; also the number of the last one.
        self.appended_count = 0
        # Batches of the response that is being read.
        self._delivered: list[ProducerBatch] = []
        self.accumulator = Accumulator(loads)
        self._refused_sizes = refused_sizes
        self._log = log
        # With one request in flight: partitions with a batch in it. Another leader's connection must wait, too.
        self._busy: set[TopicPartition] | None = None
        # Put together once, as it is called for every batch (tests/integration/test_calls.py).
        self._may_send: Callable[[ProducerBatch], bool] = lambda _: True
        if transaction is not None and sequences is not None:
            self._may_send = lambda batch: transaction.may_send(batch.topic_partition) and sequences.may_send(batch)
        elif sequences is not None:
            self._may_send = sequences.may_send
        if options.max_in_flight_requests_per_connection == 1:
            busy, may_send = set[TopicPartition](), self._may_send
            self._busy = busy
            self._may_send = lambda batch: batch.topic_partition not in busy and may_send(batch)
        # Whether the ids of topics in the cluster view were requested since this producer began.
        self.has_current_ids = False
        # Ids of the topics that the records went to whose response is being read.
        self._acked_ids: Mapping[str, bytes] = {}
        self.incomplete: OrderedDict[ProducerBatch, None] = OrderedDict()
        self.requests_in_flight = 0
        # Why this producer is unusable, from a response; the engine ends it.
        self.fatal_error: KafkaSinkError | None = None

    # ---- queries ----

    @property
    def is_quiet(self) -> bool:
        return not self.incomplete and self.requests_in_flight == 0

    # ---- events ----

    def append(self, batches: Iterable[ProducerBatch]) -> None:
        transaction = self._transaction
        refusal = None if transaction is None else transaction.refusal
        for batch in batches:
            self.appended_count += 1
            batch.number = self.appended_count
            if refusal is not None:
                # It was never part of the transaction, whose commit may be in flight: only the batch fails.
                batch.finish()
                self.completions.append(Failed(batch, failure.dropped_error(batch, refusal)))
                continue
            self.incomplete[batch] = None
            self.accumulator.append(batch)
            expiry_ms = batch.opened_ms + self._options.delivery_timeout_ms
            if self.next_expiry_ms is None or expiry_ms < self.next_expiry_ms:
                self.next_expiry_ms = expiry_ms
            if transaction is not None:
                transaction.on_appended(batch.topic_partition)

    def on_answer(self, now_ms: int, answer: Answer) -> bool:
        """True: a partition has another leader than was known."""
        has_moved = False
        request = answer.request
        assert isinstance(request, ProduceRequest)
        self.requests_in_flight -= 1
        # Under a name the leader takes the records for whatever topic has it by then.
        is_known = request.version >= PRODUCE.topic_ids_since or request.has_current_ids
        self._acked_ids = request.topic_ids if is_known else {}
        if isinstance(answer.body, Acknowledgements):
            self._on_acknowledgements(now_ms, request, answer.body)
        elif isinstance(answer.failure, (BrokerError, LocalProtocolError)):
            self._on_unsendable(request, answer.failure)
        elif answer.failure is not None:
            self._on_no_answer(now_ms, request, answer.failure)
        elif answer.body is None:
            for batch in request.batches.values():  # acks=0: sent is all that can be known
                self._deliver(batch, UNKNOWN_OFFSET, -1)
        else:
            has_moved = self._on_body(now_ms, request, answer.body)
        if self._delivered:
            self.completions.append(Delivered(self._delivered))
            self._delivered = []
        if self._busy is not None:
            self._busy.difference_update(request.batches)
        return has_moved

    def expire(self, now_ms: int, trouble_of: Callable[[ProducerBatch], str]) -> None:
        """Expires batches older than delivery.timeout.ms, counted from the first record, in flight or not.

        `trouble_of`: why a batch cannot be delivered, if known.
        """
        limit_ms = self._options.delivery_timeout_ms
        queued = self.accumulator.take_all(now_ms - limit_ms)
        on_wire = [batch for batch in self.incomplete if batch.is_on_wire and batch.opened_ms + limit_ms <= now_ms]
        for batch in [*on_wire, *queued]:
            reason = "waiting for an answer" if batch.is_on_wire else "waiting to be sent"
            self._give_up(batch, failure.timeout_error(batch, limit_ms, reason, trouble_of(batch)))
        oldest = min((batch.opened_ms for batch in self.incomplete), default=None)
        self.next_expiry_ms = None if oldest is None else oldest + limit_ms

    def give_up_lost_partitions(self, loss_of: Callable[[str, int], str]) -> None:
        """Gives up queued batches whose partition is gone for good. `loss_of`: how it was lost; empty: it was not."""
        losses = {key: loss for key in self.accumulator.leaderless if (loss := loss_of(*key))}
        for batch in [batch for batch in self.accumulator if batch.topic_partition in losses] if losses else ():
            self.accumulator.remove(batch)
            self._give_up(batch, failure.lost_partition_error(batch, losses[batch.topic_partition]))

    def settle(self) -> None:
        """Drops the queued batches of a doomed transaction, or prepares them for another identity; without a
        transaction, resolves partitions with unknown sequences."""
        transaction, sequences = self._transaction, self._sequences
        if transaction is not None:
            if transaction.must_drop_identity and not self.requests_in_flight:
                self._release(transaction)
            if transaction.drops_unsent:
                cause = transaction.error or TransactionAborted("the transaction was aborted")
                for batch in self.accumulator.take_all():
                    self._give_up(batch, failure.dropped_error(batch, cause))
        elif sequences is not None and (sequences.may_be_unresolved or sequences.to_renumber):
            for topic_partition in sequences.settle_unresolved():
                sequences.mark_for_renumbering(topic_partition)
            sequences.renumber_when_quiet()

    def _release(self, transaction: Transaction) -> None:
        """Each send under the refused identity has ended. If one was acknowledged, or may be in the log, the identity
        was right, and somebody else has ended the transaction since."""
        assert transaction.error is not None and self._sequences is not None
        if transaction.is_expected and all(batch.is_surely_not_in_log for batch in self.incomplete):
            self._sequences.release_all()
            transaction.drop_identity()
        else:
            transaction.on_error(transaction.error)

    def fail_all(self, error: KafkaSinkError) -> None:
        """The producer is finished: nothing more is sent, no response is read."""
        self.accumulator.take_all()
        for batch in list(self.incomplete):
            self._give_up(batch, failure.dropped_error(batch, error))

    # ---- sending ----

    def make_request(self, now_ms: int, node_id: int) -> ProduceRequest | None:
        """Takes what may be sent to the node out of the queues. None: nothing."""
        batches = self.accumulator.drain(
            now_ms, node_id, self._options.max_request_size - REQUEST_OVERHEAD_BYTES, self._may_send
        )
        if not batches:
            return None
        new = []
        topics = self.accumulator.cluster.topics
        topic_ids: dict[str, bytes] = {}
        version_min, version_max = 0, PRODUCE.version_max
        for batch in batches.values():
            if self._sequences is not None:
                self._sequences.on_drained(batch)
            topic = topics[batch.topic]
            if topic.topic_id == NO_TOPIC_ID:
                version_max = PRODUCE.last_by_name
            else:
                topic_ids[batch.topic] = topic.topic_id
            if not batch.attempts:
                new.append(batch)
            batch.on_sent(topic.partitions[batch.partition])
        if self._busy is not None:
            self._busy.update(batches)
        if new:
            self.observations.append(Drained(new))
        if self._transaction is not None:
            version_min, last = PRODUCE_VERSIONS[self._transaction.transaction_version]
            version_max = min(version_max, last)
            if self._transaction.transaction_version == 2:
                self._transaction.is_started = True
        self.requests_in_flight += 1
        return ProduceRequest(
            batches, topic_ids, self.has_current_ids, self._options, self._heads, version_min, version_max
        )

    # ---- responses ----

    def _on_unsendable(self, request: ProduceRequest, error: KafkaSinkError) -> None:
        """The leader supports no suitable version: a retry would fail in the same way."""
        self._end_producer(error)
        for batch in request.batches.values():
            batch.on_answered(is_definite=True)
            if not batch.is_done:
                self._give_up(batch, failure.dropped_error(batch, error))

    def _on_no_answer(self, now_ms: int, request: ProduceRequest, error: KafkaSinkError) -> None:
        for batch in request.batches.values():
            batch.on_lost()
            if not batch.is_done:
                self._try_again(now_ms, batch, str(error), None)

    def _on_acknowledgements(self, now_ms: int, request: ProduceRequest, answer: Acknowledgements) -> None:
        """No partition has an error, which is nearly always the case."""
        unanswered = request.batches.copy()
        names = dict(zip(request.topic_ids.values(), request.topic_ids, strict=True))
        for topic, partition, base_offset, log_append_time_ms in answer.partitions:
            name = topic if isinstance(topic, str) else names.get(topic, "")
            batch = unanswered.pop((name, partition), None)
            if batch is not None:
                self._deliver(batch, base_offset, log_append_time_ms)
        if unanswered:
            self._on_left_out(now_ms, unanswered)

    def _on_body(self, now_ms: int, request: ProduceRequest, body: Mapping[str, Any]) -> bool:
        has_moved = False
        unanswered = request.batches.copy()
        names = dict(zip(request.topic_ids.values(), request.topic_ids, strict=True))
        for topic in body["responses"]:
            name = topic.get("name") or names.get(topic.get("topic_id", b""), "")
            for partition in topic["partition_responses"]:
                batch = unanswered.pop((name, partition["index"]), None)
                if batch is not None:
                    has_moved |= self._on_partition(now_ms, batch, partition)
        self._on_left_out(now_ms, unanswered)
        return has_moved

    def _on_left_out(self, now_ms: int, unanswered: Mapping[TopicPartition, ProducerBatch]) -> None:
        for batch in unanswered.values():
            batch.on_answered(is_definite=False)
            if not batch.is_done:
                self._try_again(now_ms, batch, "the broker's answer left this partition out", None)

    def _on_partition(self, now_ms: int, batch: ProducerBatch, answer: Mapping[str, Any]) -> bool:
        error_code: int = answer["error_code"]
        outcome = produce_outcome(error_code)
        if outcome is ProduceOutcome.ACKED:
            self._deliver(batch, answer["base_offset"], answer.get("log_append_time_ms", -1))
            return False
        batch.on_answered(is_definite=is_definite(error_code))
        if batch.is_done:
            return False
        if refuses_identity(error_code) and self._ask_for_another_identity(batch, answer):
            self._try_again(now_ms, batch, self._trouble_in(answer), error_code)
            return False
        if outcome is ProduceOutcome.SPLIT and batch.record_count > 1:
            self._split(now_ms, batch)
            return False
        if outcome is ProduceOutcome.OUT_OF_ORDER and self._sequences is not None:
            self._sequences.on_out_of_order(batch)
        retry = self._retry_of(batch, outcome, answer)
        if retry is Retry.NONE:
            self._on_refused(batch, outcome, answer)
            return False
        if retry is Retry.RENUMBERED and self._sequences is not None:
            self._sequences.mark_for_renumbering(batch.topic_partition)
        self._try_again(now_ms, batch, self._trouble_in(answer), error_code)
        return outcome is ProduceOutcome.RETRY_ELSEWHERE

    def _trouble_in(self, answer: Mapping[str, Any]) -> str:
        told = answer.get("error_message")
        return failure.trouble_text(answer["error_code"], told, is_transactional=self._transaction is not None)

    def _ask_for_another_identity(self, batch: ProducerBatch, answer: Mapping[str, Any]) -> bool:
        """False: the identity was confirmed before, so somebody has ended the transaction."""
        return self._transaction is not None and self._transaction.on_identity_refused(self._refusal(batch, answer))

    def _retry_of(self, batch: ProducerBatch, outcome: ProduceOutcome, answer: Mapping[str, Any]) -> Retry:
        if outcome is ProduceOutcome.OUT_OF_ORDER and self._sequences is not None:
            # Usually an earlier batch failed first: then resending is enough.
            return self._retry_with_new_number(batch) if self._sequences.is_gap_before(batch) else Retry.AS_IT_IS
        if outcome is ProduceOutcome.STATE_LOST and self._sequences is not None:
            return self._retry_without_state(batch, answer["log_start_offset"])
        is_retriable = outcome in (ProduceOutcome.RETRY, ProduceOutcome.RETRY_ELSEWHERE)
        return Retry.AS_IT_IS if is_retriable else Retry.NONE

    def _retry_without_state(self, batch: ProducerBatch, log_start_offset: int) -> Retry:
        """UNKNOWN_PRODUCER_ID of old brokers and of other servers: they lost the state of this producer, with its
        records or without. So it says nothing about earlier sends of the batch. Java begins at 0 again where retention
        took all that was acknowledged: a batch on the wire then meets numbers that are given a second time."""
        if log_start_offset < 0:
            return Retry.AS_IT_IS  # such a server does not even know its log
        return self._retry_with_new_number(batch) if batch.is_surely_not_in_log else Retry.NONE

    def _retry_with_new_number(self, batch: ProducerBatch) -> Retry:
        is_bound = self._transaction is not None or batch.is_bound_to_its_number
        return Retry.NONE if is_bound else Retry.RENUMBERED

    def _on_refused(self, batch: ProducerBatch, outcome: ProduceOutcome, answer: Mapping[str, Any]) -> None:
        error = self._refusal(batch, answer)
        record_errors = {
            item["batch_index"]: foreign_text(item["batch_index_error_message"])
            for item in answer.get("record_errors") or ()
        }
        if outcome is ProduceOutcome.FATAL:
            self._end_producer(error)
        self._give_up(batch, error, record_errors)

    def _refusal(self, batch: ProducerBatch, answer: Mapping[str, Any]) -> KafkaSinkError:
        told = answer.get("error_message")
        return failure.refused_error(batch, answer["error_code"], told, self._options.transactional_id)

    def _end_producer(self, error: KafkaSinkError) -> None:
        """As in Java a producer with an id is unusable then; without idempotence only the batch has failed."""
        if self._sequences is not None and self.fatal_error is None:
            self.fatal_error = error
        if self._transaction is not None:
            self._transaction.on_fatal(error)

    def _try_again(self, now_ms: int, batch: ProducerBatch, reason: str, error_code: int | None) -> None:
        if batch.attempts > self._options.retries:
            self._give_up(batch, failure.retries_exhausted_error(batch, reason, error_code))
        else:
            batch.last_trouble = reason
            batch.retry_at_ms = now_ms + self._backoff.delay_ms(batch.attempts)
            self.accumulator.requeue(batch)
            self.observations.append(BatchObserved("retried", batch, error_code))

    def _split(self, now_ms: int, batch: ProducerBatch) -> None:
        """Too large for the broker: splits it into parts of half the size, in order, with the same sequences. If its
        topic has refused smaller ones, of half their size: it may be a twentieth of this one, and each split is slow.
        """
        refused_bytes = self._note_refused_size(now_ms, batch)
        codec = make_compressor(*self._options.compression_of(batch.topic))
        part_bytes_max = batch.encoded.records_bytes * refused_bytes // (2 * batch.size)
        parts = batch.split(split(batch.encoded, codec, part_bytes_max))
        if self._sequences is not None:
            self._sequences.on_split(batch, parts)
        batch.finish()
        # In place of the whole: waiters for the oldest batch look at the first. Few are before it, as it was sent.
        ahead = list(takewhile(lambda one: one is not batch, self.incomplete))
        del self.incomplete[batch]
        for each in reversed([*ahead, *parts]):
            self.incomplete[each] = None
            self.incomplete.move_to_end(each, last=False)
        for part in reversed(parts):
            self.accumulator.requeue(part)
        self.observations.append(BatchObserved("split", batch))

    def _note_refused_size(self, now_ms: int, batch: ProducerBatch) -> int:
        """Returns the smallest size that the topic has refused."""
        known = self._refused_sizes.get(batch.topic)
        if known is None:
            text = (
                f"topic {batch.topic} does not take a batch of {batch.size} bytes: its max.message.bytes is smaller. "
                "The batch is split, and later ones are made smaller until the topic takes them. Fewer and larger "
                "batches cost less: raise the topic's max.message.bytes, or set batch.size below it"
            )
            self._log("warning", text)
        elif known.bytes <= batch.size and now_ms < known.known_until_ms:
            return known.bytes
        known_until_ms = now_ms + self._options.metadata_max_age_ms
        self._refused_sizes[batch.topic] = RefusedSize(batch.size, known_until_ms)
        return batch.size

    def _deliver(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        if batch.is_done:
            return  # it was given up meanwhile
        batch.finish()
        del self.incomplete[batch]
        if not self.incomplete:
            self.next_expiry_ms = None
        batch.base_offset, batch.log_append_time_ms = base_offset, log_append_time_ms
        if self._sequences is not None:
            self._sequences.on_acked(batch)
        if self._transaction is not None:
            last_offset = base_offset + batch.record_count - 1 if base_offset >= 0 else -1
            self._transaction.on_acked(batch.topic_partition, last_offset, self._acked_ids.get(batch.topic))
        self._delivered.append(batch)

    def _give_up(
        self, batch: ProducerBatch, error: KafkaSinkError, record_errors: Mapping[int, str] | None = None
    ) -> None:
        batch.finish()
        del self.incomplete[batch]
        if not self.incomplete:
            self.next_expiry_ms = None
        if self._sequences is not None and batch.has_sequence:
            self._sequences.on_given_up(batch)
            # Its sequences will never be used: every later batch would be out of order.
            if self._transaction is None and batch.is_surely_not_in_log:
                self._sequences.mark_for_renumbering(batch.topic_partition)
        if self._transaction is not None:
            self._transaction.on_error(error)
        self.completions.append(Failed(batch, error, record_errors or {}))
