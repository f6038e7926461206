"""`python -m tests.sim --seed N`: one run; `--seeds A..B`: many, with a table of what happened in them.

`--shrink` looks for the shortest fault list that still breaks the seed, `--mutations` plants the known bugs one after
the other and counts the seeds until each is found, `--faults 3,8` runs with these entries of the fault list only.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from collections.abc import Iterable
from functools import partial

import pytest

from tests.sim.many import Outcome, run_many
from tests.sim.mutations import SEEDS, Mutation
from tests.sim.probes import REQUIRED
from tests.sim.scenario import Scenario, draw
from tests.sim.shrink import shrink
from tests.sim.simulation import Result, run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--jobs", type=int, default=1, help="with --seeds: so many processes")
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
        seeds = range(int(first), int(last or first) + 1)
        return run_many(seeds, partial(play, steps=options.steps), REQUIRED, jobs=options.jobs)
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
    print(report(result), flush=True)
    if result.violation is not None and is_shrunk:
        kept = shrink(scenario, result.violation.invariant, steps_max=steps)
        print(f"these {len(kept)} faults are enough: --faults {','.join(map(str, kept))}")
        for index in kept:
            print(f"    {scenario.faults[index]}")
    return 1 if result.violation else 0


def report(result: Result) -> str:
    verdict = result.violation or "no violation"
    text = f"seed {result.scenario.seed}: {verdict}; {result.events} events, {result.simulated_ms} ms, {result.digest}"
    if result.violation is None or result.violation.__cause__ is None:
        return text
    return "\n".join([text, *traceback.format_exception(result.violation.__cause__)])


def play(seed: int, *, steps: int | None = None) -> Outcome:
    result = run(draw(seed), steps_max=steps)
    trouble = report(result) if result.violation is not None else None
    kind = f"with transaction.version {result.scenario.transaction_version}"
    return Outcome(seed, kind, result.counts, result.simulated_ms, result.events, trouble)


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
