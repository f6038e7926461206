"""Every decoder of bytes from outside, as a target that accepts any bytes: it decodes them or raises one of its errors.

A target takes bytes, may raise only the errors of its decoder's contract, and has some valid inputs to start from. The
coverage-guided search (guided.py) and the test that replays its findings use the same targets.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from uuid import UUID

import pyarrow as pa

from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, decode_key
from kafka_sink.commit.ledger_codec import (
    FORMAT,
    VALUE_BYTES_MAX,
    decode_claim,
    decode_newest,
    decode_record,
    encode_claim,
    encode_record,
)
from kafka_sink.commit.log_scan import committed_records, raw_batches
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.replay_progress import ReplayProgress, decode_progress, encode_progress
from kafka_sink.errors import AuthenticationError, ConfigError, KafkaSinkError, RemoteProtocolError
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.dead_letter import parse_dead_letter, unreplayable_reason
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.formats.records.skim import skim_batch
from kafka_sink.formats.registry.answer import RegistryAnswer, parse_compatibility, parse_refusal, parse_registered
from kafka_sink.formats.registry.request import RegistryRequest
from kafka_sink.formats.registry.resolution import SchemaQuery, resolve_schema
from kafka_sink.formats.registry.rules import SchemaRule
from kafka_sink.formats.registry.schema import ResolvedSchema, from_text, to_text
from kafka_sink.formats.registry.schema import Schema as RegisteredSchema
from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.formats.schemas.json_schema import JsonSchema
from kafka_sink.formats.schemas.match import Schema, plan
from kafka_sink.formats.schemas.protobuf import ProtobufSchema
from kafka_sink.options.properties import parse_properties
from kafka_sink.security.aws_msk_iam import AwsMskIamExchange, region_of
from kafka_sink.security.jaas import parse_jaas
from kafka_sink.security.oauthbearer import OAuthBearerExchange, expiry_s, parse_error_answer, parse_token_answer
from kafka_sink.security.reference import replace_references
from kafka_sink.security.scram import ScramExchange
from kafka_sink.security.sigv4 import AwsCredentials
from tests.fuzz import fuzz_wire
from tests.support.wire_values import RandomChoices

NONCE = "rOprNGfwEbeRWgbNEkqO"


@dataclass(frozen=True, slots=True)
class Guided:
    name: str
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def targets() -> Iterator[Guided]:
    yield from _of_the_wire()
    yield from _of_records()
    yield from _of_the_ledger()
    yield from _of_dead_letters()
    yield from _of_the_registry()
    yield from _of_schemas()
    yield from _of_security()


def by_name() -> dict[str, Guided]:
    return {target.name: target for target in targets()}


def _refusing(
    kinds: type[KafkaSinkError] | tuple[type[KafkaSinkError], ...], run: Callable[[bytes], object]
) -> Callable[[bytes], object]:
    """An error of these kinds is a valid result if its text can be printed."""

    def refusing(data: bytes) -> object:
        try:
            return run(data)
        except kinds as error:
            assert str(error).isprintable(), repr(error)
            return None

    return refusing


def _of_the_wire() -> Iterator[Guided]:
    """All messages in one target: the first two bytes select the message."""
    decoders = list(fuzz_wire.wire_targets(RandomChoices(1)))

    def any_message(data: bytes) -> object:
        number = int.from_bytes(data[:2], "big") % len(decoders)
        return decoders[number].run(data[2:])

    seeds = (number.to_bytes(2, "big") + decoder.valid[0] for number, decoder in enumerate(decoders))
    yield Guided("wire", _refusing(RemoteProtocolError, any_message), tuple(seeds))


def _of_records() -> Iterator[Guided]:
    for target in fuzz_wire.record_targets():
        name = target.group.replace(",", "").replace(" ", "-")
        yield Guided(name, _refusing(RemoteProtocolError, target.run), target.valid)


def _of_the_ledger() -> Iterator[Guided]:
    entry = TransactionEntry(0, 0, 5, 0, 2, "t", 0, 0, 9)
    record = LedgerRecord(
        kind=Kind.INTENT, sink_id="s", key=BatchKey("q", 1), run="a" * 16, runs=("b" * 16,), since_ms=1, wall_ms=2,
        row_count=10, topics={"t": 10}, entries=(entry,) * 3, outcomes=(), is_accepted=False,
    )  # fmt: skip
    value = encode_record(record)
    header, _, body = value.partition(b"\n")
    content = zlib.decompress(body) if header.endswith(b"zlib") else body
    yield Guided(
        "ledger", _refusing(RemoteProtocolError, decode_record), (value, f"{FORMAT} 1 json\n".encode() + content)
    )
    # The search cannot compute zlib's checksums, so it changes the content before it is compressed.
    packed = f"{FORMAT} 1 zlib\n".encode()
    yield Guided(
        "ledger-packed",
        _refusing(RemoteProtocolError, lambda data: decode_record(packed + zlib.compress(data, 1))),
        (content,),
    )

    encoded = encode_batch([Record(0, b"s", value)], make_compressor("none"))
    batch = seal(encoded) + encoded.payload
    yield Guided("ledger-batch", _refusing(RemoteProtocolError, _ledger_batch), (batch,))
    claim = encode_claim(Line("s", "80000000"), "a" * 16, 5)
    yield Guided("ledger-claim", _refusing(RemoteProtocolError, decode_claim), (claim,))
    progress = ReplayProgress("n", "from", "id", "to", {"reason": ["x"]}, {0: 5}, 3, {"too large": 1}, 9)
    yield Guided("replay-progress", _refusing(RemoteProtocolError, decode_progress), (encode_progress(progress),))


def _ledger_batch(data: bytes) -> None:
    """What reading a ledger does with the bytes of a fetch. The checksum is made right, so that the search gets
    further."""
    for raw in raw_batches(fuzz_wire.repaired(data)):
        if raw.is_control:
            assert isinstance(raw.decode_marker().is_abort_marker, bool)
            continue
        for record in skim_batch(raw.content, lambda _: True, value_bytes_max=VALUE_BYTES_MAX + 1):
            with suppress(RemoteProtocolError):
                decode_newest(decode_key(record.key), record.value or b"")


def _of_dead_letters() -> Iterator[Guided]:
    headers = (("a", b"b"), ("pykafka-sink.error", b"x"), ("pykafka-sink.value.format", b"json"))
    letters = encode_batch([Record(5, b"k", b"v", headers)] * 3, make_compressor("none"))
    content = seal(letters) + letters.payload
    yield Guided("dead-letters", _refusing(RemoteProtocolError, _dead_letters), (content,))


def _dead_letters(data: bytes) -> None:
    records, _ = committed_records(fuzz_wire.repaired(data), [{"producer_id": 1, "first_offset": 0}], 0)
    for _, record in records:
        letter = parse_dead_letter(record.headers)
        if letter is not None:
            own, details = letter
            assert len(own) < len(record.headers) and "error" in details
            assert unreplayable_reason(details) != ""


def _of_the_registry() -> Iterator[Guided]:
    rule = {"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "tags": ["PII"], "disabled": False}
    answers = (
        {"id": 1},
        {"error_code": 40401, "message": "no subject"},
        {"is_compatible": False, "messages": ["because"]},
        {"subject": "s", "version": 2, "id": 1, "guid": str(UUID(int=5)), "schema": _AVRO, "schemaType": "AVRO",
         "references": [{"name": "a", "subject": "b", "version": 1}], "metadata": {"tags": {"**.a": ["PII"]}},
         "ruleSet": {"domainRules": [rule], "migrationRules": [rule], "enableAt": "CLIENT"}},
    )  # fmt: skip
    seeds = tuple(b"\x00" + json.dumps(each).encode() for each in answers)
    yield Guided("registry-answer", _refusing(KafkaSinkError, _registry_answer), seeds)
    yield Guided("registry-resolution", _refusing(KafkaSinkError, _resolution), (*seeds, b"\xff".join(seeds)))
    known = ResolvedSchema(
        RegisteredSchema("AVRO", _AVRO), "s", 1, 2, None, (("a", "b"),), (SchemaRule("a", "b", "c", "d", "e"),)
    )
    yield Guided("registry-memory", lambda data: from_text(data.decode(errors="replace")), (to_text(known).encode(),))


_STATUSES = (200, 201, 204, 301, 401, 403, 404, 409, 422, 429, 500)


def _make_answer(data: bytes) -> RegistryAnswer:
    """The first byte selects the status."""
    return RegistryAnswer("the registry", _STATUSES[(data[:1] or b"\0")[0] % len(_STATUSES)], data[1:])


def _registry_answer(data: bytes) -> None:
    answer = _make_answer(data)
    code, message = parse_refusal(answer)
    assert 0 < code < 1_000_000 and message.isprintable()
    with suppress(RemoteProtocolError):
        parse_compatibility(answer)
    for rule in parse_registered(answer).rules or ():
        assert str(rule).isprintable() and len(str(rule)) < 10_000


def _resolution(data: bytes) -> None:
    """One answer after the other, divided by a byte that no UTF-8 has; the last one again and again."""
    answers = data.split(b"\xff")
    given = RegisteredSchema("AVRO", _AVRO)
    for query in (
        SchemaQuery("value", "s", given, registers=True, needs_guid=True, needs_rules=True, reads_back=True),
        SchemaQuery("value", "s", given, needs_rules=True),
        SchemaQuery("value", "s", version="latest", needs_rules=True),
        SchemaQuery("value", "s", given, identity=5, needs_rules=True),
    ):
        told = map(_make_answer, chain(answers, repeat(answers[-1])))
        with suppress(KafkaSinkError):
            resolve_schema(query, partial(_tell, told))


def _tell(answers: Iterator[RegistryAnswer], _request: RegistryRequest) -> RegistryAnswer:
    return next(answers)


_AVRO = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":["null","long"],"default":null,'
    '"confluent:tags":["PII"]}]}'
)
_PROTO = """syntax = "proto3"; package p; import "google/protobuf/timestamp.proto"; option java_package = "x";
message M { int64 a = 1 [packed = true]; map<string, N> m = 2; oneof o { string b = 3; } message N { } }
enum E { A = 0; }
"""
_JSON_SCHEMA = (
    '{"$defs":{"D":{"type":"string"}},"type":"object","properties":{"a":{"anyOf":[{"$ref":"#/$defs/D"},'
    '{"type":"null"}]},"b":{"type":["array","null"],"items":{}}},"required":["a","b"],"additionalProperties":false}'
)
_KIND = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.struct([])))])


def _of_schemas() -> Iterator[Guided]:
    """Of users and registries; with a plan for columns."""

    def planning(read: Callable[[bytes], Schema]) -> Callable[[bytes], object]:
        return _refusing(ConfigError, lambda data: plan(_KIND, read(data)))

    parsers = {"avro": (AvroSchema, _AVRO), "protobuf": (ProtobufSchema, _PROTO), "json": (JsonSchema, _JSON_SCHEMA)}
    for name, (kind, seed) in parsers.items():
        read = partial(_read_text, kind)
        yield Guided(f"schema-{name}", planning(read), (seed.encode(),))
    field = b"\x0a\x01a\x18\x01\x20\x01\x28\x03"
    message = b"\x0a\x01M\x12" + bytes([len(field)]) + field
    file = b"\x0a\x01f\x22" + bytes([len(message)]) + message
    descriptors = b"\x0a" + bytes([len(file)]) + file
    yield Guided("schema-descriptors", planning(ProtobufSchema.of_descriptors), (descriptors,))


def _read_text(kind: type[AvroSchema | ProtobufSchema | JsonSchema], data: bytes) -> Schema:
    return kind.parse(data.decode(errors="replace"))


def _scram(data: bytes) -> None:
    """The server's first message; `_scram_final` decodes the last one, after a valid first one."""
    ScramExchange("SCRAM-SHA-256", "user", "pencil", NONCE).step(data)


