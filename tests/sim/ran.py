"""A run of either simulation: how it ended, and what happened in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.sim.loop import Loop
from tests.sim.trace import Trace, Violation

PlanT = TypeVar("PlanT")


@dataclass(slots=True)
class Ran(Generic[PlanT]):
    plan: PlanT
    digest: str
    simulated_ms: int
    events: int
    counts: Counter[str]
    violation: Violation | None
    lines: list[str]


def ran(plan: PlanT, loop: Loop, trace: Trace, course: Callable[[], None]) -> Ran[PlanT]:
    """Any exception of `course` counts as a violation."""
    violation = None
    try:
        course()
    except Violation as broken:
        violation = broken
    except Exception as crash:
        violation = Violation("crash", f"{type(crash).__name__}: {crash}")
        violation.__cause__ = crash
    return Ran(plan, trace.digest, loop.now_ms, loop.events_count, trace.counts, violation, trace.lines or [])
