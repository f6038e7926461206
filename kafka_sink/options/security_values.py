"""Rules for the values of security options, in the manner of values.py."""

from __future__ import annotations

import re
from typing import Any

from kafka_sink.error_table.writes import OPTION_NOT_SUPPORTED
from kafka_sink.errors import ConfigError
from kafka_sink.frozen import frozen
from kafka_sink.options.values import FunctionName, Names, refuse
from kafka_sink.security.mechanisms import MECHANISMS

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
TLS_13_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
# Kafka's class for the grant of RFC 7523.
JWT_BEARER = "JwtBearerJwtRetriever"
# Handlers of Kafka and what they do here as well.
_HANDLERS = frozenset(("OAuthBearerLoginCallbackHandler",))
_SUITE = re.compile(r"[A-Za-z0-9_\-+!:@=.]{1,200}")

# Java's name of a suite is put together like OpenSSL's, only with other joints.
_JOINTS = (("TLS_RSA_WITH_", ""), ("TLS_", ""), ("_WITH_", "-"), ("AES_", "AES"), ("_CBC", ""), ("_", "-"))


@frozen
class Mechanism:
    valid: str = f"one of {', '.join(MECHANISMS)}"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if text not in MECHANISMS:
            raise ConfigError(f"{name}={text!a} is not supported: expected {self.valid}", OPTION_NOT_SUPPORTED)
        return text


@frozen
class TlsVersion:
    valid: str = "TLSv1.2 or TLSv1.3 (TLS means TLSv1.3)"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if text == "TLS":
            return TLS_VERSIONS[-1]
        if text not in TLS_VERSIONS:
            raise refuse(name, value, self.valid)
        return text


@frozen
class TlsVersions:
    valid: str = "TLSv1.2, TLSv1.3 or both, separated by commas; older versions are not safe"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        versions = Names(self.valid).parse(name, value)
        if not versions or not set(versions) <= set(TLS_VERSIONS):
            raise refuse(name, value, self.valid)
        return tuple(version for version in TLS_VERSIONS if version in versions)


@frozen
class CipherSuites:
    """OpenSSL's names, with those of TLS 1.3 as they are. Whether OpenSSL knows them shows when TLS is set up."""

    valid: str = "cipher suites separated by commas, by the names of Java or OpenSSL"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        suites = Names(self.valid).parse(name, value)
        if not all(_SUITE.fullmatch(suite) for suite in suites):
            raise refuse(name, value, self.valid)
        return tuple(suite if suite in TLS_13_SUITES else _openssl_name(suite) for suite in suites)


def _openssl_name(suite: str) -> str:
    if not suite.startswith("TLS_"):
        return suite
    for java, openssl in _JOINTS:
        suite = suite.replace(java, openssl)
    return suite.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")


@frozen
class HostCheck:
    valid: str = "https, or empty for no check"

    def parse(self, name: str, value: object) -> str:
        text = value.strip().lower() if isinstance(value, str) else None
        # none is librdkafka's word.
        if text not in ("https", "", "none"):
            raise refuse(name, value, self.valid)
        return "" if text == "none" else text


@frozen
class StoreType:
    """The default of Java has to be a value, too."""

    valid: str = "PEM or PKCS12"

    def parse(self, name: str, value: object) -> str:
        text = value.strip().upper() if isinstance(value, str) else ""
        if text not in ("PEM", "JKS", "PKCS12"):
            raise refuse(name, value, self.valid)
        return text


@frozen
class Region:
    valid: str = "a region of AWS such as eu-west-1"

    def parse(self, name: str, value: object) -> str:
        from kafka_sink.security.aws_msk_iam import REGION

        text = value.strip() if isinstance(value, str) else ""
        if not REGION.fullmatch(text):
            raise refuse(name, value, self.valid)
        return text


@frozen
class Fraction:
    least: float
    most: float

    @property
    def valid(self) -> str:
        return f"a number from {self.least} to {self.most}"

    def parse(self, name: str, value: object) -> float:
        try:
            number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else -1.0
        except ValueError:
            number = -1.0
        if not self.least <= number <= self.most:
            raise refuse(name, value, self.valid)
        return number


@frozen
class CallbackHandler:
    valid: str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if text.rpartition(".")[2] not in _HANDLERS:
            instead = "pass sasl.oauthbearer.token.provider, a Python function, instead"
            if text.rpartition(".")[2] == "IAMOAuthBearerLoginCallbackHandler":
                instead = "sasl.mechanism=AWS_MSK_IAM does what it does"
            raise ConfigError(f"{name} names a class of the JVM: {instead}", OPTION_NOT_SUPPORTED)
        return text


@frozen
class Retriever:
    """Which grant a token is got by. The value is the name of Kafka's class, without its package."""

    valid: str = "DefaultJwtRetriever, ClientCredentialsJwtRetriever or JwtBearerJwtRetriever of Kafka"

    def parse(self, name: str, value: object) -> str:
        text = value.strip().rpartition(".")[2] if isinstance(value, str) else ""
        if text not in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", JWT_BEARER):
            raise ConfigError(
                f"{name} names a class of the JVM: pass sasl.oauthbearer.token.provider, a Python function, instead"
            )
        return text


@frozen
class TokenProvider:
    valid: str = "module:function, importable where it runs, or a Python callable"

    def parse(self, name: str, value: object) -> Any:
        if callable(value) and not isinstance(value, type):
            return value
        return FunctionName(self.valid).parse(name, value)
