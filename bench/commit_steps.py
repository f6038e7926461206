"""Where the time of a commit goes: `python -m bench.commit_steps [--receipts N ...] [--batches N] [--quick]`.

The benchmark runs without Spark: it prepares transactions like tasks, and commits them with the driver's state machine,
against one Apache Kafka broker. A step is the time from a request to its answer; concurrent steps of the same kind
count as one. Different kinds overlap, so the steps of a commit add up to more than the whole. Every second commit waits
until readers see its rows, as with commit.visible.timeout.ms.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from bench.report import PAGES, PARTIAL, conditions, machine, publish
from kafka_sink import Producer
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.committer import Committer, Progress
from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.kafka.client.ask import Reply
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.sink_options import TopicPlan
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import VERSIONS

SINK, RUN, TOPIC, LEDGER = "steps", "1" * 16, "steps", "ledger"
PARTITIONS, ROWS, TIMEOUT_MS, WARM_UP = 4, 100, 300_000, 3
WHOLE, TASK, PLAIN = "the whole commit", "task: identity, rows, prepared", "task: rows alone, at least once"
# With commit.visible.timeout.ms.
SEEN, VISIBLE_MS, STABLE = "the whole commit, until readers see it", 5_000, "last stable offsets"

Times = dict[str, list[float]]


class Clocked:
    """A committer that records how long each kind of request waits for its answers."""

    def __init__(self, committer: Committer, times: Times) -> None:
        self._committer = committer
        self._times = times
        self._asked_s: dict[str, float] = {}
        self._out: dict[str, int] = defaultdict(int)

    def step(self, now_ms: int, answers: Sequence[Reply]) -> Progress:
        for answer in answers:
            purpose = answer.ask.purpose
            self._out[purpose] -= 1
            if not self._out[purpose]:
                self._times[purpose].append((time.perf_counter() - self._asked_s[purpose]) * 1000)
        progress = self._committer.step(now_ms, answers)
        for request in progress.asks:
            purpose = request.purpose
            if not self._out[purpose]:
                self._asked_s[purpose] = time.perf_counter()
            self._out[purpose] += 1
        return progress


class Bench:
    def __init__(self, servers: str) -> None:
        common = {"bootstrap.servers": servers, "linger.ms": 0}
        first = {"transactional.id": f"{SINK}-first", "transaction.timeout.ms": TIMEOUT_MS}
        self._producer = Producer({**common, **first})
        self._plain = Producer(common)
        self._client = Client(parse_producer_options(common))
        self._client.create_topic(TOPIC, TopicPlan(PARTITIONS, 1))
        self._client.create_topic(LEDGER, TopicPlan(1, 1, (("cleanup.policy", "compact"),)))
        self._settings = DeliverySettings(
            ledger_topic=LEDGER,
            transaction_version=self._client.transaction_support(is_sweeping=False).transaction_version,
        )
        self._session = DriverSession(SINK, RUN)
        self._attempts = itertools.count()
        self._batches = itertools.count()

    def close(self) -> None:
        for each in (self._producer, self._plain, self._client):
            each.close()

    def batch(self, receipt_count: int, times: Times, *, waits_for_readers: bool = False) -> None:
        key = BatchKey("query", next(self._batches))
        receipts = [self._task(key, number, times) for number in range(receipt_count)]
        began_s = time.perf_counter()
        job = Job(DriverOperation.COMMIT, key, receipts, wall_ms=1, age_max_ms=0)
        settings = replace(self._settings, visible_ms=VISIBLE_MS) if waits_for_readers else self._settings
        committer = Committer(settings, self._session, job, self._client.now_ms())
        verdict = self._client.run(Clocked(committer, times))
        if verdict.error is not None:
            raise verdict.error
        times[WHOLE].append((time.perf_counter() - began_s) * 1000)

    def _task(self, key: BatchKey, number: int, times: Times) -> TaskReceipt:
        """Works like a task whose process has a producer already."""
        partition, attempt = number % PARTITIONS, next(self._attempts)
        began_s = time.perf_counter()
        for _ in range(ROWS):
            self._plain.send(TOPIC, value=b"x" * 100, partition=partition)
        self._plain.flush()
        plain_s = time.perf_counter()
        self._producer.start_over(TaskIdentity(SINK, RUN, number, attempt).transactional_id)
        self._producer.init_transactions()
        self._producer.begin_transaction()
        for _ in range(ROWS):
            self._producer.send(TOPIC, value=b"x" * 100, partition=partition)
        self._producer.flush()
        found = self._producer.prepare_transaction()
        times[PLAIN].append((plain_s - began_s) * 1000)
        times[TASK].append((time.perf_counter() - plain_s) * 1000)
        last_offset = found.last_offsets[TOPIC, partition]
        transaction = PreparedTransaction(
            found.transactional_id, found.producer_id, found.producer_epoch, found.transaction_version
        )
        written = WrittenPartition(TOPIC, partition, ROWS, last_offset - ROWS + 1, last_offset)
        return TaskReceipt(key, RUN, number, attempt, transaction, TIMEOUT_MS, TIMEOUT_MS, (written,), row_count=ROWS)


def measure(servers: str, receipt_counts: Sequence[int], batches: int) -> Iterator[tuple[int, Times]]:
    bench = Bench(servers)
    try:
        for receipt_count in receipt_counts:
            for _ in range(WARM_UP):
                bench.batch(receipt_count, defaultdict(list))
            times: Times = defaultdict(list)
            seen: Times = defaultdict(list)
            for _ in range(batches):
                bench.batch(receipt_count, times)
                bench.batch(receipt_count, seen, waits_for_readers=True)
            yield receipt_count, {**times, STABLE: seen[STABLE], SEEN: seen[WHOLE]}
    finally:
        bench.close()


def markdown(found: Mapping[int, Times], about: Mapping[str, str]) -> str:
    lines = ["# Where the time of a commit goes", ""]
    lines += ["Written by `python -m bench.commit_steps`: milliseconds, median (90th percentile), without Spark.", ""]
    lines += [conditions(about), ""]
    lines += ["| step | " + " | ".join(f"{count} receipts" for count in found) + " |"]
    lines += ["| --- |" + " --: |" * len(found)]
    steps = dict.fromkeys(step for times in found.values() for step in times)
    for step in steps:
        lines.append(f"| {step} | " + " | ".join(_cell(times.get(step, [])) for times in found.values()) + " |")
    return "\n".join(lines) + "\n"


def _cell(times: Sequence[float]) -> str:
    return f"{median(times):.1f} ({sorted(times)[len(times) * 9 // 10]:.1f})" if times else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.commit_steps", description="Where a commit's time goes.")
    parser.add_argument("--receipts", type=int, nargs="+", default=[2, 16, 64, 200])
    parser.add_argument("--batches", type=int, default=20, help="counted commits per number of receipts")
    parser.add_argument("--quick", action="store_true", help="5 commits each, to build/bench/")
    options = parser.parse_args()
    with KafkaCluster(VERSIONS[0], 1) as kafka:
        batches = 5 if options.quick else options.batches
        found = dict(measure(kafka.bootstrap_servers, options.receipts, batches))
    about = {"commits": f"{batches} each", **machine()}
    # Figures of tasks are left out, because there are thousands; the page has their median.
    rounded = {
        str(count): {step: [round(each, 1) for each in own] for step, own in times.items() if step not in (TASK, PLAIN)}
        for count, times in found.items()
    }
    figures = {"about": about, "ms": rounded}
    publish("commit-steps", markdown(found, about), figures, PARTIAL if options.quick else PAGES)


if __name__ == "__main__":
    main()
