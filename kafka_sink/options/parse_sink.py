"""The options of the Spark sink: its own, and `kafka.<name>` for every option of the producer inside it.

Spark passes strings with lower-cased names, among them a few of its own. As with the producer's options nothing is
ignored silently: an unknown name is refused with the nearest known one, an option without effect causes a notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import (
    OPTION_NOT_SUPPORTED,
    OPTION_UNKNOWN,
    OPTIONS_CONTRADICT,
    TELLING_OPTION,
    TOPIC_OPTION,
)
from kafka_sink.options.foreign_table import canonical_name
from kafka_sink.options.format_names import FORMAT_NAMES, is_format_option
from kafka_sink.options.parse import OptionProblems, parse_for_edge, select_fields, suggest_name
from kafka_sink.options.presets import PREFIX, apply_preset
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.sink_options import (
    DEAD_LETTER,
    DEFAULT_LEDGER,
    EnvelopeOptions,
    SinkOptions,
    TelemetryOptions,
    TopicPlan,
    is_envelope_option,
)
from kafka_sink.options.sink_table import (
    ASYNCHRONOUS_PROGRESS,
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    LEDGER_CONFIG,
    METRICS_ENABLED,
    NO_EFFECT,
    PRODUCER_DEFAULTS,
    SINK_OPTIONS,
    SINK_PREFIXES,
    SOURCE_OPTIONS,
    SPARK_OPTIONS,
    TOPIC_CONFIG,
)
from kafka_sink.options.table import OPTIONS
from kafka_sink.options.values import FUNCTION_NAME, invalid_value_error, missing_error, two_values_error
from kafka_sink.security.this_host import is_url_of_this_host

if TYPE_CHECKING:
    from kafka_sink.options.format_options import FormatOptions

# Options that have no meaning without another one.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "metrics.prometheus.address": ("metrics.prometheus.port",),
    "metrics.timeout.ms": ("metrics.pushgateway.url", "metrics.otlp.endpoint", "lineage.url"),
    "traceparent.task": ("metrics.otlp.endpoint",),
    "lineage.api.key.file": ("lineage.url",),
    "lineage.namespace": ("lineage.file", "lineage.url"),
    "lineage.job": ("lineage.file", "lineage.url"),
}
# Options of the producer that have no meaning in a sink.
_AS_IT_IS = "is written as it is, binary as bytes and string as UTF-8; use DataFrame operations to serialize it"
_UNSUPPORTED: Mapping[str, str] = {
    "key.serializer": f"the column key {_AS_IT_IS}",
    "value.serializer": f"the column value {_AS_IT_IS}",
    "interceptor.classes": "columns are written whole, no code sees single records; change rows with DataFrame "
    "operations, watch batches with summary.listener",
    "transactional.id": "each task has an id of its own, chosen by the sink",
}
_POLICY, _COMPACT = "cleanup.policy", "compact"
# Options about transactions, the ledger and repetitions; sink.id is also a label of metrics.
_OF_EXACTLY_ONCE = frozenset(
    {"batch.id", "query.id", "delivery.fallback", "replay.mismatch", "commit.visible.timeout.ms", "ledger.topic"}
    | {"ledger.create", "ledger.replication.factor", "ledger.accept.new.sink"}
)
_ASKING = ("metrics.prometheus.port", "metrics.pushgateway.url", "metrics.otlp.endpoint", "lineage.file", "lineage.url")


# Planning does not see if there is a shuffle, so the text says when it matters.
_AMBIGUOUS_IDS = (
    "cloudevents: ids are made of the place of a row in its task, and with at-least-once delivery a repeated task "
    "writes rows again. Behind a shuffle (join, groupBy, repartition) they may come in another order: then one id "
    "names two different rows, and a reader that drops repeated ids loses one. Set cloudevents.id.column to a column "
    "that identifies a row"
)


def parse_sink_options(settings: Mapping[str, str]) -> SinkOptions:
    """Reports all problems in one `ConfigError`."""
    own: dict[str, Any] = {name: option.default for name, option in SINK_OPTIONS.items()}
    of_spark: dict[str, str] = {}
    of_producer: dict[str, str] = {}
    of_formats: dict[str, str] = {}
    configs: dict[str, dict[str, str]] = {prefix: {} for prefix in SINK_PREFIXES}
    of_envelope: dict[str, str] = {}
    notices: list[str] = []
    problems = OptionProblems()
    for given, value in apply_preset(settings).items():
        name = given.lower()
        prefix = next((each for each in SINK_PREFIXES if name.startswith(each) and name != each), None)
        if prefix is not None:
            configs[prefix][name.removeprefix(prefix)] = str(SINK_PREFIXES[prefix].rule.parse(name, value))
        elif name.startswith(PREFIX):
            of_producer[name.removeprefix(PREFIX)] = value
        elif is_format_option(name):
            of_formats[name] = value
        elif is_envelope_option(name):
            of_envelope[name] = value
        elif name in SPARK_OPTIONS or name in ASYNCHRONOUS_PROGRESS:
            of_spark[name] = value
        elif name in NO_EFFECT:
            notices.append(f"{given} has no effect: {NO_EFFECT[name]}")
        elif name in SINK_OPTIONS:
            own[name] = problems.attempt(SINK_OPTIONS[name].rule.parse, name, value)
        else:
            problems.found.append(ConfigError(_unknown_option_text(given), OPTION_UNKNOWN))
    partitioner = problems.attempt(_take_partitioner, of_producer)
    _drop_unsupported(of_producer, problems)
    problems.attempt(_check_together, own)
    problems.attempt(_check_topic_creation, own, configs[TOPIC_CONFIG], settings)
    problems.attempt(_check_ledger_configs, configs[LEDGER_CONFIG])
    problems.attempt(_check_telemetry, own)
    if own["delivery.guarantee"] == AT_LEAST_ONCE:
        notices += _notices_of_at_least_once(settings)
    producer = problems.attempt(_parse_producer_options, of_producer)
    if producer is not None and own["delivery.guarantee"] == EXACTLY_ONCE:
        problems.attempt(_check_exactly_once, producer, of_spark)
    formats = problems.attempt(_parse_format_options, of_formats, producer) if producer is not None else None
    envelope = problems.attempt(_parse_envelope_options, of_envelope, formats, own)
    problems.raise_any("problems with the options")
    is_repeatable = AT_LEAST_ONCE in (own["delivery.guarantee"], own["delivery.fallback"])
    if is_repeatable and envelope is not None and envelope.makes_ids:
        notices.append(_AMBIGUOUS_IDS)
    assert producer is not None, "what was not made has left a problem"
    by_name = {prefix: tuple(sorted(named.items())) for prefix, named in configs.items()}
    plan = TopicPlan(own["topic.partitions"], own["topic.replication.factor"], by_name[TOPIC_CONFIG])
    return SinkOptions(
        **select_fields(SinkOptions, own),
        producer=replace(producer, notices=()),
        transaction_timeout_is_chosen="transaction.timeout.ms" in of_producer,
        is_exactly_once=own["delivery.guarantee"] == EXACTLY_ONCE,
        falls_back=own["delivery.fallback"] == AT_LEAST_ONCE,
        ledger_is_created=own["ledger.create"],
        ledger_accepts_new_sink=own["ledger.accept.new.sink"],
        ledger_configs=by_name[LEDGER_CONFIG],
        topic_plan=plan if own["topic.create"] else None,
        partitioner=partitioner,
        checkpoint_location=of_spark.get("checkpointlocation"),
        query_name=of_spark.get("queryname"),
        formats=formats,
        envelope=envelope,
        telemetry=_make_telemetry_options(own),
        notices=(*notices, *producer.notices, *(() if formats is None else formats.notices)),
    )


def _parse_producer_options(of_producer: Mapping[str, str]) -> ProducerOptions:
    named = set(map(canonical_name, of_producer))
    defaults = {name: value for name, value in PRODUCER_DEFAULTS.items() if name not in named}
    if "delivery.timeout.ms" in named:
        # It may leave no room for more than Java's linger.ms.
        defaults.pop("linger.ms", None)
    return parse_for_edge({**defaults, **of_producer}, _explain_prefix)


def _explain_prefix(text: str) -> str:
    text = f"{text} (these are producer options: in Spark each has the prefix {PREFIX})"
    if "partitioner" in text:
        text += f"\n(a partitioner of your own is named as {PREFIX}partitioner.class=module:function)"
    return text


def _parse_format_options(of_formats: Mapping[str, str], producer: ProducerOptions) -> FormatOptions | None:
    if not of_formats:
        return None
    from kafka_sink.options.parse_formats import parse_format_options  # most writes have no format

    return parse_format_options(of_formats, producer)


def _parse_envelope_options(
    of_envelope: Mapping[str, str], formats: FormatOptions | None, own: Mapping[str, Any]
) -> EnvelopeOptions | None:
    column, of_task = own["traceparent.column"], own["traceparent.task"]
    if not of_envelope and column is None and not of_task:
        return None
    from kafka_sink.options.parse_envelope import parse_envelope_options  # as above

    value = None if formats is None else formats.value
    return parse_envelope_options(of_envelope, None if value is None else value.format, column, of_task)


def _drop_unsupported(of_producer: dict[str, str], problems: OptionProblems) -> None:
    for name in list(of_producer):
        reason = _UNSUPPORTED.get(canonical_name(name))
        if reason is not None and of_producer[name].strip():
            del of_producer[name]
            problems.found.append(ConfigError(f"{PREFIX}{name} is not supported: {reason}", OPTION_NOT_SUPPORTED))


def _take_partitioner(of_producer: dict[str, str]) -> str | None:
    """`module:function` is a user function; anything else is left to the producer's rule."""
    named = [name for name in of_producer if canonical_name(name) == "partitioner.class"]
    if not any(":" in of_producer[name] for name in named):
        return None
    if len({of_producer[name] for name in named}) > 1:
        raise two_values_error(*(f"{PREFIX}{name}" for name in named))
    functions: list[str] = [FUNCTION_NAME.parse(f"{PREFIX}{name}", of_producer.pop(name)) for name in named]
    return functions[0]


