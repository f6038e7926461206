"""What the digest of a batch's rows costs: `python -m bench.digest_cost [--quick]`.

An exactly-once task computes a digest of its rows before it sends them (kafka_sink/formats/records/digest.py). The
benchmark compares its CPU time with the time for sending the same rows: the producer of a task, all threads of the
process, and one Apache Kafka broker. Both are measured alternately in one process. A comparison of two whole runs would
be less exact: the digest costs less than the variation from run to run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from statistics import median

import pyarrow as pa

from bench.report import PAGES, PARTIAL, conditions, machine, publish
from kafka_sink import Producer
from kafka_sink.formats.records.digest import RowDigest
from tools.kafka_cluster import KafkaCluster

TUNED = {"batch.size": 131072, "linger.ms": 5}
ROWS, BATCHES, PARTITIONS = 10_000, 20, 4
SIZES, CODECS = (100, 1000), ("none", "lz4")
Case = tuple[int, str]


def rows_of(value_bytes: int) -> pa.RecordBatch:
    values = [f'{{"id": {number}, "text": "{"abcdefgh" * (value_bytes // 8)}'[:value_bytes] for number in range(ROWS)]
    keys = [f"user-{number * 7919 % 10_000_000}" for number in range(ROWS)]
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], ["key", "value"])


def digest_us(rows: pa.RecordBatch) -> float:
    """Processor time per row."""
    digest, began_s = RowDigest(), time.process_time()
    for _ in range(BATCHES):
        digest.add(rows)
    return (time.process_time() - began_s) * 1e6 / (BATCHES * ROWS)


def send_us(producer: Producer, topic: str, rows: pa.RecordBatch) -> float:
    began_s = time.process_time()
    for _ in range(BATCHES):
        producer.send_arrow(rows, topic)
    producer.flush()
    return (time.process_time() - began_s) * 1e6 / (BATCHES * ROWS)


def measure(kafka: KafkaCluster, case: Case, rounds: int) -> tuple[float, float]:
    value_bytes, codec = case
    rows, topic = rows_of(value_bytes), kafka.create_topic(f"digest-{value_bytes}-{codec}", partitions=PARTITIONS)
    sent, added = [], []
    servers = {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": codec}
    with Producer({**servers, **TUNED}) as producer:
        send_us(producer, topic, rows)
        digest_us(rows)
        for _ in range(rounds):
            sent.append(send_us(producer, topic, rows))
            added.append(digest_us(rows))
    kafka.delete_topic(topic)
    return median(added), median(sent)


def markdown(found: Mapping[Case, tuple[float, float]], about: Mapping[str, str]) -> str:
    lines = ["# What the digest of the rows costs", ""]
    lines += ["Written by `python -m bench.digest_cost`: microseconds of processor time per row, medians.", ""]
    lines += [conditions(about), ""]
    lines += ["| rows | digest | sending | share |", "| --- | --: | --: | --: |"]
    for (value_bytes, codec), (added, sent) in found.items():
        lines.append(f"| {value_bytes} B, keyed, {codec} | {added:.4f} | {sent:.2f} | {added / sent:.1%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.digest_cost", description="Measure what the digest costs.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="3 rounds, to build/bench/")
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    with KafkaCluster() as kafka:
        found = {(size, codec): measure(kafka, (size, codec), rounds) for size in SIZES for codec in CODECS}
    about = {"rounds": str(rounds), **machine()}
    runs = [{"value_bytes": size, "codec": codec, "us": us} for (size, codec), us in found.items()]
    publish("digest-cost", markdown(found, about), {"about": about, "runs": runs}, PARTIAL if options.quick else PAGES)


if __name__ == "__main__":
    main()
