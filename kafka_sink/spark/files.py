"""Tells where Spark keeps the files that were passed with --files: options may name such a file without its folder."""

from __future__ import annotations

from pyspark import SparkFiles

from kafka_sink.runtime.files import also_look_in


def look_in_spark_files() -> None:
    """To be called by whatever connects from inside Spark; once is enough."""
    also_look_in(spark_folder)


def spark_folder() -> str | None:
    try:
        return SparkFiles.getRootDirectory() or None
    except AssertionError:
        return None  # neither a worker nor a process with a SparkContext
