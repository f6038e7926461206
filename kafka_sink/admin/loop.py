"""The shell of `AdminEngine`: blocking questions to a cluster, without a thread.

Every call polls, steps the pure machine and carries out its commands until it has what it wants. Nothing is connected
before the first call. One thread at a time.

Whatever goes wrong inside a call other than the answer itself (Ctrl-C, an error that should not exist) drops all
connections before it is passed on: the next call starts afresh, and no reply can be taken for another's. A forked
child starts afresh as well; the sockets are the parent's.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.auth.secured import authenticator, tls_contexts
from kafka_sink.client.admin_engine import AdminEngine
from kafka_sink.client.admin_request import VERSION_MAX, AdminRequest, AdminResponse, ResponseKind, Target
from kafka_sink.client.backoff import Backoff
from kafka_sink.client.commands import Connect, Disconnect, NetworkCommand, Notice, Resolve, Send
from kafka_sink.errors import LocalProtocolError
from kafka_sink.io.clock import Clock
from kafka_sink.io.error_copy import copy_error
from kafka_sink.io.network import Network
from kafka_sink.options import ProducerOptions
from kafka_sink.wire.apis import Api

_LOGGER = logging.getLogger("kafka_sink")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
# Order does not matter between questions, so a connection may carry as many as one wants to lose with it.
PIPELINED_MAX = 100
# Longer waits are cut into pieces: a signal that comes a moment before the thread goes to sleep does not wake it, and
# Ctrl-C would be noticed at the end of the wait only.
WAIT_MS_MAX = 1_000

_client_numbers = itertools.count(1)


class AdminLoop:
    def __init__(self, options: ProducerOptions, *, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self.options = replace(
            options,
            client_id=options.client_id or f"client-{next(_client_numbers)}",
            max_in_flight_requests_per_connection=PIPELINED_MAX,
            # A leader is looked for without creating its topic.
            allow_auto_create_topics=False,
        )
        self.creates_topics = options.allow_auto_create_topics
        self._backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, random.random)
        self._network: Network | None = None
        self._asking: AdminEngine | None = None
        self._wake_at_ms: int | None = 0
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._network is not None else "not connected"
        return f"<{type(self).__name__} {self.options.client_id} {state}>"

    def close(self) -> None:
        """At once. What is under way may be carried out all the same. Safe to call twice."""
        self._is_closed = True
        self._drop()

    def now_ms(self) -> int:
        """The clock of everything here, and of machines that are stepped here."""
        return self._clock.monotonic_ms()

    # ---- asking ----------------------------------------------------------------------------------------------------

    def ask(
        self, target: Target, api: Api, body: Mapping[str, Any], *, timeout_ms: int | None = None, **more: Any
    ) -> Mapping[str, Any]:
        """The answer of one broker, as `ask_all`."""
        return self.ask_all(target, api, body, timeout_ms=timeout_ms, **more)[0]

    def ask_all(
        self,
        target: Target,
        api: Api,
        body: Mapping[str, Any],
        *,
        timeout_ms: int | None = None,
        version_min: int = 0,
        version_max: int = VERSION_MAX,
        find_again: bool = False,
        changes_nothing: bool = False,
    ) -> tuple[Mapping[str, Any], ...]:
        """The answers of all brokers that the target stands for; error codes in them are the caller's to read.

        While the question has not left it is tried again within the time (`request.timeout.ms` by default). Once it
        may have arrived a failure is raised, unless it `changes_nothing` there; and so is one that trying again does
        not mend.
        """
        self._start_afresh_if_refused()
        limit_ms = self.options.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.now_ms() + limit_ms
        attempt = 0
        while True:
            attempt += 1
            left_ms = max(0, deadline_ms - self.now_ms())
            question = AdminRequest(target, api, body, left_ms, version_min, version_max, find_again or attempt > 1)
            (reply,) = self._replies((question,))
            if reply.error is None:
                return reply.bodies
            retry_at_ms = self.now_ms() + self._backoff.delay_ms(attempt)
            is_final = reply.ending is not ResponseKind.LOST or (reply.was_sent and not changes_nothing)
            if is_final or retry_at_ms >= deadline_ms:
                raise reply.error
            self._wait_until(lambda: False, retry_at_ms)

    # ---- turning ---------------------------------------------------------------------------------------------------

    def _replies(self, questions: Sequence[AdminRequest], until_ms: int | None = None) -> list[AdminResponse]:
        """Sends the questions and turns until there are replies, to them or to earlier ones, or until that moment."""
        replies = self._turn(questions, 0)
        while not replies and (until_ms is None or self.now_ms() < until_ms):
            replies = self._turn((), until_ms)
        return replies

    def _wait_until(self, is_true: Callable[[], bool], deadline_ms: int) -> bool:
        """Turns until it is true or time is over. What is known of the cluster changes meanwhile."""
        self._wake_at_ms = 0  # a wish may just have been left there
        while not is_true():
            if self.now_ms() >= deadline_ms:
                return False
            self._turn((), deadline_ms)
            refusal = self._opened()[1].nodes.refusal
            if refusal is not None:
                raise copy_error(refusal)
        return True

    def _turn(self, questions: Sequence[AdminRequest], until_ms: int | None) -> list[AdminResponse]:
        """One poll and one step."""
        network, asking = self._opened()
        try:
            now_ms = self.now_ms()
            moments = (self._wake_at_ms, until_ms, now_ms + WAIT_MS_MAX)
            events = network.poll(max(0, min(moment for moment in moments if moment is not None) - now_ms))
            step = asking.step(self.now_ms(), events, questions)
            self._wake_at_ms = step.wake_at_ms
            for command in step.commands:
                self._carry_out(network, command)
            return step.replies
        except BaseException:
            self._drop()
            raise

    def _carry_out(self, network: Network, command: NetworkCommand) -> None:
        if isinstance(command, (Send, Connect, Disconnect, Resolve)):
            network.execute(command)
        elif isinstance(command, Notice):
            _LOGGER.log(_LEVELS[command.level], "[%s] %s", self.options.client_id, command.text)

    def _opened(self) -> tuple[Network, AdminEngine]:
        if self._is_closed:
            raise LocalProtocolError("the client is closed")
        if self._network is None or self._asking is None:
            options = self.options
            tls = tls_contexts(options)
            self._asking = AdminEngine(options, jitter=random.random, authenticator=authenticator(options))
            self._wake_at_ms = 0
            _open.add(self)
            self._network = Network(
                self._clock,
                send_buffer_bytes=options.send_buffer_bytes,
                receive_buffer_bytes=options.receive_buffer_bytes,
                tls=tls,
            )
        return self._network, self._asking

    def _start_afresh_if_refused(self) -> None:
        """For the beginning of a call. Within one, nobody is asked again who has refused, or was refused by us."""
        if self._asking is not None and self._asking.nodes.refusal is not None:
            self._drop()

    def _drop(self) -> None:
        network, self._network, self._asking = self._network, None, None
        _open.discard(self)
        if network is not None:
            network.close()

    def after_fork_in_child(self) -> None:
        network, self._network, self._asking = self._network, None, None
        if network is not None:
            network.close_descriptors()


_open: weakref.WeakSet[AdminLoop] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for asker in list(_open):
        asker.after_fork_in_child()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
