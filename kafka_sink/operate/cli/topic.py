"""`pykafka-sink topic`: shows a topic and its newest records, or creates it as `topic.create` of a job would, after
showing the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.admin.topics import TopicState, create_where_missing, topic_state
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.formats.records.scalar import Record
from kafka_sink.operate.cli.brokers import producer_options, unique_options
from kafka_sink.operate.cli.report import DONE, OPEN, Report, confirm, table
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.options.values import TOPIC_NAME

# Of a key or value in the table; --json has all of it.
TEXT_CHARACTERS_MAX = 200


def topic(given: argparse.Namespace) -> Report:
    name = TOPIC_NAME.parse("--topic", given.topic)
    configs = tuple(sorted(unique_options(given.config, "--config").items()))
    plan = TopicPlan(given.partitions, given.replication_factor, configs)
    if not given.create and plan != TopicPlan():
        raise ConfigError(
            "--partitions, --replication-factor and --config are about a topic to --create", COMMAND_WRONG
        )
    with Client(producer_options(given)) as client:
        client.reach()
        state = topic_state(client, name, None)
        if not given.create:
            if state is None:
                return Report(OPEN, {"topic": name, "exists": False}, [f"there is no topic {name}: --create makes it"])
            records = _newest_records(client, name, len(state.leaders), given.records) if given.records else None
            return _topic_report(name, state, [], records=records)
        if state is None:
            confirm(given, [f"will be created: topic {name}", *_plan_lines(plan)])
        differing = create_where_missing(client, name, plan).differences
        found = topic_state(client, name, None)
    if found is None:
        raise ConfigError(f"topic {name} was deleted while it was looked at", TOPIC_UNKNOWN)
    if differing is None:
        return _topic_report(name, found, [f"created topic {name}"])
    notes = [f"was there before, and stays as it is: {one}" for one in differing]
    return _topic_report(name, found, notes, OPEN if notes else DONE)


def _plan_lines(plan: TopicPlan) -> Iterator[str]:
    default = "as many as the brokers' default"
    yield f"  partitions: {plan.partitions if plan.partitions != -1 else default}"
    yield f"  replicas:   {plan.replication_factor if plan.replication_factor != -1 else default}"
    yield from (f"  {name}={value}" for name, value in plan.configs)


def _newest_records(client: Client, name: str, partitions: int, count: int) -> list[dict[str, Any]]:
    """Of each partition the last ones that read_committed readers see."""
    found: list[dict[str, Any]] = []
    for partition in range(partitions):
        reader = PartitionReader(client, name, partition, client.options.max_block_ms)
        _, end = reader.extent()
        found += [_record_object(partition, offset, record) for offset, record in reader.newest(count, end)]
    return found


def _record_object(partition: int, offset: int, record: Record) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _text_of(record.key),
        "value": _text_of(record.value),
        "headers": [[name, _text_of(value)] for name, value in record.headers],
    }


def _text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _shown_text(text: str | None) -> str:
    if text is None:
        return "null"
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[:TEXT_CHARACTERS_MAX]}..."


def _topic_report(
    name: str,
    state: TopicState,
    notes: list[str],
    exit_code: int = DONE,
    records: Sequence[dict[str, Any]] | None = None,
) -> Report:
    partitions: list[dict[str, Any]] = [
        {
            "partition": index,
            "leader": leader,
            "replicas": list(state.replicas[index]),
            "in_sync": list(state.in_sync[index]),
        }
        for index, leader in enumerate(state.leaders)
    ]
    configs = None if state.configs is None else dict(sorted(state.configs.items()))
    content = {
        "topic": name,
        "exists": True,
        "partitions": partitions,
        "configs": configs,
        "notes": notes,
        "records": list(records or ()),
    }
    rows = [
        (each["partition"], each["leader"], *(" ".join(map(str, each[name])) for name in ("replicas", "in_sync")))
        for each in partitions
    ]
    told = [f"{key}={value}" for key, value in (configs or {}).items()]
    if configs is None:
        told = ["the configuration is not told: DescribeConfigs on the topic is missing"]
    lines = [*notes, *table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC"), rows), "", *told]
    if records:
        shown = [
            (each["partition"], each["offset"], *(_shown_text(each[name]) for name in ("key", "value")))
            for each in records
        ]
        lines += ["", *table(("PARTITION", "OFFSET", "KEY", "VALUE"), shown)]
    elif records is not None:
        lines += ["", "no records that read_committed readers see"]
    return Report(exit_code, content, lines)
