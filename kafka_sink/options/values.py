"""Rules that turn one option value, as users write it, into a Python value or a `ConfigError`: numbers and texts first,
then lists, addresses and names, then TLS and SASL. Values that are code: `hooks.py`.

The rules are Java's (`ConfigDef`): text is trimmed, numbers are whole and decimal, booleans are true or false in any
case, lists are separated by commas. Python values of the right type are accepted as they are. A rule sees one value;
`parse.py` has those for several options.

`valid` is the sentence shown in error texts and the option reference, so that both match the check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import urlsplit

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import OPTION_MISSING, OPTION_NOT_SUPPORTED, OPTIONS_CONTRADICT
from kafka_sink.frozen import frozen
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from kafka_sink.options.security_options import SECRET_NAME
from kafka_sink.security.mechanisms import MECHANISMS
from kafka_sink.security.reference import NO_TEXT

LONG_MIN = -LONG_MAX - 1
# By their numbers in the attributes of a batch.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_SHOWN_CHARACTERS_MAX = 80


class Rule(Protocol):
    @property
    def valid(self) -> str: ...

    def parse(self, name: str, value: object) -> object: ...


def describe_value(name: str, value: object) -> str:
    """The value for an error text: short, and hidden if the option's name suggests a secret."""
    if SECRET_NAME.search(name):
        return "[hidden]"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "..."


