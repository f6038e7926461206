"""Frames equal those of Apicurio and AWS Glue byte for byte. In test_registry_bytes.py another client reads frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.formats.registry.framing import FRAMINGS, NONE, Frame, MessagePosition, make_frame
from kafka_sink.formats.registry.schema import AVRO, JSON, KINDS, PROTOBUF
from kafka_sink.formats.schemas.protobuf import ProtobufSchema

RECORDED = [
    line.split() for line in (Path(__file__).parents[3] / "golden" / "registry_frames.txt").read_text().splitlines()
]
GUID = "c99f7e42-386d-12ce-ae93-285caaaa88be"
ORDER = MessagePosition((0,), 0, "Order")
SIDES = ("key", "value")


def recorded(*words: str) -> list[list[str]]:
    found = [line[len(words) :] for line in RECORDED if line[: len(words)] == list(words)]
    assert found, words
    return found


# ---- as recorded -----------------------------------------------------------------------------------------------------


def test_apicurios_prefix_of_eight_bytes_and_of_four() -> None:
    for number, told in recorded("apicurio", "prefix", "eight"):
        assert make_frame("apicurio", "value", AVRO, schema_id=int(number)).prefix.hex() == told
    for number, told in recorded("apicurio", "prefix", "four"):
        assert make_frame("prefix", "value", AVRO, schema_id=int(number)).prefix.hex() == told


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("framing", "kind"), [("apicurio-header-global-id", "globalId"), ("apicurio-header-content-id", "contentId")]
)
def test_apicurios_headers(side: str, framing: str, kind: str) -> None:
    told: dict[int, dict[str, str]] = {}
    for number, name, value in recorded("apicurio", "header", kind, side):
        told.setdefault(int(number), {})[name] = value
    for number, headers in told.items():
        avro = make_frame(framing, side, AVRO, schema_id=number)
        protobuf = make_frame(framing, side, PROTOBUF, schema_id=number, message=ORDER)
        json = make_frame(framing, side, JSON, schema_id=number)
        assert avro.prefix == protobuf.prefix == json.prefix == b""
        ours = {name: value.hex() for name, value in (*avro.headers, *protobuf.headers, *json.headers)}
        assert ours == headers
        assert [name for name, _ in json.headers] == [f"apicurio.{side}.{kind}"]


def test_apicurio_names_a_message_behind_the_id() -> None:
    for name, told in recorded("apicurio", "reference"):
        made = make_frame("apicurio", "value", PROTOBUF, schema_id=7, message=MessagePosition((0,), 0, name))
        assert made.prefix == b"\x00" + bytes(7) + b"\x07" + bytes.fromhex(told)


def test_glues_prefix() -> None:
    ((version, told),) = recorded("glue", "value")
    assert (make_frame("glue", "value", AVRO, guid=version).prefix + b"payload").hex() == told


def test_glue_counts_messages_and_the_entries_of_maps_by_their_sorted_names() -> None:
    apple = "message Apple { message Peel {} message Core {} map<string, string> leaves = 1; }"
    text = f"package shop; message Zebra {{}} {apple}"
    for name, told in recorded("glue", "message"):
        position = MessagePosition((9, 9), ProtobufSchema.parse(text, message=name).message_rank, "x")
        made = make_frame("glue", "value", PROTOBUF, guid=GUID, message=position)
        assert made.prefix[18:].hex() == told


def test_the_first_message_is_a_single_zero() -> None:
    assert make_frame("prefix", "value", PROTOBUF, schema_id=0x01020304, message=ORDER).prefix.hex() == "000102030400"
    second = MessagePosition((1, 0), 0, "x")
    assert make_frame("prefix", "value", PROTOBUF, schema_id=1, message=second).prefix.hex() == "0000000001040200"


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_frame_is_nothing(kind: str) -> None:
    assert make_frame(NONE, "value", kind) == Frame(b"", ())


@pytest.mark.parametrize("framing", [each for each in FRAMINGS if each != NONE])
def test_what_a_frame_needs_is_named(framing: str) -> None:
    with pytest.raises(ConfigError, match=f"key.schema.framing={framing} needs"):
        make_frame(framing, "key", AVRO)


def test_an_id_that_does_not_fit_four_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="up to 2147483647"):
        make_frame("prefix", "value", AVRO, schema_id=2**31)
    assert make_frame("apicurio", "value", AVRO, schema_id=2**31).prefix.hex() == "000000000080000000"


@pytest.mark.parametrize("framing", ["apicurio", "apicurio-header-global-id", "apicurio-header-content-id"])
def test_an_id_that_does_not_fit_eight_bytes_is_refused(framing: str) -> None:
    for number in (2**63, -1):
        with pytest.raises(ConfigError, match="up to 9223372036854775807"):
            make_frame(framing, "value", AVRO, schema_id=number)
    made = make_frame(framing, "value", AVRO, schema_id=2**63 - 1)
    assert (made.prefix or made.headers[0][1])[-8:].hex() == "7fffffffffffffff"
