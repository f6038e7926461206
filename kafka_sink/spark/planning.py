"""The checks at planning time, and the writers they end in. What Kafka is asked then is in driver.py."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.types import StructType

from kafka_sink.admin.side_plan import SidePlan
from kafka_sink.errors import ConfigError
from kafka_sink.exactly_once.identity import run_of_label, sink_id_of_checkpoint
from kafka_sink.io.user_function import load_user_function
from kafka_sink.options.format_names import ENCODED
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.batch_name import named_batch
from kafka_sink.spark.columns import WrittenColumns, written_columns
from kafka_sink.spark.driver import CHECKS_MAX, UNNAMED_BATCH, checked_with_kafka
from kafka_sink.spark.files import application_folder
from kafka_sink.spark.log import show_log
from kafka_sink.spark.sockets import advise_sockets
from kafka_sink.spark.triggers import is_before_any_batch, refuse_continuous
from kafka_sink.spark.writer import BatchWriter

if TYPE_CHECKING:
    from kafka_sink.options.format_options import FormatOptions
    from kafka_sink.spark.stream_writer import StreamWriter

_LOGGER = logging.getLogger("kafka_sink")


def planned_batch(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    if overwrite:
        raise ConfigError(
            'mode("overwrite") is not supported: rows are appended to a topic, nothing is deleted from it. '
            'Write with mode("append"); to start with an empty topic, delete and create it first'
        )
    options, columns = _checked(settings, schema)
    if not options.is_exactly_once:
        return BatchWriter(checked_with_kafka(options, None, os.getpid()), columns, UNNAMED_BATCH, run="")
    run = run_of_label(options.batch_id or "", uuid.uuid4().hex)
    if options.batch_id is None:
        settled = checked_with_kafka(options, None, os.getpid())
        return BatchWriter(settled, columns, UNNAMED_BATCH, run=run, sink_id=options.sink_id or f"batch-{run}")
    # Whether it is new is nothing that a single write knows: foreachBatch may have left out the batches without rows.
    known = replace(options, ledger_accepts_new_sink=True)
    settled = checked_with_kafka(known, options.sink_id, os.getpid())
    return BatchWriter(settled, columns, named_batch(options), run=run, sink_id=options.sink_id)


def planned_stream(settings: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    if overwrite:
        raise ConfigError(
            'outputMode("complete") is not supported: it means to replace the whole topic at every batch. Use '
            'outputMode("append"), or foreachBatch for the rows that changed'
        )
    if is_before_any_batch(settings):
        raise refuse_continuous()
    try:
        from kafka_sink.spark.stream_writer import StreamWriter
    except ImportError:
        raise ConfigError(
            f"streaming needs PySpark 4.1 or newer, this is {pyspark.__version__}; batch writes, also inside "
            "foreachBatch, work here"
        ) from None
    options, columns = _checked(settings, schema)
    if options.batch_id is not None:
        raise ConfigError("batch.id is for batch writes: the batches of a stream have ids of their own. Leave it out")
    sink_id = _sink_id_of_stream(options) if options.is_exactly_once else None
    return StreamWriter(checked_with_kafka(options, sink_id, os.getpid()), columns, sink_id)


def _sink_id_of_stream(options: SinkOptions) -> str:
    if options.sink_id is not None:
        return options.sink_id
    if options.checkpoint_location is not None:
        return sink_id_of_checkpoint(options.checkpoint_location)
    raise ConfigError(
        "exactly-once has to know this stream again after a restart: set the option checkpointLocation on the writer "
        "(a location that comes from spark.sql.streaming.checkpointLocation is not passed on to sinks), or sink.id"
    )


def _checked(settings: Mapping[str, str], schema: StructType) -> tuple[SinkOptions, WrittenColumns]:
    show_log()
    options = parse_sink_options(settings)
    columns = written_columns(schema, options.topic, options.formats)
    for name, option in (
        (options.partitioner, "kafka.partitioner.class"),
        (options.summary_listener, "summary.listener"),
    ):
        if name is not None:
            load_user_function(name, option)
    # Where the registry is and how to log in there stays here.
    formats, options = options.formats, replace(options, formats=None)
    _tell_once(options, columns, os.getpid())
    advise_sockets()
    return options, columns if formats is None else replace(columns, sides=_sides(formats, schema, columns, options))


def _sides(
    formats: FormatOptions, schema: StructType, columns: WrittenColumns, options: SinkOptions
) -> tuple[SidePlan, ...]:
    # Loads pyarrow, which planning needs for nothing else.
    from kafka_sink.admin.registry_memory import keep_schemas_in
    from kafka_sink.admin.side_planning import planned_side
    from kafka_sink.schemas.spark_types import arrow_of_json

    keep_schemas_in(application_folder)
    sides = []
    for side, chosen in (("value", formats.value), ("key", formats.key)):
        if chosen is None or chosen.format not in ENCODED:
            continue
        if side == "value" and columns.record:
            found: Any = StructType([schema.fields[index] for _, index in columns.record]).jsonValue()
        else:
            found = schema.fields[columns.indices[columns.names.index(side)]].dataType.jsonValue()
        kind = arrow_of_json(found, "")
        sides.append(planned_side(side, chosen, formats.registry, kind, options.topic)[0])
    return tuple(sides)


@lru_cache(maxsize=CHECKS_MAX)
def _tell_once(options: SinkOptions, columns: WrittenColumns, pid: int) -> None:
    """The process id is part of the key because a forked child inherits what its parent remembers."""
    for notice in options.notices:
        _LOGGER.warning("%s", notice)
    if columns.ignored:
        _LOGGER.warning(
            "columns that are not written: %s (written are value, key, topic, partition, headers, timestamp)",
            ", ".join(columns.ignored),
        )
