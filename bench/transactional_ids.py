"""What transactional ids cost the brokers: `python -m bench.transactional_ids [--batches N ...] [--fresh]`.

No Spark: two worker processes that run the tasks of micro-batches as Spark's do, four to a batch, and the driver's
commit. Every so often an attempt fails after it has sent rows, or a worker process is killed while a task writes, and
the task runs again. After 10, 100 and 1000 batches: how many ids of tasks the coordinator keeps, in whatever state, how
long ListTransactions takes, and what the ids take of the broker's heap. `--fresh`: each attempt an id of its own, as
before ids were used again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import subprocess
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from kafka_sink.delivery.identity import run_hash
from kafka_sink.delivery.receipt import BatchKey, TaskReceipt
from kafka_sink.engine.question import EveryBroker
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.runtime.client import Client
from kafka_sink.spark.columns import written_columns
from kafka_sink.spark.driver import Driver, committed
from kafka_sink.spark.identities import IDENTITIES
from kafka_sink.spark.task import TaskPlace, write_task
from kafka_sink.wire.apis import LIST_TRANSACTIONS
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import VERSIONS, java_command

SINK, RUN, TOPIC, TASKS, WORKERS = "ids", run_hash("bench"), "ids", 4, 2
# Enough that the task does not wait for more before it sends.
ROWS = 20_000
FAILURE_EVERY, KILL_EVERY = 25, 60
HEAP_CLASSES = ("TransactionMetadata", "ProducerStateEntry")


def work(pipe: Connection, servers: str, *, is_fresh: bool) -> None:
    """A worker process: one task after the other."""
    options = parse_sink_options({"kafka.bootstrap.servers": servers, "topic": TOPIC, "sink.id": SINK})
    columns = written_columns(StructType().add("value", StringType()), TOPIC)
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
        planning = Driver(self._options, SINK, "")
        planning.check_ledger()
        planning.close()

    def _worker(self) -> Worker:
        return Worker(self._servers, is_fresh=self._is_fresh)

    def batch(self, number: int) -> None:
        key = BatchKey("query", number)
        receipts = [self._task(key, partition) for partition in range(TASKS)]
        committed(self._options, SINK, RUN, key, receipts)

    def _task(self, key: BatchKey, partition: int) -> TaskReceipt:
        while True:
            self.attempts += 1
            at = self._pick.randrange(WORKERS)
            end = self._end()
            receipt = self._workers[at].run(TaskPlace(key, RUN, partition, self.attempts, SINK), end)
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


def listed(client: Client) -> tuple[int, float]:
    """Ids of tasks, and the milliseconds of one ListTransactions (median of nine)."""
    body = {"state_filters": [], "producer_id_filters": []}
    times = []
    for _ in range(9):
        started_s = time.perf_counter()
        answers = client.ask_all(EveryBroker(), LIST_TRANSACTIONS, body, changes_nothing=True)
        times.append((time.perf_counter() - started_s) * 1000)
    names = [state["transactional_id"] for answer in answers for state in answer["transaction_states"]]
    return sum(name.startswith(f"{SINK}-{RUN}-") for name in names), median(times)


def heap(pid: int) -> str:
    """Instances and bytes of what a coordinator keeps per id, after a collection."""
    jcmd = Path(java_command()).resolve().with_name("jcmd")
    if not jcmd.exists():
        return "no jcmd beside this java"
    answer = subprocess.run([jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True)
    found = []
    for line in answer.stdout.splitlines():
        cells = line.split()
        if len(cells) > 3 and cells[3].rpartition(".")[2] in HEAP_CLASSES:
            found.append(f"{cells[3].rpartition('.')[2]} {cells[1]} ({cells[2]} bytes)")
    return ", ".join(found) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--fresh", action="store_true", help="each attempt an id of its own")
    options = parser.parse_args()
    with KafkaCluster(VERSIONS[0]) as kafka:
        kafka.create_topic(TOPIC, partitions=4)
        query = Query(kafka.bootstrap_servers, is_fresh=options.fresh)
        try:
            for number in range(max(options.batches)):
                query.batch(number)
                if number + 1 in options.batches:
                    tell(kafka, query, number + 1)
        finally:
            query.close()


def tell(kafka: KafkaCluster, query: Query, batches: int) -> None:
    client = Client(parse_sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer)
    try:
        count, list_ms = listed(client)
    finally:
        client.close()
    print(
        f"{batches} batches, {query.attempts} attempts ({query.failures} failed, {query.kills} workers killed): "
        f"{count} ids, ListTransactions {list_ms:.1f} ms, heap: {heap(kafka.process_id(1))}",
        flush=True,
    )


if __name__ == "__main__":
    main()
