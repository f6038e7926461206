"""The requests that find the schema of a write, and their responses.

Pure: the caller passes the function that sends a request and returns the response.

    id or GUID is given             one request by id, also if the text is given: for its rules
    version or latest               one request by version
    auto.register.schemas           one request that registers: the registry first looks for the same schema, and checks
                                    compatibility in the same step, so there is no race
        of keys that hold the id    one request that looks the schema up; if it is missing, one that registers it, and
                                    one for the versions of the subject, because a new id moves keys
    otherwise                       one request that looks the schema up under its subject
    a schema derived from columns   before the three above: one for the latest version, which is used if it differs in
                                    nothing but in allowing more nulls

There are more for schemas that one of Avro or Protobuf refers to, one each; by id, for a GUID or rules that are needed
but were not in the response (old registries answer a registration with the id alone), and for the text that a registry
makes of descriptors; and to explain why a schema is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    KafkaSinkError,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.errors.table.commits import (
    NOT_A_REGISTRY,
    REGISTRY_LOGIN,
    REGISTRY_REFUSED,
    REGISTRY_UNREACHABLE,
    SCHEMA_MISSING,
)
from kafka_sink.formats.registry import request as ask
from kafka_sink.formats.registry.answer import (
    RETRIABLE,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    RegistryAnswer,
    count_versions,
    parse_compatibility,
    parse_refusal,
    parse_registered,
)
from kafka_sink.formats.registry.nullability import allow_nulls_of_both
from kafka_sink.formats.registry.request import RegistryRequest
from kafka_sink.formats.registry.schema import JSON, ResolvedSchema, Schema
from kafka_sink.formats.registry.subject import add_context_of
from kafka_sink.frozen import frozen

# Limits the requests if a registry returns ever new references.
DEPENDENCIES_MAX = 500

Send = Callable[[RegistryRequest], RegistryAnswer]


@frozen
class SchemaQuery:
    """The query made from the options. `schema` was given as text or derived from the columns.

    `identity` is an id, a GUID, or None; `version` a number, LATEST, or None. `needs_guid`: by the framing. `side` is
    key or value, for option names in errors. `needs_rules`: the write must know the schema's rules. `reads_back`: the
    registry's text is needed although one was given, because readers count its messages. `tells_new`: the write must
    know if the schema was registered beside earlier ones. `is_derived`: `schema` was made from columns, so where it
    allows null may change from batch to batch.
    """

    side: str
    subject: str
    schema: Schema | None = None
    identity: int | str | None = None
    version: int | str | None = None
    registers: bool = False
    normalizes: bool = False
    needs_guid: bool = False
    needs_rules: bool = False
    reads_back: bool = False
    tells_new: bool = False
    is_derived: bool = False

    @property
    def is_immutable(self) -> bool:
        """Ids and numbered versions never change; the latest version does."""
        return self.version != ask.LATEST


def resolve_schema(query: SchemaQuery, send: Send) -> ResolvedSchema:
    """Returns the result or raises an error for the user."""
    found = _complete(_find(query, send), query, send)
    found = replace(found, subject=found.subject or query.subject)
    if query.identity is not None and query.schema is not None and not query.reads_back:
        return replace(found, schema=query.schema)
    if found.schema.kind == JSON:
        return found  # what it refers to is left to readers that validate
    return replace(found, dependencies=_get_dependencies(found.schema, query, send))


def _complete(found: ResolvedSchema, query: SchemaQuery, send: Send) -> ResolvedSchema:
    """With what an answer to a registration or a look-up may lack."""
    lacks_guid = query.needs_guid and found.guid is None
    lacks_rules = query.needs_rules and found.rules is None
    lacks_text = query.reads_back and found.schema is query.schema
    if not (lacks_guid or lacks_rules or lacks_text):
        return found
    if found.schema_id is not None:
        stored = _ask(send, ask.by_id(found.schema_id, query.subject), query)
    elif found.guid is not None:
        stored = _ask(send, ask.by_guid(found.guid), query)
    else:
        return found
    schema = stored.schema if lacks_text else found.schema
    return replace(found, schema=schema, guid=found.guid or stored.guid, rules=stored.rules)


def _find(query: SchemaQuery, send: Send) -> ResolvedSchema:
    identity, schema = query.identity, query.schema
    if isinstance(identity, int):
        return replace(_ask(send, ask.by_id(identity, query.subject), query), schema_id=identity)
    if isinstance(identity, str):
        return replace(_ask(send, ask.by_guid(identity), query), guid=identity)
    if query.version is not None:
        return _ask(send, ask.by_version(query.subject, query.version), query)
    if schema is None:
        raise ConfigError(
            f"no schema for the {query.side}: set {query.side}.schema, {query.side}.schema.id or "
            "use.latest.version=true",
            SCHEMA_MISSING,
        )
    if query.is_derived:
        return _find_derived(query, schema, send)
    return _find_or_register(query, schema, send) if query.registers else _look_up(query, schema, send)


def _find_derived(query: SchemaQuery, schema: Schema, send: Send) -> ResolvedSchema:
    """With the latest version, if that only allows more nulls: a batch that happens to be stricter goes on with the
    schema and the id of those before it. What is registered allows the nulls of both."""
    request = ask.by_version(query.subject, ask.LATEST)
    answer = send(request)
    if answer.status in RETRIABLE:
        raise _refusal_error(answer, query, request)
    latest = parse_registered(answer) if answer.is_good else None
    wide = None if latest is None else allow_nulls_of_both(latest.schema, schema)
    if latest is not None and wide == latest.schema:
        return latest
    if query.registers:
        return _find_or_register(query, wide or schema, send)
    return _look_up(query, schema, send, wide)


def _find_or_register(query: SchemaQuery, schema: Schema, send: Send) -> ResolvedSchema:
    if not query.tells_new:
        return _register(query, schema, send)
    known = ask.look_up(query.subject, schema, normalize=query.normalizes)
    if (answer := send(known)).is_good:
        return _read(answer, known, query, schema)
    found = _register(query, schema, send)
    return replace(found, earlier_version_count=_count_earlier_versions(query, send))


def _count_earlier_versions(query: SchemaQuery, send: Send) -> int:
    """Only for a warning, so a failure of this request is ignored. Without an answer it is given, perhaps in vain."""
    try:
        answer = send(ask.versions_of(query.subject))
    except TransportError:
        return 1
    return max(0, count_versions(answer) - 1)


def _register(query: SchemaQuery, schema: Schema, send: Send) -> ResolvedSchema:
    return _ask(send, ask.register(query.subject, schema, normalize=query.normalizes), query, schema)


def _ask(send: Send, request: RegistryRequest, query: SchemaQuery, known: Schema | None = None) -> ResolvedSchema:
    return _read(send(request), request, query, known)


def _read(answer: RegistryAnswer, request: RegistryRequest, query: SchemaQuery, known: Schema | None) -> ResolvedSchema:
    """`known`: the schema that was sent. Rows are written with it: the registry's may differ only in formatting."""
    if not answer.is_good:
        raise _refusal_error(answer, query, request)
    found = parse_registered(answer, known)
    if known is not None and found.schema_id is None and found.guid is None:
        raise RemoteProtocolError(f"{answer.source} answered without an id: is it a schema registry?", NOT_A_REGISTRY)
    return found


