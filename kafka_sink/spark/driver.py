"""The driver's side of exactly-once: commits, aborts, and finishes what earlier runs have decided.

The decisions are made by the pure state machine in commit/committer.py; this provides its I/O (a Client) and the
state kept between batches (a DriverSession). Both are kept in the process, clients for all writes with the same options
of the producer. Nothing relies on that: Spark starts commit processes at any time, and moves the commits of a query
between them. A process without state, or with old state, fences, reads the ledger and continues from there.

All of it may be called from any number of threads, as in a driver process whose streams each have a thread for
foreachBatch. An operation has its client and its session to itself: it takes them from what the process keeps, and puts
them back when it has succeeded. Threads wait for each other only where they would ask the same at planning
(cluster_check.py), and for the record that closes the last decision of the same sink (closings.py).

Brokers may be far away, where each request that waits for the answer to another one costs a round trip.
tests/integration/test_round_trips.py limits their number.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.client_pool import ClientPool
from kafka_sink.commit.admin.cluster_settings import settings_of_cluster
from kafka_sink.commit.admin.marks import Marks, marked_line
from kafka_sink.commit.admin.support import TransactionSupport
from kafka_sink.commit.command_texts import CommandTexts, broker_arguments
from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import Line, label_of, sink_id_of_query
from kafka_sink.commit.ledger import LedgerRecord, batch_at_hand, line_of
from kafka_sink.commit.ledger_write import LedgerWrite, WriteState
from kafka_sink.commit.manifest import Manifest, manifest_key, partition_of_key
from kafka_sink.commit.messages import COPIED_LATE, OPEN_ELSEWHERE, STILL_ACCEPTED, aborted_error, not_closed_text
from kafka_sink.commit.open_parts import NOT_TOLD
from kafka_sink.commit.receipt import BatchKey, TaskReceipt, summarize_receipts
from kafka_sink.commit.session import (
    CommitResult,
    Conclusion,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
    OnMismatch,
    margin_ms,
)
from kafka_sink.commit.sweep import NOT_LISTED, NOT_VERIFIED
from kafka_sink.errors import (
    CommitAborted,
    CommitError,
    CommitPending,
    KafkaSinkError,
    OperationTimeout,
    copy_error,
)
from kafka_sink.errors.table.commits import NOT_RECORDED, NOT_STARTED
from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.kafka.io.shared_answers import SharedAnswers
from kafka_sink.kafka.io.shelf import Shelf
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.closings import CLOSINGS
from kafka_sink.spark.files import application_folder, look_in_spark_files
from kafka_sink.spark.process import is_sparks, lives_on, time_since

if TYPE_CHECKING:
    from kafka_sink.commit.listing import Listed
    from kafka_sink.telemetry.metrics.figures import TaskFigures

look_in_spark_files()
_LOGGER = logging.getLogger("kafka_sink")
# A note that begins so does not change from batch to batch.
ONCE = (NOT_TOLD.partition("{")[0], OPEN_ELSEWHERE, COPIED_LATE)
# Planning looks at the ledger's topic in its own process, once; a commit at its first batch and every hour. It costs a
# request beside those of the check before the decision.
LEDGER_LOOK_MS = 3_600_000
# One for each stream, also for those that have ended. A stream without one fences and reads the ledger at each commit.
# It has neither connections nor threads; 20 kB are usual.
DRIVERS_MAX = 1_000
# What their ledgers may name altogether, in topics, partitions and runs: 30 MB.
NAMES_MAX = 200_000
# Idle clients that are kept, of all producer options together: the queries of an application usually share theirs. More
# may be in use.
IDLE_CLIENTS_MAX = 8
# Old decisions of other drivers that one planning closes.
CLOSED_MAX = 5
# Limit of cached configurations: each stream has one, and inside foreachBatch each batch may have a new one.
CHECKS_MAX = 1_000
# In one line of the log.
TOPICS_SHOWN_MAX = 8
NOT_ABORTED = (
    "open transactions of the failed batch could not be aborted, and end at their time-out unless a decision names "
    "them: %s"
)
NO_SCHEMAS: Mapping[str, int] = MappingProxyType({})


class Driver:
    """One line of decisions in one run, without a client. Without a key, at planning: the queries of a sink, of which
    none is known. `support`: known from the checks of planning."""

    def __init__(
        self,
        options: SinkOptions,
        sink_id: str,
        run: str = "",
        key: BatchKey | None = None,
        *,
        support: TransactionSupport | None = None,
        is_only_sink: bool = False,
    ) -> None:
        self._options = options
        query_id = "" if key is None else key.query_id
        named = sink_id if query_id else ""
        name = label_of(options.query_name, options.checkpoint_location)
        own_sink_id = sink_id_of_query(sink_id, query_id)
        code = "" if key is None else line_of(own_sink_id, key, options.ledger_topic).code
        self._session = DriverSession(
            own_sink_id, run, named_sink_id=named, is_only_sink=is_only_sink, label=name, code=code
        )
        self._settings: DeliverySettings | None = None
        self._known_support = support
        self._manifest_partition: int | None = None

    @property
    def name_count(self) -> int:
        """By how much it is larger than other drivers."""
        ledger = self._session.ledger
        return 0 if ledger is None else ledger.name_count

    def commit(
        self, client: Client, key: BatchKey, receipts: Sequence[TaskReceipt], schemas: Mapping[str, int] = NO_SCHEMAS
    ) -> CommitResult:
        try:
            self._look_ahead(client, receipts)
            self._delivery_settings(client)
            manifest = self._manifest(client, key, schemas)
        except KafkaSinkError as error:
            # By its own text nothing was written yet. But the tasks have written, and nothing is decided.
            batch = batch_at_hand(self._session.sink_id, key, self._session.run, summarize_receipts(receipts))
            raise aborted_error(batch, str(error)) from error
        job = Job(DriverOperation.COMMIT, key, receipts, manifest=manifest, may_close_later=lives_on())
        return self._run(client, job, self._session)

    def close(self, client: Client, record: LedgerRecord) -> None:
        """Writes the record that a commit has left to be written. If it is not known to be written this raises, and the
        log says why: neither session nor client is of any use then."""
        settings = self._delivery_settings(client)
        try:
            write = LedgerWrite(settings, self._session, record)
            client.run(SingleStep(write, client.now_ms() + settings.patience_ms))
            if write.state is not WriteState.WRITTEN:
                raise CommitPending(write.reason, NOT_RECORDED)
            for note in write.notes:
                _LOGGER.warning("%s", note)
        except Exception as error:
            reason = str(error) if isinstance(error, KafkaSinkError) else f"{type(error).__name__}: {error}"
            _LOGGER.warning("%s", not_closed_text(settings.commands, record, reason))
            raise

    def abort(
        self, client: Client, key: BatchKey, receipts: Sequence[TaskReceipt], *, may_be_decided: bool,
        has_late_tasks: bool,
    ) -> CommitResult:  # fmt: skip
        job = Job(DriverOperation.ABORT, key, receipts, may_be_decided=may_be_decided, has_late_tasks=has_late_tasks)
        return self._run(client, job, self._session)

    def recover(self, client: Client) -> None:
        """Finishes open decisions without fencing their driver; those of writes without a label whoever made them. An
        old one of which no transaction is open is closed, too, if that takes no longer than help may take
        altogether: each is a fence, and the ledger is read as it was just now. Its driver is gone, or goes on with what
        it finds."""
        begun_ms = client.now_ms()
        result, wall_ms = self._run(client, Job(DriverOperation.RECOVER), self._session), int(time.time() * 1000)
        sweep_ms = self._delivery_settings(client).sweep_ms
        until_ms = client.now_ms() + sweep_ms if result.help_until_ms is None else result.help_until_ms
        # How long it took until help began.
        each_ms = until_ms - sweep_ms - begun_ms
        oldest_ms = wall_ms - self._options.producer.transaction_timeout_ms
        for record in [each for each in result.others if each.wall_ms < oldest_ms][:CLOSED_MAX]:
            left_ms = until_ms - client.now_ms()
            if left_ms < each_ms:
                return
            line = line_of(record.sink_id, record.key, self._options.ledger_topic)
            session = DriverSession(line.sink_id, code=line.code)
            try:
                self._run(client, Job(DriverOperation.FINISH, wall_ms=wall_ms), session, help_ms=left_ms)
            except KafkaSinkError as error:
                _LOGGER.warning("an earlier write of another driver: %s", error)

    def list_decisions(self, client: Client) -> tuple[list[Listed], DeliverySettings]:
        """Those of the sink, in all its lines, without fencing anybody."""
        from kafka_sink.commit.listing import LedgerListing  # most writes list nothing

        settings = self._delivery_settings(client)
        listing = client.run_step(LedgerListing(settings, self._session.sink_id))
        if listing.listed is None:
            raise OperationTimeout(f"the ledger could not be read: {listing.reason}", NOT_STARTED)
        return listing.listed, settings

    def list_open(self, client: Client) -> set[Line]:
        """The lines of the sink in which a transaction is open, as far as its brokers tell that soon."""
        from kafka_sink.commit.each_line import lines_of
        from kafka_sink.commit.listing import TransactionListing

        settings = self._delivery_settings(client)
        listing = TransactionListing(settings, self._session.sink_id)
        client.run(SingleStep(listing, client.now_ms() + settings.sweep_ms))
        return lines_of(listing.found)

    def finish(self, client: Client) -> None:
        """Completes the open decision of this line, as `pykafka-sink recover` does. A live driver of it is fenced, and
        goes on with what it finds."""
        self._run(client, Job(DriverOperation.FINISH), self._session)

    def end_own_runs(self, client: Client, code: str) -> bool:
        """For a failed batch without receipts. True: it has left nothing open."""
        from kafka_sink.commit.each_line import carry_out, end_own_runs  # most writes do not fail

        script = end_own_runs(self._delivery_settings(client), self._session.sink_id, code, int(time.time() * 1000))
        results = carry_out(script, lambda begin: client.run(begin(client.now_ms())))
        for result in results:
            for note in result.notes:
                _LOGGER.warning("sink %s: %s", self._session.sink_id, note)
            if result.swept:
                _LOGGER.info("sink %s: aborted: %s", self._session.sink_id, ", ".join(result.swept))
        for error in filter(None, (result.error for result in results)):
            raise error
        return all(result.is_swept for result in results)

    def _look_ahead(self, client: Client, receipts: Sequence[TaskReceipt]) -> None:
        """A commit asks the leaders of the ledger and of each written partition, the coordinators of the driver and of
        each transaction, and all brokers for open transactions."""
        ids = [receipt.transaction.transactional_id for receipt in receipts if receipt.transaction is not None]
        topics = {written.topic for receipt in receipts for written in receipt.written}
        topics |= {self._options.manifest_topic} if self._options.manifest_topic is not None else set()
        client.look_ahead([self._options.ledger_topic, *sorted(topics)], [self._session.transactional_id, *ids])

    def _manifest(self, client: Client, key: BatchKey, schemas: Mapping[str, int]) -> Manifest | None:
        """In the partition in which any producer would put its key. The key is the same for all batches."""
        topic = self._options.manifest_topic
        if topic is None:
            return None
        sink = self._session.named_sink_id or self._session.sink_id
        if self._manifest_partition is None:
            count = len(client.describe_topic(topic))
            self._manifest_partition = partition_of_key(manifest_key(sink, *key), count)
        return Manifest(topic, self._manifest_partition, sink, schemas=schemas)

    def _run(self, client: Client, job: Job, session: DriverSession, *, help_ms: int | None = None) -> CommitResult:
        settings = self._delivery_settings(client)
        age_max_ms = time_since(one.planned_at for one in job.receipts if one.transaction is not None)
        job = replace(job, wall_ms=int(time.time() * 1000), age_max_ms=age_max_ms)
        if help_ms is not None:
            settings = replace(settings, patience_ms=help_ms, is_help=True)
        result = client.run(Committer(settings, session, job, client.now_ms()))
        for note in result.notes:
            if note in (NOT_VERIFIED, STILL_ACCEPTED) or note.startswith(ONCE):
                warn_once(note)
            else:
                _LOGGER.warning("sink %s: %s", session.sink_id, note)
        if result.swept:
            _LOGGER.info("sink %s: aborted dangling transactions: %s", session.sink_id, ", ".join(result.swept))
        if result.error is not None:
            raise result.error
        return result

    def _delivery_settings(self, client: Client) -> DeliverySettings:
        if self._settings is None:
            producer = self._options.producer
            brokers = broker_arguments(producer)
            self._settings = replace(
                settings_of_cluster(client, self._options.ledger_topic, brokers, self._known_support),
                margin_ms=margin_ms(producer.transaction_timeout_ms),
                request_timeout_ms=producer.request_timeout_ms,
                accept_unknown_sink=self._options.ledger_accept_new_sink,
                ledger_look_ms=LEDGER_LOOK_MS,
                visible_ms=self._options.commit_visible_timeout_ms,
                on_mismatch=OnMismatch(self._options.replay_mismatch),
            )
        return self._settings


class FinishedBatch(NamedTuple):
    """The results of its tasks. `figures`: one for each receipt; None without an option that enables them.

    `write` distinguishes the writes of one run: inside foreachBatch a batch can be written again after an error, and
    the cached decision of the first write must not be applied to the second.
    """

    options: SinkOptions
    sink_id: str | None
    key: BatchKey
    run: str
    receipts: Sequence[TaskReceipt]
    figures: Sequence[TaskFigures | None] = ()
    write: str = ""
    # Every task has returned its message. Before that Spark begins no commit. A task that has failed, or that Spark has
    # cancelled, leaves none, and its process may live on for some seconds.
    is_complete: bool = True
    # The query writes to this sink alone.
    is_only_sink: bool = False
    # For how long its oldest transaction has been open, where that is known.
    open_ms: float | None = None
    # Of the registry, by side: for the manifest.
    schemas: Mapping[str, int] = NO_SCHEMAS
    # What was refused when Spark planned its commit. An abort goes on.
    refusal: KafkaSinkError | None = None
    # Of a stream: how its runs in this application begin, where that can be told (`code_of_own_runs`).
    code: str = ""

    @property
    def has_transactions(self) -> bool:
        return any(each.transaction is not None for each in self.receipts)

    @property
    def has_successors(self) -> bool:
        """The run goes on with other batches, under the same write."""
        return not self.key.is_label and self.write in ("", self.run)

    @property
    def is_recorded(self) -> bool:
        """Even if its tasks have written nothing. A batch whose plan has no task does not know its query."""
        is_named = bool(self.key.query_id) or self.key.is_label
        wants_manifest = self.options.manifest_topic is not None and is_named
        return self.key.is_first or wants_manifest or self.has_transactions


def commit_batch(batch: FinishedBatch) -> Conclusion:
    """The outcome of the batch; raises `CommitError` if it was not, or not completely, committed."""
    key, receipts = batch.key, batch.receipts
    if batch.sink_id is None and batch.has_transactions:
        raise _no_transactions_error(batch)
    if batch.sink_id is None or not batch.is_recorded:
        return Conclusion.DELIVERED
    with _doubt_answers_on_error(), marks_of(batch.options, batch.sink_id, key).mark_commit(batch.run):
        try:
            if batch.refusal is not None:
                raise _refused_error(batch, batch.sink_id, batch.refusal) from batch.refusal
            done = _use_driver(
                batch, batch.sink_id, lambda driver, client: driver.commit(client, key, receipts, batch.schemas)
            )
        except CommitAborted as error:
            from kafka_sink.spark.write_watch import explain_length

            timeout_ms = batch.options.producer.transaction_timeout_ms
            raise explain_length(error, key, receipts, timeout_ms, batch.open_ms) from error.__cause__
        return done.conclusion


def _refused_error(batch: FinishedBatch, sink_id: str, refusal: KafkaSinkError) -> KafkaSinkError:
    """Planning has tried to finish an open decision. If an earlier run has decided this very batch, planning says what
    became of it; without a transaction nothing is known of what is visible."""
    is_decided = isinstance(refusal, CommitError) and (refusal.query_id, refusal.batch_id) == batch.key
    if is_decided or not batch.has_transactions:
        return copy_error(refusal)
    own_sink_id = sink_id_of_query(sink_id, batch.key.query_id)
    record = batch_at_hand(own_sink_id, batch.key, batch.run, summarize_receipts(batch.receipts))
    return aborted_error(record, str(refusal))


def _no_transactions_error(batch: FinishedBatch) -> CommitAborted:
    """By delivery.fallback. Spark plans a stream's commit anew, and the brokers that are reached decide."""
    summary = summarize_receipts(batch.receipts)
    record = batch_at_hand(batch.options.sink_id or "", batch.key, batch.run, summary)
    return aborted_error(
        record,
        "its tasks wrote in transactions, and the brokers that are reached now offer none, so that these are left to "
        "their time-out",
    )


