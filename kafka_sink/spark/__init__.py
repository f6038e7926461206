"""The PySpark integration: connects Spark's data source API to producers and the commit protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes format("pykafka-sink") known to this session, in the thread that calls. Not needed in the main thread if
    the package is installed: see `pyspark_pykafka_sink`."""
    from kafka_sink.spark.datasource import KafkaSinkDataSource, check_format_support

    check_format_support()
    spark.dataSource.register(KafkaSinkDataSource)
    # Spark looks formats up in the thread's active session. A thread of the user's own has none, and the main thread
    # loses it when a cell is interrupted; PySpark sets it here.
    spark.createDataFrame([], "x int")
