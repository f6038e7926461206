"""Which open transactions will nobody end? Readers of their partitions wait for ever.

Neither age nor silence proves it. A leader tells no time but that of the producer's newest record (`last_timestamp` of
DescribeProducers), which is the row's own where topics keep it: years ago, or in the future. And ListTransactions
leaves out, without a word, the ids that a principal may not describe.

An order of answers proves it: a leader says that a transaction is open since an offset, then its coordinator says that
under this producer id nothing is open there, then the leader says the same as before. A coordinator calls a transaction
ended when its markers are written, so one that was alive at the first answer and over at the second has its marker by
the third. The third is that of a second look.

Of a producer id that no coordinator lists, nothing but time can tell: brokers end every transaction within
transaction.max.timeout.ms. It is counted from the first look that saw it, so it takes somebody who goes on looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.listing import OPEN_STATES
from kafka_sink.commit.open_parts import ProducerQuestion
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.ask import Repeat
from kafka_sink.kafka.wire.apis import COMPLETE_ABORT, DESCRIBE_PRODUCERS
from kafka_sink.operate.status.facts import OpenProducer, Partition


class OpenProducers(ProducerQuestion):
    """Who has a transaction open in these partitions."""

    def __init__(self, held: Sequence[Partition]) -> None:
        super().__init__(held)
        self.found: list[OpenProducer] = []
        # Partitions whose leaders have answered.
        self.told: set[Partition] = set()

    def on_told(self, where: Partition, producers: Iterable[Mapping[str, Any]]) -> None:
        self.told.add(where)
        self.found += [
            OpenProducer(*where, one["producer_id"], one["producer_epoch"], one["current_txn_start_offset"])
            for one in producers
            if one["current_txn_start_offset"] >= 0
        ]


def ask_leaders(client: Client, held: Sequence[Partition]) -> OpenProducers:
    asked = OpenProducers(held)
    while asked.missing:
        target, body = asked.question()
        try:
            bodies = client.ask_all(target, DESCRIBE_PRODUCERS, body, repeat=Repeat.ALWAYS, needs_all=False)
        except KafkaSinkError as error:
            asked.give_up(str(error))
            break
        for body in bodies:
            asked.on_body(body)
        asked.ask_rest()
    return asked


def is_alive(one: OpenProducer, told: TransactionDescription) -> bool:
    return told.state in OPEN_STATES and (one.topic, one.partition) in told.partitions


def is_aborted(one: OpenProducer, told: TransactionDescription, transaction_version: int) -> bool:
    """Whether the last transaction under the id, which was aborted, is the one that is open here, and not a later one
    after a commit. That is known of a sink's task: each of its transactions has an epoch of its own, and the end of one
    raises it by one in version 2, and not below. With an older epoch the leader has an earlier transaction."""
    of_end = (0, 1) if transaction_version >= 2 else (0,)
    is_of_task = parse_task_identity(told.transactional_id) is not None
    return is_of_task and told.state == COMPLETE_ABORT and told.producer_epoch - one.producer_epoch in of_end
