"""The PySpark edge: Spark's data source API on one side, producers and the commit protocol on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Makes format("pykafka-sink") known to this session. Not needed where the package is installed: see
    `pyspark_pykafka_sink`."""
    from kafka_sink.spark.datasource import KafkaSinkDataSource

    spark.dataSource.register(KafkaSinkDataSource)
