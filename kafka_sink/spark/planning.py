"""The writers of `format("pykafka-sink")`, and what its modes cannot do. The checks are in planned.py."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import MODE_NOT_SUPPORTED
from kafka_sink.spark.planned import plan_export, plan_query
from kafka_sink.spark.stream_writer import StreamWriter
from kafka_sink.spark.triggers import continuous_error, is_before_any_batch
from kafka_sink.spark.writer import BatchWriter


def plan_batch(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise ConfigError(
            'mode("overwrite") is not supported: rows are appended to a topic, nothing is deleted from it. '
            'Write with mode("append"); to start with an empty topic, delete and create it first',
            MODE_NOT_SUPPORTED,
        )
    options, columns, sink_id, key, run = plan_export(settings, schema)
    return BatchWriter(options, columns, key, run=run, sink_id=sink_id)


def plan_stream(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise ConfigError(
            'outputMode("complete") is not supported: it means to replace the whole topic at every batch. Use '
            'outputMode("append"), or .foreachBatch(kafka_sink.foreach_batch(options)), which takes every mode',
            MODE_NOT_SUPPORTED,
        )
    if is_before_any_batch(settings):
        raise continuous_error()
    options, columns, sink_id, *_ = plan_query(settings, schema)
    return StreamWriter(options, columns, sink_id)
