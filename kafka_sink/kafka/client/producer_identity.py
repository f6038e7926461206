"""Who owns a transaction: producer id and epoch, as a producer sends them and the driver of a commit compares them."""

from __future__ import annotations

from typing import NamedTuple

# One below the maximum: brokers reserve 32767 for fencing, so a producer id with this epoch is used up.
PRODUCER_EPOCH_MAX = 32_766


class ProducerIdentity(NamedTuple):
    """Sequences are counted per identity."""

    producer_id: int
    producer_epoch: int
