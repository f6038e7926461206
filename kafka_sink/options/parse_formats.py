"""The options of formats, schemas and the registry -> `FormatOptions`.

TLS and token endpoints have the producer's options: `schema.registry.ssl.truststore.location` is its
`ssl.truststore.location`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_UNKNOWN
from kafka_sink.formats.registry.framing import BY_GUID, NONE
from kafka_sink.formats.registry.request import LATEST
from kafka_sink.formats.registry.resolution import SchemaQuery
from kafka_sink.formats.registry.subject import add_context
from kafka_sink.options.engine import Draft, Table, check_needs, fill, read, suggest_name
from kafka_sink.options.format_names import REGISTRY, SIDES, SSL, WITH_SCHEMA
from kafka_sink.options.format_options import (
    CUSTOM,
    IGNORE,
    OAUTHBEARER,
    SASL_INHERIT,
    SASL_OAUTHBEARER_INHERIT,
    FormatOptions,
    RegistryOptions,
    SideFormat,
)
from kafka_sink.options.format_rules import (
    check_contradictions,
    check_identity,
    check_inherited,
    check_plaintext_credentials,
    check_side,
    check_without_registry,
    fill_credentials_source,
)
from kafka_sink.options.format_table import ALIASES, BASIC, BEARER, FORMAT_OPTIONS, REGISTRY_OPTIONS, SOURCE, TLS_OPTION
from kafka_sink.options.parse import parse_for_edge, parse_security_options
from kafka_sink.options.security_options import SecurityOptions
from kafka_sink.options.values import missing_error

# The producer's options for what a token of the registry needs.
_OF_TOKENS = {
    "issuer.endpoint.url": "token.endpoint.url",
    "client.id": "client.credentials.client.id",
    "client.secret": "client.credentials.client.secret",
    "scope": "scope",
    "token.provider": "token.provider",
}


def parse_format_options(settings: Mapping[str, str], kafka: SecurityOptions) -> FormatOptions:
    """`settings`: those for which `is_format_option` is true. `kafka`: how brokers are reached, which a registry may
    inherit."""
    draft = read(_FORMATS, settings)
    draft.raise_any()
    draft.attempt(check_contradictions, draft)
    draft.attempt(fill_credentials_source, draft)
    for side in SIDES:
        draft.attempt(check_identity, draft, side)
    check_needs(REGISTRY_OPTIONS, draft)
    draft.raise_any()
    registry = None
    if draft.values[f"{REGISTRY}url"] is None:
        draft.attempt(check_without_registry, draft)
    else:
        registry = draft.attempt(_make_registry_options, draft, kafka)
    check_needs(FORMAT_OPTIONS, draft)
    for side in SIDES:
        draft.attempt(check_side, draft, side)
    draft.raise_any()
    if registry is not None and not any(draft.values[f"{side}.format"] in WITH_SCHEMA for side in SIDES):
        raise missing_error(
            f"{REGISTRY}url is set, but neither value.format nor key.format is one of {', '.join(sorted(WITH_SCHEMA))}"
        )
    value, key = (_make_side_format(draft, side) for side in SIDES)
    return FormatOptions(registry, value, key, tuple(draft.notices))


def _make_registry_options(draft: Draft, kafka: SecurityOptions) -> RegistryOptions:
    values = draft.values
    urls, of_tls = values[f"{REGISTRY}url"], values[TLS_OPTION.name]
    credentials = values[f"{BASIC}credentials.source"] or values[SOURCE]
    login = _parse_login(draft, of_tls, credentials)
    check_inherited(credentials, kafka)
    if of_tls and not any(url.startswith("https:") for url in urls):
        draft.notices.append(f"{SSL}* has no effect: no address of {REGISTRY}url begins with https://")
    if values[SOURCE] is None:
        of_cloud = [f"{BEARER}{each}" for each in ("logical.cluster", "identity.pool.id")]
        idle = [name for name in of_cloud if values[name] is not None]
        draft.notices += [f"{name} has no effect without a bearer token" for name in idle]
    if credentials is not None and not all(url.startswith("https:") for url in urls):
        check_plaintext_credentials(urls, values[f"{REGISTRY}allow.plaintext.credentials"])
        draft.notices.append(f"credentials are readable on the network: {REGISTRY}url does not begin with https://")
    return RegistryOptions(
        **fill(RegistryOptions, REGISTRY_OPTIONS, draft, "schema_registry_"),
        login=login,
        kafka=kafka if credentials in (SASL_INHERIT, SASL_OAUTHBEARER_INHERIT) else None,
        credentials=credentials,
    )


def _parse_login(draft: Draft, of_tls: Mapping[str, str], credentials: str | None) -> SecurityOptions:
    given: dict[str, object] = {f"{SSL.removeprefix(REGISTRY)}{name}": value for name, value in of_tls.items()}
    given["security.protocol"] = "SSL"
    if credentials in (OAUTHBEARER, CUSTOM):
        given |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
        of_tokens = {target: draft.values[BEARER + name] for name, target in _OF_TOKENS.items()}
        given |= {f"sasl.oauthbearer.{name}": value for name, value in of_tokens.items() if value is not None}
    login, notices = parse_for_edge(
        parse_security_options, given, lambda text: f"{text} (here each of these options has the prefix {REGISTRY})"
    )
    draft.notices += [f"{REGISTRY}*: {each}" for each in notices]
    connect_ms, read_ms = (draft.values[f"{REGISTRY}http.{each}.timeout.ms"] for each in ("connect", "read"))
    return replace(login, sasl_login_connect_timeout_ms=connect_ms, sasl_login_read_timeout_ms=read_ms)


def _make_side_format(draft: Draft, side: str) -> SideFormat | None:
    values = draft.values
    if values[f"{side}.format"] is None:
        return None
    identity, version = values[f"{side}.schema.id"], values[f"{side}.schema.version"]
    has_frame = values[f"{REGISTRY}url"] is not None or identity is not None
    framing = values[f"{side}.schema.framing"] if has_frame else NONE
    # An option of one side takes precedence over one for both.
    is_chosen = identity is not None or version is not None
    subject = values[f"{side}.subject.name"]
    query = SchemaQuery(
        side,
        subject="" if subject is None else add_context(values[f"{REGISTRY}context"], subject),
        identity=identity,
        version=LATEST if values["use.latest.version"] and not is_chosen else version,
        registers=values["auto.register.schemas"] and not is_chosen,
        normalizes=values["normalize.schemas"],
        needs_guid=framing in BY_GUID,
        needs_rules=values["schema.rules"] != IGNORE,
    )
    return SideFormat(
        format=values[f"{side}.format"],
        columns=values.get(f"{side}.columns"),
        record_name=values[f"{side}.record.name"],
        text=values[f"{side}.schema"],
        strategy=values[f"{side}.subject.name.strategy"],
        framing=framing,
        query=query,
    )


def _explain_unknown(name: str) -> ConfigError:
    return ConfigError(f"{name!r} is not an option of this sink{suggest_name(name, REGISTRY_OPTIONS)}", OPTION_UNKNOWN)


_FORMATS = Table({**FORMAT_OPTIONS, **REGISTRY_OPTIONS, TLS_OPTION.name: TLS_OPTION}, _explain_unknown, ALIASES)
