from __future__ import annotations
from typing import Any

SEEDS: dict[Any, int] = {}


def seeds_until_caught(mutation: Any, seeds: Any) -> Any:
    return None
