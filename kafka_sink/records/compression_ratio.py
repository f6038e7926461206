"""How far compression shrinks a topic's batches, so that `batch.size` can mean what a batch takes on the wire.

The Java client guesses alike, from the batches so far. What it guesses wrong it repairs when a broker refuses a batch
as too large; here no guess makes a batch that is larger than `max.request.size` before compression (assembler.py), so
that there is nothing to repair.
"""

from __future__ import annotations

# Batches differ a little: this much room is left for the next one to shrink less.
MARGIN = 1.05
# Data that suddenly shrinks more is believed by and by.
CAUTION = 8


class CompressionRatio:
    def __init__(self) -> None:
        # What is left of a topic's bytes after compression, as a share.
        self._left: dict[str, float] = {}

    def on_compressed(self, topic: str, before: int, after: int) -> None:
        """Of a batch that was filled: small ones shrink less, and say nothing about full ones."""
        left = min(1.0, MARGIN * after / before)
        expected = self._left.get(topic, 1.0)
        # To expect too little makes batches larger than they should be: that is mended at once.
        self._left[topic] = left if left > expected else expected + (left - expected) / CAUTION

    def before(self, topic: str, after: int) -> int:
        """How many bytes are expected to become that many."""
        return int(after / self._left.get(topic, 1.0))
