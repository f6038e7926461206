"""What the producer and the driver of a commit both know of Kafka's transactions: who owns one, and by which rules it
is ended. The version of a request selects the rules, not the cluster's feature level (KIP-890)."""

from __future__ import annotations

from typing import Any, NamedTuple


class ProducerIdentity(NamedTuple):
    """Producer id and epoch; sequences are counted per identity."""

    producer_id: int
    producer_epoch: int


# The last versions with the rules of transaction version 1.
END_TXN_LAST_V1, PRODUCE_LAST_V1 = 4, 11
# Later versions are for brokers.
ADD_PARTITIONS_LAST_CLIENT = 3
# The first version with producer id and epoch (KIP-360).
INIT_PRODUCER_ID_FIRST_RENEWING = 3
# The brokers' transaction.max.timeout.ms is lower than the requested timeout.
INVALID_TRANSACTION_TIMEOUT = 50


def end_txn_body(transactional_id: str, identity: ProducerIdentity, *, commit: bool) -> dict[str, Any]:
    producer_id, producer_epoch = identity
    return {
        "transactional_id": transactional_id,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "committed": commit,
    }
