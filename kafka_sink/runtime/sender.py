"""The sender thread: the only one that touches the engine and the sockets.

    poll -> close what has lingered -> step -> carry out -> publish -> call back -> finish -> and again

A turn decides nothing: the engine says what to do and when to be called again. Completions are told under the
exchange's lock in one go, callbacks run after it is free. Operations end after that, as in the Java client: when
flush() returns, the callbacks of everything it waited for have run.

The end, whatever brings it (a graceful close that is over, an abandoned producer, an error that should not exist), is
the same: sockets are closed, nothing more is accepted, and everything that still waits gets the reason. An unexpected
exception is never logged and continued: after it nobody knows what the engine's state means.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kafka_sink.engine import commands as c
from kafka_sink.engine.engine import Engine
from kafka_sink.engine.producer_batch import ProducerBatch
from kafka_sink.errors import DeliveryError, KafkaSinkError, LocalProtocolError
from kafka_sink.options import ProducerOptions
from kafka_sink.runtime.appender import Appender
from kafka_sink.runtime.callback import run_callback
from kafka_sink.runtime.exchange import CLOSED, Consignment, Exchange, TopicReport
from kafka_sink.runtime.metrics import DrainedBatch, ProducerMetrics
from kafka_sink.runtime.network import Network, NetworkCommand, NetworkEvent

_LOGGER = logging.getLogger("kafka_sink")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}

# The appender was at work when something was due there.
RETRY_MS = 1


class Sender:
    def __init__(
        self,
        options: ProducerOptions,
        engine: Engine,
        network: Network,
        exchange: Exchange,
        appender: Appender,
        metrics: ProducerMetrics,
    ) -> None:
        self._engine = engine
        self._network = network
        self._exchange = exchange
        self._appender = appender
        self._metrics = metrics
        self._clock = exchange.clock
        self._client_id = options.client_id
        self._availability_timeout_ms = options.partitioner_availability_timeout_ms
        self._wake_at_ms: int | None = 0
        self._backlog = 0
        self._node_ids: dict[int, int] = {}
        self._connected: set[int] = set()
        # Of batches that were split: how many of the records are not done yet.
        self._unfinished_splits: dict[ProducerBatch, int] = {}
        self._completions: list[c.Delivered | c.Failed] = []
        # What those get who still wait at the end.
        self._reason: KafkaSinkError = DeliveryError(f"dropped: {CLOSED}. Nothing of it was sent")
        self._closing: set[int] = set()
        self._cluster_since_ms = self._clock.monotonic_ms()
        self.requests_in_flight = 0
        self.on_end: Callable[[], None] = lambda: None
        self.thread = threading.Thread(target=self.run, name=f"kafka-sink-sender | {self._client_id}", daemon=True)

    # ---- the thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self._exchange.sender_ident = threading.get_ident()
        refusal: KafkaSinkError = LocalProtocolError(CLOSED)
        try:
            while self.turn():
                pass
        except BaseException as error:
            _LOGGER.critical("the sender of producer %s stops: unexpected error", self._client_id, exc_info=error)
            self._reason = refusal = _unexpected(error)
        finally:
            self._end(refusal)

    def turn(self) -> bool:
        """One round. False: it was the last."""
        exchange, clock = self._exchange, self._clock
        events = self._network.poll(self._timeout_ms())
        now_ms = clock.monotonic_ms()
        self._observe_events(events, now_ms)
        if exchange.broken is not None:
            raise exchange.broken
        if exchange.is_orphaned:
            exchange.is_orphaned = False
            self._appender.post_behind("close", c.Close)
        due_ms = self._appender.next_due_ms(self._backlog)
        if due_ms is not None and due_ms <= now_ms:
            self._appender.close_due(now_ms, self._backlog)
        inputs: list[c.Input] = [*events, *exchange.take_inputs()]
        step = self._engine.step(now_ms, inputs)
        self._wake_at_ms = step.wake_at_ms
        finished = self._carry_out(step.commands, now_ms)
        self._publish(now_ms)
        self._call_back()
        is_over = self._finish(finished, inputs)
        self._metrics.on_select(wait_ns=self._network.wait_ns, io_ns=self._network.io_ns, now_ms=now_ms)
        return not is_over

    def _timeout_ms(self) -> int | None:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._appender.next_due_ms(self._backlog)
        if due_ms is not None:
            due_ms = max(due_ms, now_ms + RETRY_MS) if self._appender.lock.locked() else due_ms
        moments = [moment for moment in (self._wake_at_ms, due_ms) if moment is not None]
        return max(0, min(moments) - now_ms) if moments else None

    # ---- carrying out ----------------------------------------------------------------------------------------------

    def _carry_out(self, commands: list[c.Command], now_ms: int) -> list[c.Finished]:
        finished: list[c.Finished] = []
        drained: list[DrainedBatch] = []
        for command in commands:
            if isinstance(command, (c.Delivered, c.Failed)):
                self._completions.append(command)
            elif isinstance(command, c.Finished):
                finished.append(command)
            elif isinstance(command, (c.Send, c.Connect, c.Disconnect, c.Resolve)):
                self._observe_network_command(command, now_ms)
                self._network.execute(command)
            elif isinstance(command, c.BatchObserved):
                self._observe_batch(command, drained, now_ms)
            elif isinstance(command, c.RequestObserved):
                self._metrics.on_answer(
                    command.node_id,
                    api_key=command.api_key,
                    latency_ms=command.latency_ms,
                    throttle_ms=command.throttle_ms,
                    now_ms=now_ms,
                )
            else:
                _LOGGER.log(_LEVELS[command.level], "[%s] %s", self._client_id, command.text)
        if drained:
            self._metrics.on_drained(drained, now_ms=now_ms)
        return finished

    def _publish(self, now_ms: int) -> None:
        """Tells everybody what changed."""
        exchange, engine = self._exchange, self._engine
        completions, self._completions = self._completions, []
        with exchange.changed:
            for completion in completions:
                self._complete(completion, now_ms)
            if engine.cluster is not exchange.cluster:
                exchange.cluster = engine.cluster
                self._cluster_since_ms = now_ms
            exchange.publish_refusal(engine.refusal)
            exchange.topic_reports = {
                topic: TopicReport(engine.topic_error(topic), engine.topic_trouble(topic))
                for topic in exchange.wanted_topics
            }
            exchange.queue_loads = engine.queue_loads()
            if self._availability_timeout_ms > 0:
                exchange.slow_node_ids = self._slow_node_ids(now_ms)
            exchange.tell_change()
        self._backlog = sum(sum(of_topic.values()) for of_topic in exchange.queue_loads.values())
        self.requests_in_flight = sum(engine.nodes.in_flight_count(node_id) for node_id in self._node_ids.values())

    def _finish(self, finished: list[c.Finished], inputs: list[c.Input]) -> bool:
        """Ends operations. True when the producer is at its end, too."""
        exchange = self._exchange
        is_over = False
        for event in inputs:
            if isinstance(event, c.Close):
                self._closing.add(event.operation_id)
            elif isinstance(event, c.Abandon):
                self._reason = event.reason
                is_over = True
        if finished:
            with exchange.changed:
                for each in finished:
                    exchange.finish(each.operation_id, each.error, each.result)
                    is_over = is_over or each.operation_id in self._closing
                exchange.tell_change()
        return is_over

    def _complete(self, completion: c.Delivered | c.Failed, now_ms: int) -> None:
        exchange, batch = self._exchange, completion.batch
        for share in batch.shares:
            token: Consignment = share.token  # type: ignore[assignment]
            if isinstance(completion, c.Delivered):
                token.on_delivered(share, completion, exchange.calls)
            else:
                token.on_failed(share, completion, exchange.calls)
            if not token.open_count:
                exchange.consignments.discard(token)
        if isinstance(completion, c.Failed):
            self._metrics.on_failed(batch.topic, records=batch.record_count, now_ms=now_ms)
        exchange.completed_records += batch.record_count
        exchange.completed_bytes += self._given_back(batch)

    def _given_back(self, batch: ProducerBatch) -> int:
        """The room of a batch that was split is given back when the last of its records is done."""
        if batch.split_from is None:
            return batch.encoded.size
        root = batch.split_from
        while root.split_from is not None:
            root = root.split_from
        left = self._unfinished_splits.get(root, root.record_count) - batch.record_count
        if left:
            self._unfinished_splits[root] = left
            return 0
        del self._unfinished_splits[root]
        return root.encoded.size

    def _slow_node_ids(self, now_ms: int) -> frozenset[int]:
        """The same object as long as it says the same: the appender compares it by identity."""
        nodes, limit_ms = self._engine.nodes, self._availability_timeout_ms
        slow = set()
        for node_id in self._engine.cluster.brokers:
            since_ms = nodes.is_unavailable_since_ms(node_id)
            if since_ms is not None and now_ms - since_ms >= limit_ms:
                slow.add(node_id)
        known = self._exchange.slow_node_ids
        return known if known == slow else frozenset(slow)

    def _call_back(self) -> None:
        exchange = self._exchange
        while exchange.calls:
            with exchange.changed:
                calls, exchange.calls = exchange.calls, []
            for call in calls:
                run_callback(call)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _end(self, refusal: KafkaSinkError) -> None:
        self._network.close()
        self._appender.end(self._reason, refusal)
        self._call_back()
        self.on_end()

    # ---- metrics ---------------------------------------------------------------------------------------------------

    @property
    def metadata_age_s(self) -> float:
        return (self._clock.monotonic_ms() - self._cluster_since_ms) / 1000

    def _observe_events(self, events: list[NetworkEvent], now_ms: int) -> None:
        for event in events:
            if isinstance(event, c.Received):
                node_id = self._node_ids[event.connection_id]
                self._metrics.on_bytes_in(node_id, byte_count=len(event.data), now_ms=now_ms)
            elif isinstance(event, c.Connected):
                self._connected.add(event.connection_id)
                self._metrics.on_connection_opened(now_ms=now_ms)
            elif isinstance(event, c.Disconnected):
                self._forget_connection(event.connection_id, now_ms)

    def _observe_network_command(self, command: NetworkCommand, now_ms: int) -> None:
        if isinstance(command, c.Send):
            request_bytes = sum(len(buffer) for buffer in command.buffers)
            node_id = self._node_ids.get(command.connection_id)
            if node_id is not None:
                self._metrics.on_request(node_id, request_bytes=request_bytes, now_ms=now_ms)
        elif isinstance(command, c.Connect):
            self._node_ids[command.connection_id] = command.node_id
        elif isinstance(command, c.Disconnect):
            self._forget_connection(command.connection_id, now_ms)

    def _forget_connection(self, connection_id: int, now_ms: int) -> None:
        self._node_ids.pop(connection_id, None)
        if connection_id in self._connected:
            self._connected.remove(connection_id)
            self._metrics.on_connection_closed(now_ms=now_ms)

    def _observe_batch(self, command: c.BatchObserved, drained: list[DrainedBatch], now_ms: int) -> None:
        batch, encoded = command.batch, command.batch.encoded
        if command.event == "drained":
            drained.append(
                DrainedBatch(batch.topic, encoded.record_count, encoded.size, encoded.records_bytes, command.queue_ms)
            )
        elif command.event == "retried":
            self._metrics.on_retried(batch.topic, records=batch.record_count, now_ms=now_ms)
        else:
            self._metrics.on_split(now_ms=now_ms)


def _unexpected(error: BaseException) -> KafkaSinkError:
    text = str(error) if isinstance(error, KafkaSinkError) else f"unexpected {type(error).__name__}: {error}"
    text = f"the producer stopped: {text}. What was not acknowledged may be in the log all the same"
    failure = DeliveryError(text, ambiguous=True)
    failure.__cause__ = error
    return failure
