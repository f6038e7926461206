"""Access tokens for OAUTHBEARER: from a function of the user's, or from a token endpoint (OIDC client credentials).

The first token is got when the producer or client is made, as in the Java client, so that a wrong secret shows there.
Later ones are got before the current one ends, by a timer: a session of Kafka ends with its token, so a connection that
authenticates again has to find a new token there. It waits for one only when the current one has ended.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import logging
import random
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kafka_sink.errors import AuthenticationError, ConfigError, KafkaSinkError, TransportError
from kafka_sink.options import ProducerOptions
from kafka_sink.runtime.files import looked_up
from kafka_sink.runtime.imported import imported
from kafka_sink.runtime.tls import endpoint_context
from kafka_sink.security.token import ANSWER_BYTES_MAX, error_of_answer, expiry_s, renewal_s, token_of_answer

_LOGGER = logging.getLogger("kafka_sink")
DEFAULT_TIMEOUT_MS = 10_000
# Whatever a token says of its life and an option of waits, nobody is asked more often than this.
RENEWAL_S_MIN, RETRY_S_MIN = 1.0, 0.1
# A token that is good for longer is renewed all the same. Locks cannot wait for ever.
WAIT_S_MAX = 7 * 24 * 3600.0
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
PROVIDER = "sasl.oauthbearer.token.provider"
_CREDENTIALS = "sasl.oauthbearer.client.credentials."


class TokenSource:
    """`get` blocks and returns a new token, or raises."""

    def __init__(self, get: Callable[[], str], options: ProducerOptions) -> None:
        self._get = get
        self._options = options
        self._lock = threading.Lock()
        self._failures = 0
        self._timer: threading.Timer | None = None
        self._take(self._first())

    def __del__(self) -> None:
        timer = getattr(self, "_timer", None)
        if timer is not None:
            timer.cancel()

    def _first(self) -> str:
        """An endpoint that is in trouble is asked again for as long as the longest wait between two tries."""
        wait_s, longest_s = (
            each / 1000
            for each in (self._options.sasl_login_retry_backoff_ms, self._options.sasl_login_retry_backoff_max_ms)
        )
        given_up_s = time.monotonic() + longest_s
        while True:
            try:
                return self._get()
            except TransportError:
                if time.monotonic() + wait_s >= given_up_s:
                    raise
            time.sleep(wait_s)
            wait_s *= 2

    def token(self) -> str:
        with self._lock:
            token, end_s = self._token, self._end_s
        if end_s is not None and time.time() >= end_s:
            # The timer failed again and again, slept with its host, or did not come along through a fork.
            self._take(self._get())
            return self._token
        return token

    def on_renewed(self, token: str | None, trouble: str) -> None:
        """By the timer; None: there is none for now."""
        if token is not None:
            self._take(token)
            return
        _LOGGER.warning("no new token for OAUTHBEARER, the current one is still used: %s", trouble)
        self._failures += 1
        grown_ms = self._options.sasl_login_retry_backoff_ms << min(self._failures - 1, 20)
        self._set_timer(max(min(grown_ms, self._options.sasl_login_retry_backoff_max_ms) / 1000, RETRY_S_MIN))

    def _take(self, token: str) -> None:
        options, now_s, end_s = self._options, time.time(), expiry_s(token)
        with self._lock:
            self._token, self._end_s = token, end_s
            self._failures = 0
        if end_s is not None and end_s > now_s:
            at_s = renewal_s(
                now_s,
                end_s,
                factor=options.sasl_login_refresh_window_factor,
                jitter=random.random() * options.sasl_login_refresh_window_jitter,
                least_s=options.sasl_login_refresh_min_period_seconds,
                buffer_s=options.sasl_login_refresh_buffer_seconds,
            )
            self._set_timer(max(at_s - now_s, RENEWAL_S_MIN))

    def _set_timer(self, wait_s: float) -> None:
        # It must not keep alive what nobody uses any more.
        timer = threading.Timer(min(wait_s, WAIT_S_MAX), _renew, (weakref.ref(self), self._get))
        timer.daemon = True
        timer.name = "kafka-sink-token"
        with self._lock:
            former, self._timer = self._timer, timer
        if former is not None:
            former.cancel()
        timer.start()


def _renew(source: weakref.ref[TokenSource], get: Callable[[], str]) -> None:
    # Three functions, because an error keeps alive what the frames below it see, sometimes for good. None of these
    # frames may see the source, or one whose endpoint is down would go on asking after its producer is gone.
    _tell(source, *_tried(get))


def _tried(get: Callable[[], str]) -> tuple[str | None, str]:
    try:
        return get(), ""
    except Exception as error:
        return None, str(error) if isinstance(error, KafkaSinkError) else type(error).__name__


def _tell(source: weakref.ref[TokenSource], token: str | None, trouble: str) -> None:
    known = source()
    if known is not None:
        known.on_renewed(token, trouble)


def token_source(options: ProducerOptions, named: Callable[[], Mapping[str, str]]) -> TokenSource:
    """`named`: what stands in sasl.jaas.config now."""
    provider = options.sasl_oauthbearer_token_provider
    if provider is not None:
        return TokenSource(_asking(provider), options)
    return TokenSource(lambda: _token_of_endpoint(options, named()), options)


# ---- a function of the user's ----------------------------------------------------------------------------------


def _asking(provider: str | Callable[[], str]) -> Callable[[], str]:
    function: Callable[[], Any] = provider if callable(provider) else imported(provider, PROVIDER)

    def get() -> str:
        try:
            token = function()
        except (AuthenticationError, ConfigError, TransportError):
            raise
        except Exception as error:
            # Its text may hold the token, or what the token was got with.
            raise AuthenticationError(f"the function of {PROVIDER} raised {type(error).__name__}") from None
        if not isinstance(token, str):
            raise AuthenticationError(f"the function of {PROVIDER} returned {type(token).__name__}, not text")
        return token

    return get


# ---- a token endpoint ------------------------------------------------------------------------------------------


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


def _token_of_endpoint(options: ProducerOptions, named: Mapping[str, str]) -> str:
    url = looked_up(ENDPOINT, options.sasl_oauthbearer_token_endpoint_url or "")
    source = f"the token endpoint {_shown(url)}"
    request = _request(options, named, url)
    connect_s, read_s = (
        (DEFAULT_TIMEOUT_MS if each is None else each) / 1000
        for each in (options.sasl_login_connect_timeout_ms, options.sasl_login_read_timeout_ms)
    )
    # What is not encrypted must not go through somebody else's hands.
    proxies = urllib.request.ProxyHandler(None if url.startswith("https:") else {})
    https = _Https(endpoint_context(options), read_s)
    opener = urllib.request.build_opener(proxies, _NoRedirect(), https)
    timeout_s = connect_s if url.startswith("https:") else read_s
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            body = answer.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            word = error_of_answer(error.read(ANSWER_BYTES_MAX))
        text = f"{source} answered {error.code}" + (f" ({word})" if word else "")
        if error.code in (429,) or error.code >= 500:
            raise TransportError(f"{text}; it is asked again") from None
        raise AuthenticationError(f"{text}: check client id, secret and scope") from None
    except (OSError, ValueError) as error:
        raise TransportError(f"{source} did not answer: {_why(error)}") from None
    return token_of_answer(body, source)


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


def _request(options: ProducerOptions, named: Mapping[str, str], url: str) -> urllib.request.Request:
    _check_url(url)
    client_id = _credential(options.sasl_oauthbearer_client_credentials_client_id, "client.id", named.get("clientId"))
    secret = _credential(
        options.sasl_oauthbearer_client_credentials_client_secret, "client.secret", named.get("clientSecret")
    )
    if options.sasl_oauthbearer_header_urlencode:
        client_id, secret = urllib.parse.quote_plus(client_id), urllib.parse.quote_plus(secret)
    form = {"grant_type": "client_credentials"}
    scope = options.sasl_oauthbearer_scope or named.get("scope")
    if scope:
        form["scope"] = scope
    basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    headers = {
        "Authorization": f"Basic {basic}",
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers)


def _credential(value: str | None, name: str, of_module: str | None) -> str:
    found = looked_up(_CREDENTIALS + name, value) if value is not None else of_module
    if not found:
        raise ConfigError(f"{_CREDENTIALS}{name} is missing or empty")
    return found


def _check_url(url: str) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return
    if parts.scheme == "http" and _is_this_host(parts.hostname or ""):
        return
    raise ConfigError(
        f"{ENDPOINT} must begin with https://, because client id and secret are sent there; http:// is taken for an "
        "address of this host only, such as 127.0.0.1"
    )


def _is_this_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(url: str) -> str:
    """Without what may be secret in it: user and query."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{parts.path}"
