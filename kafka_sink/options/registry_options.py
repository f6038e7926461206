"""Options of the schema registry after parsing, as frozen values. They stay on the driver: tasks ask no registry."""

from __future__ import annotations

from dataclasses import field

from kafka_sink.frozen import frozen
from kafka_sink.options.producer_options import ProducerOptions
from kafka_sink.registry.framing import PREFIX
from kafka_sink.registry.subject import TOPIC_NAME

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
    kafka: ProducerOptions | None = None
    context: str | None = None
    credentials: str | None = None
    user_info: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    logical_cluster: str | None = None
    identity_pool: str | None = None
    retries_max: int = 3
    retry_wait_ms: int = 1_000
    retry_wait_max_ms: int = 20_000
    latest_life_s: int = -1


@frozen
class SchemaOptions:
    """How the schema of the key or of the value is found. `text` is a schema, or the name of a file that holds one.

    `identity` is an id or a GUID, `version` a number or latest.
    """

    side: str
    text: str | None = None
    identity: int | str | None = None
    version: int | str | None = None
    strategy: str = TOPIC_NAME
    subject: str | None = None
    framing: str = PREFIX
    registers: bool = False
    normalizes: bool = False


@frozen
class RegistrySettings:
    """`registry` of None: no registry is asked."""

    registry: RegistryOptions | None
    value: SchemaOptions
    key: SchemaOptions
    notices: tuple[str, ...] = ()
