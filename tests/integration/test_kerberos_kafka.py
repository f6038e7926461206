"""GSSAPI against MIT's KDC and Apache Kafka 4.3.1 and 3.9.1: which logins succeed, and the errors of those that fail.

Skipped without the KDC or the package `gssapi`; docs/security.md has the commands that install them.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_sink import AuthenticationError, ConfigError, OperationTimeout, Producer
from kafka_sink.commit.admin.client import Client
from kafka_sink.kafka.auth.secured import authenticator
from kafka_sink.options.parse import parse_producer_options
from tests.conftest import FIRST_GENERATION, NEWEST, started_when_asked
from tests.support.asking import said
from tests.support.producing import transact, transacted_for, values
from tools.kafka_cluster import KafkaCluster
from tools.kafka_node import FAST_START, HOST
from tools.kafka_security import LISTENER
from tools.kerberos import NAME, KerberosUnavailable, Realm

pytest.importorskip("gssapi", reason="the package gssapi is missing: pip install 'pykafka-sink[kerberos]'")
pytestmark = pytest.mark.kafka

WAIT_S = 90.0
SESSION_MS = 3_000
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


@dataclass(frozen=True)
class Kerberized:
    kafka: KafkaCluster
    realm: Realm

    def options(self, **more: Any) -> dict[str, Any]:
        """Names of `more` have underscores in place of dots."""
        chosen = {
            "bootstrap.servers": self.kafka.bootstrap_servers_of(LISTENER),
            "security.protocol": LISTENER,
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
        }
        return chosen | {name.replace("_", "."): value for name, value in more.items()}

    def with_keytab(self, **more: Any) -> dict[str, Any]:
        keytab = str(self.realm.folder / "alice.keytab")
        return self.options(**{"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": "alice", **more})


@pytest.fixture(scope="module")
def realm() -> Iterator[Realm]:
    try:
        opened = Realm()
    except KerberosUnavailable as missing:
        pytest.skip(str(missing))
    with opened as realm, pytest.MonkeyPatch.context() as patch:
        # The library and kinit read this again each time.
        patch.setenv("KRB5_CONFIG", str(realm.config))
        patch.setenv("KRB5CCNAME", f"FILE:{realm.folder / 'nothing'}")
        realm.add(f"kafka/{HOST}")
        realm.add(f"other/{HOST}")
        realm.add("alice")
        yield realm


@pytest.fixture(scope="module")
def kerberized_of(realm: Realm) -> Iterator[Callable[[str], Kerberized]]:
    prefix = f"listener.name.{LISTENER.lower()}"
    principal = f"kafka/{HOST}@{NAME}"
    keytab = realm.folder / f"kafka-{HOST}.keytab"
    jaas = f'{KRB5} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}" serviceName="kafka";'
    properties = {
        f"{prefix}.sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}.gssapi.sasl.jaas.config": jaas,
        f"{prefix}.gssapi.connections.max.reauth.ms": SESSION_MS,
    }
    jvm_options = (*FAST_START, f"-Djava.security.krb5.conf={realm.config}")
    users = {"nobody": "is asked for it"}

    @contextmanager
    def start(version: str) -> Iterator[Kerberized]:
        with KafkaCluster(version, users=users, properties=properties, jvm_options=jvm_options) as kafka:
            yield Kerberized(kafka, realm)

    with started_when_asked(start) as of:
        yield of


@pytest.fixture
def kerberized(kerberized_of: Callable[[str], Kerberized]) -> Kerberized:
    return kerberized_of(NEWEST)


def written_by(options: dict[str, Any], kerberized: Kerberized, topic: str) -> list[bytes | None]:
    """Writes one record, and one in a transaction after another one was aborted; librdkafka reads them back."""
    kerberized.kafka.create_topic(topic)
    with Producer(options) as producer:
        assert producer.send(topic, value=b"1").result(WAIT_S).offset == 0
    with Producer({**options, "transactional.id": topic}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value=b"never")
        producer.flush()
        producer.abort_transaction()
        transact(producer, topic, b"2")
    return values(kerberized.kafka, topic)


# ---- logins that succeed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [NEWEST, FIRST_GENERATION])
def test_a_keytab_gets_in_and_transacts(
    kerberized_of: Callable[[str], Kerberized], version: str, topic_name: str
) -> None:
    kerberized = kerberized_of(version)
    assert written_by(kerberized.with_keytab(), kerberized, topic_name) == [b"1", b"2"]
    log = kerberized.kafka.log_path(1).read_text(errors="replace")
    assert f"authenticationID=alice@{NAME}; authorizationID=alice@{NAME}" in log


def test_an_existing_jaas_configuration_with_a_keytab_gets_in(
    kerberized: Kerberized, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is found by its bare name, like the files of spark-submit --files."""
    monkeypatch.chdir(kerberized.realm.folder)
    jaas = f'{KRB5}\n useKeyTab=true storeKey=true keyTab="alice.keytab" principal="alice@{NAME}" serviceName="kafka";'
    options = kerberized.options(sasl_jaas_config=jaas)
    assert written_by(options, kerberized, topic_name) == [b"1", b"2"]


