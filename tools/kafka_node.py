"""One Apache Kafka process: its properties, its formatting, its JVM and the signals it gets.

Broker and controller in one process (KRaft, combined mode), everything on 127.0.0.1, small heap. The tuning is for
tests: start-up time counts, throughput does not. Two things make it quick, 1.3 s instead of 2.5 s and half the CPU:
only the first compiler tier, and a class archive (class data sharing), made once per version by starting and stopping
a throw-away node and kept beside the jars.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools import kafka_security
from tools.kafka_jars import cache_folder, cache_lock, class_path, jars, java_command
from tools.waiting import wait_until

HOST = "127.0.0.1"
# Quick to start, and without the file of counters that a JVM which is killed leaves behind; a benchmark passes its own.
FAST_START = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

# Below the kernel's range for outgoing connections: while a broker is down nobody may be given its port by chance.
_PORT_RANGE = range(15_000, 32_000)
_OURS: set[int] = set()
_PORT_LOCKS: list[int] = []


class NodeFailed(Exception):
    """A broker did not start; the text holds the end of its log."""


def free_port() -> int:
    """Ours until this process ends: brokers of several processes start at once, and one that is down keeps its port."""
    while True:
        port = random.SystemRandom().choice(_PORT_RANGE)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            if _reserve(port):
                return port


def _reserve(port: int) -> bool:
    """One byte of one file is locked for each port. The kernel takes the locks back when the process ends, however it
    ends; a child does not inherit them."""
    if port in _OURS:
        return False
    if not _PORT_LOCKS:
        cache_folder().mkdir(parents=True, exist_ok=True)
        # Never closed: with any handle of the file that is closed, all locks of the process go.
        _PORT_LOCKS.append(os.open(cache_folder() / "ports.lock", os.O_RDWR | os.O_CREAT, 0o666))
    try:
        fcntl.lockf(_PORT_LOCKS[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _OURS.add(port)
    return True


def new_cluster_id() -> str:
    # A leading "-" would be read as an option by Kafka's format tool, which happened once in 64 starts.
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


@dataclass
class KafkaNode:
    """A broker with a fixed id, port and data folder, through any number of starts."""

    version: str
    node_id: int
    port: int
    controller_port: int
    folder: Path
    jvm_options: tuple[str, ...] = FAST_START
    # Of further listeners, by their names.
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

    def write_properties(self, voters: Sequence[KafkaNode], properties: Mapping[str, object]) -> None:
        self.folder.mkdir(parents=True)
        rows = {**_base_properties(self, voters), **{name: str(value) for name, value in properties.items()}}
        text = "".join(f"{name}={value}\n" for name, value in rows.items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j.properties").write_text(_LOG4J)

    def start_formatting(
        self, cluster_id: str, features: Mapping[str, int], users: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._properties_path)]
        arguments += kafka_security.format_arguments(users)
        for name, level in features.items():
            arguments += ["--feature", f"{name}={level}"]
        return self._java(arguments, self.folder / "format.log", archive_options(self.version))

    def start(self) -> None:
        if self.is_running:
            raise ValueError(f"node {self.node_id} is running already")
        self.process = self._java(
            ["kafka.Kafka", str(self._properties_path)], self.log_path, archive_options(self.version)
        )
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
        """SIGKILL, which also ends a stopped process, and wait for the end. Harmless when there is no process."""
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

    @property
    def _properties_path(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, arguments: Sequence[str], log: Path, more_options: Sequence[str]) -> subprocess.Popen[bytes]:
        options = [
            *self.jvm_options,
            *more_options,
            f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        command = [java_command(), *options, "-cp", class_path(self.version), *arguments]
        with open(log, "ab") as output:
            # A session of its own: Ctrl-C in the terminal must stop the tests, not the broker under them.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder, start_new_session=True
            )


def format_nodes(
    nodes: Sequence[KafkaNode], features: Mapping[str, int], users: Mapping[str, str] | None = None
) -> None:
    """Write a new cluster's identity into every node's data folder, all at the same time."""
    cluster_id = new_cluster_id()
    running = [(node, node.start_formatting(cluster_id, features, users or {})) for node in nodes]
    for node, process in running:
        if process.wait(60) != 0:
            text = (node.folder / "format.log").read_text(errors="replace")
            raise NodeFailed(f"Apache Kafka {node.version} could not format node {node.node_id}:\n{text[-4000:]}")


def archive_options(version: str) -> list[str]:
    """JVM options that use the class archive of this version, if there is one. A stale one is ignored by the JVM."""
    archive = _archive_path(version)
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:cds=off"] if archive.exists() else []


def make_archive(version: str) -> None:
    """Make the class archive if it is not there: start a throw-away node, stop it, keep what the JVM wrote."""
    if _archive_path(version).exists():
        return
    jars(version)  # before the lock, which it may want itself
    with cache_lock(f"kafka-{version}"), tempfile.TemporaryDirectory(prefix="pykafka-sink-") as folder:
        if _archive_path(version).exists():
            return
        written = Path(folder) / "classes.jsa"
        options = (*FAST_START, f"-XX:ArchiveClassesAtExit={written}")
        node = KafkaNode(version, 1, free_port(), free_port(), Path(folder) / "node-1", FAST_START)
        node.write_properties([node], {})
        format_nodes([node], {})
        node.jvm_options = options
        node.start()
        try:
            node.wait_until_open(time.monotonic() + 60)
            node.signal(signal.SIGTERM)
            node.join(60)
        finally:
            node.kill()
        if written.exists():  # an older JVM cannot write one; brokers then start without
            final = _archive_path(version)
            temporary = final.with_suffix(".new")
            temporary.write_bytes(written.read_bytes())
            temporary.rename(final)


def _archive_path(version: str) -> Path:
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
        "log.dirs": str(node.folder / "data"),
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1" if len(voters) == 1 else "2",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A test says which topics exist; a topic that appears by asking for it would hide a typing error.
        "auto.create.topics.enable": "false",
        # Records may carry any timestamp, 1970 too; by default such a segment is deleted within five minutes.
        "log.retention.ms": "-1",
        # A dead broker is noticed in 4 s instead of 9 s; less would fence brokers that only wait for a CPU.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
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
