"""A local Spark session for tools with their own output: classic, or Spark Connect with its own server.

The output of the JVM and its Python processes goes to a file: a stop during a batch prints a page of stack traces. The
reason for the end of a query is taken from the query itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.spark_jvm import QUICK_JVM, quick_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
# A failed task is retried three times; a plain local[N] would not retry it.
ATTEMPTS = 4


@contextmanager
def quiet_session(
    folder: Path, log: Path, *, cores: int, is_connect: bool, conf: Mapping[str, str]
) -> Iterator[SparkSession]:
    """All of its files are below `folder`, except `log`."""
    from pyspark.sql import SparkSession

    _set_environment(folder, is_connect=is_connect)
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        **quick_settings(folder),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    # Any: each call of a builder returns another type.
    builder: Any = SparkSession.builder.appName("pykafka-sink")
    master = f"local[{cores},{ATTEMPTS}]"
    builder = SparkSession.builder.remote(master) if is_connect else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _errors_go_to(log):
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def quiet_configuration(folder: Path) -> Path:
    """A folder for SPARK_CONF_DIR. Spark's default prints warnings, and the stack of every error that a test causes."""
    folder.mkdir(parents=True)
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = fatal\n"
        "rootLogger.appenderRef.stderr.ref = console\n"
        "appender.console.type = Console\n"
        "appender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex\n"
    )
    return folder


def _set_environment(folder: Path, *, is_connect: bool) -> None:
    # Workers run this interpreter, and import the package and the tool from the same paths as this process.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JVM
    os.environ["SPARK_CONF_DIR"] = str(quiet_configuration(folder / "conf"))
    if is_connect:
        # PySpark's own switch for a server on a port that the system chooses.
        os.environ["SPARK_TESTING"] = "1"


@contextmanager
def _errors_go_to(log: Path) -> Iterator[None]:
    """Redirects standard error to `log`. Processes started meanwhile keep it; this process does not."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
