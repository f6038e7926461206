"""A test bench for the driver's machine: the tiny broker answers, unless the test has prepared another answer.

`answers` maps the purpose of an ask to the answers to its tries, one after the other: an error code, LOST, NOT_SENT,
UNSUPPORTED, REFUSED, LEADERLESS or TOPIC_GONE (the broker does not see the request), or `after(x)`: the broker carries
it out, and the driver gets x. A function is called with the request: it gives a whole answer, or None for the broker's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import CommitResult, DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.commit.set_aside import SetAside
from kafka_sink.errors import AuthorizationError, BrokerError, CommitPending, TransportError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Ask, Leader, Reply, ReplyKind
from kafka_sink.kafka.wire.codes import THROTTLING_QUOTA_EXCEEDED
from tests.support.tiny_broker import LEDGER, NEW, PREPARE, TIMEOUT_MS, TinyBroker

SINK, QUERY = "sink", "query-1"
# Runs after the first one.
SECOND, THIRD, FOURTH = "2" * 16, "3" * 16, "4" * 16
# Purposes of asks.
FENCE, CLAIM, WRITE = "fence older drivers", "claim ledger", "write ledger record"
END, COMMIT = "end ledger transaction", "commit transaction"
# A record of a later release.
POISON = b"pykafka-sink-ledger 9 json\n{}"
LOST, UNSUPPORTED, REFUSED = ReplyKind.LOST, ReplyKind.UNSUPPORTED, ReplyKind.REFUSED
LEADERLESS, NOT_SENT = ReplyKind.LEADERLESS, ReplyKind.NOT_SENT
ERRORS = {
    LOST: TransportError("connection reset"),
    NOT_SENT: TransportError("connection refused"),
    UNSUPPORTED: BrokerError("not offered", code=35),
    REFUSED: AuthorizationError("no Write on TransactionalId sink-driver"),
    LEADERLESS: TransportError("t-0 has no leader now"),
}


# LOST, because the brokers know no such topic.
TOPIC_GONE = TransportError("ledger-0 has no leader now", TOPIC_UNKNOWN)


@dataclass(frozen=True)
class after:
    """The broker carries the request out, but the driver gets `answer`."""

    answer: Any


@dataclass
class Bench:
    transaction_version: int = 2
    broker: TinyBroker = field(init=False)
    settings: DeliverySettings = field(init=False)
    now_ms: int = 5_000
    asked: list[Ask] = field(default_factory=list)
    # Called before each request reaches the broker.
    before: Callable[[Ask], None] | None = None
    # Partition, length, end time: until then an outdated leader shows readers only so many entries of the partition.
    outdated: tuple[tuple[str, int], int, int] | None = None

    def __post_init__(self) -> None:
        self.broker = TinyBroker(NEW, self.transaction_version)
        self.settings = DeliverySettings(ledger_topic=LEDGER, transaction_version=self.transaction_version)

    # ---- tasks ----

    def receipts(
        self,
        batch: int | str = 0,
        *,
        run: str = "1" * 16,
        tasks: int = 2,
        attempt: int = 0,
        query: str = QUERY,
        **more: Any,
    ) -> list[TaskReceipt]:
        return [self.receipt(batch, task, run=run, attempt=attempt, query=query, **more) for task in range(tasks)]

    def receipt(
        self,
        batch: int | str,
        task: int,
        *,
        run: str = "1" * 16,
        attempt: int = 0,
        query: str = QUERY,
        timeout_ms: int = TIMEOUT_MS,
        remaining_ms: int = TIMEOUT_MS,
        sink_id: str = SINK,
        topic: str = "t",
    ) -> TaskReceipt:
        name = TaskIdentity(sink_id, run, task, attempt).transactional_id
        row = f"{batch}-row{task}"[-7:].rjust(7).encode()
        producer_id, epoch, offset = self.broker.write_in_task(name, (topic, task), row)
        while epoch < 0:
            self.settle()
            producer_id, epoch, offset = self.broker.write_in_task(name, (topic, task), row)
        return TaskReceipt(
            key=BatchKey(query, batch),
            run=run,
            spark_partition=task,
            attempt=attempt,
            transaction=PreparedTransaction(name, producer_id, epoch, self.transaction_version),
            timeout_ms=timeout_ms,
            remaining_ms=remaining_ms,
            written=(WrittenPartition(topic, task, 1, offset, offset),),
            row_count=1,
        )

    def write_also(self, receipt: TaskReceipt, *partitions: tuple[str, int]) -> TaskReceipt:
        """The receipt if its task has also written a row to each of these partitions."""
        assert receipt.transaction is not None
        name, (producer_id, epoch) = receipt.transaction.transactional_id, receipt.transaction[1:3]
        self.broker.add_partitions(name, partitions)
        offsets = [self.broker.write(one, b"more", producer_id, epoch) for one in partitions]
        added = [WrittenPartition(*one, 1, at, at) for one, at in zip(partitions, offsets, strict=True)]
        return replace(receipt, written=(*receipt.written, *added), row_count=receipt.row_count + len(added))

    # ---- the driver ----

    def session(self, run: str = "1" * 16, key: BatchKey | None = None) -> DriverSession:
        return DriverSession(SINK, run, code="" if key is None else self.settings.line_of(SINK, key).code)

    def commit(
        self, receipts: Sequence[TaskReceipt], session: DriverSession | None = None, **answers: Any
    ) -> CommitResult:
        return self.run(DriverOperation.COMMIT, receipts, session, **answers)

    def decide(self, receipts: Sequence[TaskReceipt], session: DriverSession | None = None) -> None:
        """Makes the decision; the driver dies before it has committed a transaction of the batch."""
        pending = self.commit(receipts, session, answers={"commit transaction": [LOST] * 100_000})
        assert isinstance(pending.error, CommitPending)

    def run(
        self,
        operation: DriverOperation,
        receipts: Sequence[TaskReceipt] = (),
        session: DriverSession | None = None,
        *,
        key: BatchKey | None = None,
        answers: dict[str, list[Any]] | None = None,
        until_ms: int = 10**9,
        stopped_runs: frozenset[str] = frozenset(),
        age_max_ms: int | None = 0,
    ) -> CommitResult:
        job = Job(
            operation, receipts[0].key if receipts else key, receipts, stopped_runs=stopped_runs, age_max_ms=age_max_ms
        )
        committer = Committer(self.settings, session or self.session(key=job.key), job, self.now_ms)
        return self.drive(committer, answers, until_ms=until_ms)

    def drive(self, machine: Any, answers: dict[str, list[Any]] | None = None, *, until_ms: int = 10**9) -> Any:
        """Answers the requests of any state machine until it has a verdict."""
        laid_out = {purpose: list(listed) for purpose, listed in (answers or {}).items()}
        progress = machine.step(self.now_ms, ())
        while progress.result is None:
            asked = [copy(ask) for ask in progress.asks]  # as it is now: the ask itself is used again
            answered = [self._answer(request, laid_out) for request in progress.asks]
            self.asked += asked
            if not answered:
                assert progress.wake_at_ms is not None, "nothing is out and nothing is due"
                assert progress.wake_at_ms < until_ms, "no result in time"
                self.now_ms = max(self.now_ms + 1, progress.wake_at_ms)
                self.settle()
            progress = machine.step(self.now_ms, answered)
        return progress.result

    def _answer(self, request: Ask, laid_out: dict[str, list[Any]]) -> Reply:
        if self.before is not None:
            self.before(request)
        listed = laid_out.get(request.purpose)
        told = listed.pop(0) if listed else None
        if callable(told):
            told = told(request)
        if told is None and not self.broker.leaderless.isdisjoint(request.led_now):
            told = LEADERLESS
        if told is None:
            return Reply(request, ReplyKind.ANSWERED, (self._answering_broker(request).answer(request),))
        if isinstance(told, after):
            self.broker.answer(request)
            told = told.answer
        if isinstance(told, dict):
            return Reply(request, ReplyKind.ANSWERED, (told,))
        if isinstance(told, TransportError):
            return Reply(request, LOST, (), told)
        if isinstance(told, ReplyKind):
            return Reply(request, told, (), ERRORS[told])
        return Reply(request, ReplyKind.ANSWERED, (_with_code(self.broker, request, told),))

    def _answering_broker(self, request: Ask) -> TinyBroker:
        if self.outdated is None or self.now_ms >= self.outdated[2] or request.api.name not in ("ListOffsets", "Fetch"):
            return self.broker
        partition, length, _ = self.outdated
        if request.target != Leader(*partition):
            return self.broker
        outdated = TinyBroker(self.broker.state(), self.transaction_version)
        del outdated.logs[partition][length:]
        return outdated

    def time_out(self, receipt: TaskReceipt) -> None:
        assert receipt.transaction is not None
        self.broker.time_out(receipt.transaction.transactional_id)

    def lose_the_last_marker(self) -> None:
        """Removes the newest marker in the ledger. The log then shows an open transaction for ever."""
        self.settle()
        log = self.broker.logs[LEDGER, 0]
        # The next record gets its offset, because offsets continue after the last record of the log.
        del log[max(offset for offset, entry in enumerate(log) if entry[3] is not None)]

    def before_next(self, purpose: str, act: Callable[[], object], *, which: int = 1) -> None:
        """Calls `act` just before the next such request, or the second (`which=2`), reaches the broker."""
        left = which

        def hook(request: Ask) -> None:
            nonlocal left
            left -= request.purpose == purpose
            if not left:
                self.before = None
                act()

        self.before = hook

    def times_out_before_its_commit(self, receipt: TaskReceipt) -> None:
        """The transaction times out between decision and EndTxn; the coordinator then answers 48 or a worse code."""

        def late() -> None:
            self.time_out(receipt)
            self.settle()

        self.before_next("commit transaction", late)

    def take_the_drivers_id(self) -> None:
        """Another client fences the driver and does nothing else."""
        while self.broker.init(f"{SINK}-driver", None)[0]:
            self.settle()

    # ---- results ----

    def settle(self) -> None:
        """Writes all outstanding markers."""
        for name, known in list(self.broker.transactions.items()):
            if known[2] in PREPARE.values():
                self.broker.complete(name)

    def seen(self) -> list[int]:
        """The numbers of rows of the first two tasks that readers see, once all markers are written."""
        self.settle()
        return [self.visible(task) for task in (0, 1)]

    def visible(self, task: int) -> int:
        entries = self.broker.logs.get(("t", task), [])
        markers = [(offset, entry[0], entry[3]) for offset, entry in enumerate(entries) if entry[2] is None]
        count = 0
        for offset, entry in enumerate(entries):
            first = next((marker for marker in markers if marker[0] > offset and marker[1] == entry[0]), None)
            count += entry[2] is not None and first is not None and bool(first[2])
        return count

    def state_of(self, receipt: TaskReceipt) -> str:
        assert receipt.transaction is not None
        return self.broker.transactions[receipt.transaction.transactional_id][2]

    def ledger(self) -> dict[str, LedgerRecord]:
        """The newest records of every query under the name."""
        self.settle()
        read = LedgerRead(self.settings, SINK, is_of_name=True).begin(self.now_ms)
        while not read.is_finished:
            for request in read.asks.take_due(self.now_ms):
                read.on_reply(self.now_ms, Reply(request, ReplyKind.ANSWERED, (self.broker.answer(request),)))
        assert read.state is not None, read.failure
        return dict(read.state.newest)

    def purposes(self) -> list[str]:
        return [request.purpose for request in self.asked]


def _with_code(broker: TinyBroker, request: Ask, code: int) -> dict[str, Any]:
    """An answer to this request that contains only the error code."""
    name = request.api.name
    if name == "Produce":
        one = {"index": 0, "error_code": code, "base_offset": -1}
        return {"responses": [{"name": LEDGER, "partition_responses": [one]}]}
    if name == "AddPartitionsToTxn":
        part = {"partition_index": 0, "partition_error_code": code}
        return {"results_by_topic_v3_and_below": [{"name": LEDGER, "results_by_partition": [part]}]}
    if name == "Fetch" and code == THROTTLING_QUOTA_EXCEEDED:
        # As Apache Kafka answers (tests/integration/test_quotas.py).
        return {"throttle_time_ms": 1_000, "error_code": 0, "responses": []}
    if name == "Fetch":
        part = {"partition_index": 0, "error_code": code, "high_watermark": -1, "last_stable_offset": -1}
        return {"error_code": 0, "responses": [{"topic": "t", "partitions": [{**part, "records": b""}]}]}
    if name == "ListOffsets":
        return {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code, "offset": -1}]}]}
    if name == "DescribeTransactions":
        states = broker.answer(request)["transaction_states"]
        return {"transaction_states": [{**state, "error_code": code} for state in states]}
    if name == "DescribeProducers":
        told = broker.answer(request)["topics"]
        return {
            "topics": [
                {
                    **topic,
                    "partitions": [{**one, "error_code": code, "active_producers": []} for one in topic["partitions"]],
                }
                for topic in told
            ]
        }
    if name == "ListTransactions":
        return {"error_code": code, "transaction_states": []}
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


def put(bench: Bench, key: str, value: bytes | None) -> int:
    """Appends a record as another program or an older release would write it; returns its offset."""
    bench.settle()
    log = bench.broker.logs.setdefault(("ledger", 0), [])
    batch = encode_batch([Record(0, key.encode(), value)], make_compressor("none"))
    header = seal(batch, producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True)
    log += [(77, 0, header + batch.payload, None), (77, 0, None, True)]
    return len(log) - 2


def set_aside(bench: Bench, key: str, offset: int, answers: dict[str, list[Any]] | None = None) -> SetAside:
    part = SetAside(bench.settings, key, offset, 0)
    bench.drive(SingleStep(part, bench.now_ms + bench.settings.patience_ms), answers)
    return part


def stop_before(bench: Bench, purpose: str, receipts: list[TaskReceipt], session: DriverSession) -> None:
    """Runs a commit up to the first request with this purpose, which is not sent."""
    job = Job(DriverOperation.COMMIT, receipts[0].key, receipts, age_max_ms=0)
    committer = Committer(bench.settings, session, job, bench.now_ms)
    progress = committer.step(bench.now_ms)
    while progress.asks[0].purpose != purpose:
        answers = [Reply(request, ReplyKind.ANSWERED, (bench.broker.answer(request),)) for request in progress.asks]
        progress = committer.step(bench.now_ms, answers)


def without_rows(batch: int, run: str = "1" * 16) -> TaskReceipt:
    return TaskReceipt(BatchKey(QUERY, batch), run, 0, 0)


def put_plain(bench: Bench, key: str, value: bytes | None) -> int:
    """As a producer without a transactional id writes it; returns its offset."""
    bench.settle()
    log = bench.broker.logs.setdefault((LEDGER, 0), [])
    batch = encode_batch([Record(0, key.encode(), value)], make_compressor("none"))
    log.append((-1, -1, seal(batch) + batch.payload, None))
    return len(log) - 1
