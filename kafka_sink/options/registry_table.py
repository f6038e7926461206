"""The options of the schema registry as rows: Confluent's names, and a few of this sink's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit
from uuid import UUID

from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen
from kafka_sink.options.option import Option
from kafka_sink.options.registry_names import BARE, REGISTRY, SIDES
from kafka_sink.options.registry_options import (
    CUSTOM,
    OAUTHBEARER,
    SASL_INHERIT,
    SASL_OAUTHBEARER_INHERIT,
    STATIC_TOKEN,
    USER_INFO,
)
from kafka_sink.options.values import Choice, Flag, FunctionName, Names, Rule, Text, Whole, refuse
from kafka_sink.registry.framing import FRAMINGS, PREFIX
from kafka_sink.registry.request import LATEST
from kafka_sink.registry.subject import STRATEGIES, TOPIC_NAME

_WHOLE = re.compile(r"[0-9]{1,19}")
_CONTEXT = re.compile(r"[A-Za-z0-9._\-]{1,200}")
_SUBJECT_PACKAGE = "io.confluent.kafka.serializers.subject."
# The words of the other clients for the same.
_STRATEGY_WORDS = {"TOPIC": STRATEGIES[0], "RECORD": STRATEGIES[1], "TOPIC_RECORD": STRATEGIES[2]}


@frozen
class Urls:
    """A user and password in an address would be shown wherever the address is."""

    valid: str = "addresses that begin with http:// or https://, separated by commas"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        urls = Names(self.valid).parse(name, value)
        for url in urls:
            try:
                parts = urlsplit(url)
                is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            except ValueError:
                raise ConfigError(f"{name} is not valid: expected {self.valid}") from None
            if "@" in url:
                raise ConfigError(f"{name} holds a user and password: set {REGISTRY}basic.auth.user.info instead")
            if not is_address or parts.query or parts.fragment:
                raise refuse(name, url, self.valid)
        if not urls:
            raise ConfigError(f"{name} is empty: expected {self.valid}")
        return tuple(url.rstrip("/") for url in urls)


@frozen
class Strategy:
    valid: str = f"one of {', '.join(STRATEGIES)}; for a name of your own set the option subject.name instead"

    def parse(self, name: str, value: object) -> str:
        text = value.strip().removeprefix(_SUBJECT_PACKAGE) if isinstance(value, str) else ""
        found = _STRATEGY_WORDS.get(text.upper(), text)
        if found not in STRATEGIES:
            raise refuse(name, value, self.valid)
        return found


@frozen
class Identity:
    valid: str = "the id of a schema, a whole number, or its GUID"

    def parse(self, name: str, value: object) -> int | str:
        text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        if _WHOLE.fullmatch(text):
            return int(text)
        try:
            return str(UUID(text))
        except ValueError:
            raise refuse(name, value, self.valid) from None


@frozen
class VersionOption:
    valid: str = "the number of a version, from 1, or latest"

    def parse(self, name: str, value: object) -> int | str:
        if isinstance(value, str) and value.strip().lower() == LATEST:
            return LATEST
        try:
            return Whole(1).parse(name, value)
        except ConfigError:
            raise refuse(name, value, self.valid) from None


@frozen
class ContextOption:
    valid: str = "the name of a context: letters, digits, dots, underscores and hyphens"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        text = text.removeprefix(":").removesuffix(":").removeprefix(".")
        if not _CONTEXT.fullmatch(text):
            raise refuse(name, value, self.valid)
        return text


def _row(name: str, default: object, rule: Rule, meaning: str, *, kind: str = "STRING", own: bool = False) -> Option:
    return Option(
        name=name, kind=kind, default=default, rule=rule, meaning=meaning,
        origin="this sink" if own else "Confluent", field="-",
    )  # fmt: skip


def _text(name: str, meaning: str, *, kind: str = "STRING", own: bool = False) -> Option:
    return _row(name, None, Text(empty_allowed=False), meaning, kind=kind, own=own)


_CONNECTION = (
    _row(f"{REGISTRY}url", None, Urls(), "Addresses of the schema registry, tried one after the other. It is asked on "
         "the driver, while a write is planned; executors never ask it.", kind="LIST"),
    _row(f"{REGISTRY}context", None, ContextOption(), "The context of all subjects that do not name one themselves.",
         own=True),
    _row(f"{REGISTRY}http.connect.timeout.ms", 10_000, Whole(1), "Longest time to connect.", kind="INT"),
    _row(f"{REGISTRY}http.read.timeout.ms", 10_000, Whole(1), "Longest wait for an answer.", kind="INT"),
    _row(f"{REGISTRY}max.retries", 3, Whole(0, 100), "How often all addresses are tried again, when none answered, or "
         "with 408, 429, 500, 502, 503 or 504.", kind="INT"),
    _row(f"{REGISTRY}retries.wait.ms", 1_000, Whole(0), "First wait between two tries; it doubles each time, and an "
         "answer's Retry-After may ask for more.", kind="INT"),
    _row(f"{REGISTRY}retries.max.wait.ms", 20_000, Whole(0), "Longest such wait.", kind="INT"),
    _row(f"{REGISTRY}latest.cache.ttl.sec", -1, Whole(0, besides=-1), "How long a planning process goes by what it was "
         "told to be the latest version; -1: as long as it lives. All else that a registry says never changes.",
         kind="INT"),
)  # fmt: skip

_LOGIN = (
    _row(f"{REGISTRY}basic.auth.credentials.source", None, Choice((USER_INFO, SASL_INHERIT)), "USER_INFO: those of "
         "basic.auth.user.info, which is also what it means when only that is set. SASL_INHERIT: user and password of "
         "the connection to Kafka."),
    _text(f"{REGISTRY}basic.auth.user.info", "user:password, or API key:secret.", kind="PASSWORD"),
    _row(f"{REGISTRY}bearer.auth.credentials.source", None,
         Choice((STATIC_TOKEN, OAUTHBEARER, SASL_OAUTHBEARER_INHERIT, CUSTOM)), "STATIC_TOKEN: bearer.auth.token. "
         "OAUTHBEARER: tokens of bearer.auth.issuer.endpoint.url. SASL_OAUTHBEARER_INHERIT: those of the connection "
         "to Kafka. CUSTOM: those of bearer.auth.token.provider."),
    _text(f"{REGISTRY}bearer.auth.token", "A token that is good for as long as the query plans batches.",
          kind="PASSWORD"),
    _text(f"{REGISTRY}bearer.auth.issuer.endpoint.url", "Where tokens are got with client id and secret. https, or "
          "http for an address of this host."),
    _text(f"{REGISTRY}bearer.auth.client.id", "OAUTHBEARER: client id."),
    _text(f"{REGISTRY}bearer.auth.client.secret", "OAUTHBEARER: its secret.", kind="PASSWORD"),
    _text(f"{REGISTRY}bearer.auth.scope", "OAUTHBEARER: scope to ask for."),
    _row(f"{REGISTRY}bearer.auth.token.provider", None, FunctionName(), "CUSTOM: a function without arguments that "
         "returns the token as text, called on the driver.", own=True),
    _text(f"{REGISTRY}bearer.auth.logical.cluster", "Confluent Cloud: id of the registry's cluster, sent as the header "
          "target-sr-cluster."),
    _text(f"{REGISTRY}bearer.auth.identity.pool.id", "Confluent Cloud: id of the identity pool, sent as the header "
          "Confluent-Identity-Pool-Id."),
)  # fmt: skip

_CHOICE = (
    _row("auto.register.schemas", False, Flag(), "Register the schema under its subject if it is not there. One that "
         "is not compatible is refused by the registry before any task runs.", kind="BOOLEAN"),
    _row("use.latest.version", False, Flag(), "Write by the latest version of the subject; columns are matched to it "
         "by name.", kind="BOOLEAN"),
    _row("normalize.schemas", False, Flag(), "Let the registry look at schemas without regard to their spelling.",
         kind="BOOLEAN"),
)  # fmt: skip


def _rows_of(side: str) -> tuple[Option, ...]:
    return (
        _text(f"{side}.schema", f"The schema of the {side}: its text, or the name of a file that holds it, found as "
              "other files are.", own=True),
        _row(f"{side}.schema.id", None, Identity(), "The id or GUID of a registered schema. Together with "
             f"{side}.schema nobody is asked.", own=True),
        _row(f"{side}.schema.version", None, VersionOption(), "Write by this version of the subject.", own=True),
        _row(f"{side}.subject.name.strategy", TOPIC_NAME, Strategy(), "How the subject is called: by the topic, the "
             "record, or both."),
        _text(f"{side}.subject.name", "The subject itself, in place of a strategy; :.context:subject names one in a "
              "context.", own=True),
        _row(f"{side}.schema.framing", PREFIX, Choice(FRAMINGS), "How a reader finds the schema: docs/schemas.md.",
             own=True),
    )  # fmt: skip


REGISTRY_OPTIONS: Mapping[str, Option] = {
    row.name: row for row in (*_CONNECTION, *_LOGIN, *_CHOICE, *(row for side in SIDES for row in _rows_of(side)))
}
# Confluent's clients take these with the prefix and without.
REGISTRY_ALIASES: Mapping[str, str] = {
    name.removeprefix(REGISTRY): name
    for name in REGISTRY_OPTIONS
    if name.startswith(REGISTRY) and name.removeprefix(REGISTRY).startswith(BARE)
}
