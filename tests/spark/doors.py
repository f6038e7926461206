"""Spark as users enter it: spark-submit, Spark Connect, spark-sql, the Thrift server; each with all of its output kept.

Every process logs at DEBUG what concerns the sink, and at INFO the rest. The folders below `place` hold what Spark
writes: event logs, logs of driver, server, client and Python workers, pages of the UI.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.kafka_node import free_port
from tools.spark_jvm import QUICK_JVM, jars_first, quick_options, spark_home
from tools.spark_python import quick_python
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).parent / "jobs" / "doors.py"
PATIENCE_S = 500
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
THRIFT_SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


class Door:
    """One Spark application in local mode. `place` is a new folder."""

    def __init__(self, place: Path, environment: Mapping[str, str] | None = None, **settings: str) -> None:
        self.place = place
        self.ui = free_port()
        self._more = dict(environment or {})
        for name in ("conf", "site", "events", "pages", "tmp", "out"):
            (place / name).mkdir(parents=True)
        # Every Python process reads this at its start, also those of tasks.
        (place / "site" / "sitecustomize.py").write_text(
            "import logging\nlogging.basicConfig(level=logging.INFO)\n"
            "logging.getLogger('kafka_sink').setLevel(logging.DEBUG)\n"
        )
        rows = {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"{quick_options(place / 'tmp')} -Dderby.system.home={place / 'tmp'}",
            "spark.driver.extraClassPath": jars_first(),
            "spark.local.dir": str(place / "tmp"),
            "spark.sql.warehouse.dir": str(place / "tmp" / "warehouse"),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.shuffle.partitions": "2",
            # Otherwise plans show no more than the first 25 options.
            "spark.sql.debug.maxToStringFields": "1000",
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.ui),
            "spark.ui.showConsoleProgress": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(place / "events"),
            "spark.eventLog.compress": "false",
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        (place / "conf" / "spark-defaults.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in rows.items())
        )

    @property
    def environment(self) -> dict[str, str]:
        ours = {
            name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "_PYSPARK"))
        }
        return {
            **ours,
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(self.place / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LAUNCHER_OPTS": QUICK_JVM,
            "PYSPARK_PYTHON": quick_python(),
            "PYTHONPATH": os.pathsep.join((str(self.place / "site"), str(ROOT), *_more_paths())),
            **self._more,
        }

    def run(self, name: str, *command: str) -> str:
        """Returns the output, which is kept as well."""
        with self._started(name, command) as process:
            code = process.wait(PATIENCE_S)
        output = (self.place / "out" / f"{name}.stdout").read_text(errors="replace")
        log = (self.place / "out" / f"{name}.stderr").read_text(errors="replace")
        assert code == 0, f"{output[-3000:]}\n{log[-6000:]}"
        return output

    def run_job(self, name: str, order: Mapping[str, Any], *, remote: str = "", under: Sequence[str] = ()) -> str:
        """`jobs/doors.py` with this order."""
        path = self.place / "tmp" / f"order-{name}.json"
        whole = {"ui": self.ui, "pages": str(self.place / "pages"), "local": str(self.place / "tmp"), "remote": remote}
        path.write_text(json.dumps({**order, **whole}))
        start = under or [sys.executable]
        try:
            return self.run(name, *start, str(JOB), str(path))
        finally:
            path.unlink()

    def fetch(self, path: str) -> None:
        """A page of the UI."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ui}{path}", timeout=60) as answer:
            (self.place / "pages" / path.replace("/", "-")).write_bytes(answer.read())

    @contextmanager
    def server(self, kind: str, port_setting: str) -> Iterator[int]:
        """A server that spark-submit starts, at this port, until the block ends."""
        port = free_port()
        submit = (str(spark_home() / "bin" / "spark-submit"), "--class", kind, "--conf", f"{port_setting}={port}")
        with self._started("server", (*submit, "spark-internal")) as process:
            log = self.place / "out" / "server.stderr"
            wait_until(lambda: _listens(port) or process.poll() is not None, "the server listens", PATIENCE_S)
            assert process.poll() is None, log.read_text(errors="replace")[-4000:]
            yield port
            process.terminate()
            process.wait(PATIENCE_S)

    @contextmanager
    def _started(self, name: str, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        out = self.place / "out"
        with open(out / f"{name}.stdout", "wb") as output, open(out / f"{name}.stderr", "wb") as log:
            process = subprocess.Popen(
                command, cwd=self.place / "tmp", env=self.environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=log, start_new_session=True,
            )  # fmt: skip
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait(PATIENCE_S)

    def outputs(self) -> dict[str, bytes]:
        """What Spark wrote, without its temporary files, which go when it ends."""
        kept = [path for name in ("events", "pages", "out") for path in (self.place / name).rglob("*")]
        return {str(path.relative_to(self.place)): path.read_bytes() for path in kept if path.is_file()}


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _more_paths() -> list[str]:
    """Of a PySpark that is not installed in this interpreter's own folders."""
    return [str(spark_home().parent)] if str(spark_home().parent) in sys.path else []
