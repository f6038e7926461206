"""`pykafka-sink topic`: shows a topic, or creates it as `topic.create` of a job would, after showing the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from kafka_sink.admin.client import Client
from kafka_sink.admin.topics import TopicState, create_where_missing, topic_state
from kafka_sink.cli.brokers import producer_options, unique_options
from kafka_sink.cli.report import DONE, OPEN, Report, confirm, table
from kafka_sink.error_table.brokers import TOPIC_UNKNOWN
from kafka_sink.error_table.commits import COMMAND_WRONG
from kafka_sink.errors import ConfigError
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.options.values import TOPIC_NAME


class TopicSession:
    def __init__(self, given: argparse.Namespace) -> None:
        self.topic = TOPIC_NAME.parse("--topic", given.topic)
        configs = tuple(sorted(unique_options(given.config, "--config").items()))
        self.plan = TopicPlan(given.partitions, given.replication_factor, configs)
        if not given.create and self.plan != TopicPlan():
            raise ConfigError(
                "--partitions, --replication-factor and --config are about a topic to --create", COMMAND_WRONG
            )
        self.client = Client(producer_options(given))

    def close(self) -> None:
        self.client.close()


def topic(session: TopicSession, given: argparse.Namespace) -> Report:
    session.client.reach()
    state = topic_state(session.client, session.topic, None)
    if not given.create:
        if state is None:
            text = f"there is no topic {session.topic}"
            return Report(OPEN, {"topic": session.topic, "exists": False}, [text])
        return _topic_report(session, state, [])
    if state is None:
        confirm(given, [f"will be created: topic {session.topic}", *_plan_lines(session.plan)])
    differing = create_where_missing(session.client, session.topic, session.plan)
    found = topic_state(session.client, session.topic, None)
    if found is None:
        raise ConfigError(f"topic {session.topic} was deleted while it was looked at", TOPIC_UNKNOWN)
    if differing is None:
        return _topic_report(session, found, [f"created topic {session.topic}"])
    notes = [f"was there before, and stays as it is: {one}" for one in differing]
    return _topic_report(session, found, notes, OPEN if notes else DONE)


def _plan_lines(plan: TopicPlan) -> Iterator[str]:
    default = "as many as the brokers' default"
    yield f"  partitions: {plan.partitions if plan.partitions != -1 else default}"
    yield f"  replicas:   {plan.replication_factor if plan.replication_factor != -1 else default}"
    yield from (f"  {name}={value}" for name, value in plan.configs)


def _topic_report(session: TopicSession, state: TopicState, notes: list[str], exit_code: int = DONE) -> Report:
    partitions = [
        {
            "partition": index,
            "leader": leader,
            "replicas": list(state.replicas[index]),
            "in_sync": list(state.in_sync[index]),
        }
        for index, leader in enumerate(state.leaders)
    ]
    configs = None if state.configs is None else dict(sorted(state.configs.items()))
    content = {"topic": session.topic, "exists": True, "partitions": partitions, "configs": configs, "notes": notes}
    rows = [
        (index, leader, " ".join(map(str, state.replicas[index])), " ".join(map(str, state.in_sync[index])))
        for index, leader in enumerate(state.leaders)
    ]
    told = [f"{name}={value}" for name, value in (configs or {}).items()]
    if configs is None:
        told = ["the configuration is not told: DescribeConfigs on the topic is missing"]
    lines = [*notes, *table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC"), rows), "", *told]
    return Report(exit_code, content, lines)
