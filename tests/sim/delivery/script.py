"""A sequence of actions as a generator: it yields how long to wait, or a function that calls back when it is done."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tests.sim.loop import Loop

Resume = Callable[[Any], None]
Wait = int | Callable[[Resume], None]
Script = Generator[Wait, Any, Any]


class Life:
    """Runs a script until its end, or until it is ended: callbacks that come later are ignored."""

    def __init__(self, loop: Loop, script: Script, on_end: Callable[[Any], None]) -> None:
        self.is_alive = True
        self._loop = loop
        self._script = script
        self._on_end = on_end
        loop.after(0, lambda: self._resume(None))

    def end(self) -> None:
        self.is_alive = False

    def _resume(self, value: Any) -> None:
        if not self.is_alive:
            return
        try:
            wanted = self._script.send(value)
        except StopIteration as end:
            self.is_alive = False
            self._on_end(end.value)
            return
        if isinstance(wanted, int):
            self._loop.after(wanted, lambda: self._resume(None))
        else:
            # The script never continues inside another event.
            wanted(lambda result: self._loop.after(0, lambda: self._resume(result)))
