"""Errors for batches that were given up: what happened, to which records, whether they are safe, what to do; and for
commits whose outcome is not known."""

from __future__ import annotations

from typing import TypeVar

from kafka_sink.errors import AuthorizationError, DeliveryError, DeliveryTimeout, KafkaSinkError, copy_error
from kafka_sink.errors.table.brokers import COMMIT_UNKNOWN, PARTITION_GONE
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    code,
)
from kafka_sink.producer.engine.commands import PendingOperation
from kafka_sink.producer.engine.producer_batch import ProducerBatch

E = TypeVar("E", bound=DeliveryError)

CLOSED = "the producer is closed"
FORGOTTEN = (
    "Either the transactional id was not used for longer than transactional.id.expiration.ms of the brokers (7 days by "
    "default), and they have forgotten it, or another producer has it now. Nothing more can be sent; make a new "
    "producer if no other one is running"
)

_ADVICE = {
    INVALID_PRODUCER_ID_MAPPING: FORGOTTEN,
    MESSAGE_TOO_LARGE: (
        "They take {size} bytes: raise max.message.bytes of the topic (and message.max.bytes of the brokers) or send "
        "smaller records"
    ),
    INVALID_RECORD: (
        "the broker checks record contents on this topic (for example keys are required on a compacted one)"
    ),
    INVALID_TIMESTAMP: (
        "the record's timestamp is outside of what the topic accepts (message.timestamp.*.max.ms); a number is taken "
        "for milliseconds, so one of microseconds is in the distant future: divide it by 1000"
    ),
}


# Before its first batch of a transaction a leader asks the coordinator. It answers with these if nobody tells it.
_MAYBE_OF_COORDINATOR = (NOT_ENOUGH_REPLICAS, CONCURRENT_TRANSACTIONS)
_COORDINATOR = (
    "or the transaction's coordinator cannot be reached, or cannot write to __transaction_state: the command `check` "
    "looks at both"
)


def trouble_text(error_code: int, broker_text: str | None, *, is_transactional: bool) -> str:
    """Why a batch was not accepted yet."""
    text = describe(error_code, broker_text)
    return f"{text}; {_COORDINATOR}" if is_transactional and error_code in _MAYBE_OF_COORDINATOR else text


def refused_error(
    batch: ProducerBatch, error_code: int, broker_text: str | None, transactional_id: str | None
) -> KafkaSinkError:
    """The broker's response was final."""
    text = f"{_records(batch)} refused: {describe(error_code, broker_text)}"
    if error_code in _ADVICE:
        text += f". {_ADVICE[error_code].format(size=batch.size)}"
    text += f". {_safety(batch)}"
    if code(error_code).name.endswith("AUTHORIZATION_FAILED"):
        if error_code == CLUSTER_AUTHORIZATION_FAILED:
            needed = "IdempotentWrite on the cluster, or set enable.idempotence=false"
        elif error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            needed = f"Write on transactional id {transactional_id!r}"
        else:
            needed = f"Write on topic {batch.topic!r}"
        is_ambiguous = not batch.is_surely_not_in_log
        return AuthorizationError(f"{text}. The principal needs {needed}", ambiguous=is_ambiguous)
    return _delivery_error(DeliveryError, batch, text, error_code)


def retries_exhausted_error(batch: ProducerBatch, reason: str, error_code: int | None) -> DeliveryError:
    text = f"{_records(batch)} given up after {batch.attempts} attempts (retries used up), last: {reason}"
    return _delivery_error(DeliveryError, batch, f"{text}. {_safety(batch)}", error_code)


def timeout_error(batch: ProducerBatch, delivery_timeout_ms: int, reason: str, trouble: str = "") -> DeliveryTimeout:
    text = (
        f"{_records(batch)} not delivered within delivery.timeout.ms={delivery_timeout_ms} "
        f"({batch.attempts} attempts; {reason})"
    )
    if trouble:
        text += f": {trouble}"
    return _delivery_error(DeliveryTimeout, batch, f"{text}. {_safety(batch)}", None)


def lost_partition_error(batch: ProducerBatch, loss: str) -> DeliveryError:
    error = _delivery_error(DeliveryError, batch, f"{_records(batch)} given up: {loss}. {_safety(batch)}", None)
    error.name = PARTITION_GONE.name
    return error


def dropped_error(batch: ProducerBatch, cause: KafkaSinkError) -> DeliveryError:
    """The batch is valid; the producer or its transaction ended before it was delivered."""
    error = _delivery_error(DeliveryError, batch, f"{_records(batch)} dropped: {cause}. {_safety(batch)}", None)
    error.__cause__ = cause
    return error


def stopped_error(why: str) -> DeliveryError:
    """The producer's thread ended by itself."""
    text = f"the producer stopped: {why}. What was not acknowledged may be in the log all the same"
    return DeliveryError(text, ambiguous=True)


def commit_unknown(cause: KafkaSinkError) -> KafkaSinkError:
    """For the caller of a commit that was requested and not answered before the producer ended."""
    error = copy_error(
        cause,
        f"{cause}. The commit had been requested, and whether the transaction was committed is not known: all of its "
        "records are visible to readers, or none",
    )
    error.name = COMMIT_UNKNOWN.name
    return error


def is_commit_unknown(commit: PendingOperation) -> bool:
    """Of a commit whose producer has ended, or should have."""
    return not commit.is_over or (commit.error is not None and commit.error.name == COMMIT_UNKNOWN.name)


def _records(batch: ProducerBatch) -> str:
    return f"{batch.record_count} records for {batch.topic}-{batch.partition}"


def _safety(batch: ProducerBatch) -> str:
    if batch.may_be_in_log:
        return "They may be in the log all the same: a send stayed without a definite answer"
    if batch.may_arrive_late:
        return "They may still get into the log: a send was lost with its connection and can arrive late"
    return "They are not in the log"


def _delivery_error(kind: type[E], batch: ProducerBatch, text: str, error_code: int | None) -> E:
    return kind(
        text,
        topic=batch.topic,
        partition=batch.partition,
        attempts=batch.attempts,
        ambiguous=not batch.is_surely_not_in_log,
        code=error_code,
    )