def abort_batch(batch: FinishedBatch) -> Conclusion | None:
    """None: no receipt has a transaction to abort, or brokers without transactions were reached. Never raises because
    of the brokers: Spark is about to report why the batch failed, and would report the error of its abort instead.

    Killed tasks leave no receipt, and their open transactions would hold back readers until the time-out. The run of a
    batch write has no other batch, so all of its transactions are aborted, and the ledger is read only if a commit can
    have begun. The run of a query may have decided another batch, so the ledger is read first. Killed tasks may still
    be about to begin transactions, so this waits for some seconds, unless each task has left a message.

    Over Spark Connect the tasks of an interrupted write even run on while this waits: Spark interrupts the thread that
    writes, which calls this, and cancels the job afterwards. So where the process lives on, the run is swept once more
    after this has returned.
    """
    key, receipts = batch.key, batch.receipts
    if batch.sink_id is not None:
        marks_of(batch.options, batch.sink_id, key).mark_abort(batch.run)
        ANSWERS.value.doubt()
    has_transactions = batch.has_transactions
    if batch.sink_id is None and has_transactions:
        _warn_of_waiting_readers(batch.options, "", receipts, [NOT_LISTED])
    is_own_run = bool(batch.write) and batch.run == batch.write
    if batch.sink_id is None or (batch.is_complete and not has_transactions and not is_own_run):
        return None
    if not batch.run:
        _end_own_runs(batch, batch.sink_id)
        return None
    may_be_decided = not is_own_run or (has_transactions and batch.is_complete)
    try:
        result = _use_driver(
            batch,
            batch.sink_id,
            lambda driver, client: driver.abort(
                client, key, receipts, may_be_decided=may_be_decided, has_late_tasks=not batch.is_complete
            ),
        )
        if is_own_run and not batch.is_complete and is_sparks() and lives_on():
            _sweep_later(batch, batch.sink_id)
    except KafkaSinkError as error:
        _LOGGER.warning(NOT_ABORTED, error)
        _warn_of_waiting_readers(batch.options, batch.sink_id, receipts)
        return Conclusion.LEFT_ALONE if has_transactions else None
    if result.has_nothing_open and result.conclusion is not Conclusion.LEFT_ALONE:
        marks_of(batch.options, batch.sink_id, key).settle(batch.run)
    if not result.is_swept:
        _warn_of_waiting_readers(batch.options, batch.sink_id, receipts, result.notes)
    return result.conclusion if has_transactions else None


