"""Codecs: levels, framing on the wire, limits, what other libraries read and write."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from typing import Any
from unittest import mock

import cramjam
import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from kafka_sink.errors import ConfigError, RemoteProtocolError
from kafka_sink.formats.records.compression import CODEC_IDS, XERIAL_HEADER, decompress, make_compressor

TEXT = b"".join(b"line %d of a text that can be packed well\n" % number for number in range(3000))
PACKING = ["gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", sorted(CODEC_IDS))
@pytest.mark.parametrize("content", [b"", b"a", TEXT, bytes(300_000)], ids=["empty", "one", "text", "zeros"])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview], ids=lambda wrap: wrap.__name__)
def test_content_comes_back_from_any_kind_of_buffer(codec: str, content: bytes, wrap: Any) -> None:
    packed = make_compressor(codec).compress(wrap(content))
    assert type(packed) is bytes
    assert decompress(CODEC_IDS[codec], wrap(packed), bytes_max=len(content)) == content


@pytest.mark.parametrize(
    ("codec", "levels"),
    [("gzip", [-1, 1, 6, 9]), ("lz4", [-5, 0, 1, 3, 9, 12, 17]), ("zstd", [-100, -1, 1, 3, 19, 22])],
)
def test_every_level_packs_readably(codec: str, levels: list[int]) -> None:
    for level in levels:
        packed = make_compressor(codec, level).compress(TEXT)
        assert len(packed) < len(TEXT)
        assert decompress(CODEC_IDS[codec], packed, bytes_max=len(TEXT)) == TEXT


def test_a_level_is_that_of_the_codecs_own_library_and_without_one_it_is_the_librarys_default() -> None:
    def gzipped(level: int) -> bytes:
        stream = zlib.compressobj(level, wbits=31)
        return stream.compress(TEXT) + stream.flush()

    def packed(level: int) -> bytes:
        return bytes(pa.Codec("zstd", level).compress(TEXT, asbytes=True))

    for level in (1, 6, 9):
        assert make_compressor("gzip", level).compress(TEXT) == gzipped(level)
    for level in (-5, 1, 3, 12):
        assert make_compressor("zstd", level).compress(TEXT) == packed(level)
    for level in (-7, 0):
        assert make_compressor("lz4", level).compress(TEXT) == lz4_frame(level)
    for level in (3, 7, 12):
        assert make_compressor("lz4", level).compress(TEXT) == lz4_frame(level)
    assert make_compressor("gzip").compress(TEXT) == make_compressor("gzip", -1).compress(TEXT) == gzipped(6)
    assert make_compressor("zstd").compress(TEXT) == packed(3)
    assert make_compressor("lz4").compress(TEXT) == lz4_frame(0)


def lz4_frame(level: int) -> bytes:
    return lz4.frame.compress(
        TEXT, compression_level=level, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("gzip", -2), ("lz4", 18), ("zstd", 23), ("none", 1), ("snappy", 1)]
)
def test_level_that_does_not_exist_is_refused_when_the_compressor_is_made(codec: str, level: int) -> None:
    with pytest.raises(ConfigError, match="level"):
        make_compressor(codec, level)


def test_unknown_codec_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'lzma' is unknown; known are none, gzip, snappy, lz4, zstd"):
        make_compressor("lzma")
    for codec_id in (5, 6, 7, -1):
        with pytest.raises(RemoteProtocolError, match="is unknown"):
            decompress(codec_id, b"", bytes_max=1)


def test_lz4_level_9_is_the_fast_compressor_as_in_java() -> None:
    fast = make_compressor("lz4").compress(TEXT)
    assert make_compressor("lz4", 9).compress(TEXT) == fast
    assert len(make_compressor("lz4", 8).compress(TEXT)) < len(fast)
    # Java's levels above 12 are aliases of 12; its lowest ones are aliases of 3, the weakest high compression.
    assert make_compressor("lz4", 17).compress(TEXT) == make_compressor("lz4", 12).compress(TEXT)
    assert make_compressor("lz4", 1).compress(TEXT) == make_compressor("lz4", 3).compress(TEXT)


def test_lz4_frames_have_independent_small_blocks_and_no_checksums() -> None:
    info = lz4.frame.get_frame_info(make_compressor("lz4").compress(TEXT))
    assert info["block_linked"] is False, "Apache Kafka's reader refuses linked blocks"
    assert (info["block_size"], info["content_checksum"], info["block_checksum"]) == (65536, False, False)
    assert info["content_size"] == 0


def test_snappy_blocks_are_framed_as_snappy_java_does() -> None:
    packed = make_compressor("snappy").compress(bytes(70_000))
    assert packed.startswith(XERIAL_HEADER)
    blocks = 0
    position = len(XERIAL_HEADER)
    while position < len(packed):
        position += 4 + struct.unpack_from(">i", packed, position)[0]
        blocks += 1
    assert (blocks, position) == (3, len(packed))


def test_bare_snappy_block_of_other_clients_is_read() -> None:
    packed = make_compressor("snappy").compress(b"abc" * 100)
    assert decompress(2, packed[len(XERIAL_HEADER) + 4 :], bytes_max=300) == b"abc" * 100


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_frames_one_after_the_other_are_one_content(codec: str) -> None:
    packed = (
        make_compressor(codec).compress(b"ab")
        + make_compressor(codec).compress(b"")
        + make_compressor(codec).compress(b"cd")
    )
    assert decompress(CODEC_IDS[codec], packed, bytes_max=4) == b"abcd"
    with pytest.raises(RemoteProtocolError, match="more than the allowed 3 bytes"):
        decompress(CODEC_IDS[codec], packed, bytes_max=3)


@pytest.mark.parametrize("codec", PACKING)
def test_truncation_anywhere_is_refused(codec: str) -> None:
    packed = make_compressor(codec).compress(b"some content, " * 20)
    # Snappy has no end mark, so the framing header alone is valid empty content.
    empty_at = len(XERIAL_HEADER) if codec == "snappy" else -1
    for cut in range(len(packed)):
        if cut == empty_at:
            assert decompress(CODEC_IDS[codec], packed[:cut], bytes_max=1000) == b""
            continue
        with pytest.raises(RemoteProtocolError):
            decompress(CODEC_IDS[codec], packed[:cut], bytes_max=1000)


@pytest.mark.parametrize("codec", PACKING)
def test_bytes_behind_the_content_are_refused(codec: str) -> None:
    packed = make_compressor(codec).compress(b"some content")
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


@pytest.mark.parametrize("codec", sorted(CODEC_IDS))
def test_a_limit_far_above_the_content_reserves_no_memory(codec: str) -> None:
    """As for a batch of the ledger, in a process whose memory is limited."""
    packed = make_compressor(codec).compress(TEXT)
    tracemalloc.start()
    assert decompress(CODEC_IDS[codec], packed, bytes_max=128 * 1024 * 1024) == TEXT
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 * 1024 * 1024


def test_frame_that_claims_a_huge_content_is_refused_without_reserving_it() -> None:
    packed = bytearray(zstandard.ZstdCompressor().compress(b"x" * 300))
    packed[5:7] = b"\xff\xff"
    with pytest.raises(RemoteProtocolError):
        decompress(4, bytes(packed), bytes_max=1000)


def test_a_codec_that_pyarrow_was_built_without_is_a_config_error_when_the_compressor_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pa, "Codec", mock.Mock(is_available=lambda _name: False))
    for codec in ("snappy", "zstd"):
        with pytest.raises(ConfigError, match=f"this build of pyarrow has no codec {codec}"):
            make_compressor(codec)


@pytest.mark.parametrize("level", [-5, 1, 3, 19])
def test_zstd_and_snappy_understand_the_packages_of_that_name(level: int) -> None:
    """The package for zstd is another wrapper of the same library; that for snappy is another implementation."""
    packed = make_compressor("zstd", level).compress(TEXT)
    assert zstandard.ZstdDecompressor().decompress(packed) == TEXT
    assert decompress(4, zstandard.ZstdCompressor(level=level).compress(TEXT), bytes_max=len(TEXT)) == TEXT
    block = make_compressor("snappy").compress(TEXT[:30_000])[len(XERIAL_HEADER) + 4 :]
    assert bytes(cramjam.snappy.decompress_raw(block)) == TEXT[:30_000]
    assert decompress(2, bytes(cramjam.snappy.compress_raw(TEXT)), bytes_max=len(TEXT)) == TEXT
