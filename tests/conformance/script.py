"""A script is a function that gets a peer and records what it sees; it must see the same on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.peer import Peer


@dataclass(slots=True)
class Seen:
    """Lines of (request, answer), in order."""

    lines: list[tuple[str, Any]] = field(default_factory=list)

    def note(self, question: str, answer: Any) -> Any:
        self.lines.append((question, answer))
        return answer


Script = Callable[[Peer, Seen], None]


@dataclass(frozen=True, slots=True)
class Registered:
    run: Script
    needs_version_2: bool
    levels: tuple[str, ...]


SCRIPTS: dict[str, Registered] = {}


def script(*, needs_version_2: bool = False, levels: tuple[str, ...] = ("0", "1", "2")) -> Callable[[Script], Script]:
    """`needs_version_2`: the script uses EndTxn 5 or Produce 12, which Kafka 3.9 does not know.

    `levels` are the levels of the feature transaction.version for which the script makes sense; transaction version 2
    does not work at all with level 0, which one script shows.
    """
    if needs_version_2 and "2" in levels:
        levels = ("1", "2")

    def register(run: Script) -> Script:
        name = run.__name__
        assert name not in SCRIPTS
        SCRIPTS[name] = Registered(run, needs_version_2, levels)
        return run

    return register
