"""PySpark 3.4 and 3.5 cannot have the format. Whoever asks for it is told what works there, and the jobs in spark_jobs/
work as they do elsewhere."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import kafka_sink
from tests.spark.test_jobs_without_format import (
    ran,
    test_a_stream_without_the_format_goes_on_where_it_stopped,
    test_an_export_without_the_format_writes_each_row_once_and_says_how_many,
)

__all__ = [
    "ran",
    "test_a_stream_without_the_format_goes_on_where_it_stopped",
    "test_an_export_without_the_format_writes_each_row_once_and_says_how_many",
]

ROOT = Path(__file__).parents[2]
WAY_OUT = (
    f'format("pykafka-sink") needs PySpark 4.0 or newer, this is {pyspark.__version__}; '
    "kafka_sink.foreach_batch(options) and kafka_sink.write(frame, options) work from PySpark 3.4 on "
    "(docs/guides/second-door.md)"
)


@pytest.mark.parametrize("module", ["kafka_sink.spark.datasource", "pyspark_pykafka_sink"])
def test_importing_the_format_names_the_way_out(module: str) -> None:
    check(lambda: importlib.import_module(module))


def test_registering_the_format_names_the_way_out(spark: SparkSession) -> None:
    check(lambda: kafka_sink.register(spark))


def check(act: Callable[[], object]) -> None:
    with pytest.raises(kafka_sink.ConfigError) as caught:
        act()
    assert (caught.value.name, str(caught.value)) == ("PKS-1103", WAY_OUT)


def test_the_words_of_spark_are_in_troubleshooting_with_the_way_out(spark: SparkSession) -> None:
    with pytest.raises(Exception) as caught:
        spark.range(1).write.format("pykafka-sink").mode("append").save()
    heading = "Failed to find the data source: pykafka-sink"
    assert heading in str(caught.value)
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    section = " ".join(page.partition(f"### `{heading}`\n")[2].partition("\n### ")[0].replace("`", "").split())
    assert WAY_OUT.replace(f", this is {pyspark.__version__}", "").partition(" (docs")[0] in section
