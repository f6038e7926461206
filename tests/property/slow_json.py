"""JSON value by value: the slow twin of kafka_sink/formats/schemas/json_nodes.py."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa


def encoded(kind: pa.DataType, value: Any) -> str:
    types = pa.types
    if value is None:
        return "null"
    if types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        parts = [
            f"{_text(field.name)}:{encoded(field.type, value[field.name])}"
            for field in fields
            if value[field.name] is not None
        ]
        return "{" + ",".join(parts) + "}"
    if types.is_map(kind):
        return "{" + ",".join(f"{_text(name)}:{encoded(kind.item_type, each)}" for name, each in value) + "}"
    if types.is_list(kind) or types.is_large_list(kind):
        return "[" + ",".join(encoded(kind.value_type, each) for each in value) + "]"
    if types.is_floating(kind):
        return _float(kind, value)
    if types.is_boolean(kind):
        return "true" if value else "false"
    if types.is_string(kind) or types.is_large_string(kind):
        return _text(value)
    if types.is_binary(kind):
        return _text(base64.b64encode(value).decode())
    if types.is_date(kind):
        return f'"{dt.date(1970, 1, 1) + dt.timedelta(days=value)}"'
    if types.is_timestamp(kind):
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value)
        unit = "microseconds" if moment.microsecond % 1000 else "milliseconds"
        return f'"{moment.isoformat(timespec=unit)}{"Z" if kind.tz else ""}"'
    if types.is_time(kind):
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=value // 1000)
        return f'"{_clock(moment)}"'
    if types.is_duration(kind):
        days, rest = divmod(abs(value), 86_400_000_000)
        clock = _clock(dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=rest))
        return f"\"INTERVAL '{'-' if value < 0 else ''}{days} {clock}' DAY TO SECOND\""
    return str(value)


def _clock(moment: dt.datetime) -> str:
    text = moment.time().isoformat()
    return text.rstrip("0") if moment.microsecond else text


def _text(value: str) -> str:
    # Like Jackson: capital digits in escapes, and no unnecessary escapes.
    return '"' + "".join(_escaped(character) for character in value) + '"'


@cache
def _escaped(character: str) -> str:
    found = json.dumps(character, ensure_ascii=False)[1:-1]
    return found if not found.startswith("\\u") else f"\\u{ord(character):04X}"


# The power of ten from which Arrow writes an exponent. It is asked from Arrow, because releases differ.
EXPONENT_FROM = next(power for power in range(1, 30) if "e" in pa.array([10.0**power]).cast(pa.string())[0].as_py())


def _float(kind: pa.DataType, value: float) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    number = np.float32(value) if pa.types.is_float32(kind) else np.float64(value)
    sign = "-" if math.copysign(1, value) < 0 else ""
    digits, _, exponent = np.format_float_scientific(abs(number), trim="-").partition("e")
    power = int(exponent)
    if -6 <= power < EXPONENT_FROM:
        plain = np.format_float_positional(abs(number), trim="-")
        return f"{sign}{plain}" if "." in plain else f"{sign}{plain}.0"
    return f"{sign}{digits}e{power:+d}" if power > 0 else f"{sign}{digits}e{power}"
