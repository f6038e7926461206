"""Whether a task sees that Spark has closed the connection to its process: on Unix sockets and on TCP."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_sink.spark.task_context import is_spark_waiting

# As in PySpark: the connection is an argument of the worker's main function, below which a task runs.
WORKER = "def main(infile, outfile): return task(infile)"


@pytest.fixture(params=["unix", "tcp"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Those of Spark's JVM and of the worker."""
    if request.param == "unix":
        ours, theirs = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


def in_worker(infile: Any, task: Callable[[Any], bool], module: str = "pyspark.worker", code: str = WORKER) -> bool:
    names: dict[str, Any] = {"__name__": module, "task": task}
    exec(code, names)
    found = names["main"](infile, None)
    assert isinstance(found, bool)
    return found


def asked_after(act: Callable[[Any], object]) -> Callable[[Any], bool]:
    def task(infile: Any) -> bool:
        act(infile)
        return is_spark_waiting()

    return task


@pytest.mark.parametrize("module", ["pyspark.worker", "__main__"], ids=["of the daemon", "alone"])
def test_spark_waits_before_and_after_the_task_has_read_all_of_its_rows(
    ends: tuple[socket.socket, socket.socket], module: str
) -> None:
    jvm, worker = ends
    jvm.sendall(b"rows")
    with worker.makefile("rb") as infile:
        assert in_worker(infile, asked_after(lambda _: None), module)
        assert in_worker(infile, asked_after(lambda stream: stream.read(4)), module)


@pytest.mark.parametrize("how", ["close", "close its output"])
@pytest.mark.parametrize("unread", [b"", b"rows that were not read"], ids=["all read", "rows left"])
def test_spark_no_longer_waits_once_it_has_closed_the_connection(
    ends: tuple[socket.socket, socket.socket], how: str, unread: bytes
) -> None:
    jvm, worker = ends
    jvm.sendall(unread)
    with worker.makefile("rb") as infile:
        end = jvm.close if how == "close" else lambda: jvm.shutdown(socket.SHUT_WR)
        assert not in_worker(infile, asked_after(lambda _: end()))


def test_where_no_connection_can_be_looked_at_spark_counts_as_waiting(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    jvm, worker = ends
    with worker.makefile("rb") as infile:
        jvm.close()
        assert in_worker(infile, asked_after(lambda _: None), "of.a.platform")
        assert in_worker(infile, asked_after(lambda stream: stream.close()))
    assert in_worker(object(), asked_after(lambda _: None))
    assert in_worker(None, asked_after(lambda _: None), code="def main(rows, outfile): return task(rows)")
    assert is_spark_waiting()
