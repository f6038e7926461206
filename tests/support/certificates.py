"""Certificate authorities for tests, with valid certificates and some with one defect each. All files are PEM."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.timezone.utc)
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """`both` holds key and chain in one file; the key is encrypted if there was a password."""

    certificate: x509.Certificate
    chain: Path
    key: Path
    both: Path


class Authority:
    def __init__(self, folder: Path, name: str = "authority", signed_by: Authority | None = None) -> None:
        self._folder = folder
        # The certificates between what it issues and the root, in PEM.
        self._above = b""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        usage = _usage(signs_certificates=True)
        issuer = signed_by or self
        builder = self._builder(self._name, self._key.public_key(), NOW - DAY, NOW + 30 * DAY, issuer._name)
        builder = builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._certificate = builder.add_extension(identifier, critical=False).sign(issuer._key, hashes.SHA256())
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def text(self) -> str:
        return self.path.read_text()

    def issue_authority(self, name: str) -> Authority:
        """An intermediate authority. What it issues has its certificate in `chain`."""
        made = Authority(self._folder, name, signed_by=self)
        made._above = made._certificate.public_bytes(serialization.Encoding.PEM) + self._above
        return made

    def issue(
        self,
        name: str,
        *hosts: str,
        valid_from: datetime.datetime = NOW - DAY,
        valid_until: datetime.datetime = NOW + 30 * DAY,
        is_for_clients: bool = False,
        is_self_signed: bool = False,
        password: str | None = None,
    ) -> Issued:
        """Issues a certificate for these hosts, which are names or addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key.public_key(), valid_from, valid_until, subject if is_self_signed else None)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if is_for_clients else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        certificate = builder.sign(key if is_self_signed else self._key, hashes.SHA256())
        chain = certificate.public_bytes(serialization.Encoding.PEM) + self._above
        hiding = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hiding)
        paths = [self._folder / f"{name}-{part}.pem" for part in ("chain", "key", "both")]
        for path, content in zip(paths, (chain, private, private + chain), strict=True):
            path.write_bytes(content)
        return Issued(certificate, *paths)

    @property
    def certificate(self) -> x509.Certificate:
        return self._certificate

    def revoke(self, *issued: Issued | Authority) -> Path:
        """Writes a revocation list that contains these certificates."""
        builder = x509.CertificateRevocationListBuilder(self._name, NOW - DAY, NOW + DAY)
        for each in issued:
            number = each.certificate.serial_number
            builder = builder.add_revoked_certificate(x509.RevokedCertificateBuilder(number, NOW - DAY).build())
        path = self._folder / f"revoked-{self.path.stem}-{len(issued)}.pem"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return path

    def _builder(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        valid_from: datetime.datetime,
        valid_until: datetime.datetime,
        issuer: x509.Name | None = None,
    ) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            issuer or self._name, subject, public_key, x509.random_serial_number(), valid_from, valid_until
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
