"""Rules that involve several SASL options; imported only if the security protocol uses SASL.

References (`${env:NAME}`) are not resolved here: their values are checked where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.brokers import LOGIN_OPTIONS
from kafka_sink.errors.table.writes import CREDENTIALS_IN_CLEAR, OPTION_NOT_SUPPORTED
from kafka_sink.options.values import JWT_BEARER, contradiction_error, missing_error
from kafka_sink.security.jaas import LoginModule, parse_jaas
from kafka_sink.security.kerberos import kerberos_login
from kafka_sink.security.mechanisms import (
    AWS_MSK_IAM,
    GSSAPI,
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    SENT_IN_CLEAR,
    WITH_PASSWORD,
)
from kafka_sink.security.reference import is_reference

if TYPE_CHECKING:
    from kafka_sink.options.engine import Draft

_MODULES = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
    "IAMLoginModule": (AWS_MSK_IAM,),
    "Krb5LoginModule": (GSSAPI,),
}
# Those of a Kerberos login from the second line on have no meaning outside a JVM, or are refused when they are set.
_MODULE_OPTIONS: dict[str, set[str]] = {
    "PlainLoginModule": {"username", "password"},
    "ScramLoginModule": {"username", "password", "tokenauth"},
    "OAuthBearerLoginModule": {"clientId", "clientSecret", "scope"},
    "IAMLoginModule": {
        "awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsRoleExternalId", "awsStsRegion", "awsRoleAccessKeyId",
        "awsRoleSecretAccessKey", "awsRoleSessionToken",
    },
    "Krb5LoginModule": {
        "useKeyTab", "keyTab", "principal", "useTicketCache", "ticketCache", "serviceName",
        "storeKey", "doNotPrompt", "refreshKrb5Config", "debug", "useFirstPass", "tryFirstPass", "storePass",
        "clearPass", "isInitiator", "renewTGT",
    },
}  # fmt: skip
EXTENSION = "extension_"


def check_sasl(draft: Draft, useless: Iterable[str], has_tls: bool, may_be_sent: bool) -> None:
    """`useless`: options that are for other mechanisms. `may_be_sent`: credentials, over a connection without TLS."""
    values = draft.values
    mechanism = values["sasl.mechanism"]
    jaas = values["sasl.jaas.config"]
    # None: a reference, which is read where connections are opened.
    entries: Mapping[str, str] | None = {}
    if jaas is not None:
        for name in ("sasl.username", "sasl.password"):
            if values[name] is not None:
                raise contradiction_error(name, "sasl.jaas.config")
        entries = None if is_reference(jaas) else _read_jaas(draft, jaas, mechanism)
    if mechanism == OAUTHBEARER:
        _check_tokens(draft, entries)
    elif mechanism == AWS_MSK_IAM:
        _check_aws(draft, entries or {})
    elif mechanism == GSSAPI:
        _check_kerberos(draft, entries)
    elif jaas is None and (values["sasl.username"] is None or values["sasl.password"] is None):
        raise missing_error(f"sasl.mechanism={mechanism} needs sasl.username and sasl.password, or sasl.jaas.config")
    draft.notices += [f"{draft.named[name]} has no effect with sasl.mechanism={mechanism}" for name in useless]
    if has_tls:
        return
    if mechanism in SENT_IN_CLEAR and not may_be_sent:
        raise in_clear_error(mechanism)
    shown = f"{SENT_IN_CLEAR[mechanism]} is" if mechanism in SENT_IN_CLEAR else "records are"
    draft.notices.append(f"{shown} readable on the network: security.protocol=SASL_PLAINTEXT does not encrypt")


def in_clear_error(mechanism: str, host: str = "") -> ConfigError:
    """`host`: of a broker that a cluster names, while those of bootstrap.servers are on this host."""
    reader = f" on its way to {host}" if host else ""
    return ConfigError(
        f"{SENT_IN_CLEAR[mechanism]} (sasl.mechanism={mechanism}) would cross the network in clear{reader}, because "
        "security.protocol=SASL_PLAINTEXT does not encrypt: set SASL_SSL, or allow.plaintext.credentials=true where "
        "nobody else can read the network",
        CREDENTIALS_IN_CLEAR,
    )


def read_module(text: str, mechanism: str) -> LoginModule:
    module = parse_jaas(text)
    if module.name not in _MODULES:
        raise ConfigError(
            f"sasl.jaas.config: the login module {module.name} is not supported: known are {', '.join(_MODULES)}",
            OPTION_NOT_SUPPORTED,
        )
    if mechanism not in _MODULES[module.name]:
        fitting = " or ".join(_MODULES[module.name])
        raise ConfigError(
            f"sasl.jaas.config names {module.name}, but sasl.mechanism={mechanism}: set it to {fitting}, or name the "
            "module that fits",
            LOGIN_OPTIONS,
        )
    return module


def _read_jaas(draft: Draft, text: str, mechanism: str) -> Mapping[str, str]:
    module = read_module(text, mechanism)
    if mechanism in WITH_PASSWORD:
        for name in ("username", "password"):
            if not module.options.get(name):
                raise missing_error(f"sasl.jaas.config: {module.name} needs {name}")
    known = _MODULE_OPTIONS[module.name]
    useless = [name for name in module.options if name not in known]
    if mechanism == OAUTHBEARER:
        useless = [name for name in useless if not name.startswith(EXTENSION)]
    if useless:
        draft.notices.append(f"sasl.jaas.config: options without effect on a client: {', '.join(sorted(useless))}")
    return module.options


def _check_tokens(draft: Draft, entries: Mapping[str, str] | None) -> None:
    values = draft.values
    provider, url = values["sasl.oauthbearer.token.provider"], values["sasl.oauthbearer.token.endpoint.url"]
    if (provider is None) == (url is None):
        raise missing_error(
            "sasl.mechanism=OAUTHBEARER needs either sasl.oauthbearer.token.provider, a function that returns tokens, "
            "or sasl.oauthbearer.token.endpoint.url with a client id and secret"
        )
    assertion = values["sasl.oauthbearer.assertion.file"]
    if assertion is not None and url is None:
        raise missing_error(
            "sasl.oauthbearer.assertion.file needs sasl.oauthbearer.token.endpoint.url, where it is sent"
        )
    if values["sasl.oauthbearer.jwt.retriever.class"] == JWT_BEARER and assertion is None:
        raise missing_error(f"sasl.oauthbearer.jwt.retriever.class={JWT_BEARER} needs sasl.oauthbearer.assertion.file")
    if url is None or assertion is not None or entries is None:
        return
    for name, java in (("client.id", "clientId"), ("client.secret", "clientSecret")):
        if values[f"sasl.oauthbearer.client.credentials.{name}"] is None and java not in entries:
            raise missing_error(
                f"sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.{name}, or {java} in "
                "sasl.jaas.config"
            )


def _check_aws(draft: Draft, entries: Mapping[str, str]) -> None:
    values = draft.values
    key_id, secret = values["sasl.aws.access.key.id"], values["sasl.aws.secret.access.key"]
    token = values["sasl.aws.session.token"]
    if (key_id is None) != (secret is None) or (token is not None and key_id is None):
        raise missing_error("sasl.aws.access.key.id and sasl.aws.secret.access.key belong together: set both or none")
    if key_id is not None and values["sasl.aws.profile"] is not None:
        raise contradiction_error("sasl.aws.access.key.id", "sasl.aws.profile")
    if ("awsRoleAccessKeyId" in entries) != ("awsRoleSecretAccessKey" in entries):
        raise missing_error(
            "sasl.jaas.config: awsRoleAccessKeyId and awsRoleSecretAccessKey belong together: set both or none"
        )
    for name, java in (
        ("profile", "awsProfileName"),
        ("role.arn", "awsRoleArn"),
        ("access.key.id", "awsProfileName"),
        ("access.key.id", "awsRoleAccessKeyId"),
    ):
        if values[f"sasl.aws.{name}"] is not None and java in entries:
            raise contradiction_error(f"sasl.aws.{name}", f"{java} of sasl.jaas.config")


def _check_kerberos(draft: Draft, entries: Mapping[str, str] | None) -> None:
    values, named = draft.values, draft.named
    if "sasl.mechanism" not in named and not any(name.startswith("sasl.kerberos.") for name in named):
        others = ", ".join(name for name in MECHANISMS if name != GSSAPI)
        raise ConfigError(
            "sasl.mechanism=GSSAPI (Kerberos) is the default and nothing is set for it: choose another one "
            f"({others}), or set sasl.kerberos.service.name"
        )
    if entries is None:
        return
    service, principal, keytab = (values[f"sasl.kerberos.{name}"] for name in ("service.name", "principal", "keytab"))
    kerberos_login(service, principal, keytab, entries if values["sasl.jaas.config"] is not None else None)
