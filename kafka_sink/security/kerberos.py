"""GSSAPI (RFC 4752) with Kerberos: the login, and the messages of the mutual authentication.

    client   a ticket for the service on that host (AP-REQ)
    server   proof that it has the key of that service (AP-REP)
    client   nothing
    server   wrapped: the security layers that it offers, and its maximum message size
    client   wrapped: no layer, size 0, the name

Tickets, keys and the security context are handled by the Kerberos library (kafka/auth/kerberos.py); this handles the
order of messages and checks the server's. Kafka uses no security layers: encryption is left to TLS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kafka_sink.errors import AuthenticationError, ConfigError
from kafka_sink.errors.table.brokers import LOGIN_OPTIONS
from kafka_sink.security.mechanisms import GSSAPI
from kafka_sink.security.reference import has_reference

SERVICE = "sasl.kerberos.service.name"
# A server's tokens have a few hundred bytes; it must not make the client decrypt megabytes.
MESSAGE_BYTES_MAX = 64 * 1024
# Kerberos needs one response of the server.
TOKENS_MAX = 4
NO_LAYER = 1
LAYERS_BYTES = 4

_SERVICE = re.compile(r"[A-Za-z0-9_.\-]{1,100}")


class SecurityContext(Protocol):
    """A GSSAPI security context. Its methods raise errors of this package only."""

    @property
    def is_established(self) -> bool: ...

    def step(self, token: bytes | None) -> bytes | None: ...

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...

    def initiator(self) -> str: ...


class GssapiExchange:
    mechanism = GSSAPI
    doubt = ""

    def __init__(self, context: SecurityContext) -> None:
        self._context = context
        self._tokens = 0
        self._has_answered = False

    def first(self) -> bytes:
        return self._context.step(None) or b""

    def step(self, challenge: bytes) -> bytes | None:
        if len(challenge) > MESSAGE_BYTES_MAX:
            raise _failure(f"it sent {len(challenge)} bytes, at most {MESSAGE_BYTES_MAX} make sense")
        if self._has_answered:
            if challenge:
                raise _failure("it went on talking after the last message")
            return None
        if not challenge:
            raise _failure("it sent an empty message in the place of its proof")
        if self._context.is_established:
            return self._choose_layer(challenge)
        self._tokens += 1
        if self._tokens > TOKENS_MAX:
            raise _failure(f"it does not come to an end after {TOKENS_MAX} tokens")
        return self._context.step(challenge) or b""

    def _choose_layer(self, challenge: bytes) -> bytes:
        offered = self._context.unwrap(challenge)
        if len(offered) != LAYERS_BYTES:
            raise _failure("its offer of security layers is not one")
        # Java's servers send a size with "no layer", against the RFC; so it is not checked.
        if not offered[0] & NO_LAYER:
            raise _failure("it demands a security layer, and Kafka's protocol has none")
        self._has_answered = True
        return self._context.wrap(bytes((NO_LAYER, 0, 0, 0)) + self._context.initiator().encode())


def _login_error(text: str) -> ConfigError:
    return ConfigError(text, LOGIN_OPTIONS)


def _failure(reason: str) -> AuthenticationError:
    return AuthenticationError(f"{GSSAPI} with the server failed: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """Without `keytab` the ticket comes from a cache: `ticket_cache`, or else the default one of the process."""

    service: str
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


def kerberos_login(
    service: str | None, principal: str | None, keytab: str | None, module: Mapping[str, str] | None
) -> KerberosLogin:
    """From sasl.kerberos.* and the entries of Krb5LoginModule (None: sasl.jaas.config is not set)."""
    of_module = module.get("serviceName") if module is not None else None
    if service is not None and of_module is not None and service != of_module:
        raise _login_error(f"{SERVICE} and serviceName of sasl.jaas.config contradict each other: keep one")
    service = service or of_module
    if not service:
        raise _login_error(f"sasl.mechanism=GSSAPI needs {SERVICE}, the first part of the brokers' Kerberos name")
    if not _SERVICE.fullmatch(service) and not has_reference(service):
        raise _login_error(f"{SERVICE} is not valid: expected a name such as kafka, without host and realm")
    if module is None:
        if keytab is not None and principal is None:
            raise _login_error("sasl.kerberos.keytab needs sasl.kerberos.principal, whose key is taken from it")
        return KerberosLogin(service=service, principal=principal, keytab=keytab)
    for name, value in (("sasl.kerberos.principal", principal), ("sasl.kerberos.keytab", keytab)):
        if value is not None:
            raise _login_error(f"{name} and sasl.jaas.config contradict each other: keep one")
    return _login_from_module(service, module)


def _login_from_module(service: str, module: Mapping[str, str]) -> KerberosLogin:
    flags = {name: value.strip().lower() == "true" for name, value in module.items()}
    wants_keytab, wants_cache = flags.get("useKeyTab", False), flags.get("useTicketCache", False)
    # Java refuses these, too.
    for name, switch, is_on in (("keyTab", "useKeyTab", wants_keytab), ("ticketCache", "useTicketCache", wants_cache)):
        if name in module and not is_on:
            raise _login_error(f"sasl.jaas.config: {name} needs {switch}=true")
    if module.get("isInitiator", "true").strip().lower() == "false":
        raise _login_error("sasl.jaas.config: isInitiator=false is for servers, leave it out")
    if flags.get("renewTGT", False):
        raise _login_error(
            "sasl.jaas.config: renewTGT=true is not supported: use a keytab, or let kinit -R or k5start renew the cache"
        )
    principal = module.get("principal") or None
    # With both, Java uses the cached ticket if there is one: of the same principal, but it expires earlier.
    if wants_keytab:
        for name in ("keyTab", "principal"):
            if not module.get(name):
                raise _login_error(f"sasl.jaas.config: useKeyTab=true needs {name}")
        return KerberosLogin(service=service, principal=principal, keytab=module["keyTab"])
    if not wants_cache:
        raise _login_error(
            "sasl.jaas.config: Krb5LoginModule needs useKeyTab=true or useTicketCache=true: a password prompt is not "
            "possible here"
        )
    return KerberosLogin(service=service, principal=principal, ticket_cache=module.get("ticketCache") or None)
