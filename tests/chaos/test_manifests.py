"""Manifests: one for each batch, wherever its driver dies, and what it says is what a foreign reader finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from kafka_sink.kafka.wire.apis import END_TXN, PRODUCE, Api
from tests.chaos.bare_spark import Killed
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.faults import Harm, of_a_task, of_the_driver
from tests.support.manifests import manifest_problems
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.usefixtures("own_ledger")]

SIDES = {"before-it-arrives": Harm.LOSE_REQUEST, "after-it-was-carried-out": Harm.LOSE_ANSWER}


@pytest.fixture
def told_stream(stream_on: Callable[..., BareStream], kafka: KafkaCluster, topic_name: str) -> BareStream:
    """A stream with manifests, in a topic of two partitions."""
    kafka.create_topic(f"{topic_name}-manifests", 2)
    return stream_on(kafka, manifest__topic=f"{topic_name}-manifests")


def manifests(stream: BareStream) -> list[dict[str, Any]]:
    records = read_topic(stream.kafka.bootstrap_servers, stream.settings["manifest.topic"])
    assert len({(record.partition, record.key) for record in records}) == 1, "a stream's manifests are in order"
    return [json.loads(record.value or b"") for record in records]


def check(stream: BareStream) -> None:
    """One for each batch, in order; their ranges have every row, and share none."""
    stream.check()
    found = manifests(stream)
    batches = list(range(stream.checkpoint.committed + 1))
    assert [one["batch"] for one in found] == batches
    assert {one["query"] for one in found} == {stream.checkpoint.query_id}
    servers, topic = stream.kafka.bootstrap_servers, stream.settings["manifest.topic"]
    assert manifest_problems(servers, topic, stream.sink_id, batches, stream.topic) == []


def kill(stream: BareStream, side: str, nth: int, api: Api | None = None, **more: Any) -> bool:
    with stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        fault = stream.proxy.on(api, SIDES[side], nth=nth, before=query.strike, **more)
        try:
            query.commit(messages)
        except Killed:
            return True
        fault.stop()
        return False


@NEWEST_MAINLY
@pytest.mark.parametrize(
    "side", [pytest.param("before-it-arrives", marks=pytest.mark.slow), "after-it-was-carried-out"]
)
def test_each_batch_has_one_manifest_though_drivers_die_at_the_decision_and_at_its_end(
    told_stream: BareStream, side: str
) -> None:
    """A first commit sends a claim, the intent, and at the end two records side by side."""
    moments = [(PRODUCE, of_the_driver, nth) for nth in (2, 3, 4)]
    moments += [(END_TXN, of_the_driver, 1), (END_TXN, of_a_task, 2), (END_TXN, of_the_driver, 2)]
    for api, where, nth in moments:
        assert kill(told_stream, side, nth, api, where=where)
        told_stream.run()
    check(told_stream)


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_each_batch_has_one_manifest_wherever_in_a_commit_the_driver_dies(told_stream: BareStream, side: str) -> None:
    for nth in count(1):
        if not kill(told_stream, side, nth):
            break
        told_stream.run()
    assert nth > 20
    check(told_stream)


@NEWEST_MAINLY
@pytest.mark.parametrize(
    "harm",
    [Harm.LOSE_ANSWER, pytest.param(Harm.CUT_ANSWER, marks=pytest.mark.slow), Harm.LOSE_REQUEST],
    ids=lambda one: one.name,
)
def test_a_manifest_whose_answer_is_lost_is_there_once(told_stream: BareStream, harm: Harm) -> None:
    topic = told_stream.settings["manifest.topic"]
    fault = told_stream.proxy.on(
        PRODUCE, harm, where=lambda request: of_the_driver(request) and request.body["topic_data"][0]["name"] == topic
    )
    closing = told_stream.proxy.on(END_TXN, harm, nth=2, where=of_the_driver)
    told_stream.run(2)
    assert fault.has_acted and closing.has_acted
    check(told_stream)


@NEWEST_MAINLY
def test_a_batch_that_is_found_delivered_has_no_second_manifest(told_stream: BareStream) -> None:
    told_stream.run(2)
    told_stream.checkpoint.committed -= 1  # the crash came before Spark wrote its commit log
    told_stream.run(2, tasks=2)
    check(told_stream)
