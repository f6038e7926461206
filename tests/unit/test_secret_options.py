"""Which options hold secrets: the rule of each option decides, and everything that hides secrets agrees with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafka_sink.options.envelope_table import ENVELOPE_OPTIONS
from kafka_sink.options.foreign_table import FOREIGN_OPTIONS
from kafka_sink.options.format_table import FORMAT_OPTIONS, REGISTRY_OPTIONS
from kafka_sink.options.secret_options import literal_secrets, secret_options
from kafka_sink.options.security_options import SECRET_NAME
from kafka_sink.options.sink_table import SINK_OPTIONS
from kafka_sink.options.table import OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
TABLES = (OPTIONS, FOREIGN_OPTIONS, FORMAT_OPTIONS, REGISTRY_OPTIONS, SINK_OPTIONS, ENVELOPE_OPTIONS)
# Names that sound like a secret and are none: a file, a switch, something that is sent in public.
PUBLIC = {
    "lineage.api.key.file", "sasl.oauthbearer.assertion.private.key.file", "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.token.provider", "sasl.aws.access.key.id", "allow.plaintext.credentials",
    "schema.registry.allow.plaintext.credentials", "schema.registry.basic.auth.credentials.source",
    "schema.registry.bearer.auth.credentials.source", "schema.registry.bearer.auth.token.provider",
    "sasl.oauthbearer.client.credentials.client.id",
}  # fmt: skip
SOUNDS_SECRET = re.compile(r"pass|secret|token|credential|private|jaas|user\.info|store\.key$|api\.key|access\.key")


def test_an_option_that_sounds_like_a_secret_has_the_rule_of_secrets() -> None:
    rows = [option for table in TABLES for option in table.values()]
    wrong = {option.name for option in rows if SOUNDS_SECRET.search(option.name) and not option.is_secret}
    assert wrong == PUBLIC


def test_every_secret_is_hidden_in_texts_of_options_and_by_the_advised_expression() -> None:
    names = list(secret_options())
    assert len(names) == len(set(names)) > 20
    (advised,) = set(re.findall(r"spark\.redaction\.regex=(\S+?)`", PAGE.read_text()))
    for name in names:
        assert SECRET_NAME.search(name), name
        assert re.search(advised, name), name
    for option in OPTIONS.values():
        assert SECRET_NAME.search(option.field) or not (option.is_secret and option.field), option.name


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required username=alice"


@pytest.mark.parametrize(
    ("name", "value", "is_literal"),
    [
        ("kafka.sasl.password", "hunter2", True),
        ("KAFKA.SASL.PASSWORD", "hunter2", True),
        ("kafka.sasl.password", "${file:/run/secrets/kafka:password}", False),
        ("kafka.sasl.password", "${vault:kafka}", True),
        ("kafka.ssl.key.pem", "a key", True),
        ("schema.registry.ssl.key.password", "hunter2", True),
        ("kafka.sasl.username", "alice", False),
        ("kafka.sasl.jaas.config", f'{MODULE} password="hunter2";', True),
        ("kafka.sasl.jaas.config", f'{MODULE} password="${{env:PASSWORD}}";', False),
        ("kafka.sasl.jaas.config", "${file:/run/secrets/kafka:jaas}", False),
        ("kafka.sasl.jaas.config", "a.Krb5LoginModule required useTicketCache=true;", False),
        ("basic.auth.user.info", "me:hunter2", True),
        ("schema.registry.basic.auth.user.info", "${env:USER}:hunter2", True),
        ("schema.registry.basic.auth.user.info", "me:${env:PASSWORD}", False),
        ("schema.registry.basic.auth.user.info", "${file:/run/secrets/registry:both}", False),
        ("topic", "hunter2", False),
    ],
)
def test_a_secret_itself_is_told_from_a_reference(name: str, value: str, is_literal: bool) -> None:
    assert literal_secrets({name: value}) == ([name] if is_literal else [])