def _scram_final(data: bytes) -> None:
    exchange = ScramExchange("SCRAM-SHA-256", "user", "pencil", NONCE)
    exchange.step(f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    exchange.step(data)


def _bearer(data: bytes) -> None:
    token, _, rest = data.partition(b" ")
    name, _, value = rest.partition(b"=")
    text = (part.decode("latin-1") for part in (token, name, value))
    first, key, content = text
    exchange = OAuthBearerExchange(first, {key: content} if key else {})
    assert exchange.first().count(b"\x01") == (3 if not key else 4)
    exchange.step(data)


def _token(data: bytes) -> None:
    assert parse_error_answer(data).isprintable()
    end_s = expiry_s(data.decode("latin-1"))
    assert end_s is None or end_s > 0
    parse_token_answer(data, "it", 0)


def _msk(data: bytes) -> None:
    text = data.decode(errors="replace")
    region = region_of(text)
    assert region is None or region in text.lower()
    exchange = AwsMskIamExchange(AwsCredentials("A", "B"), text, "eu-west-1", 1.8e9)
    assert json.loads(exchange.first())["host"] == text
    exchange.step(data)


def _references(data: bytes) -> None:
    replace_references(
        "o", data.decode(errors="replace"), lambda provider, place: None if provider == "file" else place
    )


def _of_security() -> Iterator[Guided]:
    refusing = partial(_refusing, (AuthenticationError, ConfigError))
    jaas = b'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password=\'b\\"\';'
    yield Guided(
        "scram", refusing(_scram), (f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), b"e=other-error")
    )
    yield Guided("scram-final", refusing(_scram_final), (b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=", b"e=invalid-proof"))
    yield Guided("bearer", refusing(_bearer), (b"a.b.c logicalCluster=lkc-1", b'{"status":"invalid_token"}'))
    yield Guided(
        "token", refusing(_token), (b'{"access_token":"a.eyJleHAiOjF9.c"}', b'{"error":"x"}', b"a.eyJleHAiOjF9.c")
    )
    yield Guided(
        "aws-msk-iam",
        refusing(_msk),
        (b'{"version":"2020_10_22","request-id":"1"}', b"b.kafka.eu-west-1.amazonaws.com"),
    )
    yield Guided("jaas", refusing(lambda data: parse_jaas(data.decode(errors="replace"))), (jaas,))
    yield Guided(
        "properties", refusing(lambda data: parse_properties(data.decode("latin-1"))), (b"a = b\\\n c\n# x\n\\u0041:1",)
    )
    yield Guided("references", refusing(_references), (b"x${env:A}-${file:/p:k}",))
