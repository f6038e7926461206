"""TLS connections: what is accepted, the error for what is refused, and that nothing is sent before verification.

The peers are listeners of Python's ssl module with one certificate each. test_security_kafka.py has real brokers.
"""

from __future__ import annotations

import base64
import errno
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from kafka_sink.errors import AuthenticationError, ConfigError, TransportError
from kafka_sink.kafka.client.commands import Connect, Connected, Disconnect, Disconnected, Received, Send, Written
from kafka_sink.kafka.io import tls
from kafka_sink.kafka.io.tls import TlsContexts, tls_context
from kafka_sink.options.parse import parse_producer_options
from tests.integration.exhausted_descriptors import no_descriptor_left
from tests.integration.tls_peers import HOST, WAIT_S, Dialogue, Listener, options, refusal
from tests.support.certificates import DAY, NOW, Authority, Issued
from tools.kafka_jars import java_command


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def good(authority: Authority) -> Issued:
    return authority.issue("good", HOST, "127.0.0.1")


@pytest.fixture
def listening() -> Iterator[Callable[..., Listener]]:
    with ExitStack() as stack:

        def listen(*arguments: Any) -> Listener:
            listener = Listener(*arguments)
            stack.callback(listener.close)
            return listener

        yield listen


# ---- what works ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_bytes_of_any_size_come_back_as_they_were(
    version: str, authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    listener = listening(good)
    with Dialogue(options(authority, ssl_enabled_protocols=version)) as dialogue:
        assert dialogue.connect(listener.port) == Connected(1)
        many = [bytes([number % 251]) * (number * 7 % 40) for number in range(1500)]
        assert dialogue.echoed(many) == b"".join(many)
        large = [b"head", bytes(range(256)) * 12_000, b"", b"tail" * 5000, b"\x00" * 16_384]
        assert dialogue.echoed(large) == b"".join(large)
        assert Written(1) in dialogue.events


