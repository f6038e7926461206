"""Faults of brokers, with proof that they happened: each fault waits until the cluster shows it, or fails.

A fault is over when every replica of every topic is in sync again. Otherwise the next one could take away a second
replica, and with min.insync.replicas=2 of 3 the cluster could not accept writes, even from a correct producer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException

from tools.kafka_cluster import KafkaCluster
from tools.waiting import PATIENCE_S, wait_until

TRANSACTION_TOPIC = "__transaction_state"


def leader_as_told_by(kafka: KafkaCluster, node_id: int, topic: str, partition: int) -> int:
    """Also -1 if this node does not answer or does not know the leader."""
    view = kafka.view_of(node_id, topic)
    return next((one.leader for one in (view.partitions if view else ()) if one.index == partition), -1)


def create_topic(kafka: KafkaCluster, name: str, partitions: int, config: dict[str, object] | None = None) -> str:
    """Repeats the request until the topic exists: a cluster just after an outage may drop the first one."""

    def exists() -> bool:
        with suppress(KafkaException):
            kafka.create_topic(name, partitions, config=config)
        return len(kafka.partitions_of(name)) == partitions

    wait_until(exists, f"topic {name} exists")
    kafka.wait_in_sync(name)
    return name


def wait_until_moved(kafka: KafkaCluster, topic: str, partition: int, old_leader: int) -> int:
    """Waits until all other nodes agree: after an election they learn of the new leader one after the other."""
    others = [node_id for node_id in kafka.node_ids if node_id != old_leader]
    leaders: set[int] = set()

    def has_moved() -> bool:
        leaders.clear()
        leaders.update(leader_as_told_by(kafka, node_id, topic, partition) for node_id in others)
        return len(leaders) == 1 and not leaders & {-1, old_leader}

    wait_until(has_moved, f"{topic}-{partition} is led by another node than {old_leader}", poll_s=0.2)
    return leaders.pop()


def kill_leader(kafka: KafkaCluster, topic: str, partition: int) -> int:
    """Sends SIGKILL to the leader; returns the node when another one has taken over."""
    victim = kafka.leader_of(topic, partition)
    process_id = kafka.process_id(victim)
    kafka.kill(victim)
    assert not Path(f"/proc/{process_id}").exists()
    wait_until_moved(kafka, topic, partition, victim)
    return victim


def pause_leader(kafka: KafkaCluster, topic: str, partition: int, pause_s: float) -> int:
    """Sends SIGSTOP for a while. The others must replace the leader in between; otherwise there was no outage."""
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
    """The state as the kernel reports it: T is stopped."""
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]


def coordinator_partition(transactional_id: str, partition_count: int) -> int:
    """The partition of __transaction_state that holds this id: Java's hash of a string, made positive."""
    number = 0
    for unit in transactional_id.encode("utf-16-be")[1::2]:
        number = (31 * number + unit) & 0xFFFFFFFF
    return (number & 0x7FFFFFFF) % partition_count


class Outage:
    """A script of faults in its own thread, in parallel with the test that sends. `join` raises its error."""

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

    def join(self, timeout_s: float = PATIENCE_S) -> None:
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
