"""The PySpark integration: connects Spark's data source API to producers and the commit protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Registers format("pykafka-sink") in this session. Not needed if the package is installed: see
    `pyspark_pykafka_sink`."""
    from kafka_sink.spark.datasource import KafkaSinkDataSource

    spark.dataSource.register(KafkaSinkDataSource)
