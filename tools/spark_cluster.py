"""A Spark standalone cluster for tests: one master and some workers, from the jars that pip installs with PySpark.

    with SparkCluster(workers=2) as spark:
        job = spark.submit("job.py", ["rows"], py_files=["pykafka_sink.zip"], conf={"spark.task.maxFailures": "4"})
        spark.kill(spark.executors()[0].process_id)
        print(job.wait())

The master listens on 127.0.0.1, the workers on 127.0.0.2, 127.0.0.3 and so on: Spark does not start a speculative copy
of a task on the host that already runs it. Where its processes live and how they end: jvm_cluster.py. Linux only.

JVMs are small and use the first compiler tier only: start-up counts here, throughput does not.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import kafka_watchdog
from tools.jvm_cluster import JvmCluster, SubmittedJob
from tools.kafka_node import free_port
from tools.spark_jvm import jars_first, quick_options, quick_settings, spark_home
from tools.spark_python import quick_python

MASTER_HOST = "127.0.0.1"

_EXECUTOR_CLASS = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"
_PYTHON_DAEMON = b"pyspark.daemon"


@dataclass(frozen=True, slots=True)
class Executor:
    process_id: int
    host: str
    executor_id: str
    application_id: str


class SparkCluster(JvmCluster[SubmittedJob]):
    """Workers are numbered from 1. When `with` or `open()` returns, all of them are registered at the master."""

    PREFIX = "pykafka-sink-spark-"
    LOGS = ("master/stderr", "worker-*/stderr")

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        conf: Mapping[str, str] | None = None,
        start_timeout_s: float = 300,
    ) -> None:
        super().__init__(start_timeout_s=start_timeout_s)
        self._worker_count = workers
        self._cores = cores
        self._conf = dict(conf or {})
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._gone: set[str] = set()
        self._port = 0
        self._web_port = 0

    def _start_processes(self) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        self._write_configuration()
        self._start_master(deadline)
        for number in range(1, self._worker_count + 1):
            self.start_worker(number)
        self._wait_for_workers(deadline)

    def heal(self) -> None:
        """Prepares the next test: ends jobs, resumes paused processes, starts missing workers, waits for them."""
        self._kill_jobs()
        for process_id in self._process_ids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGCONT)
        for number, worker in self._workers.items():
            if worker.poll() is not None:
                self.start_worker(number)
        deadline = time.monotonic() + self._start_timeout_s
        self._wait_for_workers(deadline)
        self._wait_until(lambda: not self.executors(), deadline - time.monotonic(), "every executor has ended")

    @property
    def master_url(self) -> str:
        return f"spark://{MASTER_HOST}:{self._port}"

    # Jobs

    def submit(
        self,
        script: str | Path,
        arguments: Sequence[str] = (),
        *,
        py_files: Sequence[str | Path] = (),
        files: Sequence[str | Path] = (),
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        properties_file: Path | None = None,
    ) -> SubmittedJob:
        """Starts spark-submit in client mode. `wait()` of the result waits for its end."""
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.master_url]
        if properties_file is not None:
            command += ["--properties-file", str(properties_file), "--load-spark-defaults"]
        for name, value in (conf or {}).items():
            command += ["--conf", f"{name}={value}"]
        for option, paths in (("--py-files", py_files), ("--files", files)):
            if paths:
                command += [option, ",".join(str(path) for path in paths)]
        folder = self._new_job_folder()
        ours = {**self._spark_environment(MASTER_HOST), **(environment or {})}
        process = self._start([*command, str(script), *arguments], folder, ours)
        self._jobs.append(SubmittedJob(process, folder))
        return self._jobs[-1]

    # Processes

    def worker_process_id(self, number: int) -> int:
        return self._workers[number].pid

    def start_worker(self, number: int) -> None:
        """Starts a worker, for the first time or after it was killed. It registers at the master a moment later."""
        host = self.host_of(number)
        # The master regards a dead worker as alive until the connection breaks.
        self._gone |= {worker["id"] for worker in self._known_workers() if worker["host"] == host}
        folder = self.folder / f"worker-{number}"
        command = [str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker"]
        command += ["--host", host, "--port", "0", "--webui-port", "0", "--work-dir", str(folder / "work")]
        command += ["--cores", str(self._cores), "--memory", "4g", self.master_url]
        self._workers[number] = self._start(command, folder, self._spark_environment(host))

    def host_of(self, number: int) -> str:
        return f"127.0.0.{number + 1}"

    def executors(self) -> list[Executor]:
        """The live executors, sorted by host. Empty before the first job and soon after the last one."""
        found = []
        for process_id in self._process_ids():
            words = kafka_watchdog.process_words(process_id, "cmdline")
            if _EXECUTOR_CLASS in words:
                facts = dict(itertools.pairwise(words))
                host, number, application = (
                    facts[name].decode() for name in (b"--hostname", b"--executor-id", b"--app-id")
                )
                found.append(Executor(process_id, host, number, application))
        return sorted(found, key=lambda executor: (executor.host, executor.process_id))

    def python_workers(self, executor: Executor | None = None) -> list[int]:
        """Ids of the Python processes that run tasks, of one executor or of all. They outlive a killed executor for a
        moment, so ask before you kill it."""
        daemons = {process_id for process_id in self._process_ids() if self._is_python_daemon(process_id)}
        tasks = sorted(process_id for process_id in daemons if _parent(process_id) in daemons)
        if executor is None:
            owners = {one.process_id for one in self.executors()}
        else:
            owners = {executor.process_id}
        return [process_id for process_id in tasks if _parent(_parent(process_id)) in owners]

    def kill(self, process_id: int) -> None:
        """SIGKILL, which also ends a paused process."""
        self._signal(process_id, signal.SIGKILL)
        for child in self._children:
            if child.pid == process_id:
                child.wait(30)

    def pause(self, process_id: int) -> None:
        """SIGSTOP: the process keeps its connections and does not answer."""
        self._signal(process_id, signal.SIGSTOP)

    def resume(self, process_id: int) -> None:
        self._signal(process_id, signal.SIGCONT)

    def alive_hosts(self) -> set[str]:
        """Hosts of the workers that the master regards as alive."""
        workers = self._known_workers()
        return {one["host"] for one in workers if one["state"] == "ALIVE" and one["id"] not in self._gone}

    def _signal(self, process_id: int, number: signal.Signals) -> None:
        if process_id not in self._process_ids():
            raise ValueError(f"process {process_id} is not a live one of this cluster")
        os.kill(process_id, number)

    def _process_ids(self) -> list[int]:
        return kafka_watchdog.processes_using(str(self.folder))

    def _is_python_daemon(self, process_id: int) -> bool:
        return _PYTHON_DAEMON in kafka_watchdog.process_words(process_id, "cmdline")

    def _known_workers(self) -> list[dict[str, str]]:
        """The master's data about each worker, including dead ones."""
        connection = http.client.HTTPConnection(MASTER_HOST, self._web_port, timeout=10)
        try:
            connection.request("GET", "/json/")
            workers: list[dict[str, str]] = json.loads(connection.getresponse().read())["workers"]
            return workers
        finally:
            connection.close()

    # Start-up

    def _start_master(self, deadline: float) -> None:
        self._port = free_port()
        self._web_port = free_port()
        command = [str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"]
        command += ["--host", MASTER_HOST, "--port", str(self._port), "--webui-port", str(self._web_port)]
        self._start(command, self.folder / "master", self._spark_environment(MASTER_HOST))
        self._wait_until(lambda: self._known_workers() == [], deadline - time.monotonic(), "the master answers")

    def _spark_environment(self, host: str) -> dict[str, str]:
        return {
            **self._environment(host, "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick_options(self.folder / "tmp"),
            "SPARK_DAEMON_CLASSPATH": jars_first(),
            "PYSPARK_PYTHON": quick_python(),
        }

    def _write_configuration(self) -> None:
        for name in ("conf", "local", "tmp"):
            (self.folder / name).mkdir()
        self._write_spark_defaults(
            {
                "spark.driver.memory": "512m",
                "spark.executor.memory": "512m",
                "spark.executor.cores": str(self._cores),
                **quick_settings(self.folder / "tmp"),
                "spark.driver.host": MASTER_HOST,
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.sql.shuffle.partitions": str(self._worker_count * self._cores),
                "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
                # Spark counts failures of an executor against the application and removes it after ten of them.
                "spark.deploy.maxExecutorRetries": "-1",
                **self._conf,
            }
        )
        (self.folder / "conf" / "log4j2.properties").write_text(_LOG4J)

    def _wait_for_workers(self, deadline: float) -> None:
        wanted = {self.host_of(number) for number in self._workers}
        left_s = deadline - time.monotonic()
        self._wait_until(lambda: wanted <= self.alive_hosts(), left_s, f"workers {sorted(wanted)} register")


def _parent(process_id: int) -> int:
    """0 if the process has ended."""
    stat = kafka_watchdog.process_stat(process_id)
    return int(stat[1]) if stat else 0


_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""
