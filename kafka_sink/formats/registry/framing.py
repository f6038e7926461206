"""The prefix of a value, or a header, by which a reader finds the schema.

    prefix                      00, id in 4 bytes                                       Confluent, Karapace, Apicurio 3
    header                      header __value_schema_id: 01, GUID in 16 bytes          Confluent, since 2025
    glue                        03, 00 (not compressed), UUID of the version            AWS Glue
    apicurio                    00, id in 8 bytes                                       Apicurio 2
    apicurio-header-global-id   header apicurio.value.globalId: id in 8 bytes           Apicurio
    apicurio-header-content-id  header apicurio.value.contentId: id in 8 bytes          Apicurio
    none                        nothing: readers get the schema otherwise

All numbers are big-endian. A Protobuf file contains many messages, so each framing also identifies the message.
Confluent's by the path of indexes from file to message, as signed varints after their count; [0], the first message, is
a single zero. Glue's by its index among the sorted full names of all messages, entries of maps included. Apicurio's by
its name.

Apicurio 3 reads Protobuf otherwise: of the message it asks the header apicurio.value.msgType alone, and takes the first
one without. It is not written, because Apicurio 2 loads the Java class of that name.
"""

from __future__ import annotations

from uuid import UUID

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import SUBJECT_UNNAMED
from kafka_sink.formats.registry.schema import AVRO
from kafka_sink.frozen import frozen

PREFIX, HEADER, GLUE, APICURIO, NONE = "prefix", "header", "glue", "apicurio", "none"
GLOBAL_ID, CONTENT_ID = "apicurio-header-global-id", "apicurio-header-content-id"
FRAMINGS = (PREFIX, HEADER, GLUE, APICURIO, GLOBAL_ID, CONTENT_ID, NONE)
# These identify a schema by a GUID.
BY_GUID = frozenset({HEADER, GLUE})
# The bytes of a key or a value begin with the id.
IN_BYTES = frozenset({PREFIX, GLUE, APICURIO})


@frozen
class MessagePosition:
    """The position of a message in its file. `indexes`: from the file downwards. `rank`: its index among all sorted
    full names. `name`: its own, without package and enclosing messages."""

    indexes: tuple[int, ...]
    rank: int
    name: str


@frozen
class Frame:
    """The same for every row: `prefix` comes before the bytes of the value, `headers` after the row's own."""

    prefix: bytes = b""
    headers: tuple[tuple[str, bytes], ...] = ()


def make_frame(
    framing: str,
    side: str,
    kind: str,
    *,
    schema_id: int | None = None,
    guid: str | None = None,
    message: MessagePosition | None = None,
) -> Frame:
    """`side` is key or value. `message` is for Protobuf only. For glue `guid` is the UUID of the version."""
    if framing == NONE:
        return Frame()
    if framing in BY_GUID:
        if guid is None:
            raise ConfigError(
                f"{side}.schema.framing={framing} needs the GUID of the schema, but the registry returned none: it "
                f"is too old for this framing. Use {side}.schema.framing={PREFIX}",
                SUBJECT_UNNAMED,
            )
        uuid = UUID(guid).bytes
        if framing == GLUE:
            return Frame(b"\x03\x00" + uuid + (b"" if message is None else _encode_unsigned(message.rank)))
        return Frame(headers=((f"__{side}_schema_id", b"\x01" + uuid + _encode_message_path(message)),))
    id_max = 2**31 - 1 if framing == PREFIX else 2**63 - 1
    if schema_id is None or not 0 <= schema_id <= id_max:
        raise ConfigError(
            f"{side}.schema.framing={framing} needs the id of the schema as a number up to {id_max}, and it is "
            f"{schema_id}",
            SUBJECT_UNNAMED,
        )
    if framing == PREFIX:
        return Frame(b"\x00" + schema_id.to_bytes(4, "big") + _encode_message_path(message))
    if framing == APICURIO:
        return Frame(b"\x00" + schema_id.to_bytes(8, "big") + _encode_reference(message))
    header = f"apicurio.{side}." + ("globalId" if framing == GLOBAL_ID else "contentId")
    return Frame(headers=((header, schema_id.to_bytes(8, "big")), *_apicurio_headers(side, kind, message)))


def _apicurio_headers(side: str, kind: str, message: MessagePosition | None) -> tuple[tuple[str, bytes], ...]:
    if kind == AVRO:
        return ((f"apicurio.{side}.encoding", b"BINARY"),)
    if message is None:
        return ()
    return (("apicurio.protobuf.type" + (".key" if side == "key" else ""), message.name.encode()),)


def _encode_message_path(message: MessagePosition | None) -> bytes:
    if message is None:
        return b""
    if message.indexes == (0,):
        return b"\x00"
    # Signed varints of numbers that are never negative.
    return b"".join(_encode_unsigned(each << 1) for each in (len(message.indexes), *message.indexes))


def _encode_reference(message: MessagePosition | None) -> bytes:
    """A length-delimited message: field 1 is the name."""
    if message is None:
        return b""
    encoded = message.name.encode()
    body = b"\x0a" + _encode_unsigned(len(encoded)) + encoded
    return _encode_unsigned(len(body)) + body


def _encode_unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
