"""Reads keys and certificates of a PKCS12 file as PEM. Needs the package cryptography: `pykafka-sink[pkcs12]`.

Python's own `ssl` reads PEM only. The key stays in memory: it is passed to OpenSSL without being written to disk.
"""

from __future__ import annotations

from kafka_sink.error_table.brokers import KEY_FILE
from kafka_sink.error_table.writes import PACKAGE_MISSING
from kafka_sink.errors import ConfigError
from kafka_sink.options.values import conversion_hint

# The first byte of DER-encoded data.
DER = b"\x30"


def pkcs12_to_pem(what: str, name: str, side: str, content: bytes, password: str | None) -> bytes:
    """`what` names the option and the file, `side` is truststore or keystore."""
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
