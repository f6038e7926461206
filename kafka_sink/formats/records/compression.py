"""Codecs: compress the records of a batch, and safely decompress untrusted bytes.

An invalid level, or a codec that this build of pyarrow lacks, is a `ConfigError` when the compressor is made, never
when it is used. Decompression yields at most `bytes_max` bytes and raises only `RemoteProtocolError`, whatever the
input: garbage, truncation, trailing bytes, a decompression bomb.

A `Compressor` may hold a context that is reused from batch to batch; only one thread may use it at a time.

Snappy and zstd come from pyarrow: as fast as their own packages (zstd takes 8 us more per batch, for its own context),
with identical output. It also reads gzip and lz4, which it cannot write as Java does.

Levels of lz4: Java's client takes 1..17 with default 9, but gives level 9 to the *fast* compressor and only the other
levels to the high-compression one. So 9 (and no level) means level 0 of this library, the rest its high-compression
levels, which start at 3 and end at 12. Java has no faster setting; here 0 and below are accepted as acceleration
(-5 takes a fifth less time than 0 and packs 4 % worse).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafka_sink.errors import ConfigError, RemoteProtocolError
from kafka_sink.frozen import frozen

if TYPE_CHECKING:
    import pyarrow as pa

Data = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_IDS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
CODEC_NAMES = {codec_id: name for name, codec_id in CODEC_IDS.items()}

# The framing of snappy-java, which the Java client writes and reads: a magic, version and lowest compatible version,
# then blocks with their compressed length in front. Snappy itself works on blocks of 64 KiB; snappy-java writes 32 KiB,
# and readers allocate per block.
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_MAGIC_BYTES = 8
XERIAL_BLOCK_BYTES = 32 * 1024
# At most: a copy of 64 bytes takes three.
SNAPPY_GROWTH_MAX = 22

# zlib's wbits for gzip: 15 for a window of 32 KiB, plus 16 for the gzip container.
GZIP_WINDOW_BITS = 31
GZIP_DEFAULT_LEVEL = -1
READ_BYTES = 256 * 1024

_LEVELS = {"gzip": (1, 9), "lz4": (-(2**16), 17), "zstd": (-(2**17), 22)}


@frozen
class Compressor:
    codec_id: int
    compress: Callable[[Data], bytes]

    def pack(self, content: Data) -> tuple[int, bytes]:
        """The records of a batch as they are sent, and their codec: none if that one does not make them smaller.

        So a batch is never larger than its records, whose size was compared with max.request.size: a row that was
        accepted is not refused because random bytes grow in a codec.
        """
        packed = self.compress(content)
        if self.codec_id == NONE or len(packed) < len(content):
            return self.codec_id, packed
        return NONE, bytes(content)


def make_compressor(codec_name: str, level: int | None = None) -> Compressor:
    if codec_name not in CODEC_IDS:
        raise ConfigError(f"compression codec {codec_name!r} is unknown; known are {', '.join(CODEC_IDS)}")
    if level is not None:
        _check_level(codec_name, level)
    return Compressor(CODEC_IDS[codec_name], _MAKERS[codec_name](level))


def decompress(codec_id: int, data: Data, *, bytes_max: int) -> bytes:
    return b"".join(decompressed_parts(codec_id, data, bytes_max=bytes_max))


def decompressed_parts(codec_id: int, data: Data, *, bytes_max: int) -> Iterator[bytes]:
    """The content in pieces, for those who need not hold all of it."""
    if codec_id == NONE:
        if len(data) > bytes_max:
            raise _too_large_error("uncompressed", bytes_max)
        yield bytes(data)
    elif codec_id == SNAPPY:
        yield from _snappy_parts(data, bytes_max)
    elif codec_id in CODEC_NAMES:
        yield from _stream_parts(CODEC_NAMES[codec_id], data, bytes_max)
    else:
        raise RemoteProtocolError(f"compression codec {codec_id} is unknown")


# ---- compressing -----------------------------------------------------------------------------------------------


def _check_level(codec_name: str, level: int) -> None:
    if codec_name not in _LEVELS:
        raise ConfigError(f"the codec {codec_name} has no compression level")
    lowest, highest = _LEVELS[codec_name]
    if not lowest <= level <= highest and (codec_name, level) != ("gzip", GZIP_DEFAULT_LEVEL):
        raise ConfigError(f"compression level {level} of {codec_name} is out of range {lowest}..{highest}")


def _make_none(_level: int | None) -> Callable[[Data], bytes]:
    return bytes


def _make_gzip(level: int | None) -> Callable[[Data], bytes]:
    def compress(data: Data) -> bytes:
        stream = zlib.compressobj(GZIP_DEFAULT_LEVEL if level is None else level, zlib.DEFLATED, GZIP_WINDOW_BITS)
        return stream.compress(data) + stream.flush()

    return compress


def _make_snappy(_level: int | None) -> Callable[[Data], bytes]:
    codec = _arrow_codec("snappy")

    def compress(data: Data) -> bytes:
        view = memoryview(data)
        parts = [XERIAL_HEADER]
        for start in range(0, len(view), XERIAL_BLOCK_BYTES):
            block = codec.compress(view[start : start + XERIAL_BLOCK_BYTES], asbytes=True)
            parts.append(len(block).to_bytes(4, "big"))
            parts.append(block)
        return b"".join(parts)

    return compress


def _make_lz4(level: int | None) -> Callable[[Data], bytes]:
    import lz4.frame

    if level is None or level == 9:
        library_level = 0
    else:
        library_level = min(max(level, 3), 12) if level > 0 else level

    def compress(data: Data) -> bytes:
        # Apache Kafka's reader rejects linked blocks. Java writes blocks of 64 KiB without checksums: the batch has its
        # own checksum.
        return lz4.frame.compress(
            data,
            compression_level=library_level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
            block_checksum=False,
            store_size=False,
        )

    return compress


def _make_zstd(level: int | None) -> Callable[[Data], bytes]:
    codec = _arrow_codec("zstd", 3 if level is None else level)
    # The result is copied to its own size. The codec's own was allocated for content that does not shrink, and was then
    # cut where it lies: of rows that pack well each batch that waits would leave the rest, up to a megabyte, as a hole
    # that no later result fits into.
    return lambda data: bytes(memoryview(codec.compress(data, asbytes=True)))


def _arrow_codec(name: str, level: int | None = None) -> pa.Codec:
    import pyarrow as pa  # as with every codec: loaded only if used

    if not pa.Codec.is_available(name):
        raise ConfigError(f"this build of pyarrow has no codec {name}")
    return pa.Codec(name, compression_level=level)


_MAKERS: dict[str, Callable[[int | None], Callable[[Data], bytes]]] = {
    "none": _make_none,
    "gzip": _make_gzip,
    "snappy": _make_snappy,
    "lz4": _make_lz4,
    "zstd": _make_zstd,
}


# ---- decompressing ---------------------------------------------------------------------------------------------


def _too_large_error(codec_name: str, bytes_max: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{codec_name} data holds more than the allowed {bytes_max} bytes")


def _broken_error(codec_name: str, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{codec_name} data is broken: {reason}")


def _stream_parts(codec_name: str, data: Data, bytes_max: int) -> Iterator[bytes]:
    """Frames until the input ends. Requests one byte more than allowed, so no more than that is ever decompressed."""
    import pyarrow as pa

    if not data:
        raise _broken_error(codec_name, "truncated")
    room = bytes_max
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(data), codec_name)
        # A read reserves what it asks for, and the limit may be far above the content.
        while part := stream.read(min(READ_BYTES, room + 1)):
            room -= len(part)
            if room < 0:
                raise _too_large_error(codec_name, bytes_max)
            yield part
    except (OSError, NotImplementedError):  # the latter: this build of pyarrow lacks the codec
        raise _broken_error(codec_name, "not decodable") from None


def _snappy_parts(data: Data, bytes_max: int) -> Iterator[bytes]:
    """Snappy has its uncompressed length first, so a bomb is rejected before anything is allocated for it."""
    codec = _arrow_codec("snappy")
    view = memoryview(bytes(data))
    if view[:XERIAL_MAGIC_BYTES] != XERIAL_HEADER[:XERIAL_MAGIC_BYTES]:
        # Clients other than Java write one raw block; Java reads that too.
        yield _read_snappy_block(codec, view, bytes_max)
        return
    if len(view) < len(XERIAL_HEADER):
        raise _broken_error("snappy", "truncated")
    room = bytes_max
    position = len(XERIAL_HEADER)
    while position < len(view):
        block_bytes = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if block_bytes > len(view) - position:
            raise _broken_error("snappy", "truncated")
        part = _read_snappy_block(codec, view[position : position + block_bytes], room)
        yield part
        room -= len(part)
        position += block_bytes


def _read_snappy_block(codec: pa.Codec, block: memoryview, room: int) -> bytes:
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _broken_error("snappy", "no length")
    if claimed > room:
        raise _too_large_error("snappy", room)
    if claimed > SNAPPY_GROWTH_MAX * len(block):
        raise _broken_error("snappy", "not decodable")
    try:
        return bytes(codec.decompress(block, decompressed_size=claimed, asbytes=True))
    except OSError:
        raise _broken_error("snappy", "not decodable") from None
