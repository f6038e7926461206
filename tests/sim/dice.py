"""All random draws of a run. Each concern has its own stream, so an additional draw shifts no other."""

from __future__ import annotations

import random


class Dice:
    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def __getitem__(self, concern: str) -> random.Random:
        stream = self._streams.get(concern)
        if stream is None:
            # Seeding with text uses SHA-512: the same in every process, whatever PYTHONHASHSEED is.
            stream = self._streams[concern] = random.Random(f"{self.seed}/{concern}")
        return stream


def exponential_ms(stream: random.Random, mean_ms: float) -> int:
    return int(stream.expovariate(1 / mean_ms)) if mean_ms > 0 else 0
