"""How key and value are written, and which schema registry is asked, after parsing.

Both stay on the driver: tasks get what was made of them while planning, and ask no registry.
"""

from __future__ import annotations

from dataclasses import field

from kafka_sink.frozen import frozen
from kafka_sink.options.producer_options import ProducerOptions

# Where the credentials come from, by Confluent's words.
USER_INFO, SASL_INHERIT = "USER_INFO", "SASL_INHERIT"
STATIC_TOKEN, OAUTHBEARER, CUSTOM = "STATIC_TOKEN", "OAUTHBEARER", "CUSTOM"
SASL_OAUTHBEARER_INHERIT = "SASL_OAUTHBEARER_INHERIT"


@frozen
class RegistryOptions:
    """`credentials` is one of the words above, or None: nobody logs in.

    `login` holds what TLS and token endpoints need, under the names that a producer has for it; `kafka` the producer's
    own options, where its credentials are used here, too.
    """

    urls: tuple[str, ...]
    login: ProducerOptions
    kafka: ProducerOptions | None
    context: str | None
    credentials: str | None
    user_info: str | None = field(repr=False)
    bearer_token: str | None = field(repr=False)
    logical_cluster: str | None
    identity_pool: str | None
    retries_max: int
    retry_wait_ms: int
    retry_wait_max_ms: int
    latest_life_s: int


@frozen
class SchemaOptions:
    """How the schema of the key or of the value is found. `text` is a schema, or the name of a file that holds one.

    `identity` is an id or a GUID, `version` a number or latest.
    """

    side: str
    text: str | None
    identity: int | str | None
    version: int | str | None
    strategy: str
    subject: str | None
    framing: str
    registers: bool
    normalizes: bool


@frozen
class SideFormat:
    """`columns`: those that form the record, `*` for all that have no other meaning; None: a column of the side's name,
    or else as `*`. `record_name`: what a derived schema is called, or which message of a Protobuf schema it is."""

    format: str
    schema: SchemaOptions
    columns: tuple[str, ...] | None
    record_name: str | None


@frozen
class FormatOptions:
    """`registry` of None: none is asked."""

    registry: RegistryOptions | None
    value: SideFormat | None
    key: SideFormat | None
