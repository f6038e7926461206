"""One HTTP request: to a token endpoint, or to a schema registry.

It has timeouts, follows no redirects, and limits the size of the response.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from kafka_sink.errors import ConfigError, TransportError, foreign_text
from kafka_sink.errors.table.entry import ErrorEntry
from kafka_sink.frozen import frozen
from kafka_sink.options import SecurityOptions
from kafka_sink.security.this_host import is_loopback

PIECE_BYTES = 64 * 1024


@frozen
class HttpAnswer:
    status: int
    body: bytes = field(repr=False)
    content_type: str = ""
    retry_after: str = ""

    @property
    def is_good(self) -> bool:
        return self.status < 300

    @property
    def is_retriable(self) -> bool:
        """The endpoint has a problem, not the request: the same request may succeed later."""
        return self.status == 429 or self.status >= 500


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Credentials go to the address that was configured and to no other."""

    def redirect_request(self, *_arguments: Any, **_more: Any) -> None:
        return None


class _AnswerBytes(io.RawIOBase):
    """Reads from a socket with one deadline for everything. A socket's timeout is per read, and a peer may send one
    byte at a time: of the status, of a header, of a chunk size."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, read_timeout_s: float) -> None:
        self._raw = raw
        self._socket = sock
        self._given_up_s = time.monotonic() + read_timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_s = self._given_up_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


C = TypeVar("C", bound=http.client.HTTPConnection)


def _connection_class(base: type[C], read_timeout_s: float) -> type[C]:
    """With separate timeouts for connecting, which is that of the request, and for everything after it."""

    class Answer(http.client.HTTPResponse):
        def __init__(self, sock: Any, *positional: Any, **more: Any) -> None:
            super().__init__(sock, *positional, **more)
            self.fp = io.BufferedReader(_AnswerBytes(self.fp.detach(), sock, read_timeout_s))

    class Connection(base):  # type: ignore[misc, valid-type]
        response_class = Answer

        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(read_timeout_s)

    return Connection


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext | None, read_timeout_s: float) -> None:
        super().__init__(context=context)
        self._tls = context
        self._read_timeout_s = read_timeout_s

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_connection_class(http.client.HTTPConnection, self._read_timeout_s), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connection = _connection_class(http.client.HTTPSConnection, self._read_timeout_s)
        return self.do_open(connection, req, context=self._tls)


def login_timeouts_ms(options: SecurityOptions, default_ms: int) -> tuple[int, int]:
    """For connecting, and for the response."""
    connect_ms, read_ms = options.sasl_login_connect_timeout_ms, options.sasl_login_read_timeout_ms
    return default_ms if connect_ms is None else connect_ms, default_ms if read_ms is None else read_ms


def ask(
    source: str,
    context: Callable[[], ssl.SSLContext],
    url: str,
    *,
    bytes_max: int,
    timeouts_ms: tuple[int, int],
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    method: str | None = None,
    no_answer: ErrorEntry | None = None,
) -> HttpAnswer:
    """`source` names the endpoint in errors; `context` makes the TLS context, if needed; `timeouts_ms` are for
    connecting and for the response; `no_answer` is the name of the error if there is none."""
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    is_https = request.type == "https"
    connect_s, read_s = (each / 1000 for each in timeouts_ms)
    # An unencrypted request must not go through a proxy.
    proxy = urllib.request.ProxyHandler(None if is_https else {})
    handler = _Handler(context() if is_https else None, read_s)
    opener = urllib.request.build_opener(proxy, _NoRedirect(), handler)
    try:
        with opener.open(request, timeout=connect_s) as answer:
            return _make_answer(answer.status, answer.headers, _read(answer, bytes_max + 1))
    except urllib.error.HTTPError as error:
        with error:
            return _make_answer(error.code, error.headers, _read_refusal(error, bytes_max))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise TransportError(f"{source} did not answer: {_describe_failure(error)}", no_answer) from None


def _make_answer(status: int, headers: Any, body: bytes) -> HttpAnswer:
    return HttpAnswer(status, body, str(headers.get("Content-Type") or ""), str(headers.get("Retry-After") or ""))


def _read(answer: Any, bytes_max: int) -> bytes:
    # None: the end is marked in another way.
    told = answer.length
    pieces, count = [], 0
    while count < bytes_max:
        piece = answer.read1(min(PIECE_BYTES, bytes_max - count))
        if not piece:
            if told is not None and count < told:
                raise OSError("the answer broke off")
            break
        pieces.append(piece)
        count += len(piece)
    return b"".join(pieces)


def _read_refusal(error: urllib.error.HTTPError, bytes_max: int) -> bytes:
    """The body of an error response may be cut off; the status is enough."""
    try:
        return _read(error, bytes_max)
    except (OSError, ValueError, http.client.HTTPException):
        return b""


def _describe_failure(error: Exception) -> str:
    if isinstance(error, OSError):
        reason = getattr(error, "reason", error)
        # A proxy may have said it.
        return foreign_text(str(getattr(reason, "strerror", None) or reason))
    # The texts of the others repeat what was sent or received, secrets among it.
    if isinstance(error, (ValueError, http.client.InvalidURL)):
        return f"{type(error).__name__}: its address, or what is sent to it, does not fit into a request"
    return f"{type(error).__name__}, that is no HTTP"


def check_is_safe(what: str, url: str) -> None:
    """Checks an address to which secrets are sent. It is not shown, because it may contain one itself."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.port != 0 and "@" not in parts.netloc and (parts.path + parts.query).isascii()
    except ValueError:
        is_whole = False
    if not is_whole or not url.strip().isprintable() or " " in url.strip():
        raise ConfigError(
            f"{what} is no address: expected https://host:port/path without a user, without blanks, and with letters "
            "other than ASCII in the host name only"
        )
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return
    raise ConfigError(
        f"{what} must begin with https://, because secrets are sent there; http:// is taken for an address of this "
        "host only, such as 127.0.0.1"
    )


def redact_url(url: str) -> str:
    """Scheme, host, port and path: user and query may contain secrets."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
