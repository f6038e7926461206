"""Parses the .proto language, as far as messages need it: proto2, proto3, editions. Services, options and extensions
are skipped; imports are resolved in the references, or among the types that Protobuf and Confluent's clients include.

The texts of errors name lines and no content: the text may be of a file that is no schema."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_sink.errors import ConfigError
from kafka_sink.formats.schemas.naming import invalid_schema, join_path
from kafka_sink.formats.schemas.protobuf_built_in import BUILT_IN
from kafka_sink.formats.schemas.protobuf_types import (
    EDITIONS,
    SCALARS,
    ProtoEnum,
    ProtoField,
    ProtoMessage,
    ProtoType,
    make_enum,
    make_field,
)

# What is not closed reaches to the end: if it were no token, each of its characters would be looked through to there.
_TOKEN = re.compile(
    r"\s+|//[^\n]*|(?P<comment>/\*.*?(?:\*/|\Z))"
    r"|(?P<token>(?P<quoted>\"(?:\\.?|[^\"\\])*(?:\"|\Z)|'(?:\\.?|[^'\\])*(?:'|\Z))|[A-Za-z_.][\w.]*|[+-]?\d[\w.+-]*|.)",
    re.S,
)
# The options that matter here.
_OPTIONS = frozenset(
    {"packed", "map_entry", "features.field_presence", "features.enum_type", "features.repeated_field_encoding",
     "features.message_encoding"}
)  # fmt: skip
NESTING_MAX = 100
# Of a full name: the scopes of a name are searched one by one.
NAME_CHARACTERS_MAX = 1_000


def read_files(text: str, references: Mapping[str, str]) -> tuple[list[ProtoType], list[ProtoType]]:
    """The types of the file itself, and those of all that it imports, directly or not."""
    files = {"": _File(text)}
    waiting = list(files[""].imports)
    while waiting:
        path = waiting.pop()
        found = references.get(path, BUILT_IN.get(path))
        # A missing import usually has only options. A missing type is reported by its name.
        if path not in files and found is not None:
            files[path] = _File(found)
            waiting += files[path].imports
    known = {each.fullname: each for file in files.values() for each in file.types}
    own, *imported = ([_resolve_fields(each, known) for each in file.types] for file in files.values())
    return own, [each for types in imported for each in types]


class _File:
    """One parsed file. The types of its fields are still names; `_resolve_fields` looks them up."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens, self._starts = _read_tokens(text)
        self._position = 0
        self._package = ""
        self._syntax = "proto2"
        self._options: dict[str, str] = {}
        self.imports: list[str] = []
        self.types: list[ProtoType] = []
        self._nested_counts: Counter[tuple[int, ...]] = Counter()
        # Options of the file may follow its types, and hold for them.
        starts = []
        while self._peek():
            starts.append(self._position)
            self._read_statement()
        for self._position in starts:
            self._read_type(self._next_word(), self._package, ())

    # ---- tokens

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise invalid_schema("the .proto file ends in the middle of something")
        self._position += 1
        return token

    def _expect(self, *wanted: str) -> str:
        token = self._next()
        if token not in wanted:
            found = "something else" if token[0].isalnum() or len(token) > 1 else repr(token)
            raise self._error(f"has {found} where {' or '.join(wanted)} is expected")
        return token

    def _error(self, what: str) -> ConfigError:
        """About the last token."""
        return invalid_schema(f"line {_line(self._text, self._starts[self._position - 1])} of the .proto file {what}")

    def _next_int(self) -> int:
        token = self._next()
        try:
            return int(token, 0) if not re.fullmatch(r"0[0-7]+", token) else int(token, 8)
        except ValueError:
            raise self._error("has something else where a number is expected") from None

    def _skip(self) -> list[str]:
        """Skips to the semicolon, or past a block in braces. There may be braces inside brackets."""
        start = self._position
        depth = 0
        while True:
            token = self._next()
            depth += (token in ("{", "[")) - (token in ("}", "]"))
            if depth == 0 and token in (";", "}"):
                return self._tokens[start : self._position]

    def _next_word(self) -> str:
        """The first of a statement, without the visibility that edition 2024 allows before it."""
        word = self._next()
        return self._next() if word in ("export", "local") and self._peek() in ("message", "enum") else word

    # ---- statements

    def _read_statement(self) -> None:
        """Of the file. Types are skipped over."""
        word = self._next_word()
        if word in ("syntax", "edition"):
            self._expect("=")
            text = self._next().strip("\"'")
            self._syntax = text if word == "syntax" else EDITIONS
            self._expect(";")
        elif word == "package":
            self._package = self._next_name("")
            self._expect(";")
        elif word == "import":
            path = self._next()
            self.imports.append((self._next() if path in ("public", "weak", "option") else path).strip("\"'"))
            self._expect(";")
        elif word == "option":
            self._options |= _collect_options(self._skip())
        elif word != ";":
            self._skip()

    def _read_type(self, word: str, scope: str, parent: tuple[int, ...]) -> bool:
        """False: it is none."""
        if word == "message":
            self._read_message(self._next_name(scope), self._next_path(parent))
        elif word == "enum":
            self._read_enum(self._next_name(scope))
        return word in ("message", "enum")

    def _next_name(self, scope: str) -> str:
        name = join_path(scope, self._next())
        if len(name) > NAME_CHARACTERS_MAX:
            raise self._error(f"has a name of more than {NAME_CHARACTERS_MAX} characters")
        return name

    def _next_path(self, parent: tuple[int, ...]) -> tuple[int, ...]:
        path = (*parent, self._nested_counts[parent])
        self._nested_counts[parent] += 1
        if len(path) > NESTING_MAX:
            raise invalid_schema("the messages of the .proto file are nested too deep")
        return path

    def _read_message(self, name: str, path: tuple[int, ...]) -> None:
        """`option map_entry = true` is what a registry writes in place of a map<>, if it was sent descriptors."""
        self._expect("{")
        fields: list[ProtoField] = []
        options: dict[str, str] = {}
        while (word := self._next_word()) != "}":
            if word == "option":
                options |= _collect_options(self._skip())
            elif word == "oneof":
                oneof = self._next()
                self._expect("{")
                while (word := self._next()) != "}":
                    self._read_member(word, name, path, oneof, fields)
            elif not self._read_type(word, name, path):
                self._read_member(word, name, path, "", fields)
        self.types.append(ProtoMessage(name, tuple(fields), path, options.get("map_entry") == "true"))

    def _read_member(
        self, word: str, message: str, path: tuple[int, ...], oneof: str, fields: list[ProtoField]
    ) -> None:
        if word in ("option", "reserved", "extensions", "extend"):
            self._skip()
        elif word != ";":
            fields.append(self._read_field(word, message, path, oneof))

    def _read_field(self, word: str, message: str, path: tuple[int, ...], oneof: str) -> ProtoField:
        label = word if word in ("optional", "required", "repeated") else ""
        kind = self._next() if label else word
        if kind == "group":
            raise invalid_schema(f"{message} has a group, which is not supported; use a message")
        parts: list[str] = []
        if kind == "map" and self._peek() == "<":
            parts = [self._next(), self._next(), self._expect(","), self._next(), self._expect(">")]
        if max(map(len, (kind, *parts))) > NAME_CHARACTERS_MAX:
            raise self._error(f"has a name of more than {NAME_CHARACTERS_MAX} characters")
        name = self._next()
        if parts:
            entry = join_path(message, _entry_name(name))
            label, kind = "repeated", f".{entry}"
            members = (self._make_field("key", 1, parts[1]), self._make_field("value", 2, parts[3]))
            self.types.append(ProtoMessage(entry, members, (), is_map_entry=True))
        self._expect("=")
        return self._make_field(name, self._next_int(), kind, label, oneof, self._read_options())

    def _make_field(
        self, name: str, number: int, kind: str, label: str = "", oneof: str = "", options: Mapping[str, str] = {}
    ) -> ProtoField:
        return make_field(name, number, kind, "", label, oneof, self._syntax, {**self._options, **options})

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

    def _read_enum(self, name: str) -> None:
        self._expect("{")
        numbers: dict[str, int] = {}
        options = dict(self._options)
        while (word := self._next()) != "}":
            if word == "option":
                options |= _collect_options(self._skip())
            elif word == "reserved":
                self._skip()
            elif word != ";":
                self._expect("=")
                sign = -1 if self._peek() == "-" and self._next() else 1
                numbers[word] = sign * self._next_int()
                self._read_options()
        self.types.append(make_enum(name, numbers, self._syntax, options))