def _end_own_runs(batch: FinishedBatch, sink_id: str) -> None:
    """Without a receipt neither query nor run is known here."""
    CLOSINGS.value.wait(sink_id)
    notes: list[str] = []
    try:
        with CLIENTS.value.borrow(batch.options.producer) as client:
            if Driver(batch.options, sink_id).end_own_runs(client, batch.code):
                return
    except KafkaSinkError as error:
        _LOGGER.warning(NOT_ABORTED, error)
        notes = [each for each in (NOT_VERIFIED, NOT_LISTED) if each in str(error)]
    _warn_of_waiting_readers(batch.options, sink_id, (), notes)


def _sweep_later(batch: FinishedBatch, sink_id: str) -> None:
    """No other batch has this run. Readers wait until the time-out if it fails, and the abort has warned if it did."""

    def sweep() -> None:
        with suppress(Exception), CLIENTS.value.borrow(batch.options.producer) as client:
            driver = Driver(batch.options, sink_id, batch.run, batch.key)
            driver.abort(client, batch.key, (), may_be_decided=False, has_late_tasks=True)

    CLOSINGS.value.begin(sink_id_of_query(sink_id, batch.key.query_id), sweep)


def _warn_of_waiting_readers(
    options: SinkOptions, sink_id: str, receipts: Iterable[TaskReceipt], notes: Sequence[str] = ()
) -> None:
    _LOGGER.warning("%s", waiting_text(options, sink_id, receipts, notes, now_s=time.time()))


