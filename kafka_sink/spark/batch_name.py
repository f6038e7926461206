"""The ledger key of a batch write: from the options `batch.id` and `query.id`, and from a task's Spark properties.

A number alone is not enough. Every query counts its batches from 0, so under a new checkpoint the batches 0, 1, 2 would
be taken for repetitions of earlier ones, and skipped silently. Inside foreachBatch Spark passes query and number to the
tasks if the write runs in the thread that Spark called; over Spark Connect, and in the user's own threads, it does not
(Connect seen on PySpark 4.2). There, and for a number that is not Spark's (007, or the next one), the option query.id
is required, or the write is refused before anything is sent.
"""

from __future__ import annotations

import re

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import BATCH_UNNAMED
from kafka_sink.options.sink_options import SinkOptions

# As Spark writes it, and as a record of the ledger can hold it.
_BATCH_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_DIGITS = re.compile(r"[0-9]+")


def make_batch_key(options: SinkOptions) -> BatchKey:
    """As far as known at planning. A number together with a query is a batch of that query: the ledger has one record
    for all of its batches. Any other label has its own key, within that query if there is one."""
    query_id, batch_id = options.query_id or "", options.batch_id or ""
    if query_id and _BATCH_NUMBER.fullmatch(batch_id):
        return BatchKey(query_id, int(batch_id))
    return BatchKey(query_id, batch_id)


def label_at_planning(key: BatchKey) -> BatchKey | None:
    """The key of a batch write. None: a batch of a query, which only its tasks know."""
    return key if key.is_label and not _DIGITS.fullmatch(str(key.batch_id)) else None


def is_batch_of_unknown_query(key: BatchKey) -> bool:
    """Of a batch write, at planning: a task takes it for a micro-batch of Spark's, or refuses it."""
    return key.is_label and not key.query_id and bool(_DIGITS.fullmatch(str(key.batch_id)))


def batch_of_task(named: BatchKey, sink_id: str | None, query_id: str | None, batch_id: str | None) -> BatchKey:
    """`query_id` and `batch_id` come from Spark's properties of this task, if set.

    Inside foreachBatch, a write that is labelled with the number of the micro-batch is that batch of that query: a new
    checkpoint is then a new query, not a repetition, and one ledger key is enough for all batches.
    """
    if named.query_id or not isinstance(named.batch_id, str):
        return named
    if query_id is not None and named.batch_id == batch_id:
        return BatchKey(query_id, int(named.batch_id))
    if _DIGITS.fullmatch(named.batch_id):
        why = (
            "its query is not known: inside foreachBatch over Spark Connect, or in your own threads, Spark does not "
            "provide it"
            if batch_id is None
            else f"not that of this micro-batch, which is {batch_id}"
        )
        raise ConfigError(
            f"batch.id={named.batch_id} is only a number, and {why}. With a new checkpoint the numbers "
            f"start again, and with the ledger of sink.id={sink_id} the sink would mistake new batches for repeated "
            "ones and skip them. Nothing was written. Inside foreachBatch, set the option query.id to a new value for "
            'each new checkpoint, or write batch.id as f"{query_id}-{batch_id}". For an export that is named after a '
            f"date or a number, put a word into its name: batch.id=export-{named.batch_id}",
            BATCH_UNNAMED,
        )
    return named
