"""Options of the formats of key and value, and of the schema registry, as rows, with Confluent's names and a few of
this sink's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from uuid import UUID

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_INVALID, OPTIONS_CONTRADICT
from kafka_sink.formats.registry.framing import FRAMINGS, PREFIX
from kafka_sink.formats.registry.request import LATEST
from kafka_sink.formats.registry.subject import STRATEGIES, TOPIC_NAME
from kafka_sink.frozen import frozen
from kafka_sink.options.format_names import BARE, EVERY_COLUMN, FORMAT_ALIASES, FORMATS, REGISTRY, SIDES, SSL
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
from kafka_sink.options.option import Alias, Chapter, Needs, Option
from kafka_sink.options.values import (
    AS_GIVEN,
    FLAG,
    FUNCTION_NAME,
    INT,
    NOT_EMPTY,
    SECRET,
    Choice,
    Converted,
    Names,
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

BASIC, BEARER = f"{REGISTRY}basic.auth.", f"{REGISTRY}bearer.auth."
SOURCE = f"{BEARER}credentials.source"


def _of_source(source: str) -> Needs:
    """For what a source of tokens needs, and no other one."""
    return Needs((f"{SOURCE}={source}",), "{needed} is not set, and only it needs {name}", OPTION_INVALID)


_FORMATS = (
    Option("value.format", Choice(FORMATS), "How values are written. avro, protobuf, json-schema: with a schema, "
           "whose id readers find in a registry. json: like to_json, except for times and some numbers. string, "
           "binary, not set: the column as it is.", example="avro"),
    Option("value.columns", Names("column names separated by commas, or *"), "The columns of the record; "
           f"{EVERY_COLUMN}: all but key, value, topic, partition, headers and timestamp. If not set: the column "
           "value, or if there is none, *.",
           needs=Needs(("value.format",), "value.columns needs value.format: it says what is made of the columns"),
           example="id,amount,currency"),
    Option("value.record.name", NOT_EMPTY, "Name and namespace of a derived schema; if not set, topLevelRecord "
           "as in Spark, or TOPIC.Envelope with envelope=debezium. In Protobuf the message to write; if not "
           "set, the first."),
    Option("key.format", Choice(FORMATS), "How the column key is written; see value.format."),
    Option("key.record.name", NOT_EMPTY, "See value.record.name."),
)  # fmt: skip

# Which schema, for key and value.
_SCHEMAS = (
    Option("auto.register.schemas", FLAG, "Register the schema if it is missing; an incompatible one is refused "
           "before any task runs.", default=False),
    Option("use.latest.version", FLAG, "Write with the latest version of the subject; columns are matched to its "
           "fields by name.", default=False),
    Option("normalize.schemas", FLAG, "Let the registry normalize schemas, so that their spelling does not matter.",
           default=False),
    Option("schema.rules", Choice((REFUSE, IGNORE)), "The sink applies no rules of a schema (data contracts). "
           "refuse: a schema with active rules for writers is an error that names them. ignore: write rows as they "
           "are; the log says so once.", default=REFUSE),
)  # fmt: skip


def _rows_of(side: str) -> tuple[Option, ...]:
    return (
        Option(f"{side}.schema", NOT_EMPTY, "The schema: its text, or a file with it."),
        Option(f"{side}.schema.id", _IDENTITY, "Id or GUID of a registered schema. With a schema of your own as "
               "well, the registry is asked for rules only."),
        Option(f"{side}.schema.version", _VERSION, "Write with this version of the subject."),
        Option(f"{side}.subject.name.strategy", _STRATEGY, "How the subject is named: by the topic, the record, or "
               "both.", default=TOPIC_NAME),
        Option(f"{side}.subject.name", NOT_EMPTY, "The subject itself, in place of a strategy; :.context:subject is "
               "one in a context."),
        Option(f"{side}.schema.framing", Choice(FRAMINGS), "How a reader finds the schema "
               "([framings](schemas.md#how-readers-find-the-schema)).",
               default=PREFIX),
    )  # fmt: skip


_REGISTRY = (
    Option(f"{REGISTRY}url", Urls(), "Addresses of the schema registry, tried in turn. Only the driver sends "
           "requests to it, before tasks run.", example="https://registry:8081"),
    Option(f"{REGISTRY}context", _CONTEXT_NAME, "The context of subjects that name none."),
    Option(f"{REGISTRY}http.connect.timeout.ms", Whole(1), "Maximum time to connect.", default=10_000),
    Option(f"{REGISTRY}http.read.timeout.ms", Whole(1), "Maximum wait for a response.", default=10_000),
    Option(f"{REGISTRY}max.retries", Whole(0, 100), "How often all addresses are tried again if none answered, or "
           "with 408, 429, 500, 502, 503 or 504.", default=3),
    Option(f"{REGISTRY}retries.wait.ms", INT, "Wait before the first retry; it doubles each time, and a Retry-After "
           "header can ask for more.", default=1_000),
    Option(f"{REGISTRY}retries.max.wait.ms", INT, "Longest such wait.", default=20_000),
    Option(f"{REGISTRY}latest.cache.ttl.sec", Whole(0, besides=-1), "How long the driver keeps the latest version "
           "of a subject; -1: as long as the process runs. Other answers never change.",
           default=-1),
    Option(f"{REGISTRY}allow.plaintext.credentials", FLAG, "true: send credentials to another host over http://.",
           default=False),
    Option(f"{BASIC}credentials.source", Choice((USER_INFO, SASL_INHERIT)), "USER_INFO: the credentials "
           "of basic.auth.user.info; the default if that option is set. SASL_INHERIT: user and password of the "
           "connection to Kafka."),
    Option(f"{BASIC}user.info", SECRET, "user:password, or API key:secret.",
           example="${env:REGISTRY_KEY}:${env:REGISTRY_SECRET}"),
    Option(SOURCE,
           Choice((STATIC_TOKEN, OAUTHBEARER, SASL_OAUTHBEARER_INHERIT, CUSTOM)), "STATIC_TOKEN: bearer.auth.token. "
           "OAUTHBEARER: tokens from bearer.auth.issuer.endpoint.url. SASL_OAUTHBEARER_INHERIT: tokens of the "
           "connection to Kafka. CUSTOM: tokens from bearer.auth.token.provider."),
    Option(f"{BEARER}token", SECRET, "A token that stays valid for as long as the query plans batches.",
           needs=_of_source(STATIC_TOKEN)),
    Option(f"{BEARER}issuer.endpoint.url", NOT_EMPTY, "URL of the token endpoint for client id and "
           "secret. https, or http for an address of this host.", needs=_of_source(OAUTHBEARER)),
    Option(f"{BEARER}client.id", NOT_EMPTY, "OAUTHBEARER: client id.", needs=_of_source(OAUTHBEARER)),
    Option(f"{BEARER}client.secret", SECRET, "OAUTHBEARER: client secret.",
           needs=_of_source(OAUTHBEARER)),
    Option(f"{BEARER}scope", NOT_EMPTY, "OAUTHBEARER: scope to request.",
           needs=Needs((f"{SOURCE}={OAUTHBEARER}",), "{name} is for {needed}", OPTIONS_CONTRADICT)),
    Option(f"{BEARER}token.provider", FUNCTION_NAME, "CUSTOM: a function as that of "
           "sasl.oauthbearer.token.provider, called on the driver.", needs=_of_source(CUSTOM)),
    Option(f"{BEARER}logical.cluster", _VISIBLE, "Confluent Cloud: id of the registry's cluster, sent as "
           "the header target-sr-cluster."),
    Option(f"{BEARER}identity.pool.id", _VISIBLE, "Confluent Cloud: id of the identity pool, sent as the "
           "header Confluent-Identity-Pool-Id."),
)  # fmt: skip

# Parsed by the producer's rules.
TLS_OPTION = Option(f"{SSL}NAME", AS_GIVEN, "Every option for TLS of a connection to Kafka, such as "
                    f"{SSL}truststore.location.", example=f"{SSL}truststore.location=/etc/registry/ca.pem")  # fmt: skip

FORMAT_CHAPTERS: Mapping[Chapter, tuple[Option, ...]] = {
    Chapter.FORMATS: (*_FORMATS, *_SCHEMAS, *_rows_of("value"), *_rows_of("key")),
    Chapter.REGISTRY: (*_REGISTRY, TLS_OPTION),
}
FORMAT_OPTIONS: Mapping[str, Option] = {row.name: row for row in _FORMATS}
REGISTRY_OPTIONS: Mapping[str, Option] = {
    row.name: row for rows in (_REGISTRY, _SCHEMAS, *map(_rows_of, SIDES)) for row in rows
}
# Confluent's clients accept some with and without the prefix.
REGISTRY_ALIASES: Mapping[str, str] = {
    name.removeprefix(REGISTRY): name for name in REGISTRY_OPTIONS if name.removeprefix(REGISTRY).startswith(BARE)
}
ALIASES: Mapping[str, Alias] = {
    **{name: Alias(name, target, "Spark") for name, target in FORMAT_ALIASES.items()},
    **{name: Alias(name, target, "Confluent") for name, target in REGISTRY_ALIASES.items()},
}
