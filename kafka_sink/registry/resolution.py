"""The requests that find the schema of a write, and their responses.

A generator: it yields a request, is sent the response, and returns the result or raises an error for the user.

    id or GUID is given             one request by id; none if the text is given as well
    version or latest               one request by version
    auto.register.schemas           one request that registers: the registry first looks for the same schema, and checks
                                    compatibility in the same step, so there is no race
    otherwise                       one request that looks the schema up under its subject

There are more for referenced schemas, one each; for a GUID that the framing needs but the response did not contain; and
to explain why a schema is missing.
"""

from __future__ import annotations

from collections.abc import Generator

from kafka_sink.error_table.commits import (
    NOT_A_REGISTRY,
    REGISTRY_LOGIN,
    REGISTRY_REFUSED,
    REGISTRY_UNREACHABLE,
    SCHEMA_MISSING,
)
from kafka_sink.errors import AuthenticationError, AuthorizationError, ConfigError, RemoteProtocolError, TransportError
from kafka_sink.frozen import frozen
from kafka_sink.registry import request as ask
from kafka_sink.registry.answer import (
    RETRIABLE,
    SCHEMA_NOT_FOUND,
    SUBJECT_NOT_FOUND,
    Refusal,
    RegistryAnswer,
    parse_compatibility,
    parse_refusal,
    parse_registered,
)
from kafka_sink.registry.request import RegistryRequest
from kafka_sink.registry.schema import Dependency, Registered, ResolvedSchema, Schema
from kafka_sink.registry.subject import add_context_of

# Limits the requests if a registry returns ever new references.
DEPENDENCIES_MAX = 500

Steps = Generator[RegistryRequest, RegistryAnswer, ResolvedSchema]


@frozen
class SchemaQuery:
    """The query made from the options. `schema` was given as text or derived from the columns.

    `identity` is an id, a GUID, or None; `version` a number, LATEST, or None. `needs_guid`: by the framing. `side` is
    key or value, for option names in errors.
    """

    side: str
    subject: str
    schema: Schema | None = None
    identity: int | str | None = None
    version: int | str | None = None
    registers: bool = False
    normalizes: bool = False
    needs_guid: bool = False

    @property
    def is_immutable(self) -> bool:
        """Ids and numbered versions never change; the latest version does."""
        return self.version != ask.LATEST


def resolve_schema(query: SchemaQuery) -> Steps:
    registered = yield from _find(query)
    if query.needs_guid and registered.guid is None and registered.schema_id is not None:
        by_id = yield from _get(ask.by_id(registered.schema_id, query.subject), query)
        registered = Registered(
            registered.schema, registered.subject, registered.version, registered.schema_id, by_id.guid
        )
    dependencies = yield from _get_dependencies(registered.schema, query)
    return ResolvedSchema(
        registered.schema,
        registered.subject or query.subject,
        registered.version,
        registered.schema_id,
        registered.guid,
        dependencies,
    )


def _find(query: SchemaQuery) -> Generator[RegistryRequest, RegistryAnswer, Registered]:
    identity, schema = query.identity, query.schema
    if isinstance(identity, int):
        told = yield from _get(ask.by_id(identity, query.subject), query)
        return Registered(told.schema, told.subject, told.version, identity, told.guid)
    if isinstance(identity, str):
        told = yield from _get(ask.by_guid(identity), query)
        return Registered(told.schema, told.subject, told.version, told.schema_id, identity)
    if query.version is not None:
        return (yield from _get(ask.by_version(query.subject, query.version), query))
    if schema is None:
        raise ConfigError(
            f"no schema for the {query.side}: set {query.side}.schema, {query.side}.schema.id or "
            "use.latest.version=true",
            SCHEMA_MISSING,
        )
    if query.registers:
        return (yield from _register(query, schema))
    return (yield from _look_up(query, schema))


def _get(request: RegistryRequest, query: SchemaQuery) -> Generator[RegistryRequest, RegistryAnswer, Registered]:
    answer = yield request
    if not answer.is_good:
        raise _refusal_error(answer, query, request)
    return parse_registered(answer)


def _register(query: SchemaQuery, schema: Schema) -> Generator[RegistryRequest, RegistryAnswer, Registered]:
    request = ask.register(query.subject, schema, normalize=query.normalizes)
    answer = yield request
    if not answer.is_good:
        raise _refusal_error(answer, query, request)
    return _require_id(parse_registered(answer, known=schema), answer)


