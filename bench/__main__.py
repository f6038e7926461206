"""Producers beside each other: `python -m bench [--quick] [--only NAME ...] [--case NAME ...]`; `make bench QUICK=1`.

Rounds alternate: each round runs every contestant once in every case, so that whatever the machine does meanwhile hits
all of them. One round that does not count warms the broker up. A full run writes its figures to docs/benchmarks/, a
quick or partial one to build/bench/.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from bench.chart import chart
from bench.contest import Arena, Result, open_arena
from bench.plan import CONTESTANTS, FULL, JAVA, QUICK, Plan
from bench.report import as_json, machine, markdown, rows_of, table

_ROOT = Path(__file__).parent.parent


def main() -> None:
    options = _options()
    plan = QUICK if options.quick else FULL
    if options.repetitions:
        plan = replace(plan, repetitions=options.repetitions)
    if options.only:
        plan = replace(plan, contestants=tuple(each for each in CONTESTANTS if each.name in options.only))
    if options.case:
        plan = replace(plan, cases=tuple(case for case in plan.cases if case.name in options.case))
    with open_arena() as arena:
        results = run(arena, plan)
        about = {"apache-kafka": arena.kafka.version, **machine()}
    for case in plan.cases:
        print(f"\n{case.title}\n{table(rows_of(case, plan.contestants, results))}")
    is_whole = not (options.quick or options.only or options.case or options.repetitions)
    folder = _ROOT / ("docs/benchmarks" if is_whole else "build/bench")
    write(folder, plan, results, about)
    print(f"\nwritten to {folder.relative_to(_ROOT)}")


def run(arena: Arena, plan: Plan) -> list[Result]:
    java = next(each for each in CONTESTANTS if each.name == JAVA)
    for case in plan.cases:
        arena.run(java, case, plan)
    results = []
    for repetition in range(1, plan.repetitions + 1):
        for case in plan.cases:
            for contestant in plan.contestants:
                result = arena.run(contestant, case, plan)
                results.append(result)
                print(
                    f"{time.strftime('%H:%M:%S')} {repetition}/{plan.repetitions} {case.name:10} {contestant.name:16}"
                    f"{result.rate:12,.0f} records/s {result.cpu_us:8.2f} us CPU",
                    flush=True,
                )
    return results


def write(folder: Path, plan: Plan, results: list[Result], about: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    panels = [(case.title, rows_of(case, plan.contestants, results)) for case in plan.cases]
    (folder / "producers.md").write_text(markdown(plan, results, about))
    (folder / "producers.json").write_text(json.dumps(as_json(plan, results, about), indent=1) + "\n")
    (folder / "producers.svg").write_text(chart(panels))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare Kafka producers in one run.")
    parser.add_argument("--quick", action="store_true", help="two short runs each")
    parser.add_argument("--repetitions", type=int, help="instead of 5 (or 2)")
    parser.add_argument("--only", nargs="+", choices=[each.name for each in CONTESTANTS], help="these contestants")
    parser.add_argument("--case", nargs="+", choices=[case.name for case in FULL.cases], help="these cases")
    return parser.parse_args()


if __name__ == "__main__":
    main()
