"""SASL, byte by byte: the answers to valid and invalid credentials, to requests at the wrong time, to expired sessions.

A script gets a function that opens a new connection. The users are alice/secret and bob/hidden; sessions of
SCRAM-SHA-512 last SESSION_MS, the others have no limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_sink.kafka.wire import apis
from tests.conformance.script import Seen
from tests.conformance.wire import Asking, ScramClient
from tests.support.broker_requests import Closed

SESSION_MS = 2500
USERS = {"alice": "secret", "bob": "hidden"}
Opener = Callable[[], Asking]
METADATA = {"topics": [], "allow_auto_topic_creation": False}
SOFTWARE = {"client_software_name": "test", "client_software_version": "1"}
LASTING, SHORT = "SCRAM-SHA-256", "SCRAM-SHA-512"


def answered(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Closed:
        return "closed"


def is_served(peer: Asking) -> Any:
    """Whether the broker serves an ordinary request on this connection."""
    return answered(lambda: bool(peer.ask(apis.METADATA, 9, METADATA)["brokers"]))


def outcome(peer: Asking, token: bytes, version: int = 2) -> Any:
    def ask() -> Any:
        answer = peer.token(token, version)
        return (answer["error_code"], answer["error_message"], answer.get("session_lifetime_ms"))

    return answered(ask)


def scram(peer: Asking, mechanism: str, user: str, password: str, authorization_id: str = "") -> Any:
    """A login from the first token to the result of the last; True if the server has proved its identity."""
    client = ScramClient(mechanism, user, password, authorization_id)
    first = peer.token(client.first)
    if first["error_code"]:
        return "first", first["error_code"], first["error_message"]
    last = peer.token(client.final(first["auth_bytes"]))
    proved = client.is_from_server(last["auth_bytes"])
    return "last", last["error_code"], last["error_message"], last["session_lifetime_ms"], proved


def plain(open_one: Opener, seen: Seen) -> None:
    for version in (0, 1, 2):
        peer = open_one()
        seen.note(f"v{version} handshake", peer.handshake("PLAIN"))
        seen.note(f"v{version} token", outcome(peer, b"\0alice\0secret", version))
        seen.note(f"v{version} request", is_served(peer))
    for name, token in (
        ("wrong password", b"\0alice\0wrong"),
        ("unknown user", b"\0nobody\0secret"),
        ("no user", b"\0\0secret"),
        ("no password", b"\0alice\0"),
        ("two parts", b"alice\0secret"),
        ("four parts", b"\0alice\0secret\0more"),
        ("five parts", b"\0alice\0secret\0more\0still"),
        ("nothing", b""),
        ("own authorization id", b"alice\0alice\0secret"),
        ("other authorization id", b"bob\0alice\0secret"),
        ("not text", b"\0\xff\xfe\0secret"),
    ):
        peer = open_one()
        peer.handshake("PLAIN")
        seen.note(name, outcome(peer, token))
        seen.note(f"{name}: then", is_served(peer))


def scram_exchanges(open_one: Opener, seen: Seen) -> None:
    for mechanism in (LASTING, SHORT):
        for name, arguments in (
            ("good", ("alice", "secret")),
            ("wrong password", ("alice", "wrong")),
            ("unknown user", ("nobody", "secret")),
            ("own authorization id", ("alice", "secret", "alice")),
            ("other authorization id", ("alice", "secret", "bob")),
            ("strange name", ("al=i,ce", "secret")),
            ("name that is not ASCII", ("\u00e4lice", "secret")),
        ):
            peer = open_one()
            seen.note(f"{mechanism} handshake for {name}", peer.handshake(mechanism))
            seen.note(f"{mechanism} {name}", scram(peer, mechanism, *arguments))
            seen.note(f"{mechanism} {name}: then", is_served(peer))
    for name, token in (
        ("no message", b"nonsense"),
        ("channel binding wanted", b"p=tls-unique,,n=alice,r=abc"),
        ("token as user", b"n,,n=alice,r=abc,tokenauth=true"),
        ("comma in the nonce", b"n,,n=alice,r=a,b"),
    ):
        peer = open_one()
        peer.handshake(LASTING)
        seen.note(name, outcome(peer, token))
    for name, change in (("no last message", b"nonsense"), ("foreign nonce", None)):
        peer = open_one()
        peer.handshake(LASTING)
        client = ScramClient(LASTING, "alice", "secret")
        final = client.final(peer.token(client.first)["auth_bytes"])
        seen.note(name, outcome(peer, change or final.replace(b",r=rOpr", b",r=xxxx")))


def out_of_turn(open_one: Opener, seen: Seen) -> None:
    seen.note("request first", is_served(open_one()))
    seen.note("token first", outcome(open_one(), b"\0alice\0secret"))
    peer = open_one()
    versions = peer.ask(apis.API_VERSIONS, 3, SOFTWARE)
    seen.note("versions", (versions["error_code"], [one for one in versions["api_keys"] if one["api_key"] in (17, 36)]))
    seen.note("handshake after versions", peer.handshake("PLAIN"))
    peer = open_one()
    peer.ask(apis.API_VERSIONS, 3, SOFTWARE)
    seen.note("versions twice", answered(lambda: peer.ask(apis.API_VERSIONS, 3, SOFTWARE)["error_code"]))
    peer = open_one()
    peer.ask(apis.API_VERSIONS, 3, SOFTWARE)
    seen.note("request after versions", is_served(peer))
    bad = {"client_software_name": "!", "client_software_version": "!"}
    peer = open_one()
    seen.note("bad software", answered(lambda: peer.ask(apis.API_VERSIONS, 3, bad)["error_code"]))
    seen.note("versions after that", answered(lambda: peer.ask(apis.API_VERSIONS, 3, SOFTWARE)["error_code"]))
    for mechanism in ("GSSAPI", "plain", "", "OAUTHBEARER"):
        for version in (0, 1):
            peer = open_one()
            seen.note(f"mechanism {mechanism!r} v{version}", answered(lambda: peer.handshake(mechanism, version)))  # noqa: B023
            seen.note(f"mechanism {mechanism!r} v{version}: then", is_served(peer))
    for name, ask in (
        ("handshake", lambda peer: peer.handshake("PLAIN")),
        ("versions", lambda peer: peer.ask(apis.API_VERSIONS, 3, SOFTWARE)["error_code"]),
        (
            "producer id",
            lambda peer: peer.ask(apis.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1})[
                "error_code"
            ],
        ),
    ):
        peer = open_one()
        peer.handshake("PLAIN")
        seen.note(f"{name} instead of a token", answered(lambda: ask(peer)))  # noqa: B023
        seen.note(f"{name} instead of a token: then", is_served(peer))


def bare_tokens(open_one: Opener, seen: Seen) -> None:
    peer = open_one()
    seen.note("handshake", peer.handshake("PLAIN", 0))
    seen.note("good", peer.wire.exchange(b"\0alice\0secret"))
    seen.note("request", is_served(peer))
    peer = open_one()
    peer.handshake("PLAIN", 0)
    seen.note("bad", peer.wire.exchange(b"\0alice\0wrong"))
    peer = open_one()
    peer.handshake(LASTING, 0)
    client = ScramClient(LASTING, "alice", "secret")
    first = peer.wire.exchange(client.first)
    last = peer.wire.exchange(client.final(first or b""))
    seen.note("scram", client.is_from_server(last or b""))
    seen.note("request after scram", is_served(peer))


def after_authentication(open_one: Opener, seen: Seen) -> None:
    peer = open_one()
    peer.handshake(LASTING)
    seen.note("login", scram(peer, LASTING, "alice", "secret"))
    seen.note("handshake", peer.handshake(LASTING))
    seen.note("token", outcome(peer, b"\0alice\0secret"))
    seen.note("versions", peer.ask(apis.API_VERSIONS, 3, SOFTWARE)["error_code"])
    seen.note("request", is_served(peer))


def sessions(open_one: Opener, seen: Seen) -> None:
    def login() -> Asking:
        peer = open_one()
        peer.handshake(SHORT)
        assert scram(peer, SHORT, "alice", "secret")[1] == 0
        return peer

    peer = login()
    seen.note("handshake", peer.handshake(SHORT))
    seen.note("again", scram(peer, SHORT, "alice", "secret"))
    seen.note("request", is_served(peer))
    seen.note("too early", peer.handshake(SHORT))
    seen.note("request after that", is_served(peer))
    other = login()
    other.handshake(SHORT)
    seen.note("other user", scram(other, SHORT, "bob", "hidden"))
    seen.note("other user: then", is_served(other))
    other = login()
    other.handshake(SHORT)
    seen.note("wrong password", scram(other, SHORT, "alice", "wrong"))
    seen.note("wrong password: then", is_served(other))
    other = login()
    seen.note("other mechanism", other.handshake("PLAIN"))
    seen.note("other mechanism: then", outcome(other, b"\0alice\0secret"))
    other = login()
    seen.note("unknown mechanism", answered(lambda: other.handshake("GSSAPI")))
    other = login()
    other.handshake(SHORT)
    seen.note("request instead of a token", answered(lambda: other.ask(apis.API_VERSIONS, 3, SOFTWARE)["error_code"]))
    late, later = login(), login()
    peer.wire.advance(SESSION_MS + 50)
    seen.note("request when it is over", is_served(late))
    seen.note("handshake when it is over", later.handshake(SHORT))
    seen.note("again when it is over", scram(later, SHORT, "alice", "secret"))
    seen.note("request in the new session", is_served(later))


SASL_SCRIPTS = {
    run.__name__: run for run in (plain, scram_exchanges, out_of_turn, bare_tokens, after_authentication, sessions)
}
