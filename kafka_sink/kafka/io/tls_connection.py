"""One connection with TLS, with the interface of a plain one.

Established means: TCP connected, handshake done, the broker's certificate verified. None of these steps blocks; each
returns what to wait for. TLS records have at most 16 KiB, so small buffers are joined before encryption; large ones are
passed as they are.

A certificate error is final, an `AuthenticationError`: a retry would change nothing. A temporary failure, such as a
connection lost during the handshake, is a `TransportError` like any other. With TLS 1.3 a broker refuses the client's
certificate only after the handshake, with an alert instead of the first response.
"""

from __future__ import annotations

import selectors
import socket
import ssl
from itertools import islice

from kafka_sink.errors import AuthenticationError, TransportError
from kafka_sink.errors.table.brokers import CERTIFICATE_REFUSED, TLS_MISMATCH
from kafka_sink.kafka.io.plain_connection import BUFFERS_PER_CALL, PlainConnection, look_for_descriptor
from kafka_sink.kafka.io.tls import TlsContexts

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
RECORD_BYTES = 16 * 1024
SEND_BYTES = 4 * RECORD_BYTES

# OpenSSL's certificate errors (X509_V_ERR_...), and what to do about them.
_TRUST = (
    "set ssl.truststore.location (or ssl.truststore.certificates) to the certificate of the authority that signed it"
)
_CERTIFICATE_FAULTS = {
    3: "there is no list of revoked certificates from an authority of its chain: ssl.crl.location has to hold one of "
    "each, the root included",
    9: "it is not valid yet: compare the clocks of this host and of whoever made it",
    10: "it has expired: the broker needs a new one",
    12: "the list of revoked certificates is out of date: renew the file of ssl.crl.location",
    18: f"it is self-signed and not trusted here: {_TRUST}",
    19: f"it ends in an authority that is not trusted here: {_TRUST}",
    20: f"it was signed by an authority that is not trusted here: {_TRUST}",
    21: f"its chain is incomplete: {_TRUST}, or have the broker send the whole chain",
    23: "it was revoked, or an authority of its chain was: the broker needs a new one",
    24: "it was signed by a certificate that is no authority",
    26: "it is not meant for servers: its extended key usage has to contain serverAuth",
    62: "it is for another host name",
    64: "it is for another address",
}
# What OpenSSL also says if it cannot open the file of an authority, or of its list, in a folder of them.
_NOT_FOUND = (3, 18, 19, 20, 21)
# Alerts of a broker about the client's certificate.
_OWN_CERTIFICATE_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker demands a client certificate: set ssl.keystore.location, or "
    "ssl.keystore.certificate.chain and ssl.keystore.key",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker does not accept the client's certificate, or demands one",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the client's certificate was revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept the client's certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the broker does not accept this kind of client certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the authority that signed the client's certificate",
    "TLSV1_ALERT_ACCESS_DENIED": "the broker denies access to this client certificate",
}
# Both sides use TLS, but have no common version or cipher.
_NO_COMMON_GROUND = {
    "TLSV1_ALERT_PROTOCOL_VERSION": "no TLS version is allowed by both sides: see ssl.enabled.protocols",
    "UNSUPPORTED_PROTOCOL": "no TLS version is allowed by both sides: see ssl.enabled.protocols",
    "NO_PROTOCOLS_AVAILABLE": "no TLS version is allowed by both sides: see ssl.enabled.protocols",
    "WRONG_SSL_VERSION": "no TLS version is allowed by both sides: see ssl.enabled.protocols",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker found nothing in common: it may demand a client certificate "
    "(ssl.keystore.location), or other suites than ssl.cipher.suites",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "the broker wants stronger cipher suites than ssl.cipher.suites",
    "NO_CIPHERS_AVAILABLE": "ssl.cipher.suites leaves no cipher",
}
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")


