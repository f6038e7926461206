"""One Apache Kafka process: its properties, its JVM and the signals it gets.

Broker and controller in one process (KRaft, combined mode), everything on 127.0.0.1, small heap. The tuning is for
tests: start-up time counts, throughput does not. Two things make it quick, 1.3 s instead of 2.5 s and half the CPU:
only the first compiler tier, and a class archive (kafka_archive.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools import kafka_security
from tools.kafka_jars import cache_folder, class_path, java_command
from tools.kafka_views import view_of
from tools.waiting import wait_until

HOST = "127.0.0.1"
# Start quickly, and write no performance file, which a killed JVM would leave behind. Benchmarks pass other options.
FAST_START = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# Below the kernel's range for outgoing connections, so that no connection gets the port of a broker that is down.
_PORT_RANGE = range(15_000, 32_000)
_OURS: set[int] = set()
_PORT_LOCKS: list[int] = []


class NodeFailed(Exception):
    """A broker did not start; the text contains the end of its log."""


def free_port() -> int:
    """A port that is reserved until this process ends: several processes start brokers at the same time, and a broker
    that is down keeps its port."""
    while True:
        port = random.SystemRandom().choice(_PORT_RANGE)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            if _reserve(port):
                return port


def _reserve(port: int) -> bool:
    """Locks one byte of a file for each port. The kernel releases the locks when the process ends in any way; a child
    does not inherit them."""
    if port in _OURS:
        return False
    if not _PORT_LOCKS:
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Never closed: closing any handle of the file releases all locks of the process.
        _PORT_LOCKS.append(os.open(cache_folder() / "ports.lock", os.O_RDWR | os.O_CREAT, 0o666))
    try:
        fcntl.lockf(_PORT_LOCKS[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _OURS.add(port)
    return True


@dataclass
class KafkaNode:
    """A broker whose id, port and data folder stay the same over any number of starts."""

    version: str
    node_id: int
    port: int
    controller_port: int
    folder: Path
    jvm_options: tuple[str, ...] = FAST_START
    # Ports of further listeners, by listener name.
    more_ports: Mapping[str, int] = field(default_factory=dict)
    is_paused: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log_path(self) -> Path:
        return self.folder / "server.log"

    @property
    def data_path(self) -> Path:
        return self.folder / "data"

    @property
    def properties_path(self) -> Path:
        return self.folder / "server.properties"

    def write_properties(self, voters: Sequence[KafkaNode], properties: Mapping[str, object]) -> None:
        self.folder.mkdir(parents=True)
        rows = {**_base_properties(self, voters), **{name: str(value) for name, value in properties.items()}}
        text = "".join(f"{name}={value}\n" for name, value in rows.items())
        self.properties_path.write_text(text)
        (self.folder / "log4j.properties").write_text(_LOG4J)

    def start(self) -> None:
        if self.is_running:
            raise ValueError(f"node {self.node_id} is running already")
        self.process = self.start_java(["kafka.Kafka", str(self.properties_path)], self.log_path)
        self.is_paused = False

    def signal(self, number: signal.Signals) -> None:
        if self.process is None or self.process.poll() is not None:
            raise ValueError(f"node {self.node_id} is not running")
        self.process.send_signal(number)
        self.is_paused = number == signal.SIGSTOP or (self.is_paused and number != signal.SIGCONT)

    def join(self, timeout_s: float) -> None:
        if self.process is not None:
            self.process.wait(timeout_s)
        self.is_paused = False

    def kill(self) -> None:
        """SIGKILL, which also ends a stopped process; waits for the end. Does nothing if there is no process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
        self.is_paused = False

    def wait_until_open(self, deadline: float) -> None:
        def is_open() -> bool:
            if not self.is_running:
                raise NodeFailed(f"node {self.node_id} of Apache Kafka {self.version} ended:\n{self.log_tail()}")
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
                return True
            return False

        what = lambda: f"node {self.node_id} opens port {self.port}:\n{self.log_tail()}"  # noqa: E731
        wait_until(is_open, what, max(0.0, deadline - time.monotonic()), poll_s=0.02)

    def log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return self.log_path.read_text(errors="replace")[-4000:]
        return "(no log)"

    def start_java(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        options = [
            *self.jvm_options,
            *archive_options(self.version),
            f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        command = [java_command(), *options, "-cp", class_path(self.version), *arguments]
        with open(log, "ab") as output:
            # Own session, so that Ctrl-C in the terminal stops the tests and not the broker.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder, start_new_session=True
            )


def archive_options(version: str) -> list[str]:
    """JVM options for the class archive of this version, if there is one. The JVM ignores an outdated one."""
    archive = archive_path(version)
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds*=off"] if archive.exists() else []


def archive_path(version: str) -> Path:
    java = os.path.realpath(java_command())
    identity = hashlib.sha256(f"{java} {os.stat(java).st_mtime_ns}".encode()).hexdigest()[:12]
    return cache_folder() / f"kafka-{version}" / f"classes-{identity}.jsa"


def _base_properties(node: KafkaNode, voters: Sequence[KafkaNode]) -> dict[str, str]:
    replicas = str(len(voters))
    open_to_clients = f"PLAINTEXT://{HOST}:{node.port}"
    for name, port in node.more_ports.items():
        open_to_clients += f",{name}://{HOST}:{port}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{voter.node_id}@{HOST}:{voter.controller_port}" for voter in voters),
        "listeners": f"{open_to_clients},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": open_to_clients,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(f"{name}:{how}" for name, how in kafka_security.PROTOCOLS.items()),
        "log.dirs": str(node.data_path),
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1" if len(voters) == 1 else "2",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Tests create their topics; creating them on demand would hide a typo in a name.
        "auto.create.topics.enable": "false",
        # Records may have any timestamp, even of 1970; by default such a segment would be deleted within five minutes.
        "log.retention.ms": "-1",
        # A dead broker is detected in 4 s instead of 9 s; less would fence brokers that only wait for a CPU.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        # Nobody reads these metrics over JMX, and registering all of them takes a tenth of the start-up time.
        "metric.reporters": "",
        "auto.include.jmx.reporter": "false",
        # An empty record that every node fetches: twice a second it is a fifth of the CPU of an idle node.
        "metadata.max.idle.interval.ms": "5000",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": "4194304",
    }


_LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c - %m%n
"""


def wait_until_ready(nodes: Sequence[KafkaNode], timeout_s: float) -> None:
    """Until each of them accepts connections and sees all of them, itself too, as alive."""
    deadline = time.monotonic() + timeout_s
    for node in nodes:
        node.wait_until_open(deadline)
    numbers = {node.node_id for node in nodes}
    wait_until(
        lambda: all(numbers <= view_of(node.address).brokers for node in nodes),
        lambda: f"nodes {sorted(numbers)} know each other:\n{nodes[-1].log_tail()}",
        max(0.0, deadline - time.monotonic()),
        passing=(OSError,),
    )
