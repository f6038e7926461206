"""Parsed options of the formats of key and value, and of the schema registry.

Both stay on the driver: tasks get the result of planning, and ask no registry.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from kafka_sink.frozen import frozen
from kafka_sink.options.security_options import SecurityOptions

if TYPE_CHECKING:
    from kafka_sink.formats.registry.resolution import SchemaQuery

# Sources of credentials, with Confluent's names.
USER_INFO, SASL_INHERIT = "USER_INFO", "SASL_INHERIT"
STATIC_TOKEN, OAUTHBEARER, CUSTOM = "STATIC_TOKEN", "OAUTHBEARER", "CUSTOM"
SASL_OAUTHBEARER_INHERIT = "SASL_OAUTHBEARER_INHERIT"
# What to do with rules of a schema.
REFUSE, IGNORE = "refuse", "ignore"


@frozen
class RegistryOptions:
    """A field with the name of an option has its value. `credentials` is one of the sources above, or None: no
    authentication.

    `login` is how the registry and a token endpoint are reached; `kafka` the same of the brokers, if their credentials
    are used here, too.
    """

    url: tuple[str, ...]
    login: SecurityOptions
    kafka: SecurityOptions | None
    context: str | None
    credentials: str | None
    basic_auth_user_info: str | None = field(repr=False)
    bearer_auth_token: str | None = field(repr=False)
    bearer_auth_logical_cluster: str | None
    bearer_auth_identity_pool_id: str | None
    max_retries: int
    retries_wait_ms: int
    retries_max_wait_ms: int
    latest_cache_ttl_sec: int


@frozen
class SideFormat:
    """How the key or the value is written, and how its schema is found.

    `columns`: those of the record, `*` for all without another meaning; None: a column with the side's name, or else as
    `*`. `record_name`: the name of a derived schema, or the message of a Protobuf schema. `envelope_name`: that of a
    derived schema of events, if `record_name` is None.

    `text` is a schema, or the name of a file with one. `query` has no schema, and a subject only if one is named; else
    `strategy` names it.
    """

    format: str
    columns: tuple[str, ...] | None
    record_name: str | None
    text: str | None
    strategy: str
    framing: str
    query: SchemaQuery
    envelope_name: str | None = None


@frozen
class FormatOptions:
    """`registry` None: none is used."""

    registry: RegistryOptions | None
    value: SideFormat | None
    key: SideFormat | None
    notices: tuple[str, ...]
