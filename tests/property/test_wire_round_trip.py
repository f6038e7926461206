"""Every message in every version is unchanged after encoding and decoding, and only whole messages are accepted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.kafka.wire.apis import METADATA, Api
from kafka_sink.kafka.wire.frames import FrameBuffer
from tests.support.wire_values import SEEDS, decode, encode, message_id, messages, rows, some_body

MESSAGES = list(messages())
FEW = settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def is_part_of(given_value: Any, decoded: Any) -> bool:
    """Decoding adds defaults; the given values must come back unchanged."""
    if isinstance(given_value, dict):
        return all(is_part_of(value, decoded[name]) for name, value in given_value.items())
    if isinstance(given_value, list):
        return len(given_value) == len(decoded) and all(map(is_part_of, given_value, decoded))
    return bool(given_value == decoded and type(given_value) is type(decoded))


@pytest.mark.parametrize("message", MESSAGES, ids=message_id)
@FEW
@given(seed=SEEDS)
def test_decoding_an_encoded_message_gives_it_back(message: tuple[Api, bool, int], seed: int) -> None:
    value = some_body(message, seed)
    encoded = encode(message, value)
    decoded = decode(message, encoded)
    assert is_part_of(value, decoded)
    assert set(decoded) == {field.name for field in rows(message)}
    assert encode(message, decoded) == encoded


@pytest.mark.parametrize("message", MESSAGES, ids=message_id)
@settings(FEW, max_examples=2)
@given(seed=SEEDS)
def test_every_truncation_of_a_message_is_refused(message: tuple[Api, bool, int], seed: int) -> None:
    encoded = encode(message, some_body(message, seed))
    step = max(1, len(encoded) // 40)
    for size in range(0, len(encoded), step):
        with pytest.raises(RemoteProtocolError):
            decode(message, encoded[:size])
    with pytest.raises(RemoteProtocolError, match="left over"):
        decode(message, encoded + b"\0")


@pytest.mark.parametrize("message", MESSAGES, ids=message_id)
@settings(FEW, max_examples=2)
@given(seed=SEEDS)
def test_a_corrupt_message_is_read_or_refused_and_never_fails_otherwise(
    message: tuple[Api, bool, int], seed: int
) -> None:
    encoded, dice = bytearray(encode(message, some_body(message, seed))), Random(seed)
    if not encoded:
        return
    for _ in range(10):
        encoded[dice.randrange(len(encoded))] = dice.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        try:
            decoded = decode(message, bytes(encoded))
        except RemoteProtocolError:
            continue
        assert set(decoded) == {field.name for field in rows(message)}


@settings(FEW, max_examples=40)
@given(data=st.data())
def test_frames_are_the_same_however_the_stream_is_cut(data: st.DataObject) -> None:
    bodies_given = data.draw(st.lists(st.binary(max_size=40), max_size=6))
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies_given)
    one_by_one = FrameBuffer(frame_bytes_max=40)
    frames = []
    for position in range(len(stream)):
        one_by_one.feed(stream[position : position + 1])
        while (frame := one_by_one.next_frame()) is not None:
            frames.append(frame)
    assert frames == bodies_given
    at_once = FrameBuffer(frame_bytes_max=40)
    at_once.feed(stream)
    assert [at_once.next_frame() for _ in bodies_given] == bodies_given
    assert at_once.next_frame() is None and at_once.size == 0


@settings(FEW, max_examples=200)
@given(st.binary(max_size=200), st.sampled_from(MESSAGES))
def test_random_bytes_are_read_or_refused_and_never_fail_otherwise(data: bytes, message: tuple[Api, bool, int]) -> None:
    try:
        decoded = decode(message, data)
    except RemoteProtocolError as refusal:
        assert refusal.args
    else:
        # Bytes that were accepted are a message: it can be encoded again.
        assert decode(message, encode(message, decoded)) == decoded


def test_metadata_of_many_topics_is_read() -> None:
    topics = [{"name": f"topic-{number}", "partitions": [{"partition_index": 0}]} for number in range(5000)]
    decoded = METADATA.decode_response(12, METADATA.encode_response(12, {"topics": topics}))
    assert len(decoded["topics"]) == 5000
