"""What exactly-once costs a micro-batch: `python -m bench.commit_cost [--batches N] [--rounds N] [--tasks N ...]`.

The same stream, as fast as it can, into our sink with both guarantees, into Spark's own and into the null sink: few
rows, so that what is left is the fixed cost of a micro-batch. Sinks alternate from round to round; the first
micro-batches of each query do not count. Times are Spark's own, from the progress of the query: `triggerExecution` of
the whole micro-batch.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from statistics import median

from bench.report import machine, publish
from bench.spark_arena import Arena, open_arena
from tools.foreign_reader import end_offsets

WARM_UP = 5
ROWS_PER_TASK = 100
PARTITIONS = 4
EXACTLY, AT_LEAST = "ours, exactly once", "ours, at least once"
SINKS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    EXACTLY: ("pykafka-sink", {}),
    AT_LEAST: ("pykafka-sink", {"delivery.guarantee": "at-least-once"}),
    "Spark's own sink": ("kafka", {}),
    "null sink": ("null-sink", {}),
}

Times = dict[tuple[int, str], list[int]]


def micro_batches(arena: Arena, sink: str, tasks: int, count: int) -> list[int]:
    """How many milliseconds each of them took."""
    source, options = SINKS[sink]
    topic = arena.kafka.create_topic(f"cost-{uuid.uuid4().hex[:12]}", partitions=PARTITIONS)
    end_offsets(arena.kafka.bootstrap_servers, topic)
    rows = arena.spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=tasks * ROWS_PER_TASK, numPartitions=tasks
    )
    frame = rows.load().selectExpr("CAST(value AS STRING) AS key", "CAST(timestamp AS STRING) AS value")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(source).options(**options).option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", arena.kafka.bootstrap_servers)
        query = writer.option("checkpointLocation", checkpoint).start()
        times: dict[int, int] = {}
        while len(times) < WARM_UP + count:
            if query.awaitTermination(0.2):
                raise SystemExit(f"{sink} ended early: {query.exception()}")
            times |= {each["batchId"]: each["durationMs"]["triggerExecution"] for each in query.recentProgress}
        query.stop()
    arena.kafka.delete_topic(topic)
    return [times[number] for number in sorted(times)][WARM_UP : WARM_UP + count]


def measure(arena: Arena, task_counts: Sequence[int], rounds: int, count: int) -> Times:
    times: Times = {(tasks, sink): [] for tasks in task_counts for sink in SINKS}
    for tasks in task_counts:
        for number in range(rounds):
            for sink in SINKS:
                found = micro_batches(arena, sink, tasks, count)
                times[tasks, sink] += found
                print(f"{number + 1}/{rounds} {tasks:3} tasks  {sink:20} {median(found):6.0f} ms", flush=True)
    return times


def markdown(times: Times, about: Mapping[str, str]) -> str:
    """Differences are of medians within one run."""
    lines = ["# What exactly-once costs a micro-batch", ""]
    lines += [
        "Written by `python -m bench.commit_cost`. Milliseconds of a whole micro-batch, median (90th percentile)."
    ]
    lines += ["", ", ".join(f"{name} {text}" for name, text in about.items()) + ".", ""]
    lines += ["| tasks | " + " | ".join(SINKS) + " | exactly once costs |", "| --: |" + " --: |" * (len(SINKS) + 1)]
    for tasks in sorted({tasks for tasks, _ in times}):
        cells = [f"{median(times[tasks, sink]):.0f} ({_late(times[tasks, sink])})" for sink in SINKS]
        cost = median(times[tasks, EXACTLY]) - median(times[tasks, AT_LEAST])
        lines.append(f"| {tasks} | " + " | ".join(cells) + f" | {cost:+.0f} ms |")
    return "\n".join(lines) + "\n"


def _late(times: Sequence[int]) -> int:
    return sorted(times)[len(times) * 9 // 10]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.commit_cost", description="The price of exactly-once.")
    parser.add_argument("--batches", type=int, default=20, help="micro-batches that count, per query")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 16, 64])
    options = parser.parse_args()
    with open_arena() as arena:
        times = measure(arena, options.tasks, options.rounds, options.batches)
    about = {"micro-batches": f"{options.rounds} x {options.batches} each, alternating", **machine()}
    runs = [{"tasks": tasks, "sink": sink, "ms": found} for (tasks, sink), found in times.items()]
    publish("commit-cost", markdown(times, about), {"about": about, "runs": runs})


if __name__ == "__main__":
    main()
