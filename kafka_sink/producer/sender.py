"""The sender thread: the only one that touches the engine and the sockets.

    poll -> close lingering batches -> step -> carry out -> publish -> run callbacks -> finish -> repeat

The loop decides nothing: the engine says what to do and when to be called again. Completions are published under one
hold of the mailbox's lock, callbacks run after its release. Operations finish after that, as in the Java client: when
flush() returns, the callbacks of everything it waited for have run.

The end is the same for a finished graceful close, an abandoned producer and an unexpected error: sockets are closed,
nothing more is accepted, and everything pending fails with the reason. An unexpected exception is never logged and
ignored: the engine's state is undefined after it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from kafka_sink.errors import DeliveryError, KafkaSinkError, LocalProtocolError
from kafka_sink.kafka.client.commands import (
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    NetworkEvent,
    Received,
    RequestObserved,
    Resolve,
    Send,
)
from kafka_sink.kafka.io.network import Network, log_notice
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.appender import Appender
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine import failure
from kafka_sink.producer.engine.engine import Engine
from kafka_sink.producer.engine.failure import CLOSED
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.producer.future import run_callback
from kafka_sink.producer.mailbox import CLOSE, Mailbox, PendingRecords, TopicReport
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.thread_log import log

# Delay before retrying when the appender's lock was taken.
RETRY_MS = 1


class Sender:
    def __init__(
        self,
        options: ProducerOptions,
        engine: Engine,
        network: Network,
        mailbox: Mailbox,
        appender: Appender,
        metrics: ProducerMetrics,
    ) -> None:
        self._engine = engine
        self._network = network
        self._mailbox = mailbox
        self._appender = appender
        self._metrics = metrics
        self._clock = mailbox.clock
        mailbox.queue_loads, mailbox.refused_sizes = engine.queue_loads, engine.refused_sizes
        self._client_id = options.client_id
        self._availability_timeout_ms = options.partitioner_availability_timeout_ms
        self._wake_at_ms: int | None = 0
        self._backlog = 0
        self._connected: set[int] = set()
        # For split batches: how many records are not done yet.
        self._unfinished_splits: dict[ProducerBatch, int] = {}
        # The error for everything pending at the end. Only an end that was asked for may say that nothing was sent.
        self._reason: KafkaSinkError = failure.stopped_error("the reason is not known")
        self._refusal: KafkaSinkError = LocalProtocolError(CLOSED)
        self._is_closed = False
        self._cluster_since_ms = self._clock.monotonic_ms()
        self.on_end: Callable[[], None] = lambda: None
        self.thread = threading.Thread(target=self.run, name=f"kafka-sink-sender | {self._client_id}", daemon=True)

    # ---- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._run()
        finally:
            # Both are stored in place, which needs no memory. Another thread may get the number of this one.
            self._mailbox.sender_ident = None
            self._mailbox.is_sender_gone = True

    def _run(self) -> None:
        self._mailbox.sender_ident = threading.get_ident()
        try:
            while self.turn():
                pass
        except BaseException as error:
            self._reason = self._refusal = _unexpected_error(error)
            text = "the sender of producer %s stops: unexpected error"
            log(logging.CRITICAL, text, self._client_id, exc_info=error)
        finally:
            self._end()

    def turn(self) -> bool:
        """One iteration. False: it was the last."""
        mailbox, network, appender = self._mailbox, self._network, self._appender
        events = network.poll(self._timeout_ms())
        now_ms = self._clock.monotonic_ms()
        self._metrics.on_turn(now_ms, wait_ns=network.wait_ns, io_ns=network.io_ns)
        if events:
            self._observe_events(events)
        if mailbox.broken is not None:
            raise mailbox.broken
        if mailbox.is_orphaned:
            mailbox.is_orphaned = False
            appender.post_behind(c.Close(c.PendingOperation(CLOSE)))
        due_ms = appender.next_due_ms(self._backlog)
        if due_ms is not None and due_ms <= now_ms:
            appender.close_due(now_ms, self._backlog)
        calls = mailbox.take_calls()
        step = self._engine.step(now_ms, events, calls)
        self._wake_at_ms, self._backlog = step.wake_at_ms, step.queued_count
        if step.commands or step.observations:
            self._carry_out(step)
        mailbox.trouble = self._engine.trouble if mailbox.bells else ""
        self._publish(now_ms, step.completions)
        if mailbox.callbacks:
            self._call_back()
        if not calls and not step.finished:
            return True
        return not self._finish(step.finished, calls)

    def _timeout_ms(self) -> int | None:
        due_ms = self._appender.next_due_ms(self._backlog)
        wake_at_ms = self._wake_at_ms
        if due_ms is None and wake_at_ms is None:
            return None
        now_ms = self._clock.monotonic_ms()
        if due_ms is not None:
            lock = self._appender.lock
            if lock.acquire(blocking=False):
                lock.release()
            else:
                due_ms = max(due_ms, now_ms + RETRY_MS)
            wake_at_ms = due_ms if wake_at_ms is None else min(due_ms, wake_at_ms)
        assert wake_at_ms is not None
        return max(0, wake_at_ms - now_ms)

    # ---- carrying out ----------------------------------------------------------------------------------------------

    def _carry_out(self, step: c.Step) -> None:
        nodes = self._engine.nodes
        for command in step.commands:
            if isinstance(command, Send):
                node = nodes.by_connection.get(command.connection_id)
                if node is not None:
                    self._metrics.on_request(node.node_id, request_bytes=sum(map(len, command.buffers)))
                self._network.send(command)
            elif isinstance(command, (Connect, Disconnect, Resolve)):
                if isinstance(command, Disconnect):
                    self._forget_connection(command.connection_id)
                self._network.execute(command)
            elif isinstance(command, RequestObserved):
                self._metrics.on_answer(command)
            else:
                log_notice(log, self._client_id, command)
        for seen in step.observations:
            if isinstance(seen, c.Drained):
                self._metrics.on_drained(seen.batches)
            elif seen.event == "retried":
                self._metrics.on_retried(seen.batch, seen.error_code)
            else:
                self._metrics.on_split()

    def _publish(self, now_ms: int, completions: Sequence[c.Completion]) -> None:
        """Publishes changes, if any."""
        mailbox, engine = self._mailbox, self._engine
        cluster, refusal = engine.cluster, engine.refusal
        is_new_cluster = cluster is not mailbox.cluster
        slow_node_ids = self._slow_node_ids(now_ms) if self._availability_timeout_ms > 0 else mailbox.slow_node_ids
        if not (
            completions
            or is_new_cluster
            or refusal is not mailbox.refusal
            or mailbox.wanted_topics
            or slow_node_ids is not mailbox.slow_node_ids
        ):
            return
        with mailbox.lock:
            for completion in completions:
                if isinstance(completion, c.Delivered):
                    self._deliver(completion)
                else:
                    self._fail(completion)
            if mailbox.wanted_topics or mailbox.topic_reports:
                mailbox.topic_reports = {
                    topic: TopicReport(engine.metadata.topic_error(topic), engine.metadata.topic_trouble(topic))
                    for topic in mailbox.wanted_topics
                }
            if is_new_cluster:
                mailbox.cluster = cluster  # after what it says about topics: whoever sees it reads that
                self._cluster_since_ms = now_ms
            if refusal is not mailbox.refusal:
                mailbox.publish_refusal(refusal)
            mailbox.slow_node_ids = slow_node_ids
            mailbox.notify_change()

    def _finish(self, finished: Sequence[c.Finished], calls: Sequence[c.Call]) -> bool:
        """Finishes operations. True if the producer has ended."""
        mailbox = self._mailbox
        if finished:
            with mailbox.lock:
                for each in finished:
                    mailbox.finish(each.operation, each.error, each.result)
                    self._is_closed = self._is_closed or each.operation.name == CLOSE
                mailbox.notify_change()
        abandoned = [call for call in calls if isinstance(call, c.Abandon)]
        if self._is_closed:
            self._reason = DeliveryError(f"dropped: {CLOSED}. Nothing of it was sent")
        if abandoned:
            self._reason = abandoned[-1].reason
        return self._is_closed or bool(abandoned)

    def _deliver(self, delivered: c.Delivered) -> None:
        mailbox = self._mailbox
        for batch in delivered.batches:
            for share in batch.shares:
                token: PendingRecords = share.token  # type: ignore[assignment]
                token.on_delivered(share, batch, mailbox.callbacks)
                if not token.open_count:
                    mailbox.pending_records.discard(token)
            mailbox.completed_records += batch.record_count
            mailbox.completed_bytes += batch.memory_bytes if batch.split_from is None else self._release(batch)

    def _fail(self, failed: c.Failed) -> None:
        mailbox, batch = self._mailbox, failed.batch
        for share in batch.shares:
            token: PendingRecords = share.token  # type: ignore[assignment]
            token.on_failed(share, failed, mailbox.callbacks)
            if not token.open_count:
                mailbox.pending_records.discard(token)
        self._metrics.on_failed(batch)
        mailbox.completed_records += batch.record_count
        mailbox.completed_bytes += self._release(batch)

    def _release(self, batch: ProducerBatch) -> int:
        """The memory of a batch that was split is released as a whole, when the last of its records is done."""
        if batch.split_from is None:
            return batch.memory_bytes
        root = batch.split_from
        while root.split_from is not None:
            root = root.split_from
        left = self._unfinished_splits.get(root, root.record_count) - batch.record_count
        if left:
            self._unfinished_splits[root] = left
            return 0
        del self._unfinished_splits[root]
        return root.memory_bytes

    def _slow_node_ids(self, now_ms: int) -> frozenset[int]:
        """The same object as long as it says the same: the appender compares it by identity."""
        nodes, limit_ms = self._engine.nodes, self._availability_timeout_ms
        slow = set()
        for node_id in self._engine.cluster.brokers:
            since_ms = nodes.stalled_since_ms(node_id)
            if since_ms is not None and now_ms - since_ms >= limit_ms:
                slow.add(node_id)
        known = self._mailbox.slow_node_ids
        return known if known == slow else frozenset(slow)

    def _call_back(self) -> None:
        mailbox = self._mailbox
        while mailbox.callbacks:
            with mailbox.lock:
                callbacks, mailbox.callbacks = mailbox.callbacks, []
            for callback in callbacks:
                run_callback(callback)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        try:
            self._network.close()
        finally:
            self.tell_end()

    def tell_end(self) -> None:
        """Also for a thread that waits when this one is gone: whatever that had no memory for. Twice does no harm."""
        self._appender.end(self._reason, self._refusal, is_closed=self._is_closed)
        self._call_back()
        self.on_end()

    # ---- metrics ---------------------------------------------------------------------------------------------------

    @property
    def requests_in_flight(self) -> int:
        nodes = self._engine.nodes
        return sum(nodes.in_flight_count(node.node_id) for node in list(nodes.by_connection.values()))

    @property
    def metadata_age_s(self) -> float:
        return (self._clock.monotonic_ms() - self._cluster_since_ms) / 1000

    def _observe_events(self, events: list[NetworkEvent]) -> None:
        for event in events:
            if isinstance(event, Received):
                node = self._engine.nodes.by_connection[event.connection_id]
                self._metrics.on_bytes_in(node.node_id, byte_count=len(event.data))
            elif isinstance(event, Connected):
                self._connected.add(event.connection_id)
                self._metrics.on_connection_opened()
            elif isinstance(event, Disconnected):
                self._forget_connection(event.connection_id)

    def _forget_connection(self, connection_id: int) -> None:
        if connection_id in self._connected:
            self._connected.remove(connection_id)
            self._metrics.on_connection_closed()


def _unexpected_error(error: BaseException) -> KafkaSinkError:
    text = str(error) if isinstance(error, KafkaSinkError) else f"unexpected {type(error).__name__}: {error}"
    stopped = failure.stopped_error(text)
    stopped.__cause__ = error
    return stopped
