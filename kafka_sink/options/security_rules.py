"""What security options mean together: is everything there that the chosen protocol needs, and is anything useless?

An option that belongs to a protocol which is not chosen is not an error, because Java takes it, too; but it is said.
Values by reference (`${env:NAME}`) are not looked up here: what they stand for is checked where they are used.
"""

from __future__ import annotations

from typing import Protocol

from kafka_sink.errors import ConfigError
from kafka_sink.options.security_table import SECURITY_OPTIONS
from kafka_sink.options.security_values import JWT_BEARER, TLS_13_SUITES
from kafka_sink.options.values import schemes
from kafka_sink.security.aws_msk_iam import AWS_MSK_IAM
from kafka_sink.security.jaas import parse_jaas
from kafka_sink.security.kerberos import GSSAPI, KRB5_OPTIONS, KRB5_SILENT, kerberos_login
from kafka_sink.security.login import MECHANISMS, OAUTHBEARER, PLAIN
from kafka_sink.security.reference import is_reference

NEEDS = "sasl.username and sasl.password, or sasl.jaas.config"
MODULES = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
    "IAMLoginModule": (AWS_MSK_IAM,),
    "Krb5LoginModule": (GSSAPI,),
}
_MODULE_OPTIONS: dict[str, set[str]] = {
    "PlainLoginModule": {"username", "password"},
    "ScramLoginModule": {"username", "password", "tokenauth"},
    "OAuthBearerLoginModule": {"clientId", "clientSecret", "scope"},
    "IAMLoginModule": {
        "awsProfileName",
        "awsRoleArn",
        "awsRoleSessionName",
        "awsRoleExternalId",
        "awsStsRegion",
        "awsRoleAccessKeyId",
        "awsRoleSecretAccessKey",
        "awsRoleSessionToken",
    },
    "Krb5LoginModule": KRB5_OPTIONS | KRB5_SILENT,
}
EXTENSION = "extension_"


class Draft(Protocol):
    values: dict[str, object]
    named: dict[str, str]
    raw: dict[str, object]
    notices: list[str]


def check_security(draft: Draft) -> None:
    protocol = str(draft.values["security.protocol"])
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
    _check_schemes(draft, protocol)
    for option in SECURITY_OPTIONS:
        prefix = option.name.partition(".")[0]
        is_useless = (prefix in ("ssl", "enable") and not has_tls) or (prefix == "sasl" and not has_sasl)
        if is_useless and option.name in draft.named:
            name = draft.named[option.name]
            draft.notices.append(f"{name} has no effect with security.protocol={protocol}")
    if has_tls:
        _check_tls(draft)
    if has_sasl:
        _check_sasl(draft, has_tls)


def _check_schemes(draft: Draft, protocol: str) -> None:
    for scheme in schemes(draft.raw.get("bootstrap.servers")):
        is_secure = scheme == "SSL" or scheme.startswith("SASL_")
        if is_secure and scheme != protocol:
            raise ConfigError(f"bootstrap.servers asks for {scheme}, but security.protocol={protocol}: make them agree")


