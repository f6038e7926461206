"""The environment of the job on this machine: versions, and what is loaded from where."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.spark_settings import arrow, idle_workers, package, sockets, spark_home

PYARROW_MIN, PYSPARK_MIN, PYSPARK_MIN_OF_FORMAT, PYSPARK_MIN_OF_SOCKETS = (14, 0, 1), (3, 4), (4, 0), (4, 1)
FORMAT = 'format("pykafka-sink")'
FUNCTIONS = "kafka_sink.foreach_batch(options) and kafka_sink.write(frame, options)"
_PANDAS = "pip install 'pandas>=2.2,<3' (docs/guides/second-door.md)"
_ON_SPARK = "pip install 'pykafka-sink[spark]', or run this where the driver runs"


def environment(session: Any | None) -> Iterator[ProbeResult]:
    spark = _version_of("pyspark") or _version_of("pyspark-client")
    yield from versions(sys.version_info[:3], _version_of("pyarrow"), spark, missing_pandas())
    yield from package(session, os.environ)
    if session is not None:
        yield from server(spark, str(session.version))
    running = spark if session is None else str(session.version)
    if running is None or _numbers(running) >= PYSPARK_MIN_OF_SOCKETS:
        yield from sockets(session, os.environ)
    yield from arrow(session, os.environ)
    yield from idle_workers(session, os.environ)
    yield from pyspark_zip(os.environ)


def missing_pandas() -> str:
    """What PySpark says when it makes a `mapInArrow`, which asks for pandas; empty if it says nothing."""
    try:
        with warnings.catch_warnings():  # which PySpark 4.3 does of pandas 3
            warnings.simplefilter("ignore", FutureWarning)
            from pyspark.sql.pandas.utils import require_minimum_pandas_version

            require_minimum_pandas_version()
    except ImportError as error:
        return str(error)
    return ""


def versions(
    python: tuple[int, ...], pyarrow: str | None, pyspark: str | None, no_pandas: str = ""
) -> Iterator[ProbeResult]:
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
    elif no_pandas:
        has_format = _numbers(pyspark) >= PYSPARK_MIN_OF_FORMAT
        text = f"PySpark {pyspark}: {FORMAT} {'works' if has_format else 'needs PySpark 4.0'}, {FUNCTIONS} do not work"
        found = f"{text}: {no_pandas}"
        yield warn("pyspark", found, _PANDAS) if has_format else fail("pyspark", found, _PANDAS)
    elif _numbers(pyspark) < PYSPARK_MIN_OF_FORMAT:
        text = f"PySpark {pyspark}: {FUNCTIONS} work, {FORMAT} needs PySpark 4.0"
        yield ok("pyspark", text)
    else:
        yield ok("pyspark", f"PySpark {pyspark}: {FORMAT} works, and the functions, too")


def server(client: str | None, server: str) -> Iterator[ProbeResult]:
    """What the session runs: with Spark Connect it may be another Spark than the one installed here."""
    if client is None or _numbers(client)[:2] == _numbers(server)[:2]:
        return
    text = f"PySpark {client} here, and Spark {server} in the session"
    if _numbers(server) < PYSPARK_MIN:
        yield fail("pyspark", f"{text}: too old", "use Spark 3.4 or newer")
    elif _numbers(server) < PYSPARK_MIN_OF_FORMAT:
        text = f"{text}: {FORMAT} is unknown there, {FUNCTIONS} work"
        yield warn("pyspark", text, "write by these functions (docs/guides/second-door.md), or use Spark 4.0 or newer")
    else:
        advice = f"pip install 'pyspark=={server}', so that both are of one release"
        yield warn("pyspark", f"{text}: Python code is shipped between the two", advice)


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


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        module = sys.modules.get(package)  # a platform may include its own, unknown to pip
        return getattr(module, "__version__", None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]+", version)[:3])
