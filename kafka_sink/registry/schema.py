"""A schema as a registry keeps it, and what is known of it after it was found there."""

from __future__ import annotations

from kafka_sink.frozen import frozen

# What registries call the three formats. One that says nothing means Avro.
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
KINDS = (AVRO, PROTOBUF, JSON)


@frozen
class Reference:
    """`name` is what the schema that refers calls it: a full name in Avro, an import in Protobuf, a URL in JSON."""

    name: str
    subject: str
    version: int


@frozen
class Schema:
    kind: str
    text: str
    references: tuple[Reference, ...] = ()


@frozen
class Registered:
    """One version of a subject. A registry need not tell all of it: None is what it did not say."""

    schema: Schema
    subject: str | None = None
    version: int | None = None
    schema_id: int | None = None
    guid: str | None = None


@frozen
class Dependency:
    """A schema that another one refers to, by the name that is used there."""

    name: str
    schema: Schema


@frozen
class ResolvedSchema:
    """What a task needs to write by a schema: nobody has to be asked any more.

    `dependencies` are in an order in which each comes after those that it refers to itself.
    """

    schema: Schema
    subject: str
    version: int | None = None
    schema_id: int | None = None
    guid: str | None = None
    dependencies: tuple[Dependency, ...] = ()
