"""Values of one process: a forked child begins with new ones.

A child inherits its parent's memory: connections that belong to the parent, and locks as they were at that moment. One
that another thread of the parent held stays held for ever, because the child has no such thread. So whatever contains
connections or a lock is renewed in the child before any code of its own runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """For the lifetime of a module: it is never forgotten."""

    def __init__(self, make: Callable[[], T]) -> None:
        self.make = make
        self.value = make()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.value = self.make()
