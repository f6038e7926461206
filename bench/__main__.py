"""Comparison of producers: `python -m bench [--quick] [--only NAME ...] [--case NAME ...]`; `make bench QUICK=1`.

Rounds alternate: each round runs every contestant once in every case, so that other load on the machine affects all of
them. The first round warms up the broker and is not counted. A full run writes its figures to docs/benchmarks/, a
quick or partial one to build/bench/.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

from bench.chart import Bar, bars
from bench.contest import Arena, Result, open_arena
from bench.plan import CONTESTANTS, FULL, JAVA, QUICK, Plan
from bench.report import PAGES, PARTIAL, Row, as_json, machine, markdown, publish, rows_of


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
    is_whole = not (options.quick or options.only or options.case or options.repetitions)
    folder = PAGES if is_whole else PARTIAL
    write(folder, plan, results, about)
    print(f"written to {folder}")


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
    publish("producers", markdown(plan, results, about), as_json(plan, results, about), folder)
    panels = [
        (f"{case.title}: records per second", [_bar(row) for row in rows_of(case, plan.contestants, results)])
        for case in plan.cases
    ]
    (folder / "producers.svg").write_text(bars(panels))


def _bar(row: Row) -> Bar:
    title = row.title.replace("*", "").replace("`", "")
    return Bar(title, row.rate, row.rate_min, row.rate_max, "ours" in title)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compare Kafka producers in one run.")
    parser.add_argument("--quick", action="store_true", help="two short runs of each contestant")
    parser.add_argument("--repetitions", type=int, help="number of rounds (default 5, with --quick 2)")
    parser.add_argument("--only", nargs="+", choices=[each.name for each in CONTESTANTS], help="only these contestants")
    parser.add_argument("--case", nargs="+", choices=[case.name for case in FULL.cases], help="only these cases")
    return parser.parse_args()


if __name__ == "__main__":
    main()
