"""The topics: do they exist, are they safe, and do rows of this job fit?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kafka_sink.commit.admin.client import Client, new_topic_row, topic_query, topic_row
from kafka_sink.commit.admin.configs import number_of
from kafka_sink.commit.admin.ledger_topic import IN_SYNC, MESSAGE_BYTES, REPLICAS_WANTED
from kafka_sink.commit.admin.topics import TopicState, differences, topic_state
from kafka_sink.commit.ledger_policy import CLEANUP, alter_command
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.ask import Controller, Repeat
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.apis import CREATE_TOPICS, METADATA
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.transactions import settings_of
from kafka_sink.options.sink_options import TopicPlan

ALL = -1
_LOOKED_AT = (IN_SYNC, MESSAGE_BYTES, CLEANUP)
_AUTO_CREATE = "auto.create.topics.enable"


def topics(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    if job.options.topic is None:
        text = "no option topic: the column topic decides, row by row"
        yield ok("topic", text, "name one of the topics with --topic to have it looked at")
    for topic in job.topics:
        yield from topic_findings(job, client, topic)


def topic_findings(job: CheckedJob, client: Client, topic: str) -> Iterator[ProbeResult]:
    plan = plan_of(job, topic)
    wanted = dict(plan.configs) if plan is not None else {}
    state = topic_state(client, topic, [*_LOOKED_AT, *wanted])
    if state is None:
        yield from _missing(job, client, topic)
        return
    brokers = len(client.ask_metadata(topic_query(topic))["brokers"])
    yield from replica_findings(job, topic, state, brokers)
    if state.configs is None:
        text = f"the configuration of {topic} is not told"
        advice = f"grant DescribeConfigs on topic {topic}: {IN_SYNC} and {MESSAGE_BYTES} are not compared without it"
        yield warn("topic", text, advice)
    else:
        yield from size_findings(job, topic, state.configs)
        is_compacted = "compact" in (state.configs.get(CLEANUP) or "")
        if is_compacted and job.schema is not None and "key" not in job.schema.names:
            text = f"{topic} is compacted and the DataFrame has no column key: every row is refused"
            yield fail("columns", text, f"add a column key, or set {CLEANUP}=delete")
    if plan is not None:
        found = "; ".join(differences(state, plan))
        if found:
            advice = "change the topic, or the options topic.*: an existing topic is left as it is"
            yield warn("topic", f"{topic} differs from what topic.create would make: {found}", advice)


def plan_of(job: CheckedJob, topic: str) -> TopicPlan | None:
    plan = job.options.topic_plan
    return plan if plan is None or topic == job.options.topic else replace(plan, configs=())


def replica_findings(job: CheckedJob, topic: str, state: TopicState, brokers: int) -> Iterator[ProbeResult]:
    headless = [index for index, leader in enumerate(state.leaders) if leader == -1]
    if headless:
        text = f"{topic} has no leader for partition {', '.join(map(str, headless))}"
        yield fail("topic", text, "start the brokers that hold its replicas")
    replicas, least = state.replication_factor, number_of(state.configs, IN_SYNC)
    in_sync = min((len(each) for each in state.in_sync), default=0)
    text = f"{topic}: partitions={len(state.replicas)}, replicas={replicas}"
    yield ok("topic", text + (f", {IN_SYNC}={least}" if least is not None else ""))
    if replicas < min(REPLICAS_WANTED, brokers):
        text = f"{topic} has {replicas} replica{'s' if replicas > 1 else ''}, and there are {brokers} brokers"
        advice = "rows are lost with a broker's disk: give it three with kafka-reassign-partitions"
        yield warn("replicas", text, advice)
    if least is None or headless or job.options.producer.acks != ALL:
        return  # brokers compare the two only if all replicas in sync have to acknowledge
    if in_sync < least:
        text = f"{topic} has a partition with {in_sync} replicas in sync, and {IN_SYNC}={least}: no row is accepted"
        yield fail(
            "replicas", text, f"start the brokers that are down, or {alter_command(topic, IN_SYNC, max(1, in_sync))}"
        )
    elif replicas >= REPLICAS_WANTED and least < 2:
        text = f"{topic} has {IN_SYNC}={least}: a row may be acknowledged by one broker alone"
        yield warn("replicas", text, alter_command(topic, IN_SYNC, 2))
    elif 1 < replicas == least:
        text = f"{topic} has {replicas} replicas and {IN_SYNC}={least}: with one broker down no row is accepted"
        yield warn("replicas", text, alter_command(topic, IN_SYNC, least - 1))


def size_findings(job: CheckedJob, topic: str, configs: Mapping[str, str | None]) -> Iterator[ProbeResult]:
    largest, producer = number_of(configs, MESSAGE_BYTES), job.options.producer
    if largest is None:
        return
    raise_it = f"raise {MESSAGE_BYTES} of {topic}"
    if producer.batch_size > largest:
        text = f"{topic} has {MESSAGE_BYTES}={largest}, below batch.size={producer.batch_size}: full batches are "
        text = f"{text}refused, and sent again in pieces"
        advice = f"set kafka.batch.size={largest // 2}, or {raise_it}"
        yield warn("sizes", text, advice)
    # The difference is the batch header: Kafka's defaults differ by this much.
    elif producer.max_request_size > largest + 1024:
        text = f"{topic} has {MESSAGE_BYTES}={largest}, below max.request.size={producer.max_request_size}: a row "
        text = f"{text}between the two is refused by the broker, and its write fails"
        advice = f"set kafka.max.request.size={largest}, or {raise_it}"
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
            advice = "change the options topic.*, or grant Create on the topic"
            yield fail("topic", text, advice)
        return
    creates = (client.broker_configs([_AUTO_CREATE]) or {}).get(_AUTO_CREATE)
    commands = settings_of(job, client).commands
    advice = f"`{commands.create_topic(topic)}`, or set topic.create=true{commands.hint}"
    if creates == "true" and job.options.producer.allow_auto_create_topics:
        yield warn("topic", f"{topic} is not there; brokers make it on demand, with their defaults", advice)
    else:
        yield fail("topic", f"{topic} is not there", advice)


def creation_trouble(client: Client, topic: str, plan: TopicPlan) -> str | None:
    """Sends a validate-only request: permission, configuration and replicas are checked, nothing is created."""
    body = {
        "topics": [new_topic_row(topic, plan)],
        "timeout_ms": client.options.request_timeout_ms,
        "validate_only": True,
    }
    try:
        (answer,) = client.ask(Controller(), CREATE_TOPICS, body, repeat=Repeat.ALWAYS)["topics"]
    except KafkaSinkError as error:
        return str(error)
    return describe(answer["error_code"], answer["error_message"]) if answer["error_code"] else None


def metadata_of(client: Client, topic: str) -> Mapping[str, Any]:
    """Includes the client's authorized operations."""
    body = {**topic_query(topic), "include_topic_authorized_operations": True}
    return topic_row(METADATA, client.ask_metadata(body), topic)
