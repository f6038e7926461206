"""Who owns a transaction: producer id and epoch, as a producer sends them and the driver of a commit compares them."""

from __future__ import annotations

from typing import NamedTuple


class ProducerIdentity(NamedTuple):
    """Sequences are counted per identity."""

    producer_id: int
    producer_epoch: int
