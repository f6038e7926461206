"""Sockets of servers in a process that forks: `multiprocessing`, or Spark's daemon.

A child has all descriptors of its parent. A connection that the parent closes stays open as long as the child has it,
and the client waits for ever; the port of a listener stays taken, and accepts connections that nobody serves. So a
child closes them before any code of its own runs. The parent's selector is the same object of the system, too: a child
closes its descriptor and must not change what is registered.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
# Held while a socket comes into being, until its owner knows it: no fork happens in between.
OPENING = threading.RLock()

_OWNERS: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def close_in_children(owner: T, close: Callable[[T], None]) -> None:
    """`close` runs in a child: no other thread is there, and locks are as some thread has left them."""
    _OWNERS[owner] = close


def _after_fork_in_child() -> None:
    OPENING.release()
    for owner, close in list(_OWNERS.items()):
        close(owner)
    _OWNERS.clear()


os.register_at_fork(before=OPENING.acquire, after_in_parent=OPENING.release, after_in_child=_after_fork_in_child)