class TlsConnection(PlainConnection):
    def __init__(self, connection_id: int, opened: socket.socket, peer: str, host: str, contexts: TlsContexts) -> None:
        super().__init__(connection_id, opened, peer)
        self._host = host
        self._contexts = contexts
        self._tls: ssl.SSLSocket | None = None
        # An error after bytes that must be reported first.
        self._end: OSError | None = None

    @property
    def has_unread(self) -> bool:
        return self._end is not None or (self._tls is not None and self._tls.pending() > 0)

    def establish(self) -> int:
        if self._tls is None:
            super().establish()
            context = self._contexts.current()
            # Takes over the descriptor of the plain socket.
            self._tls = context.wrap_socket(
                self.socket, server_hostname=self._host.rstrip("."), do_handshake_on_connect=False
            )
            self.socket = self._tls
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return _READ
        except ssl.SSLWantWriteError:
            return _WRITE
        return 0

    def receive_into(self, buffer: memoryview) -> int:
        """Fills the buffer from as many TLS records as are available."""
        assert self._tls is not None
        if self._end is not None:
            raise self._end
        received = 0
        while received < len(buffer):
            try:
                count = self._tls.recv_into(buffer[received:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if received:
                    return received
                raise BlockingIOError from None
            except OSError as error:
                if not received:
                    raise
                self._end = error
                return received
            if count == 0:
                return received
            received += count
        return received

    def send(self) -> int:
        assert self._tls is not None
        first = self.outgoing[0]
        # After a call that would block, OpenSSL requires the same bytes again: `outgoing` still begins with them.
        data = first[:SEND_BYTES] if len(first) >= RECORD_BYTES else self._gather_buffers()
        try:
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def _gather_buffers(self) -> bytes:
        size, parts = 0, []
        for part in islice(self.outgoing, BUFFERS_PER_CALL):
            parts.append(part[: SEND_BYTES - size])
            size += len(parts[-1])
            if size >= SEND_BYTES:
                break
        return b"".join(parts)

    def failure_of(self, error: Exception | None) -> TransportError | AuthenticationError:
        if isinstance(error, ssl.SSLCertVerificationError):
            exhausted = look_for_descriptor(self.peer) if error.verify_code in _NOT_FOUND else None
            return exhausted or AuthenticationError(self._certificate_error_text(error), CERTIFICATE_REFUSED)
        if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
            error = None
        if isinstance(error, ssl.SSLError):
            return self._tls_error(error.reason or "")
        if self.is_connecting and self._tls is not None:
            text = super().failure_of(error)
            return TransportError(f"{text} during the TLS handshake; does this listener speak TLS?", TLS_MISMATCH)
        return super().failure_of(error)

    def _certificate_error_text(self, error: ssl.SSLCertVerificationError) -> str:
        fault = _CERTIFICATE_FAULTS.get(error.verify_code, error.verify_message)
        text = f"the certificate of {self.peer} does not prove that it is {self._host}: {fault}"
        if error.verify_code in (62, 64):
            text += (
                f" ({error.verify_message.rstrip('.')}). Connect by a name that it contains, or have it contain this"
            )
        return f"{text}. Nothing was sent to it"

    def _tls_error(self, reason: str) -> TransportError | AuthenticationError:
        if reason in _OWN_CERTIFICATE_ALERTS:
            return AuthenticationError(
                f"{self.peer}: {_OWN_CERTIFICATE_ALERTS[reason]} (TLS alert {reason})", CERTIFICATE_REFUSED
            )
        if reason in _NO_COMMON_GROUND:
            return AuthenticationError(f"{self.peer}: {_NO_COMMON_GROUND[reason]} ({reason})", TLS_MISMATCH)
        if reason in _NO_TLS:
            hint = "choose security.protocol=PLAINTEXT or SASL_PLAINTEXT, or the port of its TLS listener"
            return TransportError(f"{self.peer} does not speak TLS on this port ({reason}): {hint}", TLS_MISMATCH)
        return TransportError(f"{self.peer}: TLS failed ({reason or 'no reason given'})", TLS_MISMATCH)