def _look_up(query: SchemaQuery, schema: Schema, send: Send, wide: Schema | None = None) -> ResolvedSchema:
    """`wide` is what would be registered, if that is another one."""
    request = ask.look_up(query.subject, schema, normalize=query.normalizes)
    answer = send(request)
    code = parse_refusal(answer)[0] if answer.status == 404 else 0
    if code not in (SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND, 404):
        return _read(answer, request, query, schema)
    way_out = (
        f"Register it there, or set auto.register.schemas=true, or write by what is there: use.latest.version=true or "
        f"{query.side}.schema.id"
    )
    if code != SCHEMA_NOT_FOUND:
        raise ConfigError(f"{answer.source} has no subject {query.subject!r}. {way_out}", REGISTRY_REFUSED)
    reasons = _describe_compatibility(query, wide or schema, send)
    raise ConfigError(
        f"{answer.source}: the schema is not registered under {query.subject!r}{reasons}. {way_out}",
        REGISTRY_REFUSED,
    )


def _describe_compatibility(query: SchemaQuery, schema: Schema, send: Send) -> str:
    """Whether it could be registered: only for an error text, so a failure of this request is ignored."""
    try:
        answer = send(ask.check_compatibility(query.subject, schema, normalize=query.normalizes))
        is_compatible, reasons = parse_compatibility(answer)
    except (TransportError, RemoteProtocolError):
        return ""
    if is_compatible:
        return ", and is compatible with what is"
    return ", and is not compatible with what is: " + ("; ".join(reasons) or "the registry gives no reason")


# ---- referenced schemas ----------------------------------------------------------------------------------------------


# A subject with its context, and a version.
_Place = tuple[str, int]


