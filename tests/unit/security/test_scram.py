"""SCRAM with the published vectors, and with servers that send wrong messages."""

from __future__ import annotations

import base64

import pytest

from kafka_sink.errors import AuthenticationError
from kafka_sink.security import scram
from kafka_sink.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramExchange
from kafka_sink.testing.credentials import Credentials
from kafka_sink.testing.sasl import new_exchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
# RFC 7677, section 3.
SERVER_FIRST = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def new(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> ScramExchange:
    return ScramExchange(mechanism, "user", password, NONCE)


def challenged() -> ScramExchange:
    exchange = new()
    exchange.step(SERVER_FIRST.encode())
    return exchange


def refusal(exchange: ScramExchange, challenge: str | bytes) -> str:
    with pytest.raises(AuthenticationError) as caught:
        exchange.step(challenge if isinstance(challenge, bytes) else challenge.encode())
    assert "pencil" not in str(caught.value)
    return str(caught.value)


def test_the_exchange_of_rfc_7677_is_spoken_byte_by_byte() -> None:
    exchange = new()
    assert exchange.first() == f"n,,n=user,r={NONCE}".encode()
    assert exchange.step(SERVER_FIRST.encode()) == CLIENT_FINAL.encode()
    assert exchange.step(SERVER_FINAL.encode()) is None


def test_the_exchange_of_rfc_5802_is_spoken_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    # The vector of this RFC is for SHA-1, which Kafka does not have; the code is the same with another hash.
    monkeypatch.setattr(scram, "SCRAM_HASHES", {"SCRAM-SHA-1": "sha1"})
    exchange = ScramExchange("SCRAM-SHA-1", "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL")
    assert exchange.first() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    nonces = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    final = exchange.step(f"r={nonces},s=QSXCR+Q6sek8bf92,i=4096".encode())
    assert final == f"c=biws,r={nonces},p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=".encode()
    assert exchange.step(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") is None


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["alice", "a=b,c", "=2C"])
def test_a_server_written_from_the_rfc_is_content(mechanism: str, name: str) -> None:
    server = new_exchange(mechanism, Credentials({name: "p\u00e4ss"}, lambda count: b"\x07" * count))
    client = ScramExchange(mechanism, name, "p\u00e4ss", NONCE)
    final = client.step(server.step(client.first()))
    assert final is not None and client.step(server.step(final)) is None
    assert server.user == name


def test_a_delegation_token_says_that_it_is_one() -> None:
    exchange = ScramExchange("SCRAM-SHA-256", "id", "hmac", NONCE, is_token=True)
    assert exchange.first() == f"n,,n=id,r={NONCE},tokenauth=true".encode()


def test_nothing_is_normalised_because_kafka_does_not() -> None:
    # SASLprep would change the superscript into 1 and drop the soft hyphen.
    assert ScramExchange("SCRAM-SHA-256", "a\u00b9\u00adb", "p", "n").first() == "n,,n=a\u00b9\u00adb,r=n".encode()


@pytest.mark.parametrize(
    ("server_first", "reason"),
    [
        (SERVER_FIRST.replace(NONCE, "x" + NONCE), "does not continue ours"),
        (SERVER_FIRST.replace(SERVER_NONCE, NONCE), "does not continue ours"),
        (SERVER_FIRST.replace("i=4096", f"i={ITERATIONS_MIN - 1}"), "at least 4096"),
        (SERVER_FIRST.replace("i=4096", f"i={ITERATIONS_MAX + 1}"), "at most 1000000"),
        (SERVER_FIRST.replace("i=4096", "i=9999999999"), "at most 1000000"),
        (SERVER_FIRST.replace("i=4096", "i=99999999999999999999"), "not one of SCRAM"),
        (SERVER_FIRST.replace("i=4096", "i=0"), "not one of SCRAM"),
        (SERVER_FIRST.replace("i=4096", "i=-4096"), "not one of SCRAM"),
        (SERVER_FIRST.replace("i=4096", "i=\u0664096"), "not one of SCRAM"),
        (SERVER_FIRST.replace("W22Z", "W22"), "not one of SCRAM"),
        ("m=unknown," + SERVER_FIRST, "not one of SCRAM"),
        (SERVER_FIRST + "\n", "not one of SCRAM"),
        ("", "not one of SCRAM"),
        (SERVER_FINAL, "not one of SCRAM"),
        ("e=other-error", "it says other-error"),
        ("e=evil\nlog line", "not one of SCRAM"),
        (b"\xff\xfe", "no text"),
        ("r=" + "x" * 5000, "at most 4096 make sense"),
    ],
)
def test_a_first_message_that_no_honest_server_sends_is_refused(server_first: str | bytes, reason: str) -> None:
    assert reason in refusal(new(), server_first)


@pytest.mark.parametrize(
    ("server_final", "reason"),
    [
        ("v=" + base64.b64encode(b"\0" * 32).decode(), "impostor"),
        ("v=", "impostor"),
        ("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4", "not one of SCRAM"),
        ("", "not one of SCRAM"),
        (CLIENT_FINAL, "not one of SCRAM"),
        ("e=invalid-proof", "it says invalid-proof"),
    ],
)
def test_a_server_that_does_not_prove_itself_is_refused(server_final: str, reason: str) -> None:
    assert reason in refusal(challenged(), server_final)


def test_a_proof_for_another_password_is_refused() -> None:
    exchange = new(password="paper")
    exchange.step(SERVER_FIRST.encode())
    assert "does not know the password" in refusal(exchange, SERVER_FINAL)


def test_the_most_iterations_that_a_server_may_ask_for_are_carried_out() -> None:
    exchange = new("SCRAM-SHA-512")
    assert exchange.step(SERVER_FIRST.replace("i=4096", f"i={ITERATIONS_MAX}").encode()) is not None
