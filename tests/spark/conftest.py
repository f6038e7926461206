"""Fixtures for tests with Spark: a local session and a standalone cluster, each started at the first use.

Spark needs Java; without it tests are skipped, or fail if PYKAFKA_SINK_REQUIRE_KAFKA asks for it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import without_kafka
from tools.kafka_jars import KafkaUnavailable, java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.parity import Folder
    from tools.spark_cluster import SparkCluster


@pytest.fixture(scope="session")
def java_sink_jars() -> list[Path]:
    """Empty if Maven cannot fetch them: only tests that compare with Spark's own sink need them."""
    from tools.spark_jars import java_sink_jars

    try:
        return java_sink_jars()
    except KafkaUnavailable:
        return []


@pytest.fixture(scope="session")
def spark(java_sink_jars: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for the whole run. A test that changes its configuration restores it."""
    require_java()
    from tests.spark.spark_session import start_session
    from tools.spark_python import quick_python

    before = dict(os.environ)
    session = start_session(tmp_path_factory.mktemp("spark"), java_sink_jars, quick_python())
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def jvm_spark(spark: SparkSession, java_sink_jars: list[Path]) -> SparkSession:
    """The same session, for a test that uses format("kafka")."""
    if not java_sink_jars:
        without_kafka("Maven could not fetch the jars of Spark's own Kafka sink")
    return spark


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    """The source of a stream: a folder with files of lines."""
    from tests.spark.parity import Folder

    return Folder(spark, tmp_path)


@pytest.fixture(scope="session")
def _spark_cluster() -> Iterator[SparkCluster]:
    require_java()
    from tools.spark_cluster import SparkCluster

    with SparkCluster(workers=2) as cluster:
        yield cluster


@pytest.fixture
def spark_cluster(_spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    """Two workers with one core each. Jobs that still run afterwards are killed, dead workers are started again."""
    yield _spark_cluster
    _spark_cluster.heal()


def require_java() -> None:
    try:
        java_command()
    except KafkaUnavailable as error:
        without_kafka(str(error))


@pytest.fixture(scope="module")
def deaf() -> Iterator[str]:
    """An address without a listener."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"
