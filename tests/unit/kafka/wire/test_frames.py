"""Frames in and out, headers of both kinds, foreign protocols and the ApiVersions exception."""

from __future__ import annotations

import tracemalloc
from array import array

import pytest

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.kafka.wire.apis import API_VERSIONS, INIT_PRODUCER_ID, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_sink.kafka.wire.frames import (
    FrameBuffer,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    peek_correlation_id,
)


def test_a_request_has_length_header_and_body() -> None:
    frame = encode_request(SASL_HANDSHAKE, 1, correlation_id=7, client_id="me", body={"mechanism": "PLAIN"})
    assert frame == b"\0\0\0\x13" + b"\0\x11\0\x01\0\0\0\x07" + b"\0\x02me" + b"\0\x05PLAIN"


def test_a_flexible_request_keeps_the_old_client_id_and_adds_tags() -> None:
    frame = encode_request(METADATA, 9, correlation_id=1, client_id=None, body={"topics": None})
    assert frame[4:] == b"\0\x03\0\x09\0\0\0\x01" + b"\xff\xff" + b"\0" + b"\0" + b"\x01\0\0" + b"\0"
    assert decode_request_header(frame[4:]) == (3, 9, 1, None, 11)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_an_api_versions_answer_never_has_a_flexible_header(version: int) -> None:
    frame = encode_response(API_VERSIONS, version, 5, {"api_keys": [{"api_key": 18, "max_version": 4}]})[4:]
    assert frame[4:6] == b"\0\0"
    entry = {"api_key": 18, "min_version": 0, "max_version": 4}
    assert decode_response(API_VERSIONS, version, frame, 5)["api_keys"] == [entry]


def test_an_unsupported_version_answer_to_api_versions_is_read_as_version_0() -> None:
    answer = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}]}
    frame = encode_response(API_VERSIONS, 0, 5, answer)[4:]
    for asked in range(5):
        body = decode_response(API_VERSIONS, asked, frame, 5)
        assert body["error_code"] == 35 and body["api_keys"] == answer["api_keys"]
        assert body["finalized_features_epoch"] == -1 and body["supported_features"] == []


def test_that_error_in_an_answer_of_another_api_does_not_change_its_version() -> None:
    frame = encode_response(SASL_AUTHENTICATE, 2, 5, {"error_code": 35, "error_message": "no"})[4:]
    assert decode_response(SASL_AUTHENTICATE, 2, frame, 5)["error_message"] == "no"


def test_features_of_the_cluster_are_read_from_tagged_fields() -> None:
    answer = {
        "supported_features": [{"name": "transaction.version", "min_version": 0, "max_version": 2}],
        "finalized_features_epoch": 12,
        "finalized_features": [{"name": "transaction.version", "max_version_level": 2, "min_version_level": 2}],
        "zk_migration_ready": True,
    }
    body = decode_response(API_VERSIONS, 3, encode_response(API_VERSIONS, 3, 1, answer)[4:], 1)
    assert {name: body[name] for name in answer} == answer


@pytest.mark.parametrize("version", [0, 4])
def test_a_response_begins_with_its_length(version: int) -> None:
    frame = encode_response(INIT_PRODUCER_ID, version, 8, {"producer_id": 5})
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_an_answer_with_a_foreign_correlation_id_is_refused() -> None:
    frame = encode_response(INIT_PRODUCER_ID, 4, 8, {})[4:]
    with pytest.raises(RemoteProtocolError, match="InitProducerId answer v4 has correlation id 8, expected 7"):
        decode_response(INIT_PRODUCER_ID, 4, frame, 7)


def test_unknown_tags_in_an_answer_header_are_skipped() -> None:
    frame = encode_response(INIT_PRODUCER_ID, 4, 8, {"producer_id": 5})[4:]
    tagged = frame[:4] + b"\x01\x63\x02ab" + frame[5:]
    assert decode_response(INIT_PRODUCER_ID, 4, tagged, 8) == decode_response(INIT_PRODUCER_ID, 4, frame, 8)


@pytest.mark.parametrize("size", range(4))
def test_a_frame_without_room_for_a_correlation_id_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="no room"):
        peek_correlation_id(bytes(size))
    with pytest.raises(RemoteProtocolError, match="no room"):
        decode_response(METADATA, 4, bytes(size), 0)


def test_every_truncated_request_header_is_refused() -> None:
    frame = encode_request(METADATA, 9, correlation_id=1, client_id="client", body={"topics": None})[4:]
    for size in range(17):
        with pytest.raises(RemoteProtocolError):
            decode_request_header(frame[:size])
    assert decode_request_header(frame[:17]) == (3, 9, 1, "client", 17)


