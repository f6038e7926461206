"""DescribeConfigs: the request for several topics and brokers, and the result of each of them.

What brokers say about themselves is used where they say it. Services that keep it to themselves answer with any code
(MSK Serverless INVALID_REQUEST, Event Hubs UNKNOWN_TOPIC_OR_PARTITION), so an error for a broker means that it does not
tell. For a topic it is an error, since it may not exist.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka_sink.errors import BrokerError
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.apis import DESCRIBE_CONFIGS, RESOURCE_BROKER
from kafka_sink.kafka.wire.codes import CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED

# Of a broker: the longest transaction that it allows.
MAX_TIMEOUT = "transaction.max.timeout.ms"
_LOGGER = logging.getLogger("kafka_sink")
UNAUTHORIZED = (TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED)

# None: the broker does not return it. An error concerns this resource only, such as a missing topic.
ConfigAnswer = dict[str, str | None] | BrokerError | None


class ConfigResource(NamedTuple):
    """`keys` None: all values."""

    resource_type: int
    name: str
    keys: Sequence[str] | None


def configs_body(wanted: Sequence[ConfigResource]) -> dict[str, Any]:
    resources = [
        {
            "resource_type": resource_type,
            "resource_name": name,
            "configuration_keys": None if keys is None else list(keys),
        }
        for resource_type, name, keys in wanted
    ]
    return {"resources": resources, "include_synonyms": False}


def read_configs(wanted: Sequence[ConfigResource], body: Mapping[str, Any]) -> list[ConfigAnswer]:
    """In the order of `wanted`."""
    results = {(result["resource_type"], result["resource_name"]): result for result in body["results"]}
    return [_read_result(asked, results.get((asked.resource_type, asked.name))) for asked in wanted]


def _read_result(asked: ConfigResource, result: Mapping[str, Any] | None) -> ConfigAnswer:
    if result is None or result["error_code"] in UNAUTHORIZED:
        return None
    error_code = result["error_code"]
    if error_code and asked.resource_type == RESOURCE_BROKER:
        _LOGGER.debug("broker %s does not tell its configuration: %s", asked.name, describe(error_code))
        return None
    if error_code:
        text = f"the configuration of topic {asked.name} was refused: {describe(error_code)}"
        return BrokerError(text, code=error_code, api=DESCRIBE_CONFIGS.name)
    return {row["name"]: row["value"] for row in result["configs"]}


def number_of(configs: Mapping[str, str | None] | None, name: str) -> int | None:
    """None: it is not told, or no number that counts from 0."""
    text = (configs or {}).get(name) or ""
    return int(text) if text.isdecimal() else None


def found_or_raise(found: ConfigAnswer) -> dict[str, str | None] | None:
    if isinstance(found, BrokerError):
        raise found
    return found
