# The part of gssapi that this project calls; the package's own types depend on how it was built.

from collections.abc import Iterable, Mapping
from enum import IntFlag
from typing import NamedTuple

from . import exceptions as exceptions

class OID: ...

class MechType:
    kerberos: OID

class NameType:
    hostbased_service: OID
    kerberos_principal: OID

class RequirementFlag(IntFlag):
    mutual_authentication = ...
    integrity = ...

class Name:
    def __init__(self, base: str, name_type: OID | None = ...) -> None: ...

class Credentials:
    def __init__(
        self,
        base: None = ...,
        name: Name | None = ...,
        lifetime: int | None = ...,
        mechs: Iterable[OID] | None = ...,
        usage: str = ...,
        store: Mapping[str, str] | None = ...,
    ) -> None: ...

class WrapResult(NamedTuple):
    message: bytes
    encrypted: bool

class UnwrapResult(NamedTuple):
    message: bytes
    encrypted: bool
    qop: int

class SecurityContext:
    def __init__(
        self,
        base: None = ...,
        token: bytes | None = ...,
        name: Name | None = ...,
        creds: Credentials | None = ...,
        lifetime: int | None = ...,
        flags: int | None = ...,
        mech: OID | None = ...,
        channel_bindings: None = ...,
        usage: str | None = ...,
    ) -> None: ...
    @property
    def complete(self) -> bool: ...
    @property
    def initiator_name(self) -> Name: ...
    def step(self, token: bytes | None = ...) -> bytes | None: ...
    def wrap(self, message: bytes, encrypt: bool) -> WrapResult: ...
    def unwrap(self, message: bytes) -> UnwrapResult: ...
