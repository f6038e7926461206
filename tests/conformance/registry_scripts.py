"""Requests to a schema registry, in order, with the answers that Confluent's public documentation describes.

A step is a title, a method, a path, a body, and the answer: its status with the code of an error, or with the relevant
part of the body. Ids are numbered in the order in which they appear.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    title: str
    method: str
    path: str
    body: Any = None
    status: int = 200
    code: int | None = None
    # The content of the answer, or a function that checks it.
    told: Any = None


def record(*fields: Any, name: str = "Order") -> str:
    made = [each if isinstance(each, dict) else {"name": each, "type": "int"} for each in fields]
    return json.dumps({"type": "record", "name": name, "fields": made}, separators=(",", ":"))


def schema(text: str, kind: str | None = None, references: list[Any] | None = None) -> dict[str, Any]:
    said: dict[str, Any] = {"schema": text}
    if kind is not None:
        said["schemaType"] = kind
    if references is not None:
        said["references"] = references
    return said


WITH_DEFAULT = {"name": "b", "type": "int", "default": 0}
A, AB, A_B_DEFAULT = record("a"), record("a", "b"), record("a", WITH_DEFAULT)
VERSIONS, SUBJECT = "/subjects/orders-value/versions", "/subjects/orders-value"
COMPATIBILITY = "/compatibility/subjects/orders-value/versions"

SUBJECTS = (
    Step("no subjects", "GET", "/subjects", told=[]),
    Step("versions of an unknown subject", "GET", VERSIONS, status=404, code=40401),
    Step("latest of an unknown subject", "GET", f"{VERSIONS}/latest", status=404, code=40401),
    Step("look up under an unknown subject", "POST", SUBJECT, schema(A), status=404, code=40401),
    Step("an unknown id", "GET", "/schemas/ids/4711", status=404, code=40403),
    Step("register", "POST", VERSIONS, schema(A), told={"id": 1}),
    Step("register again", "POST", VERSIONS, schema(A), told={"id": 1}),
    Step("register with other blanks", "POST", VERSIONS, schema(json.dumps(json.loads(A), indent=1)), told={"id": 1}),
    Step("subjects", "GET", "/subjects", told=["orders-value"]),
    Step("versions", "GET", VERSIONS, told=[1]),
    Step("look up", "POST", SUBJECT, schema(A), told={"subject": "orders-value", "version": 1, "id": 1}),
    Step("look up another", "POST", SUBJECT, schema(AB), status=404, code=40403),
    Step("latest", "GET", f"{VERSIONS}/latest", told={"subject": "orders-value", "version": 1, "id": 1}),
    Step("number", "GET", f"{VERSIONS}/1", told={"version": 1}),
    Step("an unknown number", "GET", f"{VERSIONS}/7", status=404, code=40402),
    Step("no number", "GET", f"{VERSIONS}/first", status=422, code=42202),
    Step("number zero", "GET", f"{VERSIONS}/0", status=422, code=42202),
    Step("by id", "GET", "/schemas/ids/1", told={"schema": A}),
    Step("the same under another subject", "POST", "/subjects/other/versions", schema(A), told={"id": 1}),
    Step("where an id is", "GET", "/schemas/ids/1/versions",
         told=[{"subject": "orders-value", "version": 1}, {"subject": "other", "version": 1}]),
    Step("kinds", "GET", "/schemas/types", told=["JSON", "PROTOBUF", "AVRO"]),
)  # fmt: skip

INVALID = (
    Step("no Avro", "POST", VERSIONS, schema('{"type":"record"}'), status=422, code=42201),
    Step("no JSON", "POST", VERSIONS, schema("{"), status=422, code=42201),
    Step("unknown name", "POST", VERSIONS, schema(record({"name": "x", "type": "Unknown"})), status=422, code=42201),
    Step("a primitive without quotes", "POST", VERSIONS, schema("int"), status=422, code=42201),
    Step("an alias that is no name", "POST", VERSIONS,
         schema(json.dumps({**json.loads(A), "aliases": [1]})), status=422, code=42201),
    Step("a superscript as a version", "GET", f"{VERSIONS}/%C2%B2", status=422, code=42202),
    Step("two fields of one name", "POST", VERSIONS, schema(record("a", "a")), status=422, code=42201),
    Step("a reference that is not there", "POST", VERSIONS,
         schema(record({"name": "x", "type": "Part"}), references=[{"name": "Part", "subject": "part", "version": 1}]),
         status=422, code=42201),
)  # fmt: skip

COMPATIBLE = (
    Step("the level is BACKWARD", "GET", "/config", told={"compatibilityLevel": "BACKWARD"}),
    Step("no level of its own", "GET", "/config/orders-value", status=404, code=40408),
    Step("register", "POST", VERSIONS, schema(A)),
    Step("the same level of its own", "PUT", "/config/orders-value", {"compatibility": "BACKWARD"},
         told={"compatibility": "BACKWARD"}),
    Step("a field without default", "POST", f"{COMPATIBILITY}/latest", schema(AB), told={"is_compatible": False}),
    Step("is refused", "POST", VERSIONS, schema(AB), status=409, code=409),
    Step("and is not there", "GET", VERSIONS, told=[1]),
    Step("a field with default", "POST", f"{COMPATIBILITY}/latest", schema(A_B_DEFAULT), told={"is_compatible": True}),
    Step("without a number", "POST", COMPATIBILITY, schema(A_B_DEFAULT), told={"is_compatible": True}),
    Step("against an unknown version", "POST", f"{COMPATIBILITY}/9", schema(A), status=404, code=40402),
    Step("is registered", "POST", VERSIONS, schema(A_B_DEFAULT)),
    Step("level of the subject", "PUT", "/config/orders-value", {"compatibility": "NONE"},
         told={"compatibility": "NONE"}),
    Step("is told", "GET", "/config/orders-value", told={"compatibilityLevel": "NONE"}),
    Step("no level", "PUT", "/config/orders-value", {"compatibility": "SOMEHOW"}, status=422, code=42203),
    Step("anything goes", "POST", VERSIONS, schema('"string"')),
    Step("versions", "GET", VERSIONS, told=[1, 2, 3]),
)  # fmt: skip

DELETED = (
    Step("register", "POST", VERSIONS, schema(A)),
    Step("register a second", "POST", VERSIONS, schema(A_B_DEFAULT)),
    Step("delete a version", "DELETE", f"{VERSIONS}/1", told=1),
    Step("it is gone", "GET", f"{VERSIONS}/1", status=404, code=40402),
    Step("versions", "GET", VERSIONS, told=[2]),
    Step("its id stays", "GET", "/schemas/ids/1", told={"schema": A}),
    Step("delete the subject", "DELETE", SUBJECT, told=[2]),
    Step("it is gone, too", "GET", VERSIONS, status=404, code=40401),
    Step("delete what is not there", "DELETE", "/subjects/unknown", status=404, code=40401),
)

REFERENCES = (
    Step("what is referred to", "POST", "/subjects/part/versions", schema(record("n", name="Part"))),
    Step("what refers to it", "POST", VERSIONS,
         schema(record({"name": "x", "type": "Part"}), references=[{"name": "Part", "subject": "part", "version": 1}])),
    Step("is told with it", "GET", f"{VERSIONS}/latest",
         told={"references": [{"name": "Part", "subject": "part", "version": 1}]}),
    Step("who refers to it", "GET", "/subjects/part/versions/1/referencedby", told=[2]),
    Step("it cannot be deleted", "DELETE", "/subjects/part/versions/1", status=422, code=42206),
)  # fmt: skip

PROTO = 'syntax = "proto3";\nmessage Order {\n  int32 a = 1;\n}\n'
JSON_SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}}}'

KINDS = (
    Step("Protobuf", "POST", VERSIONS, schema(PROTO, "PROTOBUF")),
    Step("is told as such", "GET", f"{VERSIONS}/latest", told={"schemaType": "PROTOBUF"}),
    Step("JSON Schema", "POST", "/subjects/j/versions", schema(JSON_SCHEMA, "JSON")),
    Step("is told as such, too", "GET", "/subjects/j/versions/latest", told={"schemaType": "JSON"}),
    Step("no kind", "POST", "/subjects/k/versions", schema("x", "XML"), status=422, code=42201),
)

MODES = (
    Step("the mode", "GET", "/mode", told={"mode": "READWRITE"}),
    Step("of a subject without one", "GET", "/mode/orders-value", status=404, code=40409),
    Step("no mode", "PUT", "/mode/orders-value", {"mode": "ASLEEP"}, status=422, code=42204),
    Step("read only", "PUT", "/mode/orders-value", {"mode": "READONLY"}, told={"mode": "READONLY"}),
    Step("nothing is registered", "POST", VERSIONS, schema(A), status=422, code=42205),
)

SCRIPTS: dict[str, tuple[Step, ...]] = {
    "subjects": SUBJECTS,
    "invalid": INVALID,
    "compatible": COMPATIBLE,
    "deleted": DELETED,
    "references": REFERENCES,
    "kinds": KINDS,
    "modes": MODES,
}

# For Avro: the level, the schemas registered in this order, and whether the last may be registered after the others.
STRING, INT, LONG = '"string"', '"int"', '"long"'
ENUM_2, ENUM_3 = (json.dumps({"type": "enum", "name": "E", "symbols": list(each)}) for each in ("AB", "ABC"))
ENUM_DEFAULT = '{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}'
FIXED_4, FIXED_8 = (json.dumps({"type": "fixed", "name": "F", "size": size}) for size in (4, 8))
NESTED = record({"name": "x", "type": {"type": "array", "items": {"type": "map", "values": "int"}}})
NESTED_LONG = NESTED.replace('"int"', '"long"')
TREE = record({"name": "left", "type": ["null", "Order"], "default": None}, "a")
TREE_2 = record({"name": "left", "type": ["null", "Order"], "default": None}, "a", WITH_DEFAULT)
RENAMED = record({"name": "z", "aliases": ["a"], "type": "int"})
EVOLUTION: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("BACKWARD", (A, A), True),
    ("BACKWARD", (A, AB), False),
    ("BACKWARD", (A, A_B_DEFAULT), True),
    ("BACKWARD", (AB, A), True),
    ("BACKWARD", (INT, LONG), True),
    ("BACKWARD", (LONG, INT), False),
    ("BACKWARD", (INT, '"float"'), True),
    ("BACKWARD", (INT, '"double"'), True),
    ("BACKWARD", ('"double"', '"float"'), False),
    ("BACKWARD", (STRING, '"bytes"'), True),
    ("BACKWARD", ('"bytes"', STRING), True),
    ("BACKWARD", (INT, STRING), False),
    ("BACKWARD", (INT, '["null","int"]'), True),
    ("BACKWARD", ('["null","int"]', INT), False),
    ("BACKWARD", ('["null","int"]', '["null","long"]'), True),
    ("BACKWARD", ('["null","int","string"]', '["null","int"]'), False),
    ("BACKWARD", (ENUM_2, ENUM_3), True),
    ("BACKWARD", (ENUM_3, ENUM_2), False),
    ("BACKWARD", (ENUM_3, ENUM_DEFAULT), True),
    ("BACKWARD", (FIXED_4, FIXED_8), False),
    ("BACKWARD", (NESTED, NESTED_LONG), True),
    ("BACKWARD", (NESTED_LONG, NESTED), False),
    ("BACKWARD", (TREE, TREE_2), True),
    ("BACKWARD", (TREE, record("a", name="Other")), False),
    ("BACKWARD", (A, RENAMED), True),
    ("BACKWARD", (A, record("z")), False),
    ("FORWARD", (A, AB), True),
    ("FORWARD", (AB, A), False),
    ("FORWARD", (A_B_DEFAULT, A), True),
    ("FORWARD", (LONG, INT), True),
    ("FORWARD", (INT, LONG), False),
    ("FULL", (A, AB), False),
    ("FULL", (A, A_B_DEFAULT), True),
    ("FULL", (A_B_DEFAULT, A), True),
    ("FULL", (INT, LONG), False),
    ("NONE", (INT, STRING), True),
    # The second schema may follow the first and the third the second, but the third may not follow the first.
    ("BACKWARD", (A, A_B_DEFAULT, AB), True),
    ("BACKWARD_TRANSITIVE", (A, A_B_DEFAULT, AB), False),
    ("FORWARD", (AB, A_B_DEFAULT, A), True),
    ("FORWARD_TRANSITIVE", (AB, A_B_DEFAULT, A), False),
    ("FULL_TRANSITIVE", (A, A_B_DEFAULT), True),
    ("FULL_TRANSITIVE", (A, A_B_DEFAULT, AB), False),
)  # fmt: skip
