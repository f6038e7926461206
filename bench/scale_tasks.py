"""How a commit grows with the tasks of a batch: `python -m bench.scale --tasks`.

The driver's client and state machines run against simulated brokers (simulated_cluster.py), because no machine for
tests can run a hundred of them, or ten thousand tasks. Each batch is the second of its stream and process: connections,
coordinators and the ledger are known. What the driver computes is measured on this machine, the rest is counted.

Apart from that: the bytes of the decision in the ledger, of what tasks hand to Spark, and of what brokers tell.
"""

from __future__ import annotations

import pickle
import random
import textwrap
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.report import conditions, machine
from bench.simulated_cluster import LEDGER, TIMEOUT_MS, TOPIC, Ledger, Shape, SimulatedCluster, Traffic
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.commit_step import Progress
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, ledger_key
from kafka_sink.commit.ledger_codec import encode_record
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import CommitResult, DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.formats.records.batch import NO_TIMESTAMP, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Reply
from kafka_sink.options.parse import parse_producer_options

NAME, RUN, QUERY = "a" * 32, "1" * 16, "0" * 36
SINK = f"{NAME}-{'b' * 16}"
LARGEST_MESSAGE = 1_048_588
TASKS = (100, 1_000, 10_000)
# What a stream with a trigger of a minute has decided before its ledger may be compacted (min.compaction.lag.ms).
LEDGER_RECORDS = 60
Line = dict[str, Any]

# Name, brokers, coordinators among them, partitions, round trip and replication in microseconds.
PLACES = (
    ("3 brokers, 0.5 ms", 3, 3, 1_000, 500, 800),
    ("20 brokers, 1.5 ms", 20, 20, 1_000, 1_500, 1_800),
    ("100 brokers, 1.5 ms", 100, 20, 10_000, 1_500, 1_800),
    ("3 brokers, 20 ms", 3, 3, 1_000, 20_000, 800),
)
PHASES = {"check": Phase.CHECKING, "decide": Phase.DECIDING, "end": Phase.COMMITTING, "close": Phase.RECORDING}


class Stopped(Exception):
    """The driver's process dies."""


class Watched:
    """A committer; `spent_us` is the time in each phase, and what follows from its answers belongs to the next one."""

    def __init__(self, committer: Committer, cluster: SimulatedCluster, dies_in: Phase | None = None) -> None:
        self.spent_us: dict[Phase, float] = {}
        self._committer, self._cluster, self._dies_in = committer, cluster, dies_in
        self._phase, self._since_us = committer.phase, cluster.clock.now_us

    def step(self, now_ms: int, replies: Sequence[Reply]) -> Progress[CommitResult]:
        now_us = self._cluster.clock.now_us
        self.spent_us[self._phase] = self.spent_us.get(self._phase, 0) + now_us - self._since_us
        progress = self._committer.step(now_ms, replies)
        self._phase, self._since_us = self._committer.phase, now_us
        if self._phase is self._dies_in:
            raise Stopped
        return progress


