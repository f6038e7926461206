"""Settings of Spark: of the running session, or else the defaults that a new one would have."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka_sink.frozen import frozen
from kafka_sink.operate.checks.finding import ProbeResult, ok, warn
from kafka_sink.spark.arrow_batches import (
    ARROW_BYTES,
    ARROW_ROWS,
    GOOD_BYTES,
    GOOD_ROWS,
    GOOD_SIZE,
    ROWS_DEFAULT,
)
from kafka_sink.version import VERSION

SOCKETS = "spark.python.unix.domain.socket.enabled"
PACKAGES = ("spark.submit.pyFiles", "spark.archives", "spark.yarn.dist.archives", "spark.files")
KILLS_IDLE, IDLE_S = "spark.python.worker.killOnIdleTimeout", "spark.python.worker.idleTimeoutSeconds"
# For so long a commit may wait for brokers.
LONG_COMMIT_S = 120
REDACTION = "spark.sql.redaction.string.regex"
HIDES_OPTIONS = r"(?s)options \{[^}]*\}"
# As Spark Connect writes an option of a request.
_SECRET = "0f1e2d3c"
_REQUEST = f'options {{\n    key: "kafka.sasl.password"\n    value: "{_SECRET}"\n  }}'
_UNITS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_OF_RELEASE = re.compile(r"pykafka[_-]sink-([0-9][0-9A-Za-z.]*?)(?:-py3-none-any)?\.(?:whl|zip|tar\.gz)")


@frozen
class SparkSettings:
    """`where`: the session, or the file of defaults."""

    session: Any | None
    defaults: Path | None

    @property
    def where(self) -> str:
        return "this session" if self.session is not None else str(self.defaults)

    def get(self, name: str) -> str | None:
        if self.session is None:
            return None if self.defaults is None else _default_of(self.defaults, name)
        found = self.session.conf.get(name, None)
        return None if found is None else str(found)


def spark_settings(session: Any | None, environment: Mapping[str, str]) -> SparkSettings | None:
    """None: there is neither a session nor a file of defaults."""
    defaults = None if session is not None else defaults_file(environment)
    return None if session is None and defaults is None else SparkSettings(session, defaults)


def sockets(session: Any | None, environment: Mapping[str, str]) -> Iterator[ProbeResult]:
    settings = spark_settings(session, environment)
    if settings is None:
        return
    if (settings.get(SOCKETS) or "false").lower() == "true":
        yield ok("sockets", f"rows come to Python over Unix domain sockets ({SOCKETS}=true)")
    else:
        text = f"rows come to Python over loopback TCP: {SOCKETS} is not true in {settings.where}"
        advice = f"set {SOCKETS}=true in the application's configuration (docs/performance.md)"
        yield warn("sockets", text, advice)


def arrow(session: Any | None, environment: Mapping[str, str]) -> Iterator[ProbeResult]:
    """Spark before 4.1 has no limit in bytes."""
    settings = spark_settings(session, environment)
    if settings is None:
        return
    rows = _number(settings.get(ARROW_ROWS) or "") or ROWS_DEFAULT
    limit = _bytes_of(settings.get(ARROW_BYTES) or "")
    if 0 < rows <= GOOD_ROWS:
        yield ok("arrow", f"Spark passes up to {rows} rows at a time ({ARROW_ROWS})")
    elif limit is not None and 0 < limit <= GOOD_BYTES:
        yield ok("arrow", f"Spark passes up to {limit >> 10} KiB of rows at a time ({ARROW_BYTES})")
    else:
        most = f"{limit >> 20} MiB" if limit else f"{rows} rows" if rows > 0 else "all rows of a task"
        advice = (
            f"for rows of several kilobytes set {ARROW_BYTES}={GOOD_SIZE}, before Spark 4.1 {ARROW_ROWS}={GOOD_ROWS}: "
            "0.94 instead of 0.74 of the speed of Spark's own sink with 10 kB (docs/performance.md)"
        )
        yield ok("arrow", f"Spark passes up to {most} at a time, which is slower with rows of 10 kB", advice)


def idle_workers(session: Any | None, environment: Mapping[str, str]) -> Iterator[ProbeResult]:
    """A commit or an abort sends nothing to Spark before its end."""
    settings = spark_settings(session, environment)
    if settings is None or (settings.get(KILLS_IDLE) or "false").lower() != "true":
        return
    idle_s = _seconds_of(settings.get(IDLE_S) or "")
    if idle_s is not None and 0 < idle_s < LONG_COMMIT_S:
        text = f"Spark kills Python processes that send nothing for {idle_s} s ({KILLS_IDLE} in {settings.where}),"
        text = f"{text} also in the middle of a commit or an abort"
        yield warn("idle workers", text, f"set {IDLE_S}={LONG_COMMIT_S} or more (docs/guides/clusters.md)")


def package(session: Any | None, environment: Mapping[str, str]) -> Iterator[ProbeResult]:
    """The release of this package here, and in the files that the application ships to its executors."""
    place = Path(__file__).parents[2]
    try:
        installed = importlib.metadata.version("pykafka-sink")
    except importlib.metadata.PackageNotFoundError:
        installed = VERSION  # from a zip
    if installed != VERSION:
        text = f"this process runs pykafka-sink {VERSION} from {place}, and pykafka-sink {installed} is installed"
        yield warn(
            "package", text, f"pip install --force-reinstall pykafka_sink-{VERSION}-py3-none-any.whl, or remove {place}"
        )
    settings = spark_settings(session, environment)
    named = "" if settings is None else ",".join(settings.get(name) or "" for name in PACKAGES)
    shipped = sorted({found[1] for found in map(_OF_RELEASE.search, named.split(",")) if found})
    others = [version for version in shipped if version != VERSION]
    if others:
        text = f"this process runs pykafka-sink {VERSION}, and the application ships {' and '.join(others)} to its"
        text = f"{text} executors: tasks with another release than the driver are refused"
        yield warn("package", text, f"ship pykafka_sink-{VERSION}, or use pykafka-sink {others[-1]} here")
    elif installed == VERSION:
        yield ok("package", f"pykafka-sink {VERSION}" + (", as the application ships it" if shipped else ""))


def hides_options(session: Any) -> bool:
    """Whether a server of Spark Connect hides the options of requests in event log and UI."""
    expression = str(session.conf.get(REDACTION, None) or "")
    try:
        return bool(expression) and _SECRET not in re.sub(expression, "***", _REQUEST)
    except re.error:
        return False  # of Java's grammar alone


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


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else None


def _seconds_of(text: str) -> int | None:
    """As Spark reads a time that is in seconds without a unit."""
    found = re.fullmatch(r"([0-9]+)(s|m|min|h)?", text.strip().lower())
    return None if found is None else int(found[1]) * {"m": 60, "min": 60, "h": 3600}.get(found[2], 1)


def _bytes_of(text: str) -> int | None:
    """As Spark reads a size: 4m, 4MB, 4194304."""
    found = re.fullmatch(r"([0-9]+)([kmgt]?)i?b?", text.strip().lower())
    return None if found is None else int(found[1]) << _UNITS[found[2]]
