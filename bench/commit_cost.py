"""What exactly-once costs a micro-batch: `python -m bench.commit_cost [--batches N] [--rounds N] [--tasks N ...]
[--sinks NAME ...] [--quick]`.

The same stream of a thousand rows per micro-batch runs at full speed into our sink with both guarantees, with manifests
and through its second door, into Spark's own sink and into null sinks that discard their rows: one with PySpark's
garbage collection between tasks, one with our setting of it (process_memory.py), and one that is a function, as the
second door is. The rows are few, so the time is the fixed cost of a micro-batch. Sinks alternate from round to round.
Rounds are not counted until the compilers of the JVMs are quiet: before that they take two fifths of two cores, which
says nothing about a stream that runs for days. Neither are the first micro-batches of each query. Times are Spark's
own, from the progress of the query: `triggerExecution` of the whole micro-batch.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import median

from bench.report import PAGES, PARTIAL, conditions, machine, publish
from bench.spark_arena import Arena, open_arena
from bench.spark_peers import discard_in_function
from kafka_sink import foreach_batch

WARM_UP = 5
ROWS = 1000
PARTITIONS = 4
EXACTLY, AT_LEAST, OWN = "ours, exactly once", "ours, at least once", "Spark's own sink"
FROZEN = "null sink with gc.freeze()"
MANIFESTS, MANIFEST_TOPIC = "ours, with manifests", "manifest.topic"
# These two have no format.
DOOR, FUNCTION = "second door", "null function with gc.freeze()"
SINKS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    EXACTLY: ("pykafka-sink", {}),
    AT_LEAST: ("pykafka-sink", {"delivery.guarantee": "at-least-once"}),
    DOOR: ("", {}),
    MANIFESTS: ("pykafka-sink", {MANIFEST_TOPIC: ""}),
    OWN: ("kafka", {}),
    "null sink": ("null-sink", {}),
    FROZEN: ("frozen-null-sink", {}),
    FUNCTION: ("", {}),
}

Times = dict[tuple[int, str], list[int]]


def micro_batches(arena: Arena, sink: str, tasks: int, count: int) -> list[int]:
    """The time of each micro-batch in milliseconds."""
    source, options = SINKS[sink]
    topic = arena.new_topic("cost", PARTITIONS)
    rows = arena.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=tasks)
    frame = rows.load().selectExpr("CAST(value AS STRING) AS key", "CAST(timestamp AS STRING) AS value")
    with tempfile.TemporaryDirectory() as checkpoint:
        given = {**options, "topic": topic, "kafka.bootstrap.servers": arena.kafka.bootstrap_servers}
        given["checkpointLocation"] = checkpoint
        if MANIFEST_TOPIC in given:
            given[MANIFEST_TOPIC] = arena.new_topic("manifests", 1)
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        if source:
            query = writer.format(source).options(**given).start()
        else:
            function = discard_in_function if sink == FUNCTION else foreach_batch(given)
            query = writer.foreachBatch(function).start()
        times: dict[int, int] = {}
        while len(times) < WARM_UP + count:
            if query.awaitTermination(0.2):
                raise SystemExit(f"{sink} ended early: {query.exception()}")
            times |= {each["batchId"]: each["durationMs"]["triggerExecution"] for each in query.recentProgress}
        query.stop()
    for name in filter(None, (topic, given.get(MANIFEST_TOPIC))):
        arena.kafka.delete_topic(name)
    return [times[number] for number in sorted(times)][WARM_UP : WARM_UP + count]


def measure(
    arena: Arena, sinks: Sequence[str], task_counts: Sequence[int], rounds: int, count: int
) -> tuple[Times, str]:
    """Also returns how warm it was."""
    times: Times = {(tasks, sink): [] for tasks in task_counts for sink in sinks}

    def run_each() -> None:
        for tasks, sink in product(task_counts[:2], sinks):
            micro_batches(arena, sink, tasks, count)

    warm_up = arena.warm_up(run_each)
    for tasks in task_counts:
        for number in range(rounds):
            for sink in sinks:
                found = micro_batches(arena, sink, tasks, count)
                times[tasks, sink] += found
                print(f"{number + 1}/{rounds} {tasks:3} tasks  {sink:20} {median(found):6.0f} ms", flush=True)
    return times, warm_up


def markdown(times: Times, about: Mapping[str, str]) -> str:
    """Ratios and differences are computed from medians within one run."""
    lines = ["# What exactly-once costs a micro-batch", ""]
    lines += [
        "Written by `python -m bench.commit_cost`. Milliseconds of a whole micro-batch of 1000 rows, median (90th",
        "percentile).",
    ]
    lines += ["", conditions(about), ""]
    sinks = [sink for sink in SINKS if any(sink == other for _, other in times)]
    heads = ["tasks", *sinks, "to Spark's own", "second door to the format", "null function to the null sink"]
    lines += ["| " + " | ".join([*heads, "exactly once costs"]) + " |", "|" + " --: |" * (len(heads) + 1)]
    for tasks in sorted({tasks for tasks, _ in times}):
        cells = [f"{median(times[tasks, sink]):.0f} ({_late(times[tasks, sink])})" for sink in sinks]
        exactly, at_least, door, own, frozen, function = (
            median(times.get((tasks, sink)) or [math.nan]) for sink in (EXACTLY, AT_LEAST, DOOR, OWN, FROZEN, FUNCTION)
        )
        ratios = (
            f" | {exactly / own:.2f} | {door / exactly:.2f} | {function / frozen:.2f} | {exactly - at_least:+.0f} ms |"
        )
        lines.append(f"| {tasks} | " + " | ".join(cells) + ratios)
    return "\n".join(lines) + "\n"


def _late(times: Sequence[int]) -> int:
    return sorted(times)[len(times) * 9 // 10]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.commit_cost", description="Measure what exactly-once costs.")
    parser.add_argument("--batches", type=int, default=20, help="counted micro-batches per query")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 16, 64])
    parser.add_argument("--sinks", nargs="+", choices=SINKS, default=list(SINKS))
    parser.add_argument("--quick", action="store_true", help="2 rounds of 10 micro-batches, to build/bench/")
    options = parser.parse_args()
    rounds, count = (2, 10) if options.quick else (options.rounds, options.batches)
    with open_arena() as arena:
        times, warm_up = measure(arena, options.sinks, options.tasks, rounds, count)
    about = {"micro-batches": f"{rounds} x {count} each, alternating", "warm-up": warm_up, **machine()}
    runs = [{"tasks": tasks, "sink": sink, "ms": found} for (tasks, sink), found in times.items()]
    figures = {"about": about, "runs": runs}
    publish(
        "commit-cost",
        markdown(times, about),
        figures,
        PARTIAL if options.quick or set(options.sinks) != set(SINKS) else PAGES,
    )


if __name__ == "__main__":
    main()
