"""The compression ratio of a topic's batches, estimated so that `batch.size` can limit what a batch takes on the wire.

The Java client estimates in the same way, from the batches so far. Where its estimate is wrong, a broker refuses the
batch as too large and the client splits it. Here no batch is larger than `max.request.size` before compression
(assembler.py), so no batch has to be split because of an estimate.
"""

from __future__ import annotations

# Batches differ a little: the next one may compress this much worse.
MARGIN = 1.05
# A better ratio counts slowly: each batch moves the estimate by one part in so many of the difference.
CAUTION = 8


class CompressionRatio:
    def __init__(self) -> None:
        # Compressed size divided by uncompressed size, by topic.
        self._ratios: dict[str, float] = {}

    def on_compressed(self, topic: str, before: int, after: int) -> None:
        """To be called for full batches only: small ones compress worse and say nothing about full ones."""
        ratio = min(1.0, MARGIN * after / before)
        expected = self._ratios.get(topic, 1.0)
        # Too low an estimate makes batches larger than they should be, so a worse ratio counts at once.
        self._ratios[topic] = ratio if ratio > expected else expected + (ratio - expected) / CAUTION

    def bytes_before_compression(self, topic: str, after: int) -> int:
        """How many bytes are expected to be compressed to `after` bytes."""
        return int(after / self._ratios.get(topic, 1.0))
