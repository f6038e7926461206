"""The command line of a simulation: one seed, many seeds, shrinking, planted mistakes. There are two simulations.

`--seed N`: one run; `--seeds A..B`: many, with a table of what happened in them. `--shrink` looks for the shortest
fault list with which the seed still breaks the same promise, `--mutations` plants the known mistakes one after the
other and counts the seeds until each is found, `--faults 3,8` runs with these entries of the fault list only.
"""

from __future__ import annotations

import argparse
import random
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.sim.course import Ran
from tests.sim.many import Outcome, run_many
from tests.sim.shrink import shrink
from tests.sim.trace import Violation


@dataclass(frozen=True)
class Planted:
    """A planted mistake, the number of seeds within which it must be found, and the violation that a seed finds."""

    name: str
    limit: int
    violation: Callable[[int], Violation | None]

    def first_caught(self, first: int = 1) -> tuple[int, str] | None:
        """The first seed that finds it, and the promise that is broken. `first` is tried before all others."""
        for seed in sorted(range(1, self.limit + 1), key=lambda seed: seed != first):
            violation = self.violation(seed)
            if violation is not None:
                return seed, violation.invariant
        return None


@dataclass(frozen=True)
class Simulated:
    """One of the two simulations. `draw` gets the options that `add_options` adds; it and `run` can be imported."""

    module: str
    draw: Callable[[int, argparse.Namespace], Any]
    run: Callable[..., Any]
    kind_of: Callable[[Any], str]
    required: Iterable[str]
    planted: Sequence[Planted]
    add_options: Callable[[argparse.ArgumentParser], Any] = lambda _parser: None

    def main(self, arguments: Sequence[str]) -> int:
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=__doc__)
        parser.add_argument("--seed", type=int)
        parser.add_argument("--seeds", help="A..B, both included")
        parser.add_argument("--jobs", type=int, default=1, help="with --seeds: so many processes")
        parser.add_argument("--minutes", type=float, default=1e9, help="with --seeds: stop after so many")
        parser.add_argument("--faults", help="only these entries of the fault list, by position")
        parser.add_argument("--trace", action="store_true", help="print all that happened")
        parser.add_argument("--shrink", action="store_true")
        parser.add_argument("--mutations", action="store_true")
        self.add_options(parser)
        options = parser.parse_args(arguments)
        if options.mutations:
            return run_mutations(self.planted)
        if options.seeds:
            first, _, last = options.seeds.partition("..")
            seeds = range(int(first), int(last or first) + 1)
            play = partial(_play, self, options)
            return run_many(seeds, play, self.required, jobs=options.jobs, minutes_max=options.minutes)
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
        return self._run_one(seed, options)

    def _run_one(self, seed: int, options: argparse.Namespace) -> int:
        plan = self.draw(seed, options)
        print(plan, flush=True)
        if options.faults is not None:
            plan = plan.with_faults([int(one) for one in options.faults.split(",") if one])
        result = self.run(plan, keep_trace=options.trace)
        for line in result.lines:
            print(line)
        print(_report(seed, result), flush=True)
        if result.violation is not None and options.shrink:
            kept = shrink(plan, result.violation.invariant, run=self.run)
            print(f"these {len(kept)} faults are enough: --faults {','.join(map(str, kept))}")
            for index in kept:
                print(f"    {plan.faults[index]}")
        return 1 if result.violation else 0


def _play(simulated: Simulated, options: argparse.Namespace, seed: int) -> Outcome:
    result = simulated.run(simulated.draw(seed, options))
    trouble = _report(seed, result) if result.violation is not None else None
    return Outcome(seed, simulated.kind_of(result), result.counts, result.simulated_ms, result.events, trouble)


def _report(seed: int, result: Ran[Any]) -> str:
    verdict = result.violation or "no violation"
    text = f"seed {seed}: {verdict}; {result.events} events, {result.simulated_ms} ms, {result.digest}"
    if result.violation is None or result.violation.__cause__ is None:
        return text
    return "\n".join([text, *traceback.format_exception(result.violation.__cause__)])


def run_mutations(planted: Iterable[Planted]) -> int:
    missed = 0
    for mistake in planted:
        caught = mistake.first_caught()
        missed += caught is None
        text = f"seed {caught[0]} by {caught[1]}" if caught else "NOT CAUGHT"
        print(f"{mistake.name:<45} {text:<25} (limit {mistake.limit})", flush=True)
    return 1 if missed else 0
