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
from typing import TYPE_CHECKING, NoReturn

import pyspark

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import MODE_NOT_SUPPORTED, SINK_ONLY, SPARK_TOO_OLD
from kafka_sink.spark.first_line import explain_to_spark, missing_package_error
from kafka_sink.spark.process_memory import HEAP


def check_format_support() -> None:
    """What can be imported decides and not the version, because platforms bring newer parts to older versions."""
    try:
        from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter  # noqa: F401
    except ImportError:
        raise ConfigError(
            f'format("pykafka-sink") needs PySpark 4.0 or newer, this is {pyspark.__version__}; '
            "kafka_sink.foreach_batch(options) and kafka_sink.write(frame, options) work from PySpark 3.4 on "
            "(docs/guides/second-door.md)",
            SPARK_TOO_OLD,
        ) from None


try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    check_format_support()
    raise

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from kafka_sink.spark.writers import BatchWriter, StreamWriter

FORMAT = "pykafka-sink"
READ_WITH = (
    'pykafka-sink only writes. Read topics with Spark\'s own format("kafka"), and with '
    'option("kafka.isolation.level", "read_committed") to see each row once'
)


class KafkaSinkDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        with explain_to_spark():
            _load_planning()
            return plan_batch(self.options, schema, overwrite)

    # Spark passes the arguments by their places when it plans, and by their names when it commits.
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        with explain_to_spark():
            _load_planning()
            return plan_stream(self.options, schema, overwrite)

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


def plan_batch(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    from kafka_sink.spark.planning import plan_export
    from kafka_sink.spark.writers import BatchWriter

    if overwrite:
        raise ConfigError(
            'mode("overwrite") is not supported: rows are appended to a topic, nothing is deleted from it. '
            'Write with mode("append"); to start with an empty topic, delete and create it first',
            MODE_NOT_SUPPORTED,
        )
    options, columns, sink_id, key, run, *_ = plan_export(settings, schema)
    return BatchWriter(options, columns, key, run=run, sink_id=sink_id)


def plan_stream(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    from kafka_sink.spark.planning import code_of_own_runs, plan_query
    from kafka_sink.spark.triggers import continuous_error, is_before_any_batch
    from kafka_sink.spark.writers import StreamWriter

    if overwrite:
        raise ConfigError(
            'outputMode("complete") is not supported: it means to replace the whole topic at every batch. Use '
            'outputMode("append"), or .foreachBatch(kafka_sink.foreach_batch(options)), which takes every mode',
            MODE_NOT_SUPPORTED,
        )
    if is_before_any_batch(settings):
        raise continuous_error()
    planned = plan_query(settings, schema, is_format=True)
    code = code_of_own_runs(planned.options)
    return StreamWriter(planned.options, planned.columns, planned.sink_id, planned.refusal, code=code)


def _load_planning() -> None:
    check_format_support()
    try:
        _check_dependencies()
        from kafka_sink.spark import planning, writers  # noqa: F401
    except ImportError as error:
        raise missing_package_error(error) from error
    HEAP.on_work_begin()


def _check_dependencies() -> None:
    """Planning imports none of them, but the tasks do. Without PYSPARK_PYTHON Spark starts the system's python3, which
    may have none."""
    for name in ("pyarrow", "numpy", "mmh3"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
