"""`parse_registry_options`: the options of registry_table.py -> `RegistryOptions`, and `SchemaOptions` for each side.

TLS and token endpoints are read by the rules that the producer has for them: `schema.registry.ssl.truststore.location`
is its `ssl.truststore.location`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_sink.error_table.writes import OPTION_MISSING, OPTION_UNKNOWN, OPTIONS_CONTRADICT
from kafka_sink.errors import ConfigError
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.options.registry_names import REGISTRY, SIDES, SSL
from kafka_sink.options.registry_options import (
    CUSTOM,
    OAUTHBEARER,
    SASL_INHERIT,
    SASL_OAUTHBEARER_INHERIT,
    STATIC_TOKEN,
    USER_INFO,
    RegistryOptions,
    RegistrySettings,
    SchemaOptions,
)
from kafka_sink.options.registry_table import REGISTRY_ALIASES, REGISTRY_OPTIONS
from kafka_sink.registry.framing import BY_GUID, GLUE, NONE
from kafka_sink.registry.request import LATEST
from kafka_sink.registry.subject import in_context

_BASIC, _BEARER = f"{REGISTRY}basic.auth.", f"{REGISTRY}bearer.auth."
_WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# What belongs to which source of tokens; all but the scope have to be there.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    STATIC_TOKEN: ("token",),
    OAUTHBEARER: ("issuer.endpoint.url", "client.id", "client.secret"),
    CUSTOM: ("token.provider",),
    SASL_OAUTHBEARER_INHERIT: (),
}
_OF_TOKENS = {"issuer.endpoint.url": "token.endpoint.url", "client.id": "client.credentials.client.id",
              "client.secret": "client.credentials.client.secret", "scope": "scope",
              "token.provider": "token.provider"}  # fmt: skip


def parse_registry_options(settings: Mapping[str, str], kafka: ProducerOptions) -> RegistrySettings:
    """`settings`: those for which `is_registry_option` says so. `kafka`: the options of the connection to Kafka."""
    values, named, of_tls = _values(settings)
    _check_login(values)
    sides = {side: _schema_options(side, values) for side in SIDES}
    if values[f"{REGISTRY}url"] is None:
        for name in named:
            if name.startswith(REGISTRY):
                raise ConfigError(f"{name} is set, but {REGISTRY}url is not", OPTION_MISSING)
        _check_without_registry(values, named, sides)
        return RegistrySettings(None, sides["value"], sides["key"])
    registry, notices = _registry_options(values, of_tls, kafka)
    return RegistrySettings(registry, sides["value"], sides["key"], notices)


def _values(settings: Mapping[str, str]) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    values: dict[str, Any] = {name: option.default for name, option in REGISTRY_OPTIONS.items()}
    given: dict[str, str] = {}
    of_tls: dict[str, str] = {}
    for name, text in settings.items():
        canonical = REGISTRY_ALIASES.get(name, name)
        if canonical in given and given[canonical] != text:
            raise ConfigError(
                f"{name} and {canonical} mean the same and have different values: keep one", OPTIONS_CONTRADICT
            )
        given[canonical] = text
        if canonical in REGISTRY_OPTIONS:
            values[canonical] = REGISTRY_OPTIONS[canonical].rule.parse(canonical, text)
        elif canonical.startswith(SSL):
            of_tls[canonical.removeprefix(REGISTRY)] = text
        else:
            raise _unknown(name)
    return values, list(given), of_tls


def _unknown(name: str) -> ConfigError:
    import difflib  # most processes meet no unknown name

    nearest = difflib.get_close_matches(name, REGISTRY_OPTIONS, 1)
    return ConfigError(
        f"{name!r} is not an option of this sink" + (f": did you mean {nearest[0]}?" if nearest else ""), OPTION_UNKNOWN
    )


def _check_login(values: dict[str, Any]) -> None:
    """Fills in where credentials come from, where what is set says so."""
    basic, bearer = f"{_BASIC}credentials.source", f"{_BEARER}credentials.source"
    user_info = values[f"{_BASIC}user.info"]
    if user_info is not None and values[basic] is None:
        values[basic] = USER_INFO
    if values[f"{_BEARER}token"] is not None and values[bearer] is None:
        values[bearer] = STATIC_TOKEN
    if values[basic] is not None and values[bearer] is not None:
        raise ConfigError(f"{_BASIC}* and {_BEARER}* contradict each other: keep one", OPTIONS_CONTRADICT)
    if (values[basic] == USER_INFO) != (user_info is not None):
        raise ConfigError(f"{basic}={USER_INFO} and {_BASIC}user.info belong together", OPTION_MISSING)
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


def _registry_options(
    values: dict[str, Any], of_tls: Mapping[str, str], kafka: ProducerOptions
) -> tuple[RegistryOptions, tuple[str, ...]]:
    urls = values[f"{REGISTRY}url"]
    credentials = values[f"{_BASIC}credentials.source"] or values[f"{_BEARER}credentials.source"]
    is_encrypted = all(url.startswith("https:") for url in urls)
    login = _login(values, of_tls, credentials)
    _check_inherited(credentials, kafka)
    notices = list(login.notices)
    if of_tls and not any(url.startswith("https:") for url in urls):
        notices.append(f"{SSL}* has no effect: no address of {REGISTRY}url begins with https://")
    if credentials is not None and not is_encrypted:
        notices.append(f"credentials are readable on the network: {REGISTRY}url does not begin with https://")
    options = RegistryOptions(
        urls=urls,
        login=login,
        kafka=kafka if credentials in (SASL_INHERIT, SASL_OAUTHBEARER_INHERIT) else None,
        context=values[f"{REGISTRY}context"],
        credentials=credentials,
        user_info=values[f"{_BASIC}user.info"],
        bearer_token=values[f"{_BEARER}token"],
        logical_cluster=values[f"{_BEARER}logical.cluster"],
        identity_pool=values[f"{_BEARER}identity.pool.id"],
        retries_max=values[f"{REGISTRY}max.retries"],
        retry_wait_ms=values[f"{REGISTRY}retries.wait.ms"],
        retry_wait_max_ms=values[f"{REGISTRY}retries.max.wait.ms"],
        latest_life_s=values[f"{REGISTRY}latest.cache.ttl.sec"],
    )
    return options, tuple(notices)


def _login(values: dict[str, Any], of_tls: Mapping[str, str], credentials: str | None) -> ProducerOptions:
    given: dict[str, object] = {
        # Nobody connects to it: a producer's options have to name a broker.
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
    try:
        login = parse_producer_options(given)
    except ConfigError as error:
        raise ConfigError(f"{error}\n(here each of these options has the prefix {REGISTRY})", error.entry) from None
    notices = (each for each in login.notices if not each.startswith("sasl.login."))
    return replace(login, notices=tuple(f"{REGISTRY}*: {each}" for each in notices))


def _check_inherited(credentials: str | None, kafka: ProducerOptions) -> None:
    if credentials == SASL_INHERIT and (not kafka.has_sasl or kafka.sasl_mechanism not in _WITH_PASSWORD):
        raise ConfigError(
            f"{_BASIC}credentials.source={SASL_INHERIT} needs a connection to Kafka with user and password: "
            f"kafka.sasl.mechanism one of {', '.join(_WITH_PASSWORD)}",
            OPTION_MISSING,
        )
    if credentials == SASL_OAUTHBEARER_INHERIT and not (kafka.has_sasl and kafka.sasl_mechanism == "OAUTHBEARER"):
        raise ConfigError(
            f"{_BEARER}credentials.source={SASL_OAUTHBEARER_INHERIT} needs kafka.sasl.mechanism=OAUTHBEARER",
            OPTION_MISSING,
        )


# ---- one side --------------------------------------------------------------------------------------------------------


def _schema_options(side: str, values: dict[str, Any]) -> SchemaOptions:
    text, identity, version = (values[f"{side}.schema{part}"] for part in ("", ".id", ".version"))
    framing = values[f"{side}.schema.framing"]
    registers, is_latest = values["auto.register.schemas"], values["use.latest.version"]
    if registers and is_latest:
        raise ConfigError(
            "auto.register.schemas and use.latest.version contradict each other: keep one", OPTIONS_CONTRADICT
        )
    if identity is not None and version is not None:
        raise ConfigError(
            f"{side}.schema.id and {side}.schema.version contradict each other: keep one", OPTIONS_CONTRADICT
        )
    if framing == GLUE and not (isinstance(identity, str) and text is not None):
        raise ConfigError(
            f"{side}.schema.framing={GLUE} needs {side}.schema and, as {side}.schema.id, the UUID of its version: AWS "
            "Glue itself is not asked",
            OPTION_MISSING,
        )
    if identity is not None and text is not None and framing != NONE:
        _check_known_identity(side, identity, framing)
    has_frame = values[f"{REGISTRY}url"] is not None or identity is not None
    # What is said of one side counts more than what is said of both.
    is_chosen = identity is not None or version is not None
    strategy = values[f"{side}.subject.name.strategy"]
    subject = values[f"{side}.subject.name"]
    if subject is not None:
        subject = in_context(values[f"{REGISTRY}context"], subject)
    return SchemaOptions(
        side=side,
        text=text,
        identity=identity,
        version=LATEST if is_latest and not is_chosen else version,
        strategy=strategy,
        subject=subject,
        framing=framing if has_frame else NONE,
        registers=registers and not is_chosen,
        normalizes=values["normalize.schemas"],
    )


def _check_known_identity(side: str, identity: int | str, framing: str) -> None:
    """With the text given, too, nobody is asked for what the way of framing needs."""
    if isinstance(identity, str) != (framing in BY_GUID):
        wanted = "a GUID" if framing in BY_GUID else "a number"
        raise ConfigError(f"{side}.schema.framing={framing} needs {wanted} as {side}.schema.id", OPTION_MISSING)


def _check_without_registry(values: dict[str, Any], named: list[str], sides: Mapping[str, SchemaOptions]) -> None:
    for name in ("auto.register.schemas", "use.latest.version", "normalize.schemas"):
        if values[name]:
            raise ConfigError(f"{name} needs {REGISTRY}url", OPTION_MISSING)
    for side, options in sides.items():
        if options.version is not None:
            raise ConfigError(f"{side}.schema.version needs {REGISTRY}url", OPTION_MISSING)
        if options.identity is not None and options.text is None:
            raise ConfigError(
                f"{side}.schema.id needs {REGISTRY}url, or the text of the schema as {side}.schema", OPTION_MISSING
            )
        framing = f"{side}.schema.framing"
        if framing in named and values[framing] != NONE and options.identity is None:
            raise ConfigError(
                f"{framing}={values[framing]} needs {REGISTRY}url, or {side}.schema.id with {side}.schema",
                OPTION_MISSING,
            )
