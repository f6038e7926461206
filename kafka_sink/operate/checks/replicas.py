"""Can a topic be written now, and would it be with one broker fewer? For targets, the ledger, the transaction log.

Brokers compare min.insync.replicas with the replicas in sync at each write that all of them have to acknowledge. From
Apache Kafka 3.7 on they take the number of replicas for it if that is smaller; older ones refuse each write then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.configs import number_of
from kafka_sink.commit.admin.ledger_topic import IN_SYNC, REPLICAS_WANTED, UNCLEAN
from kafka_sink.commit.admin.topics import TopicState
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.cluster import NO_LEADER
from kafka_sink.operate.checks.finding import ProbeResult, fail, warn
from kafka_sink.operate.checks.kafka_tools import KafkaTools


@frozen
class Replicated:
    """`line`: where it is reported. `refused`, `lost`: what it means for the job, as a clause."""

    topic: str
    state: TopicState
    brokers: tuple[int, ...]
    tools: KafkaTools
    line: str
    refused: str
    lost: str

    @property
    def least(self) -> int | None:
        return number_of(self.state.configs, IN_SYNC)


def count_of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def there_are(brokers: Collection[int]) -> str:
    return f"there {'is' if len(brokers) == 1 else 'are'} {count_of(len(brokers), 'broker')}"


def live_brokers(client: Client) -> tuple[int, ...]:
    """By the metadata that the probes of this connection began with."""
    if not client.look_at_cluster().brokers:
        client.reach()
    return tuple(sorted(client.look_at_cluster().brokers))


def leader_findings(it: Replicated) -> Iterator[ProbeResult]:
    headless = [index for index, leader in enumerate(it.state.leaders) if leader == NO_LEADER]
    if headless:
        held = {broker for index in headless for broker in it.state.replicas[index]}
        text = f"{it.topic} has no leader for partition {_numbers(headless)}: {it.refused}"
        yield fail(it.line, text, _start(sorted(held - set(it.brokers)) or sorted(held)))


def in_sync_findings(it: Replicated) -> Iterator[ProbeResult]:
    """Only for writes that all replicas in sync have to acknowledge."""
    least, replicas = it.least, it.state.replication_factor
    if least is None or NO_LEADER in it.state.leaders:
        return
    in_sync = min((len(each) for each in it.state.in_sync), default=0)
    if in_sync < min(least, replicas):
        behind = {broker for held in it.state.replicas for broker in held} - set(it.brokers)
        text = f"{it.topic} has a partition with {count_of(in_sync, 'replica')} in sync, and {IN_SYNC}={least}"
        advice = f"{_start(sorted(behind))}, or {it.tools.alter_topic(it.topic, IN_SYNC, max(1, in_sync))}"
        yield fail(it.line, f"{text}: {it.refused}", advice)
    elif least > replicas:
        text = f"{it.topic} has {count_of(replicas, 'replica')} and {IN_SYNC}={least}: Apache Kafka 3.7 and newer take"
        text = f"{text} {replicas} for it, with older and other brokers {it.refused}"
        yield warn(it.line, text, it.tools.alter_topic(it.topic, IN_SYNC, max(1, replicas - 1)))
    elif 1 < replicas == least:
        text = (
            f"{it.topic} has {count_of(replicas, 'replica')} and {IN_SYNC}={least}: with one broker down {it.refused}"
        )
        yield warn(it.line, text, it.tools.alter_topic(it.topic, IN_SYNC, least - 1))


def lone_findings(it: Replicated) -> Iterator[ProbeResult]:
    """What one broker alone may acknowledge."""
    if it.state.replication_factor >= REPLICAS_WANTED and it.least is not None and it.least < 2:
        text = (
            f"{it.topic} has {IN_SYNC}={it.least}: a write may be acknowledged by one broker alone; with it {it.lost}"
        )
        yield warn(it.line, text, it.tools.alter_topic(it.topic, IN_SYNC, 2))


def disk_findings(it: Replicated) -> Iterator[ProbeResult]:
    """What is lost with one broker."""
    replicas, wanted = it.state.replication_factor, min(REPLICAS_WANTED, len(it.brokers))
    if replicas < wanted:
        text = f"{it.topic} has {count_of(replicas, 'replica')}, and {there_are(it.brokers)}: with a disk {it.lost}"
        yield warn(it.line, text, it.tools.add_replicas(it.topic, it.state, it.brokers, wanted))
    if (it.state.configs or {}).get(UNCLEAN) == "true" and replicas > 1:
        text = f"{it.topic} has {UNCLEAN}=true: a broker that has missed records may become leader, and {it.lost}"
        yield warn(it.line, text, it.tools.alter_topic(it.topic, UNCLEAN, "false"))


def _start(brokers: Sequence[int]) -> str:
    if not brokers:
        return "look at the log of the broker that is behind"
    return f"start broker {_numbers(brokers)}"


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"