def waiting_text(
    options: SinkOptions, sink_id: str, receipts: Iterable[TaskReceipt], notes: Sequence[str], *, now_s: float
) -> str:
    """For the log, when a failed batch may have left transactions open: who waits, until when, and which command ends
    that. `notes`: of the abort that did not end everything."""
    timeout_ms = options.producer.transaction_timeout_ms
    until = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s + timeout_ms / 1000))
    commands = CommandTexts(broker_arguments(options.producer), options.ledger_topic)
    end = (
        "these brokers offer no way to end them sooner"
        if NOT_VERIFIED in notes or NOT_LISTED in notes
        else f"`{commands.abort_transactions(sink_id)}` ends them at once{commands.hint}"
    )
    return (
        f"read_committed readers of {_topics_text(options, receipts)} may wait until {until} (transaction.timeout.ms="
        f"{timeout_ms}), because killed tasks may have left transactions open; {end}"
    )


def _topics_text(options: SinkOptions, receipts: Iterable[TaskReceipt]) -> str:
    written = {each.topic for receipt in receipts for each in receipt.written}
    named = sorted(written | ({options.topic} if options.topic is not None else set()))
    if not named:
        return "the topics of this write"
    more = f" and {len(named) - TOPICS_SHOWN_MAX} topics more" if len(named) > TOPICS_SHOWN_MAX else ""
    return ", ".join(named[:TOPICS_SHOWN_MAX]) + more


