"""What threads take away, use alone, and put back.

Nothing on the shelf is in use, and what is in use is nowhere else: two threads never have the same thing, and one that
an exception interrupts takes what it had with it. A thread that finds nothing makes its own. The lock is held for no
longer than the dictionary is changed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ThingT = TypeVar("ThingT")


class Shelf(Generic[KeyT, ThingT]):
    """`size_of`: of a thing that lies on the shelf. All together have at most `size_max`, unless one alone has more."""

    def __init__(
        self, kept_max: int, size_max: float = math.inf, size_of: Callable[[ThingT], int] = lambda _: 0
    ) -> None:
        self._kept_max = kept_max
        self._size_max, self._size_of = size_max, size_of
        self._lock = threading.Lock()
        self._kept: dict[KeyT, list[ThingT]] = {}  # least recently put back first
        self._count = self._size = 0

    def __len__(self) -> int:
        return self._count

    def take(self, key: KeyT) -> ThingT | None:
        """The one that was put back last."""
        with self._lock:
            things = self._kept.get(key)
            if not things:
                return None
            thing = things.pop()
            self._note_gone(thing)
            if not things:
                del self._kept[key]
            return thing

    def take_all(self, key: KeyT) -> list[ThingT]:
        with self._lock:
            things = self._kept.pop(key, [])
            for thing in things:
                self._note_gone(thing)
        return things

    def put(self, key: KeyT, thing: ThingT) -> list[ThingT]:
        """Returns those for which there is no more room."""
        surplus = []
        with self._lock:
            things = self._kept.pop(key, [])
            things.append(thing)
            self._kept[key] = things
            self._count += 1
            self._size += self._size_of(thing)
            while self._count > self._kept_max or (self._size > self._size_max and self._count > 1):
                oldest = next(iter(self._kept))
                surplus.append(self._kept[oldest].pop(0))
                self._note_gone(surplus[-1])
                if not self._kept[oldest]:
                    del self._kept[oldest]
        return surplus

    def clear(self) -> list[ThingT]:
        with self._lock:
            found = [thing for things in self._kept.values() for thing in things]
            self._kept, self._count, self._size = {}, 0, 0
        return found

    def _note_gone(self, thing: ThingT) -> None:
        self._count -= 1
        self._size -= self._size_of(thing)
