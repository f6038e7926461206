"""`python -m tests.sim.delivery --seed N`: one run; `--seeds A..B`: many, with a table of what happened in them.

`--shrink` looks for the shortest fault list that still breaks the seed, `--mutations` plants the known mistakes one
after the other and counts the seeds until each is found, `--faults 3,8` runs with these entries of the fault list only.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter

from tests.sim.delivery.mutations import RARE, SEEDS, seeds_until_caught
from tests.sim.delivery.plan import Plan, draw
from tests.sim.delivery.required import REQUIRED
from tests.sim.delivery.simulation import Result, run
from tests.sim.shrink import shrink


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.delivery", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--minutes", type=float, default=1e9, help="with --seeds: stop after so many")
    parser.add_argument("--faults", help="only these entries of the fault list, by position")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--mutations", action="store_true")
    options = parser.parse_args(arguments)
    if options.mutations:
        return run_mutations()
    if options.seeds:
        first, _, last = options.seeds.partition("..")
        return run_many(range(int(first), int(last or first) + 1), options.minutes)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    plan = draw(seed)
    print(plan, flush=True)
    if options.faults is not None:
        plan = plan.with_faults([int(one) for one in options.faults.split(",") if one])
    return run_one(plan, is_traced=options.trace, is_shrunk=options.shrink)


def run_one(plan: Plan, *, is_traced: bool, is_shrunk: bool) -> int:
    result = run(plan, keep_trace=is_traced)
    for line in result.lines:
        print(line)
    report(result)
    if result.violation is not None and is_shrunk:
        kept = shrink(plan, result.violation.invariant, run=run)  # type: ignore[arg-type]  # it needs `with_faults` only
        print(f"these {len(kept)} faults are enough: --faults {','.join(map(str, kept))}")
        for index in kept:
            print(f"    {plan.faults[index]}")
    return 1 if result.violation else 0


def report(result: Result) -> None:
    verdict = result.violation or "no violation"
    print(f"seed {result.plan.seed}: {verdict}; {result.events} events, {result.simulated_ms} ms, {result.digest}")
    if result.violation is not None and result.violation.__cause__ is not None:
        traceback.print_exception(result.violation.__cause__)
    sys.stdout.flush()


def run_many(seeds: range, minutes_max: float) -> int:
    print(f"seeds {seeds.start}..{seeds.stop - 1}", flush=True)
    counts: Counter[str] = Counter()
    generations: Counter[int] = Counter()
    failed: list[int] = []
    simulated_ms = events = 0
    events_most = 0
    started = time.monotonic()
    for seed in seeds:
        if (time.monotonic() - started) / 60 > minutes_max:
            break
        result = run(draw(seed))
        counts += result.counts
        generations[result.plan.generation] += 1
        simulated_ms += result.simulated_ms
        events += result.events
        events_most = max(events_most, result.events)
        if result.violation is not None:
            failed.append(seed)
            report(result)
        if seed % 500 == 0:
            print(f"  ... seed {seed}, {(time.monotonic() - started) / 60:.1f} minutes", flush=True)
    minutes = (time.monotonic() - started) / 60
    for what in sorted({*counts, *REQUIRED}):
        print(f"{counts[what] or 'NEVER':>10} {what}")
    hours = simulated_ms / 3_600_000
    print(
        f"{generations.total()} seeds ({generations[1]} of generation 1, {generations[2]} of generation 2), "
        f"{len(failed)} violations {failed[:20]}, {events} events (at most {events_most}) in {minutes:.1f} minutes, "
        f"{hours:.2f} simulated hours, {hours / minutes:.2f} per minute"
    )
    return 1 if failed else 0


def run_mutations() -> int:
    missed = 0
    for mutation, limit in (SEEDS | RARE).items():
        caught = seeds_until_caught(mutation, range(1, limit + 1))
        missed += caught is None and mutation in SEEDS
        text = f"seed {caught[0]} by {caught[1]}" if caught else "NOT CAUGHT"
        print(f"{mutation.__name__:<45} {text:<25} (limit {limit})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