def test_trust_and_key_may_be_text(authority: Authority, good: Issued, listening: Callable[..., Listener]) -> None:
    client = authority.issue("client-text", is_for_clients=True, password="pa\u00dfw")

    def demand(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.path)

    chosen = options(
        authority,
        ssl_truststore_certificates=authority.text,
        ssl_keystore_certificate_chain=client.chain.read_text(),
        ssl_keystore_key=client.key.read_text(),
        ssl_key_password="pa\u00dfw",
    )
    before = os.listdir("/proc/self/fd")
    tls_context(chosen)
    assert os.listdir("/proc/self/fd") == before, "the key is still in memory"
    with Dialogue(chosen) as dialogue:
        assert dialogue.connect(listening(good, demand).port) == Connected(1)
        assert dialogue.echoed([b"hello"]) == b"hello"


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("given", ["trust", "key"])
def test_good_certificates_are_not_blamed_if_no_descriptor_is_left(
    given: str, free: int, authority: Authority, good: Issued
) -> None:
    """A file in memory needs the first one, and OpenSSL, which opens it, the second."""
    key = {"ssl_keystore_certificate_chain": good.chain.read_text(), "ssl_keystore_key": good.key.read_text()}
    trust = {"ssl_truststore_certificates": authority.text}
    chosen = options(authority, **(trust if given == "trust" else {**trust, **key}))
    tls_context(chosen)
    if given == "key":
        chosen = replace(chosen, ssl_truststore_certificates=None)
    with no_descriptor_left(free), pytest.raises(TransportError, match="cannot open more files") as caught:
        tls_context(chosen)
    assert caught.value.name == "PKS-5008"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_where_files_in_memory_are_forbidden_a_temporary_one_is_used_and_deleted(
    number: int, authority: Authority, good: Issued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(tls, "os", SimpleNamespace(memfd_create=forbid))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    context = tls_context(options(authority, ssl_keystore_location=str(good.both)))
    assert context.cert_store_stats()["x509_ca"] == 1
    assert list(tmp_path.iterdir()) == []


def test_an_address_is_verified_as_an_address(
    authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    with Dialogue(options(authority)) as dialogue:
        assert dialogue.connect(listening(good).port, "127.0.0.1") == Connected(1)


def test_records_of_one_byte_are_put_together(
    authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    listener = listening(good)
    listener.record_bytes = 1
    with Dialogue(options(authority)) as dialogue:
        assert dialogue.connect(listener.port) == Connected(1)
        assert dialogue.echoed([bytes(range(256)) * 8]) == bytes(range(256)) * 8


def test_what_was_said_before_the_connection_broke_is_told_first(authority: Authority, good: Issued) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Dialogue(options(authority)) as dialogue:

        def serve() -> None:
            accepted, _ = listener.accept()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(good.chain, good.key)
            secured = context.wrap_socket(accepted, server_side=True)
            secured.sendall(b"last words")
            # Behind them bytes that are not TLS.
            raw = socket.socket(fileno=secured.detach())
            raw.sendall(b"HTTP/1.1 500 Oh\r\n\r\n")
            raw.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert dialogue.connect(listener.getsockname()[1]) == Connected(1)
        event = dialogue.wait_for(1, (Disconnected,))
        thread.join(WAIT_S)
    assert b"".join(bytes(each.data) for each in dialogue.events if isinstance(each, Received)) == b"last words"
    assert isinstance(event.reason, TransportError) and "closed the connection" not in str(event.reason)


def test_the_cipher_suite_is_the_chosen_one(
    authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    used: list[Any] = []
    listener = listening(good, lambda context: setattr(context, "sni_callback", lambda tls, *_: used.append(tls)))
    chosen = options(authority, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    with Dialogue(chosen) as dialogue:
        assert dialogue.connect(listener.port) == Connected(1)
        assert dialogue.echoed([b"x"]) == b"x"
        assert used[0].cipher()[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")


def test_a_slow_handshake_keeps_nobody_waiting(
    authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, Dialogue(options(authority)) as dialogue:
        stuck = (int(socket.AF_INET), ("127.0.0.1", silent.getsockname()[1]))
        dialogue.network.execute(Connect(7, 0, stuck, HOST))
        assert dialogue.connect(listening(good).port) == Connected(1)
        assert dialogue.echoed([b"x" * 100_000]) == b"x" * 100_000
        assert not [each for each in dialogue.events if each.connection_id == 7]
        dialogue.network.execute(Disconnect(7))
        assert dialogue.network.connection_count == 1


# ---- what is refused -------------------------------------------------------------------------------------------


def wrong(authority: Authority, tmp: Path) -> dict[str, tuple[Issued, dict[str, object], str]]:
    """The listener's certificate, the client's options, and what the error says."""
    stranger = Authority(tmp, "stranger")
    revoked = authority.issue("revoked", HOST)
    return {
        "unknown authority": (
            stranger.issue("s", HOST),
            {},
            "signed by an authority that is not trusted here: set ssl.t",
        ),
        "self-signed": (authority.issue("self", HOST, is_self_signed=True), {}, "self-signed and not trusted"),
        "expired": (authority.issue("old", HOST, valid_from=NOW - 9 * DAY, valid_until=NOW - DAY), {}, "has expired"),
        "not yet valid": (
            authority.issue("young", HOST, valid_from=NOW + DAY),
            {},
            "not valid yet: compare the clocks",
        ),
        "another name": (authority.issue("other", "broker.example.org"), {}, "it is for another host name"),
        "no name": (authority.issue("nameless"), {}, "it is for another host name"),
        "for clients": (authority.issue("clients", HOST, is_for_clients=True), {}, "not meant for servers"),
        "revoked": (revoked, {"ssl_crl_location": str(authority.revoke(revoked))}, "it was revoked"),
    }


NAMES = [
    "unknown authority", "self-signed", "expired", "not yet valid", "another name", "no name", "for clients", "revoked",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_certificate_that_proves_nothing_is_refused_by_name_before_a_byte_is_sent(
    name: str, authority: Authority, tmp_path: Path, listening: Callable[..., Listener]
) -> None:
    issued, more, says = wrong(authority, tmp_path)[name]
    listener = listening(issued)
    with Dialogue(options(authority, **more)) as dialogue:
        address = (int(socket.AF_INET), ("127.0.0.1", listener.port))
        dialogue.network.execute(Connect(1, 0, address, HOST))
        # Sent at once: a network that did not wait for the handshake would send it.
        dialogue.network.execute(Send(1, [b"hunter2"]))
        event = dialogue.wait_for(1, (Connected, Disconnected))
    assert isinstance(event, Disconnected) and isinstance(event.reason, AuthenticationError)
    assert says in str(event.reason) and str(event.reason).endswith("Nothing was sent to it")
    assert ("Connect by a name that it contains" in str(event.reason)) is (name in ("another name", "no name"))
    assert listener.plain_bytes == b""


def test_without_a_truststore_the_system_decides(
    authority: Authority, good: Issued, listening: Callable[..., Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = parse_producer_options({"bootstrap.servers": "b:1", "security.protocol": "SSL"})
    context = tls_context(nothing)
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    listener = listening(good)
    assert "authority that is not trusted here" in str(refusal(nothing, listener.port))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    with Dialogue(nothing) as dialogue:
        assert dialogue.connect(listener.port) == Connected(1)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the folder")
def test_trust_may_be_a_folder(
    authority: Authority, good: Issued, tmp_path: Path, listening: Callable[..., Listener]
) -> None:
    shutil.copy(authority.path, tmp_path / "ca.pem")
    subprocess.run(["openssl", "rehash", str(tmp_path)], check=True)
    with Dialogue(options(authority, ssl_truststore_location=str(tmp_path))) as dialogue:
        assert dialogue.connect(listening(good).port) == Connected(1)


NEW, OLD = "TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("more", "first", "last"),
    [
        ({}, "1.2", "1.3"),
        ({"ssl_protocol": "TLSv1.2"}, "1.2", "1.2"),
        ({"ssl_enabled_protocols": "TLSv1.3"}, "1.3", "1.3"),
        ({"ssl_cipher_suites": NEW}, "1.3", "1.3"),
        ({"ssl_cipher_suites": OLD}, "1.2", "1.2"),
        ({"ssl_cipher_suites": f"{NEW},{OLD}"}, "1.2", "1.3"),
    ],
)
def test_versions_are_those_that_every_option_leaves(
    more: dict[str, str], first: str, last: str, authority: Authority
) -> None:
    context = tls_context(options(authority, **more))
    found = [each.name.replace("_", ".") for each in (context.minimum_version, context.maximum_version)]
    assert found == [f"TLSv{first}", f"TLSv{last}"]


@pytest.mark.parametrize(
    ("suites", "says"), [(NEW, r"no suite for the versions of ssl\.enabled\.protocols"), ("NO-SUCH", "knows none of")]
)
def test_suites_that_no_version_has_are_refused(suites: str, says: str, authority: Authority) -> None:
    with pytest.raises(ConfigError, match=says):
        tls_context(options(authority, ssl_cipher_suites=suites, ssl_enabled_protocols="TLSv1.2"))


def test_an_address_needs_a_certificate_for_it(authority: Authority, listening: Callable[..., Listener]) -> None:
    issued = authority.issue("names-only", HOST, "127.0.0.1.example.org")
    error = refusal(options(authority), listening(issued).port, "127.0.0.1")
    text = str(error)
    assert error.name == "PKS-4002"
    assert "does not prove that it is 127.0.0.1: it is for another address" in text
    assert "Connect by a name that it contains" in text


def test_checks_that_were_turned_off_are_off(authority: Authority, listening: Callable[..., Listener]) -> None:
    listener = listening(authority.issue("another", "broker.example.org"))
    chosen = options(authority, ssl_endpoint_identification_algorithm="")
    assert "host names of brokers are not checked" in chosen.notices[0]
    with Dialogue(chosen) as dialogue:
        assert dialogue.connect(listener.port) == Connected(1)
    stranger = listening(authority.issue("alone", HOST, is_self_signed=True))
    chosen = options(authority, enable_ssl_certificate_verification="false")
    with Dialogue(chosen) as dialogue:
        assert dialogue.connect(stranger.port) == Connected(1)


def test_a_revocation_list_without_the_certificate_lets_it_pass(
    authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    with Dialogue(options(authority, ssl_crl_location=str(authority.revoke()))) as dialogue:
        assert dialogue.connect(listening(good).port) == Connected(1)


def test_a_peer_that_does_not_speak_tls_is_named_and_may_be_tried_again(
    authority: Authority, listening: Callable[..., Listener]
) -> None:
    error = refusal(options(authority), listening(None).port)
    assert isinstance(error, TransportError)
    assert "does not speak TLS on this port" in str(error) and "security.protocol=PLAINTEXT" in str(error)


def test_a_peer_that_hangs_up_during_the_handshake_is_named(authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True).start()
        error = refusal(options(authority), listener.getsockname()[1])
    assert isinstance(error, TransportError) and "during the TLS handshake" in str(error)


def test_without_a_common_version_the_option_is_named(
    authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    def newest_only(context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3

    error = refusal(options(authority, ssl_enabled_protocols="TLSv1.2"), listening(good, newest_only).port)
    assert isinstance(error, AuthenticationError) and "see ssl.enabled.protocols" in str(error)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_listener_that_demands_a_client_certificate_says_so(
    version: str, authority: Authority, good: Issued, listening: Callable[..., Listener]
) -> None:
    def demand(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED

    listener = listening(good, demand)
    with Dialogue(options(authority, ssl_enabled_protocols=version)) as dialogue:
        dialogue.connect(listener.port)
        event = dialogue.wait_for(1, (Disconnected,))
    assert isinstance(event.reason, AuthenticationError)
    assert "ssl.keystore.location" in str(event.reason)
    assert listener.plain_bytes == b""


# ---- files -----------------------------------------------------------------------------------------------------


def test_a_certificate_that_was_replaced_is_used_by_the_next_connection(
    authority: Authority,
    good: Issued,
    listening: Callable[..., Listener],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(Authority(tmp_path, "former").text)
    listener = listening(good)
    with Dialogue(options(authority, ssl_truststore_location=str(trusted))) as dialogue:
        assert isinstance(dialogue.connect(listener.port, connection_id=1), Disconnected)
        trusted.write_text(authority.text * 2)
        assert dialogue.connect(listener.port, connection_id=2) == Connected(2)
        trusted.write_text("")
        assert dialogue.echoed([b"still"], 2) == b"still"
        with caplog.at_level("WARNING", logger="kafka_sink"):
            assert dialogue.connect(listener.port, connection_id=3) == Connected(3)
    assert "changed files for TLS are not used" in caplog.text and "is no file of PEM" in caplog.text


def test_a_key_and_trust_behind_references_are_replaced_without_a_restart(authority: Authority, tmp_path: Path) -> None:
    values = tmp_path / "tls.properties"

    def write(name: str, trusted: Authority) -> None:
        issued = authority.issue(name, is_for_clients=True)
        texts = {"key": issued.key.read_text(), "chain": issued.chain.read_text(), "trust": trusted.text}
        values.write_text("".join(f"{each}={text.encode('unicode_escape').decode()}\n" for each, text in texts.items()))

    write("first", authority)
    contexts = TlsContexts(
        options(
            authority,
            ssl_truststore_certificates=f"${{file:{values}:trust}}",
            ssl_keystore_key=f"${{file:{values}:key}}",
            ssl_keystore_certificate_chain=f"${{file:{values}:chain}}",
        )
    )
    first = contexts.current()
    assert contexts.current() is first
    values.write_text("")
    assert contexts.current() is first
    write("second", Authority(tmp_path, "second"))
    second = contexts.current()
    assert second.get_ca_certs() != first.get_ca_certs() and contexts.current() is second


def test_a_key_that_was_replaced_before_its_password_is_used_once_that_is_there(
    authority: Authority, tmp_path: Path
) -> None:
    former, new = (authority.issue(name, is_for_clients=True, password=name) for name in ("former", "new"))
    key, secrets = tmp_path / "used.pem", tmp_path / "secrets.properties"
    key.write_bytes(former.both.read_bytes())
    secrets.write_text("password=former")
    more = {"ssl_keystore_location": str(key), "ssl_key_password": f"${{file:{secrets}:password}}"}
    contexts = TlsContexts(options(authority, **more))
    before = contexts.current()
    key.write_bytes(new.both.read_bytes())
    assert contexts.current() is before
    secrets.write_text("password=new")
    after = contexts.current()
    assert after is not before and contexts.current() is after


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", "is a JKS file: convert it to PEM with `keytool -importkeystore"),
        (b"\x30\x82\x01\x00", "cannot be opened as PKCS12: is ssl.truststore.password the right password"),
        (b"\x30\x82\x01\x00", "A certificate in DER is converted by `openssl x509 -inform DER -in "),
        (b"hello", "is no file of PEM"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no certificate that OpenSSL can read"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_to_do(
    content: bytes, says: str, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "store"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        tls_context(options(authority, ssl_truststore_location=str(path)))
    assert says in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(("option", "tool"), [("certificate", "x509"), ("key", "pkey"), ("crl", "crl")])
def test_der_where_only_pem_is_taken_is_refused_with_the_command_that_converts_it(
    option: str, tool: str, authority: Authority, tmp_path: Path
) -> None:
    issued = authority.issue("der", is_for_clients=True)
    files = {"certificate": issued.chain, "key": issued.key, "crl": authority.revoke()}
    lines = files[option].read_text().split("-----")[2]
    files[option] = tmp_path / option
    files[option].write_bytes(base64.b64decode(lines))
    with pytest.raises(ConfigError, match=f"is no file of PEM: convert DER with `openssl {tool} -inform DER -in"):
        tls_context(options(authority, **{f"ssl_{name}_location": str(path) for name, path in files.items()}))


def test_a_file_that_is_missing_says_where_it_was_looked_for(authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"there is no such file in .*spark-submit --files"):
        tls_context(options(authority, ssl_truststore_location="nowhere.pem"))


def test_a_bare_name_is_found_in_the_working_directory(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text(authority.text)
    monkeypatch.chdir(tmp_path)
    assert len(tls_context(options(authority, ssl_truststore_location="ca.pem")).get_ca_certs()) == 1


@pytest.mark.parametrize("password", [None, "hunter3"])
def test_a_wrong_password_of_the_key_is_named_and_not_shown(password: str | None, authority: Authority) -> None:
    client = authority.issue(f"client-{password is None}", is_for_clients=True, password="hunter2")
    more = {} if password is None else {"ssl_key_password": password}
    with pytest.raises(ConfigError, match=r"is the key encrypted, and ssl\.key\.password") as caught:
        tls_context(options(authority, ssl_keystore_location=str(client.both), **more))
    assert "hunter2" not in str(caught.value) and "key.password=" not in str(caught.value)


def test_a_key_that_belongs_to_another_certificate_is_named(authority: Authority) -> None:
    one, other = (authority.issue(name, is_for_clients=True) for name in ("one", "two"))
    more = {"ssl_certificate_location": str(one.chain), "ssl_key_location": str(other.key)}
    with pytest.raises(ConfigError, match="the key does not belong to the first certificate"):
        tls_context(options(authority, **more))


# ---- PKCS12 ----------------------------------------------------------------------------------------------------


def keytool(*arguments: str) -> None:
    """Java's own tool, so that the files are like those of existing JVM applications."""
    command = [
        str(Path(java_command()).resolve().with_name("keytool")),
        *arguments,
        "-storepass",
        "of the store",
        "-noprompt",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def java_truststore(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("java") / "trust.p12"
    trusted = ["-alias", "authority", "-file", str(authority.path)]
    keytool("-importcert", "-storetype", "PKCS12", "-keystore", str(path), *trusted)
    return path


def test_key_and_trust_may_be_pkcs12(
    authority: Authority, good: Issued, java_truststore: Path, tmp_path: Path, listening: Callable[..., Listener]
) -> None:
    client = authority.issue("client-pkcs12", is_for_clients=True)
    keystore = tmp_path / "client.p12"
    key = serialization.load_pem_private_key(client.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    hiding = serialization.BestAvailableEncryption(b"of the key")
    keystore.write_bytes(pkcs12.serialize_key_and_certificates(b"client", key, client.certificate, None, hiding))

    def demand(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.path)

    chosen = options(
        authority,
        ssl_truststore_location=str(java_truststore),
        ssl_truststore_password="of the store",
        ssl_keystore_location=str(keystore),
        ssl_keystore_password="of the key",
    )
    with Dialogue(chosen) as dialogue:
        assert dialogue.connect(listening(good, demand).port) == Connected(1)
        assert dialogue.echoed([b"hello"]) == b"hello"


@pytest.mark.parametrize("password", [None, "hunter2"])
def test_a_wrong_password_of_a_pkcs12_file_is_named_and_not_shown(
    password: str | None, authority: Authority, java_truststore: Path
) -> None:
    more = {} if password is None else {"ssl_truststore_password": password}
    with pytest.raises(ConfigError, match=r"is ssl\.truststore\.password the right password") as caught:
        tls_context(options(authority, ssl_truststore_location=str(java_truststore), **more))
    assert "hunter2" not in str(caught.value) and str(java_truststore) in str(caught.value)


def test_a_pkcs12_file_without_the_package_that_reads_it_says_what_to_install(
    authority: Authority, java_truststore: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    with pytest.raises(ConfigError) as caught:
        tls_context(options(authority, ssl_truststore_location=str(java_truststore), ssl_truststore_password="x"))
    assert "install pykafka-sink[pkcs12] (on the executors, too), or convert it to PEM with `openssl" in str(
        caught.value
    )


def test_a_key_that_the_package_does_not_know_is_told(
    authority: Authority, java_truststore: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise UnsupportedAlgorithm("Curve 1.2 is not supported")

    monkeypatch.setattr(pkcs12, "load_pkcs12", refuse)
    with pytest.raises(ConfigError, match="cannot be used by the package cryptography: Curve 1"):
        tls_context(options(authority, ssl_truststore_location=str(java_truststore), ssl_truststore_password="x"))


def test_a_password_for_a_file_that_has_none_is_refused(authority: Authority) -> None:
    with pytest.raises(ConfigError, match=r"which has no password: leave out ssl\.truststore\.password"):
        tls_context(options(authority, ssl_truststore_password="hunter2"))
