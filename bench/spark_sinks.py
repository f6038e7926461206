"""Spark sinks beside each other: `python -m bench.spark_sinks [--quick] [--shapes] [--case NAME ...] [--only NAME ..]`.

Rounds alternate: each round runs every sink once in the same case. Rounds that do not count come first and warm the
JVM, the Python workers and the broker up: a JVM gains until about its fourth write of a case.

The null sink is a Python sink that takes the same Arrow batches and throws them away: what it reaches is the ceiling
for every sink that is written in Python. `--shapes` compares three sinks on many more shapes of rows and topics.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.report import PAGES, PARTIAL, machine, publish
from bench.spark_arena import EXACTLY, JAVA, NULL, SINKS, Arena, Result, Sink, figures, open_arena
from bench.spark_cases import CASES, SHAPES, Case
from bench.spark_chart import shapes_chart

SHAPES_SINKS = (EXACTLY, JAVA, NULL)
CONDITIONS = (
    "Ratios are of medians within one run; CPU is that of Spark's JVM and all its Python workers together, per row."
)


def run(arena: Arena, sinks: Sequence[Sink], cases: Sequence[Case], *, repetitions: int, warm_up: int) -> list[Result]:
    results = []
    for case in cases:
        # Rounds of one case follow each other, so that its rows are cached once.
        for repetition in range(1 - warm_up, repetitions + 1):
            for sink in sinks:
                result = arena.run(sink, case)
                if repetition >= 1:
                    results.append(result)
                    print(
                        f"{time.strftime('%H:%M:%S')} {repetition}/{repetitions} {case.name:25} {sink.name:14}"
                        f"{result.rate:12,.0f} rows/s {result.cpu_seconds / result.rows * 1e6:8.2f} us CPU",
                        flush=True,
                    )
    return results


# ---- every sink in few cases -----------------------------------------------------------------------------------------


def cases_page(sinks: Sequence[Sink], cases: Sequence[Case], results: Sequence[Result]) -> list[str]:
    lines = ["# Spark sinks compared", "", f"Written by `python -m bench.spark_sinks`. {CONDITIONS}"]
    for case in cases:
        java, ceiling = figures(JAVA, case, results), figures(NULL, case, results)
        if java is None:
            continue
        lines += ["", f"## {case.name}: {case.rows:,} rows, {case.partitions} partitions", ""]
        lines += [
            "| sink | rows/s | min..max | to Spark's own | share of the ceiling | CPU us/row | CPU to Spark's own |",
            "| --- | --: | --: | --: | --: | --: | --: |",
        ]
        for sink in sinks:
            own = figures(sink.name, case, results)
            if own is None:
                continue
            share = f"{own.rate / ceiling.rate:.2f}" if ceiling else ""
            lines.append(
                f"| {sink.title} | {_thousands(own.rate)} | {own.rate_min / 1e3:,.0f}..{_thousands(own.rate_max)} "
                f"| {own.rate / java.rate:.2f} | {share} | {own.cpu_us:.2f} | {own.cpu_us / java.cpu_us:.2f} |"
            )
    return lines


# ---- few sinks in every shape ----------------------------------------------------------------------------------------


def shapes_page(cases: Sequence[Case], results: Sequence[Result]) -> list[str]:
    lines = ["# Shapes of rows and topics", "", f"Written by `python -m bench.spark_sinks --shapes`. {CONDITIONS}"]
    lines += ["Ours delivers exactly once; Spark's own sink, tuned alike, delivers at least once. 4 partitions and"]
    lines += ["2 tasks where the name says nothing else.", "", "![rows per second](spark-shapes.svg)", ""]
    lines += [
        "| shape | rows | ours, rows/s | Spark's own | ratio | share of the ceiling | ours, CPU us/row | CPU ratio |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for case in cases:
        ours, java, ceiling = (figures(sink, case, results) for sink in SHAPES_SINKS)
        if ours and java and ceiling:
            lines.append(
                f"| {case.name} | {case.rows:,} | {_thousands(ours.rate)} | {_thousands(java.rate)} "
                f"| {ours.rate / java.rate:.2f} | {ours.rate / ceiling.rate:.2f} | {ours.cpu_us:.2f} "
                f"| {ours.cpu_us / java.cpu_us:.2f} |"
            )
    return lines


def _thousands(number: float) -> str:
    return f"{number / 1e3:,.0f} k"


def write(folder: Path, name: str, lines: Sequence[str], about: Mapping[str, Any], results: Sequence[Result]) -> None:
    foot = ["", ", ".join(f"{key} {text}" for key, text in about.items()) + "."]
    text = "\n".join([*lines, *foot]) + "\n"
    publish(name, text, {"about": about, "runs": [asdict(each) for each in results]}, folder)


def main() -> None:
    options = _options()
    wanted = SHAPES if options.shapes else CASES
    cases = [case for case in wanted if not options.case or case.name in options.case]
    names = options.only or (SHAPES_SINKS if options.shapes else [sink.name for sink in SINKS])
    sinks = [sink for sink in SINKS if sink.name in names and (sink.is_in_quick or not options.quick)]
    repetitions = options.repetitions or (2 if options.quick else 5)
    warm_up = 1 if options.quick else 3
    with open_arena() as arena:
        results = run(arena, sinks, cases, repetitions=repetitions, warm_up=warm_up)
    about = {"runs": f"{repetitions} each, alternating, after {warm_up} that do not count", **machine()}
    is_whole = not (options.case or options.only or options.quick)
    folder = PAGES if is_whole else PARTIAL
    if options.shapes:
        write(folder, "spark-shapes", shapes_page(cases, results), about, results)
        (folder / "spark-shapes.svg").write_text(shapes_chart(cases, results))
    else:
        write(folder, "spark-sinks", cases_page(sinks, cases, results), about, results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_sinks", description="Compare Spark's Kafka sinks.")
    parser.add_argument("--quick", action="store_true", help="two rounds, without the slowest sinks")
    parser.add_argument("--shapes", action="store_true", help="three sinks on many shapes")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--case", nargs="+", choices=[case.name for case in SHAPES])
    parser.add_argument("--only", nargs="+", choices=[sink.name for sink in SINKS])
    return parser.parse_args()


if __name__ == "__main__":
    main()
