"""Producers that outlive the task that used them. One pool per process: a Spark worker process runs task after task.

Connections and cluster metadata are kept. The state of the last task is not: a borrowed producer has started over, with
its own producer id. Only an idle producer may be returned; its borrower closes one that failed in any way. A producer
has one borrower at a time, since a worker runs one task at a time.

There is no thread to evict the idle ones. Their connections close by themselves after connections.max.idle.ms, and
producers idle for that long are closed when the next one is borrowed or given back.

After a fork the child drops them all: sockets and threads belong to the parent.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, replace

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.options import ProducerOptions
from kafka_sink.options.producer_options import SINK_CLIENT_ID
from kafka_sink.producer.producer import Producer

# For all configurations together: a worker runs tasks of each sink of its application. A job with a new configuration
# for every batch must not accumulate threads.
IDLE_PRODUCERS_MAX = 16


@dataclass(frozen=True, slots=True)
class _Idle:
    options: ProducerOptions
    producer: Producer
    since_s: float


class ProducerPool:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []  # longest idle first

    def borrow(
        self,
        options: ProducerOptions,
        transactional_id: str | None = None,
        expected: ProducerIdentity | None = None,
    ) -> tuple[Producer, bool]:
        """A new producer, with the connections of an idle one of the same options if there is one; and whether it has
        begun a transaction with the expected identity (`Producer.start_over`)."""
        self._close_idle_too_long()
        while (producer := self._take(options)) is not None:
            try:
                return producer, producer.start_over(transactional_id, expected)
            except KafkaSinkError:
                producer.close(0)  # it failed while idle
        # Its client id must not be that of its first task.
        client_id = options.client_id or SINK_CLIENT_ID
        return Producer(replace(options, transactional_id=transactional_id, client_id=client_id)), False

    def give_back(self, options: ProducerOptions, producer: Producer) -> None:
        """Only if each record has its outcome and no transaction is open; `options` as passed to `borrow`."""
        with self._lock:
            self._idle.append(_Idle(options, producer, time.monotonic()))
            superfluous = self._idle[:-IDLE_PRODUCERS_MAX]
            del self._idle[:-IDLE_PRODUCERS_MAX]
        for each in superfluous:
            each.producer.close(0)
        self._close_idle_too_long()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.producer.close(0)

    def _take(self, options: ProducerOptions) -> Producer | None:
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if self._idle[index].options == options:
                    return self._idle.pop(index).producer
        return None

    def _close_idle_too_long(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            overdue = [each for each in self._idle if _idle_limit_s(each.options) < now_s - each.since_s]
            self._idle = [each for each in self._idle if each not in overdue]
        for each in overdue:
            each.producer.close(0)


def _idle_limit_s(options: ProducerOptions) -> float:
    limit_ms = options.connections_max_idle_ms
    return float("inf") if limit_ms < 0 else limit_ms / 1000


# The one pool of this process.
POOL = ProducerPool()


def _after_fork_in_child() -> None:
    POOL._lock = threading.Lock()
    POOL._idle = []


os.register_at_fork(after_in_child=_after_fork_in_child)
