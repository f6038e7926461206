"""One batch as OpenLineage events: START before its commit, COMPLETE or FAIL after it, under one run id.

Each attempt of a batch is its own lineage run (the id is made of sink, query, run and batch), so that a batch repeated
after a crash does not end another attempt's run. A dataset is a topic. Only the end event has what was written: rows,
bytes and, as a custom facet, the first and last offset of each partition; other writers' records may be in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from kafka_sink.commit.receipt import BatchSummary, WrittenPartition, group_by_topic, summarize_receipts
from kafka_sink.options import ProducerOptions
from kafka_sink.options.sink_options import TelemetryOptions
from kafka_sink.telemetry.metrics.figures import DELIVERED, BatchReport
from kafka_sink.version import VERSION

PRODUCER = f"urn:pykafka-sink:{VERSION}"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets/"
OFFSETS_SCHEMA = "urn:pykafka-sink:KafkaOffsetsOutputDatasetFacet:1"
_RUNS = uuid.UUID("6f6b0f0e-8a0c-5d6c-9c39-2b8f1f0d3a11")


def run_event(
    event_type: str, report: BatchReport, telemetry: TelemetryOptions, options: ProducerOptions
) -> dict[str, Any]:
    at_ms = report.first_task_ms if event_type == "START" else report.ended_ms
    run_facets, job_type = {}, {"processingType": "BATCH", "integration": "SPARK", "jobType": "JOB"}
    if event_type == "FAIL":
        message = {"message": report.error_text, "programmingLanguage": "PYTHON"}
        run_facets["errorMessage"] = _facet("1-0-1", "ErrorMessageRunFacet", message)
    if isinstance(report.key.batch_id, int):
        job_type |= {"processingType": "STREAMING", "jobType": "MICRO_BATCH"}
    return {
        "eventType": event_type,
        "eventTime": datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds"),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run_id(report), "facets": run_facets},
        "job": {
            "namespace": telemetry.lineage_namespace,
            "name": telemetry.lineage_job or report.query or report.sink or "batch",
            "facets": {"jobType": _facet("2-0-4", "JobTypeJobFacet", job_type)},
        },
        "inputs": [],
        "outputs": _outputs(event_type, report, telemetry.lineage_fields, options),
    }


def run_id(report: BatchReport) -> str:
    named = "\n".join((report.sink, report.query, report.key.query_id, report.run, str(report.key.batch_id)))
    return str(uuid.uuid5(_RUNS, named))


def namespace_of(options: ProducerOptions) -> str:
    host, port = options.bootstrap_servers[0]
    return f"kafka://[{host}]:{port}" if ":" in host else f"kafka://{host}:{port}"


def _outputs(
    event_type: str, report: BatchReport, fields: Sequence[tuple[str, str]], options: ProducerOptions
) -> list[dict[str, Any]]:
    summary = summarize_receipts(report.receipts)
    named = [{"name": name, "type": kind} for name, kind in fields]
    facets = {"schema": _facet("1-2-0", "SchemaDatasetFacet", {"fields": named})} if fields else {}
    written = group_by_topic(summary.written)
    is_delivered = event_type == "COMPLETE" and report.outcome == DELIVERED
    return [
        {
            "namespace": namespace_of(options),
            "name": topic,
            "facets": facets,
            "outputFacets": _output_facets(topic, written[topic], summary) if is_delivered else {},
        }
        for topic in sorted(summary.topics)
    ]


def _output_facets(topic: str, written: Sequence[WrittenPartition], summary: BatchSummary) -> dict[str, Any]:
    ranges = [
        {"partition": each.partition, "firstOffset": each.first_offset, "lastOffset": each.last_offset,
         "rowCount": each.row_count}
        for each in written
    ]  # fmt: skip
    statistics: dict[str, Any] = {"rowCount": summary.topics[topic].row_count}
    if len(summary.topics) == 1:
        statistics["size"] = summary.bytes  # bytes are counted per task, not per topic
    return {
        "outputStatistics": _facet("1-0-2", "OutputStatisticsOutputDatasetFacet", statistics),
        "pykafkaSink_offsets": {"_producer": PRODUCER, "_schemaURL": OFFSETS_SCHEMA, "partitions": ranges},
    }


def _facet(version: str, name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}{version}/{name}.json#/$defs/{name}", **content}