def _check_exactly_once(producer: ProducerOptions, of_spark: Mapping[str, str]) -> None:
    way_out = f"or choose delivery.guarantee={AT_LEAST_ONCE}"
    if not producer.enable_idempotence:
        raise ConfigError(
            f"delivery.guarantee={EXACTLY_ONCE} needs {PREFIX}enable.idempotence=true, {PREFIX}acks=all and "
            f"{PREFIX}retries above 0: leave them at their defaults, {way_out}",
            OPTIONS_CONTRADICT,
        )
    if of_spark.get("asyncprogresstrackingenabled", "").strip().lower() == "true":
        raise ConfigError(
            f"delivery.guarantee={EXACTLY_ONCE} is not possible with asyncProgressTrackingEnabled=true: Spark then "
            f"forgets which batches it has run. Leave it off, {way_out}",
            OPTION_NOT_SUPPORTED,
        )


def _check_together(own: Mapping[str, Any]) -> None:
    if own["batch.id"] is not None and own["sink.id"] is None:
        raise missing_error("batch.id needs sink.id: together they name an export")
    if own["query.id"] is not None and own["batch.id"] is None:
        raise missing_error("query.id needs batch.id: it says whose micro-batch a write inside foreachBatch is")
    for name in ("topic", "dead.letter.topic"):
        if own[name] == DEFAULT_LEDGER:
            raise ConfigError(
                f"{name}={DEFAULT_LEDGER} is where sinks keep their decisions: rows there could be taken for them",
                OPTIONS_CONTRADICT,
            )
        if own["delivery.guarantee"] == EXACTLY_ONCE and own[name] is not None and own[name] == own["ledger.topic"]:
            raise ConfigError(
                f"{name} and ledger.topic are the same: rows in a ledger could be taken for decisions",
                OPTIONS_CONTRADICT,
            )
    wants_topic = own["record.errors"] == DEAD_LETTER
    if wants_topic and own["dead.letter.topic"] is None:
        raise missing_error(f"record.errors={DEAD_LETTER} needs the option dead.letter.topic")
    if not wants_topic and own["dead.letter.topic"] is not None:
        raise missing_error(f"dead.letter.topic is set, but record.errors is not {DEAD_LETTER}: set both or none")
    if wants_topic and own["dead.letter.topic"] == own["topic"]:
        raise ConfigError(
            "dead.letter.topic and topic are the same: rows that cannot be sent need a topic of their own",
            OPTIONS_CONTRADICT,
        )


