"""Starts the exporter of an application, if none runs.

Planning does it, before each micro-batch: the exporter must outlive the planning and commit processes, and is restarted
with the next batch if it was killed. There are two files: a lock, which the kernel releases when the process dies, and
the socket, which is opened here, so that a used port is detected at once. The lock is of the port, and names the
address: queries of one application may want different ones, and only the first is served.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.telemetry.metrics.process import ancestor_called
from kafka_sink.telemetry.metrics.store import figures_folder

LOG = "exporter.log"
BACKLOG = 16
ADDRESS_BYTES_MAX = 1_024
# Exporters that this process has started: it reaps those that have ended, which would be zombies otherwise.
STARTED: PerProcess[list[subprocess.Popen[bytes]]] = PerProcess(list)


def ensure_exporter(application_folder: str, address: str, port: int, given_jvm: int | None = None) -> str:
    """Starts one unless it is running. Returns why none is running; empty if one is.

    `given_jvm`: the process of Spark's JVM; None: an ancestor, as of every process that Spark starts.
    """
    folder = figures_folder(application_folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / f"exporter-{port}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _describe_other(os.pread(lock, ADDRESS_BYTES_MAX, 0).decode(), address, port)
        _note_address(lock, address)
        try:
            listener = _open_listener(address, port)
        except OSError as error:
            return f"{address}:{port} cannot be listened at: {error.strerror or error}"
        with listener:
            _start(application_folder, folder, listener, lock, given_jvm)
        return ""
    finally:
        os.close(lock)


def _note_address(lock: int, address: str) -> None:
    """For the other queries. A full disk does not keep the exporter from its work."""
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, address.encode(), 0)


def _describe_other(served: str, address: str, port: int) -> str:
    """An exporter holds the lock while it is alive. Empty: it serves this address as well, or has not noted its own."""
    if served in ("", address, "::") or (served == "0.0.0.0" and ":" not in address):
        return ""
    return (
        f"{address}:{port} is not listened at, because another query of this application serves all figures at "
        f"{served}:{port}. Give both the same metrics.prometheus.address, and start the application again"
    )


def _open_listener(address: str, port: int) -> socket.socket:
    (family, *_, where), *_ = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        # As the kernel does by default: whoever listens at :: is reached by IPv4 as well.
        return socket.create_server(where, family=family, backlog=BACKLOG, dualstack_ipv6=family == socket.AF_INET6)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0)) from None  # its text would name the address again


def _start(application_folder: str, folder: Path, listener: socket.socket, lock: int, given_jvm: int | None) -> None:
    """In a new session: Spark's daemon kills its whole process group."""
    _reap()
    jvm = given_jvm or ancestor_called("java")
    command = [
        sys.executable, "-m", "kafka_sink.telemetry.metrics.exporter", application_folder, str(listener.fileno()),
        str(jvm or 0),
    ]  # fmt: skip
    # If the package is in a zip of --py-files, only this process has its path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with (folder / LOG).open("a") as log:
        child = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            pass_fds=(listener.fileno(), lock),
        )  # fmt: skip
    STARTED.value.append(child)


def _reap() -> None:
    for child in list(STARTED.value):
        if child.poll() is not None:
            with suppress(ValueError):  # another thread was faster
                STARTED.value.remove(child)
