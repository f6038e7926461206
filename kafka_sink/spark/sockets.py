"""One line of advice, once per application: rows can come over Unix domain sockets instead of loopback TCP.

Spark has them from 4.1 on and leaves them off; nothing that runs inside a data source can turn them on. Each task then
pays for a TCP connection's way through the kernel, twice (docs/performance.md).

Spark plans in several Python processes of one driver, and a new one may come at any time, so who has spoken already is
noted where all of them can see it: an empty file in a folder that goes with the application. Where there is none it is
said once per process.

Rests on: a worker that was reached over TCP has a secret in its environment to tell itself by, and one behind a Unix
socket is told so there (`pyspark/daemon.py`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pyspark

from kafka_sink.spark.files import application_folder

SETTING = "spark.python.unix.domain.socket.enabled"
NOTE = "has-told-of-sockets"
FIRST_VERSION = (4, 1)
_LOGGER = logging.getLogger("kafka_sink")


def advise_sockets() -> None:
    """For planning: it runs on the driver, whose log is read."""
    if is_reached_over_tcp(os.environ) and _has_unix_sockets(pyspark.__version__):
        _log_once(application_folder(), os.getpid())


def is_reached_over_tcp(environment: Mapping[str, str]) -> bool:
    """False as well where no JVM is at the other end."""
    has_unix_socket = environment.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true"
    return "PYTHON_WORKER_FACTORY_SECRET" in environment and not has_unix_socket


def _has_unix_sockets(version: str) -> bool:
    major, minor = version.split(".")[:2]
    return (int(major), int(minor)) >= FIRST_VERSION


@lru_cache(maxsize=1)
def _log_once(folder: str | None, pid: int) -> None:
    if folder is not None and os.path.isabs(folder) and not _is_first_in(folder):
        return
    _LOGGER.info(
        "rows come to Python over loopback TCP. With %s=true in this application's configuration, tasks, planning and "
        "commits take less time (docs/performance.md)",
        SETTING,
    )


def _is_first_in(folder: str) -> bool:
    try:
        os.makedirs(folder, exist_ok=True)
        # Fails where it is there, whoever made it, and that is the point.
        os.close(os.open(Path(folder, NOTE), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True  # a folder that cannot be written: this process remembers
    return True
