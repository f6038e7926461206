"""The options of the schema registry: names, contradictions, and notices."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.formats.registry.framing import FRAMINGS, GLUE, NONE
from kafka_sink.formats.registry.resolution import SchemaQuery
from kafka_sink.formats.registry.subject import add_context, subject_name
from kafka_sink.options.format_names import BARE, REGISTRY, is_registry_option
from kafka_sink.options.format_options import RegistryOptions
from kafka_sink.options.format_table import REGISTRY_ALIASES, REGISTRY_OPTIONS
from kafka_sink.options.parse import parse_producer_options, parse_security_options
from tests.support.option_parsing import RegistrySettings, registry_settings

URL = {"schema.registry.url": "https://registry:8081"}
KAFKA = parse_producer_options({"bootstrap.servers": "b:1"})
GUID = "c99f7e42-386d-12ce-ae93-285caaaa88be"
TEXT = '"string"'


def parsed(*given: dict[str, str]) -> RegistrySettings:
    settings: dict[str, str] = {}
    for each in given:
        settings |= each
    return registry_settings(settings, KAFKA)


def registry_of(*given: dict[str, str]) -> RegistryOptions:
    found = parsed(URL, *given).registry
    assert found is not None
    return found


def refusal(*given: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        parsed(*given)
    return str(caught.value)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_every_option_and_alias_is_known_by_its_name() -> None:
    assert [name for name in (*REGISTRY_OPTIONS, *REGISTRY_ALIASES) if not is_registry_option(name)] == []
    others = ("value.format", "value.columns", "topic", "schemas", "key")
    assert [name for name in others if is_registry_option(name)] == []
    assert {name.split(".")[0] for name in BARE} == {name.split(".")[0] for name in REGISTRY_ALIASES}


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert "did you mean schema.registry.url?" in refusal({"schema.registry.uri": "http://r"})
    assert "did you mean value.schema.id?" in refusal(URL, {"value.schema.ids": "1"})


def test_an_option_and_its_alias_must_agree() -> None:
    name = "basic.auth.user.info"
    assert registry_of({name: "a:b", REGISTRY + name: "a:b"}).basic_auth_user_info == "a:b"
    said = refusal(URL, {name: "a:hunter2", REGISTRY + name: "a:hunter3"})
    assert "mean the same and have different values" in said and "hunter" not in said


def test_options_are_equal_hashable_and_survive_pickling() -> None:
    one, other = (registry_of({"basic.auth.user.info": "a:b"}) for _ in range(2))
    assert one == other and hash(one) == hash(other) and pickle.loads(pickle.dumps(one)) == one


# ---- addresses -------------------------------------------------------------------------------------------------------


def test_several_addresses_with_paths() -> None:
    found = parsed({"schema.registry.url": "https://a:8081/, http://[::1]:80/apis/ccompat/v7"}).registry
    assert found is not None and found.url == ("https://a:8081", "http://[::1]:80/apis/ccompat/v7")


def test_a_scheme_in_capitals_is_the_same_scheme() -> None:
    found = parsed({"schema.registry.url": "HTTPS://A:8081/Path", "schema.registry.ssl.truststore.location": "ca.pem"})
    assert found.registry is not None and found.registry.url == ("https://A:8081/Path",)
    assert not found.notices


@pytest.mark.parametrize(
    "url",
    ["", " , ", "registry:8081", "ftp://r", "http://", "http://r?token=hunter2", "http://r#hunter2", "http://[::1"]
    + ["https://me:hunter2", "http://r:0", "http://r/a b", "http://r/\u00fc"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    said = refusal({"schema.registry.url": url})
    assert "expected addresses that begin with http" in said and "hunter2" not in said


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    said = refusal({"schema.registry.url": "https://me:hunter2@registry"})
    assert "set schema.registry.basic.auth.user.info instead" in said and "hunter2" not in said


# ---- credentials -----------------------------------------------------------------------------------------------------

OAUTH = {
    "bearer.auth.credentials.source": "OAUTHBEARER",
    "bearer.auth.issuer.endpoint.url": "https://issuer/token",
    "bearer.auth.client.id": "me",
    "bearer.auth.client.secret": "hunter2",
}


def test_what_is_set_says_where_credentials_come_from() -> None:
    assert registry_of().credentials is None
    assert registry_of({"basic.auth.user.info": "a:b"}).credentials == "USER_INFO"
    assert registry_of({"bearer.auth.token": "t"}).credentials == "STATIC_TOKEN"
    login = registry_of(OAUTH, {"bearer.auth.scope": "s"}).login
    assert login.sasl_oauthbearer_token_endpoint_url == "https://issuer/token"
    assert (login.sasl_oauthbearer_client_credentials_client_id, login.sasl_oauthbearer_scope) == ("me", "s")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"basic.auth.user.info": "a:b", "bearer.auth.token": "t"}, "contradict each other"),
        ({"basic.auth.credentials.source": "USER_INFO"}, "belong together"),
        ({"basic.auth.credentials.source": "SASL_INHERIT", "basic.auth.user.info": "a:b"}, "belong together"),
        ({"basic.auth.user.info": "hunter2"}, "expected user:password"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "needs schema.registry.bearer.auth.token"),
        ({**OAUTH, "bearer.auth.token": "hunter2"}, "only it needs schema.registry.bearer.auth.token"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER"}, "needs schema.registry.bearer.auth.issuer.endpoint.url"),
        ({"bearer.auth.client.secret": "hunter2"}, "only it needs"),
        ({"bearer.auth.token": "hunter2", "bearer.auth.scope": "s"}, "scope is for"),
        ({"bearer.auth.credentials.source": "CUSTOM"}, "needs schema.registry.bearer.auth.token.provider"),
        ({"basic.auth.credentials.source": "URL"}, "one of USER_INFO, SASL_INHERIT"),
        ({"basic.auth.credentials.source": "SASL_INHERIT"}, "needs a connection to Kafka with user and password"),
        ({"bearer.auth.token": "hunter2", "bearer.auth.logical.cluster": "lsrc\u00e4"}, "visible characters of ASCII"),
        ({"schema.registry.ssl.truststore.type": "JKS"}, "keytool"),
        ({"schema.registry.ssl.nonsense": "x"}, "each of these options has the prefix schema.registry."),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named(given: dict[str, str], words: str) -> None:
    said = refusal(URL, given)
    assert words in said and "hunter2" not in said


@pytest.mark.parametrize("login", [{"basic.auth.user.info": "a:hunter2"}, {"bearer.auth.token": "hunter2"}, OAUTH])
def test_credentials_without_encryption_are_refused_unless_allowed_or_for_this_host(login: dict[str, str]) -> None:
    assert parsed(URL, login).notices == ()
    for urls in ("http://registry:8081", "https://registry,http://other:8081", "http://127.0.0.1.example.org:8081"):
        said = refusal({"schema.registry.url": urls}, login)
        assert "the credentials for the registry would cross the network in clear" in said and "hunter2" not in said
    allowed = {"schema.registry.url": "http://registry:8081", "schema.registry.allow.plaintext.credentials": "true"}
    for plain in (allowed, {"schema.registry.url": "http://localhost:8081,http://127.0.0.1:8082,http://[::1]:8083"}):
        assert "readable on the network" in parsed(plain, login).notices[0]


def test_what_is_without_effect_or_without_a_check_is_told() -> None:
    plain = {"schema.registry.url": "http://registry:8081"}
    assert "has no effect" in parsed(plain, {"schema.registry.ssl.truststore.location": "ca.pem"}).notices[0]
    unchecked = {"schema.registry.ssl.endpoint.identification.algorithm": ""}
    assert parsed(URL, unchecked).notices[0].startswith("schema.registry.*: the host names")


def test_what_is_only_sent_with_a_token_is_said_to_have_no_effect_without_one() -> None:
    cloud = {"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "pool-1,pool-2"}
    assert parsed(URL, OAUTH, cloud).notices == ()
    assert parsed(URL, {"basic.auth.user.info": "a:b"}, cloud).notices == (
        "schema.registry.bearer.auth.logical.cluster has no effect without a bearer token",
        "schema.registry.bearer.auth.identity.pool.id has no effect without a bearer token",
    )


# ---- which schema ----------------------------------------------------------------------------------------------------


def test_which_schema_is_chosen() -> None:
    assert parsed(URL).value.query.version is None and not parsed(URL).value.query.registers
    assert parsed(URL, {"use.latest.version": "true"}).value.query.version == "latest"
    assert parsed(URL, {"auto.register.schemas": "true"}).key.query.registers
    assert parsed(URL, {"value.schema.version": "LATEST"}).value.query.version == "latest"
    assert parsed(URL, {"value.schema.id": "7"}).value.query.identity == 7
    assert parsed(URL, {"value.schema.id": GUID.upper()}).value.query.identity == GUID


def test_what_is_said_of_one_side_counts_more_than_what_is_said_of_both() -> None:
    settings = parsed(URL, {"use.latest.version": "true", "value.schema.version": "3", "key.schema.id": "4"})
    assert (settings.value.query.version, settings.key.query.version, settings.key.query.identity) == (3, None, 4)
    settings = parsed(URL, {"auto.register.schemas": "true", "value.schema.id": "3"})
    assert (settings.value.query.registers, settings.key.query.registers) == (False, True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**URL, "auto.register.schemas": "true", "use.latest.version": "true"}, "contradict each other"),
        ({**URL, "value.schema.id": "1", "value.schema.version": "1"}, "contradict each other"),
        ({**URL, "value.schema.version": "0"}, "the number of a version, from 1, or latest"),
        ({**URL, "value.schema.id": "x"}, "whole number, or its GUID"),
        ({**URL, "value.subject.name.strategy": "MyStrategy"}, "subject.name instead"),
        ({**URL, "value.schema.framing": "xml"}, "one of prefix"),
        ({**URL, "value.schema.framing": GLUE}, "the UUID of its version"),
        ({**URL, "value.schema": TEXT, "value.schema.id": GUID}, "framing=prefix needs a number"),
        ({**URL, "value.schema": TEXT, "value.schema.id": "1", "value.schema.framing": "header"}, "needs a GUID"),
        ({"schema.registry.max.retries": "3"}, "schema.registry.max.retries is set, but schema.registry.url is not"),
        ({"auto.register.schemas": "true"}, "auto.register.schemas needs schema.registry.url"),
        ({"use.latest.version": "true"}, "use.latest.version needs schema.registry.url"),
        ({"value.schema.version": "1"}, "value.schema.version needs schema.registry.url"),
        ({"value.subject.name": "s"}, "value.subject.name needs schema.registry.url"),
        ({"key.subject.name.strategy": "RECORD"}, "key.subject.name.strategy needs schema.registry.url"),
        ({"schema.rules": "ignore"}, "schema.rules needs schema.registry.url"),
        ({"value.schema.id": "1"}, "value.schema.id needs schema.registry.url, or the text"),
        ({"value.schema": TEXT, "value.schema.framing": "prefix"}, "framing=prefix needs schema.registry.url, or"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_named(given: dict[str, str], words: str) -> None:
    assert words in refusal(given)


def test_without_a_registry_and_an_id_there_is_no_frame() -> None:
    assert parsed({"value.schema": TEXT}).value.framing == NONE
    assert parsed({"value.schema": TEXT, "value.schema.id": "7"}).value.framing == "prefix"
    assert parsed({"value.schema": TEXT, "value.schema.id": GUID, "value.schema.framing": GLUE}).value.framing == GLUE
    assert [parsed(URL, {"key.schema.framing": each}).key.framing for each in FRAMINGS if each != GLUE]


AS_IT_IS = SchemaQuery("value", "", needs_rules=True)
OF_A_KEY = replace(AS_IT_IS, side="key")


@pytest.mark.parametrize(
    ("given", "value", "key"),
    [
        ({}, AS_IT_IS, OF_A_KEY),
        ({"use.latest.version": "true"}, replace(AS_IT_IS, version="latest"), replace(OF_A_KEY, version="latest")),
        (
            {"auto.register.schemas": "true"},
            replace(AS_IT_IS, registers=True), replace(OF_A_KEY, registers=True, tells_new=True),
        ),
        (
            {"auto.register.schemas": "true", "value.schema.framing": "header", "key.schema.framing": "header"},
            replace(AS_IT_IS, registers=True, needs_guid=True), replace(OF_A_KEY, registers=True, needs_guid=True),
        ),
        (
            {"normalize.schemas": "true", "schema.rules": "ignore"},
            SchemaQuery("value", "", normalizes=True), SchemaQuery("key", "", normalizes=True),
        ),
        (
            {"use.latest.version": "true", "value.schema.id": "7", "key.schema.version": "3"},
            replace(AS_IT_IS, identity=7), replace(OF_A_KEY, version=3),
        ),
        (
            {"auto.register.schemas": "true", "value.schema.version": "3", "key.subject.name": "own"},
            replace(AS_IT_IS, version=3), replace(OF_A_KEY, subject="own", registers=True, tells_new=True),
        ),
        (
            {"schema.registry.context": "eu", "value.subject.name": "own"},
            replace(AS_IT_IS, subject=":.eu:own"), OF_A_KEY,
        ),
    ],
)  # fmt: skip
def test_what_a_registry_is_asked_is_all_that_was_chosen_and_no_more(
    given: dict[str, str], value: SchemaQuery, key: SchemaQuery
) -> None:
    settings = parsed(URL, given)
    assert (settings.value.query, settings.key.query) == (value, key)


def test_what_is_set_for_a_registry_is_what_its_client_gets() -> None:
    found = registry_of(
        {
            "schema.registry.context": "eu", "schema.registry.max.retries": "4", "schema.registry.retries.wait.ms": "5",
            "schema.registry.retries.max.wait.ms": "6", "latest.cache.ttl.sec": "7", "http.connect.timeout.ms": "8",
            "http.read.timeout.ms": "9", "bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "p",
            "schema.registry.ssl.truststore.location": "ca.pem", **OAUTH, "bearer.auth.scope": "s",
        }
    )  # fmt: skip
    assert (found.context, found.max_retries, found.retries_wait_ms, found.retries_max_wait_ms) == ("eu", 4, 5, 6)
    assert (found.latest_cache_ttl_sec, found.credentials, found.kafka) == (7, "OAUTHBEARER", None)
    assert (found.bearer_auth_logical_cluster, found.bearer_auth_identity_pool_id) == ("lsrc-1", "p")
    expected = parse_security_options(
        {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "ssl.truststore.location": "ca.pem",
            "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hunter2", "sasl.oauthbearer.scope": "s",
        }
    )[0]  # fmt: skip
    assert found.login == replace(expected, sasl_login_connect_timeout_ms=8, sasl_login_read_timeout_ms=9)
    login = registry_of({"bearer.auth.credentials.source": "CUSTOM", "bearer.auth.token.provider": "m:f"}).login
    assert login.sasl_oauthbearer_token_provider == "m:f"
    assert (login.sasl_login_connect_timeout_ms, login.sasl_login_read_timeout_ms) == (10_000, 10_000)
    assert registry_of({"basic.auth.user.info": "a:b"}).basic_auth_user_info == "a:b"
    assert registry_of({"bearer.auth.token": "t"}).bearer_auth_token == "t"


@pytest.mark.parametrize(
    ("source", "mechanism", "is_taken"),
    [
        ("basic.auth.credentials.source=SASL_INHERIT", "PLAIN", True),
        ("basic.auth.credentials.source=SASL_INHERIT", "SCRAM-SHA-512", True),
        ("basic.auth.credentials.source=SASL_INHERIT", "OAUTHBEARER", False),
        ("basic.auth.credentials.source=SASL_INHERIT", None, False),
        ("bearer.auth.credentials.source=SASL_OAUTHBEARER_INHERIT", "OAUTHBEARER", True),
        ("bearer.auth.credentials.source=SASL_OAUTHBEARER_INHERIT", "PLAIN", False),
        ("bearer.auth.credentials.source=SASL_OAUTHBEARER_INHERIT", None, False),
    ],
)
def test_credentials_of_brokers_are_taken_only_where_they_are_of_that_kind(
    source: str, mechanism: str | None, is_taken: bool
) -> None:
    own = {"sasl.username": "u", "sasl.password": "hunter2"}
    own = {"sasl.oauthbearer.token.provider": "m:f"} if mechanism == "OAUTHBEARER" else own
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, **own} if mechanism else {}
    kafka = parse_producer_options({"bootstrap.servers": "b:1", **login})
    name, _, value = source.partition("=")
    if is_taken:
        registry = registry_settings({**URL, name: value}, kafka).registry
        assert registry is not None and registry.kafka is kafka
        return
    with pytest.raises(ConfigError, match=rf"{value} needs "):
        registry_settings({**URL, name: value}, kafka)


# ---- subjects --------------------------------------------------------------------------------------------------------


def test_subjects_are_called_as_confluent_calls_them() -> None:
    for name in ("RecordNameStrategy", "io.confluent.kafka.serializers.subject.RecordNameStrategy", "RECORD", "record"):
        assert parsed(URL, {"key.subject.name.strategy": name}).key.strategy == "RecordNameStrategy"
    assert subject_name("TopicNameStrategy", "key", "orders", None) == "orders-key"
    assert subject_name("RecordNameStrategy", "value", None, "shop.Order") == "shop.Order"
    assert subject_name("TopicRecordNameStrategy", "value", "orders", "shop.Order") == "orders-shop.Order"


def test_what_a_subject_needs_is_named() -> None:
    for strategy in ("TopicNameStrategy", "TopicRecordNameStrategy"):
        with pytest.raises(ConfigError, match="needs one topic for all rows: set the option topic"):
            subject_name(strategy, "value", None, "shop.Order")
    for strategy in ("RecordNameStrategy", "TopicRecordNameStrategy"):
        with pytest.raises(ConfigError, match="needs the name of a record"):
            subject_name(strategy, "value", "orders", None)


def test_a_context_stands_in_front_of_a_subject() -> None:
    assert add_context("eu", "orders-value") == ":.eu:orders-value"
    assert add_context("eu", ":.us:orders-value") == ":.us:orders-value"
    for name in ("eu", ".eu", ":.eu:"):
        assert registry_of({"schema.registry.context": name}).context == "eu"
    assert parsed(URL, {"schema.registry.context": "eu", "value.subject.name": "s"}).value.query.subject == ":.eu:s"