def _get_dependencies(schema: Schema, query: SchemaQuery, send: Send) -> tuple[tuple[str, str], ...]:
    """Names and texts, each before those that it refers to. A cycle is not reported here: parsing the texts does.

    Depth first in listed order, without recursion, so that a hostile registry cannot exhaust the stack; each version is
    requested once.
    """
    asked: dict[_Place, Schema] = {}
    places: dict[str, _Place] = {}
    # Those after which all that they refer to is known.
    complete: dict[str, str] = {}
    work = _list_references(query.subject, schema)
    while work:
        name, place, is_complete = work.pop()
        if is_complete:
            complete.setdefault(name, asked[place].text)
            continue
        work.append((name, place, True))
        if place not in asked:
            asked[place] = _ask_referenced(place, query, send, len(asked))
            work += _list_references(place[0], asked[place])
        first = places.setdefault(name, place)
        if asked[first].text != asked[place].text:
            raise _two_texts_error(name, first, place, query)
    return tuple(reversed(complete.items()))


def _list_references(parent: str, schema: Schema) -> list[tuple[str, _Place, bool]]:
    """To be taken from the end. A subject without a context is in that of `parent`, which refers to it."""
    return [
        (each.name, (add_context_of(parent, each.subject), each.version), False) for each in reversed(schema.references)
    ]


def _ask_referenced(place: _Place, query: SchemaQuery, send: Send, asked_count: int) -> Schema:
    if asked_count >= DEPENDENCIES_MAX:
        raise ConfigError(f"{_title(query)} refers to more than {DEPENDENCIES_MAX} others", REGISTRY_REFUSED)
    # Errors are about the referenced schema.
    referenced = SchemaQuery(query.side, subject=place[0], version=place[1])
    return _ask(send, ask.by_version(*place), referenced).schema


def _two_texts_error(name: str, first: _Place, other: _Place, query: SchemaQuery) -> ConfigError:
    """Confluent's clients for Java take the first that they meet, the one for Python the last: none suits all."""
    places = " and ".join(f"version {version} of {subject!r}" for subject, version in (first, other))
    return ConfigError(
        f"{_title(query)} refers to two schemas by the name {name!r}: {places}. Their texts differ, and clients differ "
        "in which of them they take, so readers could read other values than were written. Nothing was written. "
        "Register it so that all references by this name lead to one text",
        REGISTRY_REFUSED,
    )


def _title(query: SchemaQuery) -> str:
    """An id needs no subject."""
    number = "" if query.identity is None else f" {query.identity}"
    return f"the schema{number}" + (f" of {query.subject!r}" if query.subject else "")


# ---- refusals --------------------------------------------------------------------------------------------------------


def _refusal_error(answer: RegistryAnswer, query: SchemaQuery, request: RegistryRequest) -> KafkaSinkError:
    code, message = parse_refusal(answer)
    text = f"{answer.source} answered {code}" + (f" ({message})" if message else "")
    if answer.status == 401:
        return AuthenticationError(
            f"{text}: check schema.registry.basic.auth.user.info or the bearer token", REGISTRY_LOGIN
        )
    if answer.status == 403:
        is_register = request.path.partition("?")[0].endswith("/versions")
        action = "register a schema under" if is_register else "read"
        return AuthorizationError(f"{text}: the user may not {action} subject {query.subject!r}", REGISTRY_LOGIN)
    if answer.status in RETRIABLE:
        return TransportError(f"{text}, again and again", REGISTRY_UNREACHABLE)
    if 300 <= answer.status < 400:
        return ConfigError(
            f"{text}: redirects are not followed, set schema.registry.url to the target", REGISTRY_REFUSED
        )
    return ConfigError(f"{text}: {_describe_refusal(answer, code, query)}", REGISTRY_REFUSED)


def _advice_on_nulls(query: SchemaQuery) -> str:
    if not query.is_derived:
        return ""
    return (
        f". If they differ only in where null is allowed: Spark decides that anew in each micro-batch, so give the "
        f"schema with {query.side}.schema, or set use.latest.version=true"
    )


def _describe_refusal(answer: RegistryAnswer, code: int, query: SchemaQuery) -> str:
    if answer.status == 409:
        return (
            f"the schema is not compatible with those registered under {query.subject!r}. Nothing was written. "
            "Change the columns so that it is, or write under another subject" + _advice_on_nulls(query)
        )
    if answer.status == 404:
        if query.identity is not None:
            return f"there is no schema {query.identity}; is it {query.side}.schema.id of another registry?"
        if query.version is not None and code not in (SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND):
            return f"there is no version {query.version} of {query.subject!r}"
        return f"there is no subject {query.subject!r}; is schema.registry.url that of the registry itself?"
    if answer.status == 422:
        return f"it takes no such schema, version or subject ({query.subject!r})"
    return f"this was not expected for {query.subject!r}"
