"""Topics by plan: created if missing, compared if they exist.

Assumed of brokers: Metadata tells whether a topic exists, even without permission to read its configuration; each
broker answers from its own metadata, and learns of a new topic a little later than the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafka_sink.commit.admin.asking import Bodies
from kafka_sink.commit.admin.client import Client, topic_query, topic_row
from kafka_sink.commit.admin.configs import found_or_raise
from kafka_sink.errors import AuthorizationError, BrokerError, ConfigError, KafkaSinkError, OperationTimeout
from kafka_sink.errors.table.brokers import TOPIC_NOT_CREATED, TOPIC_NOT_EVERYWHERE
from kafka_sink.kafka.client.ask import AllBrokers, Repeat
from kafka_sink.kafka.client.cluster import NO_TOPIC_ID
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.apis import METADATA
from kafka_sink.kafka.wire.codes import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    LEADER_NOT_AVAILABLE,
    POLICY_VIOLATION,
    REPLICA_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafka_sink.options.sink_options import TopicPlan

# Errors of a topic that is being created, or whose leaders are being elected.
UNSETTLED = (LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE)
LOOK_AGAIN_MS = 20
# Refused because of the request, not because of the brokers' state.
INVALID = frozenset({INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG, POLICY_VIOLATION})
# Kafka's AclOperation codes, bit positions of a topic's authorized operations; and the number for operations not told.
READ, WRITE = 3, 4
NOT_TOLD = -(1 << 31)
TIMESTAMP_TYPE, LOG_APPEND_TIME = "message.timestamp.type", "LogAppendTime"
# A dead letter has the time of its row. Retention goes by the time that readers see: letters of rows that are older
# would be deleted within minutes. The row's own time stays in the record, and a replay restores it.
LETTER_CONFIGS = ((TIMESTAMP_TYPE, LOG_APPEND_TIME),)
# What coordinators remember of transactions.
TRANSACTION_LOG = "__transaction_state"


class TopicState(NamedTuple):
    """A topic as known to one broker. `configs` None: not returned."""

    replicas: tuple[tuple[int, ...], ...]
    in_sync: tuple[tuple[int, ...], ...]
    leaders: tuple[int, ...]
    configs: Mapping[str, str | None] | None
    topic_id: bytes

    @property
    def replication_factor(self) -> int:
        """The smallest, while replicas are being moved."""
        return min((len(each) for each in self.replicas), default=0)


def topic_state(client: Client, name: str, configs: Iterable[str] | None = ()) -> TopicState | None:
    """None: there is no such topic. `configs`: the names to read; None means all."""
    row = topic_row(METADATA, client.ask_metadata(topic_query(name)), name)
    if row["error_code"] == UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if row["error_code"] == TOPIC_AUTHORIZATION_FAILED:
        raise AuthorizationError(
            f"not authorized to describe topic {name}: the principal needs Describe on it, which Read and Write imply"
        )
    if row["error_code"] and row["error_code"] not in UNSETTLED:
        raise BrokerError(f"topic {name}: {describe(row['error_code'])}", code=row["error_code"], topic=name)
    partitions = sorted(row["partitions"], key=lambda each: int(each["partition_index"]))
    return TopicState(
        tuple(tuple(each["replica_nodes"]) for each in partitions),
        tuple(tuple(each["isr_nodes"]) for each in partitions),
        tuple(each["leader_id"] for each in partitions),
        _topic_configs(client, name, None if configs is None else list(configs)),
        row.get("topic_id") or NO_TOPIC_ID,
    )


def _topic_configs(client: Client, name: str, wanted: list[str] | None) -> Mapping[str, str | None] | None:
    if wanted == []:
        return {}
    found = client.topic_configs(name, wanted)
    if isinstance(found, BrokerError) and found.code == UNKNOWN_TOPIC_OR_PARTITION:
        return None  # this broker does not know it yet, unlike the one before
    return found_or_raise(found)


class PlannedTopic(NamedTuple):
    """`differences` None: it was created, and every broker knows it. Else how the existing topic differs from the
    plan."""

    partition_count: int
    differences: list[str] | None = None


def create_where_missing(client: Client, name: str, plan: TopicPlan) -> PlannedTopic:
    state = topic_state(client, name, [config for config, _ in plan.configs])
    if state is not None:
        return PlannedTopic(len(state.replicas), list(differences(state, plan)))
    try:
        made = client.create_topic(name, plan)
    except BrokerError as error:
        if error.code in INVALID:
            raise ConfigError(str(error), TOPIC_NOT_CREATED) from None
        raise
    wait_on_all_brokers(client, name, len(made))
    return PlannedTopic(len(made))


def differences(state: TopicState, plan: TopicPlan) -> Iterator[str]:
    if plan.partitions not in (-1, len(state.replicas)):
        yield f"partitions={len(state.replicas)} instead of {plan.partitions}"
    if plan.replication_factor not in (-1, state.replication_factor):
        yield f"replicas={state.replication_factor} instead of {plan.replication_factor}"
    for name, wanted in plan.configs:
        found = (state.configs or {}).get(name)
        if state.configs is not None and found != wanted:
            yield f"{name}={'not known to the broker' if found is None else found} instead of {wanted}"


def wait_on_all_brokers(client: Client, name: str, partitions: int) -> None:
    """Tasks may ask any broker. An unreachable one is not waited for."""
    limit_ms = client.options.max_block_ms
    text = f"topic {name} was created, and after max.block.ms={limit_ms} not every broker knows it"

    def lacks(bodies: Bodies) -> KafkaSinkError | None:
        rows = [topic_row(METADATA, body, name) for body in bodies]
        is_known = all(len(row["partitions"]) >= partitions and _is_led(row) for row in rows)
        return None if is_known else OperationTimeout(text, TOPIC_NOT_EVERYWHERE)

    client.ask_all(
        AllBrokers(), METADATA, topic_query(name), timeout_ms=limit_ms, repeat=Repeat.ALWAYS, lacks=lacks,
        wait_ms=LOOK_AGAIN_MS, needs_all=False,
    )  # fmt: skip


def _is_led(row: Mapping[str, Any]) -> bool:
    return not row["error_code"] and all(each["leader_id"] != -1 for each in row["partitions"])


def metadata_of(client: Client, topic: str) -> Mapping[str, Any]:
    """Includes the client's authorized operations."""
    body = {**topic_query(topic), "include_topic_authorized_operations": True}
    return topic_row(METADATA, client.ask_metadata(body), topic)