def _notices_of_at_least_once(given: Mapping[str, str]) -> list[str]:
    """`given` does not include a preset's values, as below."""
    idle = [
        name for name in sorted(map(str.lower, given)) if name in _OF_EXACTLY_ONCE or name.startswith(LEDGER_CONFIG)
    ]
    text = (
        f"without effect with delivery.guarantee={AT_LEAST_ONCE}: {', '.join(idle)}. There is no ledger, so a batch "
        "that is written again has its rows twice"
    )
    return [text] if idle else []


def _check_topic_creation(own: Mapping[str, Any], configs: Mapping[str, str], given: Mapping[str, str]) -> None:
    """`given` does not include a preset's values, which apply only once topic creation is enabled."""
    if own["topic.create"]:
        if own["topic"] is None:
            text = "topic.create=true needs the option topic: which topics a column names is known to tasks"
            raise ConfigError(text, TOPIC_OPTION)
        return
    named = {name.lower() for name in given}
    of_creation: tuple[str, ...] = ("topic.partitions", "topic.replication.factor")
    without_effect = [name for name in of_creation if name in named]
    without_effect += [f"{TOPIC_CONFIG}{name}" for name in configs]
    if without_effect:
        raise ConfigError(f"{', '.join(without_effect)}: set topic.create=true, or leave it out", TOPIC_OPTION)


