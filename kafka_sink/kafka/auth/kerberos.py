"""Kerberos by the package `gssapi`: credentials from a keytab or a ticket cache, and one security context per session.

The package wraps the host's Kerberos library, which finds realms and their servers (krb5.conf, KRB5_CONFIG). It is
imported only for GSSAPI. It asks the KDC on the thread that makes the token: a slow KDC delays the connections of that
producer, and nothing else. A keytab's tickets are in an in-memory cache, shared by all connections of the process with
that principal and keytab; when a session begins, the library gets new ones if they have expired or are past half of
their life.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_sink.errors import AuthenticationError, ConfigError, KafkaSinkError, TransportError, foreign_text
from kafka_sink.errors.table.brokers import KERBEROS_LOGIN
from kafka_sink.errors.table.writes import PACKAGE_MISSING
from kafka_sink.kafka.auth.login import read_login_options
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.options import SecurityOptions
from kafka_sink.options.host.files import locate_file, read_file, resolve_references
from kafka_sink.options.host.operator_rules import check_file_is_allowed, check_store_is_allowed
from kafka_sink.security.kerberos import GssapiExchange, KerberosLogin, kerberos_login

if TYPE_CHECKING:
    import gssapi

INSTALL = "pip install 'pykafka-sink[kerberos]'"
# The library's error codes, relative to the first one of its table (krb5.h).
_TABLE = -1765328384
_CLIENT_UNKNOWN, _SERVER_UNKNOWN, _WRONG_KEY, _EXPIRED, _CLOCKS = 6, 7, 24, 32, 37
_BAD_INTEGRITY = 31
# Also returned if a keytab has no key for the principal.
_NO_CACHE = 195
_DEFECTIVE_TOKEN = 9 << 16  # a major status (RFC 2744)
# The realm's server is down, cannot be reached, or its name is not resolved at the moment.
_PASSING = frozenset((29, 156, 220))
_HINTS = {
    _CLIENT_UNKNOWN: "check the principal",
    _SERVER_UNKNOWN: "check sasl.kerberos.service.name, and the host name that the broker advertises",
    _WRONG_KEY: "the keytab does not have the principal's current key",
    _EXPIRED: "the ticket has expired: get a new one with kinit, or use a keytab",
    _CLOCKS: "compare the clocks of this host, the KDC and the broker",
}
_HINT = "check principal, keytab or ticket cache (klist shows them), and krb5.conf"


def kerberos_authenticator(options: SecurityOptions) -> Authenticator:
    check_library()

    def next_exchange(host: str) -> GssapiExchange:
        principal, keytab = options.sasl_kerberos_principal, options.sasl_kerberos_keytab
        if principal is not None:
            principal = resolve_references("sasl.kerberos.principal", principal)
        module = None if options.sasl_jaas_config is None else read_login_options(options)
        login = kerberos_login(options.sasl_kerberos_service_name, principal, keytab, module)
        return GssapiExchange(KerberosContext(login, host))

    return next_exchange


def check_library() -> None:
    """Raises if the package or the wrapped library cannot be loaded."""
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"sasl.mechanism=GSSAPI needs the package gssapi, which cannot be loaded here ({error}): install it on the "
            f"driver and each executor with {INSTALL}; where it has to be built, that takes a C compiler and the "
            "headers of Kerberos (Debian: libkrb5-dev)",
            PACKAGE_MISSING,
        ) from None


class KerberosContext:
    """A client's side of one security context; `host` is the broker's advertised host."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        import gssapi

        self._login = login
        self._target = f"{login.service}@{host}"
        self._errors: type[gssapi.exceptions.GSSError] = gssapi.exceptions.GSSError
        flag = gssapi.RequirementFlag
        try:
            target = gssapi.Name(self._target, gssapi.NameType.hostbased_service)
            self._context = gssapi.SecurityContext(
                name=target,
                creds=_acquire_credentials(login),
                mech=gssapi.MechType.kerberos,
                # Mutual: the server proves that it has the service's key. Integrity: the last message is signed.
                flags=flag.mutual_authentication | flag.integrity,
                usage="initiate",
            )
        except self._errors as error:
            raise self._make_error("no credentials", error) from None

    @property
    def is_established(self) -> bool:
        return self._context.complete

    def step(self, token: bytes | None) -> bytes | None:
        try:
            return self._context.step(token)
        except self._errors as error:
            raise self._make_error("no ticket" if token is None else "no proof", error) from None

    def wrap(self, message: bytes) -> bytes:
        try:
            return self._context.wrap(message, False).message
        except self._errors as error:
            raise self._make_error("no answer", error) from None

    def unwrap(self, message: bytes) -> bytes:
        try:
            return self._context.unwrap(message).message
        except self._errors as error:
            raise self._make_error("no offer", error) from None

    def initiator(self) -> str:
        return str(self._context.initiator_name)

    def _make_error(self, what: str, error: gssapi.exceptions.GSSError) -> KafkaSinkError:
        # The library's numbers are signed, those of the package are not.
        number = (error.min_code - _TABLE) % (1 << 32)
        # For bytes that are no token only the major status is set; the minor one is "Success".
        is_major = error.min_code == 0 or error.maj_code == _DEFECTIVE_TOKEN
        statuses = error.get_all_statuses(error.maj_code if is_major else error.min_code, is_major)
        if number == _BAD_INTEGRITY and what == "no credentials":
            number = _WRONG_KEY  # a KDC's answer to that without pre-authentication
        said = foreign_text("; ".join(statuses))
        if number == _NO_CACHE and self._login.keytab is not None:
            said = f"the keytab {self._login.keytab} has no key for the principal {self._login.principal}"
        if number in _PASSING:
            return TransportError(f"Kerberos gives {what} for {self._target}: {said}", KERBEROS_LOGIN)
        return AuthenticationError(
            f"Kerberos gives {what} for {self._target}: {said}. It is not tried again: {_HINTS.get(number, _HINT)}",
            KERBEROS_LOGIN,
        )


