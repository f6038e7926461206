"""The sink's own options as rows, and what it says to names that belong to somebody else."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_sink.frozen import frozen
from kafka_sink.options.option import Option
from kafka_sink.options.presets import PRESETS, get_preset
from kafka_sink.options.sink_options import DEAD_LETTER, DROP, FAIL
from kafka_sink.options.values import (
    ANY_TEXT,
    FUNCTION_NAME,
    TOPIC_NAME,
    Choice,
    Flag,
    Pattern,
    Rule,
    Text,
    Whole,
    invalid_value_error,
)

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
# Values of `delivery.fallback`; the other one is AT_LEAST_ONCE.
NO_FALLBACK = "none"
# Values of `replay.mismatch`; the first is the default.
MISMATCHES = ("fail", "warn", "skip")
METRICS_ENABLED = "metrics.enabled"

# Stands in transactional ids and in the ACL for them.
_SINK_ID = Pattern("1 to 200 letters, digits, dots, underscores and hyphens", re.compile(r"[a-zA-Z0-9._-]{1,200}"))
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#@]*)?")
_TEXT = Text(empty_allowed=False)
LABEL_CHARACTERS_MAX = 200


@frozen
class PresetName:
    valid: str = "one of " + ", ".join(PRESETS)

    def parse(self, name: str, value: object) -> str:
        text = str(value).strip()
        get_preset(text)
        return text


@frozen
class Label:
    """Goes into the ledger, which reads back no text that is longer than 1,000 characters."""

    valid: str = "a text of 1 to 200 characters"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if not 1 <= len(text) <= LABEL_CHARACTERS_MAX:
            raise invalid_value_error(
                name, value if len(text) <= LABEL_CHARACTERS_MAX else f"{len(text)} characters", self.valid
            )
        return text


@frozen
class PlainUrl:
    """Neither a user nor a query: what is secret does not belong into an option that Spark hands on."""

    valid: str = "an http:// or https:// address without user and query"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if not _URL.fullmatch(text):
            raise invalid_value_error(name, "***@" + text.rpartition("@")[2] if "@" in text else value, self.valid)
        return text.rstrip("/")


def _row(name: str, default: object, rule: Rule, meaning: str) -> Option:
    return Option(name, rule, meaning, default)


_ROWS = (
    _row("preset", None, PresetName(), "The service that the brokers belong to: sets what it needs "
         "([services.md](services.md)). An option that is set wins over the preset."),
    _row("delivery.guarantee", EXACTLY_ONCE, Choice((EXACTLY_ONCE, AT_LEAST_ONCE)), "exactly-once: each task writes in "
         "a transaction, and the driver commits all of a batch after one durable decision; readers with "
         "isolation.level=read_committed see each row once whatever crashes. at-least-once: rows are visible at once, "
         "and twice when Spark repeats a task or a batch."),
    _row("delivery.fallback", NO_FALLBACK, Choice((NO_FALLBACK, AT_LEAST_ONCE)), "What to do under exactly-once where "
         "the brokers offer no transactions. none: refuse the write when it is planned. at-least-once: warn, and write "
         "with that guarantee."),
    _row("sink.id", None, _SINK_ID, "The name of this sink in its ledger and the beginning of all its transactional "
         "ids. A stream has one from its checkpointLocation; a batch write needs one together with batch.id."),
    _row("batch.id", None, Label(), "Batch writes: the name of this export. A second run under the same name delivers "
         "nothing; one that crashed in its commit is finished. Needs sink.id. A name that is only a number is a "
         "micro-batch of a query: inside foreachBatch Spark tells which one, elsewhere query.id has to."),
    _row("query.id", None, Label(), "Batch writes: the query whose micro-batch batch.id is, where Spark does not tell: "
         "inside foreachBatch over Spark Connect, or in threads of one's own. It has to be another one whenever the "
         "query starts with a new checkpoint. Needs batch.id."),
    _row("ledger.topic", "__pykafka_sink_ledger", TOPIC_NAME, "The compacted topic that holds the decisions of "
         "exactly-once sinks; created if it is missing. Sinks may share one."),
    _row("ledger.create", True, Flag(), "Create the ledger topic if it is missing. false: a missing one is an error "
         "that says how to create it."),
    _row("ledger.replication.factor", -1, Whole(1, 32767, besides=-1), "Of the ledger, when the sink creates it; -1 is "
         "3, or the number of brokers if there are fewer."),
    _row("ledger.accept.new.sink", False, Flag(), "A stream that has delivered batches before but is not in the ledger "
         "is refused, because a lost ledger must not be taken for an empty one. true starts a ledger for such a "
         "stream, for instance when it changes from at-least-once or from another sink."),
    _row("replay.mismatch", MISMATCHES[0], Choice(MISMATCHES), "What to do when a batch that was delivered comes again "
         "with other rows: because a checkpoint was restored from an older copy, because two things are written under "
         "one name, or because the query makes its rows anew each time. fail: stop if the counts of rows differ, warn "
         "if only the contents do (stop there, too, if the same run delivered it). warn: warn in all cases, and keep "
         "what was delivered. skip: keep it silently."),
    _row("commit.visible.timeout.ms", 0, Whole(0, 2**31 - 1), "After a batch is committed: how long to wait until "
         "read_committed readers can see all of it. Brokers answer a commit before its markers are written, some "
         "milliseconds as a rule. What cannot be seen in time is said in a warning that names the partitions; the "
         "batch counts as delivered. Any open transaction in a partition holds its readers back, so topics with other "
         "transactional writers may use up this time at each batch. 0 does not ask."),
    _row("topic", None, TOPIC_NAME, "The topic of every row. It wins over a column topic, which is then not looked "
         "at. Without it the column topic decides, row by row."),
    _row("topic.create", False, Flag(), "Create the topic, and dead.letter.topic, if they are missing: on the driver, "
         "before any task and before a schema is registered, and wait until every broker knows them. A topic that is "
         "there and differs from the options below is left as it is, with one warning."),
    _row("topic.partitions", -1, Whole(1, 2**31 - 1, besides=-1), "Partitions of a topic that topic.create makes; -1 "
         "is the broker's default."),
    _row("topic.replication.factor", -1, Whole(1, 32767, besides=-1), "Replicas of each partition of a topic that "
         "topic.create makes; -1 is the broker's default."),
    _row("record.errors", FAIL, Choice((FAIL, DROP, DEAD_LETTER)), "What becomes of a row that can never be sent "
         "(too large, no topic, a partition that does not exist, a header without a key): fail ends the task with an "
         "error that names the row; drop leaves it out and counts it in the summary; dead-letter writes it to "
         "dead.letter.topic instead, with headers that say why."),
    _row("dead.letter.topic", None, TOPIC_NAME, "Where record.errors=dead-letter writes."),
    _row("summary.listener", None, FUNCTION_NAME, "A function of two arguments, a BatchKey and a BatchSummary, that "
         "is called after each commit, on the driver, in a Python process of Spark's. What it raises is logged and "
         "changes nothing."),
    # Figures, traces and lineage.
    _row(METRICS_ENABLED, False, Flag(), "Count rows, bytes, retries and times of each task and micro-batch, for "
         "kafka_sink.sink_metrics(spark) in a notebook. Every other option that begins with metrics. turns this on."),
    _row("metrics.prometheus.port", None, Whole(1, 65535), "Serve the figures of all streams of this application as "
         "Prometheus text on this port of the driver's host, at /metrics."),
    _row("metrics.prometheus.address", "0.0.0.0", _TEXT, "The address that the port listens at."),
    _row("metrics.pushgateway.url", None, PlainUrl(), "Push the figures to a Prometheus Pushgateway after each batch: "
         "for jobs that are over before anybody scrapes them."),
    _row("metrics.otlp.endpoint", None, PlainUrl(), "Send figures and spans (one for each micro-batch, one for each "
         "task) after each batch to an OpenTelemetry collector by OTLP over HTTP, such as http://collector:4318. Needs "
         "pykafka-sink[otlp] on the driver; headers and attributes come from the environment (OTEL_*)."),
    _row("metrics.timeout.ms", 2_000, Whole(1, 2**31 - 1), "How long a commit waits for a Pushgateway, a collector or "
         "lineage.url. One that does not answer is left out for 30 seconds; no batch fails for it."),
    _row("traceparent.column", None, _TEXT, "The string column whose text is the header traceparent of its record, as "
         "W3C Trace Context has it. It takes the place of such a header in the column headers. A null, and a text that "
         "is no traceparent, leave the row as it is. The column is part of the value all the same, unless "
         "value.columns leaves it out."),
    _row("traceparent.task", False, Flag(), "Records that have no header traceparent otherwise get one that points to "
         "the span of their task. Needs metrics.otlp.endpoint, where that span goes."),
    _row("lineage.file", None, _TEXT, "Append OpenLineage events to this file on the driver, one JSON object a line."),
    _row("lineage.url", None, PlainUrl(), "Send OpenLineage events there, such as http://marquez:5000; /api/v1/lineage "
         "is put behind an address without a path."),
    _row("lineage.api.key.file", None, _TEXT, "A file on the driver with the key that lineage.url wants as a bearer "
         "token. Read for each event, so it may be replaced."),
    _row("lineage.namespace", "pykafka-sink", _TEXT, "The namespace of the job in lineage events."),
    _row("lineage.job", None, _TEXT, "The name of the job in lineage events; without it the query's name, or the sink "
         "id."),
)  # fmt: skip

SINK_OPTIONS: Mapping[str, Option] = {row.name: row for row in _ROWS}

TOPIC_CONFIG, LEDGER_CONFIG = "topic.config.", "ledger.config."
# Options whose names go on behind the prefix: with the name of a topic configuration.
SINK_PREFIXES: Mapping[str, Option] = {
    TOPIC_CONFIG: _row(
        f"{TOPIC_CONFIG}NAME", None, ANY_TEXT, "A configuration of the topic that topic.create makes, such as "
        "topic.config.retention.ms. Not of dead.letter.topic.",
    ),
    LEDGER_CONFIG: _row(
        f"{LEDGER_CONFIG}NAME", None, ANY_TEXT, "A configuration of the ledger topic, when the sink creates it, beside "
        "or in place of its own. An empty value leaves it to the broker.",
    ),
}  # fmt: skip

# A Spark task writes as fast as it can: with Java's 16 KiB a batch costs more than the rows in it. A task flushes at
# its end, so a longer linger delays nothing and fills batches: with a thousand partitions a row then takes less than
# half the CPU that it takes with Java's 5 ms. A transaction lasts as long as the slowest task of its batch, and after a
# crash until the query runs again.
PRODUCER_DEFAULTS: Mapping[str, str] = {
    "batch.size": "131072",
    "linger.ms": "1000",
    "transaction.timeout.ms": "900000",
}

# Options of Spark that change when a batch counts as done; exactly-once cannot be had with them.
ASYNCHRONOUS_PROGRESS = frozenset({"asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms"})

# Spark passes its own options on to the sink.
SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname"})

NO_EFFECT: Mapping[str, str] = {
    "includeheaders": "a column headers is written whenever there is one",
}

SOURCE_OPTIONS = frozenset(
    {"assign", "subscribe", "subscribepattern", "startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp"}
    | {"endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp", "failondataloss", "minpartitions"}
    | {"maxrecordsperpartition", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "groupidprefix"}
    | {"fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms"}
    | {"startingoffsetsbytimestampstrategy"}
)
