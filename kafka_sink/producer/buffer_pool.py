"""buffer.memory and the limit of records: what is free, and the queue of threads that wait for memory.

Memory is held by collected rows, open batches, and closed batches that are not done. The appender takes and returns it
under its lock; batches completed by the sender are credited when memory is needed, so a stale value is never too high.
Nothing is reserved for a waiting thread, so nothing leaks if it gives up.
"""

from __future__ import annotations

import threading
from collections import deque

from kafka_sink.errors import BufferExhausted
from kafka_sink.options import ProducerOptions
from kafka_sink.options.producer_options import LONG_MAX
from kafka_sink.producer.mailbox import Mailbox
from kafka_sink.producer.metrics import ProducerMetrics


class BufferPool:
    def __init__(self, options: ProducerOptions, mailbox: Mailbox, metrics: ProducerMetrics) -> None:
        self.mailbox = mailbox
        self.metrics = metrics
        self.max_block_ms = options.max_block_ms
        self.total_bytes = self.free_bytes = options.buffer_memory
        # 0 means unlimited.
        self.total_records = self.free_records = options.queue_buffering_max_messages or LONG_MAX
        # Threads that wait for memory, in order of arrival. They come and go under the lock of the mailbox, whose
        # changes wake them.
        self.waiters: deque[BufferWaiter] = deque()
        self._credited_bytes = 0
        self._credited_records = 0

    @property
    def used_bytes(self) -> int:
        return self.total_bytes - self.free_bytes - (self.mailbox.completed_bytes - self._credited_bytes)

    @property
    def used_records(self) -> int:
        return self.total_records - self.free_records - (self.mailbox.completed_records - self._credited_records)

    def give(self, byte_count: int, record_count: int) -> None:
        """Negative numbers take memory."""
        self.free_bytes += byte_count
        self.free_records += record_count

    def has_room(self, byte_count: int, record_count: int, waiter: BufferWaiter) -> bool:
        """First come, first served: a large request would starve if small ones could overtake it. But a signal handler
        that sends does not wait for the call that it has interrupted. `credit` first."""
        waiters = self.waiters
        if waiters and waiters[0].thread_ident != waiter.thread_ident:
            return False
        return byte_count <= self.free_bytes and record_count <= self.free_records

    def credit(self) -> None:
        """Takes back the memory of batches that were done since the last time."""
        completed_bytes, completed_records = self.mailbox.completed_bytes, self.mailbox.completed_records
        self.give(completed_bytes - self._credited_bytes, completed_records - self._credited_records)
        self._credited_bytes, self._credited_records = completed_bytes, completed_records

    def exhausted_error(self, byte_count: int, record_count: int) -> BufferExhausted:
        mailbox = self.mailbox
        limit = f"within max.block.ms={self.max_block_ms}"
        if mailbox.is_sender_thread:
            limit = "(a delivery callback cannot wait for it)"
        held = f"{self.used_bytes} of buffer.memory={self.total_bytes} bytes"
        if self.total_records != LONG_MAX:
            held += f" and {self.used_records} of queue.buffering.max.messages={self.total_records} records"
        text = (
            f"no room for {record_count} records of {byte_count} bytes {limit}: {held} are held by records that wait "
            "for brokers. What was to be sent was not accepted; what was accepted before is still being sent"
        )
        return BufferExhausted(mailbox.with_trouble(text))


class BufferWaiter:
    """One thread that may have to wait for memory: queued at its first wait. Whoever makes it calls `leave` at the
    end."""

    def __init__(self, pool: BufferPool, waited_ms: int = 0) -> None:
        self._pool = pool
        self._waited_ms = waited_ms
        self.thread_ident = threading.get_ident()
        self._deadline_ms: int | None = None
        self._started_ns = 0

    def wait(self, seen_change_count: int) -> bool:
        """Waits for any change since. False if max.block.ms has passed."""
        pool, mailbox = self._pool, self._pool.mailbox
        clock = mailbox.clock
        if self._deadline_ms is None:
            self._deadline_ms = clock.monotonic_ms() + pool.max_block_ms - self._waited_ms
            self._started_ns = clock.monotonic_ns()
            with mailbox.lock:
                pool.waiters.append(self)
        if mailbox.is_sender_thread or pool.max_block_ms == 0:
            return False
        return mailbox.wait_for(
            lambda: mailbox.change_count != seen_change_count, self._deadline_ms, "waiting for room"
        )

    def leave(self) -> None:
        """It is out of the queue."""
        if self._deadline_ms is None:
            return
        mailbox, metrics = self._pool.mailbox, self._pool.metrics
        with mailbox.lock:
            # There may be room for the next thread, too.
            mailbox.notify_change()
        clock = mailbox.clock
        metrics.on_buffer_wait(wait_ns=clock.monotonic_ns() - self._started_ns, now_ms=clock.monotonic_ms())
