"""A Python worker process of Spark: it runs one real engine after the other, each for one attempt of a task.

It does with calls to the engine what `spark/task.py` does with a `Producer`: a transaction under the attempt's own id,
the rows, a flush, and either a receipt for a prepared transaction or a close, which aborts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import takewhile
from random import Random

from kafka_sink.commit.identity_pool import IdentityPool, Last, next_identity
from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.errors import OperationTimeout, TransactionAborted
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.commands import TransactionEvent, TransactionReceipt
from kafka_sink.spark.attempt import IDENTITIES_MAX
from kafka_sink.testing.errors import Refused
from tests.sim.client import Client, Script
from tests.sim.delivery.books import Attempt, Books, is_letter
from tests.sim.history import Fate, Record
from tests.sim.scenario import TOPICS

METADATA_POLL_MS = 20
ABORT_TIMEOUT_MS = 10_000
TAKEN_SHARE = 0.1
Report = Callable[[Attempt, TaskReceipt | None], None]


class Executor(Client):
    """`report` is called once at the end of each attempt, with a receipt, or with None after a failure."""

    books: Books
    # The ids of this process, if ids are used again.
    pool: IdentityPool | None = None
    # The last transaction under the id that the attempt has taken.
    last: Last | None = None
    attempt: Attempt | None = None
    is_idle = False
    # Set from outside: Spark or a row makes the attempt fail.
    must_fail = False
    # False: Spark has closed the connection to this process.
    is_waited_for = True

    def begin(self, attempt: Attempt, report: Report) -> None:
        is_reused, self.is_idle = self.is_idle, False
        self.attempt, self.must_fail = attempt, False
        self.is_script_over = False
        self.trace.note(self.loop.now_ms, f"{self.name} begins {attempt.transactional_id}")
        self.run(_attempt(self, attempt, report, is_reused=is_reused))

    def take_used(self, attempt: Attempt) -> None:
        """Takes an id that this process has used before, if one is free, instead of the attempt's own."""
        own = attempt.own_identity
        used = None if self.pool is None else self.pool.take_used(own.sink_id, own.run, attempt.key)
        self.last = None
        if used is not None:
            self.trace.count("transactional id used again")
            attempt.identity, self.last = used.identity, used.last
            if Random(attempt.name).random() < TAKEN_SHARE:
                self._init_by_another(attempt.transactional_id)

    def _init_by_another(self, transactional_id: str) -> None:
        """Another client asks for an epoch of the id, so that the expected one is wrong."""
        core, timeout_ms = self.network.core, self.plan.options.transaction_timeout_ms
        with suppress(Refused):
            core.coordinator.init_producer_id(transactional_id, timeout_ms, None, lambda *_: None)
            self.trace.count("another client took an epoch")
        self.network.route(core.tick(self.loop.now_ms))

    def give_back(self, attempt: Attempt, receipt: TaskReceipt) -> None:
        if self.pool is not None:
            assert receipt.transaction is not None
            self.pool.give_back(attempt.identity, attempt.key, Last(receipt.transaction, self.plan.options))

    def give_up(self, attempt: Attempt) -> None:
        """An InitProducerId for the attempt's id may still arrive, so the id is not used again."""
        self.trace.count("transactional id given up")

    def append_rows(self, attempt: Attempt, topic_partition: tuple[str, int], rows: tuple[int, ...]) -> None:
        first = len(self.history.records)
        self._append(topic_partition, len(rows))
        for index, row in enumerate(rows):
            self.books.wrote(attempt, row, first + index)

    def asks_in_vain(self) -> bool:
        """Before the process begins a transaction: whether Spark no longer waits for it."""
        if not self.is_waited_for:
            self.trace.count("worker of a cancelled job asked in time")
        return not self.is_waited_for

    def kill(self, *, is_silent: bool) -> None:
        super().kill(is_silent=is_silent)
        self.is_idle = False


def _attempt(executor: Executor, attempt: Attempt, report: Report, *, is_reused: bool) -> Script:
    started_ms = executor.loop.now_ms
    receipt = None
    is_begun = yield from _begun(executor, attempt, is_reused=is_reused)
    if is_begun is None:
        yield from _send(executor, attempt)
        receipt = yield from _finish(executor, attempt, started_ms)
    if receipt is None:
        # Real tasks wait for the abort of their transaction before they raise, but only for a limited time.
        executor.loop.after(ABORT_TIMEOUT_MS, lambda: _report(executor, attempt, None, report))
        yield c.Close
        _report(executor, attempt, None, report)
        executor.kill(is_silent=False)
        return None
    executor.books.has_prepared(attempt, receipt)  # type: ignore[arg-type]
    executor.give_back(attempt, receipt)  # type: ignore[arg-type]
    executor.is_idle = True
    _report(executor, attempt, attempt.receipt, report)
    return None


def _report(executor: Executor, attempt: Attempt, receipt: TaskReceipt | None, report: Report) -> None:
    if executor.attempt is attempt and executor.is_alive:
        executor.attempt = None
        text = "failed" if receipt is None else "prepared"
        executor.trace.note(executor.loop.now_ms, f"{executor.name} {text} {attempt.transactional_id}")
        executor.loop.after(executor.network.latency(), lambda: report(attempt, receipt))


