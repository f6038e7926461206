"""From a row's creation to a read_committed reader: `python -m bench.latency [--rates N ...] [--seconds N]`.

One process creates rows at a constant rate and writes them to a Kafka topic; each row contains its creation time. A
Spark query reads them and writes them to a second topic, with micro-batches at full speed. Another process reads the
second topic with a different client, committed rows only, and records the age of each row when it arrives. The first
topic and Spark's own source are part of the path, the same for every sink.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition

from bench.chart import curves
from bench.report import PAGES, conditions, machine, publish
from bench.spark_arena import Arena, open_arena
from kafka_sink import Producer, foreach_batch
from tools.foreign_reader import end_offsets

PARTITIONS = 4
TICK_S = 0.01
ROW_BYTES, STAMP_DIGITS = 100, 13
WARM_UP_S = 8.0
# `foreach_batch` has no format.
SINKS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "ours, exactly once": ("pykafka-sink", {}),
    "second door": ("", {}),
    "ours, at least once": ("pykafka-sink", {"delivery.guarantee": "at-least-once"}),
    "Spark's own sink": ("kafka", {}),
}
SHARES = (*range(1, 100), 99.5, 99.9)
Ages = dict[tuple[int, str], list[float]]


def make_rows(bootstrap_servers: str, topic: str, rows_per_s: int, stop: Event) -> None:
    padding = b"." * (ROW_BYTES - STAMP_DIGITS)
    with Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0}) as producer:
        started_s, made = time.monotonic(), 0
        while not stop.is_set():
            count = int((time.monotonic() - started_s) * rows_per_s) - made
            if count > 0:
                value = b"%d%s" % (time.time() * 1000, padding)
                rows = pa.RecordBatch.from_arrays([pa.array([value] * count, pa.binary())], ["value"])
                producer.send_arrow(rows, topic)
                made += count
            time.sleep(TICK_S)


def read_ages(bootstrap_servers: str, topic: str, counted: Event, stop: Event, found: Queue[list[float]]) -> None:
    """Puts into `found` the percentiles `SHARES` of the ages of all rows that arrive while `counted` is set."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "ages", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ages = []
    while not stop.is_set():
        messages = consumer.consume(10_000, timeout=0.005)
        if messages and counted.is_set():
            now_ms = time.time() * 1000
            ages.append(now_ms - np.array([int(message.value()[:STAMP_DIGITS]) for message in messages]))
    consumer.close()
    found.put(np.percentile(np.concatenate(ages), SHARES).tolist() if ages else [])


def ages_of(arena: Arena, sink: str, rows_per_s: int, seconds: float) -> list[float]:
    context = get_context("spawn")
    servers = arena.kafka.bootstrap_servers
    source, target = arena.new_topic("from", PARTITIONS), arena.new_topic("to", PARTITIONS)
    counted, stop, found = context.Event(), context.Event(), context.Queue()
    maker = context.Process(target=make_rows, args=(servers, source, rows_per_s, stop))
    reader = context.Process(target=read_ages, args=(servers, target, counted, stop, found))
    rows = arena.spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    frame = rows.option("subscribe", source).option("startingOffsets", "earliest").load().select("value")
    format_name, options = SINKS[sink]
    with tempfile.TemporaryDirectory() as checkpoint:
        given = {**options, "kafka.bootstrap.servers": servers, "topic": target, "checkpointLocation": checkpoint}
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        query = (
            writer.format(format_name).options(**given) if format_name else writer.foreachBatch(foreach_batch(given))
        ).start()
        # Rows created while Spark starts would be a backlog.
        while query.lastProgress is None and query.exception() is None:
            time.sleep(0.1)
        maker.start()
        reader.start()
        # The warm-up begins when the first rows have arrived: on a busy machine the processes may start slowly.
        while not sum(end_offsets(servers, target).values()):
            time.sleep(0.1)
        time.sleep(WARM_UP_S)
        counted.set()
        time.sleep(seconds)
        stop.set()
        ages: list[float] = found.get(timeout=60)
        maker.join()
        reader.join()
        error = query.exception()
        if error is None:
            # If the query is stopped while a task runs, the task keeps its core and waits for rows of a deleted topic.
            query.processAllAvailable()
        query.stop()
    for topic in (source, target):
        arena.kafka.delete_topic(topic)
    if error is not None or not ages:
        raise SystemExit(f"{sink} at {rows_per_s} rows/s showed no rows: {error}")
    return ages


def measure(arena: Arena, rates: Sequence[int], seconds: float) -> tuple[Ages, str]:
    """Also returns how warm it was."""
    found: Ages = {}

    def run_each() -> None:
        for sink in SINKS:
            ages_of(arena, sink, rates[len(rates) // 2], seconds)

    warm_up = arena.warm_up(run_each)
    for rows_per_s in rates:
        for sink in SINKS:
            ages = found[rows_per_s, sink] = ages_of(arena, sink, rows_per_s, seconds)
            print(f"{rows_per_s:8,} rows/s  {sink:20} {_three(ages)} ms (p50, p95, p99)", flush=True)
    return found, warm_up


def markdown(found: Ages, about: Mapping[str, str]) -> str:
    lines = ["# How old a row is when a reader sees it", "", "Written by `python -m bench.latency`. Milliseconds from"]
    lines += ["the creation of a row to its arrival at a read_committed reader, through a first topic, Spark's Kafka"]
    lines += ["source and the sink; no pause between micro-batches, 4 partitions, rows of 100 bytes: p50, p95, p99."]
    lines += ["", "![share of rows by age](latency.svg)", ""]
    lines += ["| rows/s | " + " | ".join(SINKS) + " |", "| --: |" + " --: |" * len(SINKS)]
    for rows_per_s in sorted({rate for rate, _ in found}):
        cells = [_three(found[rows_per_s, sink]) for sink in SINKS]
        lines.append(f"| {rows_per_s:,} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", conditions(about)]) + "\n"


def _three(ages: Sequence[float]) -> str:
    return ", ".join(f"{ages[SHARES.index(share)]:,.0f}" for share in (50, 95, 99))


def chart(found: Ages) -> str:
    panels = []
    for rows_per_s in sorted({rate for rate, _ in found}):
        lines = {sink: list(zip(found[rows_per_s, sink], SHARES, strict=True)) for sink in SINKS}
        panels.append((f"{rows_per_s:,} rows/s: % of rows visible", "ms since the row was created", lines))
    return curves(panels)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description="Latency from row to reader.")
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="rows per second")
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    with open_arena() as arena:
        found, warm_up = measure(arena, options.rates, options.seconds)
    about = {"measured for": f"{options.seconds:g} s each, after {WARM_UP_S:g} s", "warm-up": warm_up, **machine()}
    runs = [{"rows_per_s": rate, "sink": sink, "percentiles": ages} for (rate, sink), ages in found.items()]
    publish("latency", markdown(found, about), {"about": about, "shares": SHARES, "runs": runs})
    (PAGES / "latency.svg").write_text(chart(found))


if __name__ == "__main__":
    main()
