"""Spark applications in processes of their own: a driver with a local session, which a test can kill."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tools.quiet_spark import quiet_configuration
from tools.spark_jvm import QUICK_JVM, quick_settings
from tools.spark_python import quick_python

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
        "PYSPARK_PYTHON": quick_python(),
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
