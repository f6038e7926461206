"""A second opinion on every message: kio, whose classes are generated from Kafka's own definitions.

For generated bodies our bytes equal kio's, and kio's reader takes ours. kio has no Python 3.10 wheel, and types of its
own for times, error codes and uuids, which `to_kio` maps.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import re
import typing
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_sink.wire.apis import Api
from tests.property.wire_values import bodies, encode, message_id, messages, rows

pytest.importorskip("kio", reason="kio needs Python 3.11 or later")

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

FEW = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
MESSAGES = list(messages())


def kio_class(message: tuple[Api, bool, int]) -> Any:
    api, is_request, version = message
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).lower()
    side = "request" if is_request else "response"
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{side}")
    return getattr(module, f"{api.name}{side.capitalize()}")


def to_kio(entity: Any, value: dict[str, Any]) -> Any:
    hints = typing.get_type_hints(entity)
    given_values: dict[str, Any] = {}
    for field in dataclasses.fields(entity):
        name = field.name if field.name in value else field.name + "_ms"
        if name in value:
            given_values[field.name] = _convert(field.metadata.get("kafka_type"), hints[field.name], value[name])
    return entity(**given_values)


def _convert(kafka_type: str | None, hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        tuples = [part for part in (hint, *typing.get_args(hint)) if typing.get_origin(part) is tuple]
        return tuple(_convert(kafka_type, typing.get_args(tuples[0])[0], element) for element in value)
    if isinstance(value, dict):
        return to_kio(hint, value)
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type == "uuid":
        return uuid.UUID(bytes=value) if any(value) else None
    if kafka_type is not None and kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    return value


def read_by_kio(message: tuple[Api, bool, int], data: bytes) -> Any:
    entity, size = entity_reader(kio_class(message))(data, 0)
    assert size == len(data)
    return entity


@pytest.mark.parametrize("message", MESSAGES, ids=message_id)
@FEW
@given(data=st.data())
def test_our_bytes_are_those_of_kio(message: tuple[Api, bool, int], data: st.DataObject) -> None:
    value = data.draw(bodies(rows(message), message[2], tame=True))
    entity = to_kio(kio_class(message), value)
    expected = io.BytesIO()
    entity_writer(kio_class(message))(expected, entity)
    ours = encode(message, value)
    assert ours == expected.getvalue()
    assert read_by_kio(message, ours) == entity
