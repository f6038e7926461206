"""The environment of a Python process that Spark starts, for code that stands in for Spark."""

from __future__ import annotations

from kafka_sink.spark.files import LOCAL_FOLDERS
from kafka_sink.spark.process import FACTORY


def worker_environment(local_folders: object) -> dict[str, str]:
    """As over a Unix domain socket."""
    return {LOCAL_FOLDERS: str(local_folders), f"{FACTORY}SOCK_DIR": "/"}
