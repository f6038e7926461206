"""How key and value are written, after parsing. Tasks get what was made of it while planning, never this."""

from __future__ import annotations

from kafka_sink.frozen import frozen
from kafka_sink.options.registry_options import RegistryOptions, SchemaOptions


@frozen
class SideFormat:
    """`columns`: those that form the record, `*` for all that have no other meaning; None: a column of the side's name,
    or else as `*`. `record_name`: what a derived schema is called, or which message of a Protobuf schema it is."""

    format: str
    schema: SchemaOptions
    columns: tuple[str, ...] | None = None
    record_name: str | None = None


@frozen
class FormatOptions:
    registry: RegistryOptions | None = None
    value: SideFormat | None = None
    key: SideFormat | None = None
