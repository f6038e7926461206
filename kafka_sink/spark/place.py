"""Where a task stands, read from Spark's TaskContext: which batch of which query, which partition, which attempt.

The attempt is Spark's task attempt id, which no two tasks of an application share. The attempt number would not do: it
is counted anew when Spark runs a stage again, and a stalled attempt of the first run that asks for its producer id late
would abort the finished transaction of the second run's attempt with the same number.
"""

from __future__ import annotations

from pyspark import TaskContext

from kafka_sink.delivery.identity import run_hash, sink_id_of_query
from kafka_sink.delivery.receipt import BatchKey
from kafka_sink.errors import LocalProtocolError
from kafka_sink.spark.task import TaskPlace

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


def place_in_stream(sink_id: str | None) -> TaskPlace:
    context = _context()
    query_id, batch_id, run_id = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID))
    if query_id is None or batch_id is None or run_id is None:
        raise LocalProtocolError(
            f"Spark did not tell this task its streaming batch (properties {QUERY_ID}, {BATCH_ID}, {RUN_ID})"
        )
    return _place(context, BatchKey(query_id, int(batch_id)), run_hash(run_id), sink_id)


def place_in_batch(key: BatchKey, run: str, sink_id: str | None) -> TaskPlace:
    """Inside foreachBatch, a write that is labelled with the number of the micro-batch is that batch of that query: a
    new checkpoint is then a new query and not a repetition, and one ledger key does for all batches."""
    context = _context()
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query_id is not None and batch_id is not None and batch_id == key.batch_id:
        key = BatchKey(query_id, int(batch_id))
    return _place(context, key, run, sink_id)


def _place(context: TaskContext, key: BatchKey, run: str, named_sink_id: str | None) -> TaskPlace:
    sink_id = None if named_sink_id is None else sink_id_of_query(named_sink_id, key.query_id)
    return TaskPlace(key, run, context.partitionId(), context.taskAttemptId(), sink_id)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise LocalProtocolError("a writer can only write inside a Spark task")
    return context
