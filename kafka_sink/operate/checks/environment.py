"""The environment of the job on this machine: versions, and settings that slow down Spark's Python side."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn

PYARROW_MIN, PYSPARK_MIN, PYSPARK_MIN_OF_FORMAT = (14, 0, 1), (3, 4), (4, 0)
SOCKETS = "spark.python.unix.domain.socket.enabled"
_ON_SPARK = "pip install 'pykafka-sink[spark]', or run this where the driver runs"


def environment(session: Any | None) -> Iterator[ProbeResult]:
    spark = _version_of("pyspark") or _version_of("pyspark-client")
    yield from versions(sys.version_info[:3], _version_of("pyarrow"), spark)
    yield from sockets(session, os.environ)
    yield from pyspark_zip(os.environ)


def versions(python: tuple[int, ...], pyarrow: str | None, pyspark: str | None) -> Iterator[ProbeResult]:
    """`None`: not installed."""
    yield ok("python", f"Python {'.'.join(map(str, python))}")
    minimum = ".".join(map(str, PYARROW_MIN))
    if pyarrow is None or _numbers(pyarrow) < PYARROW_MIN:
        yield fail("pyarrow", f"pyarrow {pyarrow or 'is not installed'}", f"pip install 'pyarrow>={minimum}'")
    else:
        yield ok("pyarrow", f"pyarrow {pyarrow}")
    if pyspark is None:
        yield warn("pyspark", "PySpark is not installed in this Python", _ON_SPARK)
    elif _numbers(pyspark) < PYSPARK_MIN:
        yield fail("pyspark", f"PySpark {pyspark} is too old", "use PySpark 3.4 or newer")
    elif _numbers(pyspark) < PYSPARK_MIN_OF_FORMAT:
        text = (
            f"PySpark {pyspark}: kafka_sink.foreach_batch(options) and kafka_sink.write(frame, options) work, "
            'format("pykafka-sink") needs PySpark 4.0'
        )
        yield ok("pyspark", text)
    else:
        yield ok("pyspark", f"PySpark {pyspark}")


def sockets(session: Any | None, environment: Mapping[str, str]) -> Iterator[ProbeResult]:
    """Reads the running session, else the defaults for a new one. No result without either."""
    if session is not None:
        value, where = str(session.conf.get(SOCKETS, "false")), "this session"
    else:
        path = defaults_file(environment)
        if path is None:
            return
        value, where = _default_of(path, SOCKETS) or "false", str(path)
    if value.lower() == "true":
        yield ok("sockets", f"rows come to Python over Unix domain sockets ({SOCKETS}=true)")
    else:
        text = f"rows come to Python over loopback TCP: {SOCKETS} is not true in {where}"
        advice = f"set {SOCKETS}=true in the application's configuration (docs/performance.md)"
        yield warn("sockets", text, advice)


def pyspark_zip(environment: Mapping[str, str]) -> Iterator[ProbeResult]:
    home = spark_home(environment)
    if home is None:
        return
    path = home / "python" / "lib" / "pyspark.zip"
    if not path.exists():
        yield ok("pyspark.zip", "Python workers load PySpark from its folder")
        return
    text = f"Python workers load PySpark from {path}, and compile it anew in each process"
    advice = (
        "in an image that has PySpark in site-packages as well, remove this file: first writes are faster "
        "(docs/performance.md)"
    )
    yield ok("pyspark.zip", text, advice)


def active_session() -> Any | None:
    if "pyspark" not in sys.modules:
        return None  # there is none in this process
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def spark_home(environment: Mapping[str, str]) -> Path | None:
    if environment.get("SPARK_HOME"):
        return Path(environment["SPARK_HOME"])
    try:
        found = importlib.metadata.distribution("pyspark").locate_file("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None
    return Path(str(found)) if Path(str(found)).is_dir() else None


def defaults_file(environment: Mapping[str, str]) -> Path | None:
    folder = environment.get("SPARK_CONF_DIR")
    home = spark_home(environment)
    path = Path(folder) if folder else home / "conf" if home is not None else None
    path = None if path is None else path / "spark-defaults.conf"
    return path if path is not None and path.is_file() else None


def _default_of(path: Path, name: str) -> str | None:
    found = None
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.replace("=", " ", 1).split(None, 1)
        if len(words) == 2 and words[0] == name:
            found = words[1].strip()  # of several lines Spark uses the last one
    return found


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        module = sys.modules.get(package)  # a platform may include its own, unknown to pip
        return getattr(module, "__version__", None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", version)[:3])
