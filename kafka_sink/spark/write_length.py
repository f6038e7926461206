"""How long a write may take, and what its tasks tell about that.

The transaction of a task begins with its first row, and is committed when the last task is done. Between the two lies
most of a write: brokers end a transaction after its time-out, and a commit needs a part of that time for itself. So a
write is refused at its end if its first task began too long ago. A shuffle before the tasks does not count.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark import TaskContext
from pyspark.accumulators import AccumulatorParam

from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.errors import DeliveryError, KafkaSinkError, TransactionError, copy_error
from kafka_sink.errors.table.commits import WRITE_TOO_LONG
from kafka_sink.kafka.wire.codes import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

# Records are refused so when their transaction is over. Those that were still to be sent are dropped without a code.
ENDED_CODES = frozenset({INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED, TRANSACTION_ABORTABLE, None})
GUIDE = "docs/guides/exports.md"


class EndedTask(NamedTuple):
    """`open_ms`: from the begin of its transaction to its end."""

    stage_id: int
    open_ms: int


class EndedTasks(AccumulatorParam[list[EndedTask]]):
    def zero(self, value: list[EndedTask]) -> list[EndedTask]:
        return []

    def addInPlace(self, value1: list[EndedTask], value2: list[EndedTask]) -> list[EndedTask]:
        value1.extend(value2)
        return value1


def ended_task(receipt: TaskReceipt) -> list[EndedTask]:
    """Called in the task. One without rows has no transaction."""
    context = TaskContext.get()
    if receipt.transaction is None or context is None:
        return []
    return [EndedTask(context.stageId(), receipt.send_ms)]


def explain_task(error: KafkaSinkError, key: BatchKey, timeout_ms: int) -> KafkaSinkError:
    """For a task whose transaction has been open for longer: what brokers say when it has ended tells no reason."""
    is_of_end = isinstance(error, DeliveryError) and error.code in ENDED_CODES
    if not (is_of_end or isinstance(error, TransactionError)):
        return error
    way_out = divide_text() if key.is_label else "Make its batches shorter (maxOffsetsPerTrigger)"
    limit = limit_text(timeout_ms)
    text = f"{error}; the task took longer than {limit}, after which brokers end its transaction. {way_out}"
    explained = copy_error(error, text)
    explained.name = WRITE_TOO_LONG.name
    return explained


def limit_text(timeout_ms: int) -> str:
    return f"kafka.transaction.timeout.ms={timeout_ms} allows"


def divide_text(chunks: str = "N", write: str = "the write") -> str:
    call = f"kafka_sink.write_in_chunks(frame, options, chunks={chunks}, by=COLUMN)"
    return f"Divide {write} into chunks, or into more of them: {call} ({GUIDE})"
