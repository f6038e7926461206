"""One HTTP request to an endpoint that gives out tokens or credentials: time limits, no redirects, a bounded answer."""

from __future__ import annotations

import http.client
import ipaddress
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kafka_sink.errors import ConfigError, TransportError
from kafka_sink.frozen import frozen
from kafka_sink.options import ProducerOptions
from kafka_sink.runtime.tls import endpoint_context


@frozen
class Answer:
    status: int
    body: bytes = field(repr=False)

    @property
    def is_good(self) -> bool:
        return self.status < 300

    @property
    def is_for_now(self) -> bool:
        """A trouble of the endpoint, not of what was asked."""
        return self.status == 429 or self.status >= 500


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Credentials go to the address that was configured and to no other."""

    def redirect_request(self, *_arguments: Any, **_more: Any) -> None:
        return None


class _Https(urllib.request.HTTPSHandler):
    """Connecting and reading have time limits of their own."""

    def __init__(self, context: ssl.SSLContext, read_timeout_s: float) -> None:
        super().__init__(context=context)
        self._tls = context
        self._read_timeout_s = read_timeout_s

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, /, **more: Any) -> http.client.HTTPSConnection:
        read_timeout_s = self._read_timeout_s

        class Connection(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                self.sock.settimeout(read_timeout_s)

        return Connection(host, context=self._tls, **more)


def ask(
    source: str,
    options: ProducerOptions,
    url: str,
    *,
    bytes_max: int,
    timeout_ms: int,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    method: str | None = None,
) -> Answer:
    """`source` names the endpoint in errors; `timeout_ms` is the default of both time limits."""
    is_https = url.startswith("https:")
    connect_s, read_s = (
        (timeout_ms if each is None else each) / 1000
        for each in (options.sasl_login_connect_timeout_ms, options.sasl_login_read_timeout_ms)
    )
    # What is not encrypted must not go through somebody else's hands.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler(None if is_https else {}), _NoRedirect()]
    if is_https:
        handlers.append(_Https(endpoint_context(options), read_s))
    opener = urllib.request.build_opener(*handlers)
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)
    try:
        with opener.open(request, timeout=connect_s if is_https else read_s) as answer:
            return Answer(answer.status, answer.read(bytes_max + 1))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _read(error, bytes_max))
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise TransportError(f"{source} did not answer: {_why(error)}") from None


def _read(error: urllib.error.HTTPError, bytes_max: int) -> bytes:
    """The body of a refusal may break off; the status says enough."""
    try:
        return error.read(bytes_max)
    except (OSError, ValueError, http.client.HTTPException):
        return b""


def _why(error: Exception) -> str:
    if isinstance(error, http.client.HTTPException):
        return f"{type(error).__name__}, that is no HTTP"  # its text would repeat what the peer sent
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


def check_is_safe(what: str, url: str) -> None:
    """For an address that secrets are sent to."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_this_host(parts.hostname or ""):
        return
    raise ConfigError(
        f"{what} must begin with https://, because secrets are sent there; http:// is taken for an address of this "
        "host only, such as 127.0.0.1"
    )


def _is_this_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """Without what may be secret in it: user and query."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{parts.path}"
