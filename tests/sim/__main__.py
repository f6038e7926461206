"""`python -m tests.sim --seed N`: one run; `--seeds A..B`: many, with a table of what happened in them."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.sim.scenario import draw
from tests.sim.simulation import Result, run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="A..B, both included")
    parser.add_argument("--steps", type=int, help="end the busy time after so many events")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    options = parser.parse_args(arguments)
    if options.seeds:
        first, _, last = options.seeds.partition("..")
        return run_many(range(int(first), int(last or first) + 1), options.steps)
    return run_one(options.seed or 0, options.steps, is_traced=options.trace)


def run_one(seed: int, steps: int | None, *, is_traced: bool) -> int:
    scenario = draw(seed)
    print(scenario, flush=True)
    result = run(scenario, steps_max=steps, keep_trace=is_traced)
    for line in result.lines:
        print(line)
    report(result)
    return 1 if result.violation else 0


def report(result: Result) -> None:
    verdict = result.violation or "no violation"
    print(f"seed {result.scenario.seed}: {verdict}; {result.events} events, {result.simulated_ms} ms, {result.digest}")
    if result.violation is not None and result.violation.__cause__ is not None:
        traceback.print_exception(result.violation.__cause__)


def run_many(seeds: range, steps: int | None) -> int:
    print(f"seeds {seeds.start}..{seeds.stop - 1}", flush=True)
    counts: Counter[str] = Counter()
    failed: list[int] = []
    simulated_ms = events = 0
    started = time.monotonic()
    for seed in seeds:
        result = run(draw(seed), steps_max=steps)
        counts += result.counts
        simulated_ms += result.simulated_ms
        events += result.events
        if result.violation is not None:
            failed.append(seed)
            report(result)
            sys.stdout.flush()
    minutes = (time.monotonic() - started) / 60
    for what, count in sorted(counts.items()):
        print(f"{count:>10} {what}")
    print(
        f"{len(seeds)} seeds, {len(failed)} violations {failed[:20]}, {events} events in {minutes:.1f} minutes, "
        f"{simulated_ms / 3_600_000:.2f} simulated hours, {simulated_ms / 3_600_000 / minutes:.2f} per minute"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
