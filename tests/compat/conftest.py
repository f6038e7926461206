"""Fixtures for what every supported PySpark must do: `make compat` runs this folder with each of them.

`make test` leaves it out: tests/spark has the same tests and more for the one installed PySpark. The fixtures use names
that all versions share; a test that needs a name of one PySpark checks that it exists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import spark_session
from tests.spark.parity import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What older PySparks do: Py4J leaves sockets to the garbage collector after a call that failed, and pandas' version is
# compared by distutils. Of the sink's own warnings tests/spark makes errors.
FOREIGN_WARNINGS = ("ignore:unclosed <socket:ResourceWarning", "ignore:distutils Version classes:DeprecationWarning")

# The tests check what a PySpark does, not how fast: many versions are tried beside other work.
spark_session.PATIENCE_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for warning in FOREIGN_WARNINGS:
            item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    before = dict(os.environ)
    session = spark_session.start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of Spark Connect with its server."""
    from pyspark.sql import SparkSession

    from tools.spark_jvm import spark_home

    if not list((spark_home() / "jars").glob("spark-connect_*.jar")):
        pytest.skip("this PySpark brings no server of Spark Connect")

    before, work = dict(os.environ), tmp_path_factory.mktemp("server")
    # Clients cannot set these options of the server.
    (work / "spark-defaults.conf").write_text(
        f"spark.ui.enabled false\nspark.driver.host 127.0.0.1\nspark.local.dir {work}\n"
        f"spark.sql.warehouse.dir {work / 'warehouse'}\nspark.sql.shuffle.partitions 2\n"
    )
    named = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(work)}
    # SPARK_TESTING: a separate port, not the default that any other server on the machine has.
    os.environ.update(named | {"SPARK_TESTING": "1"})
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    yield session
    session.stop()
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(spark, tmp_path)
