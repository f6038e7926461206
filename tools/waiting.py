"""One loop that waits for a result of another process or thread, for tools and tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Long enough for a busy machine. A wait ends as soon as its condition holds, so a long limit costs nothing.
PATIENCE_S = 90.0


def wait_until(
    call: Callable[[], T],
    what: str | Callable[[], str],
    timeout_s: float = PATIENCE_S,
    *,
    passing: tuple[type[Exception], ...] = (),
    poll_s: float = 0.05,
) -> T:
    """Calls `call` until its result is true, and returns the result.

    An error of the kinds `passing` means "not yet"; any other error ends the wait. `what` names the condition in the
    error after a time-out: a text, or a function that returns one with the latest state.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        passed = None
        try:
            found = call()
            if found:
                return found
        except passing as error:
            passed = error
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}") from passed
        time.sleep(poll_s)