def format_option_value(value: object) -> str:
    """A parsed value as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def invalid_value_error(name: str, value: object, valid: str) -> ConfigError:
    return ConfigError(f"{name}={describe_value(name, value)} is not valid: expected {valid}")


def missing_error(text: str) -> ConfigError:
    return ConfigError(text, OPTION_MISSING)


def contradiction_error(name: str, other: str) -> ConfigError:
    """For two options of which only one may be set."""
    return ConfigError(f"{name} and {other} contradict each other: keep one", OPTIONS_CONTRADICT)


def two_values_error(name: str, other: str) -> ConfigError:
    """For an option and another name of it."""
    text = f"{name} and {other} mean the same and have different values: keep one"
    return ConfigError(text, OPTIONS_CONTRADICT)


@frozen
class Whole:
    """A whole number. `besides` is a single extra value outside the range, as Java's -1 for a codec's own level."""

    minimum: int
    maximum: int = INT_MAX
    besides: int | None = None

    @property
    def valid(self) -> str:
        extra = "" if self.besides is None else f", or {self.besides}"
        if self.minimum == LONG_MIN:
            return f"any whole number up to {self.maximum}{extra}"
        return f"a whole number from {self.minimum} to {self.maximum}{extra}"

    def parse(self, name: str, value: object) -> int:
        number: Any = None
        if isinstance(value, str):
            number = int(value) if _WHOLE_NUMBER.fullmatch(value.strip()) else None
        elif not isinstance(value, (bool, type)) and hasattr(value, "__index__"):
            number = value.__index__()
        if number is None or (number != self.besides and not self.minimum <= number <= self.maximum):
            raise invalid_value_error(name, value, self.valid)
        return int(number)


INT, LONG = Whole(0), Whole(0, LONG_MAX)


@frozen
class Flag:
    valid: str = "true or false"

    def parse(self, name: str, value: object) -> bool:
        if isinstance(value, bool):
            return value
        text = value.strip().lower() if isinstance(value, str) else ""
        if text not in ("true", "false"):
            raise invalid_value_error(name, value, self.valid)
        return text == "true"


FLAG = Flag()


@frozen
class AsGiven:
    """What somebody else has checked."""

    valid: str = "any text"

    def parse(self, name: str, value: object) -> object:
        return value


AS_GIVEN = AsGiven()


@frozen
class Text:
    empty_allowed: bool = True
    bytes_max: int | None = None

    @property
    def valid(self) -> str:
        text = "any text" if self.empty_allowed else "text that is not empty"
        return text if self.bytes_max is None else f"{text}, at most {self.bytes_max} bytes"

    def parse(self, name: str, value: object) -> str:
        if isinstance(value, str) and not NO_TEXT.search(value):
            text = value.strip()
            fits = self.bytes_max is None or len(text.encode()) <= self.bytes_max
            if fits and (text or self.empty_allowed):
                return text
        raise invalid_value_error(name, value, self.valid)


ANY_TEXT, NOT_EMPTY = Text(), Text(empty_allowed=False)


class Secret(Text):
    """What nobody else may see: a password, a private key, a token. Secret options have this rule, and no others."""

    __slots__ = ()


SECRET = Secret(empty_allowed=False)


@frozen
class Choice:
    """One of some words. Java compares most of them exactly, a few ignoring case: the result is the word as listed."""

    words: tuple[str, ...]
    any_case: bool = False

    @property
    def valid(self) -> str:
        return "one of " + ", ".join(self.words) + (" (in any case)" if self.any_case else "")

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else value
        for word in self.words:
            if text == word or (self.any_case and isinstance(text, str) and text.lower() == word.lower()):
                return word
        raise invalid_value_error(name, value, self.valid)


@frozen
class Converted:
    """A text. `convert` gets it without blanks around it, and returns None if it is not valid."""

    valid: str
    convert: Callable[[str], Any]

    def parse(self, name: str, value: object) -> Any:
        converted = self.convert(value.strip()) if isinstance(value, str) else None
        if converted is None:
            raise invalid_value_error(name, value, self.valid)
        return converted


def pattern(valid: str, form: str) -> Converted:
    """A text that has this form, a regular expression."""
    compiled = re.compile(form)
    return Converted(valid, lambda text: text if compiled.fullmatch(text) else None)


@frozen
class Acks:
    valid: str = "all, -1, 0 or 1"

    def parse(self, name: str, value: object) -> int:
        text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
        if text not in ("all", "-1", "0", "1"):
            raise invalid_value_error(name, value, self.valid)
        return -1 if text == "all" else int(text)


@frozen
class Names:
    """A list of words: separated by commas, or any Python iterable of text."""

    valid: str = "a list separated by commas"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            return tuple(item.strip() for item in value.split(",")) if value.strip() else ()
        items = tuple(value) if isinstance(value, Iterable) and not isinstance(value, bytes) else (None,)
        if not all(isinstance(item, str) for item in items):
            raise invalid_value_error(name, value, self.valid)
        return tuple(str(item).strip() for item in items)


FUNCTION_NAME = pattern("module:function, importable where it runs", r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
TOPIC_NAME = pattern(
    "a topic name: 1 to 249 letters, digits, dots, underscores and hyphens", r"(?!\.\.?\Z)[a-zA-Z0-9._-]{1,249}"
)
# The scheme is a listener name, which clusters choose freely; Java accepts any and ignores it.
_SERVER = re.compile(r"(?:(?P<scheme>[0-9a-zA-Z\-%._]*)://)?(?:\[(?P<v6>[0-9a-fA-F:.%\w]+)\]|(?P<host>[^\[\]:/@\s]+))"
                     r":(?P<port>[0-9]{1,5})")  # fmt: skip


@frozen
class Servers:
    """The bootstrap list: scheme, in upper case or empty, host and port of each entry. Stricter than Java where Java
    guesses: IPv6 needs brackets, a host is never empty."""

    valid: str = "host:port entries separated by commas, IPv6 addresses in brackets, ports from 1 to 65535"

    def parse(self, name: str, value: object) -> tuple[tuple[str, str, int], ...]:
        entries = Names(self.valid).parse(name, value)
        if not entries:
            raise ConfigError(f"{name} is empty: expected {self.valid}")
        if any("@" in entry for entry in entries):
            # A user and password are there by mistake. The password may have commas, so no entry is shown.
            raise ConfigError(f"{name} has an @ in it: expected {self.valid}, without a user and password")
        return tuple(self._parse_server(name, entry) for entry in entries)

    def _parse_server(self, name: str, entry: str) -> tuple[str, str, int]:
        match = _SERVER.fullmatch(entry)
        if match is None:
            raise ConfigError(f"{name}: the entry {entry!r} is not valid: expected {self.valid}")
        port = int(match["port"])
        if not 1 <= port <= 65535:
            raise ConfigError(f"{name}: the entry {entry!r} has port {port}: expected a port from 1 to 65535")
        return (match["scheme"] or "").upper(), match["v6"] or match["host"], port


# What a request can contain: a path is of ASCII, a host's name may have other letters.
_WEB_ADDRESS = re.compile(r"https?://[^\x00-\x20\x7f/?#@]+(/[^\x00-\x20\x7f-\U0010ffff?#@]*)?")


def parse_web_address(name: str, text: str, valid: str) -> str:
    """The error does not contain the address: its user, its query or a mistyped port may be a secret."""
    # Schemes are case-insensitive.
    scheme, _, rest = text.strip().rstrip("/").partition(":")
    address = f"{scheme.lower()}:{rest}"
    try:
        parts = urlsplit(address)
        is_valid = bool(_WEB_ADDRESS.fullmatch(address) and parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"{name} is not valid: expected {valid}")
    return address


# ---- TLS and SASL ----------------------------------------------------------------------------------------------------

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
TLS_VERSION = Converted(
    "TLSv1.2 or TLSv1.3 (TLS means TLSv1.3)", {"TLS": "TLSv1.3", **{each: each for each in TLS_VERSIONS}}.get
)
# none is librdkafka's value.
HOST_CHECK = Converted(
    "https, or empty for no check", lambda text: {"https": "https", "": "", "none": ""}.get(text.lower())
)
# Java's default, JKS, must be accepted, too.
STORE_TYPE = Converted("PEM or PKCS12", lambda text: {"PEM": "PEM", "JKS": "JKS", "PKCS12": "PKCS12"}.get(text.upper()))
TLS_13_SUITES = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
_FUNCTION_INSTEAD = "pass sasl.oauthbearer.token.provider, a Python function, instead"
# Kafka's class for the grant of RFC 7523.
JWT_BEARER = "JwtBearerJwtRetriever"
_SUITE = re.compile(r"[A-Za-z0-9_\-+!:@=.]{1,200}")

# Java's suite names have the parts of OpenSSL's, with other separators.
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
class PemPath:
    """The path of a file of certificates or keys. Its content in this place is not shown: it may be a private key."""

    valid: str = "the path of a file"

    def parse(self, name: str, value: object) -> str:
        path = NOT_EMPTY.parse(name, value)
        if "-----BEGIN " in path:
            raise ConfigError(
                f"{name} is the content of a file: expected its path, or the text in ssl.truststore.certificates, or "
                "in ssl.keystore.certificate.chain and ssl.keystore.key"
            )
        return path


@frozen
class TlsVersions:
    valid: str = "TLSv1.2, TLSv1.3 or both, separated by commas; older versions are not safe"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        versions = Names(self.valid).parse(name, value)
        if not versions or not set(versions) <= set(TLS_VERSIONS):
            raise invalid_value_error(name, value, self.valid)
        return tuple(version for version in TLS_VERSIONS if version in versions)


@frozen
class CipherSuites:
    """OpenSSL's names, with those of TLS 1.3 as they are. OpenSSL checks them when TLS is set up."""

    valid: str = "cipher suites separated by commas, by the names of Java or OpenSSL"

    def parse(self, name: str, value: object) -> tuple[str, ...]:
        suites = Names(self.valid).parse(name, value)
        if not all(_SUITE.fullmatch(suite) for suite in suites):
            raise invalid_value_error(name, value, self.valid)
        return tuple(suite if suite in TLS_13_SUITES else _openssl_name(suite) for suite in suites)


