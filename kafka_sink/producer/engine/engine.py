"""The producer as one pure function: `step(now_ms, events, calls) -> Step`. No I/O, no clock, no thread.

A step has a fixed order, so that each part sees the results of those before it:

 1  inputs            events of connections, calls of the application
 2  time-outs         of connections and requests; they are answers too
 3  answers           to Produce, Metadata and coordinator requests
 4  expiry            batches older than delivery.timeout.ms, or of a partition that is gone
 5  settling          unknown sequences, epoch bumps, transactions that must abort
 6  transaction       the next request to a coordinator
 7  batches           drained for every leader that can take a request
 8  metadata          if something above found it stale
 9  results           flushes and closes that ended

Only the sender thread calls it. What other threads may read is published by the sender (producer/sender.py): `cluster`
and `refusal` after each step, `queue_loads` and `refused_sizes` once, as they are the engine's own dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from kafka_sink.errors import KafkaSinkError, LocalProtocolError, TransactionAborted
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.cluster import ClusterView, FoundCoordinator
from kafka_sink.kafka.client.commands import NetworkEvent
from kafka_sink.kafka.client.metadata import Metadata
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.batch_sender import BatchSender, RefusedSize
from kafka_sink.producer.engine.commands import TransactionEvent
from kafka_sink.producer.engine.coordinator_requests import CoordinatorRequest
from kafka_sink.producer.engine.failure import CLOSED
from kafka_sink.producer.engine.produce_request import ProduceRequest
from kafka_sink.producer.engine.producer_batch import NO_IDENTITY, ProducerBatch, ProducerIdentity, TopicPartition
from kafka_sink.producer.engine.producer_id import ProducerIdSource
from kafka_sink.producer.engine.replaced_topics import ReplacedTopics
from kafka_sink.producer.engine.sequences import Sequences
from kafka_sink.producer.engine.transaction import Transaction, TransactionState
from kafka_sink.producer.engine.transaction_requests import TransactionRequests

THROTTLED = "the broker throttles this client, because a quota of this client is used up"


class Engine:
    def __init__(
        self, options: ProducerOptions, *, jitter: Callable[[], float], authenticator: Authenticator | None = None
    ) -> None:
        self._backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, jitter)
        self.nodes = NodeSet(options, jitter=jitter, authenticator=authenticator)
        self.metadata = Metadata(options, self.nodes, jitter=jitter)
        # How many batches are queued, by topic and partition: one object, updated in place.
        self.queue_loads: dict[str, dict[int, int]] = {}
        # By topic, updated in place as well: what is too large for it.
        self.refused_sizes: dict[str, RefusedSize] = {}
        self._coordinators: dict[tuple[int, str], FoundCoordinator] = {}
        self._replaced_topics = ReplacedTopics(self.metadata)
        # The ends of calls in this step, besides those of the transaction.
        self._finished: list[c.Finished] = []
        self._reset_producer(options)
        # Flushes under way, each with the number of the last batch that it waits for.
        self._flushes: list[tuple[c.PendingOperation, int]] = []
        self._closes: list[c.PendingOperation] = []
        # Why nothing is accepted or sent any more.
        self._end: KafkaSinkError | None = None

    def _reset_producer(self, options: ProducerOptions) -> None:
        """The state of one producer; connections, cluster metadata and coordinators are not part of it."""
        self._options = options
        self._sequences = Sequences() if options.enable_idempotence else None
        self._transaction: Transaction | None = None
        self._transaction_requests: TransactionRequests | None = None
        self._producer_ids: ProducerIdSource | None = None
        if options.transactional_id is not None:
            self._transaction = Transaction(options.transactional_id)
            self._transaction_requests = TransactionRequests(
                self._transaction, options, self._backoff, self._coordinators, self.metadata
            )
        elif self._sequences is not None:
            self._producer_ids = ProducerIdSource(options.request_timeout_ms, self._backoff)
        self._batches = BatchSender(
            options,
            self._backoff,
            self._sequences,
            self._transaction,
            self.queue_loads,
            self.refused_sizes,
            self.nodes.log,
        )
        # The first metadata refresh of this producer: topic ids from earlier ones may be outdated.
        self._first_refresh = self.metadata.next_number
        # The refresh that shows whether the partitions of a transaction to be aborted have leaders.
        self._refresh_before_end: int | None = None

    # ---- published by the sender ----

    @property
    def cluster(self) -> ClusterView:
        return self.metadata.view

    @property
    def refusal(self) -> KafkaSinkError | None:
        """Why a record would not be accepted now; None: it would."""
        if self._end is not None:
            return self._end
        if self._closes:
            return LocalProtocolError(CLOSED)
        return None if self._transaction is None else self._transaction.refusal

    @property
    def trouble(self) -> str:
        """Why records or a transaction are delayed. Empty: unknown."""
        requests, last_failure = self._transaction_requests, self.nodes.last_failure
        if requests is not None and requests.trouble:
            return requests.trouble
        oldest = next(iter(self._batches.incomplete), None)
        trouble = "" if oldest is None else self._trouble_of(oldest)
        return trouble or ("" if last_failure is None else str(last_failure))

    def _trouble_of(self, batch: ProducerBatch) -> str:
        """Why the batch cannot be delivered, if known."""
        node_id = self.cluster.leader(batch.topic, batch.partition)
        failure = None if node_id is None else self.nodes.failure_of(node_id)
        if failure is not None:
            return f"the leader cannot be used: {failure}"
        count = self.cluster.partition_count(batch.topic)
        if count is not None and batch.partition >= count:
            return (
                f"topic {batch.topic} now ends with partition {count - 1}: it was created again with fewer partitions"
            )
        if batch.last_trouble:
            return f"the last try failed: {batch.last_trouble}"
        if node_id is not None:
            return THROTTLED if self.nodes.is_throttled(node_id, batch.opened_ms) else ""
        return self.metadata.topic_trouble(batch.topic) or "the partition has no leader now"

    # ---- the step ----

    def step(self, now_ms: int, events: Sequence[NetworkEvent] = (), calls: Sequence[c.Call] = ()) -> c.Step:
        nodes = self.nodes
        nodes.moments.clear()
        for event in events:
            nodes.on_input(now_ms, event)
        for call in calls:
            self._on_call(now_ms, call)
        if nodes.due_ms is not None and nodes.due_ms <= now_ms:
            nodes.on_time(now_ms)
        batches, has_moved, retry_at_ms = self._batches, False, None
        if nodes.answers:
            for answer in nodes.take_answers():
                if isinstance(answer.request, ProduceRequest):
                    has_moved |= batches.on_answer(now_ms, answer)
                    # Before batches are drained: a batch that need not wait any more would wake nobody later.
                    if isinstance(answer.body, dict) and answer.body.get("node_endpoints"):
                        self.metadata.on_leader_hints(answer.body, now_ms)
                else:
                    self._on_answer(now_ms, answer)
        source = self._transaction or self._producer_ids
        fatal_error = nodes.refusal or batches.fatal_error or (None if source is None else source.fatal_error)
        if fatal_error is not None and self._end is None:
            self._finish_with(fatal_error)
        if batches.next_expiry_ms is not None and batches.next_expiry_ms <= now_ms:
            batches.expire(now_ms, self._trouble_of)
        if batches.accumulator.leaderless and self._replaced_topics.found:
            batches.give_up_lost_partitions(self._replaced_topics.loss_of)
        # Before settling: a new epoch resolves all unknown sequences of the previous transaction.
        if self._transaction is not None:
            self._adopt_identity(self._transaction)
        was_refused = self._transaction is not None and self._transaction.must_drop_identity
        batches.settle()
        if was_refused and self._transaction is not None and self._transaction.must_ask_identity:
            self.nodes.log("debug", f"another epoch is asked for, nothing was written: {self._transaction.error}")
        if has_moved:
            self.metadata.request_news()
        if self._end is None:
            if self._transaction is not None and self._transaction_requests is not None:
                self._advance_transaction(now_ms, self._transaction, self._transaction_requests)
            elif (
                self._producer_ids is not None
                and self._sequences is not None
                and self._sequences.identity == NO_IDENTITY
            ):
                self._ask_producer_id(now_ms, self._producer_ids)
            if batches.accumulator.batch_count:
                retry_at_ms = self._send_batches(now_ms)
            self.metadata.ask(now_ms)
        if self._flushes or self._closes or self._end is not None:
            self._finish_flushes_and_closes()
        return self._take_step(now_ms, retry_at_ms)

    def _adopt_identity(self, transaction: Transaction) -> None:
        assert self._sequences is not None
        if transaction.identity not in (self._sequences.identity, NO_IDENTITY):
            self._sequences.restart_all(transaction.identity)

    # ---- inputs ----

    def _on_call(self, now_ms: int, call: c.Call) -> None:
        if isinstance(call, c.Append):
            for topic in {batch.topic for batch in call.batches}:
                self.metadata.want_topic(topic, now_ms)
            self._batches.append(call.batches)
            if self._end is not None:
                self._batches.fail_all(self._end)
        elif isinstance(call, c.WantTopic):
            self.metadata.want_topic(call.topic, now_ms)
            if call.topic in self.cluster.topics:
                self.metadata.request_update()  # the caller has seen the current view and still waits
        elif isinstance(call, c.RowsRejected):
            if self._transaction is not None:
                self._transaction.on_error(call.error)
        elif isinstance(call, c.Flush):
            self._flushes.append((call.operation, self._batches.appended_count))
        elif isinstance(call, c.Close):
            self._closes.append(call.operation)
            if self._transaction is not None:
                self._transaction.abort_before_close()
        elif isinstance(call, c.Abandon):
            self._finish_with(call.reason)
        elif isinstance(call, c.StartOver):
            self._start_over(call)
        else:
            self._on_transaction_call(call)

    def _start_over(self, call: c.StartOver) -> None:
        """Replaces this producer by a new one; it must have nothing pending."""
        error = self._end
        # A pending InitProducerId does not matter: it was for an earlier producer, and its id will not be used.
        is_asking = self._transaction_requests is not None and self._transaction_requests.is_waiting
        if error is None and (is_asking or self._flushes or self._closes or not self._is_over()):
            error = LocalProtocolError("a producer with records or requests under way cannot start over")
        if error is None:
            before = self._batches
            ends = [] if self._transaction is None else self._transaction.finished
            self._reset_producer(replace(self._options, transactional_id=call.transactional_id))
            # What this step has done before.
            self._batches.completions, self._batches.observations = before.completions, before.observations
            self._finished += ends
            if self._transaction is not None and self.nodes.transaction_version == 1:
                # By the older rules Produce has no topic ids: only metadata tells whether a topic was replaced.
                self.metadata.request_news()
        has_begun = error is None and self._begin_expected(call.expected)
        self._finished.append(c.Finished(call.operation, error, has_begun))

    def _begin_expected(self, expected: ProducerIdentity | None) -> bool:
        if expected is None or self._transaction is None or not self.nodes.epoch_of_end_is_safe:
            return False
        self._transaction.begin_expected(expected)
        return True

    def _on_transaction_call(self, call: c.TransactionCall) -> None:
        transaction = self._transaction
        if self._end is not None or self._closes or transaction is None:
            error = self._end or LocalProtocolError(CLOSED if self._closes else "this producer has no transactional.id")
            self._finished.append(c.Finished(call.operation, error))
        elif isinstance(call, c.SendOffsets):
            transaction.send_offsets(call)
        elif isinstance(call, c.ResumeTransaction):
            transaction.resume(call.operation, call.receipt)
        elif call.event is TransactionEvent.BEGIN:
            nodes = self.nodes
            transaction.begin(
                call.operation, nodes.transaction_version, epoch_of_end_is_safe=nodes.epoch_of_end_is_safe
            )
        else:
            transaction.start(call.operation, call.event)

    # ---- responses ----

    def _on_answer(self, now_ms: int, answer: Answer) -> None:
        """To any request but Produce."""
        purpose = answer.request.purpose
        if isinstance(purpose, CoordinatorRequest):
            assert self._transaction_requests is not None
            self._transaction_requests.on_answer(now_ms, answer)
        elif purpose is self._producer_ids and self._producer_ids is not None:
            identity = self._producer_ids.on_answer(now_ms, answer)
            if identity is not None and self._sequences is not None:
                self._sequences.adopt(identity)
        else:
            before = self.cluster
            self.metadata.on_answer(now_ms, answer)
            self._replaced_topics.on_answer(before)
            self._batches.has_current_ids = self.metadata.has_answered(self._first_refresh)
            if self._sequences is not None:
                self._sequences.on_topics(self.cluster.topic_ids())

    def _finish_with(self, error: KafkaSinkError) -> None:
        """Nothing more will be sent: everything pending fails with this error."""
        self._end = error
        if self._transaction is not None:
            self._transaction.on_fatal(error)
        self._batches.fail_all(error)

    # ---- requests ----

    def _advance_transaction(self, now_ms: int, transaction: Transaction, requests: TransactionRequests) -> None:
        """The next request to a coordinator, or what needs none."""
        if transaction.state is TransactionState.INITIALIZING:
            # Before the first transaction nothing was written by the rules of another version.
            transaction.transaction_version = self.nodes.transaction_version
        if self._needs_leaders(transaction) and not requests.is_waiting:
            if self._refresh_before_end is None:
                self._refresh_before_end = self._refresh_leaders(now_ms)
            if not self.metadata.has_answered(self._refresh_before_end):
                return
            leaderless = [one for one in self._written_partitions if self.cluster.is_leaderless(*one)]
            if leaderless:
                self._leave_open(*leaderless[0])
                return
        if not requests.is_free(now_ms):
            return
        step = requests.next_step(is_quiet=self._batches.is_quiet)
        if step is TransactionEvent.PREPARED:
            transaction.on_prepared()
        elif step is TransactionEvent.ENDED:
            transaction.on_ended(None)
        elif isinstance(step, CoordinatorRequest):
            self._ask_coordinator(now_ms, requests, requests.make_request(step))

    def _ask_coordinator(self, now_ms: int, requests: TransactionRequests, request: Request) -> None:
        coordinator = requests.coordinator_for(request)
        node_id = self.nodes.least_loaded(now_ms) if coordinator is None else coordinator.node_id
        if coordinator is not None and coordinator.node_id not in self.cluster.brokers:
            # It joined after the last metadata update; or it left, and another broker has taken over.
            self.metadata.request_update()
            if self.metadata.has_answered(coordinator.first_refresh):
                requests.on_coordinator_gone(now_ms, coordinator.node_id, self.nodes.failure_of(coordinator.node_id))
            return
        if node_id is None:
            return
        if self.nodes.is_ready(node_id, now_ms):
            self.nodes.send(node_id, request, now_ms)
            requests.on_sent(request)
            self._refresh_before_end = None
            return
        self.nodes.prepare(node_id, now_ms)
        if self.nodes.is_throttled(node_id, now_ms):
            # It is still the coordinator. A lookup would use up the quota again, and nothing else would ever be sent.
            requests.trouble = THROTTLED
        elif self.nodes.blocked_until_ms(node_id, now_ms) is not None:
            # Its host is down: perhaps another broker took over.
            requests.on_coordinator_gone(now_ms, node_id, self.nodes.failure_of(node_id))

    def _needs_leaders(self, transaction: Transaction) -> bool:
        """Closing does not abort a transaction while one of its partitions has no leader: brokers from Kafka 4.3 on
        would not end it in that partition (KAFKA-20734). It stays open until it times out or another client ends it."""
        is_aborting = transaction.state is TransactionState.ABORTING and self._batches.is_quiet
        return bool(self._closes) and is_aborting and bool(self._written_partitions)

    @property
    def _written_partitions(self) -> Collection[TopicPartition]:
        return () if self._sequences is None else self._sequences.partitions

    def _refresh_leaders(self, now_ms: int) -> int:
        """The number of the refresh that shows whether the transaction's partitions have leaders."""
        for topic in {topic for topic, _ in self._written_partitions}:
            self.metadata.want_topic(topic, now_ms)  # perhaps it is forgotten: metadata.max.idle.ms
        return self.metadata.request_news()

    def _leave_open(self, topic: str, partition: int) -> None:
        text = f"the transaction was left open: {topic}-{partition} has no leader now"
        self.nodes.log("warning", text)
        self._finish_with(TransactionAborted(text))

    def _ask_producer_id(self, now_ms: int, source: ProducerIdSource) -> None:
        node_id = self.nodes.prepare_any(now_ms)
        if node_id is not None and source.is_due(now_ms):
            self.nodes.send(node_id, source.make_request(), now_ms)

    def _send_batches(self, now_ms: int) -> int | None:
        """Returns when the next back-off of a batch ends."""
        accumulator = self._batches.accumulator
        if accumulator.cluster is not self.metadata.view:
            accumulator.regroup(self.metadata.view)
        node_ids, leaderless, retry_at_ms = accumulator.readiness(now_ms)
        if leaderless:
            for topic in leaderless:
                # It is in use as long as batches wait for it: metadata.max.idle.ms may be shorter than that.
                self.metadata.want_topic(topic, now_ms)
            self.metadata.request_update()
        for node_id in node_ids:
            while self.nodes.is_ready(node_id, now_ms):
                request = self._batches.make_request(now_ms, node_id)
                if request is None:
                    break
                self.nodes.send(node_id, request, now_ms)
                if not accumulator.batch_count:
                    return retry_at_ms
            else:
                if not self.nodes.is_full(node_id, now_ms):
                    self.nodes.prepare(node_id, now_ms)
        return retry_at_ms

    # ---- results ----

    def _finish_flushes_and_closes(self) -> None:
        if self._flushes:
            first = next(iter(self._batches.incomplete), None)
            over = [flush for flush in self._flushes if first is None or first.number > flush[1]]
            self._finished.extend([c.Finished(operation) for operation, _ in over])
            self._flushes = self._flushes[len(over) :]
        if self._closes and self._is_over():
            self._finished.extend(c.Finished(operation) for operation in self._closes)
            self._end = self._end or LocalProtocolError(CLOSED)
            self._closes = []
        if self._end is not None:
            self.nodes.close_all()

    def _is_over(self) -> bool:
        if self._end is not None:
            return True  # every batch has failed; requests in flight no longer matter
        return self._batches.is_quiet and (self._transaction is None or self._transaction.is_settled)

    def _take_step(self, now_ms: int, retry_at_ms: int | None) -> c.Step:
        nodes, batches, transaction = self.nodes, self._batches, self._transaction
        finished, self._finished = self._finished, []
        if transaction is not None and transaction.finished:
            finished += transaction.finished
            transaction.finished = []
        step = c.Step(
            nodes.commands.copy(),
            batches.observations,
            batches.completions,
            finished,
            self._wake_at_ms(now_ms, retry_at_ms),
            batches.accumulator.batch_count,
        )
        nodes.commands.clear()  # the connections append to this list
        batches.observations, batches.completions = [], []
        return step

    def _wake_at_ms(self, now_ms: int, retry_at_ms: int | None) -> int | None:
        if self._end is not None:
            return None
        wake_ms = self.nodes.moments.copy()
        for moment in (
            self.nodes.update_deadline(now_ms),
            self.metadata.next_deadline_ms(now_ms),
            self._batches.next_expiry_ms,
            retry_at_ms,
        ):
            if moment is not None:
                wake_ms.append(moment)
        asking = self._transaction_requests or self._producer_ids
        if asking is not None and asking.retry_at_ms > now_ms:
            wake_ms.append(asking.retry_at_ms)
        return min(wake_ms, default=None)