def test_a_request_of_an_unknown_api_or_version_still_has_a_readable_header() -> None:
    assert decode_request_header(b"\x03\xe8\0\x01\0\0\0\x09\0\x01a" + b"rest") == (1000, 1, 9, "a", 11)
    assert decode_request_header(b"\0\x12\0\x63\0\0\0\x09\0\x01a\0" + b"rest") == (18, 99, 9, "a", 12)


@pytest.mark.parametrize("correlation_id", [2**31, -(2**31) - 1])
def test_a_correlation_id_that_does_not_fit_is_our_error(correlation_id: int) -> None:
    with pytest.raises(LocalProtocolError, match="correlation id"):
        encode_request(METADATA, 9, correlation_id=correlation_id, client_id=None, body={})


def test_a_version_outside_the_table_is_our_error() -> None:
    with pytest.raises(LocalProtocolError, match="Metadata request v99: spoken here are versions 4 to 13"):
        METADATA.encode_request(99, {})


def test_errors_of_bodies_name_the_message() -> None:
    with pytest.raises(LocalProtocolError, match="Metadata request v4: topics: a list is needed"):
        METADATA.encode_request(4, {"topics": 5})
    with pytest.raises(RemoteProtocolError, match="Metadata answer v4: ends inside"):
        METADATA.decode_response(4, b"")
    with pytest.raises(RemoteProtocolError, match="InitProducerId answer v0: 3 bytes left over at byte 16"):
        INIT_PRODUCER_ID.decode_response(0, bytes(19))


def test_bytes_behind_a_request_are_an_error_unless_the_reader_ignores_them() -> None:
    body = METADATA.encode_request(4, {"topics": [{"name": "t"}]})
    for rest in (b"\0", b"rest"):
        with pytest.raises(RemoteProtocolError, match=f"Metadata request v4: {len(rest)} bytes left over"):
            METADATA.decode_request(4, body + rest)
        assert METADATA.decode_request(4, body + rest, ignore_rest=True) == METADATA.decode_request(4, body)


def test_a_length_is_in_bytes_whatever_a_view_counts() -> None:
    numbers = array("h", [1, 2, 3])
    given = {"auth_bytes": memoryview(numbers)}
    assert SASL_AUTHENTICATE.encode_request(0, given) == b"\0\0\0\x06" + numbers.tobytes()


def test_a_frame_comes_out_when_its_last_byte_is_in() -> None:
    frames = FrameBuffer(frame_bytes_max=10)
    assert frames.size == 0
    for byte in b"\0\0\0\x02a":
        frames.feed(bytes([byte]))
        assert frames.next_frame() is None
    frames.feed(b"b\0\0\0\0\0")
    assert frames.next_frame() == b"ab"
    assert frames.next_frame() == b""
    assert frames.next_frame() is None and frames.size == 1


@pytest.mark.parametrize("length", [-1, -(2**31), 11, 2**31 - 1])
def test_a_length_outside_the_limit_is_refused_for_good(length: int) -> None:
    frames = FrameBuffer(frame_bytes_max=10)
    frames.feed(length.to_bytes(4, "big", signed=True))
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match=f"a frame of {length} bytes"):
            frames.next_frame()
        frames.feed(b"\0\0\0\x01a")


def test_the_limit_can_be_raised_after_authentication() -> None:
    frames = FrameBuffer(frame_bytes_max=2)
    frames.feed(b"\0\0\0\x02ab")
    assert frames.next_frame() == b"ab"
    frames.frame_bytes_max = 100
    frames.feed(b"\0\0\0\x03abc")
    assert frames.next_frame() == b"abc"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP server"),
        (b"GET / HTTP/1.1\r\n", "HTTP client"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH server"),
    ],
)
def test_a_foreign_protocol_is_named(data: bytes, name: str) -> None:
    frames = FrameBuffer(frame_bytes_max=100 * 1024 * 1024)
    frames.feed(data)
    with pytest.raises(RemoteProtocolError, match=f"no Kafka broker but .*{name}"):
        frames.next_frame()


def test_an_announced_length_allocates_nothing() -> None:
    frames = FrameBuffer(frame_bytes_max=100 * 1024 * 1024)
    tracemalloc.start()
    try:
        frames.feed((100 * 1024 * 1024).to_bytes(4, "big") + b"x")
        assert frames.next_frame() is None
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()
