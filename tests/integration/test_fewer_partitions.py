"""A topic is created again with fewer partitions when a batch is decided. The missing ones have no leader, ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitLost
from kafka_sink.testing import EmbeddedBroker
from tests.support.commanding import Sink, rows
from tests.support.decided import KEY, decide, run_as, time_out

MANIFESTS = "manifests"


@pytest.fixture(params=["4.3", "3.9"])
def brokers(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, release=request.param, topics={MANIFESTS: 2}) as embedded:
        yield embedded


@pytest.fixture
def decided(brokers: EmbeddedBroker) -> Sink:
    sink = Sink(brokers.bootstrap_servers, "t", "orders", "ledger")
    sink.create()
    decide(sink, MANIFESTS)
    return sink


def make_again(brokers: EmbeddedBroker, topic: str) -> None:
    brokers.do(lambda core: core.cluster.delete_topic(topic))
    brokers.create_topic(topic, 1)


def test_a_decision_that_names_a_partition_which_its_topic_lacks_waits_for_a_choice_and_not_for_a_leader(
    brokers: EmbeddedBroker, decided: Sink
) -> None:
    time_out(decided)
    make_again(brokers, decided.topic)
    lost = run_as(decided, DriverOperation.FINISH).error
    assert isinstance(lost, CommitLost) and "Ended in a way that can no longer be read: 20 rows" in str(lost)
    assert run_as(decided, DriverOperation.ACCEPT).conclusion is Conclusion.RESOLVED


def test_a_decision_is_closed_without_a_manifest_for_a_partition_that_its_topic_lacks(
    brokers: EmbeddedBroker, decided: Sink
) -> None:
    make_again(brokers, MANIFESTS)
    closed = run_as(decided, DriverOperation.FINISH)
    assert closed.error is None and f"that there is no {MANIFESTS}-1" in closed.notes[0]
    assert decided.visible() == sorted(rows(KEY, 0, 1))
    assert run_as(decided, DriverOperation.FINISH).conclusion is Conclusion.NOTHING_TO_DO
