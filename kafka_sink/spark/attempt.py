"""What an attempt of a task has at the brokers: a producer and, for exactly-once, a transaction under an id of its own.

Both come from the process's pools and go back only after success, so that whoever takes them next need not ask what
became of them. An attempt that fails closes its producer. A killed one gets no clean-up call; nothing relies on one. A
task that Spark no longer waits for begins no transaction (task_context.py).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.identity_pool import Last, next_identity
from kafka_sink.commit.receipt import PreparedTransaction
from kafka_sink.errors import KafkaSinkError, OperationTimeout, TransactionAborted
from kafka_sink.kafka.io.clock import boot_s
from kafka_sink.options import ProducerOptions
from kafka_sink.options.host.functions import load_user_function
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.producer.engine.commands import TransactionReceipt
from kafka_sink.producer.pool import POOL
from kafka_sink.producer.producer import Producer
from kafka_sink.spark.client_id import client_id_of
from kafka_sink.spark.identities import IDENTITIES
from kafka_sink.spark.task_context import TaskPlace, is_spark_waiting

if TYPE_CHECKING:
    from kafka_sink.telemetry.metrics.figures import TaskMeter

# A failing attempt aborts its transaction if the coordinator answers soon; if not, the driver's sweep does.
ABORT_TIMEOUT_S = 10.0
# How many transactional ids an attempt tries.
IDENTITIES_MAX = 8


def begin_attempt(options: SinkOptions, place: TaskPlace, meter: TaskMeter | None = None) -> Attempt:
    """Asks brokers for what the attempt needs before its first row."""
    producer_options = _producer_options(options)
    identity, last = _choose_identity(place, producer_options)
    producer, has_begun = POOL.borrow(
        producer_options, _transactional_id(identity), next_identity(last, producer_options)
    )
    attempt = Attempt(options, place, meter, producer_options, identity, last, producer, boot_s())
    try:
        attempt.note_producer()
    except BaseException:
        producer.close(0)
        raise
    if identity is not None and not has_begun:
        attempt.begin(identity)
    return attempt


@dataclass(slots=True)
class Attempt:
    """What `begin_attempt` has made. The task closes or returns it: `give_up`, `give_back`."""

    options: SinkOptions
    place: TaskPlace
    meter: TaskMeter | None
    producer_options: ProducerOptions
    # None: without a transaction.
    identity: TaskIdentity | None
    # The last transaction under the id, if the next one need not ask for its epoch.
    last: Last | None
    producer: Producer
    started_s: float
    # Records that the producer had retried for earlier tasks.
    retries_before: int = 0

    def note_producer(self) -> None:
        self.retries_before = self.producer.retried_record_count
        if self.options.topic is not None:
            # An idle producer may not know yet of partitions that new ones place rows in: a key would be in two.
            self.producer.look_ahead(self.options.topic, self.options.partition_count)
        if self.meter is not None:
            self.meter.begin(self.producer)

    def begin(self, identity: TaskIdentity) -> None:
        try:
            self.check_that_spark_waits()
            self.identity = self._init_transactions(identity)
            self.producer.begin_transaction()
        except BaseException:
            self.producer.close(0)
            raise

    def check_that_spark_waits(self) -> None:
        if self.identity is not None and not is_spark_waiting():
            raise TransactionAborted(f"Spark no longer waits for this task, so it begins no transaction ({self.place})")

    def _init_transactions(self, identity: TaskIdentity) -> TaskIdentity:
        """An InitProducerId without a response may arrive when the transaction is prepared or decided, and would abort
        it. So this attempt abandons that id."""
        own = self.place.own_identity
        assert own is not None
        for _ in range(IDENTITIES_MAX):
            is_own = identity.attempt == own.attempt
            try:
                if self.producer.init_transactions():
                    return identity
            except OperationTimeout:
                if is_own:
                    raise
                # Its last transaction is committed, but some partition cannot write the marker, which may take long.
                self.producer.close(0)
                self.producer, _ = POOL.borrow(self.producer_options, _transactional_id(own))
                self.note_producer()
                identity = own
                continue
            identity = identity.another() if is_own else own
            self.producer.start_over(_transactional_id(identity))
        raise OperationTimeout(f"the coordinator did not answer InitProducerId at once in {IDENTITIES_MAX} tries")

    @property
    def retry_count(self) -> int:
        return self.producer.retried_record_count - self.retries_before

    @property
    def age_ms(self) -> int:
        return int((boot_s() - self.started_s) * 1000)

    def give_back(self, prepared: TransactionReceipt | None, transaction: PreparedTransaction | None) -> None:
        """Every row is acknowledged. `transaction` None: nothing was written in one."""
        if self.meter is not None:
            is_new = self.identity is not None and self.identity.attempt == self.place.attempt
            self.meter.end(self.producer, has_new_id=is_new)
        POOL.give_back(self.producer_options, self.producer)
        if self.identity is not None:
            last = self._last_transaction(prepared, transaction)
            IDENTITIES.pool.give_back(self.identity, self.place.key, last)

    def _last_transaction(
        self, prepared: TransactionReceipt | None, transaction: PreparedTransaction | None
    ) -> Last | None:
        """Under the id. An attempt that wrote nothing leaves it as it was, unless it asked for another epoch."""
        if transaction is not None:
            return Last(transaction, self.producer_options)
        expected = next_identity(self.last, self.producer_options)
        is_used = prepared is None or expected != (prepared.producer_id, prepared.producer_epoch)
        return None if is_used else self.last

    def give_up(self) -> None:
        """Nothing more is sent. The transaction is aborted; without one, records that were sent remain."""
        # If that fails, too, the original error is reported, and the driver's sweep aborts the transaction; not if the
        # permission for its id was revoked: then only the time-out ends it.
        with suppress(KafkaSinkError, MemoryError):
            self.producer.close(ABORT_TIMEOUT_S if self.identity is not None else 0)

    def explain_length(self, error: KafkaSinkError) -> KafkaSinkError:
        """Brokers may have ended the transaction because of its time-out."""
        timeout_ms = self.options.producer.transaction_timeout_ms
        if self.identity is None or self.age_ms < timeout_ms:
            return error
        from kafka_sink.spark.write_length import explain_task

        return explain_task(error, self.place.key, timeout_ms)


def _choose_identity(place: TaskPlace, options: ProducerOptions) -> tuple[TaskIdentity | None, Last | None]:
    """And the last transaction under it, if its epoch may be counted on."""
    own = place.own_identity
    if own is None:
        return None, None
    used = IDENTITIES.pool.take_used(own.sink_id, own.run, place.key)
    if used is None:
        return own, None
    last = used.last
    if place.errors_may_be_caught and last and not IDENTITIES.ask_if_ended(options, last.transaction):
        return own, None
    # While markers cannot be written, only a task that asks for its epoch can leave the id for another one.
    return used.identity, None if place.attempt_number else last


def _transactional_id(identity: TaskIdentity | None) -> str | None:
    return None if identity is None else identity.transactional_id


def _producer_options(options: SinkOptions) -> ProducerOptions:
    producer = replace(options.producer, client_id=client_id_of(options))
    if options.partitioner is None:
        return producer
    return replace(producer, partitioner=load_user_function(options.partitioner, "kafka.partitioner.class"))
