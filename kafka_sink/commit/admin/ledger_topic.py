"""The ledger's topic: created if missing, refused if it would delete records, warned about if it could lose some.

The ledger is only as safe as its topic, and needs no settings of the user: a ledger created by the sink gets min(3,
brokers) replicas, of which two must acknowledge. One created otherwise, or when there were fewer brokers, is checked
whenever a query is planned. A ledger that deletes old records is refused, because then batches are delivered twice.
Other defects are warnings, once per process, with the command that fixes them: a decision is lost only if a broker is
lost, too.

Services protect some configurations, and refuse a topic that names one: then it is created with cleanup.policy alone,
which the ledger cannot do without, unless the user has chosen configurations.

Assumption about brokers: DescribeConfigs and Metadata return what is in effect. If a broker does not return it
(permissions, other servers), the topic is assumed to be fine. The number of partitions does not matter: only partition
0 is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.configs import ConfigAnswer, found_or_raise, number_of
from kafka_sink.commit.ledger_policy import CLEANUP, MESSAGE_BYTES, alter_command, policy_problem
from kafka_sink.errors import BrokerError, ConfigError, KafkaSinkError
from kafka_sink.errors.table.brokers import LEDGER_FORGETS
from kafka_sink.frozen import frozen
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.kafka.wire.codes import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    POLICY_VIOLATION,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafka_sink.options.sink_options import SinkOptions, TopicPlan

_LOGGER = logging.getLogger("kafka_sink")
LEDGER_PARTITION = 0
REPLICAS_WANTED = 3
IN_SYNC_WANTED = 2
# A decision with 10,000 tasks takes up to half of it.
MESSAGE_BYTES_WANTED = 1_000_000
# Small segments, because only closed ones are compacted, and the ledger is read completely. The compaction lag is an
# hour, longer than a transaction may last by default: for the cleaner the abort marker of a later record also removes
# an intent whose own marker was lost; for a driver it does not.
LEDGER_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 * 1024 * 1024),
    "min.compaction.lag.ms": str(60 * 60 * 1000),
}
IN_SYNC, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
# What services answer if a topic is to have a configuration that they protect.
PROTECTED = (INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION)
CHECKED = (CLEANUP, IN_SYNC, UNCLEAN, MESSAGE_BYTES)


@frozen
class PlainLedger:
    """For callers without other options of a sink."""

    ledger_topic: str
    ledger_replication_factor: int = -1
    ledger_create: bool = True
    ledger_config: tuple[tuple[str, str], ...] = ()


LedgerOptions = SinkOptions | PlainLedger


def check_ledger_topic(client: Client, wanted: LedgerOptions) -> None:
    """Raises `ConfigError` if it would delete records, or is missing and may not be created."""
    client.reach(topics=[wanted.ledger_topic])
    check_ledger_configs(client, wanted, client.topic_configs(wanted.ledger_topic, CHECKED))


def check_ledger_configs(client: Client, wanted: LedgerOptions, configs: ConfigAnswer) -> None:
    """Like `check_ledger_topic`, for a caller that has just requested the values of CHECKED and the metadata."""
    if not create_ledger_if_missing(client, wanted, configs):
        check_found_ledger(client, wanted.ledger_topic, configs)


def create_ledger_if_missing(client: Client, wanted: LedgerOptions, configs: ConfigAnswer) -> bool:
    """Whether it was missing; raises if it may not be created."""
    topic = wanted.ledger_topic
    if not _is_missing(client, topic, configs):
        return False
    if not wanted.ledger_create:
        raise ConfigError(missing_ledger_text(topic))
    plan = _create(client, wanted)
    _LOGGER.info("created the ledger topic %s (replication factor %d)", topic, plan.replication_factor)
    return True


def check_found_ledger(client: Client, topic: str, configs: ConfigAnswer) -> None:
    """Raises if it would delete records. What it has can be read and finished all the same."""
    configs = found_or_raise(configs)
    if configs is not None:
        check_cleanup_policy(topic, configs)
    brokers, replicas = ledger_counts(client, topic)
    for text in troubles(topic, configs or {}, replicas, brokers):
        warn_once(text)


def _create(client: Client, wanted: LedgerOptions) -> TopicPlan:
    topic, plan = wanted.ledger_topic, new_ledger_plan(client, wanted)
    try:
        client.create_topic(topic, plan)
    except BrokerError as error:
        least = least_ledger_plan(wanted, plan, error)
        if least is None:
            raise
        client.create_topic(topic, least)
        left = ", ".join(f"{name}={value}" for name, value in plan.configs if name != CLEANUP)
        warn_once(
            f"{error}. So it was created with {CLEANUP}=compact alone, and has the brokers' own values instead of "
            f"{left}: decisions are as safe as other rows there, and starts read more where segments are larger"
        )
        return least
    return plan


def _is_missing(client: Client, topic: str, configs: ConfigAnswer) -> bool:
    if configs is None:
        # Without permission the answer is the same for a topic that does not exist.
        from kafka_sink.commit.admin.topics import topic_state

        return topic_state(client, topic) is None
    return isinstance(configs, BrokerError) and configs.code == UNKNOWN_TOPIC_OR_PARTITION


def missing_ledger_text(topic: str) -> str:
    return (
        f"there is no ledger topic {topic}, and ledger.create=false: create it with one partition and "
        f"{CLEANUP}=compact, or set ledger.create=true"
    )


def new_ledger_plan(client: Client, wanted: LedgerOptions) -> TopicPlan:
    factor = wanted.ledger_replication_factor
    if factor == -1:
        factor = min(REPLICAS_WANTED, ledger_counts(client, wanted.ledger_topic)[0])
    configs = dict(LEDGER_CONFIGS)
    if factor >= REPLICAS_WANTED:
        configs[IN_SYNC] = str(IN_SYNC_WANTED)
    configs |= dict(wanted.ledger_config)
    return TopicPlan(1, factor, tuple((name, value) for name, value in configs.items() if value))


def least_ledger_plan(wanted: LedgerOptions, plan: TopicPlan, refusal: KafkaSinkError) -> TopicPlan | None:
    """What to try after this refusal of `plan`; None: nothing else."""
    if wanted.ledger_config or not (isinstance(refusal, BrokerError) and refusal.code in PROTECTED):
        return None
    return replace(plan, configs=((CLEANUP, LEDGER_CONFIGS[CLEANUP]),))


def ledger_counts(client: Client, topic: str) -> tuple[int, int | None]:
    """Number of brokers, and replicas of the ledger; None: unknown at the moment."""
    if topic not in client.look_at_cluster().topics:
        client.reach(topics=[topic])
    cluster = client.look_at_cluster()
    found = cluster.topics.get(topic)
    return len(cluster.brokers), None if found is None else found.replica_count or None


def check_cleanup_policy(topic: str, configs: Mapping[str, str | None]) -> None:
    problem = policy_problem(topic, configs.get(CLEANUP))
    if problem is not None:
        raise ConfigError(problem, LEDGER_FORGETS)


def troubles(topic: str, configs: Mapping[str, str | None], replicas: int | None, brokers: int) -> Iterator[str]:
    """What could lose a decision, each with the command that fixes it."""
    if replicas is not None and replicas < REPLICAS_WANTED <= brokers:
        yield (
            f"the ledger topic {topic} has {replicas} replica{'s' if replicas > 1 else ''}, and there are {brokers} "
            "brokers: decisions are lost with the disk of a broker, and batches delivered twice. Give it three: "
            f"kafka-reassign-partitions --execute with a JSON file that names three brokers for {topic}-"
            f"{LEDGER_PARTITION}"
        )
    in_sync, message_bytes = number_of(configs, IN_SYNC), number_of(configs, MESSAGE_BYTES)
    if (replicas or 0) >= REPLICAS_WANTED and in_sync is not None and in_sync < IN_SYNC_WANTED:
        yield (
            f"the ledger topic {topic} has {IN_SYNC}={in_sync}: a decision may be acknowledged by one broker "
            f"alone, and be lost with it. {alter_command(topic, IN_SYNC, IN_SYNC_WANTED)}"
        )
    if configs.get(UNCLEAN) == "true":
        yield (
            f"the ledger topic {topic} has {UNCLEAN}=true: a broker that has missed decisions may become its leader. "
            f"{alter_command(topic, UNCLEAN, 'false')}"
        )
    if message_bytes is not None and message_bytes < MESSAGE_BYTES_WANTED:
        yield (
            f"the ledger topic {topic} has {MESSAGE_BYTES}={message_bytes}: a decision about many tasks does "
            f"not fit, and its batch is aborted. {alter_command(topic, MESSAGE_BYTES, '1048588')}"
        )
