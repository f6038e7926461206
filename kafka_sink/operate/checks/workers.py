"""Which release of this package do the executors have? Runs a small Spark job, so only on request.

Tasks with another release than the one that planned them are refused; here they are counted before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kafka_sink.operate.checks.finding import ProbeResult, fail, ok
from kafka_sink.version import VERSION

# Not every executor gets one of them; enough that a release on half of the hosts is seen.
TASKS = 16
_COLUMNS = "host string, release string, place string"


def workers(session: Any | None) -> Iterator[ProbeResult]:
    if session is None:
        yield ok(
            "workers", "not asked: there is no Spark session here", "kafka_sink.check(...) in the job's own session"
        )
        return
    rows = session.range(0, TASKS, 1, TASKS).mapInArrow(make_probe(), _COLUMNS).collect()
    yield from worker_findings([(row["host"], row["release"], row["place"]) for row in rows])


def worker_findings(told: list[tuple[str, str, str]]) -> Iterator[ProbeResult]:
    """Host, release and folder of each task; no release: the package is missing."""
    package = f"pykafka_sink-{VERSION}"
    install = f"pip install {package}-py3-none-any.whl on every host, or ship it: --py-files {package}.zip"
    others = sorted({each for each in told if each[1] != VERSION})
    for host, release, place in others:
        text = f"{host} has pykafka-sink {release} from {place}, and this process {VERSION}: its tasks are refused"
        missing = f"{host} has no pykafka-sink: its tasks fail ({place})"
        yield fail("workers", text if release else missing, install)
    if not others:
        hosts = len({host for host, _, _ in told})
        yield ok("workers", f"{len(told)} tasks on {hosts} host{'s' if hosts != 1 else ''} have pykafka-sink {VERSION}")


def make_probe() -> Callable[[Any], Iterator[Any]]:
    """A function that is shipped with its code: by its name a worker would look for it in its own release."""

    def probe(batches: Any) -> Iterator[Any]:
        import socket

        import pyarrow as pa

        for _ in batches:
            pass
        try:
            from kafka_sink import version

            release, place = str(version.VERSION), str(version.__file__)
        except Exception as error:
            release, place = "", str(error)
        row = {"host": [socket.gethostname()], "release": [release], "place": [place]}
        yield pa.RecordBatch.from_pydict(row)

    probe.__module__ = "__main__"
    return probe
