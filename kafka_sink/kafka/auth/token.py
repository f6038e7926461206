"""Access tokens for OAUTHBEARER: from a user function, or from a token endpoint (OIDC).

The endpoint requires a client id and secret, or an assertion signed by a third party (RFC 7523).
"""

from __future__ import annotations

import base64
import time
import urllib.parse
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafka_sink.errors import AuthenticationError, ConfigError, TransportError
from kafka_sink.errors.table.brokers import TOKEN_UNUSABLE
from kafka_sink.kafka.auth.login import read_login_options
from kafka_sink.kafka.auth.renewal import Renewed
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.io import web
from kafka_sink.kafka.io.tls import endpoint_context
from kafka_sink.options import SecurityOptions
from kafka_sink.options.host.files import read_file, resolve_references
from kafka_sink.options.host.functions import load_user_function
from kafka_sink.options.sasl_rules import EXTENSION
from kafka_sink.options.values import JWT_BEARER
from kafka_sink.security.oauthbearer import (
    ANSWER_BYTES_MAX,
    AccessToken,
    OAuthBearerExchange,
    expiry_s,
    parse_error_answer,
    parse_token_answer,
)

DEFAULT_TIMEOUT_MS = 10_000
# Connections to all brokers of a cluster are opened within seconds. They share a token whose end is not known.
SHARED_S = 10.0
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
PROVIDER = "sasl.oauthbearer.token.provider"
ASSERTION = "sasl.oauthbearer.assertion.file"
_CREDENTIALS = "sasl.oauthbearer.client.credentials."
_JWT = "urn:ietf:params:oauth"


def token_authenticator(options: SecurityOptions) -> Authenticator:
    tokens = token_source(options)
    return lambda _host: OAuthBearerExchange(tokens.current().text, _extensions(options))


def _extensions(options: SecurityOptions) -> dict[str, str]:
    named = read_login_options(options)
    return {name.removeprefix(EXTENSION): value for name, value in named.items() if name.startswith(EXTENSION)}


def token_source(options: SecurityOptions) -> Renewed[AccessToken]:
    provider = options.sasl_oauthbearer_token_provider
    get = _wrap_provider(provider) if provider is not None else partial(_fetch_token, options)
    return Renewed(get, lambda token: token.end_s, options, what="token for OAUTHBEARER", shared_s=SHARED_S)


# ---- a user function -------------------------------------------------------------------------------------------


def _wrap_provider(provider: str | Callable[[], str]) -> Callable[[], AccessToken]:
    function: Callable[[], Any] = provider if callable(provider) else load_user_function(provider, PROVIDER)

    def get() -> AccessToken:
        try:
            token = function()
        except (AuthenticationError, ConfigError, TransportError):
            raise
        except Exception as error:
            # Its text may contain the token, or the credentials for it.
            raise AuthenticationError(
                f"the function of {PROVIDER} raised {type(error).__name__}", TOKEN_UNUSABLE
            ) from None
        if not isinstance(token, str):
            raise AuthenticationError(
                f"the function of {PROVIDER} returned {type(token).__name__}, not text", TOKEN_UNUSABLE
            )
        return AccessToken(token, expiry_s(token))

    return get


# ---- a token endpoint ------------------------------------------------------------------------------------------


def _fetch_token(options: SecurityOptions) -> AccessToken:
    url = resolve_references(ENDPOINT, options.sasl_oauthbearer_token_endpoint_url or "")
    web.check_is_safe(ENDPOINT, url)
    source = f"the token endpoint {web.redact_url(url)}"
    headers, form = _make_request(options)
    asked_s = time.time()
    answer = web.ask(
        source,
        partial(endpoint_context, options),
        url,
        headers=headers,
        body=urllib.parse.urlencode(form).encode(),
        bytes_max=ANSWER_BYTES_MAX,
        timeouts_ms=web.login_timeouts_ms(options, DEFAULT_TIMEOUT_MS),
        no_answer=TOKEN_UNUSABLE,
    )
    if answer.is_good:
        return parse_token_answer(answer.body, source, asked_s)
    word = parse_error_answer(answer.body)
    text = f"{source} answered {answer.status}" + (f" ({word})" if word else "")
    if answer.is_retriable:
        raise TransportError(f"{text}; it is asked again", TOKEN_UNUSABLE)
    raise AuthenticationError(f"{text}: check client id, secret and scope", TOKEN_UNUSABLE)


def _make_request(options: SecurityOptions) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and form."""
    module_options = read_login_options(options)
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    client_id = options.sasl_oauthbearer_client_credentials_client_id
    scope = options.sasl_oauthbearer_scope or module_options.get("scope")
    if options.sasl_oauthbearer_assertion_file is not None:
        assertion = _read_assertion(options.sasl_oauthbearer_assertion_file)
        if options.sasl_oauthbearer_jwt_retriever_class == JWT_BEARER:
            form = {"grant_type": f"{_JWT}:grant-type:jwt-bearer", "assertion": assertion}
        else:
            form = {"grant_type": "client_credentials", "client_assertion": assertion}
            form["client_assertion_type"] = f"{_JWT}:client-assertion-type:jwt-bearer"
            if client_id is not None or "clientId" in module_options:
                form["client_id"] = _require_credential(client_id, "client.id", module_options.get("clientId"))
    else:
        form = {"grant_type": "client_credentials"}
        headers["Authorization"] = _basic_authorization(options, module_options)
    if scope:
        form["scope"] = scope
    return headers, form


def _basic_authorization(options: SecurityOptions, module_options: Mapping[str, str]) -> str:
    client_id = _require_credential(
        options.sasl_oauthbearer_client_credentials_client_id, "client.id", module_options.get("clientId")
    )
    secret = _require_credential(
        options.sasl_oauthbearer_client_credentials_client_secret, "client.secret", module_options.get("clientSecret")
    )
    if options.sasl_oauthbearer_header_urlencode:
        client_id, secret = urllib.parse.quote_plus(client_id), urllib.parse.quote_plus(secret)
    return f"Basic {base64.b64encode(f'{client_id}:{secret}'.encode()).decode()}"


def _read_assertion(name: str) -> str:
    """Read anew each time: its issuer replaces it before it expires."""
    text = read_file(ASSERTION, name).decode("ascii", errors="replace").strip()
    if not text:
        raise ConfigError(f"{ASSERTION}={name} is empty", TOKEN_UNUSABLE)
    return text


def _require_credential(value: str | None, name: str, of_module: str | None) -> str:
    found = resolve_references(_CREDENTIALS + name, value) if value is not None else of_module
    if not found:
        raise ConfigError(f"{_CREDENTIALS}{name} is missing or empty", TOKEN_UNUSABLE)
    return found
