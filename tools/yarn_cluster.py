"""A YARN cluster for tests: one ResourceManager and one NodeManager, from the jars of Hadoop's own mini cluster.

    with YarnCluster() as yarn:
        job = yarn.run("spark-submit --master yarn --deploy-mode cluster job.py", folder)
        yarn.kill(yarn.application_masters()[0])
        job.wait()

Everything listens on 127.0.0.1. The default file system is the local one, so that input, checkpoints and Spark's
staging folder need no HDFS. Spark is PySpark's, whose jars contain YARN's client. As on a real cluster, a container
works in a folder of its own and inherits no environment; YARN adds the mark by which its processes are found.

Where its processes live and how they end, also those in containers: jvm_cluster.py. Linux only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tools import kafka_watchdog
from tools.jvm_cluster import JvmCluster, SubmittedJob
from tools.kafka_jars import Artifact, fetch_jars, java_command
from tools.kafka_node import HOST, free_port
from tools.spark_jvm import QUICK_JVM, jars_first, quick_options, spark_home

HADOOP_VERSION = "3.5.0"
_WANTED = (
    Artifact("org.apache.hadoop", "hadoop-client-minicluster", HADOOP_VERSION),
    # The jar of the mini cluster leaves these out, and the ResourceManager does not start without them.
    Artifact("org.bouncycastle", "bcprov-jdk18on", "1.82"),
    Artifact("org.bouncycastle", "bcpkix-jdk18on", "1.82"),
    Artifact("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
_MANAGERS = "org.apache.hadoop.yarn.server"
_MEMORY_MB, _CORES = 4096, 4
# The first container of an attempt is its ApplicationMaster.
_CONTAINER = re.compile(r"container_(?:e\d+_)?(?P<application>\d+_\d+)_(?P<attempt>\d+)_(?P<number>\d+)")


def hadoop_jars() -> list[Path]:
    return fetch_jars(f"hadoop-minicluster-{HADOOP_VERSION}", _WANTED)


@dataclass(frozen=True, slots=True)
class Container:
    name: str
    application_id: str
    attempt: int
    is_master: bool
    # The shells that start it, the JVM and its Python processes.
    process_ids: tuple[int, ...]


class YarnJob(SubmittedJob):
    """A shell that runs spark-submit. With `--deploy-mode cluster` it lasts as long as the application."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, containers: Path) -> None:
        super().__init__(process, folder)
        self._containers = containers

    @property
    def log(self) -> str:
        """That of spark-submit, and the ends of what the containers of all applications have written."""
        logs = [super().log, *(f"{log.parent.name}/{log.name}: {_end(log)}" for log in self._container_logs())]
        return "\n".join(logs)

    def _container_logs(self) -> list[Path]:
        """Those of the drivers last: an error shows the end."""
        found = self._containers.glob("application_*/container_*/std*")
        return sorted(found, key=lambda log: (_container(log.parent.name, []).is_master, str(log)))


def _end(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:]


