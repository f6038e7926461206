"""TLS contexts made from options, and rebuilt when one of their files, or a value behind a reference, has changed.

So a certificate replaced on disk is used by the next connection without a restart; open connections keep theirs. All
TLS files are read here, and every error names the option.
"""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from kafka_sink.errors import ConfigError, KafkaSinkError, TransportError, no_descriptor_error
from kafka_sink.errors.table.brokers import KEY_FILE
from kafka_sink.errors.table.writes import PACKAGE_MISSING
from kafka_sink.options import SecurityOptions
from kafka_sink.options.host.files import locate_file, read_file, resolve_references
from kafka_sink.options.values import TLS_13_SUITES, conversion_hint

_LOGGER = logging.getLogger("kafka_sink")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Suites in which the broker proves nothing or nothing is encrypted, even if the list has them (ALL, aNULL).
_NEVER = ("!aNULL", "!eNULL")
_PEM = b"-----BEGIN "
# The first byte of DER-encoded data, such as PKCS12.
_DER = b"\x30"
_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
# Options that take PEM only, and OpenSSL's command that converts their DER.
_CONVERTERS = {"ssl.certificate.location": "x509", "ssl.key.location": "pkey", "ssl.crl.location": "crl"}
_FILE_OPTIONS = ("truststore", "keystore", "certificate", "key", "crl")
# Options whose text may be a reference.
_TEXT_OPTIONS = (
    "truststore.certificates", "truststore.password", "keystore.certificate.chain", "keystore.key",
    "keystore.password", "key.password",
)  # fmt: skip


class TlsContexts:
    """`current()` for each new connection."""

    def __init__(self, options: SecurityOptions) -> None:
        self._options = options
        self._seen = _look_at_sources(options)
        self._context = tls_context(options)

    def current(self) -> ssl.SSLContext:
        """Uses what has changed, unless it is invalid: a file may be in the middle of being written."""
        now = _look_at_sources(self._options)
        if now != self._seen:
            try:
                self._context = tls_context(self._options)
                # Not after an error, whose cause may be over although none of these changes again.
                self._seen = now
            except (ConfigError, TransportError) as error:
                _LOGGER.warning("changed files for TLS are not used, the former ones are: %s", error)
        return self._context


