"""Versions of the requests in a transaction, by transaction version (KIP-890); for the producer and for commits.

The version of a request selects the rules, not the feature level of the cluster. So a request that is repeated, perhaps
by another process, must have a version of the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Api,
)

# From this version on a request can name the current identity, so that a fenced producer cannot fence its successor
# (KIP-360).
INIT_PRODUCER_ID_FIRST_WITH_IDENTITY = 3
INVALID_TRANSACTION_TIMEOUT = 50

# By API key: first and last version by the rules of transaction version 1, and by those of version 2.
_VERSIONS: Mapping[int, tuple[tuple[int, int], tuple[int, int]]] = {
    # In version 2 the leader registers a partition with the first batch.
    PRODUCE.key: ((PRODUCE.version_min, 11), (12, PRODUCE.version_max)),
    INIT_PRODUCER_ID.key: (INIT_PRODUCER_ID.versions, INIT_PRODUCER_ID.versions),
    # Later versions are for brokers.
    ADD_PARTITIONS_TO_TXN.key: ((0, 3), (0, 3)),
    ADD_OFFSETS_TO_TXN.key: (ADD_OFFSETS_TO_TXN.versions, ADD_OFFSETS_TO_TXN.versions),
    # In version 2 the group's coordinator registers the group.
    TXN_OFFSET_COMMIT.key: ((0, 4), (5, TXN_OFFSET_COMMIT.version_max)),
    # In version 2 the end of a transaction bumps the epoch.
    END_TXN.key: ((0, 4), (5, END_TXN.version_max)),
}


def versions_of(api: Api, transaction_version: int) -> tuple[int, int]:
    """The first and the last version that may be used in a transaction of this transaction version."""
    of_first, of_second = _VERSIONS[api.key]
    return of_first if transaction_version == 1 else of_second
