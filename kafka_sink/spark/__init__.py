"""The PySpark integration: a write from its plan to its end, in the processes that Spark starts, or in the user's own.

datasource       where Spark plans a write of the format, whose writers it pickles; second_door: the functions
planning         what is checked before any task; cluster_check asks the brokers; formats/ which schema is used
columns          which columns are written; batch_name, query_batch: under which name of a batch; query_checkpoint:
                 whether the query's next start will find that again
task_writer      what a task is to do and returns, and the end of a batch, for both doors
task             one attempt: read_ahead, encoding, envelope, added_headers, unsendable, ledger_rows
task_context     where in Spark that attempt is; identities: which transactional id it has
driver           commit and abort; summary says in the log how it went, telemetry tells receivers
process, files   which process and which folders these are; process_memory, arrow_batches, same_version, first_line
triggers, sockets, shown_secrets   what is refused or advised because of how Spark works
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes format("pykafka-sink") known to this session, in the thread that calls. Not needed in the main thread if
    the package is installed: see `pyspark_pykafka_sink`."""
    from pyspark.errors import AnalysisException

    from kafka_sink.spark.datasource import KafkaSinkDataSource, check_format_support

    check_format_support()
    try:
        spark.dataSource.register(KafkaSinkDataSource)
    except AnalysisException as error:
        # Spark 4.0 refuses a name that it has found by itself; later ones replace it.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    # Spark looks formats up in the thread's active session. A thread of the user's own has none, and the main thread
    # loses it when a cell is interrupted; PySpark sets it here.
    spark.createDataFrame([], "x int")
