"""Counts the sequential round trips of a write: `python -m bench.round_trips` writes docs/benchmarks/round-trips.md.

A request to a nearby broker takes less than a millisecond, to a broker in another region about 100 ms. There the
duration of a write depends on how many requests wait for an earlier response. The count is made on a simulated cluster
(far_brokers.py), so it is the same on every machine, and a test limits it (tests/integration/test_round_trips.py).

The sink is called as Spark calls it: in the same order, in three processes (planning, one task, commit), which are
reused by later writes.
"""

from __future__ import annotations

import itertools
import pickle
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from bench.far_brokers import CONNECT, ROUND_TRIP_MS, SERVICE, FarCluster, Step
from bench.report import code, conditions, publish
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.identities import IDENTITIES
from kafka_sink.spark.task_context import BATCH_ID, JOB_GROUP, QUERY_ID
from pyspark_pykafka_sink import DefaultSource

TOPIC, LEDGER, SINK = "rows", "__pykafka_sink_ledger", "orders"
SCHEMA = StructType().add("value", StringType())
ROWS = pa.RecordBatch.from_arrays([pa.array(["a", "b", "c"])], ["value"])
PLAN, TASK, COMMIT = PROCESSES = ("plan", "task", "commit")
FIRST, SECOND, BATCH = "first labelled write", "second labelled write", "micro-batch of a stream"

INTRODUCTION = """# Round trips of a write

Written by `python -m bench.round_trips`, which counts sequential round trips; concurrent requests count once.
Connection setup and back-offs are included. The write has one task and uses PLAINTEXT; its topic and the ledger topic
exist. Brokers and network are simulated, the code of the sink is the real one.
`tests/integration/test_round_trips.py` limits the counts.

A labelled write is a batch write with `sink.id` and `batch.id`. The first one of an application runs in new processes
without connections. The micro-batch is the third of its stream.

With TLS each connection takes one more round trip, with SASL two more (PLAIN, OAUTHBEARER, AWS_MSK_IAM) or three
(SCRAM). Tasks run concurrently, so their number does not matter as long as each has a core. If the leader of a task's
partition is not its coordinator, the first write of the task takes two more round trips for that connection.

`kafka.bootstrap.servers` has the address of a service in front of the brokers, except in the rows where it has the
broker's own: there the first connection is also the one to the broker.

"""

WHY = """
## Which request waits for which

| request | waits for | reason |
| --- | --- | --- |
| plan: DescribeConfigs | Metadata | it is sent to the leader of the ledger, which also answers the next requests |
| plan: Fetch | DescribeConfigs | no decision is finished from a ledger whose configuration can lose decisions |
| task: InitProducerId | FindCoordinator | it is sent to the coordinator |
| task: Produce | InitProducerId | batches contain the producer id and epoch, which later micro-batches know |
| commit: Produce of the claim | InitProducerId | earlier drivers must be fenced before the claim |
| commit: Fetch | Produce of the claim | the ledger is read up to the offset of the claim |
| commit: DescribeTransactions, DescribeProducers, Metadata | Fetch | an open decision or a delivery comes first |
| commit: Produce of the intent | all three | it records when they began; later batches of a stream do not wait |
| commit: EndTxn of the intent | all of these | the decision: every transaction is open, every partition has a leader |
| commit: EndTxn of the tasks' transactions | EndTxn of the intent | before the decision they may have to be aborted |
| commit: Produce of the done record | EndTxn of all tasks | readers accept it even if its marker is lost |
| commit: EndTxn of the done record | Produce of the done record | it commits the record |

A stream's commit does not wait for the last two in transaction version 2 (Kafka 4): they follow when it has returned.

[The commit protocol](../commit-protocol.md#the-steps) explains why. With transaction version 1 (Kafka 3) two more
requests precede each record of the ledger (a new epoch, and adding the partition to the transaction), and one more
precedes the rows of a task.
"""


@dataclass(frozen=True)
class Cost:
    """Round trips of one write, by process, and its requests."""

    round_trips: Mapping[str, float]
    steps: Sequence[Step]

    @property
    def total(self) -> float:
        return sum(self.round_trips.values())

    @property
    def request_count(self) -> int:
        return sum(step.what != CONNECT for step in self.steps)


