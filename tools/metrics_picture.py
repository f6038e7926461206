"""Draws docs/metrics-dashboard.svg from the metrics of a run: `python -m tools.metrics_picture [--seconds N] [file]`.

Two sinks write batches into an embedded broker, which sometimes answers with an error; some rows are dead letters.
Every half second the metrics are read as Prometheus would read them, and the main panels of conf/grafana are drawn from
these values. They are real: another run gives another picture.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from kafka_sink.producer.pool import POOL
from kafka_sink.telemetry.metrics.store import read_streams
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures
from kafka_sink.testing import EmbeddedBroker, Fault
from pyspark_pykafka_sink import DefaultSource
from tools.worker_environment import worker_environment

PATH = Path(__file__).parent.parent / "docs" / "metrics-dashboard.svg"
SINKS = ("orders", "clicks")
NOT_LEADER, LOOK_S = 6, 0.5
WIDTH, PANEL_WIDTH, PANEL_HEIGHT, GAP, TOP = 960, 304, 170, 16, 60
COLOURS = {"orders": "#1f77b4", "clicks": "#d95f02", "all": "#2ca02c"}
SCHEMA = StructType().add("value", StringType()).add("topic", StringType())


class Point(NamedTuple):
    at_s: float
    streams: dict[str, StreamFigures]


class Line(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=int, default=30)
    arguments.add_argument("file", nargs="?", type=Path, default=PATH)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(worker_environment(folder))
        seen = _run(folder, given.seconds)
    given.file.write_text(_draw(seen), encoding="utf-8")
    sys.stdout.write(f"{given.file}: {len(seen)} readings in {given.seconds} s\n")


# ---- the run ---------------------------------------------------------------------------------------------------------


def _run(folder: str, seconds: int) -> list[Point]:
    chance = random.Random(7)
    seen: list[Point] = []
    is_over = threading.Event()
    topics = {**dict.fromkeys(SINKS, 4), "letters": 1}

    def look() -> None:
        began_s = time.monotonic()
        while not is_over.wait(LOOK_S):
            streams = {stream.sink: stream for stream in read_streams(os.path.join(folder, "pykafka-sink"))}
            seen.append(Point(time.monotonic() - began_s, streams))

    looker = threading.Thread(target=look)
    with EmbeddedBroker(1, topics=topics) as broker:
        looker.start()
        until_s, number = time.monotonic() + seconds, 0
        while time.monotonic() < until_s:
            number += 1
            if chance.random() < 0.2:
                broker.inject(Fault("Produce", error_code=NOT_LEADER, topic=chance.choice(SINKS)))
            for sink in SINKS:
                _write(broker.bootstrap_servers, sink, number, chance)
        is_over.set()
        looker.join()
    POOL.close()
    return seen


def _write(servers: str, sink: str, number: int, chance: random.Random) -> None:
    context: Any = TaskContext._getOrCreate()
    context._partitionId, context._taskAttemptId, context._attemptNumber = 0, number, 0
    context._localProperties = {}
    TaskContext._setTaskContext(context)
    options = {
        "kafka.bootstrap.servers": servers, "sink.id": sink, "batch.id": f"batch-{number}", "metrics.enabled": "true",
        "record.errors": "dead-letter", "dead.letter.topic": "letters", "kafka.compression.type": "lz4",
    }  # fmt: skip
    count = chance.randrange(2_000, 20_000)
    topics = [sink if chance.random() > 0.0001 else "no such topic" for _ in range(count)]
    values = pa.array([f"{row:0100d}" for row in range(count)])
    rows = pa.RecordBatch.from_arrays([values, pa.array(topics)], ["value", "topic"])
    writer = DefaultSource(options).writer(SCHEMA, False)
    writer.commit(pickle.loads(pickle.dumps([writer.write(iter([rows]))])))


# ---- the picture -----------------------------------------------------------------------------------------------------


def _draw(seen: Sequence[Point]) -> str:
    newest = seen[-1].streams
    tiles = (
        ("Rows delivered", f"{sum(each.value('rows') for each in newest.values()):,.0f}"),
        ("Batches", f"{sum(each.value('batches') for each in newest.values()):,.0f}"),
        ("Dead letters", f"{sum(each.value('dead_letters') for each in newest.values()):,.0f}"),
        ("Open decisions", f"{sum(each.value('open_decisions') for each in newest.values()):,.0f}"),
    )
    panels = (
        ("Rows per second", [_rate(seen, sink, "rows") for sink in SINKS]),
        ("Bytes per second, as sent", [_rate(seen, sink, "record_batch_bytes") for sink in SINKS]),
        ("Records sent again per second", [_rate(seen, sink, "retried_records") for sink in SINKS]),
        ("Time of a commit, average in ms", [_mean(seen, sink, "commit_seconds") for sink in SINKS]),
        ("Time of a batch, average in ms", [_mean(seen, sink, "batch_seconds") for sink in SINKS]),
        ("Time of a task's send, average in ms", [_mean(seen, sink, "task_send_seconds") for sink in SINKS]),
    )
    height = TOP + 2 * (PANEL_HEIGHT + GAP) + 84
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#f6f7f9"/>',
        '<text x="16" y="32" font-size="20" font-weight="bold">pykafka-sink</text>',
        "<style>text { font-family: sans-serif }</style>",
    ]
    for at, (title, text) in enumerate(tiles):
        x = 16 + at * (216 + GAP)
        parts.append(f'<rect x="{x}" y="{TOP - 10}" width="216" height="64" fill="#fff" stroke="#ddd"/>')
        parts.append(f'<text x="{x + 10}" y="{TOP + 8}" fill="#555">{title}</text>')
        parts.append(f'<text x="{x + 10}" y="{TOP + 40}" font-size="24" fill="#222">{text}</text>')
    for at, (title, lines) in enumerate(panels):
        x, y = 16 + at % 3 * (PANEL_WIDTH + 8), TOP + 70 + at // 3 * (PANEL_HEIGHT + GAP)
        parts += _panel(title, lines, x, y)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(title: str, lines: Sequence[Line], x: int, y: int) -> list[str]:
    most = max((value for line in lines for _, value in line.points), default=0) or 1
    last_s = max((at_s for line in lines for at_s, _ in line.points), default=0) or 1
    left, top, width, height = x + 56, y + 30, PANEL_WIDTH - 70, PANEL_HEIGHT - 62
    parts = [
        f'<rect x="{x}" y="{y}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="#fff" stroke="#ddd"/>',
        f'<text x="{x + 10}" y="{y + 18}" font-weight="bold" fill="#333">{escape(title)}</text>',
    ]
    for share in (0, 0.5, 1):
        at = top + height - share * height
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" stroke="#eee"/>')
        parts.append(
            f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end" fill="#777">{_short(most * share)}</text>'
        )
    parts.append(
        f'<text x="{left + width}" y="{y + PANEL_HEIGHT - 16}" text-anchor="end" fill="#777">{last_s:.0f} s</text>'
    )
    for at, line in enumerate(lines):
        places = " ".join(
            f"{left + at_s / last_s * width:.1f},{top + height - value / most * height:.1f}"
            for at_s, value in line.points
        )
        colour = COLOURS[line.name]
        parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + at * 70}" y="{y + PANEL_HEIGHT - 16}" fill="{colour}">{line.name}</text>')
    return parts


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}" if value >= 10 or not value else f"{value:.1f}"


def _over_time(seen: Sequence[Point], sink: str, measure: Callable[[Point, Point], float | None]) -> Line:
    """Compares each reading with the fourth one before it."""
    pairs = zip(seen, seen[4:], strict=False)
    found = [(new.at_s, measure(old, new)) for old, new in pairs if sink in old.streams and sink in new.streams]
    return Line(sink, [(at_s, value) for at_s, value in found if value is not None])


def _rate(seen: Sequence[Point], sink: str, name: str) -> Line:
    def measure(old: Point, new: Point) -> float:
        return (new.streams[sink].value(name) - old.streams[sink].value(name)) / (new.at_s - old.at_s)

    return _over_time(seen, sink, measure)


def _mean(seen: Sequence[Point], sink: str, name: str) -> Line:
    def measure(old: Point, new: Point) -> float | None:
        (old_counts, old_sum), (new_counts, new_sum) = (each.streams[sink].histograms[name] for each in (old, new))
        count = sum(new_counts) - sum(old_counts)
        return (new_sum - old_sum) / count * 1000 if count else None

    return _over_time(seen, sink, measure)


if __name__ == "__main__":
    main()
