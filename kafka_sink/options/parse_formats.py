"""The options of formats, schemas and the registry -> `FormatOptions`.

TLS and token endpoints are parsed by the producer's rules: `schema.registry.ssl.truststore.location` is its
`ssl.truststore.location`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import SCHEMA_MISSING
from kafka_sink.errors.table.writes import CREDENTIALS_IN_CLEAR, OPTION_UNKNOWN, OPTIONS_CONTRADICT
from kafka_sink.formats.registry.framing import BY_GUID, GLUE, NONE
from kafka_sink.formats.registry.request import LATEST
from kafka_sink.formats.registry.resolution import SchemaQuery
from kafka_sink.formats.registry.subject import add_context
from kafka_sink.options.format_names import (
    EVERY_COLUMN,
    FORMAT_ALIASES,
    JSON_SCHEMA,
    PROTOBUF,
    REGISTRY,
    SIDES,
    SSL,
    WITH_SCHEMA,
)
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
from kafka_sink.options.format_table import FORMAT_OPTIONS, REGISTRY_ALIASES, REGISTRY_OPTIONS
from kafka_sink.options.parse import OptionProblems, parse_for_edge, select_fields, suggest_name
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.values import contradiction_error, missing_error, two_values_error
from kafka_sink.security.mechanisms import WITH_PASSWORD
from kafka_sink.security.this_host import is_url_of_this_host

_OPTIONS = {**FORMAT_OPTIONS, **REGISTRY_OPTIONS}
_ALIASES = {**FORMAT_ALIASES, **REGISTRY_ALIASES}
_BASIC, _BEARER = f"{REGISTRY}basic.auth.", f"{REGISTRY}bearer.auth."
# Options of each token source; all but the scope are required.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    STATIC_TOKEN: ("token",),
    OAUTHBEARER: ("issuer.endpoint.url", "client.id", "client.secret"),
    CUSTOM: ("token.provider",),
    SASL_OAUTHBEARER_INHERIT: (),
}
_OF_TOKENS = {"issuer.endpoint.url": "token.endpoint.url", "client.id": "client.credentials.client.id",
              "client.secret": "client.credentials.client.secret", "scope": "scope",
              "token.provider": "token.provider"}  # fmt: skip


def parse_format_options(settings: Mapping[str, str], kafka: ProducerOptions) -> FormatOptions:
    """`settings`: those for which `is_format_option` is true. `kafka`: options of the Kafka connection."""
    problems = OptionProblems()
    values, named, of_tls = _parse_values(settings, problems)
    problems.raise_any()
    if values["auto.register.schemas"] and values["use.latest.version"]:
        problems.found.append(contradiction_error("auto.register.schemas", "use.latest.version"))
    problems.attempt(_fill_credentials_source, values)
    for side in SIDES:
        problems.attempt(_check_identity, side, values)
    problems.raise_any()
    registry: RegistryOptions | None = None
    notices: tuple[str, ...] = ()
    if values[f"{REGISTRY}url"] is None:
        problems.attempt(_check_without_registry, values, named)
    else:
        registry, notices = problems.attempt(_make_registry_options, values, of_tls, kafka) or (None, ())
    for side in SIDES:
        problems.attempt(_check_side, side, values, named)
    problems.raise_any()
    if registry is not None and not any(values[f"{side}.format"] in WITH_SCHEMA for side in SIDES):
        raise missing_error(
            f"{REGISTRY}url is set, but neither value.format nor key.format is one of {', '.join(sorted(WITH_SCHEMA))}"
        )
    value, key = (_make_side_format(side, values) for side in SIDES)
    return FormatOptions(registry, value, key, notices)


def _parse_values(
    settings: Mapping[str, str], problems: OptionProblems
) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """Values by canonical name; the names that were given; and the options for TLS."""
    values: dict[str, Any] = {name: option.default for name, option in _OPTIONS.items()}
    given: dict[str, str] = {}
    of_tls: dict[str, str] = {}
    for name, text in settings.items():
        canonical = _ALIASES.get(name, name)
        if given.setdefault(canonical, text) != text:
            problems.found.append(two_values_error(name, canonical))
        elif canonical in _OPTIONS:
            values[canonical] = problems.attempt(_OPTIONS[canonical].rule.parse, canonical, text)
        elif canonical.startswith(SSL):
            of_tls[canonical.removeprefix(REGISTRY)] = text
        else:
            hint = suggest_name(name, REGISTRY_OPTIONS)
            problems.found.append(ConfigError(f"{name!r} is not an option of this sink{hint}", OPTION_UNKNOWN))
    return values, list(given), of_tls


def _check_side(side: str, values: Mapping[str, Any], given: list[str]) -> None:
    chosen = values[f"{side}.format"]
    columns = values.get(f"{side}.columns")
    if columns is not None and chosen is None:
        raise missing_error(f"{side}.columns needs {side}.format: it says what is made of the columns")
    if columns is not None and EVERY_COLUMN in columns and len(columns) > 1:
        raise ConfigError(f"{side}.columns is either {EVERY_COLUMN} or a list of names", OPTIONS_CONTRADICT)
    if columns is not None and (not columns or len(set(columns)) < len(columns)):
        raise ConfigError(f"{side}.columns names no column, or one twice", OPTIONS_CONTRADICT)
    if chosen not in WITH_SCHEMA:
        named = [name for name in given if name.startswith((f"{side}.schema", f"{side}.subject"))]
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


def _fill_credentials_source(values: dict[str, Any]) -> None:
    """Fills in the source of credentials if other options imply it."""
    basic, bearer = f"{_BASIC}credentials.source", f"{_BEARER}credentials.source"
    user_info = values[f"{_BASIC}user.info"]
    if user_info is not None and values[basic] is None:
        values[basic] = USER_INFO
    if values[f"{_BEARER}token"] is not None and values[bearer] is None:
        values[bearer] = STATIC_TOKEN
    if values[basic] is not None and values[bearer] is not None:
        raise contradiction_error(f"{_BASIC}*", f"{_BEARER}*")
    if (values[basic] == USER_INFO) != (user_info is not None):
        raise missing_error(f"{basic}={USER_INFO} and {_BASIC}user.info belong together")
    if user_info is not None and ":" not in user_info and "${" not in user_info:
        raise ConfigError(f"{_BASIC}user.info is not valid: expected user:password")
    chosen = values[bearer]
    for source, names in _NEEDS.items():
        for each in names:
            if (values[_BEARER + each] is None) == (source == chosen):
                said = "needs" if source == chosen else "is not set, and only it needs"
                raise ConfigError(f"{bearer}={source} {said} {_BEARER}{each}")
    if chosen != OAUTHBEARER and values[f"{_BEARER}scope"] is not None:
        raise ConfigError(f"{_BEARER}scope is for {bearer}={OAUTHBEARER}", OPTIONS_CONTRADICT)


def _make_registry_options(
    values: dict[str, Any], of_tls: Mapping[str, str], kafka: ProducerOptions
) -> tuple[RegistryOptions, tuple[str, ...]]:
    urls = values[f"{REGISTRY}url"]
    credentials = values[f"{_BASIC}credentials.source"] or values[f"{_BEARER}credentials.source"]
    is_encrypted = all(url.startswith("https:") for url in urls)
    login = _parse_login(values, of_tls, credentials)
    _check_inherited(credentials, kafka)
    notices = list(login.notices)
    if of_tls and not any(url.startswith("https:") for url in urls):
        notices.append(f"{SSL}* has no effect: no address of {REGISTRY}url begins with https://")
    if credentials not in _NEEDS:
        of_cloud = [f"{_BEARER}{each}" for each in ("logical.cluster", "identity.pool.id")]
        notices += [f"{name} has no effect without a bearer token" for name in of_cloud if values[name] is not None]
    if credentials is not None and not is_encrypted:
        _check_plaintext_credentials(urls, values[f"{REGISTRY}allow.plaintext.credentials"])
        notices.append(f"credentials are readable on the network: {REGISTRY}url does not begin with https://")
    options = RegistryOptions(
        **select_fields(RegistryOptions, values, REGISTRY),
        login=login,
        kafka=kafka if credentials in (SASL_INHERIT, SASL_OAUTHBEARER_INHERIT) else None,
        credentials=credentials,
    )
    return options, tuple(notices)


def _check_plaintext_credentials(urls: Sequence[str], is_allowed: bool) -> None:
    if not is_allowed and not all(url.startswith("https:") or is_url_of_this_host(url) for url in urls):
        raise ConfigError(
            f"the credentials for the registry would cross the network in clear: begin each address of {REGISTRY}url "
            f"with https://, or set {REGISTRY}allow.plaintext.credentials=true where nobody else can read the network",
            CREDENTIALS_IN_CLEAR,
        )


def _parse_login(values: dict[str, Any], of_tls: Mapping[str, str], credentials: str | None) -> ProducerOptions:
    given: dict[str, object] = {
        # Never connected to: a producer's options need a broker.
        "bootstrap.servers": "registry:443",
        "security.protocol": "SSL",
        "sasl.login.connect.timeout.ms": values[f"{REGISTRY}http.connect.timeout.ms"],
        "sasl.login.read.timeout.ms": values[f"{REGISTRY}http.read.timeout.ms"],
        **of_tls,
    }
    if credentials in (OAUTHBEARER, CUSTOM):
        given |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
        for name, of_producer in _OF_TOKENS.items():
            if values[_BEARER + name] is not None:
                given[f"sasl.oauthbearer.{of_producer}"] = values[_BEARER + name]
    login = parse_for_edge(given, lambda text: f"{text} (here each of these options has the prefix {REGISTRY})")
    notices = (each for each in login.notices if not each.startswith("sasl.login."))
    return replace(login, notices=tuple(f"{REGISTRY}*: {each}" for each in notices))


def _check_inherited(credentials: str | None, kafka: ProducerOptions) -> None:
    if credentials == SASL_INHERIT and (not kafka.has_sasl or kafka.sasl_mechanism not in WITH_PASSWORD):
        raise missing_error(
            f"{_BASIC}credentials.source={SASL_INHERIT} needs a connection to Kafka with user and password: "
            f"kafka.sasl.mechanism one of {', '.join(WITH_PASSWORD)}"
        )
    if credentials == SASL_OAUTHBEARER_INHERIT and not (kafka.has_sasl and kafka.sasl_mechanism == "OAUTHBEARER"):
        raise missing_error(
            f"{_BEARER}credentials.source={SASL_OAUTHBEARER_INHERIT} needs kafka.sasl.mechanism=OAUTHBEARER"
        )


# ---- one side --------------------------------------------------------------------------------------------------------


def _check_identity(side: str, values: Mapping[str, Any]) -> None:
    text, identity, version = (values[f"{side}.schema{part}"] for part in ("", ".id", ".version"))
    framing = values[f"{side}.schema.framing"]
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


def _check_without_registry(values: Mapping[str, Any], named: list[str]) -> None:
    for name in named:
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
        if framing in named and values[framing] != NONE and identity is None:
            raise missing_error(
                f"{framing}={values[framing]} needs {REGISTRY}url, or {side}.schema.id with {side}.schema"
            )


def _make_side_format(side: str, values: Mapping[str, Any]) -> SideFormat | None:
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
