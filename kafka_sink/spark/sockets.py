"""A hint in the log, once per application: Spark can pass rows over Unix domain sockets instead of loopback TCP.

Spark has them from 4.1 on, disabled by default; a data source cannot enable them. Without them each task's data passes
the kernel's TCP stack twice (docs/performance.md).

Spark plans in several Python processes of one driver, and a new one may come at any time, so an empty file in the
application's folder marks that the hint was logged. Without such a folder it is logged once per process.

Assumptions: a worker reached over TCP has an authentication secret in its environment, and one behind a Unix socket has
that mode there (`pyspark/daemon.py`). A PySpark that has these sockets connects to "conn_info", a port or a path,
an older one to "port" (`pyspark/util.py`).
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pyspark import util

from kafka_sink.spark.files import application_folder

SETTING = "spark.python.unix.domain.socket.enabled"
NOTE = "has-told-of-sockets"
_LOGGER = logging.getLogger("kafka_sink")


def advise_sockets() -> None:
    """Called by planning, which runs on the driver, whose log is read."""
    if is_reached_over_tcp(os.environ) and has_unix_sockets():
        _log_once(application_folder(), os.getpid())


def has_unix_sockets() -> bool:
    connect = getattr(util, "local_connect_and_auth", None)
    return connect is not None and "conn_info" in inspect.signature(connect).parameters


def is_reached_over_tcp(environment: Mapping[str, str]) -> bool:
    """False also without a JVM at the other end."""
    has_unix_socket = environment.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true"
    return "PYTHON_WORKER_FACTORY_SECRET" in environment and not has_unix_socket


@lru_cache(maxsize=1)
def _log_once(folder: str | None, pid: int) -> None:
    if folder is not None and os.path.isabs(folder) and not _leave_note(folder):
        return
    _LOGGER.info(
        "rows come to Python over loopback TCP. With %s=true in this application's configuration, tasks, planning and "
        "commits take less time (docs/performance.md)",
        SETTING,
    )


def _leave_note(folder: str) -> bool:
    """False: another process was first."""
    try:
        os.makedirs(folder, exist_ok=True)
        # Fails on purpose if it exists, whichever process created it.
        os.close(os.open(Path(folder, NOTE), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True  # the folder is not writable: once per process
    return True
