"""Streams of tests/chaos, each with its own topic and proxy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.chaos.bare_stream import BareStream
    from tools.kafka_cluster import KafkaCluster


@pytest.fixture
def own_ledger() -> str:
    """For `pytest.mark.usefixtures`: streams have a ledger of this process. A driver reads its ledger completely, and
    the common one of a shared broker has what all tests of a run have written."""
    return f"ledger-of-{os.getpid()}"


@pytest.fixture
def stream_on(request: pytest.FixtureRequest, topic_name: str) -> Iterator[Callable[..., BareStream]]:
    """`stream_on(kafka, **options)`: a stream into the topic of this test."""
    from tests.chaos.bare_stream import BareStream

    own = {"ledger__topic": request.getfixturevalue("own_ledger")} if "own_ledger" in request.fixturenames else {}
    with ExitStack() as stack:
        yield lambda kafka, **more: stack.enter_context(BareStream(kafka, topic_name, **{**own, **more}))


@pytest.fixture
def sweeping(kafka: KafkaCluster) -> None:
    """For tests of transactions that the sink ends for dead tasks. On brokers that do not verify it leaves them alone:
    tests/integration/test_old_brokers.py."""
    if not kafka.verifies:
        pytest.skip(f"Apache Kafka {kafka.version} does not verify transactions: what killed tasks leave is not swept")


@pytest.fixture
def stream(stream_on: Callable[..., BareStream], kafka: KafkaCluster) -> BareStream:
    return stream_on(kafka)


@pytest.fixture
def direct_stream(stream_on: Callable[..., BareStream], kafka: KafkaCluster) -> BareStream:
    """The same stream without the proxy."""
    return stream_on(kafka, is_direct=True)
