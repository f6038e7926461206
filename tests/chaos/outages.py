"""What befalls brokers, and proof that it did: each fault waits until the cluster shows it, or fails.

A fault is over when every replica of every topic is in sync again: the next one would otherwise take a second replica
away, and with min.insync.replicas=2 of 3 the cluster could not take writes, however right the producer is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tools.kafka_cluster import KafkaCluster

TRANSACTION_TOPIC = "__transaction_state"
WAIT_S = 90


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(0.1)


def wait_until_in_sync(kafka: KafkaCluster, *topics: str) -> None:
    def is_in_sync() -> bool:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        try:
            found = admin.list_topics(timeout=5).topics
        except KafkaException:
            return False
        partitions = [partition for topic in topics for partition in found[topic].partitions.values()]
        return all(len(partition.isrs) == len(partition.replicas) for partition in partitions)

    wait_until(is_in_sync, f"all replicas of {topics} in sync")


def create_topic(kafka: KafkaCluster, name: str, partitions: int, config: dict[str, object] | None = None) -> str:
    """Again until it is there: a cluster that has just got over an outage may drop the first request."""

    def exists() -> bool:
        with contextlib.suppress(KafkaException):
            kafka.create_topic(name, partitions, config=config)
        return all(leader_or_none(kafka, name, partition) >= 0 for partition in range(partitions))

    wait_until(exists, f"topic {name} exists")
    wait_until_in_sync(kafka, name)
    return name


def leader_or_none(kafka: KafkaCluster, topic: str, partition: int) -> int:
    """-1 also while nobody can be asked."""
    try:
        return kafka.leader_of(topic, partition)
    except (KafkaException, KeyError):
        return -1


def wait_until_moved(kafka: KafkaCluster, topic: str, partition: int, old_leader: int) -> int:
    wait_until(
        lambda: leader_or_none(kafka, topic, partition) not in (-1, old_leader),
        f"{topic}-{partition} is led by another node than {old_leader}",
    )
    return leader_or_none(kafka, topic, partition)


def kill_leader(kafka: KafkaCluster, topic: str, partition: int) -> int:
    """SIGKILL; returns the node when another one has taken over."""
    victim = kafka.leader_of(topic, partition)
    process_id = kafka.process_id(victim)
    kafka.kill(victim)
    assert not Path(f"/proc/{process_id}").exists()
    wait_until_moved(kafka, topic, partition, victim)
    return victim


def pause_leader(kafka: KafkaCluster, topic: str, partition: int, pause_s: float) -> int:
    """SIGSTOP for a while. The others must have replaced it in between, or it was no outage."""
    victim = kafka.leader_of(topic, partition)
    kafka.pause(victim)
    started = time.monotonic()
    wait_until(lambda: state_of(kafka.process_id(victim)) == "T", f"node {victim} stands still", 5)
    wait_until_moved(kafka, topic, partition, victim)
    time.sleep(max(0.0, started + pause_s - time.monotonic()))
    assert state_of(kafka.process_id(victim)) == "T"
    kafka.resume(victim)
    wait_until(lambda: state_of(kafka.process_id(victim)) != "T", f"node {victim} runs again", 5)
    return victim


def state_of(process_id: int) -> str:
    """As the kernel says: T is stopped."""
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]


def coordinator_partition(transactional_id: str, partition_count: int) -> int:
    """The partition of __transaction_state that holds this id: Java's hash of a string, made positive."""
    number = 0
    for unit in transactional_id.encode("utf-16-be")[1::2]:
        number = (31 * number + unit) & 0xFFFFFFFF
    return (number & 0x7FFFFFFF) % partition_count


class Outage:
    """A script of faults on a thread of its own, beside the test that sends. Its error is raised by `join`."""

    def __init__(self, script: Callable[[], None]) -> None:
        self._script = script
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="outage", daemon=True)
        self.started_at = 0.0
        self.ended_at = 0.0

    def start(self) -> None:
        self.started_at = time.monotonic()
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_s: float = WAIT_S) -> None:
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if not self.is_over:
            raise TimeoutError(f"the outage did not end within {timeout_s} s")

    def _run(self) -> None:
        try:
            self._script()
        except BaseException as error:
            self._error = error
        self.ended_at = time.monotonic()
