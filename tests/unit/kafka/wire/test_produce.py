"""The hand-written Produce request equals that of the table, and holds payloads by reference."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.errors import LocalProtocolError
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.kafka.wire.frames import decode_request_header, encode_request
from kafka_sink.kafka.wire.produce import encode_after_head, encode_produce_head

TOPIC_ID = bytes(range(16))
HEADER = b"h" * 61
TOPICS: list[Any] = [
    ("orders", TOPIC_ID, [(0, HEADER, b"first"), (7, HEADER, b"s" * 20_000)]),
    ("größe", bytes(16), [(1, HEADER, b"third"), (2, HEADER, b"")]),
]
VERSIONS = range(PRODUCE.version_min, PRODUCE.version_max + 1)


def many(count: int) -> list[Any]:
    """So many topics, with so many batches in the first one."""
    return [("first", TOPIC_ID, [(0, HEADER, b"x")] * count), *[("other", TOPIC_ID, [])] * (count - 1)]


def joined(version: int, topics: list[Any], transactional_id: str | None = None, acks: int = -1) -> bytes:
    head = encode_produce_head(version, client_id="me", transactional_id=transactional_id, acks=acks, timeout_ms=30_000)
    return b"".join(encode_after_head(head, version, 99, topics))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [[], TOPICS[:1], TOPICS, [("empty", TOPIC_ID, [])], many(126), many(127), many(300)])
@pytest.mark.parametrize(("transactional_id", "acks"), [(None, 1), ("payments", -1)])
def test_the_frame_equals_that_of_the_table(
    version: int, topics: list[Any], transactional_id: str | None, acks: int
) -> None:
    data = [
        {
            "name": name,
            "topic_id": topic_id,
            "partition_data": [{"index": index, "records": header + payload} for index, header, payload in batches],
        }
        for name, topic_id, batches in topics
    ]
    body = {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 30_000, "topic_data": data}
    expected = encode_request(PRODUCE, version, correlation_id=99, client_id="me", body=body)
    assert joined(version, topics, transactional_id, acks) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_the_frame_is_read_by_the_generic_decoder(version: int) -> None:
    frame = joined(version, list(TOPICS), "payments")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    api_key, read_version, correlation_id, client_id, offset = decode_request_header(frame[4:])
    assert (api_key, read_version, correlation_id, client_id) == (0, version, 99, "me")
    body = PRODUCE.decode_request(version, frame[4 + offset :])
    batches = [partition["records"] for topic in body["topic_data"] for partition in topic["partition_data"]]
    assert batches == [HEADER + payload for _, _, parts in TOPICS for _, _, payload in parts]


def test_payloads_are_the_very_objects_that_were_given() -> None:
    payload = b"p" * 1000
    head = encode_produce_head(9, client_id=None, transactional_id=None, acks=-1, timeout_ms=1)
    topics: list[Any] = [("t", None, [(0, HEADER, payload), (1, HEADER, payload)])]
    buffers = encode_after_head(head, 9, 1, topics)
    assert [buffer is payload for buffer in buffers] == [False, True, False, True, False]


def test_a_topic_without_id_is_our_error_since_version_13() -> None:
    assert joined(12, [("t", None, [])])
    with pytest.raises(LocalProtocolError, match="v13 names topics by id, and topic 't' has none"):
        joined(13, [("t", None, [])])


@pytest.mark.parametrize("version", [2, 14])
def test_a_version_that_is_not_spoken_is_our_error(version: int) -> None:
    with pytest.raises(LocalProtocolError, match="spoken are 3 to 13"):
        joined(version, [])


def test_numbers_that_do_not_fit_are_our_error() -> None:
    with pytest.raises(LocalProtocolError, match="Produce request v9"):
        joined(9, [], acks=40_000)
    with pytest.raises(LocalProtocolError, match="Produce request v9"):
        joined(9, [("t", None, [(2**31, HEADER, b"")])])
