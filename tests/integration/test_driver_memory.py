"""A driver process of the user's lives for days: what it keeps does not grow with the batches that it commits.

Objects, descriptors and threads are counted. Resident memory also has what the allocator keeps, so its limit is a
constant, and it is compared only where every batch has the same options: with others clients come and go, and glibc's
arenas of the threads spread. The first fifth of the work includes imports, connections and the filling of caches.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink.spark.driver import CHECKS_MAX
from tools.worker_environment import worker_environment

ROOT = Path(__file__).parents[2]
THREADS = 5
# Caches hold a few sinks, options and answers more or less.
OBJECTS = 2_000
# What planning has found for one set of options.
OBJECTS_OF_ANSWER = 8
CONSTANT_BYTES = 8 * 1024 * 1024
# Per idle client: its selector, the pair that wakes it, and connections.
DESCRIPTORS = 8


@pytest.mark.parametrize("own_each", [0, 7], ids=["same-options", "own-options"])
@pytest.mark.parametrize("batches", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_driver_that_commits_any_number_of_batches_keeps_its_size(
    batches: int, own_each: int, tmp_path: Path
) -> None:
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), **worker_environment(tmp_path)}
    command = [sys.executable, "-m", "tests.integration.driver_memory_probe", str(batches), str(THREADS), str(own_each)]
    run = subprocess.run(command, env=environment, capture_output=True, timeout=3_000)
    assert run.returncode == 0, run.stderr.decode()[-3_000:]
    report = json.loads(run.stdout)
    print(json.dumps(report))
    assert report["rows"] == batches
    warm, last = report["found"][1], report["found"][-1]
    answers = min(CHECKS_MAX, batches // own_each) if own_each else 0
    assert last["objects"] - warm["objects"] <= OBJECTS + OBJECTS_OF_ANSWER * answers
    assert own_each or last["resident"] - warm["resident"] <= CONSTANT_BYTES
    assert last["descriptors"] - warm["descriptors"] <= DESCRIPTORS
    assert {each["threads"] for each in report["found"]} == {warm["threads"]}
    assert last["idle_clients"] <= THREADS + 3 and last["frozen"] == warm["frozen"] == 0
