"""Each Arrow batch of a task is read into the memory of the one before, unless the environment decides otherwise.
Compressed batches that wait lie side by side.
"""

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

ROWS = 20_000
CALLS = 100

# As in a task whose brokers are slow: closed batches wait, while more are made.
WAITING_PROBE = f"""
import ctypes
import sys

import numpy as np
import pyarrow as pa

from kafka_sink.formats.records.assembler import Assembler
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.spark.process_memory import keep_freed_memory


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in "arena 1 2 3 mapped 5 6 used free 9".split()]


def append(count):
    waiting = []
    for _ in range(count):
        columns = RecordColumns.from_arrow(rows)
        places = np.zeros({ROWS}, np.int32)
        waiting += assembler.append("t", columns, places, now_ms=0, timestamp_ms=0, token=None)
    return waiting


libc = ctypes.CDLL(None)
libc.mallinfo.restype = Mallinfo
keep_freed_memory()
compressor = make_compressor(sys.argv[1])
assembler = Assembler(
    new_batch=ProducerBatch, batch_bytes_max=2**17, request_bytes_max=2**20, batch_records_max=None,
    compression=lambda _: compressor,
)
rows = pa.table({{"value": [b"a record that is like all the others" * 3] * {ROWS}}})
append(20)
waiting = append({CALLS})
print(libc.mallinfo().free)
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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the free bytes in the heap of glibc are counted")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_that_wait_leave_no_holes_of_the_room_that_was_reserved_for_them(codec: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WAITING_PROBE, codec], capture_output=True, text=True, timeout=60, check=True
    )
    # The rows are ten times as many bytes.
    assert int(run.stdout) < CALLS * ROWS * 110 // 10