class YarnCluster(JvmCluster[YarnJob]):
    """When `with` or `open()` returns, the NodeManager is registered at the ResourceManager."""

    PREFIX = "pykafka-sink-yarn-"
    LOGS = ("*Manager/stderr",)

    def __init__(self, *, start_timeout_s: float = 300) -> None:
        super().__init__(start_timeout_s=start_timeout_s)
        self._ports = {name: free_port() for name in (*_RESOURCE_MANAGER_PORTS, *_NODE_MANAGER_PORTS)}

    def _start_processes(self) -> None:
        jars = hadoop_jars()
        self._write_configuration()
        for manager in ("resourcemanager.ResourceManager", "nodemanager.NodeManager"):
            self._start_manager(manager, jars)
        self._wait_until(self._has_node, self._start_timeout_s, "the NodeManager registers")

    def heal(self) -> None:
        """Prepares the next test: ends jobs and applications."""
        self._kill_jobs()
        for application in self._applications():
            if application["finalStatus"] == "UNDEFINED":
                self._ask("PUT", f"apps/{application['id']}/state", {"state": "KILLED"})
        self._wait_until(lambda: not self.containers(), 60, "every container has ended")

    # Jobs

    def run(self, commands: str, folder: Path) -> YarnJob:
        """Starts a shell with these commands in `folder`, with Spark's commands in its path."""
        home = self._new_job_folder()
        process = self._start(["bash", "-ec", commands], home, self._yarn_environment(), folder)
        self._jobs.append(YarnJob(process, home, self.folder / "logs"))
        return self._jobs[-1]

    def attempts(self) -> int:
        """How often YARN has started the newest application."""
        newest = max(self._applications(), key=lambda application: application["startedTime"])
        return len(self._ask("GET", f"apps/{newest['id']}/appattempts")["appAttempts"]["appAttempt"])

    # Processes

    def containers(self) -> list[Container]:
        """The live ones, sorted by name."""
        found: dict[str, list[int]] = {}
        for process_id in kafka_watchdog.processes_marked(str(self.folder)):
            for word in kafka_watchdog.process_words(process_id, "environ"):
                name, _, value = word.decode(errors="replace").partition("=")
                if name == "CONTAINER_ID":
                    found.setdefault(value, []).append(process_id)
        return [_container(name, process_ids) for name, process_ids in sorted(found.items())]

    def application_masters(self) -> list[Container]:
        """With `--deploy-mode cluster` they contain the driver."""
        return [container for container in self.containers() if container.is_master]

    def kill(self, container: Container) -> None:
        """SIGKILL to all processes of a container. They are frozen first: otherwise one of them acts on the death of
        another, and the NodeManager, which waits for the first, tells the JVM to end in order."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process_id in container.process_ids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, number)

    # Start-up

    def _start_manager(self, manager: str, jars: list[Path]) -> None:
        class_path = os.pathsep.join([str(self.folder / "conf"), *map(str, jars)])
        options = f"-Xmx256m {QUICK_JVM} -Djava.io.tmpdir={self.folder / 'tmp'}".split()
        # Hadoop's dependency injection makes classes at run time.
        options.append("--add-opens=java.base/java.lang=ALL-UNNAMED")
        home = self.folder / manager
        command = [java_command(), *options, "-cp", class_path, f"{_MANAGERS}.{manager}"]
        self._start(command, home, self._yarn_environment(), self.folder)

    def _yarn_environment(self) -> dict[str, str]:
        ours = self._environment(HOST, "tmp")
        return {
            **ours,
            # Without it YARN's launch script looks for Java in /bin.
            "JAVA_HOME": str(Path(os.path.realpath(java_command())).parents[1]),
            "HADOOP_CONF_DIR": str(self.folder / "conf"),
            "PATH": os.pathsep.join([ours["PATH"], str(spark_home() / "bin")]),
        }

    def _write_configuration(self) -> None:
        for name in ("conf", "tmp", "logs"):
            (self.folder / name).mkdir()
        conf = self.folder / "conf"
        (conf / "core-site.xml").write_text(_xml({"fs.defaultFS": "file:///"}))
        (conf / "yarn-site.xml").write_text(_xml(self._yarn_settings()))
        (conf / "log4j.properties").write_text(_LOG4J)
        self._write_spark_defaults(_spark_settings(self.folder))

    def _yarn_settings(self) -> dict[str, str]:
        return {
            **{f"yarn.{name}": f"{HOST}:{port}" for name, port in self._ports.items()},
            "yarn.nodemanager.hostname": HOST,
            "yarn.nodemanager.resource.memory-mb": str(_MEMORY_MB),
            "yarn.nodemanager.resource.cpu-vcores": str(_CORES),
            "yarn.nodemanager.local-dirs": str(self.folder / "local"),
            "yarn.nodemanager.log-dirs": str(self.folder / "logs"),
            "yarn.nodemanager.admin-env": f"{kafka_watchdog.MARK}={self.folder}",
            # A full disk of the machine is not what is tested.
            "yarn.nodemanager.disk-health-checker.enable": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.pmem-check-enabled": "false",
            # It needs no file with queues.
            "yarn.resourcemanager.scheduler.class": f"{_MANAGERS}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
            "hadoop.tmp.dir": str(self.folder / "tmp"),
        }

    def _has_node(self) -> bool:
        nodes = (self._ask("GET", "nodes")["nodes"] or {}).get("node", [])
        return [node["state"] for node in nodes] == ["RUNNING"]

    def _applications(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (self._ask("GET", "apps")["apps"] or {}).get("app", [])
        return found

    def _ask(self, method: str, what: str, body: object = None) -> Any:
        """The ResourceManager's answer."""
        connection = http.client.HTTPConnection(HOST, self._ports["resourcemanager.webapp.address"], timeout=30)
        user = os.environ.get("USER") or Path.home().name
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            connection.request(method, f"/ws/v1/cluster/{what}?user.name={user}", json.dumps(body), headers)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


_RESOURCE_MANAGER_PORTS = (
    "resourcemanager.address",
    "resourcemanager.scheduler.address",
    "resourcemanager.resource-tracker.address",
    "resourcemanager.admin.address",
    "resourcemanager.webapp.address",
)
_NODE_MANAGER_PORTS = ("nodemanager.address", "nodemanager.localizer.address", "nodemanager.webapp.address")


def _spark_settings(folder: Path) -> dict[str, str]:
    """Small containers and quick JVMs. `java.io.tmpdir` of a container is left as YARN sets it."""
    quick = quick_options(folder / "tmp").replace(f" -Djava.io.tmpdir={folder / 'tmp'}", "")
    return {
        # Otherwise half a gigabyte of jars is copied for each application.
        "spark.yarn.jars": f"local:{jars_first()}",
        "spark.yarn.stagingDir": f"file://{folder / 'staging'}",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.driver.extraJavaOptions": quick,
        "spark.executor.extraJavaOptions": quick,
        "spark.yarn.am.extraJavaOptions": quick,
        "spark.driver.extraClassPath": jars_first(),
        "spark.executor.extraClassPath": jars_first(),
        "spark.sql.shuffle.partitions": "2",
        # It passes this on to the executors.
        "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": HOST,
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }


def _container(name: str, process_ids: list[int]) -> Container:
    match = _CONTAINER.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is no name of a container")
    application_id = f"application_{match['application']}"
    return Container(name, application_id, int(match["attempt"]), int(match["number"]) == 1, tuple(process_ids))


def _xml(rows: Mapping[str, str]) -> str:
    properties = "\n".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in rows.items()
    )
    return f"<configuration>\n{properties}\n</configuration>\n"


_LOG4J = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p %c{1}: %m%n
"""
