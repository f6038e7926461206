"""Every decoder of bytes from outside, as a target that accepts any bytes: it decodes them or raises one of its errors.

A target takes bytes, may raise only the errors of its decoder's contract, and has some valid inputs to start from. The
coverage-guided search (guided.py) and the test that replays its findings use the same targets.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from kafka_sink.errors import AuthenticationError, ConfigError, KafkaSinkError, RemoteProtocolError
from kafka_sink.exactly_once.ledger import Kind, LedgerRecord, TransactionEntry
from kafka_sink.exactly_once.ledger_codec import FORMAT, decode_record, encode_record
from kafka_sink.exactly_once.receipt import BatchKey
from kafka_sink.options.properties import parse_properties
from kafka_sink.security.aws_msk_iam import AwsMskIamExchange, region_of
from kafka_sink.security.jaas import parse_jaas
from kafka_sink.security.oauthbearer import OAuthBearerExchange, expiry_s, parse_error_answer, parse_token_answer
from kafka_sink.security.reference import replace_references
from kafka_sink.security.scram import ScramExchange
from kafka_sink.security.sigv4 import AwsCredentials
from tests.fuzz import fuzz_wire
from tests.property.wire_values import RandomChoices

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
        kind=Kind.INTENT, sink_id="s", key=BatchKey("q", 1), run="r", runs=("r",), since_ms=1, wall_ms=2, row_count=10,
        topics={"t": 10}, entries=(entry,) * 3, outcomes=(), is_accepted=False,
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
    parse_token_answer(data, "it")


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