class KeptDriver(NamedTuple):
    """It is for batches with this `use` alone."""

    use: tuple[SinkOptions, str, str, str, str]
    driver: Driver


# What this process keeps between operations.
CLIENTS = PerProcess(lambda: ClientPool(IDLE_CLIENTS_MAX))
# By the brokers and the topic of their ledger, and by their own sink id.
DRIVERS: PerProcess[Shelf[tuple[object, str, str], KeptDriver]] = PerProcess(
    lambda: Shelf(DRIVERS_MAX, NAMES_MAX, lambda kept: kept.driver.name_count)
)
ANSWERS: PerProcess[SharedAnswers[tuple[SinkOptions, str | None, BatchKey | None], SinkOptions]] = PerProcess(
    lambda: SharedAnswers(CHECKS_MAX)
)


def _use_driver(batch: FinishedBatch, sink_id: str, act: Callable[[Driver, Client], CommitResult]) -> CommitResult:
    """The kept driver of this sink, run and write; one that failed is dropped. One that is still closing its last
    decision is waited for; it is put back, and its client too, when that is done. If it fails, the client is closed.

    Drivers of the same stream fence each other, so those of an earlier run or of other options are of no use any more.
    """
    use = (batch.options, sink_id, batch.run, batch.key.query_id, batch.write)
    own_sink_id = sink_id_of_query(sink_id, batch.key.query_id)
    where = (batch.options.producer.bootstrap_servers, batch.options.ledger_topic, own_sink_id)
    CLOSINGS.value.wait(own_sink_id)
    found = [kept.driver for kept in DRIVERS.value.take_all(where) if kept.use == use]
    driver = (
        found[-1] if found else Driver(batch.options, sink_id, batch.run, batch.key, is_only_sink=batch.is_only_sink)
    )

    def put_back() -> None:
        if batch.has_successors:
            DRIVERS.value.put(where, KeptDriver(use, driver))

    with ExitStack() as stack:
        client = stack.enter_context(CLIENTS.value.borrow(batch.options.producer))
        result = act(driver, client)
        closing = result.closing
        if closing is not None:
            borrowed = stack.pop_all()

            def close() -> None:
                with suppress(Exception):
                    with borrowed:
                        driver.close(client, closing)
                    put_back()

            CLOSINGS.value.begin(own_sink_id, close)
            return result
    put_back()
    return result


def marks_of(options: SinkOptions, sink_id: str, key: BatchKey | None) -> Marks:
    return Marks(application_folder(), marked_line(sink_id, key, options.ledger_topic))


@contextmanager
def _doubt_answers_on_error() -> Iterator[None]:
    """A mark does the same for other processes, where there is a folder for it."""
    try:
        yield
    except BaseException:
        ANSWERS.value.doubt()
        raise
