"""Each of Spark's Python processes loads what its part of a write needs, and not what the others need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "pyarrow")
PROGRAM = """
import sys
import pyspark.sql.datasource, pyspark.sql.types
import {module}
print(*sorted(name for name in sys.modules if name in {watched!r}))
"""


def loaded(module: str, *watched: str) -> list[str]:
    program = PROGRAM.format(module=module, watched=watched)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("module", ["datasource", "planning", "writer", "stream_writer", "driver"])
def test_who_looks_up_plans_or_commits_loads_no_columns(module: str) -> None:
    assert loaded(f"kafka_sink.spark.{module}", *HEAVY) == []


def test_who_writes_loads_columns_and_nothing_that_is_for_the_driver_or_for_other_options() -> None:
    committing = ("kafka_sink.runtime.client", "kafka_sink.spark.driver", "kafka_sink.delivery.committer")
    parsing = ("kafka_sink.options.parse", "kafka_sink.options.table", "kafka_sink.options.security_table")
    securing = ("ssl", "kafka_sink.runtime.login")
    assert loaded("kafka_sink.spark.task", *HEAVY, *committing, *parsing, *securing) == list(HEAVY)


def test_credentials_that_others_are_asked_for_load_nothing_until_they_are_wanted() -> None:
    assert loaded("kafka_sink.spark.task", "urllib.request", "kafka_sink.runtime.aws", "gssapi") == []
