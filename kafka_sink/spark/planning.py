"""The checks of a write before its tasks, whichever way it comes in: options, columns, brokers, topics, schemas. The
result holds what its tasks and its commit need. The requests to Kafka are in cluster_check.py."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.types import StructType

from kafka_sink.commit.identity import code_of_stream, name_of_stream, run_of_label, run_of_query, sink_id_of_write
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.errors.table.writes import OPTIONS_CONTRADICT, PACKAGE_MISSING, STREAM_UNNAMED
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.format_names import JSON
from kafka_sink.options.host.functions import load_user_function
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import DEBEZIUM, SHOWN_NULLS, SinkOptions
from kafka_sink.spark.batch_name import label_at_planning, make_batch_key
from kafka_sink.spark.cluster_check import check_with_kafka, create_topics
from kafka_sink.spark.columns import WrittenColumns, choose_columns, encoded_sides
from kafka_sink.spark.files import application_folder
from kafka_sink.spark.process import is_for_stream_commits, show_log
from kafka_sink.spark.shown_secrets import warn_of_shown_secrets
from kafka_sink.spark.sockets import advise_sockets

if TYPE_CHECKING:
    from kafka_sink.options.format_options import FormatOptions
    from kafka_sink.spark.formats import SidePlan

_OF_ONE_APPLICATION = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class PlannedWrite(NamedTuple):
    """`sink_id` None: delivery is at least once. A stream has no key and no run before its tasks. `refusal`: of a plan
    for its commit or abort."""

    options: SinkOptions
    columns: WrittenColumns
    sink_id: str | None
    key: BatchKey = UNNAMED_BATCH
    run: str = ""
    refusal: KafkaSinkError | None = None


def plan_export(settings: Mapping[str, str], schema: StructType) -> PlannedWrite:
    """A batch write, with a label or without."""
    checked = _check_write(settings, schema)
    options = checked.options
    unique = uuid.uuid4().hex
    key = make_batch_key(options) if options.is_exactly_once and options.batch_id is not None else UNNAMED_BATCH
    if options.is_exactly_once and options.sink_id is not None and not key.is_named:
        warn_once(
            f"sink.id={options.sink_id} without batch.id: this write has no name by which it would be known again, so "
            "its rows are written a second time if the job runs again. Name each export with batch.id, for example "
            "after its day. If that was given, its value was None: such an option Spark leaves out"
        )
    label = label_at_planning(key)
    run = run_of_query(unique)
    if key.is_named and label is not None:
        run = run_of_label(str(key.batch_id), unique, options.ledger_topic)
    sink_id = options.sink_id if key.is_named else ""
    settled, written = checked.finish_planning(options, sink_id if options.is_exactly_once else None, label)
    if not settled.is_exactly_once:  # the brokers have no transactions, or none are wanted
        return PlannedWrite(settled, written, None, UNNAMED_BATCH, run)
    if not key.is_named:
        sink_id = sink_id_of_write(options.sink_id, run)
    return PlannedWrite(settled, written, sink_id, key, run)


def plan_query(settings: Mapping[str, str], schema: StructType, *, is_format: bool = False) -> PlannedWrite:
    """All batches of a stream."""
    checked = _check_write(settings, schema)
    options = checked.options
    sink_id = _name_query(options)
    if is_format:
        from kafka_sink.spark.query_checkpoint import check_checkpoint_of_format

        check_checkpoint_of_format(options)
    if is_for_stream_commits():
        return checked.plan_end_of_batch(sink_id)
    settled, written = checked.finish_planning(options, sink_id)
    return PlannedWrite(settled, written, sink_id if settled.is_exactly_once else None)


def code_of_own_runs(options: SinkOptions) -> str:
    """How the runs of this stream in this application begin; empty if they cannot be told from those of others.

    Spark tells query and run only to tasks. If none of them has ended there is no receipt, and the abort knows just
    what its own plan knew: the options, and the folder of the application. Tasks have a hash of both from their plan,
    and begin their run with it, so the abort finds what begins so. One application runs one query at a time on one
    checkpoint: Spark lets no other one start before the thread of the first has ended, and that calls the abort. So
    such a run is that of the batch at hand, or of an earlier start. A query of another application has another code,
    also if it has taken over the checkpoint and is alive.

    Without a location among the options (it comes from the session) two queries of one application may have the same
    ones. And a folder that is no application's own tells nothing.

    Assumptions, for PySpark 4.0 to 4.3: Spark gives all Python processes on the driver, for planning and for aborts,
    the same SPARK_LOCAL_DIRS, and has made the folder for this application, with a random UUID in its name."""
    folder, location = application_folder(), options.checkpoint_location
    if folder is None or not location or not _OF_ONE_APPLICATION.search(folder):
        return ""
    return code_of_stream(folder, location)


def check_query_options(settings: Mapping[str, str]) -> None:
    """What is known without the rows and the brokers, in a process that may not be the one that writes."""
    try:
        _name_query(parse_sink_options(settings))
    except ConfigError as error:
        if error.entry is not PACKAGE_MISSING:  # the other one may have it
            raise


def _name_query(options: SinkOptions) -> str | None:
    if options.batch_id is not None:
        raise ConfigError(
            "batch.id is for batch writes: the batches of a stream have ids of their own. Leave it out",
            OPTIONS_CONTRADICT,
        )
    return _sink_id_of_stream(options) if options.is_exactly_once else None


def _sink_id_of_stream(options: SinkOptions) -> str:
    name = name_of_stream(options.sink_id, options.checkpoint_location)
    if name is not None:
        return name
    raise ConfigError(
        "exactly-once has to know this stream again after a restart: set the option checkpointLocation on the writer "
        "(a location that comes from spark.sql.streaming.checkpointLocation is not passed on to sinks), or sink.id. "
        "For foreach_batch and write_batch, give one of the two among their own options",
        STREAM_UNNAMED,
    )


class _CheckedWrite(NamedTuple):
    """A write that passed its checks; address and credentials of the registry are not part of the options."""

    options: SinkOptions
    columns: WrittenColumns
    formats: FormatOptions | None
    schema: StructType

    def finish_planning(
        self, options: SinkOptions, sink_id: str | None, label: BatchKey | None = None
    ) -> tuple[SinkOptions, WrittenColumns]:
        """Topics are created before the registry is asked: nothing is registered for a missing topic."""
        settled = check_with_kafka(options, sink_id, label)
        count = create_topics(options)
        settled = self._begin_telemetry(replace(settled, partition_count=count or settled.partition_count))
        if self.formats is None:
            return settled, self.columns
        return settled, replace(self.columns, sides=self._plan_sides(self.formats))

    def plan_end_of_batch(self, sink_id: str | None) -> PlannedWrite:
        """For the commit or abort of a stream's batch. Which of the two Spark is about to call is not known here, and
        an abort has to end what the tasks have open, whatever is refused meanwhile: the commit raises it. A registry
        is not asked: what it says by now concerns no row that is written already."""
        settled = self.options
        refusal: KafkaSinkError | None = None
        try:
            settled = check_with_kafka(self.options, sink_id)
            create_topics(self.options)
        except KafkaSinkError as error:
            refusal = error
        settled = self._begin_telemetry(settled)
        return PlannedWrite(settled, self.columns, sink_id if settled.is_exactly_once else None, refusal=refusal)

    def _begin_telemetry(self, settled: SinkOptions) -> SinkOptions:
        if settled.telemetry is None:
            return settled
        from kafka_sink.spark.telemetry import begin_telemetry

        return replace(settled, telemetry=begin_telemetry(settled.telemetry, self.columns, self.schema))

    def _plan_sides(self, formats: FormatOptions) -> tuple[SidePlan, ...]:
        # Loads pyarrow, which planning needs for nothing else.
        from kafka_sink.formats.schemas.match import JsonShape
        from kafka_sink.formats.schemas.spark_types import arrow_type_from_json
        from kafka_sink.spark.formats.registry_memory import keep_schemas_in
        from kafka_sink.spark.formats.side_planning import plan_side

        keep_schemas_in(application_folder)
        changes = self.options.changes
        planned = []
        for side, chosen, kind, name in encoded_sides(self.schema, self.columns, formats, changes):
            arrow_kind = arrow_type_from_json(kind.jsonValue(), name)
            plan, resolved = plan_side(side, chosen, formats.registry, arrow_kind, self.options.topic)
            if resolved is not None and resolved.earlier_version_count:
                from kafka_sink.spark.moved_keys import warn_of_moved_keys

                warn_of_moved_keys(self.options, resolved)
            if chosen.format == JSON and side == "value" and changes is not None and changes.envelope == DEBEZIUM:
                plan = replace(plan, schema=JsonShape(SHOWN_NULLS))
            planned.append(plan)
        return tuple(planned)


def _check_write(settings: Mapping[str, str], schema: StructType) -> _CheckedWrite:
    show_log()
    options = parse_sink_options(settings)
    columns = choose_columns(schema, options.topic, options.formats, options.envelope, options.changes)
    if options.partitioner is not None:
        load_user_function(options.partitioner, "kafka.partitioner.class")
    if options.summary_listener is not None:
        load_user_function(options.summary_listener, "summary.listener")
    formats, options = options.formats, replace(options, formats=None)
    for notice in options.notices:
        warn_once(notice)
    if columns.ignored:
        ignored = ", ".join(columns.ignored)
        written = "written are value, key, topic, partition, headers, timestamp"
        warn_once(f"columns that are not written: {ignored} ({written})")
    warn_of_shown_secrets(settings)
    advise_sockets()
    return _CheckedWrite(options, columns, formats, schema)