def tls_context(options: SecurityOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _choose_versions(context, options)
    _choose_trust(context, options)
    if options.ssl_crl_location is not None:
        lists = _read_pem("ssl.crl.location", options.ssl_crl_location, "crl")
        _load_trust(context, f"ssl.crl.location={options.ssl_crl_location}", lists)
        # Each certificate of the chain: a revoked authority could have signed anything.
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    _load_own_certificate(context, options)
    context.check_hostname = bool(options.ssl_endpoint_identification_algorithm)
    if not options.enable_ssl_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def endpoint_context(options: SecurityOptions) -> ssl.SSLContext:
    """For a token endpoint: always verified, by the system's trusted authorities and those of the options.

    Without the lists of revoked certificates: they are those of the brokers' authorities, and OpenSSL refuses every
    certificate whose authority has none.
    """
    context = ssl.create_default_context()
    # Python 3.13 turned on a check of form that many private authorities fail: an authority that is good enough for
    # the brokers is so here, too.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if options.ssl_truststore_certificates is not None or options.ssl_truststore_location is not None:
        _choose_trust(context, options)
    return context


def _choose_versions(context: ssl.SSLContext, options: SecurityOptions) -> None:
    versions = [each for each in options.ssl_enabled_protocols if each <= options.ssl_protocol]
    suites = options.ssl_cipher_suites
    if suites:
        older = [each for each in suites if each not in TLS_13_SUITES]
        # As in Java: a version without a suite is not used.
        versions = [each for each in versions if (older if each == "TLSv1.2" else len(older) < len(suites))]
        if not versions:
            raise ConfigError("ssl.cipher.suites has no suite for the versions of ssl.enabled.protocols", KEY_FILE)
        try:
            context.set_ciphers(":".join((*(older or ("DEFAULT",)), *_NEVER)))
        except ssl.SSLError:
            raise ConfigError("ssl.cipher.suites: OpenSSL knows none of these suites", KEY_FILE) from None
    context.minimum_version, context.maximum_version = _VERSIONS[versions[0]], _VERSIONS[versions[-1]]


def _choose_trust(context: ssl.SSLContext, options: SecurityOptions) -> None:
    if options.ssl_truststore_certificates is not None:
        text = resolve_references("ssl.truststore.certificates", options.ssl_truststore_certificates)
        _load_trust(context, "ssl.truststore.certificates", text.encode())
    elif options.ssl_truststore_location is not None:
        name = options.ssl_truststore_location
        path = locate_file("ssl.truststore.location", name)
        if path.is_dir():
            context.load_verify_locations(capath=path)
        else:
            password = options.ssl_truststore_password
            trusted = _read_pem("ssl.truststore.location", name, "truststore", password)
            _load_trust(context, f"ssl.truststore.location={name}", trusted)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_trust(context: ssl.SSLContext, option: str, content: bytes) -> None:
    try:
        # Via a file: text passed directly may contain only certificates, a file also revocation lists.
        with _temporary_file(content) as path:
            context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as error:
        text = f"{option} holds no certificate that OpenSSL can read: {_reason(error)}"
        raise _unusable_error(option, error, text) from None


def _load_own_certificate(context: ssl.SSLContext, options: SecurityOptions) -> None:
    """OpenSSL reads key and certificates only from files; those given as text are written to an in-memory file."""
    parts: list[bytes] = []
    named: list[str] = []
    for name, location, store_password in (
        ("ssl.keystore.location", options.ssl_keystore_location, options.ssl_keystore_password),
        ("ssl.certificate.location", options.ssl_certificate_location, None),
        ("ssl.key.location", options.ssl_key_location, None),
    ):
        if location is not None:
            parts.append(_read_pem(name, location, "keystore", store_password))
            named.append(f"{name}={location}")
    for name, text in (
        ("ssl.keystore.certificate.chain", options.ssl_keystore_certificate_chain),
        ("ssl.keystore.key", options.ssl_keystore_key),
    ):
        if text is not None:
            parts.append(resolve_references(name, text).encode())
            named.append(name)
    if not parts:
        return
    password = options.ssl_key_password
    word = None if password is None else resolve_references("ssl.key.password", password)
    try:
        with _temporary_file(b"\n".join(parts)) as path:
            # Without this OpenSSL would prompt for a password on the terminal.
            context.load_cert_chain(path, password=lambda: word or "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = _reason(error)
        hint = "is the key encrypted, and ssl.key.password the right password for it?"
        if "KEY_VALUES_MISMATCH" in reason:
            hint = "the key does not belong to the first certificate"
        options_named = " and ".join(named)
        text = f"{options_named}: OpenSSL cannot use this key and certificate ({reason}): {hint}"
        raise _unusable_error(options_named, error, text) from None


def _unusable_error(what: str, error: Exception, text: str) -> KafkaSinkError:
    """`text` blames the content. It may be good, and this process short of descriptors, also of OpenSSL's own one."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        exhausted = no_descriptor_error(what, error)
        if exhausted is not None:
            return exhausted
    return ConfigError(text, KEY_FILE)


def _read_pem(option: str, name: str, side: str, password: str | None = None) -> bytes:
    """`password`: of the file; PEM has none."""
    content = read_file(option, name)
    if content.startswith(_JKS):
        raise ConfigError(f"{option}={name} is a JKS file: {conversion_hint('JKS', name, side)}", KEY_FILE)
    if content.startswith(_DER) and _PEM not in content:
        if option in _CONVERTERS:
            command = f"openssl {_CONVERTERS[option]} -inform DER -in {name} -out {side}.pem"
            raise ConfigError(
                f"{option}={name} is no file of PEM: convert DER with `{command}`; PKCS12 is for ssl.keystore.location",
                KEY_FILE,
            )
        word = None if password is None else resolve_references(f"ssl.{side}.password", password)
        return pkcs12_to_pem(f"{option}={name}", name, side, content, word)
    if _PEM not in content:
        raise ConfigError(
            f"{option}={name} is no file of PEM: it has no line that begins with {_PEM.decode().strip()}", KEY_FILE
        )
    if password is not None:
        raise ConfigError(
            f"{option}={name} is a file of PEM, which has no password: leave out ssl.{side}.password. That of an "
            "encrypted key is ssl.key.password",
            KEY_FILE,
        )
    return content


def pkcs12_to_pem(what: str, name: str, side: str, content: bytes, password: str | None) -> bytes:
    """`what` names the option and the file, `side` is truststore or keystore.

    Needs the package cryptography, because Python's own `ssl` reads PEM only. The key stays in memory.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise ConfigError(
            f"{what} is a PKCS12 file, or DER, and the package cryptography, which reads it, is missing: install "
            f"pykafka-sink[pkcs12] (on the executors, too), or {conversion_hint('PKCS12', name, side)}",
            PACKAGE_MISSING,
        ) from None
    pem = serialization.Encoding.PEM
    try:
        store = load_pkcs12(content, None if password is None else password.encode())
        certificates = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
        parts = [certificate.public_bytes(pem) for certificate in certificates]
        if store.key is not None:
            kind, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            parts.insert(0, store.key.private_bytes(pem, kind, plain))
    except UnsupportedAlgorithm as error:
        raise ConfigError(f"{what} cannot be used by the package cryptography: {error}", KEY_FILE) from None
    except ValueError:
        text = f"{what} cannot be opened as PKCS12: is ssl.{side}.password the right password for it, and is it whole?"
        if side == "truststore":
            text += f" A certificate in DER is converted by `openssl x509 -inform DER -in {name} -out {side}.pem`"
        raise ConfigError(text, KEY_FILE) from None
    if not parts:
        raise ConfigError(f"{what} holds neither a key nor a certificate", KEY_FILE)
    return b"".join(parts)


@contextmanager
def _temporary_file(content: bytes) -> Iterator[str]:
    """A file readable by no other user and deleted afterwards; in memory where the system supports it."""
    descriptor = _memory_file()
    if descriptor is not None:
        try:
            with open(descriptor, "wb", closefd=False) as opened:
                opened.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as opened_file:
        opened_file.write(content)
        opened_file.flush()
        yield opened_file.name


def _memory_file() -> int | None:
    """None: this system has none, or forbids it, as sandboxes of containers may."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        return os.memfd_create("pem")
    except OSError as error:
        if no_descriptor_error("pem", error) is not None:
            raise
        return None


def _look_at_sources(options: SecurityOptions) -> tuple[object, ...]:
    """It differs if a file, or a value behind a reference, has changed."""
    state: list[object] = []
    for side in _FILE_OPTIONS:
        name = getattr(options, f"ssl_{side}_location")
        try:
            found = None if name is None else locate_file(f"ssl.{side}.location", name).stat()
        except (ConfigError, OSError):
            # It is being replaced. Reading it raises the error.
            found = None
        state.append(found and (found.st_ino, found.st_mtime_ns, found.st_size))
    for each in _TEXT_OPTIONS:
        text = getattr(options, f"ssl_{each.replace('.', '_')}")
        try:
            state.append(text and hash(resolve_references(f"ssl.{each}", text)))
        except (ConfigError, TransportError):
            state.append(None)
    return tuple(state)


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__)