def _check_tls(draft: Draft) -> None:
    values, named = draft.values, draft.named
    for name, other in (
        ("ssl.truststore.certificates", "ssl.truststore.location"),
        ("ssl.keystore.key", "ssl.keystore.location"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.location"),
        ("ssl.key.location", "ssl.keystore.location"),
        ("ssl.certificate.location", "ssl.keystore.location"),
        ("ssl.keystore.key", "ssl.key.location"),
        ("ssl.keystore.certificate.chain", "ssl.certificate.location"),
    ):
        if values[name] is not None and values[other] is not None:
            raise ConfigError(f"{named[name]} and {named[other]} contradict each other: keep one")
    has_key = values["ssl.keystore.key"] is not None or values["ssl.key.location"] is not None
    has_chain = values["ssl.keystore.certificate.chain"] is not None or values["ssl.certificate.location"] is not None
    if has_key != has_chain:
        raise ConfigError("the client's own key and its certificates belong together: only one of them is set")
    for side in ("truststore", "keystore"):
        kind = str(values[f"ssl.{side}.type"])
        if f"ssl.{side}.type" in named and kind == "JKS":
            raise ConfigError(f"ssl.{side}.type={kind} is not supported: {conversion(kind, f'<your {side}>', side)}")
        if values[f"ssl.{side}.password"] is not None and values[f"ssl.{side}.location"] is None:
            raise ConfigError(f"{named[f'ssl.{side}.password']} is for a file, and ssl.{side}.location names none")
    versions = values["ssl.enabled.protocols"]
    assert isinstance(versions, tuple)
    if values["ssl.protocol"] == "TLSv1.2" and versions == ("TLSv1.3",):
        raise ConfigError("ssl.protocol=TLSv1.2 and ssl.enabled.protocols=TLSv1.3 leave no version of TLS")
    suites = values["ssl.cipher.suites"]
    assert isinstance(suites, tuple)
    if set(suites) & set(TLS_13_SUITES) and not set(TLS_13_SUITES) <= set(suites):
        draft.notices.append("ssl.cipher.suites names some suites of TLS 1.3: all three of them may be used")
    if not values["ssl.endpoint.identification.algorithm"]:
        draft.notices.append(
            "the host names of brokers are not checked (ssl.endpoint.identification.algorithm is empty): any holder of "
            "a trusted certificate can pretend to be a broker"
        )
    if not values["enable.ssl.certificate.verification"]:
        draft.notices.append(
            "certificates of brokers are not checked (enable.ssl.certificate.verification=false): anybody can pretend "
            "to be a broker and read everything, credentials included"
        )


def conversion(kind: str, path: str, side: str) -> str:
    """The command that makes PEM of a JKS or PKCS12 file."""
    if kind == "JKS":
        first = f"keytool -importkeystore -srckeystore {path} -destkeystore {side}.p12 -deststoretype PKCS12"
        return f"convert it to PEM with `{first}` and `openssl pkcs12 -in {side}.p12 -out {side}.pem`"
    return f"convert it to PEM with `openssl pkcs12 -in {path} -out {side}.pem`"


def _check_sasl(draft: Draft, has_tls: bool) -> None:
    values, named = draft.values, draft.named
    mechanism = str(values["sasl.mechanism"])
    jaas = values["sasl.jaas.config"]
    if jaas is not None:
        for name in ("sasl.username", "sasl.password"):
            if values[name] is not None:
                raise ConfigError(f"{name} and sasl.jaas.config contradict each other: keep one")
        if not is_reference(str(jaas)):
            _check_jaas(draft, str(jaas), mechanism)
    if mechanism == OAUTHBEARER:
        _check_tokens(draft)
    elif mechanism == AWS_MSK_IAM:
        _check_aws(draft)
    elif mechanism == GSSAPI:
        _check_kerberos(draft)
    elif jaas is None and (values["sasl.username"] is None or values["sasl.password"] is None):
        raise ConfigError(f"sasl.mechanism={mechanism} needs {NEEDS}")
    owners = {"sasl.aws.": AWS_MSK_IAM, "sasl.oauthbearer.": OAUTHBEARER, "sasl.kerberos.": GSSAPI}
    for prefix, owner in owners.items():
        useless = [name for name in named if name.startswith(prefix) and mechanism != owner]
        draft.notices.extend(f"{named[name]} has no effect with sasl.mechanism={mechanism}" for name in useless)
    if not has_tls:
        shown = "the password is readable" if mechanism == PLAIN else "records are readable"
        shown = "the token is readable" if mechanism == OAUTHBEARER else shown
        shown = "what the client signs in with is readable" if mechanism == AWS_MSK_IAM else shown
        draft.notices.append(f"{shown} on the network: security.protocol=SASL_PLAINTEXT does not encrypt")


def _check_jaas(draft: Draft, text: str, mechanism: str) -> None:
    module = parse_jaas(text)
    if module.name not in MODULES:
        raise ConfigError(
            f"sasl.jaas.config: the login module {module.name} is not supported: known are {', '.join(MODULES)}"
        )
    if mechanism not in MODULES[module.name]:
        fitting = " or ".join(MODULES[module.name])
        raise ConfigError(
            f"sasl.jaas.config names {module.name}, but sasl.mechanism={mechanism}: set it to {fitting}, or name the "
            "module that fits"
        )
    if mechanism not in (OAUTHBEARER, AWS_MSK_IAM, GSSAPI):
        for name in ("username", "password"):
            if not module.options.get(name):
                raise ConfigError(f"sasl.jaas.config: {module.name} needs {name}")
    known = _MODULE_OPTIONS[module.name]
    useless = [name for name in module.options if name not in known]
    if mechanism == OAUTHBEARER:
        useless = [name for name in useless if not name.startswith(EXTENSION)]
    if useless:
        draft.notices.append(f"sasl.jaas.config: options without effect on a client: {', '.join(sorted(useless))}")


def _check_tokens(draft: Draft) -> None:
    values = draft.values
    provider, url = values["sasl.oauthbearer.token.provider"], values["sasl.oauthbearer.token.endpoint.url"]
    if (provider is None) == (url is None):
        raise ConfigError(
            "sasl.mechanism=OAUTHBEARER needs either sasl.oauthbearer.token.provider, a function that returns tokens, "
            "or sasl.oauthbearer.token.endpoint.url with a client id and secret"
        )
    assertion = values["sasl.oauthbearer.assertion.file"]
    if assertion is not None and url is None:
        raise ConfigError("sasl.oauthbearer.assertion.file needs sasl.oauthbearer.token.endpoint.url, where it is sent")
    if values["sasl.oauthbearer.jwt.retriever.class"] == JWT_BEARER and assertion is None:
        raise ConfigError(f"sasl.oauthbearer.jwt.retriever.class={JWT_BEARER} needs sasl.oauthbearer.assertion.file")
    jaas = values["sasl.jaas.config"]
    if url is None or assertion is not None or (jaas is not None and is_reference(str(jaas))):
        return
    of_module = parse_jaas(str(jaas)).options if jaas is not None else {}
    for name, java in (("client.id", "clientId"), ("client.secret", "clientSecret")):
        if values[f"sasl.oauthbearer.client.credentials.{name}"] is None and java not in of_module:
            raise ConfigError(
                f"sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.{name}, or {java} in "
                "sasl.jaas.config"
            )


def _check_aws(draft: Draft) -> None:
    values = draft.values
    key_id, secret = values["sasl.aws.access.key.id"], values["sasl.aws.secret.access.key"]
    token = values["sasl.aws.session.token"]
    if (key_id is None) != (secret is None) or (token is not None and key_id is None):
        raise ConfigError("sasl.aws.access.key.id and sasl.aws.secret.access.key belong together: set both or none")
    if key_id is not None and values["sasl.aws.profile"] is not None:
        raise ConfigError("sasl.aws.access.key.id and sasl.aws.profile contradict each other: keep one")
    jaas = values["sasl.jaas.config"]
    module = {} if jaas is None or is_reference(str(jaas)) else parse_jaas(str(jaas)).options
    for name, java in (("profile", "awsProfileName"), ("role.arn", "awsRoleArn"), ("access.key.id", "awsProfileName")):
        if values[f"sasl.aws.{name}"] is not None and java in module:
            raise ConfigError(f"sasl.aws.{name} and {java} of sasl.jaas.config contradict each other: keep one")


def _check_kerberos(draft: Draft) -> None:
    values, named = draft.values, draft.named
    if "sasl.mechanism" not in named and not any(name.startswith("sasl.kerberos.") for name in named):
        others = ", ".join(name for name in MECHANISMS if name != GSSAPI)
        raise ConfigError(
            "sasl.mechanism=GSSAPI (Kerberos) is the default and nothing is set for it: choose another one "
            f"({others}), or set sasl.kerberos.service.name"
        )
    useless = [name for name in ("sasl.username", "sasl.password") if values[name] is not None]
    draft.notices.extend(f"{name} has no effect with sasl.mechanism=GSSAPI" for name in useless)
    jaas = values["sasl.jaas.config"]
    if jaas is not None and is_reference(str(jaas)):
        return
    service, principal, keytab = (
        None if values[name] is None else str(values[name])
        for name in ("sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab")
    )
    kerberos_login(service, principal, keytab, parse_jaas(str(jaas)).options if jaas is not None else None)
