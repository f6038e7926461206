"""The topics: do they exist, are they safe, and do rows of this job fit?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches

from kafka_sink.commit.admin.client import Client, new_topic_row
from kafka_sink.commit.admin.configs import number_of
from kafka_sink.commit.admin.ledger_topic import IN_SYNC, UNCLEAN
from kafka_sink.commit.admin.topics import LOG_APPEND_TIME, TIMESTAMP_TYPE, TopicState, differences, topic_state
from kafka_sink.commit.ledger_policy import CLEANUP, MESSAGE_BYTES
from kafka_sink.errors import BrokerError, KafkaSinkError
from kafka_sink.kafka.client.ask import Controller, Repeat
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.apis import CREATE_TOPICS
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.kafka_tools import tools_for
from kafka_sink.operate.checks.replicas import (
    Replicated,
    disk_findings,
    in_sync_findings,
    leader_findings,
    live_brokers,
    lone_findings,
)
from kafka_sink.operate.checks.transactions import commands_of
from kafka_sink.options.sink_options import TopicPlan

ALL = -1
_RETENTION, _FOR_EVER = "retention.ms", "-1"
_LOOKED_AT = (IN_SYNC, MESSAGE_BYTES, CLEANUP, UNCLEAN, TIMESTAMP_TYPE, _RETENTION)
# Of a likely misspelling; the usual limit of 0.6 also gives other names.
_NEAR = 0.8
_AUTO_CREATE = "auto.create.topics.enable"


def topics(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    if job.options.topic is None:
        yield _topics_of_rows(job, client)
    for topic in job.topics:
        yield from topic_findings(job, client, topic)
    if job.options.manifest_topic is not None and job.is_exactly_once(client):
        yield from _manifest_findings(job, client, job.options.manifest_topic)


def _manifest_findings(job: CheckedJob, client: Client, topic: str) -> Iterator[ProbeResult]:
    state = topic_state(client, topic, [CLEANUP])
    if state is None:
        commands = commands_of(job)
        advice = f"`{commands.create_topic(topic)}`{commands.hint}"
        yield fail("topic", f"manifest.topic={topic} is not there: no batch can be planned", advice)
    elif "compact" in ((state.configs or {}).get(CLEANUP) or "") and job.options.batch_id is None:
        text = f"manifest.topic={topic} is compacted, and all manifests of a stream have one key: only the newest stays"
        yield warn("topic", text, tools_for(job.options.producer).alter_topic(topic, CLEANUP, "delete"))


def _topics_of_rows(job: CheckedJob, client: Client) -> ProbeResult:
    text = "no option topic: the column topic decides, row by row"
    if _are_made_on_demand(job, client):
        text = f"{text}, and brokers make each topic that is missing: a mistyped name goes to a new topic, unnoticed"
        return warn("topic", text, f"set kafka.allow.auto.create.topics=false, or {_AUTO_CREATE}=false on the brokers")
    return ok("topic", text, "name one of the topics with --topic to have it looked at")


def topic_findings(job: CheckedJob, client: Client, topic: str) -> Iterator[ProbeResult]:
    plan = plan_of(job, topic)
    wanted = dict(plan.configs) if plan is not None else {}
    state = topic_state(client, topic, [*_LOOKED_AT, *wanted])
    if state is None:
        yield from _missing(job, client, topic)
        return
    yield from replica_findings(job, topic, state, live_brokers(client))
    if state.configs is None:
        text = f"the configuration of {topic} is not told"
        advice = f"grant DescribeConfigs on topic {topic}: {IN_SYNC} and {MESSAGE_BYTES} are not compared without it"
        yield warn("topic", text, advice)
    else:
        yield from size_findings(job, topic, state.configs)
        if "compact" in (state.configs.get(CLEANUP) or ""):
            yield from _key_findings(job, topic)
        if topic == job.options.dead_letter_topic:
            yield from _letter_findings(job, topic, state.configs)
    if plan is not None:
        found = "; ".join(differences(state, plan))
        if found:
            advice = "change the topic, or the options topic.*: an existing topic is left as it is"
            yield warn("topic", f"{topic} differs from what topic.create would make: {found}", advice)


def _key_findings(job: CheckedJob, topic: str) -> Iterator[ProbeResult]:
    """Of a compacted topic. A key of several columns is a record, and never null."""
    formats = job.options.formats
    if job.schema is None or (formats is not None and formats.key is not None and formats.key.columns):
        return
    key = next((field for field in job.schema.fields if field.name == "key"), None)
    if key is None:
        text = f"{topic} is compacted and the DataFrame has no column key: every row is refused"
        delete = tools_for(job.options.producer).alter_topic(topic, CLEANUP, "delete")
        yield fail("columns", text, f"add a column key, or {delete}")
    elif key.nullable:
        text = f"{topic} is compacted and the column key may be null: brokers refuse the batch of such a row"
        nothing = "b''" if key.dataType.typeName() == "binary" else "''"
        advice = "drop such rows, and let the schema say so: df = df.where('key IS NOT NULL').withColumn('key', "
        yield warn("columns", text, f"{advice}F.coalesce('key', F.lit({nothing})))")


def _letter_findings(job: CheckedJob, topic: str, configs: Mapping[str, str | None]) -> Iterator[ProbeResult]:
    """A letter has the time of its row."""
    has_row_times = job.schema is None or "timestamp" in job.schema.names
    is_deleted_from = "delete" in (configs.get(CLEANUP) or "") and configs.get(_RETENTION) != _FOR_EVER
    if has_row_times and is_deleted_from and configs.get(TIMESTAMP_TYPE) != LOG_APPEND_TIME:
        text = f"{topic} deletes dead letters by the times of their rows: those of rows that are older than "
        text = f"{text}{_RETENTION}={configs.get(_RETENTION)} are gone within minutes"
        yield warn("topic", text, tools_for(job.options.producer).alter_topic(topic, TIMESTAMP_TYPE, LOG_APPEND_TIME))


def plan_of(job: CheckedJob, topic: str) -> TopicPlan | None:
    plan = job.options.topic_plan
    return plan if plan is None or topic == job.options.topic else replace(plan, configs=())


def replica_findings(job: CheckedJob, topic: str, state: TopicState, brokers: tuple[int, ...]) -> Iterator[ProbeResult]:
    tools = tools_for(job.options.producer)
    it = Replicated(topic, state, brokers, tools, "replicas", "no row is accepted", "rows are lost")
    yield from leader_findings(replace(it, line="topic"))
    text = f"{topic}: partitions={len(state.replicas)}, replicas={state.replication_factor}"
    yield ok("topic", text + (f", {IN_SYNC}={it.least}" if it.least is not None else ""))
    yield from disk_findings(it)
    if job.options.producer.acks == ALL:
        yield from in_sync_findings(it)
        yield from lone_findings(it)


def size_findings(job: CheckedJob, topic: str, configs: Mapping[str, str | None]) -> Iterator[ProbeResult]:
    largest, producer = number_of(configs, MESSAGE_BYTES), job.options.producer
    if largest is None:
        return
    tools = tools_for(job.options.producer)
    if producer.batch_size > largest:
        text = f"{topic} has {MESSAGE_BYTES}={largest}, below batch.size={producer.batch_size}: full batches are "
        text = f"{text}refused, and sent again in pieces"
        advice = f"set kafka.batch.size={largest // 2}, or {tools.alter_topic(topic, MESSAGE_BYTES, 1048588)}"
        yield warn("sizes", text, advice)
    elif producer.max_request_size > largest:
        text = f"{topic} has {MESSAGE_BYTES}={largest}, below max.request.size={producer.max_request_size}: a row "
        text = f"{text}between the two is refused by the broker, and its write fails"
        raised = tools.alter_topic(topic, MESSAGE_BYTES, producer.max_request_size)
        advice = f"set kafka.max.request.size={largest}, or {raised}"
        yield warn("sizes", text, advice)
    else:
        text = f"batch.size={producer.batch_size} and max.request.size={producer.max_request_size} fit {MESSAGE_BYTES}"
        yield ok("sizes", f"{text}={largest} of {topic}")


def _missing(job: CheckedJob, client: Client, topic: str) -> Iterator[ProbeResult]:
    plan = plan_of(job, topic)
    if plan is not None:
        trouble = creation_trouble(client, topic, plan)
        if trouble is None:
            yield ok("topic", f"{topic} is not there; topic.create=true makes it, and the brokers agree")
        else:
            text = f"{topic} is not there, and cannot be made: {trouble}"
            advice = (
                f"set topic.replication.factor to at most {len(live_brokers(client))}, the number of brokers; look "
            )
            advice += f"at the other options topic.*; or grant Create on topic {topic}"
            yield fail("topic", text, advice)
        return
    commands = commands_of(job)
    advice = f"`{commands.create_topic(topic)}`, or set topic.create=true{commands.hint}"
    near = _near_names(client, topic)
    text = f"{topic} is not there{f' (is {near} meant?)' if near else ''}"
    if not _are_made_on_demand(job, client):
        yield fail("topic", text, advice)
        return
    trouble = creation_trouble(client, topic, TopicPlan(-1, -1, ()))
    if trouble is not None:
        yield fail("topic", f"{text}, and brokers cannot make it with their defaults: {trouble}", advice)
        return
    text = f"{text}; brokers make it on demand, with their defaults: a mistyped name would be made, too, unnoticed"
    yield warn("topic", text, f"{advice}; with kafka.allow.auto.create.topics=false a missing topic is an error")


def _are_made_on_demand(job: CheckedJob, client: Client) -> bool:
    if not job.options.producer.allow_auto_create_topics:
        return False
    return (client.broker_configs([_AUTO_CREATE]) or {}).get(_AUTO_CREATE) == "true"


def _near_names(client: Client, topic: str) -> str:
    """Existing topics whose name is nearly this one. Only an addition: a large cluster may take too long to tell."""
    try:
        rows = client.ask_metadata({"topics": None, "allow_auto_topic_creation": False})["topics"]
    except KafkaSinkError:
        return ""
    return " or ".join(get_close_matches(topic, [row["name"] for row in rows], n=2, cutoff=_NEAR))


def creation_trouble(client: Client, topic: str, plan: TopicPlan) -> KafkaSinkError | None:
    """Sends a validate-only request: permission, configuration and replicas are checked, nothing is created."""
    body = {
        "topics": [new_topic_row(topic, plan)],
        "timeout_ms": client.options.request_timeout_ms,
        "validate_only": True,
    }
    try:
        (answer,) = client.ask(Controller(), CREATE_TOPICS, body, repeat=Repeat.ALWAYS)["topics"]
    except KafkaSinkError as error:
        return error
    error_code, text = answer["error_code"], answer["error_message"]
    return BrokerError(describe(error_code, text), code=error_code) if error_code else None
