"""`python -m tests.sim --seed N`: one run; `--seeds A..B`: many, with a table of what happened in them.

`--shrink` looks for the shortest fault list that still breaks the seed, `--mutations` plants the known bugs one after
the other and counts the seeds until each is found, `--faults 3,8` runs with these entries of the fault list only.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.sim.mutations import SEEDS, Mutation
from tests.sim.probes import REQUIRED
from tests.sim.scenario import Scenario, draw
from tests.sim.shrink import shrink
from tests.sim.simulation import Result, run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--steps", type=int, help="end the busy time after so many events")
    parser.add_argument("--faults", help="only these entries of the fault list, by position")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--mutations", action="store_true")
    options = parser.parse_args(arguments)
    if options.mutations:
        return run_mutations()
    if options.seeds:
        first, _, last = options.seeds.partition("..")
        return run_many(range(int(first), int(last or first) + 1), options.steps)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    scenario = draw(seed)
    print(scenario, flush=True)
    if options.faults is not None:
        scenario = scenario.with_faults([int(one) for one in options.faults.split(",") if one])
    return run_one(scenario, options.steps, is_traced=options.trace, is_shrunk=options.shrink)


def run_one(scenario: Scenario, steps: int | None, *, is_traced: bool, is_shrunk: bool) -> int:
    result = run(scenario, steps_max=steps, keep_trace=is_traced)
    for line in result.lines:
        print(line)
    report(result)
    if result.violation is not None and is_shrunk:
        kept = shrink(scenario, result.violation.invariant, steps_max=steps)
        print(f"these {len(kept)} faults are enough: --faults {','.join(map(str, kept))}")
        for index in kept:
            print(f"    {scenario.faults[index]}")
    return 1 if result.violation else 0


def report(result: Result) -> None:
    verdict = result.violation or "no violation"
    print(f"seed {result.scenario.seed}: {verdict}; {result.events} events, {result.simulated_ms} ms, {result.digest}")
    if result.violation is not None and result.violation.__cause__ is not None:
        traceback.print_exception(result.violation.__cause__)
    sys.stdout.flush()


def run_many(seeds: range, steps: int | None) -> int:
    print(f"seeds {seeds.start}..{seeds.stop - 1}", flush=True)
    counts: Counter[str] = Counter()
    failed: list[int] = []
    simulated_ms = events = run_count = 0
    started = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):  # what was run until then counts
        for seed in seeds:
            result = run(draw(seed), steps_max=steps)
            run_count += 1
            counts += result.counts
            simulated_ms += result.simulated_ms
            events += result.events
            if result.violation is not None:
                failed.append(seed)
                report(result)
    minutes = (time.monotonic() - started) / 60
    for what in sorted({*counts, *REQUIRED}):
        print(f"{counts[what] or 'NEVER':>10} {what}")
    print(
        f"{run_count} seeds, {len(failed)} violations {failed[:20]}, {events} events in {minutes:.1f} minutes, "
        f"{simulated_ms / 3_600_000:.2f} simulated hours, {simulated_ms / 3_600_000 / minutes:.2f} per minute"
    )
    return 1 if failed else 0


def seeds_until_caught(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed that breaks a promise with this bug planted, and which promise."""
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            mutation(patch)
            violation = run(draw(seed)).violation
        if violation is not None:
            return seed, violation.invariant
    return None


def run_mutations() -> int:
    missed = 0
    for mutation, limit in SEEDS.items():
        caught = seeds_until_caught(mutation, range(1, limit + 1))
        missed += caught is None
        text = f"seed {caught[0]} by {caught[1]}" if caught else "NOT CAUGHT"
        print(f"{mutation.__name__:<45} {text:<25} (limit {limit})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
