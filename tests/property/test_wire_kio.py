"""Every message compared with kio, whose classes are generated from Kafka's own definitions.

For generated bodies our bytes equal kio's, and kio reads ours. kio has no wheel for Python 3.10. It has its own types
for times, error codes and uuids, which `to_kio` maps.
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

from kafka_sink.kafka.wire.apis import APIS, Api
from kafka_sink.kafka.wire.codes import code
from kafka_sink.kafka.wire.produce import encode_after_head, encode_produce_head
from tests.support.wire_values import SEEDS, encode, message_id, messages, some_body

pytest.importorskip("kio", reason="kio needs Python 3.11 or later")

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

FEW = settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
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
@given(seed=SEEDS)
def test_our_bytes_are_those_of_kio(message: tuple[Api, bool, int], seed: int) -> None:
    value = some_body(message, seed, tame=True)
    entity = to_kio(kio_class(message), value)
    expected = io.BytesIO()
    entity_writer(kio_class(message))(expected, entity)
    ours = encode(message, value)
    assert ours == expected.getvalue()
    assert read_by_kio(message, ours) == entity


@pytest.mark.parametrize("version", range(3, 14))
def test_kio_reads_the_produce_request_that_is_written_by_hand(version: int) -> None:
    api = APIS[0]
    topics = [("orders", bytes(range(16)), [(0, b"h" * 61, b"payload"), (1, b"h" * 61, b"")])]
    head = encode_produce_head(version, client_id="me", transactional_id="tx", acks=-1, timeout_ms=9)
    frame = b"".join(encode_after_head(head, version, 5, topics))[4:]
    entity_type = kio_class((api, True, version))
    header, size = entity_reader(entity_type.__header_schema__)(frame, 0)
    assert (header.request_api_key, header.correlation_id, header.client_id) == (0, 5, "me")
    entity = read_by_kio((api, True, version), frame[size:])
    assert entity.transactional_id == "tx"
    assert [bytes(part.records) for part in entity.topic_data[0].partition_data] == [b"h" * 61 + b"payload", b"h" * 61]


@pytest.mark.parametrize("message", MESSAGES, ids=message_id)
def test_headers_have_the_version_that_kio_gives_them(message: tuple[Api, bool, int]) -> None:
    api, is_request, version = message
    ours = api.request_header_version(version) if is_request else api.response_header_version(version)
    assert kio_class(message).__header_schema__.__version__ == ours


def test_codes_have_the_names_that_kio_gives_them() -> None:
    # Both tables call 17 INVALID_TOPIC_EXCEPTION, as Kafka's enum does.
    names = {entry.value: entry.name.upper() for entry in ErrorCode}
    assert {number: code(number).name for number in names} == names
