"""Asks a schema registry on the driver, and caches the responses.

`resolve` is what planning calls, before every micro-batch of a stream. Responses about ids, GUIDs, numbered versions,
and a schema under its subject never change, so each is requested once per process. The latest version does change, but
is cached as well (`latest.cache.ttl.sec`, by default forever): a query continues as planned while the subject changes,
or while the registry is down. The schema of a batch is fixed in its plan, so a batch never mixes two schemas.

A refusal is not cached: a missing schema may be registered the next minute. Another process asks again; while the
registry does not answer, it uses the responses of an earlier one (registry_memory.py). So does one whose own responses
have expired.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import random
import threading
import time
from dataclasses import replace
from functools import lru_cache, partial

from kafka_sink.errors import AuthenticationError, ConfigError, TransportError
from kafka_sink.errors.table.commits import (
    REGISTRY_LOGIN,
    REGISTRY_REFUSED,
    REGISTRY_UNREACHABLE,
    SCHEMA_INVALID,
    SCHEMA_MISSING,
    SUBJECT_UNNAMED,
)
from kafka_sink.formats.registry.answer import ANSWER_BYTES_MAX, RETRIABLE, RegistryAnswer
from kafka_sink.formats.registry.framing import GLUE
from kafka_sink.formats.registry.request import ACCEPT, CONTENT_TYPE, LATEST, RegistryRequest
from kafka_sink.formats.registry.resolution import SchemaQuery, resolve_schema
from kafka_sink.formats.registry.rules import SchemaRule
from kafka_sink.formats.registry.schema import ResolvedSchema, Schema
from kafka_sink.formats.registry.subject import add_context, subject_name
from kafka_sink.kafka.auth.login import read_password
from kafka_sink.kafka.auth.renewal import Renewed
from kafka_sink.kafka.auth.token import token_source
from kafka_sink.kafka.io import web
from kafka_sink.kafka.io.tls import tls_context
from kafka_sink.options.format_names import REGISTRY
from kafka_sink.options.format_options import (
    CUSTOM,
    OAUTHBEARER,
    SASL_INHERIT,
    SASL_OAUTHBEARER_INHERIT,
    USER_INFO,
    RegistryOptions,
    SideFormat,
)
from kafka_sink.options.host.files import read_file, resolve_references
from kafka_sink.security.oauthbearer import AccessToken
from kafka_sink.spark.formats.registry_memory import recall, remember
from kafka_sink.version import VERSION

_LOGGER = logging.getLogger("kafka_sink")
HIDDEN = "[hidden]"
TIMEOUT_MS = 10_000
# Cache size: a query that makes a schema for each batch must not fill the memory.
KNOWN_MAX = 1_000
# For jobs whose options change: a token that is part of them, or another registry for each table.
CLIENTS_MAX = 16
# A schema text has at least one of these characters, a file name none.
_TEXT_MARKS = frozenset('{"[\n;')


def resolve(
    registry: RegistryOptions | None,
    chosen: SideFormat,
    schema: Schema | None,
    *,
    topic: str | None,
    record_name: str | None,
    is_derived: bool = False,
    reads_back: bool = False,
) -> ResolvedSchema:
    """The schema for keys or values: from the registry, or the cache.

    `schema`: the given one, or made from the columns (`is_derived`). None: use the registry's. `reads_back`: then, too.
    """
    subject = chosen.query.subject or _subject(registry, chosen, topic, record_name)
    side, identity = chosen.query.side, chosen.query.identity
    is_asked = registry is not None and chosen.framing != GLUE and (chosen.query.needs_rules or reads_back)
    if identity is not None and schema is not None and not is_asked:
        if isinstance(identity, str):
            return ResolvedSchema(schema, subject, guid=identity)
        return ResolvedSchema(schema, subject, schema_id=identity)
    if registry is None:
        if schema is None:
            raise ConfigError(f"no schema for the {side}: set {side}.schema or {REGISTRY}url", SCHEMA_MISSING)
        return ResolvedSchema(schema, subject)
    query = replace(chosen.query, subject=subject, schema=schema, is_derived=is_derived, reads_back=reads_back)
    return registry_client(registry, os.getpid()).resolve(query)


def find_latest_rules(
    registry: RegistryOptions, chosen: SideFormat, topic: str | None, record_name: str
) -> tuple[SchemaRule, ...]:
    """Of the newest version of the subject; none if there is no such subject, or no name for it."""
    try:
        subject = chosen.query.subject or _subject(registry, chosen, topic, record_name)
        query = SchemaQuery(chosen.query.side, subject, version=LATEST)
        return registry_client(registry, os.getpid()).resolve(query).rules or ()
    except ConfigError as error:
        if error.entry not in (REGISTRY_REFUSED, SUBJECT_UNNAMED):
            raise
        return ()


def _subject(registry: RegistryOptions | None, chosen: SideFormat, topic: str | None, record_name: str | None) -> str:
    if registry is None:
        return ""
    if chosen.query.identity is not None:
        # An id needs no subject, but each context has its own ids.
        return add_context(registry.context, "")
    return add_context(registry.context, subject_name(chosen.strategy, chosen.query.side, topic, record_name))


def schema_text(chosen: SideFormat) -> str | None:
    """The given schema, read from its file if it is one."""
    if chosen.text is None or not is_file_name(chosen.text):
        return chosen.text
    name = f"{chosen.query.side}.schema"
    try:
        return read_file(name, chosen.text).decode("utf-8-sig")  # some editors begin a file with this mark
    except UnicodeDecodeError:
        raise ConfigError(f"{name}={chosen.text} is no text in UTF-8", SCHEMA_INVALID) from None


def is_file_name(text: str) -> bool:
    return _TEXT_MARKS.isdisjoint(text)


@lru_cache(maxsize=CLIENTS_MAX)
def registry_client(options: RegistryOptions, pid: int) -> RegistryClient:
    """Per process: a forked child must not use its parent's tokens."""
    return RegistryClient(options)


