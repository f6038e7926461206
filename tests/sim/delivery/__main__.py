"""`python -m tests.sim.delivery --seed N`: one run; `--seeds A..B`: many, with a table of what happened in them.

`--shrink` looks for the shortest fault list that still breaks the seed, `--mutations` plants the known mistakes one
after the other and counts the seeds until each is found, `--faults 3,8` runs with these entries of the fault list only.
`--breakers lies,twins` breaks these assumptions in each seed instead of those that it would choose, `none` breaks none.
"""

from __future__ import annotations

import argparse
import random
import sys
import traceback
from functools import partial

from tests.sim.delivery.breakers import BREAKERS
from tests.sim.delivery.mutations import TRIALS, seeds_until_caught
from tests.sim.delivery.plan import Plan, draw
from tests.sim.delivery.required import REQUIRED
from tests.sim.delivery.simulation import Result, run
from tests.sim.many import Outcome, run_many
from tests.sim.shrink import shrink


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.delivery", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--jobs", type=int, default=1, help="with --seeds: so many processes")
    parser.add_argument("--minutes", type=float, default=1e9, help="with --seeds: stop after so many")
    parser.add_argument("--faults", help="only these entries of the fault list, by position")
    parser.add_argument("--breakers", help=f"of {', '.join(BREAKERS)}; or none")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--mutations", action="store_true")
    options = parser.parse_args(arguments)
    if options.mutations:
        return run_mutations()
    breakers = chosen(options.breakers)
    if options.seeds:
        first, _, last = options.seeds.partition("..")
        seeds = range(int(first), int(last or first) + 1)
        return run_many(
            seeds, partial(play, breakers=breakers), REQUIRED, jobs=options.jobs, minutes_max=options.minutes
        )
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    plan = draw(seed, breakers)
    print(plan, flush=True)
    if options.faults is not None:
        plan = plan.with_faults([int(one) for one in options.faults.split(",") if one])
    return run_one(plan, is_traced=options.trace, is_shrunk=options.shrink)


def run_one(plan: Plan, *, is_traced: bool, is_shrunk: bool) -> int:
    result = run(plan, keep_trace=is_traced)
    for line in result.lines:
        print(line)
    print(report(result), flush=True)
    if result.violation is not None and is_shrunk:
        kept = shrink(plan, result.violation.invariant, run=run)  # type: ignore[arg-type]  # it needs `with_faults` only
        print(f"these {len(kept)} faults are enough: --faults {','.join(map(str, kept))}")
        for index in kept:
            print(f"    {plan.faults[index]}")
    return 1 if result.violation else 0


def report(result: Result) -> str:
    verdict = result.violation or "no violation"
    text = f"seed {result.plan.seed}: {verdict}; {result.events} events, {result.simulated_ms} ms, {result.digest}"
    if result.violation is None or result.violation.__cause__ is None:
        return text
    return "\n".join([text, *traceback.format_exception(result.violation.__cause__)])


def chosen(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    names = frozenset(text.split(",")) - {"none"}
    unknown = sorted(names - set(BREAKERS))
    if unknown:
        raise SystemExit(f"no such assumption: {', '.join(unknown)}; there are {', '.join(BREAKERS)}")
    return names


def play(seed: int, *, breakers: frozenset[str] | None = None) -> Outcome:
    result = run(draw(seed, breakers))
    trouble = report(result) if result.violation is not None else None
    kind = f"of generation {result.plan.generation}"
    return Outcome(seed, kind, result.counts, result.simulated_ms, result.events, trouble)


def run_mutations() -> int:
    missed = 0
    for mutation, trial in TRIALS.items():
        caught = seeds_until_caught(mutation, range(1, trial.limit + 1))
        missed += caught is None
        text = f"seed {caught[0]} by {caught[1]}" if caught else "NOT CAUGHT"
        print(f"{mutation.__name__:<45} {text:<25} (limit {trial.limit})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
