"""Which parts of the transaction protocol the brokers support, according to ApiVersions."""

from __future__ import annotations

from typing import NamedTuple

from kafka_sink.kafka.wire.apis import ADD_PARTITIONS_TO_TXN, END_TXN, FIND_COORDINATOR, INIT_PRODUCER_ID

TRANSACTION_APIS = (FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN)


class TransactionSupport(NamedTuple):
    """`transaction_version`: 2 from KIP-890 on, else 1. `verifies`: a record that arrives after the end of its
    transaction is rejected, instead of opening a hanging one. `missing`: required APIs that the brokers lack; if there
    are any, `verifies` is False and not requested. The others: as in `DeliverySettings`."""

    transaction_version: int
    verifies: bool
    missing: tuple[str, ...] = ()
    fence_raises_max: int = 1
    epoch_of_end_is_safe: bool = True