class RegistryClient:
    """One registry. Threads that ask for the same at once may each send a request."""

    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._tokens = _token_source(options)
        self._lock = threading.Lock()
        self._known: dict[SchemaQuery, tuple[float, ResolvedSchema]] = {}
        # The address that answered last is tried first. Replaced, never changed.
        self._urls = list(options.url)

    def resolve(self, query: SchemaQuery) -> ResolvedSchema:
        known = self._known.get(query)
        if known is not None and (query.is_immutable or self._is_fresh(known[0])):
            return known[1]
        found = self._ask_or_recall(query, None if known is None else known[1])
        with self._lock:
            self._known[query] = time.monotonic(), _not_new(found)
            while len(self._known) > KNOWN_MAX:
                self._known.pop(next(iter(self._known)))
        return found

    def _ask_or_recall(self, query: SchemaQuery, known: ResolvedSchema | None) -> ResolvedSchema:
        """`known`: this process's own answer, which has expired."""
        before = recall(self._options.url, query) if known is None else known
        try:
            # Do not wait for a registry that is not needed.
            retries_max = self._options.max_retries if before is None else 0
            found = resolve_schema(query, partial(self.ask, retries_max=retries_max))
        except TransportError as error:
            if before is None:
                raise
            _LOGGER.warning("%s; the schema is the one of an earlier answer: %s", error, before.subject or before.guid)
            return before
        remember(self._options.url, query, _not_new(found))
        return found

    def _is_fresh(self, since_s: float) -> bool:
        life_s = self._options.latest_cache_ttl_sec
        return life_s < 0 or time.monotonic() - since_s < life_s

    def ask(self, request: RegistryRequest, retries_max: int) -> RegistryAnswer:
        """Tries every address, and all of them again after a wait, until one gives a final answer."""
        attempt = 0
        while True:
            try:
                answer = self._ask_each(request)
                if answer.status not in RETRIABLE or attempt >= retries_max:
                    return answer
                wanted_s = answer.retry_after_s
            except TransportError:
                if attempt >= retries_max:
                    raise
                wanted_s = 0.0
            longest_s = self._options.retries_max_wait_ms / 1000
            wait_s = max(self._options.retries_wait_ms / 1000 * 2**attempt * random.uniform(0.8, 1.0), wanted_s)
            time.sleep(min(wait_s, longest_s))
            attempt += 1

    def _ask_each(self, request: RegistryRequest) -> RegistryAnswer:
        """The first answer that is not a failure of that host; else the last failure."""
        trouble: TransportError | None = None
        answer: RegistryAnswer | None = None
        for url in self._urls:
            try:
                answer = self._ask_one(url, request)
            except TransportError as error:
                trouble = error
                continue
            if answer.status not in RETRIABLE:
                self._urls = [url, *(each for each in self._urls if each != url)]
                return answer
        if answer is None:
            assert trouble is not None
            raise trouble
        return answer

    def _ask_one(self, url: str, request: RegistryRequest) -> RegistryAnswer:
        login, secrets = self._login()
        source = f"the schema registry {url}"
        headers = {"Accept": ACCEPT, "User-Agent": f"pykafka-sink/{VERSION}", **login}
        if request.body is not None:
            headers["Content-Type"] = CONTENT_TYPE
        answer = web.ask(
            source,
            partial(tls_context, self._options.login),
            url + request.path,
            headers=headers,
            body=request.body,
            method=request.method,
            bytes_max=ANSWER_BYTES_MAX,
            timeouts_ms=web.login_timeouts_ms(self._options.login, TIMEOUT_MS),
            no_answer=REGISTRY_UNREACHABLE,
        )
        return RegistryAnswer(
            source,
            answer.status,
            _hide_secrets(secrets, answer),
            answer.content_type,
            _parse_seconds(answer.retry_after),
        )

    def _login(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """Headers, and the secrets that no text may contain. References are resolved each time: secrets are rotated."""
        options = self._options
        if options.credentials is None:
            return {}, ()
        if options.credentials in (USER_INFO, SASL_INHERIT):
            user, password = _user_and_password(options)
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {pair}"}, (pair, password)
        token = self._token()
        of_cloud = {
            "target-sr-cluster": options.bearer_auth_logical_cluster,
            "Confluent-Identity-Pool-Id": options.bearer_auth_identity_pool_id,
        }
        known = {header: value for header, value in of_cloud.items() if value is not None}
        return {"Authorization": f"Bearer {token}", **known}, (token,)

    def _token(self) -> str:
        if self._tokens is not None:
            token = self._tokens.current().text
        else:
            token = resolve_references(f"{REGISTRY}bearer.auth.token", self._options.bearer_auth_token or "").strip()
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise AuthenticationError(
                "the bearer token for the schema registry is empty, or contains characters that a token cannot have",
                REGISTRY_LOGIN,
            )
        return token


def _not_new(found: ResolvedSchema) -> ResolvedSchema:
    """As it will be told from now on."""
    return replace(found, earlier_version_count=0)


def _token_source(options: RegistryOptions) -> Renewed[AccessToken] | None:
    """None: there is no token, or one that is not renewed."""
    sources = {OAUTHBEARER: options.login, CUSTOM: options.login, SASL_OAUTHBEARER_INHERIT: options.kafka}
    source = sources.get(options.credentials or "")
    return None if source is None else token_source(source)


def _user_and_password(options: RegistryOptions) -> tuple[str, str]:
    if options.credentials == SASL_INHERIT:
        assert options.kafka is not None
        named = read_password(options.kafka)
        return named.get("username", ""), named.get("password", "")
    name = f"{REGISTRY}basic.auth.user.info"
    user, found, password = resolve_references(name, options.basic_auth_user_info or "").strip().partition(":")
    if not found:
        raise ConfigError(f"{name} is not valid: expected user:password")
    return user, password


def _hide_secrets(secrets: tuple[str, ...], answer: web.HttpAnswer) -> bytes:
    """A registry, or a proxy in front of it, may repeat the request in an error text."""
    if answer.is_good:
        return answer.body
    body = _respell(answer.body)
    for secret in secrets:
        for spelled in _spellings(secret):
            body = body.replace(spelled.encode(), HIDDEN.encode())
    return body


def _respell(body: bytes) -> bytes:
    """JSON has many ways to write a letter; Java's registries write `=` as `\\u003d`. In this one it can be found."""
    try:
        return json.dumps(json.loads(body)).encode()
    except (ValueError, RecursionError):
        return body


def _spellings(secret: str) -> set[str]:
    """The secret itself, and as escaped in JSON."""
    found = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]} - {""}
    return found | {each.replace("/", "\\/") for each in found}


def _parse_seconds(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) < 10 else 0.0