def _look_up(query: SchemaQuery, schema: Schema) -> Generator[RegistryRequest, RegistryAnswer, Registered]:
    request = ask.look_up(query.subject, schema, normalize=query.normalizes)
    answer = yield request
    if answer.is_good:
        # Rows are written with the requested schema: the registry's may differ only in formatting.
        return _require_id(parse_registered(answer, known=schema), answer)
    refusal = parse_refusal(answer)
    if answer.status != 404 or refusal.code not in (SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND, 404):
        raise _refusal_error(answer, query, request)
    way_out = (
        f"Register it there, or set auto.register.schemas=true, or write by what is there: use.latest.version=true or "
        f"{query.side}.schema.id"
    )
    if refusal.code != SCHEMA_NOT_FOUND:
        raise ConfigError(f"{answer.source} has no subject {query.subject!r}. {way_out}", REGISTRY_REFUSED)
    reasons = yield from _describe_compatibility(query, schema)
    raise ConfigError(
        f"{answer.source}: the schema is not registered under {query.subject!r}{reasons}. {way_out}",
        REGISTRY_REFUSED,
    )


def _describe_compatibility(query: SchemaQuery, schema: Schema) -> Generator[RegistryRequest, RegistryAnswer, str]:
    """Whether it could be registered: only for an error text, so a failure of this request is ignored."""
    answer = yield ask.check_compatibility(query.subject, schema, normalize=query.normalizes)
    if not answer.is_good:
        return ""
    try:
        is_compatible, reasons = parse_compatibility(answer)
    except RemoteProtocolError:
        return ""
    if is_compatible:
        return ", and is compatible with what is"
    return ", and is not compatible with what is: " + ("; ".join(reasons) or "the registry gives no reason")


def _require_id(found: Registered, answer: RegistryAnswer) -> Registered:
    if found.schema_id is None and found.guid is None:
        raise RemoteProtocolError(f"{answer.source} answered without an id: is it a schema registry?", NOT_A_REGISTRY)
    return found


# ---- referenced schemas ----------------------------------------------------------------------------------------------


def _get_dependencies(
    schema: Schema, query: SchemaQuery
) -> Generator[RegistryRequest, RegistryAnswer, tuple[Dependency, ...]]:
    """Depth first without recursion, so that a hostile registry cannot exhaust the stack; each version is requested
    once. A cycle is not reported here: parsing the texts does."""
    asked: dict[tuple[str, int], Schema] = {}
    ordered: dict[str, Schema] = {}
    # A reference is visited twice: to be requested, and, after everything below it, to be appended.
    work = [(each, False) for each in reversed(schema.references)]
    while work:
        reference, is_done = work.pop()
        where = (add_context_of(query.subject, reference.subject), reference.version)
        if is_done or where in asked:
            ordered.setdefault(reference.name, asked[where])
        else:
            if len(asked) >= DEPENDENCIES_MAX:
                raise ConfigError(
                    f"the schema of {query.subject!r} refers to more than {DEPENDENCIES_MAX} others",
                    REGISTRY_REFUSED,
                )
            # Errors are about the referenced schema.
            referenced = SchemaQuery(query.side, subject=where[0], version=where[1])
            found = yield from _get(ask.by_version(*where), referenced)
            asked[where] = found.schema
            work.append((reference, True))
            work.extend((each, False) for each in reversed(found.schema.references))
    return tuple(Dependency(name, text) for name, text in ordered.items())


# ---- refusals --------------------------------------------------------------------------------------------------------


def _refusal_error(
    answer: RegistryAnswer, query: SchemaQuery, request: RegistryRequest
) -> AuthenticationError | AuthorizationError | ConfigError | TransportError:
    refusal = parse_refusal(answer)
    said = f"{answer.source} answered {refusal.code}" + (f" ({refusal.message})" if refusal.message else "")
    if answer.status == 401:
        return AuthenticationError(
            f"{said}: check schema.registry.basic.auth.user.info or the bearer token", REGISTRY_LOGIN
        )
    if answer.status == 403:
        return AuthorizationError(
            f"{said}: the user may not {_describe_action(request)} subject {query.subject!r}", REGISTRY_LOGIN
        )
    if answer.status in RETRIABLE:
        return TransportError(f"{said}, again and again", REGISTRY_UNREACHABLE)
    if 300 <= answer.status < 400:
        return ConfigError(
            f"{said}: redirects are not followed, set schema.registry.url to the target", REGISTRY_REFUSED
        )
    return ConfigError(f"{said}: {_describe_refusal(answer, refusal, query)}", REGISTRY_REFUSED)


def _describe_action(request: RegistryRequest) -> str:
    return "register a schema under" if request.path.partition("?")[0].endswith("/versions") else "read"


def _describe_refusal(answer: RegistryAnswer, refusal: Refusal, query: SchemaQuery) -> str:
    if answer.status == 409:
        return (
            f"the schema is not compatible with those registered under {query.subject!r}. Nothing was written. "
            "Change the columns so that it is, or write under another subject"
        )
    if answer.status == 404:
        if query.identity is not None:
            return f"there is no schema {query.identity}; is it {query.side}.schema.id of another registry?"
        if query.version is not None and refusal.code not in (SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND):
            return f"there is no version {query.version} of {query.subject!r}"
        return f"there is no subject {query.subject!r}; is schema.registry.url that of the registry itself?"
    if answer.status == 422:
        return f"it takes no such schema, version or subject ({query.subject!r})"
    return f"this was not expected for {query.subject!r}"
