"""Frames: the length prefix, the request and response headers, and the buffer that splits a byte stream into frames.

A frame is four bytes of length, then a header, then a body. `FrameBuffer` never allocates for an announced length: it
grows with received data, and rejects a length above its limit as soon as it has the four bytes. The caller sets the
limit and may change it (small before authentication).

An ApiVersions response with code 35 is always in version 0 (KIP-511): a broker cannot respond in a requested version
that it does not know. `decode_response` handles that; `api_keys` has the versions to request instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, error
from typing import Any

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, Api
from kafka_sink.kafka.wire.primitives import string_codec
from kafka_sink.kafka.wire.schema import compile_fields

_LENGTH = Struct(">i")
_CORRELATION = Struct(">i")
_REQUEST_HEAD = Struct(">hhi")
_UNSUPPORTED_VERSION = b"\x00\x23"

# Both header versions have a client id with a two-byte length; version 2 adds tagged fields, of which Kafka has none.
_read_client_id, _write_client_id, _ = string_codec(False, True)
_read_header_tags = compile_fields((), 0, True).read

# First bytes from peers that are not Kafka brokers, read as a length. All are far above any sensible limit.
_FOREIGN = (
    (b"HTTP", "an HTTP server"),
    (b"<htm", "an HTTP server"),
    (b"<!DO", "an HTTP server"),
    (b"GET ", "an HTTP client"),
    (b"POST", "an HTTP client"),
    (b"HEAD", "an HTTP client"),
    (b"PUT ", "an HTTP client"),
    (b"SSH-", "an SSH server"),
    (b"\x15\x03", "TLS (an alert record): the listener expects TLS, or refused it"),
    (b"\x16\x03", "TLS (a handshake record): one side speaks TLS, the other does not"),
)


def encode_request_header(api: Api, version: int, *, correlation_id: int, client_id: str | None) -> bytearray:
    out = bytearray()
    try:
        out += _REQUEST_HEAD.pack(api.key, version, correlation_id)
    except error as cause:
        raise LocalProtocolError(f"{api.name} request v{version}, correlation id {correlation_id}: {cause}") from None
    _write_client_id(out, client_id)
    if api.request_header_version(version) == 2:
        out.append(0)
    return out


def encode_request(
    api: Api, version: int, *, correlation_id: int, client_id: str | None, body: Mapping[str, Any]
) -> bytes:
    header = encode_request_header(api, version, correlation_id=correlation_id, client_id=client_id)
    encoded = api.encode_request(version, body)
    return b"".join((_LENGTH.pack(len(header) + len(encoded)), header, encoded))


def encode_response(api: Api, version: int, correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """For ApiVersions with code 35 the caller passes version 0."""
    tags = b"\0" if api.response_header_version(version) == 1 else b""
    encoded = api.encode_response(version, body)
    return b"".join((_LENGTH.pack(4 + len(tags) + len(encoded)), _CORRELATION.pack(correlation_id), tags, encoded))


def peek_correlation_id(frame: bytes) -> int:
    try:
        correlation_id: int = _CORRELATION.unpack_from(frame)[0]
    except error:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes has no room for a correlation id") from None
    return correlation_id


def decode_response(api: Api, version: int, frame: bytes, expected_correlation_id: int) -> dict[str, Any]:
    correlation_id = peek_correlation_id(frame)
    if correlation_id != expected_correlation_id:
        raise RemoteProtocolError(
            f"{api.name} answer v{version} has correlation id {correlation_id}, expected {expected_correlation_id}"
        )
    offset = _CORRELATION.size
    if api.response_header_version(version) == 1:
        offset = _read_header_tags(frame, offset)[1]
    if api.key == API_VERSIONS.key and frame[offset : offset + 2] == _UNSUPPORTED_VERSION:
        version = 0
    return api.decode_response(version, frame, offset)


def decode_request_header(frame: bytes) -> tuple[int, int, int, str | None, int]:
    """Returns api key, version, correlation id, client id and where the body starts.

    Key and version may be unknown: an unknown API is read as if its header had no tagged fields, and an unknown later
    version of ApiVersions as flexible, so that it can be answered with code 35.
    """
    try:
        api_key, version, correlation_id = _REQUEST_HEAD.unpack_from(frame)
    except error:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes has no room for a request header") from None
    try:
        client_id, offset = _read_client_id(frame, _REQUEST_HEAD.size)
        api = APIS.get(api_key)
        if api is not None and api.request_header_version(version) == 2:
            offset = _read_header_tags(frame, offset)[1]
    except RemoteProtocolError as cause:
        raise RemoteProtocolError(f"request header of API {api_key} v{version}: {cause}") from None
    return api_key, version, correlation_id, client_id, offset


class FrameBuffer:
    """Feed it received data in any portions; call `next_frame` until it returns None."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._data = bytearray()
        # Bytes not returned as a frame yet.
        self.size = 0
        self._failure: str | None = None

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        self._data += data
        self.size = len(self._data)

    def next_frame(self) -> bytes | None:
        """The next frame without its length, or None. After an error there are no more frames."""
        if self._failure is not None:
            raise RemoteProtocolError(self._failure)
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if not 0 <= length <= self.frame_bytes_max:
            self._failure = self._refusal_text(length)
            self._data.clear()
            self.size = 0
            raise RemoteProtocolError(self._failure)
        end = _LENGTH.size + length
        if len(self._data) < end:
            return None
        with memoryview(self._data) as view:
            frame = bytes(view[_LENGTH.size : end])
        # Deleting at the front of a bytearray only moves its start, it does not copy.
        del self._data[:end]
        self.size -= end
        return frame

    def _refusal_text(self, length: int) -> str:
        for beginning, peer in _FOREIGN:
            if self._data.startswith(beginning):
                return f"the peer is no Kafka broker but {peer}"
        if length < 0:
            return f"the peer announced a frame of {length} bytes: it does not speak Kafka's protocol"
        return f"the peer announced a frame of {length} bytes, at most {self.frame_bytes_max} are accepted"
