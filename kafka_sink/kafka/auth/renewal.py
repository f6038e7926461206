"""Credentials that expire and are renewed in time: access tokens, AWS credentials.

The first one is fetched when the producer or client is created, as in the Java client, so that a wrong secret fails
there. Later ones are fetched by a timer before the current one expires: a Kafka session may end with its token, so
reauthentication needs a new one by then. It blocks only if the current one has expired. What is refused is asked for
again after minutes (refused.py), not with the options' short waits.

What does not tell its end is fetched again where it is needed, for each new connection or session: it may have ended,
and only the broker knows. Those that are opened at the same moment share one.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

from kafka_sink.errors import KafkaSinkError, TransportError
from kafka_sink.kafka.auth.refused import RefusedLogin
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options import SecurityOptions

T = TypeVar("T")
_LOGGER = logging.getLogger("kafka_sink")
# Lower limits of the waits, whatever lifetime a token has and whatever the options are.
RENEWAL_S_MIN, RETRY_S_MIN = 1.0, 0.1
# A token with a longer lifetime is renewed after this time. Lock waits need a limit.
WAIT_S_MAX = 7 * 24 * 3600.0


class Renewed(Generic[T]):
    """`get` blocks and returns a new one, or raises; `end_s_of` returns its expiry, None: unknown.

    `shared_s`: for how long one of unknown expiry is used. 0: it is fetched each time.
    """

    def __init__(
        self,
        get: Callable[[], T],
        end_s_of: Callable[[T], float | None],
        options: SecurityOptions,
        *,
        what: str,
        shared_s: float,
    ) -> None:
        refused = self._refused = RefusedLogin()
        self._get: Callable[[], T] = lambda: refused.try_once(get)
        self._end_s_of = end_s_of
        self._options = options
        self._what = what
        self._shared_s = shared_s
        self._lock = threading.Lock()
        # Threads that need another at the same moment fetch one.
        self._fetching = threading.Lock()
        self._failures = 0
        self._timer: threading.Timer | None = None
        self._store(self._get_first())

    def __del__(self) -> None:
        timer = getattr(self, "_timer", None)
        if timer is not None:
            timer.cancel()

    def _get_first(self) -> T:
        """A failing endpoint is retried for as long as the longest wait between two tries."""
        wait_s, longest_s = (
            each / 1000
            for each in (self._options.sasl_login_retry_backoff_ms, self._options.sasl_login_retry_backoff_max_ms)
        )
        wait_s, given_up_s = max(wait_s, RETRY_S_MIN), time.monotonic() + longest_s
        while True:
            try:
                return self._get()
            except TransportError:
                if time.monotonic() + wait_s >= given_up_s:
                    raise
            time.sleep(wait_s)
            wait_s *= 2

    def current(self) -> T:
        with self._lock:
            value, end_s = self._value, self._end_s
        if end_s is None:
            return self._shared()
        if time.time() >= end_s:
            # The timer failed repeatedly, its host was suspended, or it was lost in a fork.
            self._store(self._get())
            return self._value
        return value

    def _shared(self) -> T:
        with self._fetching:
            with self._lock:
                value, fetched_s = self._value, self._fetched_s
            if time.monotonic() - fetched_s < self._shared_s:
                return value
            try:
                self._store(self._get())
            except KafkaSinkError as error:
                self._warn(str(error))
                with self._lock:
                    self._fetched_s = time.monotonic()
            return self._value

    def on_renewed(self, value: T | None, trouble: str) -> None:
        """Called by the timer; None: the renewal failed."""
        if value is not None:
            self._store(value)
            return
        self._warn(trouble)
        self._failures += 1
        grown_ms = self._options.sasl_login_retry_backoff_ms << min(self._failures - 1, 20)
        wait_s = min(grown_ms, self._options.sasl_login_retry_backoff_max_ms) / 1000
        self._set_timer(max(wait_s, self._refused.left_s, RETRY_S_MIN))

    def _warn(self, trouble: str) -> None:
        _LOGGER.warning("no new %s, the current one is still used: %s", self._what, trouble)

    def _store(self, value: T) -> None:
        now_s, end_s = time.time(), self._end_s_of(value)
        with self._lock:
            self._value, self._end_s, self._fetched_s = value, end_s, time.monotonic()
            self._failures = 0
        if end_s is not None and end_s > now_s:
            self._set_timer(max(renewal_wait_s(self._options, end_s - now_s, random.random()), RENEWAL_S_MIN))

    def _set_timer(self, wait_s: float) -> None:
        # It must not keep an unused object alive.
        timer = threading.Timer(min(wait_s, WAIT_S_MAX), _renew, (weakref.ref(self), self._get))
        timer.daemon = True
        timer.name = "kafka-sink-token"
        with self._lock:
            former, self._timer = self._timer, timer
        if former is not None:
            former.cancel()
        try:
            timer.start()
        except RuntimeError:
            # No room for one more thread. What was fetched is good all the same, and `current` does without the timer.
            warn_once(f"no thread could be started to renew the {self._what}: a new one is fetched when it has expired")


def renewal_wait_s(options: SecurityOptions, life_s: float, dice: float) -> float:
    """When to get the next token, as the Java client chooses it.

    After a share of its lifetime, but not in the last seconds of it, and not within a minimum period; if the lifetime
    is too short for both, only the share counts.
    """
    jitter = dice * options.sasl_login_refresh_window_jitter
    wanted_s = life_s * min(1.0, options.sasl_login_refresh_window_factor + jitter)
    least_s, buffer_s = options.sasl_login_refresh_min_period_seconds, options.sasl_login_refresh_buffer_seconds
    if least_s + buffer_s >= life_s:
        return wanted_s
    return min(max(wanted_s, least_s), life_s - buffer_s)


def _renew(source: weakref.ref[Renewed[T]], get: Callable[[], T]) -> None:
    # Three functions, because an exception keeps the locals of its frames alive, sometimes forever. None of these
    # frames may reference the source, or one with a failing endpoint would keep retrying after its producer is gone.
    _notify(source, *_try_get(get))


def _try_get(get: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return get(), ""
    except Exception as error:
        return None, str(error) if isinstance(error, KafkaSinkError) else type(error).__name__


def _notify(source: weakref.ref[Renewed[T]], value: T | None, trouble: str) -> None:
    renewed = source()
    if renewed is not None:
        renewed.on_renewed(value, trouble)
