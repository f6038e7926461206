"""`format("pykafka-sink")`: what Spark calls when a write is planned.

Planning happens in a Python process on the driver, once for a batch write and before every micro-batch of a stream.
Everything that can be checked is checked here, before any task: options, columns, that a broker answers, that the topic
exists. The result is pickled to the tasks, so it contains plain values only.

This module is imported by every Spark application that looks for data sources; the heavy imports wait until a write
is planned.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import SINK_ONLY
from kafka_sink.spark.first_line import explain_to_spark, missing_package_error
from kafka_sink.spark.format_support import check_format_support
from kafka_sink.spark.heap import HEAP
from kafka_sink.spark.same_version import SameVersionMeta

try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    check_format_support()
    raise

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

FORMAT = "pykafka-sink"
READ_WITH = (
    'pykafka-sink only writes. Read topics with Spark\'s own format("kafka"), and with '
    'option("kafka.isolation.level", "read_committed") to see each row once'
)


class KafkaSinkDataSource(DataSource, metaclass=SameVersionMeta):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with explain_to_spark():
            writer: DataSourceWriter = _planning().plan_batch(self.options, schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        with explain_to_spark():
            writer: DataSourceStreamWriter = _planning().plan_stream(self.options, schema, overwrite)
        return writer

    # Spark calls these only for reads. `schema` comes first unless the reader has set one.

    def schema(self) -> StructType:
        _refuse_to_read()

    def reader(self, schema: StructType) -> DataSourceReader:
        _refuse_to_read()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        _refuse_to_read()


def _refuse_to_read() -> NoReturn:
    with explain_to_spark():
        raise ConfigError(READ_WITH, SINK_ONLY)


def _planning() -> ModuleType:
    check_format_support()
    try:
        _check_dependencies()
        from kafka_sink.spark import planning
    except ImportError as error:
        raise missing_package_error(error) from error
    HEAP.on_work_begin()
    return planning


def _check_dependencies() -> None:
    """Planning imports none of them, but the tasks do."""
    for name in ("pyarrow", "numpy", "mmh3"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
