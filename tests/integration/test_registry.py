"""The schema registry over real sockets: what is remembered, every kind of failure, and every kind of login."""

from __future__ import annotations

import base64
import gc
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient

from kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    KafkaSinkError,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.formats.registry.request import by_version
from kafka_sink.formats.registry.schema import AVRO, ResolvedSchema, Schema
from kafka_sink.kafka.io import web
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.formats import registry_memory
from kafka_sink.spark.formats.schema_registry import CLIENTS_MAX, RegistryClient, registry_client, resolve, schema_text
from kafka_sink.testing import EmbeddedRegistry, RegistryFault
from tests.integration import hostile_peer
from tests.integration.hostile_peer import HostilePeer
from tests.support.certificates import Authority, Issued
from tests.support.option_parsing import registry_settings
from tests.support.token_server import TokenServer
from tools.kafka_node import free_port

ONE = Schema(AVRO, '{"type":"record","name":"shop.Order","fields":[{"name":"a","type":"int"}]}')
TWO = Schema(AVRO, '{"type":"record","name":"shop.Order","fields":[{"name":"b","type":"int"}]}')
# So that no test waits for a back-off.
QUICK = {"schema.registry.retries.wait.ms": "1", "schema.registry.retries.max.wait.ms": "5"}
LATEST = {"use.latest.version": "true"}
REGISTER = {"auto.register.schemas": "true"}
PASSWORD = "hunter2-of-the-registry"


@pytest.fixture
def registry() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry() as registry:
        yield registry


def resolved(
    url: str, *more: dict[str, str], schema: Schema | None = ONE, topic: str | None = "orders"
) -> ResolvedSchema:
    given: dict[str, str] = {"schema.registry.url": url, **QUICK}
    for each in more:
        given |= each
    settings = registry_settings(given, parse_producer_options({"bootstrap.servers": "b:1"}))
    return resolve(settings.registry, settings.value, schema, topic=topic, record_name="shop.Order")


def refusal(url: str, *more: dict[str, str], schema: Schema | None = ONE) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as caught:
        resolved(url, *more, schema=schema)
    assert PASSWORD not in f"{caught.value} {caught.value!r}"
    return caught.value


# ---- what is remembered ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [REGISTER, LATEST, {"value.schema.version": "1"}, {"value.schema.id": "1"}, {}])
def test_a_process_asks_once_for_a_thousand_batches_and_goes_on_without_the_registry(
    registry: EmbeddedRegistry, choice: dict[str, str]
) -> None:
    resolved(registry.url, REGISTER)
    before = len(registry.requests())
    schema = None if "value.schema.id" in choice or "value.schema.version" in choice else ONE
    first = resolved(registry.url, choice, schema=schema)
    for _ in range(499):
        assert resolved(registry.url, choice, schema=schema) == first
    registry.stop()
    for _ in range(500):
        assert resolved(registry.url, choice, schema=schema) == first
    # With the options that registered the schema, the answer is remembered already.
    assert len(registry.requests()) - before == (0 if choice == REGISTER else 1)


def test_an_id_is_one_of_the_chosen_context(registry: EmbeddedRegistry) -> None:
    """Each context counts its own ids."""
    context = {"schema.registry.context": "eu"}
    assert [
        resolved(registry.url, REGISTER, context).schema_id,
        resolved(registry.url, REGISTER, schema=TWO).schema_id,
    ] == [1, 1]
    by_id = {"value.schema.id": "1"}
    assert resolved(registry.url, by_id, context, schema=None).schema == ONE
    assert resolved(registry.url, by_id, context, {"value.subject.name": ":.:s"}, schema=None).schema == TWO
    assert resolved(registry.url, by_id, schema=None).schema == TWO


def test_a_query_goes_on_with_its_version_while_the_subject_gets_a_new_one(registry: EmbeddedRegistry) -> None:
    resolved(registry.url, REGISTER)
    first = resolved(registry.url, LATEST, schema=None)
    registry.do(lambda core: core.store.levels.update({"": "NONE"}))
    assert resolved(registry.url, REGISTER, schema=TWO).version == 2
    assert resolved(registry.url, LATEST, schema=None) == first and first.schema == ONE
    # Another process, or one whose answer has expired.
    again = resolved(registry.url, LATEST, {"schema.registry.latest.cache.ttl.sec": "0"}, schema=None)
    assert (again.version, again.schema) == (2, TWO)


