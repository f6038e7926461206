"""The checks at planning time, and the writers they end in.

Kafka is asked once per process and configuration: a stream is planned anew before every micro-batch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.types import StructType

from kafka_sink.errors import ConfigError
from kafka_sink.options.sink_options import SinkOptions, parse_sink_options
from kafka_sink.runtime.pool import POOL
from kafka_sink.spark.columns import WrittenColumns, written_columns
from kafka_sink.spark.log import show_log
from kafka_sink.spark.task import imported
from kafka_sink.spark.writer import BatchWriter

if TYPE_CHECKING:
    from kafka_sink.spark.stream_writer import StreamWriter

_LOGGER = logging.getLogger("kafka_sink")


def planned_batch(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise ConfigError(
            'mode("overwrite") is not supported: rows are appended to a topic, nothing is deleted from it. '
            'Write with mode("append"); to start with an empty topic, delete and create it first'
        )
    options, columns = _checked(settings, schema)
    return BatchWriter(options, columns)


def planned_stream(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise ConfigError(
            'outputMode("complete") is not supported: it means to replace the whole topic at every batch. Use '
            'outputMode("append"), or foreachBatch for the rows that changed'
        )
    try:
        from kafka_sink.spark.stream_writer import StreamWriter
    except ImportError:
        raise ConfigError(
            f"streaming needs PySpark 4.1 or newer, this is {pyspark.__version__}; batch writes, also inside "
            "foreachBatch, work here"
        ) from None
    options, columns = _checked(settings, schema)
    return StreamWriter(options, columns)


def _checked(settings: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, WrittenColumns]:
    show_log()
    options = parse_sink_options(settings)
    columns = written_columns(schema, options.topic)
    for name, option in (
        (options.partitioner, "kafka.partitioner.class"),
        (options.summary_listener, "summary.listener"),
    ):
        if name is not None:
            imported(name, option)
    _tell_once(options, columns, os.getpid())
    _check_kafka(options, os.getpid())
    return options, columns


@cache
def _tell_once(options: SinkOptions, columns: WrittenColumns, pid: int) -> None:
    """The process id is part of the key because a forked child inherits what its parent remembers."""
    for notice in options.notices:
        _LOGGER.warning("%s", notice)
    if columns.ignored:
        _LOGGER.warning(
            "columns that are not written: %s (written are value, key, topic, partition, headers, timestamp)",
            ", ".join(columns.ignored),
        )


@cache
def _check_kafka(options: SinkOptions, pid: int) -> None:
    """A broker answers and the topics named by options exist; raises what a task would raise later."""
    topics = [topic for topic in (options.topic, options.dead_letter_topic) if topic is not None]
    producer = POOL.borrow(options.producer)
    try:
        for topic in topics:
            producer.partitions_for(topic)
    except BaseException:
        producer.close(0)
        raise
    POOL.give_back(options.producer, producer)
