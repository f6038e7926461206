"""By which name brokers know the tasks of a sink."""

from __future__ import annotations

import pytest

from kafka_sink.commit.identity import sink_id_of_checkpoint
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.client_id import client_id_of

STREAM = {"checkpointLocation": "/cp/orders", "queryName": "orders by day"}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"kafka.client.id": "mine", "sink.id": "orders", **STREAM}, "mine"),
        ({"sink.id": "orders", **STREAM}, "orders"),
        ({"sink.id": "nightly", "batch.id": "day-1"}, "nightly"),
        (STREAM, "orders by day"),
        ({"checkpointLocation": "/cp/orders"}, sink_id_of_checkpoint("/cp/orders")),
        (
            {"checkpointLocation": "/cp/orders", "delivery.guarantee": "at-least-once"},
            sink_id_of_checkpoint("/cp/orders"),
        ),
        ({}, "pykafka-sink"),
    ],
)
def test_it_is_the_name_that_a_sink_has_in_every_run(settings: dict[str, str], name: str) -> None:
    assert client_id_of(parse_sink_options({"kafka.bootstrap.servers": "b:9092", "topic": "t", **settings})) == name


def test_a_long_name_of_a_query_is_cut() -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "queryName": "q" * 40_000}
    assert len(client_id_of(parse_sink_options(given))) == 120