class SimulatedStream:
    """One query on one simulated cluster; each batch may be committed by another process."""

    def __init__(self, shape: Shape, *, counts_cpu: bool = True) -> None:
        self.cluster = SimulatedCluster(shape, counts_cpu=counts_cpu)
        self.settings = DeliverySettings(ledger_topic=LEDGER)
        self._batch = 0
        self.start_process()

    def start_process(self) -> None:
        self._session = DriverSession(SINK, RUN, named_sink_id=NAME)
        with self.cluster.serve_clients():
            self._client = Client(parse_producer_options({"bootstrap.servers": "broker-1:9092"}))
            self.cluster.start_computing()
            self._client.reach()

    def receipts(self) -> list[TaskReceipt]:
        """Of the next batch. The tasks use the ids of the batch before again."""
        key, count, self._batch = BatchKey(QUERY, self._batch), self.cluster.shape.tasks, self._batch + 1
        return [self._receipt(key, number) for number in range(count)]

    def _receipt(self, key: BatchKey, number: int) -> TaskReceipt:
        identity = TaskIdentity(SINK, RUN, number, 1_000 + number * 7_919 % 1_000_003)
        name, partitions = identity.transactional_id, self.cluster.shape.partitions
        found = self.cluster.open(name, number)
        first = 10**9 + 1_000 * number
        written = tuple(WrittenPartition(TOPIC, one % partitions, 100, first, first + 99) for one in found.partitions)
        transaction = PreparedTransaction(name, found.producer_id, found.epoch, 2)
        return TaskReceipt(
            key, RUN, number, identity.attempt, transaction, TIMEOUT_MS, TIMEOUT_MS, written, row_count=100
        )

    def run(
        self, operation: DriverOperation, receipts: Sequence[TaskReceipt] = (), *, dies_in: Phase | None = None
    ) -> Line:
        cluster, client, session = self.cluster, self._client, self._session
        cluster.traffic, began_us, began_cpu_us = Traffic(), cluster.clock.now_us, cluster.cpu_us
        cluster.start_computing()
        with cluster.serve_clients():
            ids = [one.transaction.transactional_id for one in receipts if one.transaction is not None]
            client.look_ahead([LEDGER, TOPIC] if ids else [LEDGER], [session.transactional_id, *ids])
            key = receipts[0].key if receipts else None
            job = Job(operation, key, receipts, wall_ms=1, may_be_decided=False, age_max_ms=0)
            watched = Watched(Committer(self.settings, session, job, client.now_ms()), cluster, dies_in)
            result = client.run(watched)
            cluster.charge_computing()
        if result.error is not None:
            raise result.error
        traffic = cluster.traffic
        return {
            "ms": (cluster.clock.now_us - began_us) / 1000,
            "cpu_ms": (cluster.cpu_us - began_cpu_us) / 1000,
            "phases_ms": {name: watched.spent_us.get(phase, 0) / 1000 for name, phase in PHASES.items()},
            "requests": dict(traffic.requests),
            "requests_to_one_broker": max(traffic.by_broker.values()),
            "in_flight_max": traffic.in_flight_max,
            "request_bytes_max": traffic.request_bytes_max,
            "answer_bytes_max": traffic.answer_bytes_max,
        }

    def die_in_commit(self, receipts: Sequence[TaskReceipt]) -> None:
        """The batch is decided, and none of its transactions is ended."""
        try:
            self.run(DriverOperation.COMMIT, receipts, dies_in=Phase.COMMITTING)
        except Stopped:
            self.start_process()


def measure_commits(tasks: Sequence[int]) -> Iterator[Line]:
    for name, brokers, coordinators, partitions, round_trip_us, replication_us in PLACES:
        for count in tasks:
            shape = Shape(count, partitions, brokers, coordinators, 4, round_trip_us, replication_us)
            stream = SimulatedStream(shape)
            stream.run(DriverOperation.COMMIT, stream.receipts())
            yield {"place": name, "tasks": count, **stream.run(DriverOperation.COMMIT, stream.receipts())}


def measure_others(tasks: Sequence[int]) -> Iterator[Line]:
    """What a new process finishes, and what an aborted batch takes; near brokers."""
    for count in tasks:
        stream = SimulatedStream(Shape(count, 1_000, 3, 3))
        stream.die_in_commit(stream.receipts())
        yield {"what": "finish", "tasks": count, **stream.run(DriverOperation.FINISH)}
        yield {"what": "abort", "tasks": count, **stream.run(DriverOperation.ABORT, stream.receipts())}


def measure_ledger_reads(tasks: Sequence[int], records: int) -> Iterator[Line]:
    """A new process reads decisions that brokers have not compacted yet; near brokers."""
    for count in tasks:
        stream = SimulatedStream(Shape(count, 1_000, 3, 3))
        intent, ledger = large_intent(count), stream.cluster.ledger
        for number in range(records):
            _append(ledger, intent, 2 * number)
            _append(ledger, intent.as_closed(Kind.DONE, 1), 2 * number + 1)
        line = stream.run(DriverOperation.FINISH)
        yield {"tasks": count, "records": records, "bytes": ledger.size, **line}