def _openssl_name(suite: str) -> str:
    if not suite.startswith("TLS_"):
        return suite
    for java, openssl in _JOINTS:
        suite = suite.replace(java, openssl)
    return suite.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")


AWS_REGION = pattern("a region of AWS such as eu-west-1", r"[a-z0-9-]{1,40}")


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
        except (ValueError, OverflowError):
            number = -1.0
        if not self.least <= number <= self.most:
            raise invalid_value_error(name, value, self.valid)
        return number


@frozen
class CallbackHandler:
    """Kafka's handler whose behaviour is built in here."""

    valid: str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

    def parse(self, name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        handler = text.rpartition(".")[2]
        if handler != "OAuthBearerLoginCallbackHandler":
            is_amazons = handler == "IAMOAuthBearerLoginCallbackHandler"
            instead = "sasl.mechanism=AWS_MSK_IAM does what it does" if is_amazons else _FUNCTION_INSTEAD
            raise ConfigError(f"{name} names a class of the JVM: {instead}", OPTION_NOT_SUPPORTED)
        return text


@frozen
class Retriever:
    """The OAuth grant for tokens. The value is the name of Kafka's class, without its package."""

    valid: str = "DefaultJwtRetriever, ClientCredentialsJwtRetriever or JwtBearerJwtRetriever of Kafka"

    def parse(self, name: str, value: object) -> str:
        text = value.strip().rpartition(".")[2] if isinstance(value, str) else ""
        if text not in ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", JWT_BEARER):
            raise ConfigError(f"{name} names a class of the JVM: {_FUNCTION_INSTEAD}")
        return text


@frozen
class TokenProvider:
    valid: str = "module:function, importable where it runs, or a Python callable"

    def parse(self, name: str, value: object) -> Any:
        if callable(value) and not isinstance(value, type):
            return value
        return Converted(self.valid, FUNCTION_NAME.convert).parse(name, value)


def conversion_hint(kind: str, path: str, side: str) -> str:
    """The command that converts a JKS or PKCS12 file to PEM."""
    if kind == "JKS":
        first = f"keytool -importkeystore -srckeystore {path} -destkeystore {side}.p12 -deststoretype PKCS12"
        return f"convert it to PEM with `{first}` and `openssl pkcs12 -in {side}.p12 -out {side}.pem`"
    return f"convert it to PEM with `openssl pkcs12 -in {path} -out {side}.pem`"
