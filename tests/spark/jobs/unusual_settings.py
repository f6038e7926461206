"""Writes a batch and three runs of a stream, and lets a task fail. Arguments: bootstrap servers, a checkpoint, a secret
option. test_spark_settings.py starts it with unusual settings of Spark."""

from __future__ import annotations

import sys

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

ROWS = 500


def main() -> None:
    servers, checkpoint, secret = sys.argv[1:]
    options = {"kafka.bootstrap.servers": servers, "kafka.sasl.password": secret}

    def writer_to(topic: str, rows: DataFrame) -> DataFrameWriter:
        return rows.write.format("pykafka-sink").options(**options).option("topic", topic).mode("append")

    with SparkSession.builder.getOrCreate() as spark:
        rows = spark.range(0, ROWS, 1, 4)
        writer_to("batch", rows.selectExpr("CAST(id AS STRING) AS value")).save()
        stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        for _ in range(3):
            written = stream.selectExpr("CAST(value AS STRING) AS value").writeStream.format("pykafka-sink")
            written = written.options(**options).option("topic", "stream").option("checkpointLocation", checkpoint)
            written.trigger(availableNow=True).start().awaitTermination()
        try:
            writer_to("batch", rows.selectExpr("CAST(raise_error('bad row') AS STRING) AS value")).save()
        except PySparkException as error:
            print(f"failed: {error}")


if __name__ == "__main__":
    main()
