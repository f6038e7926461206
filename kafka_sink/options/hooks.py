"""Option values that are code: partitioners, serializers, interceptors.

Java names a class that the JVM loads; here the user passes the Python object itself. Names of classes that ship with
Kafka are accepted if there is a Python equivalent, so that an existing configuration keeps its meaning: the bytes are
those that the Java class would write. Every other class name is refused, because it cannot be loaded.

The serializers are module-level functions so that options pickle. They raise TypeError, ValueError or struct.error;
the producer says which topic and field that was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from uuid import UUID

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_NOT_SUPPORTED
from kafka_sink.frozen import frozen
from kafka_sink.options.producer_options import Partitioner, Serializer
from kafka_sink.options.values import describe_value

T = TypeVar("T")
_PARTITIONERS: dict[str, str] = {
    "": "default",
    "default": "default",
    "DefaultPartitioner": "default",
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "default",
    "murmur2_random": "default",
    "round_robin": "round_robin",
    "RoundRobinPartitioner": "round_robin",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "random": "random",
    "consistent_random": "consistent_random",
}

_CALLABLE = "pass a Python callable as `partitioner`"
_PARTITIONERS_REFUSED: dict[str, str] = {
    "UniformStickyPartitioner": "use partitioner.ignore.keys=true",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "use partitioner.ignore.keys=true",
    "kafka.producer.DefaultPartitioner": f"it hashes Java objects; {_CALLABLE}",
    "murmur2": "it puts all records without a key on one partition; use murmur2_random",
    "consistent": "it puts all records without a key on one partition; use consistent_random",
}


@frozen
class PartitionerRule:
    valid: str = (
        "default (or murmur2_random), round_robin (or RoundRobinPartitioner), random, consistent_random, "
        "or a Python callable"
    )

    def parse(self, name: str, value: object) -> str | Partitioner:
        if callable(value) and not isinstance(value, type):
            return value
        if isinstance(value, str) and value.strip() in _PARTITIONERS:
            return _PARTITIONERS[value.strip()]
        hint = _PARTITIONERS_REFUSED.get(value.strip(), _CALLABLE) if isinstance(value, str) else _CALLABLE
        raise ConfigError(
            f"{name}={describe_value(name, value)} is not supported: {hint} (known are {self.valid})",
            OPTION_NOT_SUPPORTED,
        )


def serialize_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"expected bytes, not {type(value).__name__}")


def _require(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")
    return value


def serialize_text(value: Any) -> bytes | None:
    return None if value is None else _require(value, str).encode()


def serialize_short(value: Any) -> bytes | None:
    return None if value is None else struct.pack(">h", value)


def serialize_integer(value: Any) -> bytes | None:
    return None if value is None else struct.pack(">i", value)


def serialize_long(value: Any) -> bytes | None:
    return None if value is None else struct.pack(">q", value)


def serialize_float(value: Any) -> bytes | None:
    return None if value is None else struct.pack(">f", value)


def serialize_double(value: Any) -> bytes | None:
    return None if value is None else struct.pack(">d", value)


def serialize_boolean(value: Any) -> bytes | None:
    return None if value is None else struct.pack("?", _require(value, bool))


def serialize_uuid(value: Any) -> bytes | None:
    return None if value is None else str(_require(value, UUID)).encode()


def serialize_void(value: Any) -> bytes | None:
    if value is not None:
        raise ValueError("only None can be sent with VoidSerializer")
    return None


_JAVA_PACKAGE = "org.apache.kafka.common.serialization."
_SERIALIZERS: dict[str, Callable[[Any], bytes | None]] = {
    "StringSerializer": serialize_text,
    "ByteArraySerializer": serialize_bytes,
    "BytesSerializer": serialize_bytes,
    "ByteBufferSerializer": serialize_bytes,
    "ShortSerializer": serialize_short,
    "IntegerSerializer": serialize_integer,
    "LongSerializer": serialize_long,
    "FloatSerializer": serialize_float,
    "DoubleSerializer": serialize_double,
    "BooleanSerializer": serialize_boolean,
    "UUIDSerializer": serialize_uuid,
    "VoidSerializer": serialize_void,
    # Kafka 0.8's encoders. Its LongEncoder and IntegerEncoder came later and are big-endian too.
    "kafka.serializer.DefaultEncoder": serialize_bytes,
    "kafka.serializer.StringEncoder": serialize_text,
    "kafka.serializer.LongEncoder": serialize_long,
    "kafka.serializer.IntegerEncoder": serialize_integer,
}


@frozen
class SerializerRule:
    valid: str = "a Python callable, or the name of one of Kafka's own serializers (StringSerializer, ...)"

    def parse(self, name: str, value: object) -> Serializer:
        if callable(value):
            return value
        known = _SERIALIZERS.get(value.strip().removeprefix(_JAVA_PACKAGE)) if isinstance(value, str) else None
        if known is None:
            hint = "pass a Python callable that takes the object and returns bytes or None"
            raise ConfigError(f"{name}={describe_value(name, value)} is not supported: {hint}", OPTION_NOT_SUPPORTED)
        return known


@frozen
class InterceptorsRule:
    valid: str = "Python objects with on_send(record) or on_acknowledgement(metadata, error), or both"

    def parse(self, name: str, value: object) -> tuple[object, ...]:
        if isinstance(value, str):
            if not value.strip():
                return ()
            raise ConfigError(
                f"{name} names a class of the JVM: pass Python objects as `interceptors`", OPTION_NOT_SUPPORTED
            )
        items = tuple(value) if isinstance(value, Iterable) else (value,)
        for item in items:
            hooks = [getattr(item, method, None) for method in ("on_send", "on_acknowledgement")]
            if isinstance(item, type) or not any(callable(hook) for hook in hooks):
                said = item.__qualname__ if isinstance(item, type) else type(item).__name__
                raise ConfigError(f"{name}: {said} is not an interceptor: expected {self.valid}")
        return items
