"""One loop that waits for a result of another process or thread, for tools and tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# For a machine that has a lot else to do: whoever waits goes on as soon as it can, so a long patience costs nothing.
PATIENCE_S = 90.0


def wait_until(
    call: Callable[[], T],
    what: str | Callable[[], str],
    timeout_s: float = PATIENCE_S,
    *,
    passing: tuple[type[Exception], ...] = (),
    poll_s: float = 0.05,
) -> T:
    """What `call` returns, once that counts as true.

    An error of the kinds `passing` means "not yet"; any other one ends the wait. `what` is said if time runs out: a
    text, or a function for one that holds what is known by then.
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
