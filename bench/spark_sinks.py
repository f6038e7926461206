"""Comparison of Spark sinks: `python -m bench.spark_sinks [--quick] [--shapes] [--case NAME ...] [--only NAME ..]`.

With `--shapes --again` the chosen cases are measured again and replaced in the page; the other cases stay.

Each sink writes in its own Spark application (spark_application.py); all write to one Kafka node. The applications take
turns: each round runs every sink once in the same case, in changing order, while the others are idle. The first rounds
are not counted: they warm up the JVM, the Python workers and the broker. A JVM becomes faster until about its fourth
write of a case.

After each write the topic's offsets are compared with the written rows, so that the benchmark need not trust a sink.

The null sink is a Python sink that receives the same Arrow batches and discards them: its speed is the upper limit for
every sink in Python. `--shapes` compares three sinks on many more shapes of rows and topics.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.contest import BROKER_JVM, BROKER_PROPERTIES, log_length
from bench.process_tree import BROKER, JVM, PYTHON, cpu_by_kind
from bench.report import PAGES, PARTIAL, conditions, machine, publish
from bench.spark_application import EXACTLY, JAVA, NULL, SINKS, Sink, Written
from bench.spark_arena import new_topic
from bench.spark_cases import CASES, SHAPES, Case
from bench.spark_figures import Result, figures
from kafka_sink import Producer
from tools.kafka_cluster import KafkaCluster

SHAPES_SINKS = (EXACTLY, JAVA, NULL)
AGAIN = "measured in a later run"
CONDITIONS = (
    "Ratios are computed from medians within one run. CPU is microseconds per row: all Python workers + Spark's JVM. "
    "Every sink has its own application, with Unix domain sockets on and Arrow batches of at most 4 MB."
)
# From so many partitions on all runs of a case share a topic: the first record of a partition takes a broker 30 ms.
WIDE_PARTITIONS, OPENING_MS = 500, 600_000


# ---- applications and topics -----------------------------------------------------------------------------------------


class Application:
    """The other end of spark_application.py."""

    def __init__(self, sink: Sink, servers: str) -> None:
        command = [sys.executable, "-m", "bench.spark_application", sink.name, servers]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer("ready")

    def write(self, case: Case, topic: str) -> Written:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"case": asdict(case), "topic": topic}) + "\n")
        self._process.stdin.flush()
        return Written(**json.loads(self._answer("{")))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _answer(self, start: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(start):
                return line
        raise SystemExit(f"the application ended with {self._process.wait()}")


class Arena:
    """A Kafka node, an application for each sink, and one run of one sink among them."""

    def __init__(self, kafka: KafkaCluster, applications: Mapping[str, Application]) -> None:
        self._kafka = kafka
        self._applications = applications
        self._topic_count = 0
        self._wide_topics: dict[int, str] = {}

    def run(self, sink: Sink, case: Case) -> Result:
        servers = self._kafka.bootstrap_servers
        is_wide = case.partitions >= WIDE_PARTITIONS
        topic = self._wide_topic(case.partitions) if is_wide else self._new_topic(sink.name, case.partitions)
        log_before = log_length(servers, topic, case.partitions) if is_wide else 0
        broker_before, started = self._broker_seconds(), time.monotonic()
        try:
            written = self._applications[sink.name].write(case, topic)
            broker = (self._broker_seconds() - broker_before) / (time.monotonic() - started) / (os.cpu_count() or 1)
            logged = log_length(servers, topic, case.partitions) - log_before
        finally:
            if not is_wide:
                self._kafka.delete_topic(topic)
        # Each transaction marker takes an offset: one per task and partition that the task wrote to.
        expected = 0 if sink.name == NULL else written.rows
        if not expected <= logged <= expected + 16 * case.partitions:
            raise SystemExit(f"{sink.name} should have written {expected} rows in {case.name}; the log has {logged}")
        cpu = written.cpu
        return Result(
            sink.name, case.name, written.rows, written.seconds, cpu[PYTHON], cpu[JVM], broker, written.peak_rss_bytes
        )

    def _broker_seconds(self) -> float:
        return cpu_by_kind(os.getpid())[BROKER]

    def _new_topic(self, name: str, partitions: int) -> str:
        self._topic_count += 1
        return new_topic(self._kafka, f"{self._topic_count}-{name}", partitions)

    def _wide_topic(self, partitions: int) -> str:
        """A topic with a record in each partition. The first call creates it."""
        if partitions not in self._wide_topics:
            topic = self._wide_topics[partitions] = self._new_topic("wide", partitions)
            times = {"request.timeout.ms": OPENING_MS, "delivery.timeout.ms": 2 * OPENING_MS}
            with Producer({"bootstrap.servers": self._kafka.bootstrap_servers, **times}) as producer:
                futures = [producer.send(topic, b"first", partition=number) for number in range(partitions)]
                for future in futures:
                    future.result()
        return self._wide_topics[partitions]


@contextmanager
def open_arena(sinks: Sequence[Sink]) -> Iterator[Arena]:
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaCluster(properties=BROKER_PROPERTIES, jvm_options=BROKER_JVM))
        applications = {}
        for sink in sinks:
            applications[sink.name] = application = Application(sink, kafka.bootstrap_servers)
            stack.callback(application.close)
        yield Arena(kafka, applications)


def run(arena: Arena, sinks: Sequence[Sink], cases: Sequence[Case], *, repetitions: int, warm_up: int) -> list[Result]:
    results = []
    for case in cases:
        # Rounds of one case follow each other, so that its rows are cached once.
        for repetition in range(1 - warm_up, repetitions + 1):
            # The order changes: the first sink writes while the broker deletes the last topic of the round before.
            first = repetition % len(sinks)
            for sink in (*sinks[first:], *sinks[:first]):
                result = arena.run(sink, case)
                if repetition >= 1:
                    results.append(result)
                    print(
                        f"{time.strftime('%H:%M:%S')} {repetition}/{repetitions} {case.name:25} {sink.name:14}"
                        f"{result.rate:12,.0f} rows/s {result.python_cpu_seconds / result.rows * 1e6:8.2f} us Python "
                        f"{result.jvm_cpu_seconds / result.rows * 1e6:8.2f} us JVM",
                        flush=True,
                    )
    return results


# ---- every sink in few cases -----------------------------------------------------------------------------------------


def cases_page(sinks: Sequence[Sink], cases: Sequence[Case], results: Sequence[Result]) -> list[str]:
    lines = ["# Spark sinks compared", "", f"Written by `python -m bench.spark_sinks`. {CONDITIONS}"]
    lines += ["The last column is the broker's share of the whole machine's CPU during the write."]
    for case in cases:
        java, ceiling = figures(JAVA, case, results), figures(NULL, case, results)
        if java is None:
            continue
        lines += ["", f"## {case.name}: {case.rows:,} rows, {case.partitions} partitions", ""]
        lines += [
            "| sink | rows/s | min..max | to Spark's own | to ceiling | CPU us/row | to Spark's own | broker |",
            "| --- | --: | --: | --: | --: | --: | --: | --: |",
        ]
        for sink in sinks:
            own = figures(sink.name, case, results)
            if own is None:
                continue
            share = f"{own.rate / ceiling.rate:.2f}" if ceiling else ""
            lines.append(
                f"| {sink.title} | {_thousands(own.rate)} | {own.rate_min / 1e3:,.0f}..{_thousands(own.rate_max)} "
                f"| {own.rate / java.rate:.2f} | {share} | {own.python_us:.2f} + {own.jvm_us:.2f} "
                f"| {own.cpu_us / java.cpu_us:.2f} | {own.broker_share:.0%} |"
            )
    return lines


# ---- few sinks in every shape ----------------------------------------------------------------------------------------


def shapes_page(cases: Sequence[Case], results: Sequence[Result]) -> list[str]:
    lines = ["# Shapes of rows and topics", "", f"Written by `python -m bench.spark_sinks --shapes`. {CONDITIONS}"]
    lines += ["Ours delivers exactly once; Spark's own sink, tuned alike, delivers at least once. 4 partitions and"]
    lines += ["2 tasks unless the name says otherwise.", "", "![ratios to Spark's own sink](../pictures/speed.svg)", ""]
    lines += [
        "| shape | rows | ours, rows/s | Spark's own | ratio | to ceiling | ours, us/row | Spark's own | CPU ratio |",
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for case in cases:
        ours, java, ceiling = (figures(sink, case, results) for sink in SHAPES_SINKS)
        if ours and java and ceiling:
            lines.append(
                f"| {case.name} | {case.rows:,} | {_thousands(ours.rate)} | {_thousands(java.rate)} "
                f"| {ours.rate / java.rate:.2f} | {ours.rate / ceiling.rate:.2f} "
                f"| {ours.python_us:.2f} + {ours.jvm_us:.2f} | {java.cpu_us:.2f} | {ours.cpu_us / java.cpu_us:.2f} |"
            )
    return lines


def _thousands(number: float) -> str:
    return f"{number / 1e3:,.0f} k"


def write(folder: Path, name: str, lines: Sequence[str], about: Mapping[str, Any], results: Sequence[Result]) -> None:
    foot = ["", conditions(about)]
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
    with open_arena(sinks) as arena:
        results = run(arena, sinks, cases, repetitions=repetitions, warm_up=warm_up)
    about = {"runs": f"{repetitions} each, alternating, after {warm_up} for warm-up", **machine()}
    if options.again:
        known = json.loads((PAGES / "spark-shapes.json").read_text())
        kept = [Result(**each) for each in known["runs"] if each["case"] not in options.case]
        before = known["about"].get(AGAIN, "").split(", ")
        again = [case.name for case in SHAPES if case.name in (*before, *options.case)]
        about = {**known["about"], **about, AGAIN: ", ".join(again)}
        cases, results = SHAPES, [*kept, *results]
    is_whole = options.again or not (options.case or options.only or options.quick)
    folder = PAGES if is_whole else PARTIAL
    if options.shapes:
        write(folder, "spark-shapes", shapes_page(cases, results), about, results)
    else:
        write(folder, "spark-sinks", cases_page(sinks, cases, results), about, results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_sinks", description="Compare Spark's Kafka sinks.")
    parser.add_argument("--quick", action="store_true", help="two rounds, without the slowest sinks")
    parser.add_argument("--shapes", action="store_true", help="three sinks on many shapes")
    parser.add_argument("--again", action="store_true", help="replace the cases of --shapes --case in the page")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--case", nargs="+", choices=[case.name for case in SHAPES])
    parser.add_argument("--only", nargs="+", choices=[sink.name for sink in SINKS])
    options = parser.parse_args()
    if options.again and (not options.shapes or not options.case or options.only or options.quick):
        parser.error("--again needs --shapes and --case, and all sinks")
    return options


if __name__ == "__main__":
    main()
