"""Codecs: levels, framing on the wire, limits, missing packages."""

from __future__ import annotations

import gzip
import importlib
import struct
from typing import Any

import lz4.frame
import pytest
import zstandard

from kafka_sink.errors import ConfigError, RemoteProtocolError
from kafka_sink.records.compression import CODEC_IDS, XERIAL_HEADER, compressor, decompress

TEXT = b"".join(b"line %d of a text that can be packed well\n" % number for number in range(3000))
PACKING = ["gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", sorted(CODEC_IDS))
@pytest.mark.parametrize("content", [b"", b"a", TEXT, bytes(300_000)], ids=["empty", "one", "text", "zeros"])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview], ids=lambda wrap: wrap.__name__)
def test_content_comes_back_from_any_kind_of_buffer(codec: str, content: bytes, wrap: Any) -> None:
    packed = compressor(codec).compress(wrap(content))
    assert type(packed) is bytes
    assert decompress(CODEC_IDS[codec], wrap(packed), bytes_max=len(content)) == content


@pytest.mark.parametrize(
    ("codec", "levels"),
    [("gzip", [-1, 1, 6, 9]), ("lz4", [-5, 0, 1, 3, 9, 12, 17]), ("zstd", [-100, -1, 1, 3, 19, 22])],
)
def test_every_level_packs_readably(codec: str, levels: list[int]) -> None:
    for level in levels:
        packed = compressor(codec, level).compress(TEXT)
        assert len(packed) < len(TEXT)
        assert decompress(CODEC_IDS[codec], packed, bytes_max=len(TEXT)) == TEXT


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("gzip", -2), ("lz4", 18), ("zstd", 23), ("none", 1), ("snappy", 1)]
)
def test_level_that_does_not_exist_is_refused_when_the_compressor_is_made(codec: str, level: int) -> None:
    with pytest.raises(ConfigError, match="level"):
        compressor(codec, level)


def test_unknown_codec_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'lzma' is unknown; known are none, gzip, snappy, lz4, zstd"):
        compressor("lzma")
    for codec_id in (5, 6, 7, -1):
        with pytest.raises(RemoteProtocolError, match="is unknown"):
            decompress(codec_id, b"", bytes_max=1)


def test_lz4_level_9_is_the_fast_compressor_as_in_java() -> None:
    fast = compressor("lz4").compress(TEXT)
    assert compressor("lz4", 9).compress(TEXT) == fast
    assert len(compressor("lz4", 8).compress(TEXT)) < len(fast)
    # Java's highest levels are aliases of 12, its lowest of the weakest high compression.
    assert compressor("lz4", 17).compress(TEXT) == compressor("lz4", 12).compress(TEXT)
    assert compressor("lz4", 1).compress(TEXT) == compressor("lz4", 3).compress(TEXT)


def test_lz4_frames_have_independent_small_blocks_and_no_checksums() -> None:
    info = lz4.frame.get_frame_info(compressor("lz4").compress(TEXT))
    assert info["block_linked"] is False, "Apache Kafka's reader refuses linked blocks"
    assert (info["block_size"], info["content_checksum"], info["block_checksum"]) == (65536, False, False)
    assert info["content_size"] == 0


def test_snappy_blocks_are_framed_as_snappy_java_does() -> None:
    packed = compressor("snappy").compress(bytes(70_000))
    assert packed.startswith(XERIAL_HEADER)
    blocks = 0
    position = len(XERIAL_HEADER)
    while position < len(packed):
        position += 4 + struct.unpack_from(">i", packed, position)[0]
        blocks += 1
    assert (blocks, position) == (3, len(packed))


def test_bare_snappy_block_of_other_clients_is_read() -> None:
    packed = compressor("snappy").compress(b"abc" * 100)
    assert decompress(2, packed[len(XERIAL_HEADER) + 4 :], bytes_max=300) == b"abc" * 100


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_frames_one_after_the_other_are_one_content(codec: str) -> None:
    packed = compressor(codec).compress(b"ab") + compressor(codec).compress(b"") + compressor(codec).compress(b"cd")
    assert decompress(CODEC_IDS[codec], packed, bytes_max=4) == b"abcd"
    with pytest.raises(RemoteProtocolError, match="more than the allowed 3 bytes"):
        decompress(CODEC_IDS[codec], packed, bytes_max=3)


@pytest.mark.parametrize("codec", PACKING)
def test_truncation_anywhere_is_refused(codec: str) -> None:
    packed = compressor(codec).compress(b"some content, " * 20)
    # Behind its framing header snappy has no end mark: nothing more is the empty content.
    empty_at = len(XERIAL_HEADER) if codec == "snappy" else -1
    for cut in range(len(packed)):
        if cut == empty_at:
            assert decompress(CODEC_IDS[codec], packed[:cut], bytes_max=1000) == b""
            continue
        with pytest.raises(RemoteProtocolError):
            decompress(CODEC_IDS[codec], packed[:cut], bytes_max=1000)


