"""`sink_metrics`: the metrics of an application's streams as an object, for a notebook or a test."""

from __future__ import annotations

import html
import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_sink.errors import ConfigError, TransportError
from kafka_sink.errors.table.writes import FIGURES_MISSING
from kafka_sink.kafka.io.web import ask
from kafka_sink.options.values import parse_web_address
from kafka_sink.telemetry.metrics.application import folder_of_jvm
from kafka_sink.telemetry.metrics.store import read_streams
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures, from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUTS_MS = (5_000, 5_000)
ANSWER_BYTES_MAX = 256 * 1024 * 1024
_TITLES = ("sink", "query", "batches", "rows", "bytes", "retried", "commit s", "open")


@dataclass(frozen=True)
class SinkMetrics:
    """A snapshot; call again for newer values. `streams` has one entry per sink and query."""

    streams: Sequence[StreamFigures]

    def __iter__(self) -> Iterator[StreamFigures]:
        return iter(self.streams)

    def of(self, query: str) -> StreamFigures:
        """The metrics of the query with this name or id, or of the sink with this id; of several, the newest.

        Those without a query id count last: batch writes, and batches of a stream of which no task ended.
        """

        def order(stream: StreamFigures) -> tuple[bool, int]:
            return stream.query_id != "", max((batch["ended_ms"] for batch in stream.recent), default=0)

        named = [stream for stream in self.streams if query in (stream.query, stream.query_id, stream.sink)]
        if named:
            return max(named, key=order)
        known = ", ".join(stream.query or stream.sink for stream in self.streams) or "none"
        raise KeyError(f"no figures of {query!r}; there are figures of: {known}")

    def rows(self) -> list[tuple[Any, ...]]:
        return [
            (
                stream.sink,
                stream.query or stream.query_id,
                int(stream.value("batches", "delivered")),
                int(stream.value("rows")),
                int(stream.value("bytes")),
                int(stream.value("retried_records")),
                f"{mean_commit_s(stream):.3f}",
                int(stream.value("open_decisions")),
            )
            for stream in self.streams
        ]

    def _repr_html_(self) -> str:
        heading = "".join(f"<th>{title}</th>" for title in _TITLES)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in self.rows()
        )
        return f"<table><tr>{heading}</tr>{body}</table>"


def mean_commit_s(stream: StreamFigures) -> float:
    counts, total = stream.histograms.get("commit_seconds", ([], 0.0))
    return total / sum(counts) if sum(counts) else 0.0


def sink_metrics(where: SparkSession | str) -> SinkMetrics:
    """Metrics of the streams and batch writes with an option metrics.*.

    `where`: the Spark session, if this process is on the driver's host; or the address of the endpoint opened by
    metrics.prometheus.port, such as http://driver:9400, which works from anywhere (Spark Connect).
    """
    return SinkMetrics(_fetch(where) if isinstance(where, str) else read_streams(application_folder_of(where)))


def application_folder_of(spark: SparkSession) -> str:
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise ConfigError(
            "this session is one of Spark Connect, whose driver may be on another host: set metrics.prometheus.port "
            "and metrics.prometheus.address on the stream and call "
            'sink_metrics("http://<the driver\'s host>:<that port>")',
            FIGURES_MISSING,
        )
    found = folder_of_jvm(jvm)
    if found is None:
        raise ConfigError("this session has no running Spark application, or it has been stopped", FIGURES_MISSING)
    return found


def _fetch(url: str) -> list[StreamFigures]:
    try:
        url = parse_web_address("the address", url, "http://<the driver's host>:<metrics.prometheus.port>")
    except ConfigError as error:
        raise ConfigError(str(error), FIGURES_MISSING) from None
    address = url + "/metrics.json"
    try:
        answer = ask(
            "the endpoint", ssl.create_default_context, address, bytes_max=ANSWER_BYTES_MAX, timeouts_ms=TIMEOUTS_MS
        )
        if not answer.is_good:
            raise ValueError(f"it answered {answer.status}")
        return [from_json(json.dumps(stream)) for stream in json.loads(answer.body)["streams"]]
    except (TransportError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TransportError(f"no figures at {address}: {error}", FIGURES_MISSING) from None
