"""Apache Kafka for tests: one or three nodes that can be killed, stopped, paused and started again.

    with KafkaCluster(version="4.3.1", nodes=3, properties={"message.max.bytes": 2_000_000}) as kafka:
        kafka.create_topic("rows", partitions=4)
        kafka.kill(kafka.leader_of("rows", 0))

Every node keeps its port and its data through a restart. Data and logs live in one temporary folder; closing kills
the processes of this cluster and removes the folder, and a watchdog does the same if the owner dies without closing.
Topics are made by confluent-kafka's admin client, so that the harness does not lean on the code under test.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export them
    AdminClient,
    NewTopic,
    TopicMetadata,
)

from tools import kafka_security, kafka_watchdog
from tools.kafka_jars import VERSIONS
from tools.kafka_node import FAST_START, HOST, KafkaNode, format_nodes, free_port, make_archive

_LOGGER = logging.getLogger("tools.kafka_cluster")
_POLL_S = 0.05


class KafkaCluster:
    """Brokers of one version; node ids count from 1. Ready when `with` or `open()` returns.

    With `users` (name -> password), with `tls`, and with both every node has further listeners (kafka_security.py):
    `bootstrap_servers_of(name)`.
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
        start_timeout_s: float = 60,
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
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KafkaCluster:
        """Start it, unless `open()` did already."""
        if self._folder is None:
            self.open()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        make_archive(self.version)
        self._folder = Path(tempfile.mkdtemp(prefix="pykafka-sink-"))
        self._watchdog = subprocess.Popen(
            [sys.executable, "-S", "-E", kafka_watchdog.__file__, str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._make_nodes(self._folder)
            for node in self._nodes.values():
                node.start()
            self.wait_ready(self._start_timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill what this cluster started and remove its folder. Safe to call twice."""
        for node in self._nodes.values():
            node.kill()
        if self._folder is not None:
            kafka_watchdog.remove_everything(str(self._folder))
            self._folder = None
        if self._watchdog is not None:
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
            self._watchdog.wait(30)
            self._watchdog = None

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
        return self._nodes[node_id].folder / "data"

    def log_path(self, node_id: int) -> Path:
        return self._nodes[node_id].log_path

    def process_id(self, node_id: int) -> int:
        process = self._nodes[node_id].process
        if process is None or process.poll() is not None:
            raise ValueError(f"node {node_id} is not running")
        return process.pid

    # One node at a time

    def kill(self, node_id: int) -> None:
        """SIGKILL: no farewell, connections reset, data as the page cache has it."""
        self._nodes[node_id].kill()

    def stop(self, node_id: int, timeout_s: float = 60) -> None:
        """SIGTERM: a controlled shutdown that hands leadership over first."""
        self._nodes[node_id].signal(signal.SIGTERM)
        self._nodes[node_id].join(timeout_s)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._nodes[node_id].signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._nodes[node_id].signal(signal.SIGCONT)

    def start(self, node_id: int, *, wait: bool = True) -> None:
        """Start a node that was killed or stopped, on its old port and data."""
        self._nodes[node_id].start()
        if wait:
            self.wait_ready(self._start_timeout_s)

    def restart(self, node_id: int) -> None:
        """A controlled shutdown and a start, as a rolling restart does it."""
        self.stop(node_id)
        self.start(node_id)

    def heal(self) -> None:
        """Resume what is paused, start what is down, wait until all are there."""
        for node in self._nodes.values():
            if node.is_paused:
                node.signal(signal.SIGCONT)
            elif not node.is_running:
                node.start()
        self.wait_ready(self._start_timeout_s)

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Until every running node takes connections and is listed as alive."""
        deadline = time.monotonic() + timeout_s
        wanted = self._answering_nodes()
        for node in wanted:
            node.wait_until_open(deadline)
        admin = self._admin()
        self._wait_until(
            lambda: {node.node_id for node in wanted} <= set(admin.list_topics(timeout=5).brokers),
            deadline,
            lambda: f"not all of nodes {[node.node_id for node in wanted]} joined:\n{wanted[-1].log_tail()}",
        )

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic and wait until every partition has a leader. Returns its name."""
        replicas = self._node_count if replication_factor is None else replication_factor
        texts = {key: str(value) for key, value in (config or {}).items()}
        admin = self._admin()
        request = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=texts)
        admin.create_topics([request], operation_timeout=30)[name].result(60)
        self.wait_for_topic(name, partitions)
        return name

    def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        """Until every node that answers knows the topic and its leaders. The controller says that a topic was created
        before the other nodes have heard of it, and a client may ask any of them."""
        admins = [self._admin_of([node]) for node in self._answering_nodes()]
        self._wait_until(
            lambda: all(
                _led_partitions(admin.list_topics(name, timeout=5).topics[name]) == partitions for admin in admins
            ),
            time.monotonic() + 30,
            lambda: f"topic {name} has no leaders",
        )

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        admin.delete_topics([name], operation_timeout=30)[name].result(60)
        self._wait_until(
            lambda: name not in admin.list_topics(timeout=5).topics,
            time.monotonic() + 30,
            lambda: f"topic {name} does not go away",
        )

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader's node id, or -1 while there is none."""
        found = self._admin().list_topics(topic, timeout=10).topics[topic]
        if partition not in found.partitions:
            raise KeyError(f"{topic} has no partition {partition}")
        return int(found.partitions[partition].leader)

    def hand_back(self, topic: str) -> None:
        """Each partition is led again by the node that it was placed on. Where nodes went down, those that stayed lead
        what they took over, and one may lead everything."""
        if topic not in self._admin().list_topics(timeout=10).topics:
            return

        def are_home() -> bool:
            admin = self._admin()  # has to outlive its future
            if away := _led_elsewhere(admin, topic):
                admin.elect_leaders(ElectionType.PREFERRED, away).result(30)
            return not _led_elsewhere(admin, topic)

        self._wait_until(are_home, time.monotonic() + 60, lambda: f"{topic} is not led by its preferred nodes")

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
        return self._admin_of(self._answering_nodes())

    def _admin_of(self, nodes: Sequence[KafkaNode]) -> AdminClient:
        """A new client each time: an old one would spend its time-outs on nodes that were killed since."""
        addresses = ",".join(node.address for node in nodes)
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": addresses,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
        return AdminClient(settings, logger=_LOGGER)

    def _wait_until(self, is_true: Callable[[], bool], deadline: float, problem: Callable[[], str]) -> None:
        while True:
            try:
                if is_true():
                    return
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(problem()) from error
            if time.monotonic() > deadline:
                raise TimeoutError(problem())
            time.sleep(_POLL_S)


def _led_elsewhere(admin: AdminClient, topic: str) -> list[TopicPartition]:
    found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
    return [TopicPartition(topic, one.id) for one in found if one.leader != one.replicas[0]]


def _led_partitions(topic: TopicMetadata) -> int:
    if topic.error is not None and topic.error.code() != KafkaError.NO_ERROR:
        return 0
    return sum(partition.leader >= 0 for partition in topic.partitions.values())


def main() -> None:
    """Run a cluster until Enter or Ctrl-C: `python -m tools.kafka_cluster [version] [nodes]`."""
    version = sys.argv[1] if len(sys.argv) > 1 else VERSIONS[0]
    node_count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with KafkaCluster(version, node_count, {"auto.create.topics.enable": True}) as kafka:
        print(f"Apache Kafka {version} on {kafka.bootstrap_servers}, logs in {kafka.folder}{os.sep}node-*", flush=True)
        try:
            sys.stdin.readline()
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
