"""What somebody on the network can try against a connection with TLS and a password: each way ends before the password.

The peer does what the attacker would do; the client has the options of a careless user where that makes a difference.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kafka_sink import Producer
from kafka_sink.commit.admin.client import Client
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.commands import Connected, Disconnected
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.testing import EmbeddedBroker
from tests.integration.tls_peers import HOST, Dialogue, Listener, options
from tests.support.certificates import Authority, Issued

PASSWORD = "hunter2-of-alice"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def listening() -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def listen(*arguments: object) -> Listener:
            listener = Listener(*arguments)  # type: ignore[arg-type]
            stack.callback(listener.close)
            return listener

        yield listen


def anonymous(context: ssl.SSLContext) -> None:
    """Offers suites in which no certificate is shown; they exist up to TLS 1.2."""
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")


def without_encryption(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("eNULL:@SECLEVEL=0")


def older(context: ssl.SSLContext) -> None:
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")


CARELESS = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"
UNVERIFIED = {"enable.ssl.certificate.verification": "false"}


@pytest.mark.filterwarnings("ignore:.*TLSv1:DeprecationWarning")
@pytest.mark.parametrize("more", [{}, UNVERIFIED], ids=["verified", "unverified"])
@pytest.mark.parametrize("suites", [None, CARELESS, "aNULL:eNULL:@SECLEVEL=0", "ADH:AECDH:NULL:@SECLEVEL=0"])
@pytest.mark.parametrize("attack", [anonymous, without_encryption, older])
def test_a_peer_that_offers_less_than_tls_gets_nothing(
    attack: Callable[[ssl.SSLContext], None],
    suites: str | None,
    more: dict[str, str],
    authority: Authority,
    listening: Callable[..., Listener],
) -> None:
    listener = listening(authority.issue("broker", HOST), attack)
    chosen = {"bootstrap.servers": f"{HOST}:{listener.port}", "security.protocol": "SASL_SSL", "max.block.ms": "3000",
              "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD,
              "ssl.truststore.location": str(authority.path), **more}  # fmt: skip
    if suites is not None:
        chosen["ssl.cipher.suites"] = suites
    with pytest.raises(KafkaSinkError), Client(parse_producer_options(chosen)) as client:
        client.reach()
    assert listener.plain_bytes == b""


def test_a_connection_is_not_continued_in_clear(authority: Authority) -> None:
    """Stripping: the peer is a broker that speaks no TLS, on the port where TLS is expected."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted, suppress(OSError):
                    received.append(accepted.recv(1 << 16))
                    accepted.sendall(b"\x00\x00\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
                    received.append(accepted.recv(1 << 16))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        chosen = parse_producer_options(
            {"bootstrap.servers": f"{HOST}:{port}", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
             "sasl.username": "alice", "sasl.password": PASSWORD, "max.block.ms": "2000",
             "ssl.truststore.location": str(authority.path)}
        )  # fmt: skip
        with pytest.raises(KafkaSinkError), Client(chosen) as client:
            client.reach()
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    handshake, alert = b"\x16\x03", b"\x15\x03"
    assert received and received[0].startswith(handshake)
    assert {piece[:2] for piece in received} <= {handshake, alert, b""}
    assert PASSWORD.encode() not in b"".join(received)


def test_a_mechanism_that_sends_the_password_is_not_used_in_place_of_another() -> None:
    """Downgrade of the login: a peer that offers nothing but PLAIN."""
    with EmbeddedBroker(users={"alice": PASSWORD}) as broker:
        options_of_scram = {"bootstrap.servers": broker.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT",
                            "sasl.mechanism": "AWS_MSK_IAM", "sasl.aws.access.key.id": "AKID",
                            "sasl.aws.secret.access.key": PASSWORD, "sasl.aws.region": "eu-west-1"}  # fmt: skip
        with (
            pytest.raises(KafkaSinkError, match="it offers PLAIN"),
            Client(parse_producer_options(options_of_scram)) as client,
        ):
            client.reach()


def test_a_broker_elsewhere_that_a_cluster_names_gets_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel on this host, and behind it brokers that name addresses elsewhere."""
    monkeypatch.setattr("kafka_sink.kafka.auth.secured.is_this_host", lambda host: host == "localhost")
    with EmbeddedBroker(users={"alice": PASSWORD}, topics={"t": 1}) as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        chosen = {"bootstrap.servers": f"localhost:{port}", "security.protocol": "SASL_PLAINTEXT",
                  "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD}  # fmt: skip
        with Producer({**chosen, "allow.plaintext.credentials": "true"}) as producer:
            producer.send("t", value=b"x").result(60)
        with Producer(chosen) as producer, pytest.raises(KafkaSinkError, match=r"in clear on its way to 127\.0\.0\.1"):
            producer.send("t", value=b"x").result(60)


# ---- revoked authorities ---------------------------------------------------------------------------------------


def connected(chosen: dict[str, str], issued: Issued, authority: Authority, listening: Callable[..., Listener]) -> str:
    """Empty, or the error."""
    with Dialogue(options(authority, **chosen)) as dialogue:
        event = dialogue.connect(listening(issued).port)
        if event == Connected(1):
            return ""
        assert isinstance(event, Disconnected)
        return str(event.reason)


def lists(folder: Path, *paths: Path) -> dict[str, str]:
    path = folder / "lists.pem"
    path.write_bytes(b"".join(each.read_bytes() for each in paths))
    return {"ssl_crl_location": str(path)}


def test_a_certificate_under_a_revoked_authority_is_refused(tmp_path: Path, listening: Callable[..., Listener]) -> None:
    root = Authority(tmp_path, "root")
    middle = root.issue_authority("middle")
    issued = middle.issue("broker", HOST)
    assert connected({}, issued, root, listening) == ""
    fine = lists(tmp_path, root.revoke(), middle.revoke())
    assert connected(fine, issued, root, listening) == ""
    revoked = lists(tmp_path, root.revoke(middle), middle.revoke())
    assert "it was revoked, or an authority of its chain was" in connected(revoked, issued, root, listening)
    itself = lists(tmp_path, root.revoke(), middle.revoke(issued))
    assert "it was revoked" in connected(itself, issued, root, listening)


@pytest.mark.parametrize("missing", ["root", "middle"])
def test_each_authority_of_the_chain_needs_a_list(
    missing: str, tmp_path: Path, listening: Callable[..., Listener]
) -> None:
    root = Authority(tmp_path, "root")
    middle = root.issue_authority("middle")
    there = middle.revoke() if missing == "root" else root.revoke()
    found = connected(lists(tmp_path, there), middle.issue("broker", HOST), root, listening)
    assert "there is no list of revoked certificates from an authority of its chain" in found
    assert "one of each, the root included" in found
