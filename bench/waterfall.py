"""One micro-batch from trigger to visible row: `python -m bench.waterfall [--tasks N ...] [--batches N] [--rows N]`.

A warm stream of a thousand rows per micro-batch runs into our sink with exactly-once, into Spark's own sink and into
the null sink, with the same settings of Spark. The times come from three sources: Spark's progress of the query, the
spans that bench.traced_sink records in the Python processes, and a read_committed reader that records when the last row
of a micro-batch is visible. The picture shows the micro-batch with the median duration; the table has medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

from bench.chart import Lane, waterfall
from bench.process_tree import cpu_by_kind
from bench.report import PAGES, PARTIAL, conditions, machine, publish
from bench.spark_arena import Arena, open_arena
from bench.traced_sink import COMMIT, FOLDER, PLAN, TASK, TracedNullSink, TracedSink

ROWS, PARTITIONS, WARM_UP, ROUNDS = 1000, 4, 8, 2
OURS = "ours, exactly once"
SINKS: Mapping[str, str] = {
    OURS: "traced-sink",
    "Spark's own sink": "kafka",
    "null sink with gc.freeze()": "traced-null-sink",
}
# The phases of a micro-batch in their order. Spark reports the duration of each.
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")

Span = dict[str, Any]


@dataclass
class Batch:
    """Times are milliseconds since the trigger."""

    number: int
    trigger_ms: float
    phases: Mapping[str, int]
    spans: list[Span] = field(default_factory=list)
    visible_ms: float | None = None
    # Milliseconds of processor time by kind of process: the mean of the counted micro-batches of this query.
    cpu_ms: Mapping[str, float] = field(default_factory=dict)

    @property
    def whole_ms(self) -> int:
        return self.phases["triggerExecution"]


def micro_batches(arena: Arena, sink: str, tasks: int, count: int, folder: Path, rows_per_batch: int) -> list[Batch]:
    servers = arena.kafka.bootstrap_servers
    topic = arena.new_topic("waterfall", PARTITIONS)
    reader = subprocess.Popen(
        [sys.executable, "-m", "bench.visible_reader", servers, topic, str(PARTITIONS), str(rows_per_batch)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    rows = arena.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows_per_batch, numPartitions=tasks)
    frame = rows.load().selectExpr("CAST(value AS STRING) AS key", "CAST(timestamp AS STRING) AS value")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(SINKS[sink]).option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", servers).option("checkpointLocation", checkpoint)
        # Micro-batches have a pause between them, as in a stream that waits for its rows.
        query = writer.trigger(processingTime="100 milliseconds").start()
        batches: dict[int, Batch] = {}
        counted_from: tuple[int, dict[str, float]] | None = None
        while len(batches) < WARM_UP + count:
            if counted_from is None and len(batches) >= WARM_UP:
                counted_from = (len(batches), cpu_by_kind(os.getpid()))
            if query.awaitTermination(0.2):
                raise SystemExit(f"{sink} ended early: {query.exception()}")
            for each in query.recentProgress:
                moment = datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00")).timestamp() * 1000
                batches[each["batchId"]] = Batch(each["batchId"], moment, each["durationMs"])
        cpu_ms: dict[str, float] = {}
        if counted_from is not None:
            since, before = counted_from
            after = cpu_by_kind(os.getpid())
            cpu_ms = {kind: (after[kind] - before[kind]) * 1000 / (len(batches) - since) for kind in after}
        query.stop()
    visible = {int(number): seen_ms for number, seen_ms in json.loads(reader.communicate()[0]).items()}
    counted = [batches[number] for number in sorted(batches)][WARM_UP : WARM_UP + count]
    for batch in counted:
        batch.cpu_ms = cpu_ms
        if batch.number in visible:
            batch.visible_ms = visible[batch.number] - batch.trigger_ms
    put_in_place(counted, list(read_spans(folder)))
    arena.kafka.delete_topic(topic)
    return counted


def read_spans(folder: Path) -> Iterator[Span]:
    for path in folder.glob("*.jsonl"):
        yield from map(json.loads, path.read_text().splitlines())
        path.unlink()


def put_in_place(batches: Sequence[Batch], spans: Sequence[Span]) -> None:
    """Assigns each span to the micro-batch during which it began."""
    for batch in batches:
        until_ms = batch.trigger_ms + batch.whole_ms + 1
        for span in spans:
            if batch.trigger_ms - 1 <= span["start"] <= until_ms:
                start_ms, end_ms = span["start"] - batch.trigger_ms, span["end"] - batch.trigger_ms
                batch.spans.append({**span, "start": start_ms, "end": end_ms})


def steps_of(batch: Batch) -> dict[str, float]:
    """The time of each step of one micro-batch. Concurrent requests of the same kind count as one."""
    found: dict[str, float] = {f"Spark: {name}": float(batch.phases.get(name, 0)) for name in PHASES}
    by_role: dict[str, list[Span]] = defaultdict(list)
    for span in batch.spans:
        by_role[span["role"]].append(span)
    writes = [span for span in by_role[TASK] if span["name"] == "write"]
    if writes:
        found["first task begun in Python"] = min(span["start"] for span in writes)
        found["last task ended in Python"] = max(span["end"] for span in writes)
    gaps = gaps_of(writes)
    if gaps:
        found["from one task to the next in a process"] = median(gaps)
    for role, whole in ((PLAN, "streamWriter()"), (TASK, "write"), (COMMIT, "commit()")):
        own = by_role[role]
        if any(span["name"] == whole for span in own):
            found[f"{role}: {whole}"] = median(span["end"] - span["start"] for span in own if span["name"] == whole)
        grouped: dict[str, list[Span]] = defaultdict(list)
        for span in own:
            if span.get("is_request"):
                grouped[span["name"]].append(span)
        for name, group in grouped.items():
            found[f"{role}: - {name}"] = _of_a_task(group) if role == TASK else _covered_ms(group)
    commits = [span for span in by_role[COMMIT] if span["name"] == "commit()"]
    if commits:
        found["commit() begun"], found["commit() ended"] = commits[-1]["start"], commits[-1]["end"]
    if batch.visible_ms is not None:
        found["last row visible"] = batch.visible_ms
    found["the whole micro-batch"] = float(batch.whole_ms)
    found |= {f"processor time: {kind}": took_ms for kind, took_ms in batch.cpu_ms.items()}
    return found


def gaps_of(writes: Sequence[Span]) -> list[float]:
    """The times between the tasks of one Python process."""
    by_process: dict[int, list[Span]] = defaultdict(list)
    for span in sorted(writes, key=lambda span: float(span["start"])):
        by_process[span["pid"]].append(span)
    return [after["start"] - before["end"] for own in by_process.values() for before, after in pairwise(own)]


def _of_a_task(spans: Sequence[Span]) -> float:
    return median(span["end"] - span["start"] for span in spans)


def _covered_ms(spans: Sequence[Span]) -> float:
    """Milliseconds in which at least one of them was open."""
    covered, until_ms = 0.0, float("-inf")
    for start_ms, end_ms in sorted((span["start"], span["end"]) for span in spans):
        covered += max(0.0, end_ms - max(start_ms, until_ms))
        until_ms = max(until_ms, end_ms)
    return covered


def lanes_of(batch: Batch) -> list[Lane]:
    lanes, at_ms = [], 0.0
    for name in PHASES:
        if name in batch.phases:
            lanes.append(Lane(f"Spark: {name}", [(at_ms, at_ms + batch.phases[name])], 0))
            at_ms += batch.phases[name]
    plans = [span for span in batch.spans if span["role"] in (PLAN, COMMIT) and span["name"] == "streamWriter()"]
    lanes.append(Lane("streamWriter() in Python", [(span["start"], span["end"]) for span in plans], 1))
    lanes += _lanes_by_name([span for span in batch.spans if span["role"] == TASK], "task: ", 2)
    lanes += _lanes_by_name([span for span in batch.spans if span["role"] == COMMIT], "", 3)
    lanes += _lanes_by_name(
        [span for span in batch.spans if span["role"] == PLAN and span.get("is_request")], "plan: ", 1
    )
    if batch.visible_ms is not None:
        lanes.append(Lane("last row visible", [(batch.visible_ms, batch.visible_ms + 1)], 4))
    return [lane for lane in lanes if lane.spans]


def _lanes_by_name(spans: Sequence[Span], before: str, colour: int) -> list[Lane]:
    grouped: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: float(span["start"])):
        grouped[span["name"]].append((span["start"], span["end"]))
    return [Lane(before + name, found, colour) for name, found in grouped.items()]


def middle(batches: Sequence[Batch]) -> Batch:
    return sorted(batches, key=lambda batch: batch.whole_ms)[len(batches) // 2]


Found = dict[int, dict[str, list[Batch]]]
# The file of figures has the others as well.
SHOWN = (
    "first task begun in Python",
    "last task ended in Python",
    "task: write",
    "commit() begun",
    "commit() ended",
    "last row visible",
    "the whole micro-batch",
    "processor time: broker",
    "processor time: Spark's JVM",
    "processor time: Python",
)


def markdown(found: Found, about: Mapping[str, str], rows: int) -> str:
    lines = ["# One micro-batch, from trigger to visible row", ""]
    lines += [f"Written by `python -m bench.waterfall`: {rows} rows per micro-batch, milliseconds, medians. A"]
    lines += ["step within commit or planning is the time in which at least one request of its kind was in flight."]
    lines += ["Those of a task are from the median task. `begun`, `ended` and `visible` count from the trigger.", ""]
    lines += [conditions(about)]
    for tasks, sinks in found.items():
        lines += ["", f"## {tasks} tasks", "", f"![waterfall](waterfall-{tasks}.svg)", ""]
        tables = {sink: _medians(batches) for sink, batches in sinks.items()}
        lines += ["| | " + " | ".join(sinks) + " |", "| --- |" + " --: |" * len(sinks)]
        for step in SHOWN:
            cells = [f"{table[step]:.1f}" if step in table else "" for table in tables.values()]
            lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _medians(batches: Sequence[Batch]) -> dict[str, float]:
    steps: dict[str, list[float]] = defaultdict(list)
    for batch in batches:
        for step, took_ms in steps_of(batch).items():
            steps[step].append(took_ms)
    return {step: median(times) for step, times in steps.items()}


def measure(arena: Arena, task_counts: Sequence[int], count: int, folder: Path, rows: int) -> tuple[Found, str]:
    """Also returns how warm it was."""
    found: Found = {tasks: {sink: [] for sink in SINKS} for tasks in task_counts}

    def run_each() -> None:
        for tasks, sink in product(task_counts[:2], SINKS):
            micro_batches(arena, sink, tasks, count, folder, rows)

    warm_up = arena.warm_up(run_each)
    for tasks in task_counts:
        for _, sink in product(range(ROUNDS), SINKS):
            batches = micro_batches(arena, sink, tasks, count, folder, rows)
            found[tasks][sink] += batches
            print(f"{tasks:3} tasks  {sink:20} {median(each.whole_ms for each in batches):6.0f} ms", flush=True)
    return found, warm_up


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.waterfall", description="Where a micro-batch's time goes.")
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 16, 64])
    parser.add_argument("--batches", type=int, default=20, help="counted micro-batches per sink and round")
    parser.add_argument(
        "--rows", type=int, default=ROWS, help="rows per micro-batch; if not 1000, the page goes to build/bench/"
    )
    parser.add_argument("--quick", action="store_true", help="8 micro-batches each, to build/bench/")
    options = parser.parse_args()
    pages, count = (PARTIAL, 8) if options.quick else (PAGES, options.batches)
    if options.rows != ROWS:
        pages = PARTIAL
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-spans-") as folder:
        os.environ[FOLDER] = folder
        with open_arena() as arena:
            for sink in (TracedSink, TracedNullSink):
                arena.spark.dataSource.register(sink)
            found, warm_up = measure(arena, options.tasks, count, Path(folder), options.rows)
    runs = f"{ROUNDS} x {count} each, alternating, each after {WARM_UP} that are not counted"
    about = {"micro-batches": runs, "warm-up": warm_up, **machine()}
    figures = {
        str(tasks): {sink: _medians(batches) for sink, batches in sinks.items()} for tasks, sinks in found.items()
    }
    publish("waterfall", markdown(found, about, options.rows), {"about": about, "ms": figures}, pages)
    for tasks, sinks in found.items():
        title = f"{tasks} tasks, {options.rows} rows, exactly once: milliseconds since the trigger"
        (pages / f"waterfall-{tasks}.svg").write_text(waterfall(title, lanes_of(middle(sinks[OURS]))))


if __name__ == "__main__":
    main()
