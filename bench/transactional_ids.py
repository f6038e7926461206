"""What transactional ids cost the brokers: `python -m bench.transactional_ids [--batches N ...] [--spark | --fresh]`.

The micro-batches have four tasks. From time to time an attempt fails after it has sent rows, or is killed while it
writes, and the task runs again. Measured after 10, 100 and 1000 batches: the number of task ids that the coordinator
keeps (in any state), the time of ListTransactions, the heap for the ids, and the broker's heap after a collection.

With `--spark` the batches are a stream of a local session, whose rows are counted at its end (bench/stream_of_ids.py).
Without it there is no Spark: two worker processes run tasks like Spark's workers, with the driver's commit. With
`--fresh` each attempt has a new id, as before ids were reused.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from bench.stream_of_ids import StreamOfIds
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.identity import belongs_to, parse_task_identity, run_hash, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.kafka.client.ask import AllBrokers, Repeat
from kafka_sink.kafka.wire.apis import LIST_TRANSACTIONS
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.cluster_check import check_with_kafka
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.driver import FinishedBatch, commit_batch
from kafka_sink.spark.identities import IDENTITIES
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import VERSIONS, java_command
from tools.workspace import workspace

SINK, RUN, TOPIC, TASKS, WORKERS = "ids", run_hash("bench"), "ids", 4, 2
# With fewer rows the task would wait for more before it sends.
ROWS = 20_000
FAILURE_EVERY, KILL_EVERY = 25, 60
HEAP_CLASSES = ("TransactionMetadata", "ProducerStateEntry")
_USED = re.compile(r"total \d+K, used (\d+)K")


def work(pipe: Connection, servers: str, *, is_fresh: bool) -> None:
    """A worker process, which runs one task after the other."""
    options = parse_sink_options({"kafka.bootstrap.servers": servers, "topic": TOPIC, "sink.id": SINK})
    columns = choose_columns(StructType().add("value", StringType()), TOPIC)
    while True:
        place, end = pipe.recv()
        if is_fresh:
            IDENTITIES.close()
        try:
            pipe.send(write_task(options, columns, rows(end), place))
        except RuntimeError:
            pipe.send(None)


def rows(end: str) -> Iterator[pa.RecordBatch]:
    batch = pa.RecordBatch.from_arrays([pa.array(["x" * 100] * ROWS)], ["value"])
    if end == "well":
        yield batch.slice(0, 10)
        return
    yield batch
    yield batch
    if end == "killed":
        time.sleep(3600)
    raise RuntimeError("the source of this attempt fails")


class Worker:
    def __init__(self, servers: str, *, is_fresh: bool) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawning.Pipe()
        arguments = {"is_fresh": is_fresh}
        self._process = spawning.Process(target=work, args=(theirs, servers), kwargs=arguments, daemon=True)
        self._process.start()

    def run(self, place: TaskPlace, end: str) -> TaskReceipt | None:
        self._pipe.send((place, end))
        if end == "killed":
            time.sleep(1)
            self.kill()
            return None
        receipt: TaskReceipt | None = self._pipe.recv()
        return receipt

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


class Query:
    def __init__(self, servers: str, *, is_fresh: bool) -> None:
        self._servers, self._is_fresh = servers, is_fresh
        self._options = parse_sink_options({"kafka.bootstrap.servers": servers, "topic": TOPIC, "sink.id": SINK})
        self._pick = random.Random(1)
        self._workers = [self._worker() for _ in range(WORKERS)]
        self.attempts = self.failures = self.kills = 0
        check_with_kafka(self._options, SINK)

    def _worker(self) -> Worker:
        return Worker(self._servers, is_fresh=self._is_fresh)

    def batch(self, number: int) -> None:
        key = BatchKey("query", number)
        receipts = [self._task(key, partition) for partition in range(TASKS)]
        commit_batch(FinishedBatch(self._options, SINK, key, RUN, receipts))

    def _task(self, key: BatchKey, partition: int) -> TaskReceipt:
        sink_id = sink_id_of_query(SINK, key.query_id)
        while True:
            self.attempts += 1
            at = self._pick.randrange(WORKERS)
            end = self._end()
            receipt = self._workers[at].run(TaskPlace(key, RUN, partition, self.attempts, sink_id), end)
            if end == "killed":
                self._workers[at] = self._worker()
            if receipt is not None:
                return receipt

    def _end(self) -> str:
        if self.attempts % (KILL_EVERY * TASKS) == 0:
            self.kills += 1
            return "killed"
        if self.attempts % (FAILURE_EVERY * TASKS) == 0:
            self.failures += 1
            return "failed"
        return "well"

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()


def time_listing(client: Client) -> tuple[int, float]:
    """The number of task ids, and the milliseconds of one ListTransactions (median of nine)."""
    body = {"state_filters": [], "producer_id_filters": []}
    times = []
    for _ in range(9):
        started_s = time.perf_counter()
        answers = client.ask_all(AllBrokers(), LIST_TRANSACTIONS, body, repeat=Repeat.ALWAYS)
        times.append((time.perf_counter() - started_s) * 1000)
    names = [state["transactional_id"] for answer in answers for state in answer["transaction_states"]]
    identities = [identity for identity in map(parse_task_identity, names) if identity is not None]
    return sum(belongs_to(identity.sink_id, SINK) for identity in identities), median(times)


def heap(pid: int) -> str:
    """Instances and bytes of the objects that a coordinator keeps per id, and the heap in use, after a collection."""
    jcmd = Path(java_command()).resolve().with_name("jcmd")
    if not jcmd.exists():
        return "this Java has no jcmd"
    # The first command runs a collection before it counts.
    histogram, info = (
        subprocess.run([jcmd, str(pid), command], capture_output=True, text=True, check=True).stdout.splitlines()
        for command in ("GC.class_histogram", "GC.heap_info")
    )
    found = []
    for line in histogram:
        cells = line.split()
        if len(cells) > 3 and cells[3].rpartition(".")[2] in HEAP_CLASSES:
            found.append(f"{cells[3].rpartition('.')[2]} {cells[1]} ({cells[2]} bytes)")
    used_kib = sum(int(used[1]) for line in info if "etaspace" not in line and (used := _USED.search(line)))
    return f"{', '.join(found) or 'none'}, heap in use {used_kib / 1024:.1f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[10, 100, 1000])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--spark", action="store_true", help="run a Spark stream")
    how.add_argument("--fresh", action="store_true", help="use a new id for each attempt")
    options = parser.parse_args()
    with KafkaCluster(VERSIONS[0]) as kafka:
        kafka.create_topic(TOPIC, partitions=TASKS)
        if options.spark:
            run_stream(kafka, sorted(options.batches))
        else:
            run_query(kafka, sorted(options.batches), is_fresh=options.fresh)


def run_query(kafka: KafkaCluster, counts: Sequence[int], *, is_fresh: bool) -> None:
    query = Query(kafka.bootstrap_servers, is_fresh=is_fresh)
    try:
        for number in range(counts[-1]):
            query.batch(number)
            if number + 1 in counts:
                attempts = f"{query.attempts} attempts ({query.failures} failed, {query.kills} workers killed)"
                tell(kafka, f"{number + 1} batches, {attempts}")
    finally:
        query.close()


def run_stream(kafka: KafkaCluster, counts: Sequence[int]) -> None:
    with workspace("transactional-ids-") as folder, StreamOfIds(folder, kafka, TOPIC, SINK, TASKS) as stream:
        tell(kafka, "before the first batch")
        for count in counts:
            stream.run_to(count)
            attempts = f"{stream.failures} attempts failed, {stream.kills} killed, {stream.minutes:.1f} minutes"
            tell(kafka, f"{count} batches, {attempts}")
        print(stream.judge(), flush=True)


def tell(kafka: KafkaCluster, what: str) -> None:
    client = Client(parse_sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer)
    try:
        count, list_ms = time_listing(client)
    finally:
        client.close()
    figures = f"{count} ids, ListTransactions {list_ms:.1f} ms, heap: {heap(kafka.process_id(1))}"
    print(f"{what}: {figures}", flush=True)


if __name__ == "__main__":
    main()