def _acquire_credentials(login: KerberosLogin) -> gssapi.Credentials:
    """Acquired anew each time: a cache or a keytab may have been replaced."""
    import gssapi

    name = None
    if login.principal is not None:
        name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
    store: dict[str, str] = {}
    if login.keytab is not None:
        keytab = _resolve_keytab(login.keytab)
        shared = hashlib.sha256(f"{login.principal}\0{keytab}".encode()).hexdigest()
        store = {"client_keytab": keytab, "ccache": f"MEMORY:pykafka-sink-{shared}"}
    elif login.ticket_cache is not None:
        store = {"ccache": _resolve_cache(login.ticket_cache)}
    return gssapi.Credentials(name=name, mechs=[gssapi.MechType.kerberos], usage="initiate", store=store or None)


def _resolve_keytab(name: str) -> str:
    """FILE:/path, with the path resolved like other files; other types (MEMORY:) unchanged."""
    kind, path = _split_name(name)
    if kind not in ("", "FILE", "WRFILE"):
        check_store_is_allowed("keyTab")
        return name
    return _resolve_file("keyTab", path)


def _resolve_cache(name: str) -> str:
    """The same; DIR:/folder, or DIR::/folder/file of it, is a folder, which the library looks into."""
    kind, path = _split_name(name)
    if kind == "DIR":
        check_file_is_allowed("ticketCache", Path(path.removeprefix(":")))
        return name
    if kind not in ("", "FILE"):
        check_store_is_allowed("ticketCache")  # KEYRING:, KCM:, MEMORY:
        return name
    return _resolve_file("ticketCache", path)


def _split_name(name: str) -> tuple[str, str]:
    kind, colon, path = name.partition(":")
    return (kind.upper(), path) if colon and "/" not in kind else ("", name)


def _resolve_file(what: str, path: str) -> str:
    read_file(what, path)  # the library would report an unreadable file as empty
    return f"FILE:{locate_file(what, path)}"
