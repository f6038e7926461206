"""The sink's own options as rows, and its answers to names of other sinks."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import PRESET_UNKNOWN, TELLING_OPTION
from kafka_sink.frozen import frozen
from kafka_sink.options.option import Chapter, Needs, Option, by_name, without_effect
from kafka_sink.options.presets import PRESETS
from kafka_sink.options.sink_options import (
    AT_LEAST_ONCE,
    DEAD_LETTER,
    DEBEZIUM,
    DEFAULT_LEDGER,
    DROP,
    EXACTLY_ONCE,
    FAIL,
    SINK_ID_LETTERS,
    UPSERT,
)
from kafka_sink.options.values import (
    ANY_TEXT,
    AS_GIVEN,
    FLAG,
    FUNCTION_NAME,
    INT,
    NOT_EMPTY,
    TOPIC_NAME,
    Choice,
    Whole,
    describe_value,
    invalid_value_error,
    parse_web_address,
    pattern,
)
from kafka_sink.security.reference import has_template

# Values of `delivery.fallback`; the other one is AT_LEAST_ONCE.
NO_FALLBACK = "none"
# Values of `replay.mismatch`; the first is the default.
MISMATCHES = ("fail", "warn", "skip")
METRICS_ENABLED = "metrics.enabled"

SINK_ID = pattern("1 to 200 letters, digits, dots, underscores and hyphens", SINK_ID_LETTERS + "{1,200}")
# Written to the ledger, which accepts no text longer than 1,000 characters.
LABEL_MAX = 200


@frozen
class LabelText:
    """A template that nobody has filled in would be one name for what should have many, so that rows are left out."""

    valid: str = f"1 to {LABEL_MAX} characters, without ${{...}} and {{{{...}}}}"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if has_template(text):
            raise ConfigError(
                f"{name}={describe_value(name, text)} is taken as it is written, so each run would have this one name. "
                "Fill it in before it gets here, for example with an f-string, or in a field that the scheduler "
                "renders; in a file of --properties ${env:NAME} is replaced"
            )
        if not 1 <= len(text) <= LABEL_MAX:
            raise invalid_value_error(name, value, self.valid)
        return text


_LABEL = LabelText()


@frozen
class PresetName:
    valid: str = "one of " + ", ".join(PRESETS)

    def parse(self, name: str, value: object) -> str:
        text = str(value).strip()
        if text not in PRESETS:
            raise ConfigError(f"there is no preset {text!r}: choose {self.valid}", PRESET_UNKNOWN)
        return text


@frozen
class PlainUrl:
    """Neither a user nor a query: a secret does not belong in an option that Spark passes on."""

    valid: str = "an http:// or https:// address without user and query"

    def parse(self, name: str, value: object) -> str:
        return parse_web_address(name, str(value), self.valid)


# What makes the sink send metrics or lineage.
RECEIVERS = (
    "metrics.prometheus.port", "metrics.pushgateway.url", "metrics.otlp.endpoint", "lineage.file", "lineage.url",
)  # fmt: skip
_ONCE = (f"delivery.guarantee={EXACTLY_ONCE}",)


def _of_receiver(*receivers: str) -> Needs:
    return Needs(receivers, "{name} is set, and nothing uses it without {needed}", TELLING_OPTION)


_CONNECT = (
    Option("preset", PresetName(), "The service that runs the brokers: sets what it needs "
           "([services.md](services.md)). Options that you set come first.", example="confluent-cloud"),
)  # fmt: skip

_TOPICS = (
    Option("topic", TOPIC_NAME, "The topic of every row. If it is not set, the column topic names the topic of each "
           "row; if it is, such a column is ignored.", example="orders"),
    Option("topic.create", FLAG, "Create the topic and dead.letter.topic if they are missing, before the tasks of a "
           "batch run. A topic that is there is not changed; if it differs, one warning is logged.",
           default=False, example="true"),
    Option("topic.partitions", Whole(1, besides=-1), "Partitions of a topic that topic.create creates; -1: the "
           "broker's default.", default=-1),
    Option("topic.replication.factor", Whole(1, 32767, besides=-1), "Replicas of a topic that topic.create creates; "
           "-1: the broker's default.", default=-1),
    Option("topic.config.NAME", ANY_TEXT, "A configuration of the topic that topic.create creates. It does not "
           "apply to dead.letter.topic, which gets message.timestamp.type=LogAppendTime.",
           into="topic_config", example="topic.config.retention.ms=604800000"),
)  # fmt: skip

_CHANGES = (
    Option("envelope", Choice((UPSERT, DEBEZIUM)), "Rows are changes of a table, and operation.column says which "
           "([guide](guides/change-feeds.md)). They need a key. upsert: the value of the row; a delete becomes a "
           "tombstone. debezium: before, after, op and ts_ms; a delete is followed by a tombstone.",
           into="", example="upsert"),
    Option("operation.column", NOT_EMPTY, "The string column that says what a change is, in the words of Delta, "
           "Iceberg or Debezium ([all](guides/change-feeds.md)). It is not part of the value, unless value.columns "
           "names it.", default="_change_type", into="",
           needs=Needs(("envelope",), "operation.column needs envelope: it says what becomes of a change")),
    Option("before.column", NOT_EMPTY, "The struct column with the row before the change, for envelope=debezium, of "
           "the type of the row. Not set: only deletes have a before.", into="",
           needs=Needs((f"envelope={DEBEZIUM}",), "before.column needs envelope=debezium: the other envelope has no "
                       "place for it")),
)  # fmt: skip

_DELIVERY = (
    Option("delivery.guarantee", Choice((EXACTLY_ONCE, AT_LEAST_ONCE)), "exactly-once: each task writes in a "
           "transaction, and the driver commits those of a batch together; readers with "
           "isolation.level=read_committed see each row once. at-least-once: rows are visible at once, and again if "
           "Spark repeats a task or a batch.", default=EXACTLY_ONCE, example="at-least-once"),
    Option("delivery.fallback", Choice((NO_FALLBACK, AT_LEAST_ONCE)), "If the brokers offer no transactions. none: "
           "the write fails before any task runs. at-least-once: write with that guarantee, and log a warning.",
           default=NO_FALLBACK, scope=_ONCE),
    Option("sink.id", SINK_ID, "The name of this sink in its ledger, and the prefix of its transactional ids. A "
           "stream without it is named after its checkpointLocation; a batch write needs it together with batch.id.",
           example="orders-export"),
    Option("batch.id", _LABEL, "Batch writes: the name of this export. A second run with the same name adds "
           "nothing, or completes what the first had decided. A name that is only a number is a micro-batch: inside "
           "foreachBatch Spark names its query, elsewhere query.id must.",
           needs=Needs(("sink.id",), "batch.id needs sink.id: together they name an export"),
           scope=_ONCE, example="2025-11-26"),
    Option("query.id", _LABEL, "The query of a micro-batch, where Spark does not name it: inside foreachBatch over "
           "Spark Connect, or in your own threads. Choose a new one for each new checkpoint. "
           "kafka_sink.foreach_batch and write_batch need no batch.id with it.",
           needs=Needs(("batch.id",), "query.id needs batch.id: it says whose micro-batch a write inside "
                       "foreachBatch is"),
           scope=_ONCE),
    Option("replay.mismatch", Choice(MISMATCHES), "If a delivered batch comes again with other rows. fail: stop "
           "if row counts differ; if only contents differ, warn (stop if it is the same run). warn: always warn, "
           "and keep what was delivered. skip: keep it without a word.", default=MISMATCHES[0], scope=_ONCE),
    Option("commit.visible.timeout.ms", INT, "How long a commit waits until readers can see the whole batch; then a "
           "warning names the partitions, and the batch counts as delivered. Open transactions of other writers can "
           "use up this time at each batch. 0: do not wait.", default=0, scope=_ONCE),
    Option("manifest.topic", TOPIC_NAME, "A topic that gets one record for each delivered batch: topics, partitions, "
           "offsets, rows ([guide](guides/manifests.md)). It must exist.",
           scope=_ONCE, example="orders.manifests"),
    Option("ledger.topic", TOPIC_NAME, "The compacted topic with the decisions of exactly-once sinks, which may "
           "share it. It is created if it is missing.", default=DEFAULT_LEDGER, scope=_ONCE),
    Option("ledger.create", FLAG, "Create the ledger topic if it is missing. false: it is an error, which says how "
           "to create it.", default=True, scope=_ONCE),
    Option("ledger.replication.factor", Whole(1, 32767, besides=-1), "Replicas of the ledger topic when the sink "
           "creates it; -1: 3, or as many as there are brokers.", default=-1, scope=_ONCE),
    Option("ledger.config.NAME", ANY_TEXT, "A configuration of the ledger topic when the sink creates it, besides "
           "or instead of its own ones; empty: the broker's default. cleanup.policy can only be compact.",
           into="ledger_config", scope=_ONCE, example="ledger.config.segment.bytes=52428800"),
    Option("ledger.accept.new.sink", FLAG, "true: accept a stream that has delivered batches and is not in the "
           "ledger, because it comes from at-least-once or from another sink, or foreachBatch wrote none of them. "
           "Otherwise it is refused: its ledger may be lost. For one start.", default=False, scope=_ONCE),
)  # fmt: skip

_ERRORS = (
    Option("record.errors", Choice((FAIL, DROP, DEAD_LETTER)), "A row that can never be sent: too large, without "
           "topic, for a partition that does not exist, with a header without key, or one that does not fit its "
           "schema. fail: the task fails and names the row. drop: leave it out and count it. dead-letter: write it "
           "to dead.letter.topic, with the reason in headers.", default=FAIL,
           example="dead-letter"),
    Option("dead.letter.topic", TOPIC_NAME, "The topic for record.errors=dead-letter.",
           needs=Needs((f"record.errors={DEAD_LETTER}",), "dead.letter.topic is set, but record.errors is "
                       f"not {DEAD_LETTER}: set both or none"), example="orders.rejected"),
)  # fmt: skip

_METRICS = (
    Option("summary.listener", FUNCTION_NAME, "A function that is called with a BatchKey and a BatchSummary after "
           "each commit, in a Python process of Spark on the driver; not for a batch that was delivered before. "
           "What it raises is logged.",
           example="my_package.audit:told"),
    Option(METRICS_ENABLED, FLAG, "Count rows, bytes, retries and times of tasks and micro-batches, for "
           "kafka_sink.sink_metrics(spark). Every other option with metrics. turns this on.",
           default=False),
    Option("metrics.prometheus.port", Whole(1, 65535), "Serve the metrics of all streams of this application at "
           "/metrics on this port of the driver's host.", example="9400"),
    Option("metrics.prometheus.address", NOT_EMPTY, "Where the port listens. 0.0.0.0 or the address of a network "
           "lets other hosts read, without a login.", default="127.0.0.1",
           needs=_of_receiver("metrics.prometheus.port")),
    Option("metrics.pushgateway.url", PlainUrl(), "Push the metrics to a Prometheus Pushgateway after each batch, "
           "for jobs that end before they are scraped."),
    Option("metrics.otlp.endpoint", PlainUrl(), "Send metrics, and a span for each micro-batch and task, to an "
           "OpenTelemetry collector after each batch (OTLP over HTTP). Needs pykafka-sink[otlp] on the driver; "
           "headers and attributes come from the environment (OTEL_*).",
           example="http://collector:4318"),
    Option("metrics.timeout.ms", Whole(1), "How long a commit waits for a connection to a receiver, and again for "
           "its answer. One that does not answer is skipped for 30 seconds; no batch fails because of it.",
           default=2_000,
           needs=_of_receiver("metrics.pushgateway.url", "metrics.otlp.endpoint", "lineage.url")),
    Option("traceparent.column", NOT_EMPTY, "The string column with the header traceparent (W3C Trace Context), in "
           "place of one in the column headers; null, or a text that is no traceparent, changes nothing. It is part of "
           "the value, unless value.columns leaves it out."),
    Option("traceparent.task", FLAG, "Records without the header traceparent get one that points to the span of "
           "their task.", default=False,
           needs=_of_receiver("metrics.otlp.endpoint")),
    Option("lineage.file", NOT_EMPTY, "Append OpenLineage events to this file on the driver, one JSON object a line."),
    Option("lineage.url", PlainUrl(), "Send OpenLineage events to this address; /api/v1/lineage is added to one "
           "without a path.", example="http://marquez:5000"),
    Option("lineage.api.key.file", NOT_EMPTY, "A file on the driver with the bearer token for lineage.url, read for "
           "each event.", needs=_of_receiver("lineage.url")),
    Option("lineage.namespace", NOT_EMPTY, "The namespace of the job in lineage events.", default="pykafka-sink",
           needs=_of_receiver("lineage.file", "lineage.url")),
    Option("lineage.job", NOT_EMPTY, "The job's name in lineage events; if not set, the query's name or the sink id.",
           needs=_of_receiver("lineage.file", "lineage.url")),
)  # fmt: skip

SINK_CHAPTERS: Mapping[Chapter, tuple[Option, ...]] = {
    Chapter.CONNECT: _CONNECT,
    Chapter.TOPICS: (*_TOPICS, *_CHANGES),
    Chapter.DELIVERY: _DELIVERY,
    Chapter.ERRORS: _ERRORS,
    Chapter.METRICS: _METRICS,
}
SINK_OPTIONS = by_name(SINK_CHAPTERS)
# Prefixes that are followed by the name of a topic configuration.
TOPIC_CONFIG, LEDGER_CONFIG = "topic.config.", "ledger.config."

# A Spark task writes as fast as it can: with Java's 16 KiB a batch costs more than the rows in it. A task flushes at
# its end, so a longer linger delays nothing and fills batches: with a thousand partitions a row then takes less than
# half the CPU that it takes with Java's 5 ms. A transaction lasts as long as the slowest task of its batch, and after a
# crash until the query runs again.
PRODUCER_DEFAULTS: Mapping[str, str] = {
    "batch.size": "131072",
    "linger.ms": "1000",
    "transaction.timeout.ms": "900000",
}

# What Spark passes on besides the sink's own options, and those that are known from its other sink.
SPARK_OPTIONS: Mapping[str, Option] = {row.name: row for row in (
    Option("checkpointlocation", AS_GIVEN, "Spark's folder of a stream.", into="checkpoint_location"),
    Option("queryname", AS_GIVEN, "Spark's name of a stream.", into="query_name"),
    # They change when a batch counts as done, which rules out exactly-once.
    Option("asyncprogresstrackingenabled", AS_GIVEN, "Spark writes its log of batches later.", default="", into=""),
    Option("asyncprogresstrackingcheckpointintervalms", AS_GIVEN, "How much later.", into=""),
    without_effect("includeheaders", "Write headers.", "a column headers is written whenever there is one", ANY_TEXT),
)}  # fmt: skip

SOURCE_OPTIONS = frozenset(
    {"assign", "subscribe", "subscribepattern", "startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp"}
    | {"endingoffsets", "endingoffsetsbytimestamp", "endingtimestamp", "failondataloss", "minpartitions"}
    | {"maxrecordsperpartition", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay", "groupidprefix"}
    | {"fetchoffset.numretries", "fetchoffset.retryintervalms", "kafkaconsumer.polltimeoutms"}
    | {"startingoffsetsbytimestampstrategy"}
)
