"""Fixtures of all test folders: Apache Kafka in a newer and an older version, started once per run, on first use.

Where Java or Maven is missing, tests that need Apache Kafka are skipped with that reason. With
PYKAFKA_SINK_REQUIRE_KAFKA=1, as in continuous integration, they fail instead. PYKAFKA_SINK_KAFKA=3.5.2 replaces both
versions by that one; tools/compat.py runs the tests this way for one version after the other.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pytest

from tests.support.finish_closings import finish_closings

if TYPE_CHECKING:
    from tests.support.secured_kafka import SecuredKafka
    from tools.kafka_cluster import KafkaCluster

T = TypeVar("T")
# Replaces the two versions, of which each stands for a transaction version; usually None.
ONLY = os.environ.get("PYKAFKA_SINK_KAFKA") or None
NEWEST = ONLY or "4.3.1"
FIRST_GENERATION = ONLY or "3.9.1"
# Without duplicates, for parametrised fixtures.
VERSIONS = tuple(dict.fromkeys((NEWEST, FIRST_GENERATION)))

_NUMBERS = itertools.count(1)


def without_kafka(reason: str) -> NoReturn:
    """Skips this test, or fails it where Apache Kafka is required."""
    if os.environ.get("PYKAFKA_SINK_REQUIRE_KAFKA") == "1":
        pytest.fail(f"PYKAFKA_SINK_REQUIRE_KAFKA is set: {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_configure() -> None:
    """A process that a shell starts in the background ignores SIGINT, and so do its children; Python then installs no
    handler. Tests that interrupt would hang, unless a Spark session of an earlier test had installed its own handler.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    finish_closings()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks all tests that would start a broker, so that `pytest -m "not kafka"` leaves them out."""
    for item in items:
        if {"kafka_of", "secured_kafka_of"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


@contextmanager
def or_without_kafka(cluster: AbstractContextManager[T]) -> Iterator[T]:
    # Imported here: the unit folder must not load a Kafka client.
    from tools.kafka_jars import KafkaUnavailable

    with ExitStack() as stack:
        try:
            started = stack.enter_context(cluster)
        except KafkaUnavailable as missing:
            without_kafka(str(missing))
        yield started


@contextmanager
def started_when_asked(start: Callable[..., AbstractContextManager[T]]) -> Iterator[Callable[..., T]]:
    """Yields a function with the arguments of `start`. It starts a cluster at the first call with these arguments and
    returns the same one later. All clusters end with the context.

    This is not a parametrised session fixture: in random order pytest would stop and start clusters between tests.
    """
    started: dict[tuple[object, ...], T] = {}
    with ExitStack() as stack:

        def of(*which: object) -> T:
            if which not in started:
                started[which] = stack.enter_context(or_without_kafka(start(*which)))
            return started[which]

        yield of


@pytest.fixture(scope="session")
def kafka_of() -> Iterator[Callable[[str, int], KafkaCluster]]:
    """`kafka_of(version, nodes)` returns the shared cluster of that kind, started at its first use. In `make test` all
    processes share one node of each version."""
    from tools.kafka_cluster import KafkaCluster
    from tools.kafka_watchdog import MARK
    from tools.suite.shared_kafka import SharedKafka

    run = os.environ.get(MARK)

    def of_kind(version: str, nodes: int) -> KafkaCluster:
        return SharedKafka(version, Path(run)) if run and nodes == 1 else KafkaCluster(version, nodes)

    with started_when_asked(of_kind) as of:
        yield of


@pytest.fixture
def kafka_4(kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_of(NEWEST, 1)


@pytest.fixture
def kafka_3(kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    if not FIRST_GENERATION.startswith("3."):
        pytest.skip(f"for brokers of transaction version 1, and PYKAFKA_SINK_KAFKA is {ONLY}")
    return kafka_of(FIRST_GENERATION, 1)


@pytest.fixture(params=VERSIONS)
def kafka(request: pytest.FixtureRequest, kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    """One node in both versions: a test with this fixture runs twice, or once if PYKAFKA_SINK_KAFKA names a version."""
    return kafka_of(request.param, 1)


@pytest.fixture
def kafka_three_nodes(kafka_of: Callable[[str, int], KafkaCluster]) -> Iterator[KafkaCluster]:
    """Three nodes for tests that break some of them; nodes that are down or paused afterwards are brought back."""
    cluster = kafka_of(NEWEST, 3)
    yield cluster
    cluster.heal()


@pytest.fixture(scope="session")
def secured_kafka_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SecuredKafka]]:
    """`secured_kafka_of(version)` returns one node with TLS and SASL listeners, started at its first use."""
    from tests.support.secured_kafka import running

    with started_when_asked(lambda version: running(version, tmp_path_factory.mktemp("certificates"))) as of:
        yield of


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of this run uses, in any process."""
    return f"{re.sub('[^a-zA-Z0-9_-]', '-', request.node.name)[:200]}-{os.getpid()}-{next(_NUMBERS)}"
