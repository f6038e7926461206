"""Folders of Spark's: for the files that were passed with --files, which options may name without their folder, and for
what all Python processes of an application share."""

from __future__ import annotations

import os

from pyspark import SparkFiles

from kafka_sink.io.files import add_search_folder

# Spark sets it for every Python process, over Spark Connect as well, to folders that go with the application.
LOCAL_FOLDERS = "SPARK_LOCAL_DIRS"


def look_in_spark_files() -> None:
    """To be called by whatever connects from inside Spark; once is enough."""
    add_search_folder(spark_folder)


def spark_folder() -> str | None:
    try:
        return SparkFiles.getRootDirectory() or None
    except AssertionError:
        return None  # neither a worker nor a process with a SparkContext


def application_folder() -> str | None:
    """A folder of our own, the same for all Python processes of one application on one machine. It may not exist."""
    local_folder = os.environ.get(LOCAL_FOLDERS, "").split(",")[0]
    return os.path.join(local_folder, "pykafka-sink") if local_folder else None
