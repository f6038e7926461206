"""`ProducerOptions`: every option of a producer after parsing, as one frozen value.

A field has the Java option's name with dots as underscores and Java's newest default, so that the code is familiar from
the Java producer; a few fields at the end have no Java counterpart. Constructing it directly skips all checks and is
meant for tests and for `dataclasses.replace`; users call `parse_producer_options`.

It is plain data that pickles (as far as the user's own callables do). Its `repr` never shows a callable's closure or
anything whose name suggests a secret, because options end up in logs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

Serializer = Callable[[Any], "bytes | None"]
Partitioner = Callable[..., int]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

# `ssl_keystore_key`, but not `key_serializer`. With cloud services a user name is an API key.
SECRET_NAME = re.compile(
    r"password|passphrase|secret|token|jaas|credential|private|username|user.info|access.key|keystore.key|"
    r"certificate.chain|certificates|\.pem",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerOptions:
    bootstrap_servers: tuple[tuple[str, int], ...]

    # Delivery guarantees.
    acks: int = -1
    enable_idempotence: bool = True
    retries: int = INT_MAX
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    # Batching and memory.
    batch_size: int = 16_384
    linger_ms: int = 5
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    compression_type: str = "none"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3

    # Partitioning.
    partitioner: str | Partitioner = "default"
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = 0
    partitioner_ignore_keys: bool = False
    partitioner_rack_aware: bool = False
    client_rack: str = ""

    # Requests and connections.
    client_id: str = ""
    max_in_flight_requests_per_connection: int = 5
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = 32_768

    # Metadata.
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = 300_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    allow_auto_create_topics: bool = True

    # Encryption. Locations are paths or names of files that Spark distributes; texts may be references.
    security_protocol: str = "PLAINTEXT"
    allow_plaintext_credentials: bool = False
    ssl_protocol: str = "TLSv1.3"
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_truststore_type: str = "JKS"
    ssl_truststore_location: str | None = None
    ssl_truststore_password: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_type: str = "JKS"
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
    sasl_login_callback_handler_class: str | None = None
    sasl_login_connect_timeout_ms: int | None = None
    sasl_login_read_timeout_ms: int | None = None
    sasl_login_retry_backoff_ms: int = 100
    sasl_login_retry_backoff_max_ms: int = 10_000
    sasl_login_refresh_window_factor: float = 0.8
    sasl_login_refresh_window_jitter: float = 0.05
    sasl_login_refresh_min_period_seconds: int = 60
    sasl_login_refresh_buffer_seconds: int = 300

    # Hooks. A serializer of None passes bytes unchanged and encodes text as UTF-8.
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    interceptors: tuple[object, ...] = ()

    # Metrics.
    metrics_num_samples: int = 2
    metrics_sample_window_ms: int = 30_000

    # Limits and behaviour of older clients. None: no such limit; compressed_topics None: every topic.
    buffer_records_max: int | None = None
    batch_records_max: int | None = None
    send_is_synchronous: bool = False
    compressed_topics: frozenset[str] | None = None

    # Logged once when the producer starts.
    notices: tuple[str, ...] = ()

    @property
    def has_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def compression_level(self) -> int | None:
        """The level for `compression_type`; None if the codec has no levels or uses its default."""
        if self.compression_type == "gzip":
            return None if self.compression_gzip_level == -1 else self.compression_gzip_level
        return {"lz4": self.compression_lz4_level, "zstd": self.compression_zstd_level}.get(self.compression_type)

    def compression_of(self, topic: str) -> tuple[str, int | None]:
        """Codec name and level for one topic."""
        if self.compressed_topics is not None and topic not in self.compressed_topics:
            return "none", None
        return self.compression_type, self.compression_level

    def __repr__(self) -> str:
        shown = []
        for field in fields(self):
            value = getattr(self, field.name)
            if field.default is not MISSING and value == field.default:
                continue
            shown.append(f"{field.name}={_format_value(field.name, value)}")
        return f"ProducerOptions({', '.join(shown)})"


def _format_value(name: str, value: object) -> str:
    if SECRET_NAME.search(name):
        return "[hidden]"
    if name == "interceptors" and isinstance(value, tuple):
        return "(" + ", ".join(type(item).__name__ for item in value) + ")"
    if callable(value):
        return f"<{getattr(value, '__qualname__', type(value).__name__)}>"
    return repr(value)
