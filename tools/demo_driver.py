"""The Spark application of the demo as a process that can be killed, and the most critical moment to kill it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools import kafka_watchdog
from tools.kafka_jars import java_command
from tools.spark_jvm import QUICK_JVM, quick_settings, spark_home

ROOT = Path(__file__).parent.parent
JOB = ROOT / "spark_jobs" / "demo.py"
CONF = ROOT / "conf" / "spark-defaults-local.conf"
# What spark_jobs/demo.py prints when its query runs.
STARTED = "the query has started"
SLICE_S = 0.005
# The path of a Unix domain socket has at most 107 characters, and Spark's file name takes up to 50 of them. A folder
# for temporary files may have a long path.
FOLDER_OF_SOCKETS_MAX = 55
# Records that a decision adds to the ledger.
DECIDED = 2


class DriverFailed(Exception):
    """The Spark application ended with an error; the text holds the end of its log."""


class Driver:
    """spark-submit on this machine. Its files are below `folder`, which also marks every process that it starts."""

    def __init__(self, folder: Path, arguments: list[str]) -> None:
        self._folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "driver.log"
        self._output = folder / "driver.out"
        (folder / "tmp").mkdir()
        java_command()  # without Java its error says what to install; that of spark-submit does not

    def start(self) -> None:
        submit = spark_home() / "bin" / "spark-submit"
        command = [str(submit), "--properties-file", str(CONF)]
        for name, value in {**quick_settings(self._folder / "tmp"), "spark.ui.enabled": "false"}.items():
            command += ["--conf", f"{name}={value}"]
        if len(str(self._folder)) > FOLDER_OF_SOCKETS_MAX:
            command += ["--conf", "spark.python.unix.domain.socket.enabled=false"]
        command += ["--conf", "spark.log.level=ERROR", str(JOB), *self._arguments]
        with open(self._output, "wb") as output, open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                # Own session, so that Ctrl-C reaches only the demo, which then ends this process.
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_streaming(self) -> bool:
        """True from the start of the query on."""
        return STARTED in self._output.read_text()

    def check(self) -> None:
        """Raises if it has ended with an error."""
        if self._process is not None and self._process.poll() not in (None, 0):
            tail = self._log.read_text(errors="replace")[-4000:]
            raise DriverFailed(f"the Spark application ended with {self._process.returncode}:\n{tail}")

    def pause(self) -> None:
        """SIGSTOP; returns when all processes are stopped."""
        for process_id in self._signal(signal.SIGSTOP):
            while not _is_stopped(process_id):
                time.sleep(0.0005)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to the JVM, the script and all of Spark's Python processes, as if the machine had lost power."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(30)
            self._process = None

    def _signal(self, number: signal.Signals) -> list[int]:
        """Signals the process group, and the Python workers, which have their own groups."""
        if self._process is None:
            return []
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        found = [self._process.pid, *kafka_watchdog.processes_marked(str(self._folder))]
        for process_id in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, number)
        return found

    def _environment(self) -> dict[str, str]:
        """Our environment, without the variables of another Spark."""
        ours = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYSPARK_", "_PYSPARK_"))
        }
        return {
            **ours,
            kafka_watchdog.MARK: str(self._folder),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_LAUNCHER_OPTS": QUICK_JVM,
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(self._folder / "tmp"),
        }


def _is_stopped(process_id: int) -> bool:
    stat = kafka_watchdog.process_stat(process_id)
    return not stat or stat[0] in "TtZ"


class MomentToKill:
    """A moment in the middle of a commit: the ledger has the decision to commit a micro-batch, but no record that this
    is done.

    This state lasts milliseconds. So while a micro-batch runs, the driver runs in slices and is stopped between them to
    read the end of the ledger: a decision is two records (one is a marker), its end two more. The command that an
    operator would use then shows whether a decision is open.
    """

    def __init__(self, checkpoint: Path, ledger_end: Callable[[], int], is_open: Callable[[], bool]) -> None:
        self._checkpoint = checkpoint
        self._ledger_end = ledger_end
        self._is_open = is_open

    def kills(self, driver: Driver, *, is_late: bool = False) -> bool:
        """Watches one micro-batch until its end or until the moment; `is_late`: any moment of it will do. True if the
        driver was killed."""
        batch_id = newest(self._checkpoint / "offsets")
        if batch_id is None or self._is_committed(batch_id):
            return False
        if is_late:
            driver.kill()
            return True
        before = self._ledger_end()
        while not self._is_committed(batch_id) and driver.is_running:
            driver.pause()
            has_grown = self._ledger_end() >= before + DECIDED
            if has_grown and self._is_open():
                driver.kill()
                return True
            driver.resume()
            if has_grown:
                return False
            time.sleep(SLICE_S)
        return False

    def _is_committed(self, batch_id: int) -> bool:
        return (self._checkpoint / "commits" / str(batch_id)).exists()


def newest(folder: Path) -> int | None:
    """The highest micro-batch that has a file. Names of unfinished files are not numbers."""
    with contextlib.suppress(FileNotFoundError):
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=None)
    return None
