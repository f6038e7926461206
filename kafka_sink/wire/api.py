"""One Kafka API: its key, the supported versions, and encoding and decoding of request and response in each version.

Codecs are compiled the first time a version is used: importing the table of all APIs costs almost nothing. Decoders
return a dict or raise RemoteProtocolError, never anything else. Trailing bytes are an error too: the Java client
ignores them, but no known broker sends any, and they are the only visible sign of a message decoded with the wrong
version. A null in a non-nullable field is an error, as in the Java client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.wire.schema import Codec, Field, compile_fields

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    key: int
    name: str
    versions: tuple[int, int]
    flexible: int | None
    request: tuple[Field, ...]
    response: tuple[Field, ...]
    _codecs: dict[tuple[bool, int], Codec] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Without the compiled codecs, which cannot be pickled."""
        return Api, (self.key, self.name, self.versions, self.flexible, self.request, self.response)

    @property
    def version_min(self) -> int:
        return self.versions[0]

    @property
    def version_max(self) -> int:
        return self.versions[1]

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible

    def request_header_version(self, version: int) -> int:
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions is always answered with header 0, because a client may lack flexible headers (KIP-511)."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS_KEY else 0

    def encode_request(self, version: int, body: Mapping[str, Any]) -> bytes:
        return self._encode(True, version, body)

    def decode_request(
        self, version: int, data: bytes, offset: int = 0, *, ignore_rest: bool = False
    ) -> dict[str, Any]:
        """`offset` is where the body starts in `data`: after the header if `data` is a whole frame.

        A broker sets `ignore_rest`, as Kafka's do: librdkafka's Metadata request for all topics has trailing bytes.
        """
        return self._decode(True, version, data, offset, ignore_rest)

    def encode_response(self, version: int, body: Mapping[str, Any]) -> bytes:
        return self._encode(False, version, body)

    def decode_response(self, version: int, data: bytes, offset: int = 0) -> dict[str, Any]:
        return self._decode(False, version, data, offset)

    def _encode(self, is_request: bool, version: int, body: Mapping[str, Any]) -> bytes:
        out = bytearray()
        try:
            self._codec(is_request, version).write(out, body)
        except LocalProtocolError as cause:
            raise LocalProtocolError(f"{self._title(is_request, version)}: {cause}") from None
        return bytes(out)

    def _decode(
        self, is_request: bool, version: int, data: bytes, offset: int, ignore_rest: bool = False
    ) -> dict[str, Any]:
        data = bytes(data)
        codec = self._codec(is_request, version)
        try:
            values, position = codec.read(data, offset)
        except RemoteProtocolError as cause:
            raise RemoteProtocolError(f"{self._title(is_request, version)}: {cause}") from None
        if position != len(data) and not ignore_rest:
            title = self._title(is_request, version)
            raise RemoteProtocolError(f"{title}: {len(data) - position} bytes left over at byte {position}")
        decoded: dict[str, Any] = values
        return decoded

    def _title(self, is_request: bool, version: int) -> str:
        return f"{self.name} {'request' if is_request else 'answer'} v{version}"

    def _codec(self, is_request: bool, version: int) -> Codec:
        codec = self._codecs.get((is_request, version))
        if codec is None:
            if not self.version_min <= version <= self.version_max:
                title = self._title(is_request, version)
                raise LocalProtocolError(f"{title}: spoken here are versions {self.version_min} to {self.version_max}")
            rows = self.request if is_request else self.response
            codec = self._codecs[is_request, version] = compile_fields(rows, version, self.is_flexible(version))
        return codec
