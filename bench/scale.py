"""How cost grows: `python -m bench.scale [--rows N ...] [--topics N ...]`, and `--tasks [N ...]`.

Rows: consecutive batch writes, each with ten times as many rows, computed by Spark and not cached. Topics: the same
rows to an increasing number of topics, by a column. All writes are exactly-once. Tasks: a commit on simulated brokers
(scale_tasks.py); the rest of the page stays as it is. `bench.commit_steps` measures the commit of a few tasks on Kafka.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

from bench.process_tree import cpu_seconds, peak_bytes
from bench.report import PAGES, PARTIAL, conditions, machine, publish
from bench.scale_tasks import TASKS, measure_tasks, tasks_markdown
from bench.spark_arena import TUNED, Arena, open_arena
from tools.foreign_reader import end_offsets

TOPIC_ROWS = 1_000_000
PARTITIONS = 4
Line = dict[str, float]


def write_rows(arena: Arena, rows: int) -> Line:
    topic = arena.new_topic("rows", PARTITIONS)
    frame = arena.spark.range(0, rows, 1, 2).selectExpr(
        "concat('user-', pmod(hash(id), 10000000)) AS key",
        "concat(repeat(hex(hash(id)), 11), lpad(id, 12, '0')) AS value",
    )
    pid, started = arena.jvm_pid(), time.monotonic()
    cpu_before = cpu_seconds(pid)
    _write(arena, frame, topic=topic)
    line = {
        "rows": rows,
        "seconds": time.monotonic() - started,
        "cpu_us_per_row": (cpu_seconds(pid) - cpu_before) / rows * 1e6,
        "peak_mib": peak_bytes(pid) / 2**20,
    }
    _check(arena, [topic], rows)
    return line


def write_topics(arena: Arena, topics: int) -> Line:
    names = [arena.new_topic(f"many-{topics}", PARTITIONS) for _ in range(topics)]
    listed = ", ".join(f"'{name}'" for name in names)
    frame = arena.spark.range(0, TOPIC_ROWS, 1, 2).selectExpr(
        f"element_at(array({listed}), CAST(pmod(hash(id), {topics}) AS INT) + 1) AS topic",
        "concat('user-', id) AS key",
        "repeat(hex(hash(id)), 12) AS value",
    )
    started = time.monotonic()
    _write(arena, frame)
    line = {"topics": topics, "seconds": time.monotonic() - started}
    _check(arena, names, TOPIC_ROWS)
    return line


def _write(arena: Arena, frame: object, **options: str) -> None:
    writer = frame.write.format("pykafka-sink").options(**TUNED, **options)  # type: ignore[attr-defined]
    writer.option("kafka.bootstrap.servers", arena.kafka.bootstrap_servers).mode("append").save()


def _check(arena: Arena, topics: Sequence[str], rows: int) -> None:
    """Each transaction marker takes an offset: one per task and partition."""
    logged = sum(sum(end_offsets(arena.kafka.bootstrap_servers, topic).values()) for topic in topics)
    if not rows <= logged <= rows + 16 * len(topics):
        raise SystemExit(f"{rows} rows should be in {len(topics)} topics; the logs have {logged}")
    for topic in topics:
        arena.kafka.delete_topic(topic)


def markdown(figures: dict[str, Any]) -> str:
    lines = ["# How cost grows", "", "Written by `python -m bench.scale`; exactly once.", ""]
    lines += [
        "## With rows",
        "",
        "Rows of 112 bytes with a key, computed by Spark; 4 partitions, 2 tasks. Memory is the",
    ]
    lines += ["highest resident set of any Python worker so far.", ""]
    lines += ["| rows | seconds | rows/s | CPU us/row | peak MiB |", "| --: | --: | --: | --: | --: |"]
    for line in figures["rows"]:
        lines.append(
            f"| {line['rows']:,} | {line['seconds']:.1f} | {line['rows'] / line['seconds'] / 1e3:,.0f} k "
            f"| {line['cpu_us_per_row']:.2f} | {line['peak_mib']:.0f} |"
        )
    lines += [
        "",
        "## With topics",
        "",
        f"{TOPIC_ROWS:,} rows for each number of topics (4 partitions each); the column topic names each row's topic.",
        "",
    ]
    lines += ["| topics | seconds | rows/s |", "| --: | --: | --: |"]
    for line in figures["topics"]:
        rate = TOPIC_ROWS / line["seconds"] / 1e3
        lines.append(f"| {line['topics']} | {line['seconds']:.1f} | {rate:,.0f} k |")
    lines += ["", conditions(figures["about"]), "", *tasks_markdown(figures["tasks"])]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="How cost grows.")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--topics", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--tasks", type=int, nargs="*", help="only with tasks: these numbers, or those of the page")
    options = parser.parse_args()
    figures = json.loads((PAGES / "scale.json").read_text())
    if options.tasks is not None:
        figures["tasks"] = measure_tasks(options.tasks or TASKS)
    else:
        figures |= _measure_with_spark(options.rows, options.topics)
    publish("scale", markdown(figures), figures, PARTIAL if options.tasks else PAGES)


def _measure_with_spark(rows: Sequence[int], topics: Sequence[int]) -> dict[str, Any]:
    with open_arena() as arena:
        for _ in range(3):
            write_rows(arena, 1_000_000)  # warm-up
        return {
            "rows": [_print(write_rows(arena, count)) for count in rows],
            "topics": [_print(write_topics(arena, count)) for count in topics],
            "about": machine(),
        }


def _print(line: Line) -> Line:
    print("  ".join(f"{name} {number:,.1f}" for name, number in line.items()), flush=True)
    return line


if __name__ == "__main__":
    main()
