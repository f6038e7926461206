"""A schema as stored in a registry, and the result of looking it up."""

from __future__ import annotations

from kafka_sink.frozen import frozen

# The registries' names of the three formats. Missing means Avro.
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
KINDS = (AVRO, PROTOBUF, JSON)


@frozen
class Reference:
    """`name` is used by the referring schema: a full name in Avro, an import in Protobuf, a URL in JSON."""

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
    """One version of a subject. Fields that the registry did not return are None."""

    schema: Schema
    subject: str | None = None
    version: int | None = None
    schema_id: int | None = None
    guid: str | None = None


@frozen
class Dependency:
    """A referenced schema, with the name used in the reference."""

    name: str
    schema: Schema


@frozen
class ResolvedSchema:
    """Everything that a task needs to write with a schema, without further requests.

    `dependencies` are in topological order: each comes after those that it refers to.
    """

    schema: Schema
    subject: str
    version: int | None = None
    schema_id: int | None = None
    guid: str | None = None
    dependencies: tuple[Dependency, ...] = ()
