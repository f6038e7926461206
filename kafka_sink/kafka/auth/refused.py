"""Credentials that were refused: how long they are not tried again. Others may lock an account after a few tries, and
nobody looks at a process that watches, or renews a token, by itself.

They are tried again at all, after minutes, because what was wrong may be made right on either side.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from kafka_sink.errors import AuthenticationError, KafkaSinkError, copy_error

T = TypeVar("T")
REFUSED_S_MIN, REFUSED_S_MAX = 60.0, 300.0


class RefusedLogin:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._error: KafkaSinkError | None = None
        self._wait_s = self._until_s = 0.0

    def try_once(self, work: Callable[[], T]) -> T:
        """The former error instead of another try too early."""
        if self._error is not None and self.left_s > 0:
            raise copy_error(self._error, str(self._error))
        try:
            done = work()
        except AuthenticationError as error:
            # A copy: an error that is raised keeps the frames alive that it went through, and so whoever has asked.
            self._error = copy_error(error, str(error))
            self._wait_s = min(max(2 * self._wait_s, REFUSED_S_MIN), REFUSED_S_MAX)
            self._until_s = self._now_s() + self._wait_s
            raise
        self._error, self._wait_s = None, 0.0
        return done

    @property
    def left_s(self) -> float:
        return 0.0 if self._error is None else max(0.0, self._until_s - self._now_s())
