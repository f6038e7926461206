"""Builds one producer from its parts; handles fork and exit.

The core has no reference to its `Producer`. So an unreferenced producer is garbage-collected although its thread still
runs, and then tells the thread to finish.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import random
import threading
from contextlib import suppress
from dataclasses import replace

from kafka_sink.errors import DeliveryError, printable_text
from kafka_sink.kafka.auth.secured import authenticator, tls_contexts
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.kafka.io.network import Network
from kafka_sink.kafka.io.side_by_side import join_all
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.appender import Appender
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.engine import Engine
from kafka_sink.producer.engine.failure import is_commit_unknown
from kafka_sink.producer.interceptors import Interceptors
from kafka_sink.producer.mailbox import Mailbox
from kafka_sink.producer.metrics import ProducerMetrics
from kafka_sink.producer.sender import Sender
from kafka_sink.producer.thread_log import log

_LOGGER = logging.getLogger("kafka_sink")
# When told to stop at once, a thread only finishes its current iteration.
STOP_S = 5.0

_client_numbers = itertools.count(1)
# Cores whose thread runs, even if their producer is unreferenced.
_alive: set[Core] = set()


class Core:
    def __init__(self, options: ProducerOptions) -> None:
        if not options.client_id:
            options = replace(options, client_id=f"producer-{options.transactional_id or next(_client_numbers)}")
        self.options = options
        clock = Clock()
        self.network = Network(clock, options, tls_contexts(options))
        try:
            self._put_together(clock)
            _alive.add(self)
            self.sender.thread.start()
        except BaseException:
            if self in _alive and self.sender.thread.ident is not None:
                self.abandon("its constructor was interrupted")  # its thread runs already, and closes what it uses
            else:
                _alive.discard(self)
                self.network.close()
            raise

    def _put_together(self, clock: Clock) -> None:
        options = self.options
        jitter = random.Random().random
        self.metrics = ProducerMetrics(options)
        self.mailbox = Mailbox(clock, self.network.wake)
        self.interceptors = Interceptors(options.interceptors) if options.interceptors else None
        self.appender = Appender(
            options, self.mailbox, self.metrics, random_number=jitter, interceptors=self.interceptors
        )
        self.mailbox.locks += (self.appender.lock, self.metrics.lock, self.network.wake_lock)
        engine = Engine(options, jitter=jitter, authenticator=authenticator(options))
        # Before the sender's first iteration others see the engine's initial state.
        self.mailbox.refusal = engine.refusal
        self.sender = Sender(options, engine, self.network, self.mailbox, self.appender, self.metrics)
        pool, network, sender = self.appender.buffer_pool, self.network, self.sender
        self.metrics.gauges = {
            "buffer-total-bytes": lambda: pool.total_bytes,
            "buffer-available-bytes": lambda: pool.total_bytes - pool.used_bytes,
            "waiting-threads": lambda: len(pool.waiters),
            "requests-in-flight": lambda: sender.requests_in_flight,
            "connection-count": lambda: network.connection_count,
            "metadata-age": lambda: sender.metadata_age_s,  # in seconds, as in Java
        }
        for notice in options.notices:
            _LOGGER.warning("[%s] %s", printable_text(options.client_id), notice)
        sender.on_end = self._on_end
        self.mailbox.end_for_sender = sender.tell_end

    def _on_end(self) -> None:
        with suppress(KeyError):
            _alive.remove(self)  # at the first time only
            if self.interceptors is not None:
                self.interceptors.close()

    def abandon(self, text: str) -> None:
        """Stops at once: everything unfinished fails."""
        self.mailbox.post(c.Abandon(DeliveryError(f"dropped: {text}", ambiguous=True)))
        self.mailbox.wake()
        self.mailbox.is_abandoned = True

    def join(self) -> None:
        if threading.get_ident() != self.mailbox.sender_ident:
            self.sender.thread.join(STOP_S)

    def close_orphaned(self) -> None:
        """Called by the garbage collector, which may have interrupted any code: must not take a lock of this
        package."""
        self.mailbox.is_orphaned = True
        self.network.wake()

    def after_fork_in_child(self) -> None:
        self.network.close_descriptors()
        self.mailbox.after_fork_in_child()
        self.appender.lock = threading.RLock()
        self.metrics.lock = threading.RLock()


def _after_fork_in_child() -> None:
    for core in list(_alive):
        core.after_fork_in_child()
    _alive.clear()


def _at_exit() -> None:
    """The interpreter ends, and with it every daemon thread: the last chance to warn."""
    open_commits: list[tuple[str, c.PendingOperation]] = []
    unclosed = [core for core in list(_alive) if not core.mailbox.is_ended]
    for core in unclosed:
        name, unsent = printable_text(core.options.client_id), core.appender.buffer_pool.used_records
        if unsent:
            text = "producer %s was not closed before the end of the program: %d records are lost or in doubt"
            log(logging.WARNING, text, name, unsent)
        open_commits += [(name, commit) for commit in core.mailbox.open_commits]
        core.abandon("the program ended without closing the producer")
    join_all([core.sender.thread for core in unclosed], STOP_S)
    for name, commit in open_commits:
        if is_commit_unknown(commit):
            text = "producer %s: %s did not end: %s"
            log(logging.WARNING, text, name, commit.name, commit.error or "no answer")


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
