"""Fixtures for what every supported PySpark must do: `make compat` runs this folder with each of them.

`make test` leaves it out: tests/spark has the same tests and more for the one installed PySpark. The fixtures use names
that all versions share; a test that needs a name of one PySpark checks that it exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark import spark_session
from tests.spark.parity import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The tests check what a PySpark does, not how fast: many versions are tried beside other work.
spark_session.PATIENCE_S = 600


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    before = dict(os.environ)
    session = spark_session.start_session(tmp_path_factory.mktemp("spark"))
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