def _read_tokens(text: str) -> tuple[list[str], list[int]]:
    """The tokens, and where each begins."""
    tokens: list[str] = []
    starts: list[int] = []
    for found in _TOKEN.finditer(text):
        comment, quoted = found["comment"], found["quoted"]
        if comment is not None and (len(comment) < 4 or not comment.endswith("*/")):
            raise invalid_schema(f"the comment of line {_line(text, found.start())} of the .proto file is not closed")
        if quoted is not None and (len(quoted) < 2 or quoted[-1] != quoted[0]):
            raise invalid_schema(f"the text of line {_line(text, found.start())} of the .proto file is not closed")
        if found["token"] is not None:
            tokens.append(found["token"])
            starts.append(found.start())
    return tokens, starts


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _resolve_fields(found: ProtoType, known: Mapping[str, ProtoType]) -> ProtoType:
    if isinstance(found, ProtoEnum):
        return found
    fields = []
    for field in found.fields:
        if field.type not in SCALARS:
            name = _find_type(field.type, found.fullname, known)
            field = replace(field, type="enum" if isinstance(known[name], ProtoEnum) else "message", type_name=name)
        fields.append(field)
    return replace(found, fields=tuple(fields))


def _find_type(name: str, scope: str, known: Mapping[str, ProtoType]) -> str:
    """Searches from the innermost scope outwards."""
    if name.startswith("."):
        candidates = [name[1:]]
    else:
        parts = scope.split(".")
        candidates = [join_path(".".join(parts[:count]), name) for count in range(len(parts), -1, -1)]
    for candidate in candidates:
        if candidate in known:
            return candidate
    raise invalid_schema(f"the .proto file names a type {name} that neither it nor a schema that it refers to defines")


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
    return {name: value for name, value in options.items() if name in _OPTIONS}


def _entry_name(field: str) -> str:
    """protoc's name for the entry message of a map."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