def _check_ledger_configs(configs: Mapping[str, str]) -> None:
    """A ledger with another policy would be refused, too, but only by the next process that plans a write."""
    policy = configs.get(_POLICY, _COMPACT)
    if policy != _COMPACT:
        raise invalid_value_error(f"{LEDGER_CONFIG}{_POLICY}", policy, f"{_COMPACT}: any other one deletes decisions")


def _check_telemetry(own: Mapping[str, Any]) -> None:
    for name, needed in _NEEDS.items():
        if own[name] != SINK_OPTIONS[name].default and all(own[each] is None for each in needed):
            raise ConfigError(f"{name} is set, and nothing uses it without {' or '.join(needed)}", TELLING_OPTION)
    url = own["lineage.url"] or ""
    if own["lineage.api.key.file"] is not None and not url.startswith("https:") and not is_url_of_this_host(url):
        raise ConfigError("lineage.api.key.file needs a lineage.url with https://: a key is sent there", TELLING_OPTION)


def _make_telemetry_options(own: Mapping[str, Any]) -> TelemetryOptions | None:
    """None if no option enables metrics or lineage."""
    if not own[METRICS_ENABLED] and all(own[name] is None for name in _ASKING):
        return None
    return TelemetryOptions(**select_fields(TelemetryOptions, own, "metrics."))


def _unknown_option_text(given: str) -> str:
    name = given.lower()
    if name in SOURCE_OPTIONS:
        return f"{given} is an option of Kafka as a source: leave it out of the sink"
    if name == "path":
        return "a path means nothing to this sink: call save() or start() without it and set the option topic"
    if canonical_name(name) in OPTIONS:
        return f"{given!r} is not an option of this sink: did you mean {PREFIX}{name}?"
    hint = suggest_name(name, [*SINK_OPTIONS, *FORMAT_NAMES, *(PREFIX + each for each in OPTIONS)])
    return (
        f"{given!r} is not an option of this sink{hint or f'; options of the Kafka producer have the prefix {PREFIX}'}"
    )
