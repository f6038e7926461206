"""Kafka's key hash, byte by byte: the slow twin of kafka_sink/formats/records/murmur2.py."""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF
WORD_BYTES = 4


def murmur2(content: bytes) -> int:
    """The hash of one key, unsigned."""
    hashed = SEED ^ len(content)
    whole_bytes = len(content) - len(content) % WORD_BYTES
    for position in range(0, whole_bytes, WORD_BYTES):
        word = int.from_bytes(content[position : position + WORD_BYTES], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = (hashed * MULTIPLIER & MASK) ^ word
    if tail := content[whole_bytes:]:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15
