"""`SecurityOptions`: how a connection is encrypted and who logs in, whatever is at its other end.

Brokers, a schema registry, a token endpoint and a Pushgateway are all reached with these. `ProducerOptions` inherits
them, so that whoever needs no more of a producer takes this class, and the names of fields are the same everywhere.

Its `repr` never shows a callable's closure or anything whose name suggests a secret, because options end up in logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields

# `ssl_keystore_key`, but not `key_serializer`. With cloud services a user name is an API key.
SECRET_NAME = re.compile(
    r"password|passphrase|secret|token|jaas|credential|private|username|user.info|access.key|keystore.key|"
    r"certificate.chain|certificates|\.pem",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SecurityOptions:
    # Encryption. Locations are paths or names of files that Spark distributes; texts may be references.
    security_protocol: str = "PLAINTEXT"
    allow_plaintext_credentials: bool = False
    ssl_protocol: str = "TLSv1.3"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_truststore_location: str | None = None
    ssl_truststore_password: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_password: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: str | None = None
    ssl_key_password: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_crl_location: str | None = None
    enable_ssl_certificate_verification: bool = True

    # Authentication.
    sasl_mechanism: str = "GSSAPI"
    sasl_jaas_config: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_principal: str | None = None
    sasl_kerberos_keytab: str | None = None
    sasl_aws_region: str | None = None
    sasl_aws_access_key_id: str | None = None
    sasl_aws_secret_access_key: str | None = None
    sasl_aws_session_token: str | None = None
    sasl_aws_profile: str | None = None
    sasl_aws_role_arn: str | None = None
    sasl_oauthbearer_token_provider: str | Callable[[], str] | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = None
    sasl_oauthbearer_assertion_file: str | None = None
    sasl_oauthbearer_jwt_retriever_class: str = "DefaultJwtRetriever"
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    sasl_login_connect_timeout_ms: int | None = None
    sasl_login_read_timeout_ms: int | None = None
    sasl_login_retry_backoff_ms: int = 100
    sasl_login_retry_backoff_max_ms: int = 10_000
    sasl_login_refresh_window_factor: float = 0.8
    sasl_login_refresh_window_jitter: float = 0.05
    sasl_login_refresh_min_period_seconds: int = 60
    sasl_login_refresh_buffer_seconds: int = 300

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def __repr__(self) -> str:
        shown = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.default is not MISSING and value == field.default:
                continue
            shown.append(f"{field.name}={_format_value(field.name, value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _format_value(name: str, value: object) -> str:
    if SECRET_NAME.search(name):
        return "[hidden]"
    if name == "interceptors" and isinstance(value, tuple):
        return "(" + ", ".join(type(item).__name__ for item in value) + ")"
    if callable(value):
        return f"<{getattr(value, '__qualname__', type(value).__name__)}>"
    return repr(value)
