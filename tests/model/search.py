"""Breadth-first search over all possible events. `python -m tests.model.search` prints the number of states.

The search is breadth-first, so the first violation found has a shortest history; it is printed as a list of events.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from dataclasses import dataclass

from tests.model.world import GONE, WAITING, Budget, Violation, World, WorldState


@dataclass(slots=True)
class Found:
    states: int
    transitions: int
    is_complete: bool
    violation: Violation | None = None
    story: tuple[str, ...] = ()
    # For states in which nothing more can happen: the stages of the drivers, and how often they occur.
    ends: dict[str, int] | None = None


def search(world: World, *, states_max: int = 10**7) -> Found:
    """All states live until the end: the garbage collector, which would visit them over and over, waits."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return _search(world, states_max)
    finally:
        if collects:
            gc.enable()


def _search(world: World, states_max: int) -> Found:
    parents: dict[WorldState, tuple[WorldState, str] | None] = {world.initial: None}
    queue = deque([world.initial])
    transitions = 0
    ends: dict[str, int] = {}
    while queue:
        state = queue.popleft()
        followers = world.actions(state)
        if not any(other != state for _, other in followers):
            end = ", ".join(sorted(driver.stage for driver in state.drivers if driver.stage not in (WAITING, GONE)))
            ends[end] = ends.get(end, 0) + 1
        for event, other in followers:
            transitions += 1
            if isinstance(other, Violation):
                return Found(len(parents), transitions, False, other, (*_story(parents, state), event), ends)
            if other not in parents:
                parents[other] = (state, event)
                queue.append(other)
        if len(parents) > states_max:
            return Found(len(parents), transitions, False, None, (), ends)
    return Found(len(parents), transitions, True, None, (), ends)


def _story(parents: dict[WorldState, tuple[WorldState, str] | None], state: WorldState) -> tuple[str, ...]:
    events = []
    step = parents[state]
    while step is not None:
        state, event = step
        events.append(event)
        step = parents[state]
    return tuple(reversed(events))


def main() -> int:
    parser = argparse.ArgumentParser(description="Search the small world of the commit protocol.")
    parser.add_argument("--transaction-version", type=int, choices=(1, 2), default=2)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--states-max", type=int, default=10**7)
    parser.add_argument("--closes-later", action="store_true")
    parser.add_argument("--has-drafts", action="store_true")
    for name in Budget._fields:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=0)
    arguments = parser.parse_args()
    budget = Budget(*(getattr(arguments, name) for name in Budget._fields))
    world = World(
        arguments.transaction_version, budget, batches=arguments.batches, drivers=1 + budget.seconds,
        closes_later=arguments.closes_later, has_drafts=arguments.has_drafts,
    )  # fmt: skip
    began = time.monotonic()
    found = search(world, states_max=arguments.states_max)
    sys.stdout.write(
        f"{found.states} states, {found.transitions} transitions, {len(world._machines)} machine states, "
        f"{time.monotonic() - began:.1f} s, {'complete' if found.is_complete else 'not complete'}\n"
    )
    for title, count in sorted(world.verdicts.items()):
        sys.stdout.write(f"  {count:8} {title}\n")
    sys.stdout.write(f"  ends: {found.ends}\n")
    if found.violation is not None:
        sys.stdout.write(f"VIOLATION: {found.violation.text}\n")
        for event in found.story:
            sys.stdout.write(f"  {event}\n")
    return 1 if found.violation is not None else 0


if __name__ == "__main__":
    sys.exit(main())
