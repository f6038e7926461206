"""The compression ratio of a topic's batches, estimated so that `batch.size` can limit its size on the wire.

The Java client estimates in the same way, from the batches so far. If its estimate is wrong, the broker rejects the
batch as too large and the client splits it. Here no batch is larger than `max.request.size` before compression
(assembler.py), so a wrong estimate never causes a split.
"""

from __future__ import annotations

# Batches differ a little: the next one may compress this much worse.
MARGIN = 1.05
# The estimate follows a better ratio slowly: each batch moves it by 1/CAUTION of the difference.
CAUTION = 8


class CompressionRatio:
    def __init__(self) -> None:
        # Compressed size divided by uncompressed size, by topic.
        self._ratios: dict[str, float] = {}

    def on_compressed(self, topic: str, before: int, after: int) -> None:
        """Call for full batches only: small ones compress worse and are not representative."""
        ratio = min(1.0, MARGIN * after / before)
        expected = self._ratios.get(topic, 1.0)
        # Too low an estimate makes batches too large, so a worse ratio counts at once.
        self._ratios[topic] = ratio if ratio > expected else expected + (ratio - expected) / CAUTION

    def bytes_before_compression(self, topic: str, after: int) -> int:
        """How many bytes are expected to compress to `after` bytes."""
        return int(after / self._ratios.get(topic, 1.0))