def test_an_answer_that_has_expired_is_used_while_the_registry_is_down(
    registry: EmbeddedRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but this process remembers it: the disk with Spark's folders may be full."""
    resolved(registry.url, REGISTER)
    short = {"schema.registry.latest.cache.ttl.sec": "0"}
    first = resolved(registry.url, LATEST, short, schema=None)
    registry.stop()
    assert resolved(registry.url, LATEST, short, schema=None) == first
    assert "the schema is the one of an earlier answer" in caplog.text


def test_a_forked_child_asks_for_itself(registry: EmbeddedRegistry) -> None:
    resolved(registry.url, REGISTER)
    asked = len(registry.requests())
    child = os.fork()
    if child == 0:
        os._exit(0 if resolved(registry.url, REGISTER).schema_id == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(registry.requests()) == asked + 1


def test_a_refusal_is_not_remembered(registry: EmbeddedRegistry) -> None:
    assert isinstance(refusal(registry.url), ConfigError)
    resolved(registry.url, REGISTER)
    assert resolved(registry.url).schema_id == 1


def test_nothing_is_asked_when_id_and_text_are_given() -> None:
    given = {"value.schema": ONE.text, "value.schema.id": "7"}
    settings = registry_settings(given, parse_producer_options({"bootstrap.servers": "b:1"}))
    assert settings.registry is None
    text = schema_text(settings.value)
    found = resolve(None, settings.value, Schema(AVRO, text or ""), topic=None, record_name=None)
    assert (found.schema, found.schema_id) == (ONE, 7)


def test_a_schema_may_stand_in_a_file(tmp_path: Path, registry: EmbeddedRegistry) -> None:
    (tmp_path / "order.avsc").write_text(ONE.text)
    sink = {"kafka.bootstrap.servers": "b:1", "schema.registry.url": registry.url}
    for name in (str(tmp_path / "order.avsc"), ONE.text, f"\n{ONE.text}"):
        formats = parse_sink_options({**sink, "value.format": "avro", "value.schema": name}).formats
        assert formats is not None and formats.value is not None
        assert (schema_text(formats.value) or "").strip() == ONE.text
    (tmp_path / "order.avsc").write_text(ONE.text, "utf-8-sig")
    marked = parse_sink_options({**sink, "value.format": "avro", "value.schema": str(tmp_path / "order.avsc")}).formats
    assert marked is not None and marked.value is not None and schema_text(marked.value) == ONE.text
    kafka = parse_producer_options({"bootstrap.servers": "b:1"})
    missing = registry_settings({"schema.registry.url": registry.url, "value.schema": "missing.avsc"}, kafka)
    with pytest.raises(ConfigError, match=r"value.schema=missing.avsc: there is no such file"):
        schema_text(missing.value)


def test_what_confluents_client_registered_is_found_and_the_other_way_round(registry: EmbeddedRegistry) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    schema_id = client.register_schema("orders-value", ConfluentSchema(ONE.text, "AVRO"))
    found = resolved(registry.url)
    assert found.schema_id == schema_id and found.guid is not None
    assert client.get_schema_by_guid(found.guid).schema_str == ONE.text
    other = resolved(registry.url, REGISTER, {"value.subject.name.strategy": "RecordNameStrategy"}, topic=None)
    assert other.subject == "shop.Order"
    assert client.get_latest_version("shop.Order").schema_id == other.schema_id == schema_id


@pytest.mark.parametrize("normalizes", [True, False])
def test_a_registry_normalizes_what_it_is_given_if_the_option_says_so(
    registry: EmbeddedRegistry, normalizes: bool
) -> None:
    resolved(registry.url, REGISTER, {"normalize.schemas": str(normalizes).lower()})
    query = "?normalize=true" if normalizes else ""
    assert registry.requests() == [("POST", f"/subjects/orders-value/versions{query}")]


def test_a_guid_that_the_framing_needs_is_asked_for_where_a_registration_does_not_tell_it(
    registry: EmbeddedRegistry,
) -> None:
    """Old registries answer with the id alone."""
    registry.inject(RegistryFault(path="/subjects/orders-value/versions", times=2, body=b'{"id": 1}'))
    given = {**REGISTER, "schema.rules": "ignore"}
    assert resolved(registry.url, given).guid is None
    assert resolved(registry.url, given, {"value.schema.framing": "header"}).guid is not None


def test_a_context_is_a_registry_of_its_own(registry: EmbeddedRegistry) -> None:
    resolved(registry.url, REGISTER, schema=TWO)
    found = resolved(registry.url, REGISTER, {"schema.registry.context": "eu"})
    assert (found.subject, found.schema_id) == (":.eu:orders-value", 1)
    by_id = {"schema.registry.context": "eu", "value.schema.id": "1"}
    for subject in ({}, {"value.subject.name": "orders-value"}):
        assert resolved(registry.url, by_id, subject, schema=None).schema == ONE
    assert resolved(registry.url, {"value.schema.id": "1"}, schema=None).schema == TWO


def test_clients_of_options_that_are_used_no_more_are_not_kept(registry: EmbeddedRegistry) -> None:
    for number in range(3 * CLIENTS_MAX):
        resolved(registry.url, REGISTER, {"schema.registry.bearer.auth.token": f"token-{number}"})
    gc.collect()
    assert sum(isinstance(each, RegistryClient) for each in gc.get_objects()) <= CLIENTS_MAX


# ---- what a new process remembers ------------------------------------------------------------------------------------


def forgotten() -> None:
    """Like a process that has just started."""
    registry_client.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry_memory, "_folders", [lambda: str(tmp_path / "application")])
    return tmp_path / "application"


@pytest.mark.parametrize("choice", [REGISTER, LATEST])
def test_a_new_process_goes_on_while_the_registry_is_down(
    registry: EmbeddedRegistry, folder: Path, choice: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    resolved(registry.url, REGISTER)
    user = {"schema.registry.basic.auth.user.info": f"me:{PASSWORD}"}
    schema = ONE if choice == REGISTER else None
    first = resolved(registry.url, choice, user, schema=schema)
    forgotten()
    registry.stop()
    assert resolved(registry.url, choice, user, schema=schema) == first
    assert "did not answer: Connection refused; the schema is the one of an earlier answer" in caplog.text
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert texts and not any(PASSWORD in text for text in texts)
    assert PASSWORD not in caplog.text
    # Another request has no remembered answer.
    assert isinstance(
        refusal(registry.url, choice, user, {"value.subject.name": "other"}, schema=schema), TransportError
    )


def test_a_new_process_asks_while_the_registry_is_there(registry: EmbeddedRegistry, folder: Path) -> None:
    resolved(registry.url, REGISTER)
    assert resolved(registry.url, LATEST, schema=None).version == 1
    registry.do(lambda core: core.store.levels.update({"": "NONE"}))
    resolved(registry.url, REGISTER, schema=TWO)
    forgotten()
    assert resolved(registry.url, LATEST, schema=None).version == 2
    # A refusal is not replaced by a remembered answer.
    forgotten()
    registry.do(lambda core: core.denied_subjects.add("orders-value"))
    assert isinstance(refusal(registry.url, LATEST, schema=None), AuthorizationError)


def test_a_registry_that_is_not_needed_is_waited_for_once(registry: EmbeddedRegistry, folder: Path) -> None:
    first = resolved(registry.url, REGISTER)
    forgotten()
    asked = len(registry.requests())
    registry.inject(RegistryFault(status=503, times=100))
    assert resolved(registry.url, REGISTER) == first
    assert len(registry.requests()) == asked + 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema":{"kind":"X","text":"","references":[]}}']
)
def test_a_file_that_is_none_of_ours_is_as_if_it_were_not_there(
    registry: EmbeddedRegistry, folder: Path, text: str
) -> None:
    resolved(registry.url, REGISTER)
    for path in folder.rglob("*"):
        if path.is_file():
            path.write_text(text)
    forgotten()
    registry.stop()
    assert isinstance(refusal(registry.url, REGISTER), TransportError)


# ---- down, slow, and several addresses -------------------------------------------------------------------------------


def test_a_registry_that_is_down_is_named(registry: EmbeddedRegistry) -> None:
    registry.stop()
    error = refusal(registry.url, {"schema.registry.basic.auth.user.info": f"me:{PASSWORD}"})
    assert isinstance(error, TransportError)
    assert f"the schema registry {registry.url} did not answer: Connection refused" in str(error)
    assert error.name == "PKS-7006"


def test_a_name_that_is_no_host_is_named() -> None:
    error = refusal("http://registry.invalid:8081", {"schema.registry.max.retries": "0"})
    assert isinstance(error, TransportError) and "http://registry.invalid:8081 did not answer" in str(error)


def test_the_next_address_is_asked_and_then_asked_first(registry: EmbeddedRegistry) -> None:
    urls = f"http://127.0.0.1:{free_port()},{registry.url}"
    settings = registry_settings(
        {"schema.registry.url": urls, **QUICK}, parse_producer_options({"bootstrap.servers": "b:1"})
    )
    assert settings.registry is not None
    assert resolved(urls, REGISTER).schema_id == 1
    assert len(registry.requests()) == 1


def test_the_next_address_is_asked_when_one_is_in_trouble(registry: EmbeddedRegistry) -> None:
    with EmbeddedRegistry() as sick:
        sick.inject(RegistryFault(status=503, times=100))
        resolved(f"{sick.url},{registry.url}", REGISTER)
        assert (len(sick.requests()), len(registry.requests())) == (1, 1)
        # Every address would repeat a final refusal, so no other one is asked.
        before = len(sick.requests())
        refusal(f"{registry.url},{sick.url}", {"value.schema.id": "77"}, schema=None)
        assert len(sick.requests()) == before


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_trouble_that_passes_is_waited_out(registry: EmbeddedRegistry, status: int) -> None:
    registry.inject(
        RegistryFault(status=status, times=3, body=b'{"error_code":50001,"message":"error in the backend"}')
    )
    assert resolved(registry.url, REGISTER).schema_id == 1
    assert len(registry.requests()) == 4


@pytest.mark.parametrize("status", [429, 500])
def test_trouble_that_stays_is_told_after_all_tries(registry: EmbeddedRegistry, status: int) -> None:
    registry.inject(RegistryFault(status=status, times=100, body=b'{"error_code":50001,"message":"in the backend"}'))
    error = refusal(registry.url, REGISTER)
    assert isinstance(error, TransportError) and "answered 50001 (in the backend), again and again" in str(error)
    assert len(registry.requests()) == 4
    assert registry.do(lambda core: core.store.snapshot()) == {}


def recorded_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the clock of that module only: threads of other tests' fixtures sleep as well."""
    waits: list[float] = []
    clock = SimpleNamespace(sleep=waits.append, monotonic=time.monotonic)
    monkeypatch.setattr("kafka_sink.spark.formats.schema_registry.time", clock)
    return waits


@pytest.mark.parametrize("unclear", ["soon", "\u00b2", "-1", "9999999999"])
def test_retry_after_is_obeyed_up_to_the_longest_wait(
    unclear: str, registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = recorded_waits(monkeypatch)
    for seconds in ("7", "100000", unclear):
        registry.inject(RegistryFault(status=429, headers={"Retry-After": seconds}))
    wait = {"schema.registry.retries.wait.ms": "1000", "schema.registry.retries.max.wait.ms": "20000"}
    assert resolved(registry.url, REGISTER, wait).schema_id == 1
    assert waits[:2] == [7.0, 20.0] and 3.2 <= waits[2] <= 4.0


def test_a_registry_that_says_nothing_is_given_up(registry: EmbeddedRegistry) -> None:
    registry.inject(RegistryFault(delay_s=30, times=100))
    slow = {"schema.registry.http.read.timeout.ms": "100", "schema.registry.max.retries": "1"}
    error = refusal(registry.url, slow, REGISTER)
    assert isinstance(error, TransportError) and f"{registry.url} did not answer: timed out" in str(error)
    assert len(registry.requests()) == 2


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_registry_that_accepts_no_connection_is_given_up_after_the_time_for_connecting(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts_ms: list[tuple[int, int]] = []
    ask = web.ask

    def noting(*given: Any, **named: Any) -> web.HttpAnswer:
        timeouts_ms.append(named["timeouts_ms"])
        return ask(*given, **named)

    monkeypatch.setattr(web, "ask", noting)
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = listener.getsockname()[1]
        for _ in range(3):  # the queue is full, and the next one waits
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with suppress(BlockingIOError):
                waiting.connect(("127.0.0.1", port))
        limits = {"schema.registry.http.connect.timeout.ms": "200", "schema.registry.http.read.timeout.ms": "3600000"}
        error = refusal(f"{scheme}://127.0.0.1:{port}", limits, {"schema.registry.max.retries": "0"})
        assert isinstance(error, TransportError) and timeouts_ms == [(200, 3_600_000)]


def test_a_registry_that_answers_a_byte_at_a_time_is_given_up(registry: EmbeddedRegistry) -> None:
    registry.inject(RegistryFault(status=200, body=b'{"id": ' + b" " * 100_000, drip_s=0.02))
    slow = {"schema.registry.http.read.timeout.ms": "300", "schema.registry.max.retries": "0"}
    error = refusal(registry.url, slow, REGISTER)
    assert isinstance(error, TransportError) and "timed out" in str(error)


@pytest.mark.parametrize("part", hostile_peer.web_drips)
def test_an_answer_that_never_ends_is_given_up_wherever_it_is(part: str) -> None:
    slow = {"schema.registry.http.read.timeout.ms": "300", "schema.registry.max.retries": "0"}
    with HostilePeer(hostile_peer.web_drips[part]) as peer:
        error = refusal(f"http://{peer.address}", slow, REGISTER)
    assert isinstance(error, TransportError) and ("timed out" in str(error) or "answered 503" in str(error))


# ---- invalid answers -------------------------------------------------------------------------------------------------


def test_an_answer_that_breaks_off_is_asked_for_again(registry: EmbeddedRegistry) -> None:
    registry.inject(RegistryFault(cut=True))
    assert resolved(registry.url, REGISTER).schema_id == 1
    registry.inject(RegistryFault(cut=True, times=100))
    error = refusal(registry.url, {"value.schema.version": "1"}, schema=None)
    assert isinstance(error, TransportError) and "the answer broke off" in str(error)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html>please log in</html>", "text/html"),
        (b"", "application/json"),
        (b"[1, 2]", "application/json"),
        (b"{" * 500_000, "application/json"),
        (b"[" * 500_000, "application/json"),
        (b'{"id": "one"}', "application/vnd.schemaregistry.v1+json"),
        (b'{"id": 1' + b"0" * 5000 + b"}", "application/json"),
        (b"\x00\xff\xfe" * 1000, "application/octet-stream"),
        (b'{"a": "' + b"x" * (17 * 1024 * 1024), "application/json"),
    ],
    ids=["page", "empty", "list", "deep-object", "deep-list", "wrong-type", "long-number", "binary", "huge"],
)
def test_what_is_no_registry_is_told_so(registry: EmbeddedRegistry, body: bytes, content_type: str) -> None:
    registry.inject(RegistryFault(status=200, body=body, headers={"Content-Type": content_type}, times=100))
    for choice in (REGISTER, LATEST, {}):
        error = refusal(registry.url, choice)
        assert isinstance(error, RemoteProtocolError), error
        assert registry.url in str(error) and len(str(error)) < 500


def test_a_redirect_is_not_followed(registry: EmbeddedRegistry) -> None:
    with EmbeddedRegistry(users={"me": PASSWORD}) as elsewhere:
        registry.inject(RegistryFault(status=302, headers={"Location": f"{elsewhere.url}/subjects"}, times=100))
        user = {"schema.registry.basic.auth.user.info": f"me:{PASSWORD}"}
        error = refusal(registry.url, user, LATEST)
        assert isinstance(error, ConfigError) and "redirects are not followed" in str(error)
        assert elsewhere.requests() == []


def test_what_speaks_no_http_is_told_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            with suppress(OSError):
                while True:
                    accepted, _ = listener.accept()
                    with accepted:
                        accepted.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")

        threading.Thread(target=talk, daemon=True).start()
        error = refusal(f"http://127.0.0.1:{listener.getsockname()[1]}", {"schema.registry.max.retries": "0"})
    assert isinstance(error, TransportError)


# ---- an incompatible change ------------------------------------------------------------------------------------------


def test_an_incompatible_change_is_refused_and_nothing_is_registered(registry: EmbeddedRegistry) -> None:
    resolved(registry.url, REGISTER)
    before = registry.do(lambda core: core.store.snapshot())
    error = refusal(registry.url, REGISTER, schema=TWO)
    assert isinstance(error, ConfigError) and "READER_FIELD_MISSING_DEFAULT_VALUE" in str(error)
    assert registry.do(lambda core: core.store.snapshot()) == before


# ---- logins ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> Iterator[EmbeddedRegistry]:
    with EmbeddedRegistry(users={"me": PASSWORD, "ümlaut": "pässword"}, tokens={"token-1"}) as registry:
        yield registry


def test_user_and_password(guarded: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_USER_INFO", f"me:{PASSWORD}")
    for user_info in (f"me:{PASSWORD}", "${env:REGISTRY_USER_INFO}", "ümlaut:pässword"):
        for name in ("schema.registry.basic.auth.user.info", "basic.auth.user.info"):
            assert resolved(guarded.url, REGISTER, {name: user_info}).schema_id == 1


def test_wrong_credentials_are_tried_once_and_not_repeated_in_the_text(guarded: EmbeddedRegistry) -> None:
    for given in (
        {},
        {"basic.auth.user.info": f"other:{PASSWORD}"},
        {"bearer.auth.token": PASSWORD},
        {"bearer.auth.token": "${env:NOT_THERE}"},
    ):
        before = len(guarded.requests())
        error = refusal(guarded.url, REGISTER, given)
        assert isinstance(error, (AuthenticationError, ConfigError))
        assert len(guarded.requests()) <= before + 1


@pytest.mark.parametrize("given", [{"basic.auth.user.info": f"me:{PASSWORD}"}, {"bearer.auth.token": PASSWORD}])
def test_a_registry_that_repeats_what_it_was_sent_does_not_get_it_into_a_text(given: dict[str, str]) -> None:
    with EmbeddedRegistry() as echo:
        pair = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
        body = json.dumps({"error_code": 422, "message": f"got Basic {pair} and Bearer {PASSWORD}"}).encode()
        echo.inject(RegistryFault(status=422, body=body, times=100))
        error = refusal(echo.url, REGISTER, given)
        assert (pair if "basic.auth.user.info" in given else PASSWORD) not in str(error) and "[hidden]" in str(error)


@pytest.mark.parametrize("password", ['say "x"', "back\\slash", "schön", "a/b?c", "a\tb"])
@pytest.mark.parametrize("spell", [json.dumps, lambda said: json.dumps(said, ensure_ascii=False).replace("/", "\\/")])
def test_nor_does_one_that_repeats_it_as_json_spells_it(password: str, spell: Any) -> None:
    with EmbeddedRegistry() as echo:
        body = spell({"error_code": 422, "message": f"got {password}."}).encode()
        echo.inject(RegistryFault(status=422, body=body, times=100))
        error = refusal(echo.url, REGISTER, {"basic.auth.user.info": f"me:{password}"})
        assert password not in str(error) and password.replace("\t", " ") not in str(error)
        assert "got [hidden]." in str(error)


def test_nor_does_one_that_writes_letters_by_their_numbers() -> None:
    """As Gson does with those that HTML knows."""
    pair = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    assert pair.endswith("=")
    with EmbeddedRegistry() as echo:
        message = f"Authorization: Basic {pair}".replace("=", r"\u003d").replace("a", r"\u0061")
        body = f'{{"error_code": 401, "message": "{message}"}}'.encode()
        echo.inject(RegistryFault(status=401, body=body, times=100))
        error = refusal(echo.url, REGISTER, {"basic.auth.user.info": f"me:{PASSWORD}"})
        assert pair.rstrip("=") not in str(error) and "Basic [hidden]" in str(error)


def test_options_show_no_secret() -> None:
    kafka = parse_producer_options({"bootstrap.servers": "b:1"})
    for given in (
        {"basic.auth.user.info": f"me:{PASSWORD}"},
        {"bearer.auth.token": PASSWORD},
        {"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "me",
         "bearer.auth.client.secret": PASSWORD, "bearer.auth.issuer.endpoint.url": "https://issuer.example.org/token"},
        {"schema.registry.ssl.truststore.password": PASSWORD, "schema.registry.ssl.truststore.location": "x.p12"},
    ):  # fmt: skip
        settings = registry_settings({"schema.registry.url": "https://registry", **given}, kafka)
        assert PASSWORD not in repr(settings)


def test_a_static_token(guarded: EmbeddedRegistry) -> None:
    given = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "token-1"}
    assert resolved(guarded.url, REGISTER, given).schema_id == 1


def my_token() -> str:
    return "token-of-mine"


def test_tokens_of_an_endpoint_and_of_a_function(guarded: EmbeddedRegistry) -> None:
    with TokenServer() as tokens:
        token = tokens.token()
        guarded.do(lambda core: core.tokens.update({token, "token-of-mine"}))
        tokens.answers = [(200, {}, json.dumps({"access_token": token}).encode())] * 3
        endpoint = {
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.issuer.endpoint.url": tokens.url,
            "bearer.auth.client.id": "orders",
            "bearer.auth.client.secret": PASSWORD,
            "bearer.auth.scope": "schemas",
        }
        assert resolved(guarded.url, REGISTER, endpoint).schema_id == 1
        assert len(tokens.requests) == 1 and "scope=schemas" in tokens.requests[0][1]
        tokens.answers = [(401, {}, b'{"error":"invalid_client"}')]
        error = refusal(guarded.url, REGISTER, endpoint, {"bearer.auth.client.id": "other"})
        assert isinstance(error, AuthenticationError) and "invalid_client" in str(error)
    own = {"bearer.auth.credentials.source": "CUSTOM", "bearer.auth.token.provider": f"{__name__}:my_token"}
    assert resolved(guarded.url, REGISTER, own).schema_id == 1


TODAY = {"day": "monday"}


def token_of_the_day() -> str:
    return f"token-of-{TODAY['day']}"


def test_a_function_is_asked_again_for_a_token_that_does_not_say_its_end(
    guarded: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would mend a process that lives longer than its first token."""
    monkeypatch.setattr("kafka_sink.kafka.auth.token.SHARED_S", 0.2)
    own = {"bearer.auth.credentials.source": "CUSTOM", "bearer.auth.token.provider": f"{__name__}:token_of_the_day"}
    guarded.do(lambda core: core.tokens.add(token_of_the_day()))
    assert resolved(guarded.url, REGISTER, own).schema_id == 1
    guarded.do(lambda core: core.tokens.remove(token_of_the_day()))
    monkeypatch.setitem(TODAY, "day", "tuesday")
    guarded.do(lambda core: core.tokens.add(token_of_the_day()))
    time.sleep(0.3)
    assert resolved(guarded.url, REGISTER, own, topic="payments").schema_id == 1


def inherited(url: str, kafka: dict[str, str], source: dict[str, str]) -> ResolvedSchema:
    producer = parse_producer_options({"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", **kafka})
    settings = registry_settings({"schema.registry.url": url, **QUICK, **REGISTER, **source}, producer)
    return resolve(settings.registry, settings.value, ONE, topic="orders", record_name=None)


def test_credentials_of_the_connection_to_kafka(guarded: EmbeddedRegistry) -> None:
    basic = {"basic.auth.credentials.source": "SASL_INHERIT"}
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": PASSWORD}
    assert inherited(guarded.url, plain, basic).schema_id == 1
    module = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{PASSWORD}";'
    assert inherited(guarded.url, {"sasl.mechanism": "PLAIN", "sasl.jaas.config": module}, basic).schema_id == 1
    guarded.do(lambda core: core.tokens.add("token-of-mine"))
    bearer = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": f"{__name__}:my_token"}
    source = {"bearer.auth.credentials.source": "SASL_OAUTHBEARER_INHERIT"}
    assert inherited(guarded.url, bearer, source).schema_id == 1
    with pytest.raises(ConfigError, match="needs a connection to Kafka with user and password"):
        inherited(guarded.url, bearer, basic)
    with pytest.raises(ConfigError, match=r"needs kafka.sasl.mechanism=OAUTHBEARER"):
        inherited(guarded.url, plain, source)


def test_headers_of_confluent_cloud(monkeypatch: pytest.MonkeyPatch, guarded: EmbeddedRegistry) -> None:
    seen: dict[str, str] = {}
    answer = guarded.core.answer

    def watched(method: str, target: str, headers: dict[str, str], body: bytes) -> Any:
        seen.update(headers)
        return answer(method, target, headers, body)

    monkeypatch.setattr(guarded.core, "answer", watched)
    cloud = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1"}
    resolved(guarded.url, REGISTER, {"bearer.auth.token": "token-1"}, cloud)
    assert (seen["target-sr-cluster"], seen["confluent-identity-pool-id"]) == ("lsrc-1", "pool-1")
    assert seen["content-type"] == "application/vnd.schemaregistry.v1+json"


def test_one_who_may_not_is_told_so(guarded: EmbeddedRegistry) -> None:
    guarded.do(lambda core: core.denied_subjects.add("orders-value"))
    error = refusal(guarded.url, REGISTER, {"basic.auth.user.info": f"me:{PASSWORD}"})
    assert isinstance(error, AuthorizationError) and "may not register a schema under" in str(error)


# ---- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("registry", "127.0.0.1")


def tls(issued: Issued, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.chain, issued.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.path)
    return context


def test_a_certificate_of_an_authority_that_is_named_is_taken(authority: Authority, server: Issued) -> None:
    with EmbeddedRegistry(tls=tls(server)) as registry:
        assert registry.url.startswith("https:")
        for trust in (
            {"schema.registry.ssl.truststore.location": str(authority.path)},
            {"schema.registry.ssl.ca.location": str(authority.path)},
            {"schema.registry.ssl.truststore.certificates": authority.text},
        ):
            assert resolved(registry.url, REGISTER, trust).schema_id == 1


def test_a_certificate_that_is_not_trusted_is_refused_before_anything_is_sent(server: Issued) -> None:
    with EmbeddedRegistry(tls=tls(server)) as registry:
        error = refusal(registry.url, {"basic.auth.user.info": f"me:{PASSWORD}"})
        assert isinstance(error, TransportError) and "CERTIFICATE_VERIFY_FAILED" in str(error).upper().replace(" ", "_")
        assert registry.requests() == []


def test_a_certificate_of_another_host_is_refused(authority: Authority) -> None:
    with EmbeddedRegistry(tls=tls(authority.issue("elsewhere", "other.example.org"))) as registry:
        trust = {"schema.registry.ssl.truststore.location": str(authority.path)}
        assert isinstance(refusal(registry.url, trust), TransportError)
        unchecked = {"schema.registry.ssl.endpoint.identification.algorithm": ""}
        assert resolved(registry.url, REGISTER, trust, unchecked).schema_id == 1


def test_a_certificate_of_ones_own(authority: Authority, server: Issued) -> None:
    mine = authority.issue("me", is_for_clients=True, password="key-password")
    with EmbeddedRegistry(tls=tls(server, authority)) as registry:
        trust = {"schema.registry.ssl.truststore.location": str(authority.path)}
        assert isinstance(refusal(registry.url, trust, {"schema.registry.max.retries": "0"}), TransportError)
        own = {
            "schema.registry.ssl.keystore.location": str(mine.both),
            "schema.registry.ssl.key.password": "key-password",
        }
        assert resolved(registry.url, REGISTER, trust, own).schema_id == 1


def test_http_to_https_is_told(server: Issued) -> None:
    with EmbeddedRegistry(tls=tls(server)) as registry:
        error = refusal(registry.url.replace("https", "http"), {"schema.registry.max.retries": "0"})
        assert isinstance(error, TransportError)


def test_a_key_store_that_is_missing_is_named_with_its_option(registry: EmbeddedRegistry) -> None:
    error = refusal("https://127.0.0.1:1", {"schema.registry.ssl.keystore.location": "missing.pem"})
    assert isinstance(error, ConfigError) and "ssl.keystore.location=missing.pem" in str(error)


# ---- the client itself -----------------------------------------------------------------------------------------------


def test_a_wait_grows_and_has_an_end(registry: EmbeddedRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = recorded_waits(monkeypatch)
    registry.stop()
    given = {"schema.registry.url": registry.url, "schema.registry.max.retries": "6",
             "schema.registry.retries.wait.ms": "800", "schema.registry.retries.max.wait.ms": "5000"}  # fmt: skip
    settings = registry_settings(given, parse_producer_options({"bootstrap.servers": "b:1"}))
    assert settings.registry is not None
    with pytest.raises(TransportError):
        RegistryClient(settings.registry).ask(by_version("orders-value", "latest"), 6)
    assert len(waits) == 6
    assert all(0.8 * whole <= wait <= whole for wait, whole in zip(waits, (0.8, 1.6, 3.2, 5, 5, 5), strict=True))
