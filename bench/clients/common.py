"""What all Python contestants share: their job and its measurement.

A contestant warms up (connections, metadata, caches), then sends its records and flushes. The clock runs from before
the first `send` until everything is acknowledged. CPU is that of the whole process, all threads. The records are
created before, in the form in which users of the contestant have them: bytes or Arrow batches.
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.payload import read_payload


@dataclass(frozen=True)
class Job:
    bootstrap_servers: str
    topic: str
    payload_path: str
    codec: str
    batch_bytes: int
    linger_ms: int
    warm_up_records: int
    records: int
    # TLS options by Java's names; only clients that know these names get any.
    security: Mapping[str, str] = field(default_factory=dict)


class Client(Protocol):
    def prepare(self, payload: list[bytes], count: int) -> Any:
        """`count` records in the form that `send` takes."""

    def send(self, work: Any) -> None: ...

    def flush(self) -> None:
        """Returns when all is acknowledged."""


def shuffle(payload: list[bytes], count: int) -> list[bytes]:
    """Java's tool picks each record from the file at random, so all contestants do."""
    return random.Random(0).choices(payload, k=count)


def main(make_client: Callable[[Job], Client]) -> None:
    job = Job(**json.loads(sys.argv[1]))
    payload = read_payload(job.payload_path)
    client = make_client(job)
    warm_up = client.prepare(payload, job.warm_up_records)
    work = client.prepare(payload, job.records)
    client.send(warm_up)
    client.flush()
    gc.collect()
    cpu_started, started = _cpu_seconds(), time.perf_counter()
    client.send(work)
    client.flush()
    seconds, cpu_seconds = time.perf_counter() - started, _cpu_seconds() - cpu_started
    found = {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_rss_bytes": peak_rss_bytes()}
    print(json.dumps(found), flush=True)
    # The producer is not closed: records that `flush` missed are then missing from the topic, and the count shows it.
    os._exit(0)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_rss_bytes() -> int:
    """Not `ru_maxrss`, which includes the size of the parent before exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")