def _append(ledger: Ledger, record: LedgerRecord, epoch: int) -> None:
    key, value = ledger_key(SINK, record.key).encode(), encode_record(record)
    batch = encode_batch([Record(NO_TIMESTAMP, key, value)], make_compressor("none"))
    header = seal(batch, producer_id=1, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    ledger.append(header + batch.payload)
    ledger.end(1, epoch + 1)


def measure_telling(cases: Sequence[tuple[int, int]]) -> Iterator[Line]:
    """The first commit of a process, by the producers that leaders would tell of: one for each task and partition."""
    for count, spread in cases:
        stream = SimulatedStream(Shape(count, 1_000, 3, 3, spread))
        line = stream.run(DriverOperation.COMMIT, stream.receipts())
        yield {"tasks": count, "spread": spread, "producers": count * spread, **line}


# ---- bytes ----


def large_intent(tasks: int, manifest_partitions: int = 0) -> LedgerRecord:
    """As large as it becomes: ids of earlier batches in any order, every number as long as it can be expected."""
    draw = random.Random(tasks)
    entries = tuple(
        TransactionEntry(
            spark_partition=draw.randrange(100_000), attempt=draw.randrange(10**9), producer_id=draw.randrange(10**7),
            producer_epoch=draw.randrange(1_000), transaction_version=2, topic=TOPIC, partition=draw.randrange(1_000),
            last_offset=draw.randrange(10**9, 10**10), row_count=draw.randrange(10**6), task_partition=10**6 + number,
        )
        for number in range(tasks)
    )  # fmt: skip
    # Decided before any batch of the stream that reads it.
    record = LedgerRecord(Kind.INTENT, SINK, BatchKey(QUERY, 0), RUN, topics={TOPIC: 1}, digest=1, entries=entries)
    return replace(record, manifest=full_manifest(manifest_partitions)) if manifest_partitions else record


def full_manifest(partitions: int) -> Manifest:
    draw = random.Random(partitions)
    firsts = [draw.randrange(10**9, 10**10) for _ in range(partitions)]
    written = tuple(WrittenPartition(TOPIC, one, 10**5, first, first + 10**5) for one, first in enumerate(firsts))
    return Manifest("manifests", 0, NAME, written)


def intent_bytes(tasks: int, manifest_partitions: int = 0) -> int:
    return len(encode_record(large_intent(tasks, manifest_partitions)))


def manifest_bytes(partitions: int) -> int:
    done = LedgerRecord(Kind.DONE, SINK, BatchKey(QUERY, 0), RUN, manifest=full_manifest(partitions))
    assert done.manifest_record is not None
    return len(done.manifest_record[1])


def measure_intents(tasks: Sequence[int]) -> Iterator[Line]:
    for count in tasks:
        started = time.process_time()
        size = intent_bytes(count)
        cpu_ms = (time.process_time() - started) * 1000
        yield {"tasks": count, "bytes": size, "with_manifest": intent_bytes(count, 10_000), "cpu_ms": cpu_ms}


def tasks_that_fit(bytes_max: int = LARGEST_MESSAGE, manifest_partitions: int = 0) -> int:
    """To a thousand."""
    low, high = 1, 100
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if intent_bytes(middle * 1_000, manifest_partitions) <= bytes_max else (low, middle)
    return low * 1_000


def measure_receipts(cases: Sequence[tuple[int, int]]) -> Iterator[Line]:
    """What tasks hand to Spark, and what the driver's process keeps of it."""
    for count, spread in cases:
        stream = SimulatedStream(Shape(count, 1_000, 3, 3, spread))
        pickled = [pickle.dumps(one) for one in stream.receipts()]
        tracemalloc.start()
        kept = [pickle.loads(one) for one in pickled]
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept) == count
        yield {"tasks": count, "spread": spread, "pickled": sum(map(len, pickled)), "held": held}


# ---- the page ----


