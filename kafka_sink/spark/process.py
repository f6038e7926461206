"""Which process this is, one of Spark's for Python code or the user's own, the log of Spark's, and a clock that all
processes on one host share.

Until a write is called from a user's code, this package runs in Spark's processes only: they have no log of their own,
their environment is Spark's, and most of them end with the first exception. A user's process (a script, a notebook's
kernel, a client of Spark Connect) is none of these. A worker of Spark Connect for foreachBatch is Spark's, but lives as
long as its query, and the user's function may catch an exception and go on.

Spark starts its processes without configuring logging: without `show_log` the line per batch would be lost. Existing
logging configuration (from a sitecustomize, for example) is kept. In a user's own process logging is the user's: a
library that adds a handler there would have its lines printed twice, or where nobody wants them.

Spark plans and commits in different processes. The time between the two is the only one that includes all of a write
and needs neither the clocks of brokers nor those of executors. Its clock counts on while the host sleeps. Where the
kernel tells no id of its boot (no Linux), or another id, no time is told: processes that read the same id read the same
clock.

Assumptions, for PySpark 3.4 to 4.3: the JVM tells each Python process that it starts how to reach it
(`PythonWorkerFactory`), in variables with one prefix; its daemon gets the module of its workers as an argument
(`pyspark/daemon.py`); the workers in `ENDING` end after they have sent an exception to the JVM. A worker that plans and
commits is called once, in one thread; its process waits for the next call, with its other threads, if the daemon has
forked it and the variable of `spark.python.worker.reuse` is set, and ends otherwise.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from kafka_sink.commit.receipt import HostMoment
from kafka_sink.kafka.io.clock import boot_ns
from kafka_sink.kafka.io.per_process import PerProcess

# Prefix of the variables that tell how to reach the JVM.
FACTORY = "PYTHON_WORKER_FACTORY_"
DAEMON, TASK = "pyspark.daemon", "pyspark.worker"
# A task's worker, and those that plan and commit.
ENDING = (TASK, "pyspark.sql.worker.")
STREAM_COMMITS = "pyspark.sql.worker.python_streaming_sink_runner"
REUSE = "SPARK_REUSE_WORKER"
_LOGGER = logging.getLogger("kafka_sink")
LOCK = PerProcess(threading.Lock)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def is_sparks() -> bool:
    """The JVM started it, or a process that the JVM started."""
    return any(name.startswith(FACTORY) for name in os.environ)


def ends_with_exception() -> bool:
    """A process of Spark's in which nothing runs after an exception has left what Spark called."""
    return _worker_module().startswith(ENDING)


def is_for_stream_commits() -> bool:
    """Spark plans each commit and abort of a stream anew here, and starts no task with that plan."""
    return _worker_module() == STREAM_COMMITS


def lives_on() -> bool:
    """It goes on, with all of its threads, when what Spark has called returns."""
    return not ends_with_exception() or (_main_module() == DAEMON and REUSE in os.environ)


def _main_module() -> str:
    specification = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if specification is None else str(specification.name)


def _worker_module() -> str:
    main = _main_module()
    if main != DAEMON:
        return main
    return sys.argv[1] if len(sys.argv) > 1 else TASK


def own_jvm() -> int | None:
    """The JVM that this process has started for its SparkContext, as PySpark does if none has started Python."""
    context_type = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    gateway = getattr(context_type, "_gateway", None)
    started = getattr(gateway, "proc", None)
    return getattr(started, "pid", None)


def show_log() -> None:
    if not is_sparks():
        return
    with LOCK.value:
        if _LOGGER.hasHandlers():
            return
        shown = logging.StreamHandler(sys.stderr)
        shown.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s pykafka-sink: %(message)s", "%y/%m/%d %H:%M:%S")
        )
        _LOGGER.addHandler(shown)
        _LOGGER.setLevel(logging.INFO)


def moment_here() -> HostMoment | None:
    try:
        boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
        return HostMoment(boot_id, boot_ns() // 1_000_000, time.time_ns() // 1_000_000)
    except (OSError, ValueError):
        return None


def time_since(moments: Iterable[HostMoment | None]) -> int | None:
    """Milliseconds since the earliest of them, by the clock that tells more; None: one was not here, or is not known.
    A virtual machine that was paused may have set only the other one right."""
    now, begun = moment_here(), list(moments)
    if now is None or not begun or any(each is None or each.boot_id != now.boot_id for each in begun):
        return None
    return max(max(now.at_ms - each.at_ms, now.wall_ms - each.wall_ms) for each in begun if each is not None)
