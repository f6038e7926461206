"""What Spark's standalone cluster and YARN's have in common as clusters for tests: processes of JVMs in one temporary
folder, and jobs.

All processes, including those that they start, are marked by a variable in their environment. Closing kills every one
of them and removes the folder, and a watchdog does the same if the owner dies first. Linux only.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from tools import kafka_watchdog
from tools.spark_jvm import QUICK_JVM, spark_home
from tools.waiting import wait_until
from tools.workspace import workspace

if TYPE_CHECKING:
    from typing_extensions import Self

_FOREIGN = ("SPARK_", "PYSPARK_", "_PYSPARK_", "HADOOP_", "YARN_")


class SparkFailed(Exception):
    """A job ended with an error, or did not end; the text contains the end of its log."""


class SubmittedJob:
    """A running spark-submit, which contains the driver."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def output(self) -> str:
        """The output of the script so far."""
        return (self.folder / "stdout").read_text(errors="replace")

    @property
    def log(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def check(self, awaited: str) -> None:
        """Raises if the job has ended; `awaited` says what was expected of it."""
        if not self.is_running:
            raise SparkFailed(f"the job has ended before {awaited}:\n{self.output}\n{self.log[-4000:]}")

    def wait(self, timeout_s: float = 400) -> str:
        """Waits until the script ends without an error, and returns its output."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise SparkFailed(
                f"the job has not ended after {timeout_s} s:\n{self.output}\n{self.log[-4000:]}"
            ) from None
        if code != 0:
            raise SparkFailed(f"the job ended with {code}:\n{self.output}\n{self.log[-4000:]}")
        return self.output

    def kill(self) -> None:
        """With all that its shell has started."""
        if self.is_running:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


JobT = TypeVar("JobT", bound=SubmittedJob)


class JvmCluster(ABC, Generic[JobT]):
    """When `with` or `open()` returns, the cluster takes jobs."""

    PREFIX: str
    # Logs of the cluster's own processes, by patterns in its folder.
    LOGS: Sequence[str]

    def __init__(self, *, start_timeout_s: float = 300) -> None:
        self._start_timeout_s = start_timeout_s
        self._folder: Path | None = None
        self._ends = contextlib.ExitStack()
        self._children: list[subprocess.Popen[bytes]] = []
        self._jobs: list[JobT] = []

    def __enter__(self) -> Self:
        if self._folder is None:
            self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        self._folder = self._ends.enter_context(workspace(self.PREFIX))
        try:
            self._start_processes()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _start_processes(self) -> None: ...

    def close(self) -> None:
        """Kills all processes that this cluster started, directly or not. Removes its folder. Safe to call twice."""
        self._folder = None
        self._ends.close()
        for child in self._children:
            child.wait(30)

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ValueError("the cluster is not open")
        return self._folder

    def _kill_jobs(self) -> None:
        for job in self._jobs:
            job.kill()

    def _new_job_folder(self) -> Path:
        return self.folder / f"job-{len(self._jobs) + 1}"

    def _start(
        self, command: Sequence[str], home: Path, environment: Mapping[str, str], work: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """`home` has its output and its log; it runs there, or in `work`."""
        home.mkdir(exist_ok=True)
        with open(home / "stdout", "ab") as output, open(home / "stderr", "ab") as log:
            process = subprocess.Popen(
                command,
                cwd=work or home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                # Own session, so that Ctrl-C in the terminal stops the tests and not the cluster.
                start_new_session=True,
            )
        self._children.append(process)
        return process

    def _environment(self, host: str, local_folder: str) -> dict[str, str]:
        """Our environment without the variables of another Spark or Hadoop, which a session in this process sets."""
        ours = {
            name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN) and name != "PYTHONPATH"
        }
        return {
            **ours,
            kafka_watchdog.MARK: str(self.folder),
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self.folder / local_folder),
            "SPARK_LOCAL_IP": host,
            "SPARK_LAUNCHER_OPTS": QUICK_JVM,
            "TMPDIR": str(self.folder / "tmp"),
        }

    def _write_spark_defaults(self, rows: Mapping[str, str]) -> None:
        text = "".join(f"{name} {value}\n" for name, value in rows.items())
        (self.folder / "conf" / "spark-defaults.conf").write_text(text)

    def _wait_until(self, is_true: Callable[[], object], timeout_s: float, what: str) -> None:
        passing = (OSError, http.client.HTTPException, json.JSONDecodeError)
        # Checks only four times a second, because each check takes CPU from the JVMs that are starting.
        wait_until(is_true, lambda: f"{what}\n{self._log_tails()}", timeout_s, passing=passing, poll_s=0.25)

    def _log_tails(self) -> str:
        logs = [log for pattern in self.LOGS for log in sorted(self.folder.glob(pattern))]
        return "\n".join(f"{log.parent.name}: {log.read_text(errors='replace')[-3000:]}" for log in logs)
