"""`make demo`: produce with this package, read everything back with somebody else's client.

Starts the embedded broker in a process of its own; `BROKER=kafka` starts Apache Kafka instead (needs Java and Maven),
`BOOTSTRAP=host:port` uses one of yours. Writes 200,000 rows as Arrow columns, some records one by one, a committed and
an aborted transaction; then counts, with confluent-kafka and isolation read_committed, what arrived, what is missing
and what is there twice. The exit code says whether all of it is right.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs do not re-export it

from kafka_sink import Producer
from tools.foreign_reader import scan_topic
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import KafkaUnavailable

ARROW_ROWS = 200_000
ROWS_PER_CALL = 10_000
SINGLE_RECORDS = 2_000
TRANSACTION_ROWS = 10_000
PARTITIONS = 4
TIMEOUT_S = 60


@dataclass(frozen=True)
class Step:
    """What one part of the demo wrote: its keys, and how long it took until all of them were acknowledged."""

    name: str
    prefix: str
    row_count: int
    is_visible: bool
    seconds: float


def key_of(prefix: str, number: int) -> bytes:
    return f"{prefix}-{number:08d}".encode()


def rows(prefix: str, start: int, stop: int) -> pa.RecordBatch:
    keys = [key_of(prefix, number) for number in range(start, stop)]
    values = [
        b'{"row":%d,"text":"a hundred bytes of something that looks like an event from a stream"}' % number
        for number in range(start, stop)
    ]
    return pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})


def write_arrow(producer: Producer, topic: str) -> Step:
    batches = [rows("arrow", start, start + ROWS_PER_CALL) for start in range(0, ARROW_ROWS, ROWS_PER_CALL)]
    started = time.perf_counter()
    for batch in batches:
        producer.send_arrow(batch, topic=topic)
    producer.flush(timeout_s=TIMEOUT_S)
    return Step("send_arrow()", "arrow", ARROW_ROWS, True, time.perf_counter() - started)


def write_single(producer: Producer, topic: str) -> Step:
    started = time.perf_counter()
    futures = [
        producer.send(topic, key=key_of("single", number), value=b"one by one", headers=[("number", b"%d" % number)])
        for number in range(SINGLE_RECORDS)
    ]
    for future in futures:
        future.result(timeout=TIMEOUT_S)
    return Step("send()", "single", SINGLE_RECORDS, True, time.perf_counter() - started)


def write_transaction(producer: Producer, topic: str, *, prefix: str, commit: bool) -> Step:
    batch = rows(prefix, 0, TRANSACTION_ROWS)
    started = time.perf_counter()
    producer.begin_transaction()
    producer.send_arrow(batch, topic=topic)
    if commit:
        producer.commit_transaction()
    else:
        producer.flush(timeout_s=TIMEOUT_S)
        producer.abort_transaction()
    name = "transaction, committed" if commit else "transaction, aborted"
    return Step(name, prefix, TRANSACTION_ROWS, commit, time.perf_counter() - started)


def produce(servers: str, topic: str) -> list[Step]:
    options = {"bootstrap.servers": servers, "compression.type": "lz4", "linger.ms": 5}
    with Producer(options) as producer:
        steps = [write_arrow(producer, topic), write_single(producer, topic)]
    with Producer({**options, "transactional.id": f"demo-{uuid.uuid4()}"}) as producer:
        producer.init_transactions()
        steps.append(write_transaction(producer, topic, prefix="committed", commit=True))
        steps.append(write_transaction(producer, topic, prefix="aborted", commit=False))
    return steps


def count_keys(servers: str, topic: str) -> dict[bytes, int]:
    counts: dict[bytes, int] = {}
    for record in scan_topic(servers, topic):
        key = record.key or b""
        counts[key] = counts.get(key, 0) + 1
    return counts


def report(steps: list[Step], counts: dict[bytes, int]) -> bool:
    """Print the table; True if every step is exactly as it should be."""
    print(f"{'':24}{'written':>10}{'visible':>10}{'missing':>9}{'twice':>7}{'unwanted':>10}{'rows/s':>12}")
    is_right = True
    for step in steps:
        keys = [key_of(step.prefix, number) for number in range(step.row_count)]
        visible = sum(key in counts for key in keys)
        twice = sum(counts.get(key, 0) > 1 for key in keys)
        missing = step.row_count - visible if step.is_visible else 0
        unwanted = 0 if step.is_visible else visible
        rate = f"{step.row_count / step.seconds:,.0f}"
        print(f"{step.name:24}{step.row_count:>10,}{visible:>10,}{missing:>9,}{twice:>7,}{unwanted:>10,}{rate:>12}")
        is_right = is_right and missing == twice == unwanted == 0
    return is_right


@contextlib.contextmanager
def broker() -> Iterator[str]:
    named = os.environ.get("BOOTSTRAP")
    kind = os.environ.get("BROKER", "embedded")
    if named:
        yield named
    elif kind == "kafka":
        with KafkaCluster() as kafka:
            print(f"Apache Kafka {kafka.version} runs on {kafka.bootstrap_servers}")
            yield kafka.bootstrap_servers
    elif kind == "embedded":
        with embedded_broker() as servers:
            print(f"the embedded broker runs on {servers}")
            yield servers
    else:
        raise SystemExit(f"BROKER={kind} is unknown: embedded or kafka, or BOOTSTRAP=host:port")


@contextlib.contextmanager
def embedded_broker() -> Iterator[str]:
    """In a process of its own, so that it does not compete with the producer for one interpreter."""
    command = [sys.executable, "-m", "kafka_sink.testing", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        finally:
            process.terminate()


def main() -> int:
    try:
        with broker() as servers:
            topic = f"demo-{uuid.uuid4().hex[:8]}"
            # Silent: it would complain about the broker that stops before it.
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(30)
            try:
                steps = produce(servers, topic)
                is_right = report(steps, count_keys(servers, topic))
            finally:
                admin.delete_topics([topic])[topic].result(30)
    except KafkaUnavailable as error:
        print(
            f"{error}\nWithout BROKER=kafka the embedded broker is used; BOOTSTRAP=host:port names yours",
            file=sys.stderr,
        )
        return 2
    print("Every row arrived once, and nothing of the aborted transaction is visible." if is_right else "NOT RIGHT.")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
