"""Shorthands for tests of the metadata tracker."""

from __future__ import annotations

from typing import Any

from fake_cluster import FakeCluster
from network_driver import Driver

from kafka_sink.client.metadata import Metadata
from kafka_sink.wire.apis import METADATA

AGE_MS = 300_000


def start(*topics: str, cluster: FakeCluster | None = None, **options: Any) -> Driver:
    driver = Driver(cluster, has_metadata=True, **options)
    for topic in topics:
        tracker(driver).want_topic(topic, driver.now_ms)
    driver.run()
    return driver


def tracker(driver: Driver) -> Metadata:
    assert driver.metadata is not None
    return driver.metadata


def asked_topics(driver: Driver) -> list[list[str]]:
    requests = driver.cluster.requests_of(METADATA)
    return [[topic["name"] for topic in asked.body["topics"]] for asked in requests]


def until_due_ms(driver: Driver) -> int:
    deadline_ms = tracker(driver).next_deadline_ms(driver.now_ms)
    assert deadline_ms is not None
    return deadline_ms - driver.now_ms


def two_topics() -> FakeCluster:
    return FakeCluster({0: ("a", 9092)}, {"t": {0: 0}, "u": {0: 0}, "v": {0: 0}})