class Application:
    """A Spark application with one Python worker: its processes, and the calls that Spark makes."""

    def __init__(self, far: FarCluster) -> None:
        self._far = far
        self._options = {"kafka.bootstrap.servers": far.bootstrap_servers, "topic": TOPIC, "ledger.topic": LEDGER}
        self._attempts = itertools.count()
        self._query = {QUERY_ID: str(uuid.uuid4()), JOB_GROUP: str(uuid.uuid4())}

    def write_batch(self, label: str) -> Cost:
        options = {**self._options, "sink.id": SINK, "batch.id": label}
        with self._measure() as phase:
            writer = phase(PLAN, lambda: DefaultSource(dict(options)).writer(SCHEMA, False))
            message = phase(TASK, lambda: self._run_task(writer, {}))
            phase(COMMIT, lambda: writer.commit([message]))
        return self._cost

    def write_micro_batch(self, number: int) -> Cost:
        options = {**self._options, "checkpointLocation": "/checkpoints/1"}

        def new_writer() -> Any:
            return DefaultSource(dict(options)).streamWriter(SCHEMA, False)

        with self._measure() as phase:
            writer = phase(PLAN, new_writer)
            message = phase(TASK, lambda: self._run_task(writer, {**self._query, BATCH_ID: str(number)}))
            phase(COMMIT, lambda: writer.commit([message], number))
        return self._cost

    @contextmanager
    def _measure(self) -> Iterator[Callable[[str, Callable[[], Any]], Any]]:
        found: dict[str, float] = {}
        self._far.steps.clear()

        def run(process: str, act: Callable[[], Any]) -> Any:
            before = self._far.round_trips
            with self._far.process(process):
                result = act()
            found[process] = self._far.round_trips - before
            with self._far.process(process):
                self._far.close_decisions()
            return result

        yield run
        self._cost = Cost(found, list(self._far.steps))

    def _run_task(self, writer: Any, properties: Mapping[str, str]) -> Any:
        # The constructor would return the process-wide instance, or create it.
        context: Any = object.__new__(TaskContext)
        context._partitionId, context._taskAttemptId = 0, next(self._attempts)
        context._localProperties = dict(properties)
        with patch.object(TaskContext, "_taskContext", context):
            return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter([ROWS]))))


def count(brokers: int, release: str, *, entry: str = SERVICE) -> dict[str, Cost]:
    """The costs of one application. The cluster was used before, because its very first transaction creates a topic."""
    far = FarCluster(brokers, topics={TOPIC: 4}, release=release, entry=entry)
    in_sync = str(min(2, brokers))
    configs = {"cleanup.policy": "compact", "min.insync.replicas": in_sync}
    far.core.cluster.create_topic(LEDGER, 1, min(3, brokers), configs)
    with far.serve_clients():
        _start_application(far)
        Application(far).write_batch("sunday")
        _start_application(far)
        application = Application(far)
        costs = {FIRST: application.write_batch("monday"), SECOND: application.write_batch("tuesday")}
        for number in range(3):
            costs[BATCH] = application.write_micro_batch(number)
        POOL.close()
    return costs


def _start_application(far: FarCluster) -> None:
    """Drops what the processes keep: the pools are global and do not look at the process id."""
    far.start_application()
    IDENTITIES.close()
    POOL.close()


CLUSTERS = (
    ("one broker", 1, "4.3", SERVICE),
    ("one broker by its own address", 1, "4.3", "broker-1"),
    ("three brokers", 3, "4.3", SERVICE),
    ("three brokers of Kafka 3.9", 3, "3.9", SERVICE),
)


def markdown(found: Mapping[str, Mapping[str, Cost]], about: Mapping[str, str]) -> str:
    writes = (FIRST, SECOND, BATCH)
    lines = ["| cluster | process | " + " | ".join(writes) + " |", "| --- | --- |" + " --: |" * len(writes)]
    for cluster, costs in found.items():
        for process in PROCESSES:
            cells = [f"{costs[write].round_trips[process]:.1f}" for write in writes]
            lines.append(f"| {cluster} | {process} | " + " | ".join(cells) + " |")
        cells = [f"**{costs[write].total:.1f}**, {costs[write].request_count} requests" for write in writes]
        lines.append(f"| {cluster} | all | " + " | ".join(cells) + " |")
    lines += WHY.splitlines()
    first = next(iter(found))
    lines += ["", f"## {first}: {BATCH}", "", *_request_lines(found[first][BATCH])]
    return INTRODUCTION + "\n".join([*lines, "", conditions(about)]) + "\n"


def _request_lines(cost: Cost) -> Iterator[str]:
    """One row for all requests that are sent at the same time."""
    yield "| process | round trips before | sent |"
    yield "| --- | --: | --- |"
    started = cost.steps[0].after if cost.steps else 0.0
    for (process, after), steps in itertools.groupby(cost.steps, lambda step: (step.process, step.after)):
        yield f"| {process} | {after - started:.1f} | {', '.join(_count_names(step.what for step in steps))} |"


def _count_names(names: Iterator[str]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return (name if number == 1 else f"{number} {name}" for name, number in counts.items())


def main() -> None:
    found = {title: count(brokers, release, entry=entry) for title, brokers, release, entry in CLUSTERS}
    figures = {
        title: {
            write: {"round_trips": dict(cost.round_trips), "requests": cost.request_count}
            for write, cost in costs.items()
        }
        for title, costs in found.items()
    }
    about = code()
    publish(
        "round-trips", markdown(found, about), {"about": about, "round_trip_ms": ROUND_TRIP_MS, "clusters": figures}
    )


if __name__ == "__main__":
    main()
