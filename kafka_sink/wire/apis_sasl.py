"""Authentication. After a SaslHandshake v0 the exchange continues in raw frames, after v1 in SaslAuthenticate."""

from __future__ import annotations

from kafka_sink.wire.api import Api
from kafka_sink.wire.schema import Field

SASL_HANDSHAKE = Api(
    17,
    "SaslHandshake",
    versions=(0, 1),
    flexible=None,
    request=(Field("mechanism", "string"),),
    response=(
        Field("error_code", "int16"),
        Field("mechanisms", "[]string"),
    ),
)

SASL_AUTHENTICATE = Api(
    36,
    "SaslAuthenticate",
    versions=(0, 2),
    flexible=2,
    request=(Field("auth_bytes", "bytes"),),
    response=(
        Field("error_code", "int16"),
        Field("error_message", "string", nullable=0),
        Field("auth_bytes", "bytes"),
        Field("session_lifetime_ms", "int64", since=1, ignorable=True),
    ),
)
