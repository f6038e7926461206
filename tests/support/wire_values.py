"""Message bodies made from the rows of the wire table, for property tests and for the fuzzer.

Hypothesis draws the seed of a body, and not each number in it: then it could shorten a body that fails, and the tests
of all messages would take twice as long.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from kafka_sink.kafka.wire.apis import APIS, Api
from kafka_sink.kafka.wire.schema import Field

SEEDS = st.integers(0, 2**32 - 1)
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS = ("", "a", "topic-1", "ü", "日本語", "\x00", "𝄞 clef", "x" * 200)

# Null for these is our own addition (kafka/wire/messages_data.py).
WIDER = ("auth_bytes",)


class RandomChoices:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


def body(choices: RandomChoices, fields: Sequence[Field], version: int, *, tame: bool = False) -> dict[str, Any]:
    """A body with every field of the version; tagged fields may be left out. `tame` draws only known error codes,
    times that fit in a datetime, and null where Kafka's own definitions allow it."""
    return {
        field.name: _value(choices, field, version, tame)
        for field in fields
        if field.is_in(version) and (field.tag is None or choices.integer(0, 2) > 0)
    }


def _value(choices: RandomChoices, field: Field, version: int, tame: bool) -> Any:
    may_be_null = field.nullable is not None and version >= field.nullable and not (tame and field.name in WIDER)
    if may_be_null and choices.integer(0, 3) == 0:
        return None
    if not field.is_array:
        return _element(choices, field, field.type, version, tame)
    element = field.type[2:]
    return [_element(choices, field, element, version, tame) for _ in range(choices.integer(0, 3))]


def _element(choices: RandomChoices, field: Field, kind: str, version: int, tame: bool) -> Any:
    if kind == "struct":
        return body(choices, field.fields, version, tame=tame)
    if kind == "bool":
        return choices.integer(0, 1) == 1
    if kind == "string":
        return _TEXTS[choices.integer(0, len(_TEXTS) - 1)]
    if kind == "uuid":
        return choices.integer(0, 2**128 - 1).to_bytes(16, "big")
    if kind in ("bytes", "records"):
        size = (0, 1, 61, 127, 128, 300)[choices.integer(0, 5)]
        return bytes([choices.integer(0, 255)]) * size
    if kind == "float64":
        return choices.integer(-(2**53), 2**53) / 8
    if tame and field.name.endswith("error_code"):
        return choices.integer(-1, 100)
    if tame and ("time" in field.name or field.name.endswith("_ms")):
        return choices.integer(0, 2**31 - 1)
    half = 1 << (_BITS[kind] - 1)
    return (0, 1, -1, half - 1, -half, choices.integer(-half, half - 1))[choices.integer(0, 5)]


def messages() -> Iterator[tuple[Api, bool, int]]:
    """Every (api, is_request, version) of the table."""
    for api in APIS.values():
        for version in range(api.version_min, api.version_max + 1):
            yield api, True, version
            yield api, False, version


def message_id(message: tuple[Api, bool, int]) -> str:
    api, is_request, version = message
    return f"{api.name}-{'request' if is_request else 'answer'}-v{version}"


def encode(message: tuple[Api, bool, int], value: dict[str, Any]) -> bytes:
    api, is_request, version = message
    return api.encode_request(version, value) if is_request else api.encode_response(version, value)


def decode(message: tuple[Api, bool, int], data: bytes) -> dict[str, Any]:
    api, is_request, version = message
    return api.decode_request(version, data) if is_request else api.decode_response(version, data)


def rows(message: tuple[Api, bool, int]) -> tuple[Field, ...]:
    api, is_request, _ = message
    return api.request if is_request else api.response


def some_body(message: tuple[Api, bool, int], seed: int, *, tame: bool = False) -> dict[str, Any]:
    return body(RandomChoices(seed), rows(message), message[2], tame=tame)
