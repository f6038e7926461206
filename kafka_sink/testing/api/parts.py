"""Responses assembled from parts: the result, or the error, for each partition or name.

Omitted fields have the protocol's default (`wire/schema.py`): error code 0, and mostly -1 or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka_sink.testing.errors import Refused

Answer = dict[str, Any]


def answer_or_error(tell: Callable[..., Answer], *given: Any) -> Answer:
    try:
        return tell(*given)
    except Refused as refusal:
        return {"error_code": refusal.code}


def answer_or_error_text(tell: Callable[..., Answer], *given: Any) -> Answer:
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
    **defaults: Any,
) -> list[Answer]:
    """The result of `tell(topic, asked)` for each partition in a request, in order. `asked` is an index, or has one.

    `topic`, `asked` and `index` are the API's names of these fields.
    """

    def describe(name: str, each: Any) -> Answer:
        place = {index: each if isinstance(each, int) else each[index]}
        return {**place, **defaults, **answer_or_error(tell, name, each)}

    return [{topic: one[topic], "partitions": [describe(one[topic], each) for each in one[asked]]} for one in topics]
