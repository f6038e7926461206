"""Apache Kafka for tests: one or three nodes that can be killed, stopped, paused and started again.

    with KafkaCluster(version="4.3.1", nodes=3, properties={"message.max.bytes": 2_000_000}) as kafka:
        kafka.create_topic("rows", partitions=4)
        kafka.kill(kafka.leader_of("rows", 0))

Every node keeps its port and its data through a restart. Data and logs live in one temporary folder; closing kills
the processes of this cluster and removes the folder, and a watchdog does the same if the owner dies without closing.
confluent-kafka's admin client creates topics, so that the harness does not depend on the code under test.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export them
    AdminClient,
    NewTopic,
)

from tools import kafka_security
from tools.kafka_archive import make_archive
from tools.kafka_format import format_nodes
from tools.kafka_jars import VERSIONS
from tools.kafka_node import FAST_START, HOST, KafkaNode, free_port, wait_until_ready
from tools.kafka_views import Partition, View, view_of
from tools.waiting import wait_until
from tools.workspace import workspace

_LOGGER = logging.getLogger("tools.kafka_cluster")
# Topics that outlive a test: those of the coordinators, and the sink's ledger.
_SHARED_TOPICS = ("__transaction_state", "__consumer_offsets", "__pykafka_sink_ledger")


class KafkaCluster:
    """Brokers of one version, with node ids from 1. They are ready when `with` or `open()` returns.

    With `users` (name -> password), `tls` or both, every node has further listeners (kafka_security.py);
    `bootstrap_servers_of(name)` has their addresses.
    """

    def __init__(
        self,
        version: str = VERSIONS[0],
        nodes: int = 1,
        properties: Mapping[str, object] | None = None,
        *,
        transaction_version: int | None = None,
        users: Mapping[str, str] | None = None,
        tls: kafka_security.BrokerTls | None = None,
        jvm_options: tuple[str, ...] = FAST_START,
        start_timeout_s: float = 180,
    ) -> None:
        if nodes not in (1, 3):
            raise ValueError(f"a cluster has 1 or 3 nodes, not {nodes}")
        self.version = version
        self._node_count = nodes
        self._users = dict(users or {})
        self._listeners = kafka_security.listeners(has_users=bool(self._users), has_tls=tls is not None)
        self._properties = {**kafka_security.listener_properties(self._users, tls), **(properties or {})}
        self._features = {} if transaction_version is None else {"transaction.version": transaction_version}
        self._jvm_options = jvm_options
        self._start_timeout_s = start_timeout_s
        self._nodes: dict[int, KafkaNode] = {}
        self._folder: Path | None = None
        self._ends = ExitStack()

    def __enter__(self) -> KafkaCluster:
        """Starts the cluster, unless `open()` already did."""
        if self._folder is None:
            self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        make_archive(self.version)
        self._folder = self._ends.enter_context(workspace("pykafka-sink-"))
        try:
            self._make_nodes(self._folder)
            for node in self._nodes.values():
                node.start()
            self.wait_ready(self._start_timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kills all processes of this cluster and removes its folder. A second call does nothing."""
        for node in self._nodes.values():
            node.kill()
        self._folder = None
        self._ends.close()

    @property
    def verifies(self) -> bool:
        """True from 3.6 on: a leader asks the coordinator before it accepts a record of a transaction."""
        return tuple(map(int, self.version.split(".")[:2])) >= (3, 6)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self._nodes.values())

    def bootstrap_servers_of(self, listener: str) -> str:
        if listener not in self._listeners:
            raise ValueError(f"the cluster has no listener {listener}")
        return ",".join(f"{HOST}:{node.more_ports[listener]}" for node in self._nodes.values())

    @property
    def sasl_bootstrap_servers(self) -> str:
        return self.bootstrap_servers_of(kafka_security.LISTENER)

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(self._nodes)

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ValueError("the cluster is not open")
        return self._folder

    def address_of(self, node_id: int) -> str:
        return self._nodes[node_id].address

    def data_folder(self, node_id: int) -> Path:
        return self._nodes[node_id].data_path

    def log_path(self, node_id: int) -> Path:
        return self._nodes[node_id].log_path

    def process_id(self, node_id: int) -> int:
        process = self._nodes[node_id].process
        if process is None or process.poll() is not None:
            raise ValueError(f"node {node_id} is not running")
        return process.pid

    # One node at a time

    def kill(self, node_id: int) -> None:
        """SIGKILL: no shutdown; connections are reset, data is what the page cache has."""
        self._nodes[node_id].kill()

    def stop(self, node_id: int, timeout_s: float = 180) -> None:
        """SIGTERM: a controlled shutdown, which first moves leadership to other nodes."""
        self._nodes[node_id].signal(signal.SIGTERM)
        self._nodes[node_id].join(timeout_s)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._nodes[node_id].signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._nodes[node_id].signal(signal.SIGCONT)

    def start(self, node_id: int, *, wait: bool = True) -> None:
        """Starts a node that was killed or stopped, with its old port and data."""
        self._nodes[node_id].start()
        if wait:
            self.wait_ready(self._start_timeout_s)

    def restart(self, node_id: int) -> None:
        """A controlled shutdown and a start, as in a rolling restart."""
        self.stop(node_id)
        self.start(node_id)

    def heal(self) -> None:
        """Resumes paused nodes, starts stopped ones, and waits until all run and are in sync. Otherwise the loss of the
        next node would block writes to topics that need two replicas in sync."""
        away = [node for node in self._nodes.values() if node.is_paused or not node.is_running]
        for node in away:
            if node.is_paused:
                node.signal(signal.SIGCONT)
            else:
                node.start()
        self.wait_ready(self._start_timeout_s)
        if away:
            self.wait_in_sync(*(topic for topic in _SHARED_TOPICS if self.partitions_of(topic)))

    def wait_ready(self, timeout_s: float = 180) -> None:
        """Waits until every running node accepts connections and sees all others as alive."""
        wait_until_ready(self._answering_nodes(), timeout_s)

    # Topics. These methods ask every running node, because nodes learn of a change one after the other.

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Creates a topic and waits until every running node knows a leader of each partition. Returns its name."""
        replicas = self._node_count if replication_factor is None else replication_factor
        texts = {key: str(value) for key, value in (config or {}).items()}
        request = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=texts)
        admin = self._admin()  # has to outlive its future
        admin.create_topics([request], operation_timeout=30)[name].result(60)
        self.wait_for_topic(name, partitions)
        return name

    def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        """Waits until every running node knows a leader of each partition. The controller reports a topic as created
        before the other nodes know it."""

        def is_led() -> bool:
            known = self.partitions_of(name)
            return len(known) == partitions and all(one.leader >= 0 for one in known)

        wait_until(is_led, f"topic {name} has leaders")

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        admin.delete_topics([name], operation_timeout=30)[name].result(60)
        wait_until(lambda: not self.partitions_of(name), f"topic {name} goes away")

    def partitions_of(self, *topics: str) -> tuple[Partition, ...]:
        """The partitions, as soon as all running nodes name the same leaders. A topic that does not exist has none."""
        views: list[View | None] = []

        def is_agreed() -> bool:
            views[:] = [self.view_of(node.node_id, *topics) for node in self._answering_nodes()]
            return len({view and view.leaders for view in views}) == 1 and None not in views

        wait_until(is_agreed, lambda: f"all nodes name the same leaders of {topics}: {views}")
        assert views[0] is not None
        return views[0].partitions

    def view_of(self, node_id: int, *topics: str) -> View | None:
        """The view of one node; None while it does not answer."""
        try:
            return view_of(self.address_of(node_id), *topics)
        except OSError:
            return None

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader's node id, or -1 while there is none."""
        for one in self.partitions_of(topic):
            if one.index == partition:
                return one.leader
        raise KeyError(f"{topic} has no partition {partition}")

    def wait_in_sync(self, *topics: str) -> None:
        """Waits until all nodes run and report all replicas of these topics as in sync. A node that was stopped regards
        itself as leader, and all replicas as in sync, until it has caught up. So asking it alone is not enough: it
        would report an old end of the log."""
        last: list[View | None] = []

        def is_in_sync() -> bool:
            last[:] = [self.view_of(node_id, *topics) for node_id in self.node_ids]
            told = {view and view.partitions for view in last}
            (one, *others) = told
            named = {partition.topic for partition in one or ()}
            return not others and named == set(topics) and all(partition.is_complete for partition in one or ())

        # This takes seconds, and each check opens a connection to every node, which costs the node CPU.
        wait_until(is_in_sync, lambda: f"all replicas of {topics} are in sync: {last}", poll_s=0.2)

    def hand_back(self, topic: str) -> None:
        """Makes the preferred replica of each partition its leader again. After an outage nodes that stayed up keep the
        leadership that they took over, and one of them may lead everything."""

        def are_home() -> bool:
            away = [one for one in self.partitions_of(topic) if one.leader != one.replicas[0]]
            if away:
                admin = self._admin()  # has to outlive its future
                wanted = [TopicPartition(topic, one.index) for one in away]
                admin.elect_leaders(ElectionType.PREFERRED, wanted).result(30)
            return not away

        wait_until(are_home, f"{topic} is led by its preferred nodes", passing=(KafkaException,))

    def _make_nodes(self, folder: Path) -> None:
        per_node = 2 + len(self._listeners)
        ports = [free_port() for _ in range(per_node * self._node_count)]
        of_nodes = (ports[first : first + per_node] for first in range(0, len(ports), per_node))
        self._nodes = {
            number: KafkaNode(
                self.version,
                number,
                port,
                controller_port,
                folder / f"node-{number}",
                self._jvm_options,
                dict(zip(self._listeners, more, strict=True)),
            )
            for number, (port, controller_port, *more) in enumerate(of_nodes, 1)
        }
        nodes = list(self._nodes.values())
        for node in nodes:
            node.write_properties(nodes, self._properties)
        format_nodes(nodes, self._features, self._users)

    def _answering_nodes(self) -> list[KafkaNode]:
        nodes = [node for node in self._nodes.values() if node.is_running and not node.is_paused]
        if not nodes:
            raise ValueError("no node is running")
        return nodes

    def _admin(self) -> AdminClient:
        """Returns a new client each time: an old one would wait for nodes that were killed meanwhile."""
        addresses = ",".join(node.address for node in self._answering_nodes())
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": addresses,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        return AdminClient(settings, logger=_LOGGER)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tools.kafka_cluster",
        description="Run Apache Kafka on this machine until Ctrl-C (or Enter, on a terminal); then remove its data.",
        epilog="example: python -m tools.kafka_cluster 4.3.1 3",
    )
    parser.add_argument("version", nargs="?", default=VERSIONS[0], help="version of Apache Kafka (default %(default)s)")
    parser.add_argument("nodes", nargs="?", type=int, choices=(1, 3), default=1, help="number of nodes (default 1)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with KafkaCluster(given.version, given.nodes, {"auto.create.topics.enable": True}) as kafka:
        logs = f"logs in {kafka.folder}{os.sep}node-*"
        print(f"Apache Kafka {given.version} on {kafka.bootstrap_servers}, {logs}. Ctrl-C ends it", flush=True)
        try:
            # Without a terminal the end of input is ignored, so that a process in the background continues.
            while not (sys.stdin.isatty() and sys.stdin.readline()):
                time.sleep(1)
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
