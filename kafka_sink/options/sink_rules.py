"""Rules over several options of the sink, each a function; `needs` in the rows of `sink_table.py` has the simple ones.

`settings` are as the user gave them, without the values of a preset: those cause neither notices nor refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_NOT_SUPPORTED, OPTIONS_CONTRADICT, TELLING_OPTION, TOPIC_OPTION
from kafka_sink.options.engine import Draft, out_of_scope
from kafka_sink.options.presets import PREFIX
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.sink_options import AT_LEAST_ONCE, DEAD_LETTER, DEFAULT_LEDGER, EXACTLY_ONCE
from kafka_sink.options.sink_table import LEDGER_CONFIG, SINK_OPTIONS, TOPIC_CONFIG
from kafka_sink.options.values import invalid_value_error, missing_error
from kafka_sink.security.this_host import is_url_of_this_host

_POLICY, _COMPACT = "cleanup.policy", "compact"


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


RULES: tuple[Callable[[Draft, Mapping[str, str]], None], ...] = (
    check_ledger_topic, check_dead_letters, check_topic_creation, check_ledger_config, check_lineage_key,
    note_out_of_scope,
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
