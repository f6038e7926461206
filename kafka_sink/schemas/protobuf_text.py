"""Parses the .proto language, as far as messages need it: proto2, proto3, editions. Services, options and extensions
are skipped; imports are resolved in the references, or among the types that Protobuf includes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.error_table.commits import SCHEMA_INVALID
from kafka_sink.errors import ConfigError
from kafka_sink.schemas.protobuf import FIXED, SCALARS, VARINTS, ProtoEnum, ProtoField, ProtoFile, ProtoMessage

_TOKEN = re.compile(
    r"\s+|//[^\n]*|/\*.*?\*/|(?P<token>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[A-Za-z_.][\w.]*|[+-]?\d[\w.+-]*|.)", re.S
)
_WRAPPED = {
    "Double": "double", "Float": "float", "Int64": "int64", "UInt64": "uint64", "Int32": "int32", "UInt32": "uint32",
    "Bool": "bool", "String": "string", "Bytes": "bytes",
}  # fmt: skip
_PAIR = 'syntax = "proto3"; package google.protobuf; message %s { int64 seconds = 1; int32 nanos = 2; }'
BUILT_IN: Mapping[str, str] = {
    "google/protobuf/timestamp.proto": _PAIR % "Timestamp",
    "google/protobuf/duration.proto": _PAIR % "Duration",
    "google/protobuf/wrappers.proto": 'syntax = "proto3"; package google.protobuf; '
    + " ".join(f"message {name}Value {{ {kind} value = 1; }}" for name, kind in _WRAPPED.items()),
    "google/protobuf/any.proto": 'syntax = "proto3"; package google.protobuf; '
    "message Any { string type_url = 1; bytes value = 2; }",
    "google/protobuf/empty.proto": 'syntax = "proto3"; package google.protobuf; message Empty { }',
    "google/protobuf/field_mask.proto": 'syntax = "proto3"; package google.protobuf; '
    "message FieldMask { repeated string paths = 1; }",
    "google/protobuf/struct.proto": 'syntax = "proto3"; package google.protobuf; '
    "message Struct { map<string, Value> fields = 1; } message Value { oneof kind { NullValue null_value = 1; "
    "double number_value = 2; string string_value = 3; bool bool_value = 4; Struct struct_value = 5; "
    "ListValue list_value = 6; } } enum NullValue { NULL_VALUE = 0; } message ListValue { repeated Value values = 1; }",
    "google/protobuf/descriptor.proto": 'syntax = "proto2"; package google.protobuf;',
}
NESTING_MAX = 100


def read_files(text: str, references: Mapping[str, str]) -> tuple[ProtoFile, list[ProtoFile]]:
    """The file itself, and all that it imports, directly or not."""
    drafts = {"": _Draft(text)}
    waiting = list(drafts[""].imports)
    while waiting:
        path = waiting.pop()
        if path in drafts:
            continue
        found = references.get(path, BUILT_IN.get(path))
        if found is None:
            # Usually only options. A missing type is reported by its name.
            continue
        drafts[path] = _Draft(found)
        waiting += drafts[path].imports
    kinds = {name: kind for draft in drafts.values() for name, kind in draft.kinds.items()}
    files = [draft.resolve(kinds) for draft in drafts.values()]
    return files[0], files[1:]


class _Draft:
    """One parsed file. Types of fields are still names; `resolve` looks them up."""

    def __init__(self, text: str) -> None:
        self._tokens = [found["token"] for found in _TOKEN.finditer(text) if found["token"] is not None]
        self._position = 0
        self._package = ""
        self._syntax = "proto2"
        self._file_options: dict[str, str] = {}
        self.imports: list[str] = []
        # Full name to "message" or "enum".
        self.kinds: dict[str, str] = {}
        self._messages: list[tuple[str, list[dict[str, Any]], tuple[int, ...], bool]] = []
        # With the options of each.
        self._enums: list[tuple[ProtoEnum, dict[str, str]]] = []
        self._read()

    # ---- tokens

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise ConfigError("the .proto file ends in the middle of something", SCHEMA_INVALID)
        self._position += 1
        return token

    def _expect(self, *wanted: str) -> str:
        token = self._next()
        if token not in wanted:
            raise ConfigError(f"the .proto file has {token!r} where {' or '.join(wanted)} is expected", SCHEMA_INVALID)
        return token

    def _skip_statement(self) -> None:
        """Skips to the semicolon, or past a block in braces. There may be braces inside brackets."""
        depth = 0
        while True:
            token = self._next()
            depth += (token in ("{", "[")) - (token in ("}", "]"))
            if depth == 0 and token in (";", "}"):
                return

    # ---- statements

    def _read(self) -> None:
        count = 0
        while self._peek():
            word = self._next_statement()
            if word in ("syntax", "edition"):
                self._expect("=")
                self._syntax = "edition" if word == "edition" else self._next().strip("\"'")
                self._skip_statement()
            elif word == "package":
                self._package = self._next()
                self._expect(";")
            elif word == "import":
                path = self._next()
                self.imports.append((self._next() if path in ("public", "weak", "option") else path).strip("\"'"))
                self._expect(";")
            elif word == "message":
                self._read_message(self._package, (count,))
                count += 1
            elif word == "enum":
                self._read_enum(self._package)
            elif word == "option":
                self._file_options |= _collect_options(self._read_statement())
            elif word != ";":
                self._skip_statement()

    def _next_statement(self) -> str:
        """Its first word, without the visibility that edition 2024 allows before it."""
        word = self._next()
        return self._next() if word in ("export", "local") and self._peek() in ("message", "enum") else word

    def _read_statement(self) -> list[str]:
        start = self._position
        self._skip_statement()
        return self._tokens[start : self._position]

    def _read_message(self, scope: str, path: tuple[int, ...]) -> None:
        if len(path) > NESTING_MAX:
            raise ConfigError("the messages of the .proto file are nested too deep", SCHEMA_INVALID)
        name = _join_name(scope, self._next())
        self._expect("{")
        fields: list[dict[str, Any]] = []
        self.kinds[name] = "message"
        self._messages.append((name, fields, path, False))
        nested = 0
        while (word := self._next_statement()) != "}":
            if word == "message":
                self._read_message(name, (*path, nested))
                nested += 1
            elif word == "enum":
                self._read_enum(name)
            elif word == "oneof":
                self._read_oneof(name, fields)
            elif word in ("option", "reserved", "extensions", "extend"):
                self._skip_statement()
            elif word != ";":
                fields.append(self._read_field(word, name, "", (*path, nested)))
                nested += fields[-1]["is_map"]

    def _read_oneof(self, message: str, fields: list[dict[str, Any]]) -> None:
        oneof = self._next()
        self._expect("{")
        while (word := self._next()) != "}":
            if word == "option":
                self._skip_statement()
            elif word != ";":
                fields.append(self._read_field(word, message, oneof, ()))

    def _read_field(self, word: str, message: str, oneof: str, path: tuple[int, ...]) -> dict[str, Any]:
        label = word if word in ("optional", "required", "repeated") else ""
        kind = self._next() if label else word
        key = value = ""
        if kind == "group":
            raise ConfigError(f"{message} has a group, which is not supported; use a message", SCHEMA_INVALID)
        if kind == "map" and self._peek() == "<":
            self._next()
            key = self._next()
            self._expect(",")
            value = self._next()
            self._expect(">")
        name = self._next()
        entry = ""
        if key:
            entry = _join_name(message, _entry_name(name))
            self._add_map_entry(entry, key, value, path)
        self._expect("=")
        number = _parse_int(self._next())
        options = self._read_options()
        return {
            "name": name, "number": number, "kind": entry or kind, "scope": message, "label": label, "oneof": oneof,
            "is_map": bool(entry), "options": options,
        }  # fmt: skip

    def _add_map_entry(self, entry: str, key: str, value: str, path: tuple[int, ...]) -> None:
        self.kinds[entry] = "message"
        parts = [
            {"name": name, "number": number, "kind": kind, "scope": entry, "label": "", "oneof": "",
             "is_map": False, "options": {"features.message_encoding": "LENGTH_PREFIXED"}}
            for name, number, kind in (("key", 1, key), ("value", 2, value))
        ]  # fmt: skip
        self._messages.append((entry, parts, path, True))

    def _read_options(self) -> dict[str, str]:
        if self._expect("[", ";") == ";":
            return {}
        depth, words = 1, []
        while depth:
            word = self._next()
            depth += (word in "[{<") - (word in "]}>")
            words.append(word)
        self._expect(";")
        return _collect_options(words)

    def _read_enum(self, scope: str) -> None:
        name = _join_name(scope, self._next())
        self._expect("{")
        self.kinds[name] = "enum"
        numbers: dict[str, int] = {}
        options: dict[str, str] = {}
        while (word := self._next()) != "}":
            if word == "option":
                options |= _collect_options(self._read_statement())
            elif word == "reserved":
                self._skip_statement()
            elif word != ";":
                self._expect("=")
                sign = -1 if self._peek() == "-" and self._next() else 1
                numbers[word] = sign * _parse_int(self._next())
                self._read_options()
        self._enums.append((ProtoEnum(name, numbers), options))

    # ---- names

    def resolve(self, kinds: Mapping[str, str]) -> ProtoFile:
        messages = [
            ProtoMessage(name, tuple(self._resolve_field(field, kinds) for field in fields), path, is_entry)
            for name, fields, path, is_entry in self._messages
        ]
        return ProtoFile(tuple(messages), tuple(self._resolve_enum(*each) for each in self._enums))

    def _resolve_enum(self, enum: ProtoEnum, options: dict[str, str]) -> ProtoEnum:
        is_closed = {**self._file_options, **options}.get("features.enum_type") == "CLOSED"
        return replace(enum, is_closed=is_closed or self._syntax == "proto2")

    def _resolve_field(self, field: dict[str, Any], kinds: Mapping[str, str]) -> ProtoField:
        kind, type_name = field["kind"], ""
        if kind not in SCALARS:
            type_name = _find_type(kind, field["scope"], kinds)
            kind = kinds[type_name]
        label, options = field["label"], {**self._file_options, **field["options"]}
        is_repeated = label == "repeated" or field["is_map"]
        encoding = options.get("features.message_encoding", "")
        can_be_packed = kind in VARINTS or kind in FIXED or kind == "enum"
        packed = options.get("packed", "false" if self._syntax == "proto2" else "true") == "true"
        if options.get("features.repeated_field_encoding") == "EXPANDED":
            packed = False
        implicit = self._syntax == "proto3" and label != "optional"
        if self._syntax == "edition":
            implicit = options.get("features.field_presence") == "IMPLICIT"
        return ProtoField(
            field["name"],
            field["number"],
            kind,
            type_name,
            is_repeated,
            is_repeated and can_be_packed and packed,
            label == "required" or options.get("features.field_presence") == "LEGACY_REQUIRED",
            not is_repeated and (kind == "message" or bool(field["oneof"]) or not implicit),
            field["oneof"],
            kind == "message" and not field["is_map"] and encoding == "DELIMITED",
        )


def _collect_options(words: Sequence[str]) -> dict[str, str]:
    """From `features.field_presence = IMPLICIT`, or from `features = { field_presence: IMPLICIT }`."""
    options: dict[str, str] = {}
    outer = ""
    for name, sign, value in zip(words, words[1:], words[2:], strict=False):
        if sign == "=":
            options[name] = value
            outer = name
        elif sign == ":":
            options[f"{outer}.{name}"] = value
    return options


def _find_type(name: str, scope: str, kinds: Mapping[str, str]) -> str:
    """Searches from the innermost scope outwards."""
    if name.startswith("."):
        candidates = [name[1:]]
    else:
        parts = scope.split(".") if scope else []
        candidates = [_join_name(".".join(parts[:count]), name) for count in range(len(parts), -1, -1)]
    for candidate in candidates:
        if candidate in kinds:
            return candidate
    raise ConfigError(
        f"the .proto file names a type {name} that neither it nor a schema that it refers to defines", SCHEMA_INVALID
    )


def _join_name(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _entry_name(field: str) -> str:
    """protoc's name for the entry message of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


def _parse_int(token: str) -> int:
    try:
        return int(token, 0) if not re.fullmatch(r"0[0-7]+", token) else int(token, 8)
    except ValueError:
        raise ConfigError(f"the .proto file has {token!r} where a number is expected", SCHEMA_INVALID) from None
