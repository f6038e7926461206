"""Makes the fault list of a failing seed as short as possible while the same invariant still breaks.

Halves, then quarters, and so on are left out in turn (delta debugging). Everything else stays as the seed drew it.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.scenario import Scenario
from tests.sim.simulation import Result, run

RUNS_MAX = 400


def shrink(scenario: Scenario, invariant: str, *, run: Callable[..., Result] = run) -> list[int]:
    """The positions of faults that suffice to break `invariant`."""
    kept = list(range(len(scenario.faults)))
    parts, runs = 2, 0

    def breaks(faults: list[int]) -> bool:
        violation = run(scenario.with_faults(faults)).violation
        return violation is not None and violation.invariant == invariant

    if breaks([]):
        return []
    while len(kept) > 1 and runs < RUNS_MAX:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            runs += 1
            if breaks(fewer):
                kept, parts = fewer, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return kept
