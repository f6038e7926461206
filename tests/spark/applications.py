"""Spark applications in processes of their own: a driver with a local session, which a test can kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from tools.driver_processes import driver_processes, kill
from tools.kafka_watchdog import process_stat
from tools.quiet_spark import quiet_configuration
from tools.spark_jvm import QUICK_JVM, quick_settings
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]


def start_application(
    job: Path, arguments: Sequence[str], folder: Path, number: int, *, package: Path = ROOT, stdin: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    """Its process group has the JVM, and not the Python processes that Spark starts. `package` is the folder that
    contains `kafka_sink`. What the application prints is in `output-N` and `errors-N`."""
    conf = quiet_configuration(folder / f"conf-{number}")
    settings = quick_settings(conf)
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {
        **os.environ,
        "PYTHONPATH": str(package),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        "SPARK_CONF_DIR": str(conf),
    }
    with (folder / f"output-{number}").open("wb") as output, (folder / f"errors-{number}").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, str(job), *arguments],
            stdin=stdin,
            stdout=output,
            stderr=errors,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )


def kill_application(process: subprocess.Popen[bytes]) -> None:
    """All that writes to brokers for the driver, and its JVM; when this returns they are dead. The processes with which
    Spark commits have a group of their own, and would finish a commit without the JVM. They are killed while the JVM is
    stopped and starts no other ones. The Python processes of tasks find out by themselves."""
    _signal_group(process, signal.SIGSTOP)
    committing = driver_processes(owner=process.pid)
    for process_id in committing:
        kill(process_id)
    _signal_group(process, signal.SIGKILL)
    process.wait(60)
    wait_until(lambda: not any(map(_is_running, committing)), "the processes that commit are dead")


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _is_running(process_id: int) -> bool:
    return process_stat(process_id)[:1] not in ([], ["Z"])
