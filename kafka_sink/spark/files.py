"""Folders of Spark's: for files passed with --files, which options may name without their folder, and for data that all
Python processes of an application share."""

from __future__ import annotations

import os

from kafka_sink.io.files import add_search_folder

# Spark sets it for every Python process, over Spark Connect as well, to folders that it deletes with the application.
LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"


def look_in_spark_files() -> None:
    """Call before connecting from inside Spark; once is enough."""
    add_search_folder(spark_folder)


def spark_folder() -> str | None:
    try:
        from pyspark import SparkFiles  # a client of Spark Connect alone has none

        return SparkFiles.getRootDirectory() or None
    except (ImportError, AssertionError):
        return None  # neither a worker nor a process with a SparkContext


def application_folder() -> str | None:
    """This package's folder, the same for all Python processes of one application on one machine. It may not exist."""
    local_folder = os.environ.get(LOCAL_FOLDERS, "").split(",")[0]
    return os.path.join(local_folder, "pykafka-sink") if local_folder else None
