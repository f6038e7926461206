"""Calls, and threads, that run side by side within one time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from typing import TypeVar

from kafka_sink.errors import OutOfMemory

T = TypeVar("T")


def call_side_by_side(calls: Sequence[Callable[[], T]], limit_s: float) -> list[T | Exception | None]:
    """What each returned or raised, or that no thread could be started for it; None if it has not ended in time. The
    thread of a late one is abandoned: lookups of names have no time limit, and a timeout of a read does not help if the
    peer sends a byte at a time."""
    found: list[T | Exception | None] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            found[number] = calls[number]()
        except Exception as error:
            found[number] = error

    # The program does not wait for daemons.
    threads = [Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    started = []
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError as error:
            found[number] = OutOfMemory(f"this process cannot start a thread: {error}")
        else:
            started.append(thread)
    join_all(started, limit_s)
    return list(found)


def join_all(threads: Iterable[Thread], limit_s: float) -> None:
    """Waits no longer than this for all of them together."""
    deadline_s = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
