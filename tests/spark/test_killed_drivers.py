"""A driver with a stream and exports is killed with its JVM: each row is there once, no transaction is open, and no
decision is left. Through the second door, and many times through the format as well."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.spark.conftest import require_java
from tests.spark.killed_driver import EXPORTS, PHASES, STREAM, KilledDriver
from tests.support.kafka_proxy import KafkaProxy
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

# In all, with those at each phase.
KILLS = int(os.environ.get("CHAOS_KILLS", "40"))
ANY_MOMENT_S = 8.0


@pytest.fixture
def door() -> str:
    return "foreach_batch"


@pytest.fixture
def driver(kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, door: str) -> Iterator[KilledDriver]:
    require_java()
    with (
        KafkaProxy(kafka_4.bootstrap_servers) as proxy,
        KilledDriver(kafka_4, proxy, topic_name, tmp_path, door) as killed,
    ):
        yield killed


def test_each_row_is_there_once_after_a_driver_was_killed_in_its_commits(driver: KilledDriver) -> None:
    """Once, of an export, with a micro-batch beside it: each phase is in tests/chaos/test_driver_crashes.py."""
    driver.kill_at("between two EndTxn", EXPORTS)
    driver.finish()
    assert driver.problems() == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("door", ["foreach_batch", "format"])
def test_each_row_is_there_once_after_a_driver_was_killed_at_every_phase_and_at_any_moment(
    driver: KilledDriver,
) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    print(f"\nseed {seed}")
    dice = random.Random(seed)
    chosen = [*product(PHASES, (STREAM, EXPORTS))][:KILLS]
    for _ in range(KILLS):
        if chosen and dice.random() < 0.6:
            driver.kill_at(*chosen.pop(dice.randrange(len(chosen))))
        else:
            driver.kill_after(dice.uniform(0, ANY_MOMENT_S))
    assert driver.kills.total() == KILLS
    driver.finish()
    assert driver.problems() == []
