"""Operators and other clients that end the transactions of tasks at any moment (the breaker `operators`).

  EndTxn(abort)   with the epoch that DescribeTransactions shows, by the rules of the cluster's transaction version, as
                  this sink's command sends it, or by those of version 1, as an older client does; version 1 leaves the
                  epoch, so a task that is still writing begins another transaction under it
  a marker        of an abort in one partition, as Kafka's own tool writes it: the coordinator does not hear of it

Nothing protects a transaction from a marker between the check before the decision and its end, as exactly-once.md says:
such markers are not written here. Everything else must end in an error that names the transaction, or in no loss.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.testing.batches import Marker
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.transaction_state import CoordinatorState, TopicPartition
from kafka_sink.testing.transactions import CoordinatedTransaction, ProducerClaim
from tests.sim.delivery.books import Books
from tests.sim.network import Network
from tests.sim.trace import Trace

OWN_VERSION, VERSION_1, MARKER = WAYS = ("EndTxn", "EndTxn of version 1", "a marker in one partition")


class Operators:
    def __init__(self, network: Network, trace: Trace, books: Books, transaction_version: int) -> None:
        self._network = network
        self._core = network.core
        self._trace = trace
        self._books = books
        self._transaction_version = transaction_version
        self.table: dict[str, Callable[[Random, int], bool]] = {"end_transaction": self.end_transaction}

    def end_transaction(self, pick: Random, length_ms: int) -> bool:
        found = [one for one in self._core.coordinator.transactions.values() if self._is_open(one)]
        way = pick.choice(WAYS)
        choice = pick.random()
        if not found:
            return False
        chosen = found[int(choice * len(found))]
        ended = self._write_marker(chosen, pick) if way == MARKER else self._end(chosen, way)
        if ended:
            self._trace.count(f"ended by an operator: {way}")
            self._trace.note(self._core.schedule.now_ms, f"an operator ends {chosen.transactional_id}: {way}")
            self._network.route(self._core.tick(self._core.schedule.now_ms))
        return ended

    def _is_open(self, one: CoordinatedTransaction) -> bool:
        is_ours = parse_task_identity(one.transactional_id) is not None
        return is_ours and one.pending is None and one.record.state is CoordinatorState.ONGOING

    def _end(self, one: CoordinatedTransaction, way: str) -> bool:
        if self._core.cluster.coordinator_trouble(one.transactional_id) is not Code.NONE:
            return False
        claim = ProducerClaim(one.transactional_id, one.record.producer_id, one.record.producer_epoch)
        version = 1 if way == VERSION_1 else self._transaction_version
        with suppress(Refused):
            self._core.coordinator.end(claim, False, version, lambda *_: None)
            self._books.ended_by_others.add(claim)
            return True
        return False

    def _write_marker(self, one: CoordinatedTransaction, pick: Random) -> bool:
        record = one.record
        if (one.transactional_id, record.producer_id, record.producer_epoch) in self._books.checked:
            return False
        places = [where for where in record.partitions if self._is_open_in(where, record.producer_id)]
        if not places:
            return False
        known = self._core.cluster.partition(*pick.choice(places))
        assert known is not None
        entry = known.log.producers.entries[record.producer_id]
        marker = Marker(record.producer_id, entry.epoch, False, entry.coordinator_epoch)
        config, now_ms = self._core.cluster.known_topic(known.topic).config, self._core.schedule.now_ms
        known.log.append_marker(marker, config, is_strict=False, leader_epoch=known.leader_epoch, now_ms=now_ms)
        self._core.cluster.replicate(known)
        return True

    def _is_open_in(self, where: TopicPartition, producer_id: int) -> bool:
        known = self._core.cluster.partition(*where)
        if known is None or not self._core.cluster.is_up(known.leader_id):
            return False
        entry = known.log.producers.entries.get(producer_id)
        return entry is not None and entry.transaction_first_offset is not None