def test_a_ticket_cache_gets_in(kerberized: Kerberized, topic_name: str, tmp_path: Path) -> None:
    kerberized.realm.kinit("alice", tmp_path / "cache")
    jaas = f'{KRB5} useTicketCache=true ticketCache="{tmp_path / "cache"}" doNotPrompt=true;'
    options = kerberized.options(sasl_jaas_config=jaas)
    assert written_by(options, kerberized, topic_name) == [b"1", b"2"]


def test_the_ticket_cache_of_the_process_gets_in(
    kerberized: Kerberized, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kerberized.realm.kinit("alice", tmp_path / "cache")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    assert written_by(kerberized.options(), kerberized, topic_name) == [b"1", b"2"]


# ---- logins that fail ------------------------------------------------------------------------------------------


def test_a_principal_that_the_keytab_lacks_is_named_at_once(kerberized: Kerberized) -> None:
    error = said(kerberized.with_keytab(sasl_kerberos_principal="nobody"))
    assert isinstance(error, AuthenticationError)
    assert "alice.keytab has no key for the principal nobody" in str(error)


def test_a_principal_that_the_realm_lacks_is_named_at_once(kerberized: Kerberized) -> None:
    keytab = kerberized.realm.add("carol")
    kerberized.realm.remove("carol")
    error = said(kerberized.with_keytab(sasl_kerberos_principal="carol", sasl_kerberos_keytab=str(keytab)))
    assert isinstance(error, AuthenticationError)
    assert "not found in Kerberos database. It is not tried again: check the principal" in str(error)


def test_an_old_key_is_told_at_once(kerberized: Kerberized, tmp_path: Path) -> None:
    keytab = kerberized.realm.add("dave")
    keytab = keytab.rename(tmp_path / "old.keytab")
    kerberized.realm.new_key("dave")
    error = said(kerberized.with_keytab(sasl_kerberos_principal="dave", sasl_kerberos_keytab=str(keytab)))
    assert isinstance(error, AuthenticationError)
    assert "the keytab does not have the principal's current key" in str(error)


def test_a_service_that_the_realm_lacks_is_named_at_once(kerberized: Kerberized) -> None:
    error = said(kerberized.with_keytab(sasl_kerberos_service_name="kafkax"))
    assert isinstance(error, AuthenticationError)
    assert f"Server kafkax/{HOST}@{NAME} not found in Kerberos database" in str(error)
    assert "check sasl.kerberos.service.name, and the host name that the broker advertises" in str(error)


def test_a_service_that_is_not_the_brokers_is_refused_at_once(kerberized: Kerberized) -> None:
    error = said(kerberized.with_keytab(sasl_kerberos_service_name="other"))
    assert isinstance(error, AuthenticationError)
    assert "refused the credentials for GSSAPI" in str(error)
    assert "Check sasl.kerberos.service.name, the broker's keytab" in str(error)


def test_an_expired_ticket_is_told_at_once_and_a_new_one_gets_in(kerberized: Kerberized, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    kerberized.realm.kinit("alice", cache, "-l", "1s")
    time.sleep(4)
    options = kerberized.options(sasl_jaas_config=f'{KRB5} useTicketCache=true ticketCache="{cache}";')
    error = said(options)
    assert isinstance(error, AuthenticationError)
    assert "Ticket expired. It is not tried again: the ticket has expired: get a new one with kinit" in str(error)
    kerberized.realm.kinit("alice", cache)
    with Client(parse_producer_options(options)) as client:
        client.reach()


@pytest.mark.parametrize("name", ["nowhere.keytab", "garbage.keytab", ""])
def test_what_is_no_keytab_is_told_by_name(
    kerberized: Kerberized, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "garbage.keytab").write_bytes(os.urandom(100))
    if not name:
        error = said(kerberized.options())
        assert isinstance(error, AuthenticationError)
        assert "No credentials cache found" in str(error) or "No Kerberos credentials available" in str(error)
        return
    error = said(kerberized.with_keytab(sasl_kerberos_keytab=name))
    if name == "nowhere.keytab":
        assert isinstance(error, ConfigError) and "keyTab=nowhere.keytab: there is no such file" in str(error)
    else:
        assert isinstance(error, AuthenticationError) and "garbage.keytab" in str(error)


def test_a_realm_that_does_not_answer_is_tried_again_until_the_time_limit(kerberized: Kerberized) -> None:
    keytab = kerberized.realm.add("erin")
    options = kerberized.with_keytab(sasl_kerberos_keytab=str(keytab), sasl_kerberos_principal="erin")
    kerberized.realm.stop()
    try:
        error = said(options, 2_000)
    finally:
        kerberized.realm.start()
    assert isinstance(error, OperationTimeout) and "Cannot contact any KDC" in str(error)
    with Client(parse_producer_options(options)) as client:
        client.reach()


@pytest.mark.parametrize("challenge", [b"\x00", b"garbage", os.urandom(2000), b"\x60" + b"\xff" * 200])
def test_a_server_that_proves_nothing_is_told(kerberized: Kerberized, challenge: bytes) -> None:
    new_exchange = authenticator(parse_producer_options(kerberized.with_keytab()))
    assert new_exchange is not None
    exchange = new_exchange(HOST)
    assert len(exchange.first()) > 100
    with pytest.raises(AuthenticationError, match=rf"^Kerberos gives no proof for kafka@{HOST}: ") as caught:
        exchange.step(challenge)
    assert str(caught.value).isprintable() and "Success" not in str(caught.value)
    assert caught.value.name == "PKS-4010"


def test_a_missing_package_is_told_with_the_command_that_installs_it(
    kerberized: Kerberized, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    needed = r"needs the package gssapi.* pip install 'pykafka-sink\[kerberos\]'"
    with pytest.raises(ConfigError, match=needed):
        Producer(kerberized.with_keytab())
    error = said(kerberized.with_keytab())
    assert isinstance(error, ConfigError) and re.search(needed, str(error))


# ---- sessions that expire --------------------------------------------------------------------------------------


def test_a_transaction_goes_on_through_new_sessions_and_new_tickets(
    kerberized: Kerberized, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    keytab = kerberized.realm.add("frank", life="4 seconds")
    topic = kerberized.kafka.create_topic(topic_name)
    more = {"sasl_kerberos_keytab": str(keytab), "sasl_kerberos_principal": "frank"}
    options = kerberized.with_keytab(**more, transactional_id=topic, linger_ms="0")
    sent, told = transacted_for(4 * SESSION_MS / 1000, options, topic, caplog)
    assert values(kerberized.kafka, topic) == sent
    assert any("new session with" in text for text in told)
    assert not [text for text in told if "refused" in text or "Kerberos gives" in text]
    # A ticket is valid for four seconds: the realm has issued more than one.
    tickets = (kerberized.realm.folder / "kdc.log").read_text(errors="replace")
    assert tickets.count(f"frank@{NAME} for krbtgt/") >= 2
