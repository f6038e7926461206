"""Rows for many topics at once, and for a topic that takes small batches only: what is asked and sent, in counts."""

from __future__ import annotations

import logging
import random
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.errors import DataError
from kafka_sink.testing import EmbeddedBroker
from tests.support.producing import TIMEOUT_S, producer_of

TOPICS = [f"t{number}" for number in range(300)]


def rows_for(topics: list[str]) -> pa.Table:
    return pa.table({"topic": topics, "value": [b"v"] * len(topics)})


def note_metadata(broker: EmbeddedBroker) -> list[list[str]]:
    """The topics of each Metadata request from now on."""
    asked: list[list[str]] = []

    def noted(api: str, version: int, broker_id: int, body: Any) -> None:
        if api == "Metadata":
            asked.append(sorted(topic["name"] for topic in body["topics"] or ()))

    broker.do(lambda core: setattr(core.faults, "interceptor", noted))
    return asked


def test_the_first_rows_of_many_topics_wait_for_one_answer_about_all_of_them() -> None:
    with (
        EmbeddedBroker(1, topics=dict.fromkeys(["first", *TOPICS], 2)) as broker,
        producer_of(broker) as producer,
    ):
        producer.send("first", value=b"v").result(TIMEOUT_S)
        asked = note_metadata(broker)
        producer.send_arrow(rows_for(["first", *TOPICS])).result(TIMEOUT_S)
        assert asked == [sorted(TOPICS)]
        producer.send_arrow(rows_for(["first", *TOPICS])).result(TIMEOUT_S)
        assert asked == [sorted(TOPICS)]


def test_a_topic_whose_name_no_request_can_hold_is_refused_before_anything_is_asked() -> None:
    with EmbeddedBroker(1, topics={"first": 1}) as broker, producer_of(broker) as producer:
        producer.send("first", value=b"v").result(TIMEOUT_S)
        asked = note_metadata(broker)
        with pytest.raises(DataError, match="the name of a topic"):
            producer.send_arrow(rows_for(["first", "t", "x" * 40_000]))
        assert producer.send("first", value=b"v").result(TIMEOUT_S).offset == 1
        assert asked == []


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_topic_that_takes_less_than_batch_size_gets_smaller_batches_once_it_has_refused_some(
    codec: str, caplog: pytest.LogCaptureFixture
) -> None:
    generator = random.Random(5)
    rows = pa.table({"value": [generator.randbytes(100) for _ in range(10_000)]})
    caplog.set_level(logging.WARNING, "kafka_sink")
    with EmbeddedBroker(1) as broker:
        broker.create_topic("small", 4, {"max.message.bytes": "8192"})
        with producer_of(broker, compression_type=codec, client_id="splits") as producer:

            def split_count() -> float:
                return producer.metrics()["producer-metrics", "batch-split-total", (("client-id", "splits"),)]

            splits = []
            for _ in range(4):
                producer.send_arrow(rows, topic="small").result(TIMEOUT_S)
                splits.append(split_count())
    assert splits[0] > 0
    assert splits[0] == splits[3], "what was learnt is used for all later rows"
    (told,) = [record.getMessage() for record in caplog.records if "max.message.bytes" in record.getMessage()]
    assert "topic small does not take a batch of" in told