def measure_tasks(tasks: Sequence[int]) -> dict[str, Any]:
    most = max(tasks)
    pairs = [(most // 10, 4), (most // 10, 100), (most // 10, 1_000), (most, 4), (most, 100)]
    found: dict[str, Any] = {}
    for name, lines in (
        ("intents", measure_intents(tasks)),
        ("commits", measure_commits(tasks)),
        ("others", measure_others(tasks)),
        ("ledger_reads", measure_ledger_reads(tasks, LEDGER_RECORDS)),
        ("telling", measure_telling(pairs)),
        ("receipts", measure_receipts(pairs)),
    ):
        found[name] = [_print(line) for line in lines]
    found["tasks_that_fit"] = tasks_that_fit()
    found["manifest_bytes"] = {str(partitions): manifest_bytes(partitions) for partitions in (1_000, 10_000)}
    return {"about": machine(), **found}


def _print(line: Line) -> Line:
    print(line, flush=True)
    return line


ABOUT = """
Simulated brokers, the sink's own driver. What it computes is measured on this machine; round trips and requests are
counted. A broker takes 0.1 ms for a request, and a follower acknowledges what is appended after 0.8 ms, or 1.8 ms
where the round trip is 1.5. Each task writes to 4 of 1,000 partitions; with 100 brokers there are 10,000 partitions,
and 20 brokers coordinate. Not simulated: disks, the markers of transactions, other load, and Spark.
"""
PAIRS = """
What a task has written where is handed to Spark, described by coordinators, compared, and told by leaders: one row for
each task and partition. So tasks that each write to hundreds of partitions cost more than many tasks. Leaders
tell of all producers of a day, in 37 bytes each, and ten times as many once decoded; beyond 100,000 they are [not
asked](../commit-protocol.md#transactions-that-others-end). First commits of a process, near brokers:
"""
LIMITS = """
Compressed, with every number as long as it becomes. In the {:,} bytes that brokers accept as one message there is room
for {:,} tasks; with more the batch is aborted, and the error says so. A manifest of 10,000 partitions has {:,} bytes.
"""


def tasks_markdown(found: Mapping[str, Any]) -> list[str]:
    lines = ["## With tasks", "", *_wrap(ABOUT), "", *_commit_table(found["commits"]), ""]
    lines += [
        "Milliseconds of a micro-batch; Python: what the driver computes in that time. Requests in flight are of",
        "one connection.",
    ]
    lines += ["", "Near brokers, what else there is to do for as many:", "", *_others_table(found), ""]
    lines += ["### Many partitions for each task", "", *_wrap(PAIRS), "", *_pairs_table(found), ""]
    lines += ["### The decision in the ledger", "", *_intent_table(found["intents"]), ""]
    limits = LIMITS.format(LARGEST_MESSAGE, found["tasks_that_fit"], found["manifest_bytes"]["10000"])
    return [*lines, *_wrap(limits), "", conditions(found["about"])]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 120, break_on_hyphens=False, break_long_words=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> list[str]:
    marks = ["---"] * names + ["--:"] * (len(head) - names)
    return [f"| {' | '.join(cells)} |" for cells in (head, marks, *rows)]


def _commit_table(lines: Sequence[Line]) -> list[str]:
    head = ["brokers, round trip", "tasks", "ms", "Python", *PHASES, "requests", "to one broker", "in flight"]
    rows = [
        [
            line["place"],
            f"{line['tasks']:,}",
            *(f"{number:,.0f}" for number in (line["ms"], line["cpu_ms"], *line["phases_ms"].values())),
            f"{sum(line['requests'].values()):,}",
            f"{line['requests_to_one_broker']:,}",
            str(line["in_flight_max"]),
        ]
        for line in lines
    ]
    return _table(head, rows)


def _others_table(found: Mapping[str, Any]) -> list[str]:
    words = {"finish": "finish the decision of a process that has died", "abort": "abort the transactions of a batch"}
    lines = [(words[line["what"]], line) for line in found["others"]]
    lines += [
        (f"read {line['records']} decisions, {line['bytes'] / 1e6:.1f} MB", line) for line in found["ledger_reads"]
    ]
    rows = [
        [
            name,
            f"{line['tasks']:,}",
            f"{line['ms']:,.0f}",
            f"{line['cpu_ms']:,.0f}",
            f"{sum(line['requests'].values()):,}",
        ]
        for name, line in lines
    ]
    return _table(["what", "tasks", "ms", "Python", "requests"], rows)


def _pairs_table(found: Mapping[str, Any]) -> list[str]:
    sizes = {(line["tasks"], line["spread"]): line for line in found["receipts"]}
    rows = []
    for line in found["telling"]:
        size = sizes[line["tasks"], line["spread"]]
        cells = (line["tasks"], line["spread"], line["ms"], line["cpu_ms"])
        rows.append(
            [*(f"{cell:,.0f}" for cell in cells), f"{size['pickled'] / 1e6:,.1f}", f"{size['held'] / 1e6:,.1f}"]
        )
    head = ["tasks", "partitions of each", "ms", "Python", "MB to Spark", "MB in the driver's process"]
    return _table(head, rows, names=0)


def _intent_table(lines: Sequence[Line]) -> list[str]:
    rows = [[f"{line[name]:,}" for name in ("tasks", "bytes", "with_manifest")] for line in lines]
    return _table(["tasks", "bytes", "with a manifest of 10,000 partitions"], rows, names=0)
