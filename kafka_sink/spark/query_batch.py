"""Which query a micro-batch belongs to, for a write that the user's own process carries out.

The query id is part of every decision: with a new checkpoint the numbers of the batches start again, and without it new
batches would be taken for repeated ones. In the thread in which Spark calls foreachBatch it is a property of the
thread. Over Spark Connect, and in threads of the user's own, it is not there; then it comes from the option query.id or
from the checkpoint. That a query is the only one in its session proves nothing: this one may be about to stop, and is
not listed any more. The frames of PySpark 4.3 belong to a session of their own, in which none is listed.

A query also has a run: from its start to its end in this process. Transactional ids are used again from batch to batch
within a run, and a failed batch may leave transactions that are decided and not yet committed. User code can catch that
error and go on. So the run ends with a failed batch, and the next one has ids of its own. Whoever aborts a run aborts
everything in it. So two writes at the same time never share one, though they may say that they are the same query.
Nor do two applications that this process has one after the other: Spark numbers its attempts anew in each, so ids of
the first would come again, and one of its attempts may be frozen with a request for its own on the way.

Assumption, for PySpark 3.4 to 4.3: spark.app.id is the application also in the configuration that Spark Connect tells
its clients, which may outlive their server.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_sink.commit.identity import run_of_query
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import BATCH_UNNAMED
from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.kafka.io.shelf import Shelf
from kafka_sink.spark.query_checkpoint import check_checkpoint, id_in_checkpoint
from kafka_sink.spark.shown_secrets import is_of_connect
from kafka_sink.spark.task_context import BATCH_ID, JOB_GROUP, QUERY_ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RUNS_MAX = 1024


class QueryBatch(NamedTuple):
    """`spark_run` is empty where Spark does not tell it."""

    query_id: str
    spark_run: str = ""


def query_of_batch(
    frame: DataFrame, batch_id: int, query_id: str | None, checkpoint: str | None, *, is_exactly_once: bool = True
) -> QueryBatch:
    """`query_id`: the option."""
    found_id, found_batch, spark_run = properties_of_thread(frame.sparkSession)
    if query_id is not None or found_id:
        check_checkpoint(frame.sparkSession, found_id, batch_id, checkpoint, is_exactly_once=is_exactly_once)
    if query_id is not None:
        return QueryBatch(query_id, spark_run)
    if found_id:
        if found_batch != str(batch_id):
            raise ConfigError(
                f"batch_id={batch_id} is not that of this micro-batch, which is {found_batch}: pass on the number that "
                "Spark passes to the function",
                BATCH_UNNAMED,
            )
        return QueryBatch(found_id, spark_run)
    named = id_in_checkpoint(checkpoint)
    if named is None:
        raise ConfigError(
            f"the query of batch {batch_id} is not known: over Spark Connect, and in threads of your own, Spark does "
            "not provide it. Nothing was written. Set the option query.id to a text of your choice that belongs to "
            "this query, and a new one for each new checkpoint; or checkpointLocation, if this process can read it",
            BATCH_UNNAMED,
        )
    return QueryBatch(named)


def properties_of_thread(session: Any) -> tuple[str, str, str]:
    """Query, batch and run of the micro-batch that Spark runs in this thread; empty if there is none."""
    if is_of_connect(session):
        return "", "", ""
    context = session.sparkContext
    query_id, batch_id, run_id = (context.getLocalProperty(name) or "" for name in (QUERY_ID, BATCH_ID, JOB_GROUP))
    return query_id, batch_id, run_id


def application_of(session: Any) -> str:
    if not is_of_connect(session):
        return str(session.sparkContext.applicationId)
    with suppress(Exception):  # where a platform does not tell it
        return str(session.conf.get("spark.app.id"))
    return str(getattr(session, "session_id", ""))


def new_run() -> str:
    return run_of_query(uuid.uuid4().hex)


# Those that no write is using, by the application, the sink's name and the query.
RUNS: PerProcess[Shelf[tuple[str, str | None, QueryBatch], str]] = PerProcess(lambda: Shelf(RUNS_MAX))
