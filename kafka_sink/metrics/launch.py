"""Starts the exporter of an application, if none runs.

Planning does it, before each micro-batch: the process that serves must outlive those that plan and commit, and comes
back with the next batch if somebody ends it. Two files tell what is there: a lock, which the kernel takes back from a
process that dies, and the socket, which is opened here, so that a port that is taken is known at once.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from kafka_sink.metrics.process import ancestor_called
from kafka_sink.metrics.store import figures_folder

LOG = "exporter.log"
BACKLOG = 16


def ensure_exporter(application_folder: str, address: str, port: int) -> str:
    """Starts one unless it runs. Returns why none runs; empty if one does."""
    folder = figures_folder(application_folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / f"exporter-{port}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""  # one holds it as long as it lives
        try:
            with _open_listener(address, port) as listener:
                _start(application_folder, folder, listener, lock)
        except OSError as error:
            return f"{address}:{port} cannot be listened at: {error.strerror or error}"
        return ""
    finally:
        os.close(lock)


def _open_listener(address: str, port: int) -> socket.socket:
    (family, kind, protocol, _, where), *_ = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _start(application_folder: str, folder: Path, listener: socket.socket, lock: int) -> None:
    """In a session of its own: Spark's daemon ends its whole process group."""
    for ended in [each for each in started_exporters(os.getpid()) if each.poll() is not None]:
        started_exporters(os.getpid()).remove(ended)
    jvm = ancestor_called("java")
    command = [
        sys.executable, "-m", "kafka_sink.metrics.exporter", application_folder, str(listener.fileno()), str(jvm or 0),
    ]  # fmt: skip
    # Where the package comes from a zip of --py-files, only this process knows.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with (folder / LOG).open("a") as log:
        child = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            pass_fds=(listener.fileno(), lock),
        )  # fmt: skip
    started_exporters(os.getpid()).append(child)


@cache
def started_exporters(pid: int) -> list[subprocess.Popen[bytes]]:
    """Exporters that this process has started: it waits for those that have ended, or they would stay as zombies."""
    return []
