"""Answers that are put together of parts: what is told of each partition or name, or the error that it is refused with.

What an answer leaves out has the protocol's default (`wire/schema.py`): error code 0, and mostly -1 or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka_sink.testing.errors import Refused

Answer = dict[str, Any]


def or_refusal(tell: Callable[..., Answer], *given: Any) -> Answer:
    try:
        return tell(*given)
    except Refused as refusal:
        return {"error_code": refusal.code}


def or_refusal_in_words(tell: Callable[..., Answer], *given: Any) -> Answer:
    try:
        return {"error_message": None, **tell(*given)}
    except Refused as refusal:
        return {"error_code": refusal.code, "error_message": str(refusal)}


def by_partition(
    topics: Iterable[Mapping[str, Any]],
    tell: Callable[[str, Any], Answer],
    *,
    topic: str = "name",
    asked: str = "partitions",
    index: str = "partition_index",
    **unless_told: Any,
) -> list[Answer]:
    """What `tell(topic, asked)` says of each partition in a request, in its order. `asked` is an index, or has one.

    `topic`, `asked` and `index` are what the API calls these fields.
    """

    def told(name: str, each: Any) -> Answer:
        place = {index: each if isinstance(each, int) else each[index]}
        return {**place, **unless_told, **or_refusal(tell, name, each)}

    return [{topic: one[topic], "partitions": [told(one[topic], each) for each in one[asked]]} for one in topics]