@pytest.mark.parametrize("codec", PACKING)
def test_bytes_behind_the_content_are_refused(codec: str) -> None:
    packed = compressor(codec).compress(b"some content")
    with pytest.raises(RemoteProtocolError):
        decompress(CODEC_IDS[codec], packed + b"\x07junk", bytes_max=1000)


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        ("gzip", gzip.compress(bytes(30_000_000))),
        ("lz4", lz4.frame.compress(bytes(30_000_000))),
        ("zstd", zstandard.ZstdCompressor().compress(bytes(30_000_000))),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(bytes(30_000_000))),
        ("snappy", b"\xff\xff\xff\xff\x07" + b"\x00"),
        ("snappy", XERIAL_HEADER + struct.pack(">i", 6) + b"\xff\xff\xff\xff\x07\x00"),
    ],
    ids=["gzip", "lz4", "zstd", "zstd without size", "snappy", "xerial"],
)
def test_bomb_is_refused_at_the_limit(codec: str, bomb: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="more than the allowed 1000 bytes"):
        decompress(CODEC_IDS[codec], bomb, bytes_max=1000)


def test_frame_that_claims_a_huge_content_is_refused_without_reserving_it() -> None:
    packed = bytearray(zstandard.ZstdCompressor().compress(b"x" * 300))
    packed[5:7] = b"\xff\xff"
    with pytest.raises(RemoteProtocolError):
        decompress(4, bytes(packed), bytes_max=1000)


@pytest.mark.parametrize(
    ("codec", "packages", "text"),
    [
        ("snappy", {"cramjam", "snappy"}, "needs the package cramjam or python-snappy"),
        ("zstd", {"zstandard", "compression.zstd"}, "needs the package zstandard"),
    ],
)
def test_missing_package_is_a_config_error_when_the_compressor_is_made(
    monkeypatch: pytest.MonkeyPatch, codec: str, packages: set[str], text: str
) -> None:
    real = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        if name in packages:
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", import_module)
    with pytest.raises(ConfigError, match=text):
        compressor(codec)


class FakeSnappy:
    """python-snappy's functions, as far as they are called; cramjam does the work."""

    class UncompressError(Exception):
        pass

    @staticmethod
    def compress(data: bytes) -> bytes:
        import cramjam

        return bytes(cramjam.snappy.compress_raw(data))

    @classmethod
    def uncompress(cls, data: bytes) -> bytes:
        import cramjam

        try:
            return bytes(cramjam.snappy.decompress_raw(data))
        except cramjam.DecompressionError:
            raise cls.UncompressError from None


class FakeZstd:
    """Python 3.14's compression.zstd, as far as it is called; zstandard does the work."""

    class ZstdError(Exception):
        pass

    @staticmethod
    def compress(data: Any, level: int) -> bytes:
        return zstandard.ZstdCompressor(level=level).compress(data)

    class ZstdDecompressor:
        def __init__(self) -> None:
            self.frame = zstandard.ZstdDecompressor().decompressobj()
            self.unused_data = b""
            self.eof = False
            self.pending = b""

        def decompress(self, data: bytes, max_length: int) -> bytes:
            try:
                self.pending += self.frame.decompress(data) if data else b""
            except zstandard.ZstdError:
                raise FakeZstd.ZstdError from None
            part, self.pending = self.pending[:max_length], self.pending[max_length:]
            self.eof = self.frame.eof and not self.pending
            self.unused_data = self.frame.unused_data if self.eof else b""
            return part


def test_python_snappy_and_the_built_in_zstd_do_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module
    stand_ins: dict[str, Any] = {"snappy": FakeSnappy, "compression.zstd": FakeZstd}

    def import_module(name: str, package: str | None = None) -> Any:
        if name == "cramjam":
            raise ImportError(name)
        return stand_ins.get(name) or real(name, package)

    monkeypatch.setattr(importlib, "import_module", import_module)
    for codec in ("snappy", "zstd"):
        packed = compressor(codec).compress(TEXT)
        assert decompress(CODEC_IDS[codec], packed, bytes_max=len(TEXT)) == TEXT
        with pytest.raises(RemoteProtocolError, match="more than the allowed"):
            decompress(CODEC_IDS[codec], packed, bytes_max=len(TEXT) - 1)
        with pytest.raises(RemoteProtocolError):
            decompress(CODEC_IDS[codec], packed[:-1], bytes_max=len(TEXT))
        with pytest.raises(RemoteProtocolError):
            decompress(CODEC_IDS[codec], b"\x05garbage", bytes_max=len(TEXT))