def _begun(executor: Executor, attempt: Attempt, *, is_reused: bool) -> Script:
    """Returns None if the transaction is open."""
    has_begun = False
    if is_reused:
        expected = next_identity(executor.last, executor.plan.options)
        result = yield lambda number: c.StartOver(number, attempt.transactional_id, expected)
        executor.transaction = None
        executor.trace.count("producer started over")
        assert result is not None
        if result.error is not None:
            executor.trace.count("producer could not start over")
            return result.error
        has_begun = bool(result.result)
    if has_begun:
        executor.trace.count("task went on with an expected epoch")
        executor.transaction = executor.history.begin(attempt.transactional_id)
        return None
    if executor.asks_in_vain():
        return TransactionAborted("Spark no longer waits")
    error = yield from _take_identity(executor, attempt)
    if error is not None:
        return error
    result = yield partial(c.TransactionStep, event=TransactionEvent.BEGIN)
    assert result is not None
    if result.error is not None:
        return result.error
    executor.transaction = executor.history.begin(attempt.transactional_id)
    return None


def _take_identity(executor: Executor, attempt: Attempt) -> Script:
    """Gives up an id whose InitProducerId may still arrive, as the task does."""
    for _ in range(IDENTITIES_MAX):
        result = yield partial(c.TransactionStep, event=TransactionEvent.INIT)
        assert result is not None
        if result.error is not None:
            return result.error
        if result.result:
            return None
        executor.give_up(attempt)
        own, used = attempt.own_identity, attempt.identity
        attempt.identity = used.another() if used.attempt == own.attempt else own
        result = yield lambda number: c.StartOver(number, attempt.transactional_id)
        assert result is not None
        if result.error is not None:
            return result.error
    return OperationTimeout("no answer at once")


def _send(executor: Executor, attempt: Attempt) -> Script:
    """Sends the rows in portions, each to a random partition, like rows without keys."""
    rows, pick, batch = list(attempt.rows), executor.pick, attempt.batch
    since_ms = executor.loop.now_ms
    while rows and executor.refusal is None and not executor.must_fail:
        topic = batch.topic_of(rows[0]) if batch.has_fixed_topics else pick.choice(TOPICS)
        count = executor.engine.cluster.partition_count(topic) or 0
        if not count:
            executor.call(c.WantTopic(topic))
            if executor.loop.now_ms - since_ms > executor.plan.options.max_block_ms:
                return None
            yield METADATA_POLL_MS
            continue
        longest = pick.randint(1, executor.plan.batch_records_max)
        if not attempt.records and executor.asks_in_vain():
            return None
        portion = tuple(takewhile(partial(batch.may_go_to, topic), rows[:longest]))
        del rows[: len(portion)]
        executor.append_rows(attempt, (topic, pick.randrange(count)), portion)
        if pick.random() < 0.5:
            yield 1 + int(pick.expovariate(1 / executor.plan.pause_ms))
    return None


def _finish(executor: Executor, attempt: Attempt, started_ms: int) -> Script:
    """Returns the receipt, or None if some row is not in the log or the transaction could not be prepared."""
    if executor.must_fail or len(attempt.records) < len(attempt.rows):
        return None
    yield c.Flush
    records = [executor.history.records[number] for number in attempt.records.values()]
    if executor.must_fail or any(record.fate is not Fate.DELIVERED for record in records):
        return None
    result = yield partial(c.TransactionStep, event=TransactionEvent.PREPARE)
    assert result is not None and executor.transaction is not None
    if result.error is not None:
        return None
    prepared = result.result
    assert isinstance(prepared, TransactionReceipt) and prepared.is_started
    executor.transaction.is_prepared = True
    timeout_ms = executor.plan.options.transaction_timeout_ms
    letters = [executor.history.records[number] for row, number in attempt.records.items() if is_letter(row)]
    return TaskReceipt(  # type: ignore[return-value]
        attempt.key,
        attempt.run,
        attempt.spark_partition,
        attempt.number,
        transaction=PreparedTransaction(
            prepared.transactional_id,
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.transaction_version,
        ),
        timeout_ms=timeout_ms,
        remaining_ms=max(0, timeout_ms - (executor.loop.now_ms - started_ms)),
        written=_partitions_of(records),
        unknown=tuple(sorted({record.topic_partition for record in records if record.offset < 0})),
        dead_letters=_partitions_of(letters),
        topic_ids=prepared.topic_ids,
        row_count=len(records),
        digest=attempt.batch.digest_of(attempt.rows),
    )


def _partitions_of(records: Iterable[Record]) -> tuple[WrittenPartition, ...]:
    written: dict[tuple[str, int], WrittenPartition] = {}
    for record in records:
        where = record.topic_partition
        one = WrittenPartition(*where, 1, record.offset, record.offset)
        written[where] = one if where not in written else written[where].merge(one)
    return tuple(written[where] for where in sorted(written))
