"""Which schema a column is written with: found on the driver, at the schema registry, before any task; and what a task
needs of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_sink.formats.schemas.match import JsonShape, Schema


@dataclass(frozen=True, eq=False)
class SidePlan:
    """Made on the driver, pickled with the write. `side` is key or value. `schema` None, or a `JsonShape`: JSON without
    a schema. Every value begins with `prefix`, every record gets `headers`, by which readers find the schema;
    `schema_id` is its id in the registry, if there is one."""

    side: str
    schema: Schema | JsonShape | None
    prefix: bytes = b""
    headers: tuple[tuple[str, bytes], ...] = ()
    schema_id: int | None = None
