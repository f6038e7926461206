"""Options of the formats of key and value, and of the schema registry, as rows, with Confluent's names and a few of
this sink's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

from kafka_sink.errors import ConfigError
from kafka_sink.formats.registry.framing import FRAMINGS, PREFIX
from kafka_sink.formats.registry.request import LATEST
from kafka_sink.formats.registry.subject import STRATEGIES, TOPIC_NAME
from kafka_sink.frozen import frozen
from kafka_sink.options.format_names import BARE, EVERY_COLUMN, FORMATS, REGISTRY, SIDES
from kafka_sink.options.format_options import (
    CUSTOM,
    IGNORE,
    OAUTHBEARER,
    REFUSE,
    SASL_INHERIT,
    SASL_OAUTHBEARER_INHERIT,
    STATIC_TOKEN,
    USER_INFO,
)
from kafka_sink.options.option import Option
from kafka_sink.options.values import (
    FUNCTION_NAME,
    NOT_EMPTY,
    SECRET,
    Choice,
    Converted,
    Flag,
    Names,
    Rule,
    Whole,
    parse_web_address,
    pattern,
)

_WHOLE = re.compile(r"[0-9]{1,19}")
# For headers of requests.
_VISIBLE = pattern("visible characters of ASCII", r"[!-~]+")
_CONTEXT = re.compile(r"[A-Za-z0-9._\-]{1,200}")
_SUBJECT_PACKAGE = "io.confluent.kafka.serializers.subject."
# Other clients' names for the strategies.
_STRATEGY_WORDS = {"TOPIC": STRATEGIES[0], "RECORD": STRATEGIES[1], "TOPIC_RECORD": STRATEGIES[2]}


@frozen
class Urls:
    """Refuses a user and password in an address, since addresses are logged."""

    valid: str = "addresses that begin with http:// or https://, without query, separated by commas"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        urls = Names(self.valid).parse(name, value)
        if not urls:
            raise ConfigError(f"{name} is empty: expected {self.valid}")
        if any("@" in url for url in urls):
            raise ConfigError(f"{name} holds a user and password: set {REGISTRY}basic.auth.user.info instead")
        return tuple(parse_web_address(name, url, self.valid) for url in urls)


def _strategy(text: str) -> str | None:
    text = text.removeprefix(_SUBJECT_PACKAGE)
    found = _STRATEGY_WORDS.get(text.upper(), text)
    return found if found in STRATEGIES else None


def _identity(text: str) -> int | str | None:
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        return str(UUID(text))
    except ValueError:
        return None


def _version(text: str) -> int | str | None:
    if text.lower() == LATEST:
        return LATEST
    try:
        return Whole(1).parse("", text)
    except ConfigError:
        return None


def _context(text: str) -> str | None:
    text = text.removeprefix(":").removesuffix(":").removeprefix(".")
    return text if _CONTEXT.fullmatch(text) else None


_STRATEGY = Converted(
    f"one of {', '.join(STRATEGIES)}; for a name of your own set the option subject.name instead", _strategy
)
_IDENTITY = Converted("the id of a schema, a whole number, or its GUID", _identity)
_VERSION = Converted("the number of a version, from 1, or latest", _version)
_CONTEXT_NAME = Converted("the name of a context: letters, digits, dots, underscores and hyphens", _context)


def _row(name: str, default: object, rule: Rule, meaning: str) -> Option:
    return Option(name, rule, meaning, default)


def _text(name: str, meaning: str) -> Option:
    return Option(name, NOT_EMPTY, meaning)


def _secret(name: str, meaning: str) -> Option:
    return Option(name, SECRET, meaning)


_FORMATS = (
    _row("value.format", None, Choice(FORMATS), "How values are written. avro, protobuf and json-schema: with a "
         "schema, and with the schema id for readers of the registry. json: like to_json, except for times and some "
         "numbers. string and binary: the column unchanged. Not set: a string or binary column unchanged."),
    _row("value.columns", None, Names("column names separated by commas, or *"), "The columns that form the record; "
         f"{EVERY_COLUMN}: all columns but key, value, topic, partition, headers and timestamp. Not set: the column "
         "value; without such a column, the same as *."),
    _text("value.record.name", "The name, with its namespace, of a schema that is derived from the columns (default: "
          "topLevelRecord, as in Spark). In Protobuf, the message of the schema to write (default: the first)."),
    _row("key.format", None, Choice(FORMATS), "How the column key is written; see value.format."),
    _text("key.record.name", "See value.record.name."),
)  # fmt: skip

_REGISTRY = (
    # How it is reached.
    _row(f"{REGISTRY}url", None, Urls(), "URLs of the schema registry, tried one after the other. Only the driver "
         "sends requests to it, while a write is planned; executors do not."),
    _row(f"{REGISTRY}context", None, _CONTEXT_NAME, "The context of all subjects that do not name a context."),
    _row(f"{REGISTRY}http.connect.timeout.ms", 10_000, Whole(1), "Maximum time to connect."),
    _row(f"{REGISTRY}http.read.timeout.ms", 10_000, Whole(1), "Maximum wait for a response."),
    _row(f"{REGISTRY}max.retries", 3, Whole(0, 100), "How often all URLs are tried again if none answered, or if the "
         "answer was 408, 429, 500, 502, 503 or 504."),
    _row(f"{REGISTRY}retries.wait.ms", 1_000, Whole(0), "Wait before the first retry. It doubles each time, and a "
         "Retry-After header can require more."),
    _row(f"{REGISTRY}retries.max.wait.ms", 20_000, Whole(0), "Maximum wait before a retry."),
    _row(f"{REGISTRY}latest.cache.ttl.sec", -1, Whole(0, besides=-1), "How long a planning process caches the latest "
         "version of a subject; -1: as long as the process runs. All other answers of a registry never change."),
    # Logins.
    _row(f"{REGISTRY}allow.plaintext.credentials", False, Flag(), "Allow credentials to be sent to another host over "
         "http://. false: they are refused."),
    _row(f"{REGISTRY}basic.auth.credentials.source", None, Choice((USER_INFO, SASL_INHERIT)), "USER_INFO: the "
         "credentials of basic.auth.user.info; the default if that option is set. SASL_INHERIT: user and password of "
         "the connection to Kafka."),
    _secret(f"{REGISTRY}basic.auth.user.info", "user:password, or API key:secret."),
    _row(f"{REGISTRY}bearer.auth.credentials.source", None,
         Choice((STATIC_TOKEN, OAUTHBEARER, SASL_OAUTHBEARER_INHERIT, CUSTOM)), "STATIC_TOKEN: bearer.auth.token. "
         "OAUTHBEARER: tokens from bearer.auth.issuer.endpoint.url. SASL_OAUTHBEARER_INHERIT: tokens of the connection "
         "to Kafka. CUSTOM: tokens from bearer.auth.token.provider."),
    _secret(f"{REGISTRY}bearer.auth.token", "A token that stays valid for as long as the query plans batches."),
    _text(f"{REGISTRY}bearer.auth.issuer.endpoint.url", "URL of the token endpoint for client id and secret. https, or "
          "http for an address of this host."),
    _text(f"{REGISTRY}bearer.auth.client.id", "OAUTHBEARER: client id."),
    _secret(f"{REGISTRY}bearer.auth.client.secret", "OAUTHBEARER: client secret."),
    _text(f"{REGISTRY}bearer.auth.scope", "OAUTHBEARER: scope to request."),
    _row(f"{REGISTRY}bearer.auth.token.provider", None, FUNCTION_NAME, "CUSTOM: a function without arguments that "
         "returns the token as text. It is called on the driver."),
    _row(f"{REGISTRY}bearer.auth.logical.cluster", None, _VISIBLE, "Confluent Cloud: id of the registry's cluster, "
         "sent as the header target-sr-cluster."),
    _row(f"{REGISTRY}bearer.auth.identity.pool.id", None, _VISIBLE, "Confluent Cloud: id of the identity pool, sent as "
         "the header Confluent-Identity-Pool-Id."),
    # Which schema.
    _row("auto.register.schemas", False, Flag(), "Register the schema under its subject if it is missing. The registry "
         "refuses an incompatible schema before any task runs."),
    _row("use.latest.version", False, Flag(), "Write with the latest version of the subject; columns are matched to "
         "its fields by name."),
    _row("normalize.schemas", False, Flag(), "Let the registry normalize schemas, so that their spelling does not "
         "matter."),
    _row("schema.rules", REFUSE, Choice((REFUSE, IGNORE)), "Data contracts: the sink applies no rules of a schema. "
         "refuse: a schema with active rules for writers (domain and encoding rules of the modes WRITE and WRITEREAD) "
         "is an error that names them. ignore: rows are written as they are, and the log says so once."),
)  # fmt: skip


def _rows_of(side: str) -> tuple[Option, ...]:
    return (
        _text(f"{side}.schema", f"The schema of the {side}: its text, or the name of a file that contains it. The "
              "file is searched like other files."),
        _row(f"{side}.schema.id", None, _IDENTITY, "The id or GUID of a registered schema. If "
             f"{side}.schema is also set, the registry is asked for rules only, and without a registry nobody is."),
        _row(f"{side}.schema.version", None, _VERSION, "Write with this version of the subject."),
        _row(f"{side}.subject.name.strategy", TOPIC_NAME, _STRATEGY, "How the subject is named: by the topic, the "
             "record, or both."),
        _text(f"{side}.subject.name", "The subject itself, in place of a strategy. :.context:subject is a subject in a "
              "context."),
        _row(f"{side}.schema.framing", PREFIX, Choice(FRAMINGS), "How a reader finds the schema; see docs/schemas.md."),
    )  # fmt: skip


FORMAT_OPTIONS: Mapping[str, Option] = {row.name: row for row in _FORMATS}
REGISTRY_OPTIONS: Mapping[str, Option] = {row.name: row for rows in (_REGISTRY, *map(_rows_of, SIDES)) for row in rows}
# Confluent's clients accept some with and without the prefix.
REGISTRY_ALIASES: Mapping[str, str] = {
    name.removeprefix(REGISTRY): name for name in REGISTRY_OPTIONS if name.removeprefix(REGISTRY).startswith(BARE)
}
