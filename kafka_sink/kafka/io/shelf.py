"""What threads take away, use alone, and put back.

Nothing on the shelf is in use, and what is in use is nowhere else: two threads never have the same thing, and one that
an exception interrupts takes what it had with it. A thread that finds nothing makes its own. The lock is held for no
longer than the dictionary is changed.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT")
ThingT = TypeVar("ThingT")


class Shelf(Generic[KeyT, ThingT]):
    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._kept: dict[KeyT, list[ThingT]] = {}  # least recently put back first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, key: KeyT) -> ThingT | None:
        """The one that was put back last."""
        with self._lock:
            things = self._kept.get(key)
            if not things:
                return None
            self._count -= 1
            thing = things.pop()
            if not things:
                del self._kept[key]
            return thing

    def take_all(self, key: KeyT) -> list[ThingT]:
        with self._lock:
            things = self._kept.pop(key, [])
            self._count -= len(things)
        return things

    def put(self, key: KeyT, thing: ThingT) -> list[ThingT]:
        """Returns those for which there is no more room."""
        surplus = []
        with self._lock:
            things = self._kept.pop(key, [])
            things.append(thing)
            self._kept[key] = things
            self._count += 1
            while self._count > self._kept_max:
                oldest = next(iter(self._kept))
                surplus.append(self._kept[oldest].pop(0))
                self._count -= 1
                if not self._kept[oldest]:
                    del self._kept[oldest]
        return surplus

    def clear(self) -> list[ThingT]:
        with self._lock:
            found = [thing for things in self._kept.values() for thing in things]
            self._kept, self._count = {}, 0
        return found
