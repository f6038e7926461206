"""Each Arrow batch of a task is read into the memory of the one before, unless the environment decides otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from kafka_sink.spark.process_memory import SETTINGS

BATCH_BYTES = 4 << 20
ROUNDS = 50
PAGES = ROUNDS * 3 * BATCH_BYTES // 4096

# As a task does with read_ahead: a thread reads a batch while the one before it is still used.
PROBE = f"""
import resource
from concurrent.futures import ThreadPoolExecutor

from kafka_sink.spark.process_memory import keep_freed_memory


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def read_batches(pool, rounds):
    for _ in range(rounds):
        batches = [pool.submit(bytes.__mul__, b"x", {BATCH_BYTES}).result() for _ in range(3)]
        del batches


keep_freed_memory()
with ThreadPoolExecutor(1) as pool:
    read_batches(pool, 5)
    before = page_faults()
    read_batches(pool, {ROUNDS})
    print(page_faults() - before)
"""


def page_faults(**settings: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in (*SETTINGS, "GLIBC_TUNABLES")}
    run = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment | settings, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such limits")
def test_a_batch_is_read_into_the_memory_of_the_one_before() -> None:
    assert page_faults() < PAGES // 20
    assert page_faults(GLIBC_TUNABLES="glibc.malloc.check=0") < PAGES // 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such limits")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072"),
    ],
)
def test_what_the_environment_says_holds(name: str, value: str) -> None:
    assert page_faults(**{name: value}) > PAGES // 2
