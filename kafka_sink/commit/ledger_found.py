"""What was found in the ledger under one key, and which of two records is the newer one.

Within one stream the numbers of batches never go back: a checkpoint that was set back is refused. So a record above one
of a later batch is a copy: a tool went on copying the ledger of another cluster after the stream had begun here. Newest
is then the one of the later batch, and never the copy. With equal numbers it is the one that is higher up: a ledger
that is copied back to where it came from has what became of a batch after the records of this cluster. The records of
one producer are in order, so only where another one goes on the numbers are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.commit.ledger_codec import UnreadableRecord, decode_newest, decode_record, plain_problem
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import RemoteProtocolError

# Of a record without a transaction.
NO_PRODUCER = -1


class Found(NamedTuple):
    """The newest record of a ledger key, and the producer that wrote it."""

    offset: int
    value: bytes
    producer_id: int

    @property
    def is_plain(self) -> bool:
        """Written without a transaction."""
        return self.producer_id == NO_PRODUCER


# By ledger key: the newest record.
Newest = Mapping[str, Found]
# By ledger key: all records that have no marker.
Unmarked = Mapping[str, list[Found]]
# Represents a null value; no record begins with this byte.
ERASED = b"\0"


def is_of_earlier_batch(ledger_key: str, upper: Found, lower: Found) -> bool:
    """Of the same stream. What cannot be read has no number."""
    has_one_writer = upper.producer_id == lower.producer_id
    if has_one_writer or NO_PRODUCER in (upper.producer_id, lower.producer_id) or "/" in ledger_key:
        return False
    with suppress(RemoteProtocolError):
        return decode_record(lower.value).key.is_later_than(decode_record(upper.value).key)
    return False


def number_of(batch: BatchKey | None) -> int:
    return batch.batch_id if batch is not None and isinstance(batch.batch_id, int) else -1


def decode_found(key: str, found: Found, cluster_id: str) -> LedgerRecord:
    """Raises `RemoteProtocolError` if it cannot be read. `cluster_id`: of the brokers that it was read from."""
    if found.is_plain:
        raise UnreadableRecord(plain_problem(found.value, cluster_id))
    return decode_newest(key, found.value)
