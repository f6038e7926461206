"""Calls of the application, which go into `Engine.step`, and the results that come out, with the network events and
commands of kafka/client/commands.py. Nothing here has behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.commands import NetworkCommand
from kafka_sink.kafka.client.producer_identity import ProducerIdentity

if TYPE_CHECKING:
    from kafka_sink.producer.engine.producer_batch import ProducerBatch, TopicPartition


# ---- calls of the application ----------------------------------------------------------------------------------
# Every call with a result has an `operation`; the engine answers it with exactly one `Finished`.


@dataclass(slots=True, eq=False)
class PendingOperation:
    """An operation with a result: flush, close, a step of a transaction. The mailbox writes its end into it."""

    name: str
    is_posted: bool = False
    is_over: bool = False
    error: KafkaSinkError | None = None
    result: object = None


@frozen
class Append:
    batches: Sequence[ProducerBatch]


@frozen
class RowsRejected:
    """Rows that the producer had accepted failed before they were in a batch. No `Finished`: their transaction cannot
    be committed."""

    error: KafkaSinkError


@frozen
class WantTopic:
    """A caller waits for the metadata of this topic. No `Finished`: the shell watches the published cluster view."""

    topic: str


@frozen
class Flush:
    """Finishes when every batch appended before it has been delivered or has failed."""

    operation: PendingOperation


class TransactionEvent(Enum):
    INIT = "init"
    INITIALIZED = "initialized"
    IDENTITY_REFUSED = "identity refused"
    BEGIN = "begin"
    RENEW = "renew"
    PREPARE = "prepare"
    PREPARED = "prepared"
    RESUME = "resume"
    COMMIT = "commit"
    ABORT = "abort"
    ENDED = "ended"
    ENDED_STALE = "ended, epoch is stale"
    ENDED_RESUMED = "ended, epoch is somebody else's"
    ERROR = "error"
    FATAL_ERROR = "fatal error"


@frozen
class TransactionReceipt:
    """All that is needed to end a prepared transaction from another process or host.

    `transaction_version` is part of it: a retried EndTxn by the other version's rules gets a wrong response.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    transaction_version: int
    # False: nothing was written. Kafka cannot end such a transaction, and there is nothing to end.
    is_started: bool
    last_offsets: Mapping[TopicPartition, int]
    # Of the topics above, where they are known: a topic that was deleted and created again has another one.
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)


@frozen
class TransactionStep:
    """`event`: init, begin, prepare, commit or abort.

    A prepare finishes when all records are acknowledged; any process can end the transaction with the resulting
    receipt. From then on this producer never ends the transaction itself, not even when it is closed.
    """

    operation: PendingOperation
    event: TransactionEvent


@frozen
class ConsumerGroup:
    """A member as known to the group coordinator, which rejects offsets of a member that was replaced.

    With only the group id there is no such check.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@frozen
class SendOffsets:
    """Consumer offsets that become part of the transaction: (topic, partition) -> (offset, leader epoch, metadata)."""

    operation: PendingOperation
    group: ConsumerGroup
    offsets: Mapping[tuple[str, int], tuple[int, int, str]]


@frozen
class ResumeTransaction:
    """Takes over a prepared transaction of another producer; the next request must end it."""

    operation: PendingOperation
    receipt: TransactionReceipt


@frozen
class StartOver:
    """An idle producer becomes a new one, with this transactional id or none: new producer id, sequences and
    transaction. Connections and cluster metadata are kept.

    `expected`: the identity that the end of the last transaction under the id has given, as far as the caller knows.
    Where the cluster's rules give one, the next transaction has begun with it, and the result is True. The leaders
    check it with the coordinator before they append the first record; if it is refused, the coordinator is asked."""

    operation: PendingOperation
    transactional_id: str | None
    expected: ProducerIdentity | None = None


@frozen
class Close:
    """Graceful: nothing new is accepted, queued batches are sent, an open transaction is aborted."""

    operation: PendingOperation


@frozen
class Abandon:
    """Immediate: every queued batch and every operation fails, all connections close."""

    reason: KafkaSinkError


TransactionCall = TransactionStep | SendOffsets | ResumeTransaction
OperationCall = Flush | TransactionCall | StartOver | Close
Call = Append | RowsRejected | WantTopic | OperationCall | Abandon


# ---- results ---------------------------------------------------------------------------------------------------


@frozen
class Delivered:
    """The batches of one response that are in the log; each has its offset."""

    batches: Sequence[ProducerBatch]


@frozen
class Failed:
    """The batch was given up. `record_errors` maps positions in the batch to the broker's text about that record."""

    batch: ProducerBatch
    error: KafkaSinkError
    record_errors: Mapping[int, str] = field(default_factory=dict)


@frozen
class Finished:
    operation: PendingOperation
    error: KafkaSinkError | None = None
    result: object = None


@frozen
class Drained:
    """Batches of one request, sent for the first time."""

    batches: Sequence[ProducerBatch]


@frozen
class BatchObserved:
    """A batch was `retried` or `split`. `error_code`: why; None: there was no response."""

    event: str
    batch: ProducerBatch
    error_code: int | None = None


Completion = Delivered | Failed
Observation = Drained | BatchObserved


@frozen
class Step:
    """What one `Engine.step` decided, in the order in which it must be carried out.

    `finished`: the ends of calls, after the callbacks of `completions` have run. `wake_at_ms`: when to step again even
    if nothing happens; None: not needed. `queued_count`: how many batches wait for their leader.
    """

    commands: Sequence[NetworkCommand] = ()
    observations: Sequence[Observation] = ()
    completions: Sequence[Completion] = ()
    finished: Sequence[Finished] = ()
    wake_at_ms: int | None = None
    queued_count: int = 0
