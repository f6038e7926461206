"""The options of formats, schemas and the registry -> `FormatOptions`.

TLS and token endpoints have the producer's options: `schema.registry.ssl.truststore.location` is its
`ssl.truststore.location`. `needs` in the rows of `format_table.py` has the simple rules over several options; the
others are functions here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import SCHEMA_MISSING
from kafka_sink.errors.table.writes import CREDENTIALS_IN_CLEAR, OPTION_UNKNOWN, OPTIONS_CONTRADICT
from kafka_sink.formats.registry.framing import BY_GUID, GLUE, IN_BYTES, NONE
from kafka_sink.formats.registry.request import LATEST
from kafka_sink.formats.registry.resolution import SchemaQuery
from kafka_sink.formats.registry.subject import add_context
from kafka_sink.options.engine import Draft, Table, check_alone, check_needs, fill, read, suggest_name
from kafka_sink.options.format_names import EVERY_COLUMN, JSON_SCHEMA, PROTOBUF, REGISTRY, SIDES, SSL, WITH_SCHEMA
from kafka_sink.options.format_options import (
    CUSTOM,
    IGNORE,
    OAUTHBEARER,
    SASL_INHERIT,
    SASL_OAUTHBEARER_INHERIT,
    STATIC_TOKEN,
    USER_INFO,
    FormatOptions,
    RegistryOptions,
    SideFormat,
)
from kafka_sink.options.format_table import ALIASES, BASIC, BEARER, FORMAT_OPTIONS, REGISTRY_OPTIONS, SOURCE, TLS_OPTION
from kafka_sink.options.option import Option
from kafka_sink.options.parse import parse_for_edge, parse_security_options
from kafka_sink.options.security_options import SecurityOptions
from kafka_sink.options.values import contradiction_error, missing_error
from kafka_sink.security.mechanisms import WITH_PASSWORD
from kafka_sink.security.reference import AS_WRITTEN, is_like_reference
from kafka_sink.security.this_host import is_url_of_this_host

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


def check_format_option(name: str, value: object) -> None:
    check_alone(_FORMATS, name, value)


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
        tells_new=side == "key" and framing in IN_BYTES and values["auto.register.schemas"],
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


def name_envelope(formats: FormatOptions, topic: str | None) -> FormatOptions:
    """Transforms of Kafka Connect know an event of Debezium by the end of its schema's name. What Avro does not allow
    in a name is replaced as Debezium does."""
    if formats.value is None:
        return formats
    parts = [
        re.sub("^(?=[0-9]|$)", "_", re.sub("[^A-Za-z0-9_]", "_", part)) for part in (topic or "changes").split(".")
    ]
    name = ".".join([*parts, "Envelope"])
    return replace(formats, value=replace(formats.value, envelope_name=name))


def _remark(name: str, value: object, _: Option) -> Iterator[str]:
    if isinstance(value, str) and is_like_reference(value):
        yield f"{name} {AS_WRITTEN}"


def _explain_unknown(name: str) -> ConfigError:
    return ConfigError(f"{name!r} is not an option of this sink{suggest_name(name, REGISTRY_OPTIONS)}", OPTION_UNKNOWN)


_OF_FORMATS = {**FORMAT_OPTIONS, **REGISTRY_OPTIONS, TLS_OPTION.name: TLS_OPTION}
_FORMATS = Table(_OF_FORMATS, _explain_unknown, ALIASES, _remark)


# ---- rules over several options -------------------------------------------------------------------------------------


def check_contradictions(draft: Draft) -> None:
    if draft.values["auto.register.schemas"] and draft.values["use.latest.version"]:
        raise contradiction_error("auto.register.schemas", "use.latest.version")


def fill_credentials_source(draft: Draft) -> None:
    """Fills in the source of credentials if other options imply it, and checks that it has what it needs."""
    values = draft.values
    basic, user_info = f"{BASIC}credentials.source", values[f"{BASIC}user.info"]
    if user_info is not None and values[basic] is None:
        values[basic] = USER_INFO
    if values[f"{BEARER}token"] is not None and values[SOURCE] is None:
        values[SOURCE] = STATIC_TOKEN
    if values[basic] is not None and values[SOURCE] is not None:
        raise contradiction_error(f"{BASIC}*", f"{BEARER}*")
    if (values[basic] == USER_INFO) != (user_info is not None):
        raise missing_error(f"{basic}={USER_INFO} and {BASIC}user.info belong together")
    if user_info is not None and ":" not in user_info and "${" not in user_info:
        raise ConfigError(f"{BASIC}user.info is not valid: expected user:password")
    chosen = (f"{SOURCE}={values[SOURCE]}",)
    for name, option in REGISTRY_OPTIONS.items():
        if option.needs and option.needs.any_of == chosen and values[name] is None and name != f"{BEARER}scope":
            raise ConfigError(f"{chosen[0]} needs {name}")


def check_identity(draft: Draft, side: str) -> None:
    text, identity, version = (draft.values[f"{side}.schema{part}"] for part in ("", ".id", ".version"))
    framing = draft.values[f"{side}.schema.framing"]
    if identity is not None and version is not None:
        raise contradiction_error(f"{side}.schema.id", f"{side}.schema.version")
    if framing == GLUE and not (isinstance(identity, str) and text is not None):
        raise missing_error(
            f"{side}.schema.framing={GLUE} needs {side}.schema and, as {side}.schema.id, the UUID of its version: AWS "
            "Glue itself is not asked"
        )
    # With the text given, too, the registry is not asked for what the framing needs.
    is_guid = isinstance(identity, str)
    if identity is not None and text is not None and framing != NONE and is_guid != (framing in BY_GUID):
        wanted = "a GUID" if framing in BY_GUID else "a number"
        raise missing_error(f"{side}.schema.framing={framing} needs {wanted} as {side}.schema.id")


def check_without_registry(draft: Draft) -> None:
    values = draft.values
    for name in draft.named:
        if name.startswith(REGISTRY):
            raise missing_error(f"{name} is set, but {REGISTRY}url is not")
        of_registry = (".subject.name", ".subject.name.strategy", ".schema.version", "schema.rules")
        if values.get(name) is True or name.endswith(of_registry):
            raise missing_error(f"{name} needs {REGISTRY}url")
    for side in SIDES:
        identity = values[f"{side}.schema.id"]
        if identity is not None and values[f"{side}.schema"] is None:
            raise missing_error(f"{side}.schema.id needs {REGISTRY}url, or the text of the schema as {side}.schema")
        framing = f"{side}.schema.framing"
        if framing in draft.named and values[framing] != NONE and identity is None:
            raise missing_error(
                f"{framing}={values[framing]} needs {REGISTRY}url, or {side}.schema.id with {side}.schema"
            )


def check_side(draft: Draft, side: str) -> None:
    values = draft.values
    chosen, columns = values[f"{side}.format"], values.get(f"{side}.columns")
    if columns is not None and EVERY_COLUMN in columns and len(columns) > 1:
        raise ConfigError(f"{side}.columns is either {EVERY_COLUMN} or a list of names", OPTIONS_CONTRADICT)
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        raise ConfigError(f"{side}.columns names no column, or one twice", OPTIONS_CONTRADICT)
    if chosen not in WITH_SCHEMA:
        named = [name for name in draft.named if name.startswith((f"{side}.schema", f"{side}.subject"))]
        if named or values[f"{side}.record.name"] is not None:
            name = named[0] if named else f"{side}.record.name"
            formats = ", ".join(sorted(WITH_SCHEMA))
            raise missing_error(f"{name} needs {side}.format to be one of {formats}, and it is {chosen or 'not set'}")
    is_named = any(values[f"{side}.schema{part}"] is not None for part in ("", ".id", ".version"))
    has_schema = is_named or values["use.latest.version"]
    if chosen == PROTOBUF and not has_schema:
        raise ConfigError(
            f"{side}.format={PROTOBUF} needs a schema, since field numbers cannot be made from columns: {side}.schema, "
            f"{side}.schema.id, {side}.schema.version or use.latest.version=true",
            SCHEMA_MISSING,
        )
    if chosen == JSON_SCHEMA and values[f"{side}.record.name"] is not None and has_schema:
        raise ConfigError(
            f"{side}.record.name is the title of a schema that is made from the columns; here one is given",
            OPTIONS_CONTRADICT,
        )


def check_inherited(credentials: str | None, kafka: SecurityOptions) -> None:
    if credentials == SASL_INHERIT and (not kafka.has_sasl or kafka.sasl_mechanism not in WITH_PASSWORD):
        raise missing_error(
            f"{BASIC}credentials.source={SASL_INHERIT} needs a connection to Kafka with user and password: "
            f"kafka.sasl.mechanism one of {', '.join(WITH_PASSWORD)}"
        )
    if credentials == SASL_OAUTHBEARER_INHERIT and not (kafka.has_sasl and kafka.sasl_mechanism == "OAUTHBEARER"):
        raise missing_error(f"{SOURCE}={SASL_OAUTHBEARER_INHERIT} needs kafka.sasl.mechanism=OAUTHBEARER")


def check_plaintext_credentials(urls: Sequence[str], is_allowed: bool) -> None:
    if not is_allowed and not all(url.startswith("https:") or is_url_of_this_host(url) for url in urls):
        raise ConfigError(
            f"the credentials for the registry would cross the network in clear: begin each address of {REGISTRY}url "
            f"with https://, or set {REGISTRY}allow.plaintext.credentials=true where nobody else can read the network",
            CREDENTIALS_IN_CLEAR,
        )
