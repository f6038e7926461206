"""Kafka's key hash (murmur2, 32 bit, fixed seed) over a whole column.

Gathering the key bytes dominates the cost (5 ns per gather and key, whatever its width), arithmetic is almost free. So
32 bytes of every key are gathered at once, through a sliding-window view of the column's bytes, and the steps run over
the columns of that matrix; if keys end at different words, a step is computed for all and kept for those that have the
word. Longer keys take another round per 32 bytes. Once few keys are left (short keys with some very long ones), they
are hashed one by one.

Arithmetic is modulo 2**32: uint32 arrays wrap silently. The scalar reference is tests/support/slow_murmur2.py.
"""

from __future__ import annotations

import numpy as np

from kafka_sink.formats.records.bytes_column import BytesColumn
from kafka_sink.formats.records.varint import Array

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF
WORD_BYTES = 4
WINDOW_BYTES = 32
WINDOW_WORDS = WINDOW_BYTES // WORD_BYTES

# A round over 8 words costs about 50 us whatever the number of keys, a word of a single key 0.1 us.
_FEW_KEYS = 32
_M = np.uint32(MULTIPLIER)
_TAIL_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)


def murmur2_column(column: BytesColumn) -> Array:
    """The hash of every row as uint32. A null is hashed as the empty key; the caller handles nulls."""
    lengths = np.maximum(column.lengths, 0) if column.has_nulls else column.lengths
    first, last = int(column.starts[0]), int(column.starts[-1])
    # A window may begin at the very end of the last key.
    padded = np.zeros(last - first + WINDOW_BYTES, np.uint8)
    padded[: last - first] = column.data[first:last]
    windows = np.ndarray((last - first + 1,), f"V{WINDOW_BYTES}", padded, strides=(1,))
    positions = column.starts[:-1].astype(np.int64) - first

    hashed: Array = lengths.astype(np.uint32) ^ np.uint32(SEED)
    for offset in range(0, column.longest, WINDOW_BYTES):
        if offset == 0 or offset < column.shortest:
            _hash_window(hashed, windows[positions + offset], lengths - offset)
            continue
        rows = np.flatnonzero(lengths > offset)
        if len(rows) < _FEW_KEYS:
            for row in rows.tolist():
                start = int(positions[row])
                rest = padded[start + offset : start + int(lengths[row])]
                hashed[row] = _hash_rest(int(hashed[row]), rest)
            break
        part = hashed[rows]
        _hash_window(part, windows[positions[rows] + offset], lengths[rows] - offset)
        hashed[rows] = part
    hashed ^= hashed >> np.uint32(13)
    hashed *= _M
    hashed ^= hashed >> np.uint32(15)
    return hashed


def partitions_of_keys(column: BytesColumn, partition_count: int) -> Array:
    """The partitions that Java's default partitioner assigns."""
    positive = murmur2_column(column) & np.uint32(0x7FFFFFFF)
    partitions: Array = (positive % np.uint32(partition_count)).astype(np.int32)
    return partitions


def _hash_window(hashed: Array, window: Array, remaining: Array) -> None:
    """Adds the next 32 bytes, or as many as remain, to the hashes, including the tail if it is among them."""
    words = window.view("<u4").reshape(-1, WINDOW_WORDS)
    word_counts = np.minimum(remaining >> 2, WINDOW_WORDS)
    shortest = int(word_counts.min())
    for index in range(int(word_counts.max())):
        if index < shortest:
            _mix_words(hashed, words[:, index].copy())
        else:
            advanced = hashed.copy()
            _mix_words(advanced, words[:, index].copy())
            np.copyto(hashed, advanced, where=word_counts > index)
    if int(remaining.min()) >= WINDOW_BYTES:
        return
    tails = np.where(remaining < WINDOW_BYTES, remaining & 3, 0)
    tail_words = words.reshape(-1)[np.arange(0, words.size, WINDOW_WORDS) + np.minimum(word_counts, WINDOW_WORDS - 1)]
    advanced = (hashed ^ (tail_words & _TAIL_MASKS[tails])) * _M
    np.copyto(hashed, advanced, where=tails > 0)


def _hash_rest(hashed: int, rest: Array) -> int:
    whole_bytes = len(rest) - len(rest) % WORD_BYTES
    words = rest[:whole_bytes].view("<u4").astype(np.uint32)
    words *= _M
    words ^= words >> np.uint32(24)
    words *= _M
    for word in words.tolist():
        hashed = (hashed * MULTIPLIER & MASK) ^ word
    tail = rest[whole_bytes:].tobytes()
    return (hashed ^ int.from_bytes(tail, "little")) * MULTIPLIER & MASK if tail else hashed


def _mix_words(hashed: Array, words: Array) -> None:
    words *= _M
    words ^= words >> np.uint32(24)
    words *= _M
    hashed *= _M
    hashed ^= words
