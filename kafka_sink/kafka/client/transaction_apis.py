"""Versions of the requests in a transaction, by transaction version (KIP-890); for the producer and for commits.

The version of a request selects the rules, not the feature level of the cluster. So a request that is repeated, perhaps
by another process, must have a version of the same rules.
"""

from __future__ import annotations

from kafka_sink.kafka.wire.apis import NEVER, Api


def versions_of(api: Api, transaction_version: int) -> tuple[int, int]:
    """The first and the last version that may be used in a transaction of this transaction version."""
    if api.transaction_2_since == NEVER:
        return api.versions
    if transaction_version == 1:
        return api.version_min, api.transaction_2_since - 1
    return api.transaction_2_since, api.version_max
