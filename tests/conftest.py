"""Fixtures of all test folders: Apache Kafka, newer and older, started once per run and only when asked for.

Where Java or Maven is missing, tests that need Apache Kafka are skipped with that reason. With
PYKAFKA_SINK_REQUIRE_KAFKA=1, as in continuous integration, the same is a failure. PYKAFKA_SINK_KAFKA=3.5.2 puts that
version in the place of both, as tools/compat.py does for one version after the other.
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

if TYPE_CHECKING:
    from tests.secured_kafka import SecuredKafka
    from tools.kafka_cluster import KafkaCluster

T = TypeVar("T")
# In the place of the two versions that stand for the transaction versions; None as a rule.
ONLY = os.environ.get("PYKAFKA_SINK_KAFKA") or None
NEWEST = ONLY or "4.3.1"
FIRST_GENERATION = ONLY or "3.9.1"
# Each once, for parametrised fixtures.
VERSIONS = tuple(dict.fromkeys((NEWEST, FIRST_GENERATION)))

_NUMBERS = itertools.count(1)


def without_kafka(reason: str) -> NoReturn:
    """Skip this test, or fail it where Apache Kafka is required."""
    if os.environ.get("PYKAFKA_SINK_REQUIRE_KAFKA") == "1":
        pytest.fail(f"PYKAFKA_SINK_REQUIRE_KAFKA is set: {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_configure() -> None:
    """What a shell starts in the background ignores SIGINT, and so do the children; Python then has no Ctrl-C at all.
    Tests that interrupt would wait for ever, unless a Spark session of an earlier test had installed its own handler.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`pytest -m "not kafka"` leaves out whatever would start a broker."""
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
    """A function with the arguments of `start`: what it gave the first time. All are ended with the context.

    Not a parametrised session fixture: in random order pytest would stop and start clusters between tests.
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
    """`kafka_of(version, nodes)`: the shared cluster of that kind, started at its first use. `make test` has one node
    of a version for all its processes."""
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
    """One node, both versions: a test that takes this runs twice, or once where PYKAFKA_SINK_KAFKA names the one."""
    return kafka_of(request.param, 1)


@pytest.fixture
def kafka_three_nodes(kafka_of: Callable[[str, int], KafkaCluster]) -> Iterator[KafkaCluster]:
    """Three nodes for tests that break some of them; whatever is down or paused afterwards is brought back."""
    cluster = kafka_of(NEWEST, 3)
    yield cluster
    cluster.heal()


@pytest.fixture(scope="session")
def secured_kafka_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SecuredKafka]]:
    """`secured_kafka_of(version)`: one node with TLS and SASL listeners, started at its first use."""
    from tests.secured_kafka import running

    with started_when_asked(lambda version: running(version, tmp_path_factory.mktemp("certificates"))) as of:
        yield of


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test of this run has, in whichever process."""
    return f"{re.sub('[^a-zA-Z0-9_-]', '-', request.node.name)[:200]}-{os.getpid()}-{next(_NUMBERS)}"
