"""What security options mean together: is everything there that the chosen protocol needs, and is anything useless?

An option that belongs to a protocol which is not chosen is not an error, because Java takes it, too; but it is said.
"""

from __future__ import annotations

from typing import Protocol

from kafka_sink.error_table.writes import OPTION_MISSING, OPTION_NOT_SUPPORTED, OPTIONS_CONTRADICT
from kafka_sink.errors import ConfigError
from kafka_sink.options.security_table import SECURITY_OPTIONS
from kafka_sink.options.security_values import TLS_13_SUITES
from kafka_sink.options.values import schemes


class SecurityDraft(Protocol):
    values: dict[str, object]
    named: dict[str, str]
    raw: dict[str, object]
    notices: list[str]


def check_security(draft: SecurityDraft) -> None:
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
        from kafka_sink.options.sasl_rules import check_sasl

        check_sasl(draft, has_tls)


def _check_schemes(draft: SecurityDraft, protocol: str) -> None:
    for scheme in schemes(draft.raw.get("bootstrap.servers")):
        is_secure = scheme == "SSL" or scheme.startswith("SASL_")
        if is_secure and scheme != protocol:
            raise ConfigError(f"bootstrap.servers asks for {scheme}, but security.protocol={protocol}: make them agree")


def _check_tls(draft: SecurityDraft) -> None:
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
            raise ConfigError(f"{named[name]} and {named[other]} contradict each other: keep one", OPTIONS_CONTRADICT)
    has_key = values["ssl.keystore.key"] is not None or values["ssl.key.location"] is not None
    has_chain = values["ssl.keystore.certificate.chain"] is not None or values["ssl.certificate.location"] is not None
    if has_key != has_chain:
        raise ConfigError(
            "the client's own key and its certificates belong together: only one of them is set", OPTION_MISSING
        )
    for side in ("truststore", "keystore"):
        kind = str(values[f"ssl.{side}.type"])
        if f"ssl.{side}.type" in named and kind == "JKS":
            raise ConfigError(
                f"ssl.{side}.type={kind} is not supported: {conversion(kind, f'<your {side}>', side)}",
                OPTION_NOT_SUPPORTED,
            )
        if values[f"ssl.{side}.password"] is not None and values[f"ssl.{side}.location"] is None:
            raise ConfigError(
                f"{named[f'ssl.{side}.password']} is for a file, and ssl.{side}.location names none", OPTIONS_CONTRADICT
            )
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
