"""The options of the Spark sink: its own, and `kafka.<name>` for every option of the producer inside it.

Spark passes strings with lower-cased names, among them a few of its own. As with the producer's options nothing is
ignored silently: an unknown name is refused with the nearest known one, an option without effect causes a notice.

`needs` in the rows of `sink_table.py` has the simple rules over several options; the others are functions here. Their
`settings` are as the user gave them, without the values of a preset: those cause neither notices nor refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import (
    OPTION_NOT_SUPPORTED,
    OPTION_UNKNOWN,
    OPTIONS_CONTRADICT,
    TELLING_OPTION,
    TOPIC_OPTION,
)
from kafka_sink.options.engine import Draft, Table, check_alone, check_needs, fill, out_of_scope, read, suggest_name
from kafka_sink.options.foreign_table import canonical_name
from kafka_sink.options.format_names import ENCODED, FORMAT_NAMES, is_format_option
from kafka_sink.options.parse import (
    check_producer_option,
    is_name_of_producer,
    parse_for_edge,
    parse_producer_options,
)
from kafka_sink.options.presets import PREFIX, apply_preset
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.sink_options import (
    AT_LEAST_ONCE,
    DEAD_LETTER,
    DEBEZIUM,
    DEFAULT_LEDGER,
    EXACTLY_ONCE,
    STRUCTURED_MODE,
    ChangeOptions,
    EnvelopeOptions,
    SinkOptions,
    TelemetryOptions,
    is_envelope_option,
)
from kafka_sink.options.sink_table import (
    LEDGER_CONFIG,
    METRICS_ENABLED,
    PRODUCER_DEFAULTS,
    RECEIVERS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    SPARK_OPTIONS,
    TOPIC_CONFIG,
)
from kafka_sink.options.table import OPTIONS
from kafka_sink.options.values import FUNCTION_NAME, invalid_value_error, missing_error, two_values_error
from kafka_sink.security.this_host import is_url_of_this_host

# Planning does not see if there is a shuffle, so the text says when it matters.
_AMBIGUOUS_IDS = (
    "cloudevents: ids are made of the place of a row in its task, and with at-least-once delivery a repeated task "
    "writes rows again. Behind a shuffle (join, groupBy, repartition) they may come in another order: then one id "
    "names two different rows, and a reader that drops repeated ids loses one. Set cloudevents.id.column to a column "
    "that identifies a row"
)
_POLICY, _COMPACT = "cleanup.policy", "compact"
# What some take for an option. Spark makes their names lower case.
WRITER_METHODS = {name.lower(): name for name in ("mode", "outputMode", "trigger", "partitionBy")}


def parse_sink_options(settings: Mapping[str, str]) -> SinkOptions:
    """Reports all problems in one `ConfigError`."""
    own, of_producer, of_formats, of_envelope = _divide(apply_preset(settings))
    draft = read(_SINK, own)
    partitioner = draft.attempt(_take_partitioner, of_producer)
    _drop_unsupported(of_producer, draft)
    check_needs(SINK_OPTIONS, draft)
    for rule in RULES:
        draft.attempt(rule, draft, settings)
    # Who forgot the prefix is told that, and not that the option is missing as well.
    meant = {name.lower(): value for name, value in own.items() if name.lower() == "bootstrap.servers"}
    producer = draft.attempt(_parse_producer_options, {**meant, **of_producer})
    formats = envelope = None
    if producer is not None:
        draft.attempt(check_exactly_once, draft, producer)
    # Most writes have neither a format nor an envelope, and do not wait for what parses them.
    if producer is not None and of_formats:
        from kafka_sink.options.parse_formats import parse_format_options

        formats = draft.attempt(parse_format_options, of_formats, producer)
    value_format = None if formats is None or formats.value is None else formats.value.format
    trace_column, trace_of_task = draft.values["traceparent.column"], draft.values["traceparent.task"]
    if of_envelope or trace_column is not None or trace_of_task:
        from kafka_sink.options.parse_envelope import parse_envelope_options

        envelope = draft.attempt(parse_envelope_options, of_envelope, value_format, trace_column, trace_of_task)
    draft.attempt(check_changes, draft, value_format, envelope)
    draft.raise_any("problems with the options")
    if formats is not None and draft.values["envelope"] == DEBEZIUM:
        from kafka_sink.options.parse_formats import name_envelope

        formats = name_envelope(formats, draft.values["topic"])
    is_repeatable = AT_LEAST_ONCE in (draft.values["delivery.guarantee"], draft.values["delivery.fallback"])
    if is_repeatable and envelope is not None and envelope.makes_ids:
        draft.notices.append(_AMBIGUOUS_IDS)
    assert producer is not None, "what was not made has left a problem"
    return SinkOptions(
        **fill(SinkOptions, _SINK.options, draft),
        producer=replace(producer, notices=()),
        transaction_timeout_is_chosen="transaction.timeout.ms" in of_producer,
        partitioner=partitioner,
        formats=formats,
        envelope=envelope,
        changes=_make_change_options(draft),
        telemetry=_make_telemetry_options(draft),
        notices=(*draft.notices, *producer.notices, *(() if formats is None else formats.notices)),
    )


def make_texts(options: Mapping[str, object]) -> dict[str, str]:
    """As Spark's `option` turns values into text. For it None is no value; `str` would make a name of it."""
    missing = sorted(str(name) for name, value in options.items() if value is None)
    if missing:
        raise ConfigError(f"these options have no value (None): {', '.join(missing)}")
    return {str(name): str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def take_option(settings: Mapping[str, str], name: str) -> tuple[dict[str, str], Any]:
    """The settings without this option of the sink, and its value by its rule; None: it is not among them. For callers
    that need it before, or without, the others."""
    others = {given: value for given, value in settings.items() if given.lower() != name}
    found = {given: SINK_OPTIONS[name].rule.parse(name, settings[given]) for given in settings if given not in others}
    if len(set(found.values())) > 1:
        raise two_values_error(*list(found)[:2])
    return others, next(iter(found.values()), None)


def add_prefix(name: str) -> str:
    """The name of an option in a Spark job. Files for Kafka's own tools have no prefix."""
    return f"{PREFIX}{name}" if is_name_of_producer(name) else name


def check_setting(name: str, value: str) -> None:
    """Whether there is such an option, and the value fits it. What several options say together is not looked at."""
    own, of_producer, of_formats, of_envelope = _divide({name: value})
    for given, text in own.items():
        check_alone(_SINK, given, text)
    for given, text in of_producer.items():
        if canonical_name(given) == "partitioner.class" and ":" in text:
            FUNCTION_NAME.parse(name, text)
        else:
            check_producer_option(given, text)
    if of_formats:
        from kafka_sink.options.parse_formats import check_format_option

        check_format_option(*of_formats.popitem())
    if of_envelope:
        from kafka_sink.options.parse_envelope import check_envelope_option

        check_envelope_option(*of_envelope.popitem())


def _divide(settings: Mapping[str, str]) -> tuple[dict[str, str], ...]:
    """Of the sink itself, of the producer, of formats, of headers: each without its prefix, and in lower case but for
    the first."""
    parts: tuple[dict[str, str], ...] = ({}, {}, {}, {})
    own, of_producer, of_formats, of_envelope = parts
    for given, value in settings.items():
        name = given.lower()
        if name.startswith(PREFIX):
            of_producer[name.removeprefix(PREFIX)] = value
        elif is_format_option(name):
            of_formats[name] = value
        elif is_envelope_option(name):
            of_envelope[name] = value
        else:
            own[given] = value
    return parts


def _parse_producer_options(of_producer: Mapping[str, str]) -> ProducerOptions:
    named = set(map(canonical_name, of_producer))
    defaults = {name: value for name, value in PRODUCER_DEFAULTS.items() if name not in named}
    if "delivery.timeout.ms" in named:
        # It may leave no room for more than Java's linger.ms.
        defaults.pop("linger.ms", None)
    return parse_for_edge(parse_producer_options, {**defaults, **of_producer}, _explain_prefix)


def _explain_prefix(text: str) -> str:
    text = f"{text} (these are producer options: in Spark each has the prefix {PREFIX})"
    if "partitioner" in text:
        text += f"\n(a partitioner of your own is named as {PREFIX}partitioner.class=module:function)"
    return text


def _drop_unsupported(of_producer: dict[str, str], draft: Draft) -> None:
    for name in list(of_producer):
        option = OPTIONS.get(canonical_name(name))
        if option is None and (name in _SINK.options or is_format_option(name) or is_envelope_option(name)):
            del of_producer[name]
            text = f"{PREFIX}{name} is no producer option: did you mean {name}, without {PREFIX}?"
            draft.found.append(ConfigError(text, OPTION_UNKNOWN))
        elif option is not None and option.in_sink and of_producer[name].strip():
            del of_producer[name]
            text = f"{PREFIX}{name} is not supported: {option.in_sink}"
            draft.found.append(ConfigError(text, OPTION_NOT_SUPPORTED))


def _take_partitioner(of_producer: dict[str, str]) -> str | None:
    """`module:function` is a user function; anything else is left to the producer's rule."""
    named = [name for name in of_producer if canonical_name(name) == "partitioner.class"]
    if not any(":" in of_producer[name] for name in named):
        return None
    if len({of_producer[name] for name in named}) > 1:
        raise two_values_error(*(f"{PREFIX}{name}" for name in named))
    functions: list[str] = [FUNCTION_NAME.parse(f"{PREFIX}{name}", of_producer.pop(name)) for name in named]
    return functions[0]


def _make_telemetry_options(draft: Draft) -> TelemetryOptions | None:
    """None if no option enables metrics or lineage."""
    if not any(map(draft.meets, (METRICS_ENABLED, *RECEIVERS))):
        return None
    return TelemetryOptions(**fill(TelemetryOptions, SINK_OPTIONS, draft, "metrics_"))


def _make_change_options(draft: Draft) -> ChangeOptions | None:
    values = draft.values
    if values["envelope"] is None:
        return None
    return ChangeOptions(values["envelope"], values["operation.column"], values["before.column"])


def _explain_unknown(given: str) -> ConfigError:
    name = given.lower()
    if name in SOURCE_OPTIONS:
        text = f"{given} is an option of Kafka as a source: leave it out of the sink"
    elif name == "path":
        text = "a path means nothing to this sink: call save() or start() without it and set the option topic"
    elif name in WRITER_METHODS:
        text = f"{given!r} is not an option of this sink: call .{WRITER_METHODS[name]}(...) of the writer instead"
    elif canonical_name(name) in OPTIONS:
        text = f"{given!r} is not an option of this sink: did you mean {PREFIX}{name}?"
    else:
        own = [known for known in SINK_OPTIONS if "NAME" not in known]
        hint = suggest_name(name, [*own, *FORMAT_NAMES, *(PREFIX + each for each in OPTIONS)])
        hint = hint or suggest_name(name, OPTIONS, prefix=PREFIX)
        hint = hint or f"; options of the Kafka producer have the prefix {PREFIX}"
        text = f"{given!r} is not an option of this sink{hint}"
    return ConfigError(text, OPTION_UNKNOWN)


_SINK = Table({**SINK_OPTIONS, **SPARK_OPTIONS}, _explain_unknown, ignores_case=True)


# ---- rules over several options -------------------------------------------------------------------------------------


def check_ledger_topic(draft: Draft, settings: Mapping[str, str]) -> None:
    values = draft.values
    for name in ("topic", "dead.letter.topic"):
        if values[name] == DEFAULT_LEDGER:
            raise ConfigError(
                f"{name}={DEFAULT_LEDGER} is where sinks keep their decisions: rows there could be taken for them",
                OPTIONS_CONTRADICT,
            )
        is_exactly_once = values["delivery.guarantee"] == EXACTLY_ONCE
        if is_exactly_once and values[name] is not None and values[name] == values["ledger.topic"]:
            raise ConfigError(
                f"{name} and ledger.topic are the same: rows in a ledger could be taken for decisions",
                OPTIONS_CONTRADICT,
            )


def check_manifest_topic(draft: Draft, settings: Mapping[str, str]) -> None:
    values = draft.values
    for name in ("topic", "dead.letter.topic", "ledger.topic"):
        if values["manifest.topic"] is not None and values["manifest.topic"] == values[name]:
            raise ConfigError(
                f"manifest.topic and {name} are the same: manifests need a topic of their own", OPTIONS_CONTRADICT
            )


def check_dead_letters(draft: Draft, settings: Mapping[str, str]) -> None:
    topic = draft.values["dead.letter.topic"]
    if draft.values["record.errors"] != DEAD_LETTER:
        return
    if topic is None:
        raise missing_error(f"record.errors={DEAD_LETTER} needs the option dead.letter.topic")
    if topic == draft.values["topic"]:
        raise ConfigError(
            "dead.letter.topic and topic are the same: rows that cannot be sent need a topic of their own",
            OPTIONS_CONTRADICT,
        )


def check_topic_creation(draft: Draft, settings: Mapping[str, str]) -> None:
    if draft.values["topic.create"]:
        if draft.values["topic"] is None:
            text = "topic.create=true needs the option topic: which topics a column names is known to tasks"
            raise ConfigError(text, TOPIC_OPTION)
        return
    named = {name.lower() for name in settings}
    of_creation: tuple[str, ...] = ("topic.partitions", "topic.replication.factor")
    idle = [name for name in of_creation if name in named]
    idle += [f"{TOPIC_CONFIG}{name}" for name in draft.values[f"{TOPIC_CONFIG}NAME"]]
    if idle:
        raise ConfigError(f"{', '.join(idle)}: set topic.create=true, or leave it out", TOPIC_OPTION)


def check_ledger_config(draft: Draft, settings: Mapping[str, str]) -> None:
    """A ledger with another policy would be refused, too, but only by the next process that plans a write."""
    policy = draft.values[f"{LEDGER_CONFIG}NAME"].get(_POLICY, _COMPACT)
    if policy != _COMPACT:
        raise invalid_value_error(f"{LEDGER_CONFIG}{_POLICY}", policy, f"{_COMPACT}: any other one deletes decisions")


def check_lineage_key(draft: Draft, settings: Mapping[str, str]) -> None:
    url = draft.values["lineage.url"]
    has_key = draft.values["lineage.api.key.file"] is not None
    if has_key and url is not None and not url.startswith("https:") and not is_url_of_this_host(url):
        raise ConfigError("lineage.api.key.file needs a lineage.url with https://: a key is sent there", TELLING_OPTION)


def note_out_of_scope(draft: Draft, settings: Mapping[str, str]) -> None:
    given = {name.lower() for name in settings}
    idle = sorted(name for name in out_of_scope(SINK_OPTIONS, draft) if name in given)
    if idle and draft.values["delivery.guarantee"] == AT_LEAST_ONCE:
        draft.notices.append(
            f"without effect with delivery.guarantee={AT_LEAST_ONCE}: {', '.join(idle)}. There is no ledger, so a "
            "batch that is written again has its rows twice"
        )


def check_spellings(draft: Draft, settings: Mapping[str, str]) -> None:
    """Spark passes each name once, in lower case; a mapping given to a function may have it twice. Those of the sink
    itself are compared where they are read."""
    own = _divide(settings)[0]
    first: dict[str, str] = {}
    for given, value in settings.items():
        other = first.setdefault(given.lower(), given)
        if given not in own and settings[other] != value:
            raise two_values_error(other, given)


RULES: tuple[Callable[[Draft, Mapping[str, str]], None], ...] = (
    check_ledger_topic, check_manifest_topic, check_dead_letters, check_topic_creation, check_ledger_config,
    check_lineage_key, check_spellings, note_out_of_scope,
)  # fmt: skip


def check_exactly_once(draft: Draft, producer: ProducerOptions) -> None:
    if draft.values["delivery.guarantee"] != EXACTLY_ONCE:
        return
    way_out = f"or choose delivery.guarantee={AT_LEAST_ONCE}"
    if not producer.enable_idempotence:
        raise ConfigError(
            f"delivery.guarantee={EXACTLY_ONCE} needs {PREFIX}enable.idempotence=true, {PREFIX}acks=all and "
            f"{PREFIX}retries above 0: leave them at their defaults, {way_out}",
            OPTIONS_CONTRADICT,
        )
    if draft.values["asyncprogresstrackingenabled"].strip().lower() == "true":
        raise ConfigError(
            f"delivery.guarantee={EXACTLY_ONCE} is not possible with asyncProgressTrackingEnabled=true: Spark then "
            f"forgets which batches it has run. Leave it off, {way_out}",
            OPTION_NOT_SUPPORTED,
        )


def check_changes(draft: Draft, value_format: str | None, envelope: EnvelopeOptions | None) -> None:
    chosen = draft.values["envelope"]
    if chosen == DEBEZIUM and value_format not in ENCODED:
        raise missing_error(
            f"envelope={DEBEZIUM} needs value.format: {', '.join(sorted(ENCODED))}. It puts the row into a record of "
            "its own"
        )
    if chosen is not None and envelope is not None and envelope.mode == STRUCTURED_MODE:
        raise ConfigError(
            f"envelope={chosen} and cloudevents={STRUCTURED_MODE} are both set, and in a CloudEvent of that mode a "
            "delete would be no tombstone: use cloudevents=binary, or leave one out",
            OPTIONS_CONTRADICT,
        )
    has_digests = envelope is not None and envelope.row_id_header is not None and envelope.row_id_column is None
    if chosen is not None and has_digests:
        raise ConfigError(
            f"envelope={chosen} and row.id.header need row.id.column: without it equal changes have one id, such as "
            "two deletes of a key, and readers that drop repeated ids lose the second one. Name a column that names "
            "the change, not the row: for example version, operation and key",
            OPTIONS_CONTRADICT,
        )
