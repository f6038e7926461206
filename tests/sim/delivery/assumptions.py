"""Behaviour of brokers that a driver might assume impossible: they lose markers, forget ids, and answer wrongly.

A marker is lost as in KAFKA-20734: no replica of its partition is alive when the coordinator writes it, the partition
is taken for deleted, and comes back without the marker. The record stays. Ids are forgotten as after
`transactional.id.expiration.ms`, only sooner. A coordinator that answers from a stale cache describes transactions as
they were before they began, or as if others had begun since; it never says that something was done which was not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from kafka_sink.testing import BrokerCluster, Fault
from kafka_sink.testing.batches import Marker
from kafka_sink.testing.transaction_state import SETTLED, CoordinatorState, TopicPartition
from tests.sim.delivery.plan import LEDGER
from tests.sim.trace import Trace

# By API: INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_PRODUCER_EPOCH; id not found.
LIES = {"EndTxn": (48, 49, 90, 47), "DescribeTransactions": (105,)}
IDLE_MS = 300
_DRIVER = re.compile(r"-driver(-[0-9a-f]{8})?$")


class Assumptions:
    def __init__(self, core: BrokerCluster, trace: Trace) -> None:
        self.core = core
        self.trace = trace
        # Producer id and epoch of a ledger record -> whether the lost marker was that of a commit.
        self.lost_markers: dict[tuple[int, int], bool] = {}
        # Ids about which a coordinator has answered wrongly: a driver that got the answer may repeat it.
        self.lied_about: set[str] = set()
        # Sink ids that a query had before its checkpoint was moved: nobody ends what it has left open under them.
        self.abandoned: set[str] = set()
        self._markers_to_lose = self._aborts_to_lose = 0
        self._liars_until_ms: dict[int, int] = {}
        self._codes: dict[int, Random] = {}
        self.table: dict[str, Callable[[Random, int], bool]] = {
            one.__name__: one for one in (self.lose_marker, self.expire_ids, self.lie)
        }
        core.faults.interceptor = self._lied
        markers = core.coordinator._markers
        self._write_marker = markers.write
        markers.write = self._marker_written  # type: ignore[method-assign]

    def heal(self) -> None:
        self._markers_to_lose = self._aborts_to_lose = 0
        self._liars_until_ms.clear()

    # ---- markers ----

    def lose_marker(self, pick: Random, length_ms: int) -> bool:
        """Loses the marker of the next commit in the ledger, or of the next two, and those of as many aborts. Counted
        when it happens."""
        self._markers_to_lose = self._aborts_to_lose = pick.choice((1, 1, 2))
        return False

    def _marker_written(
        self, partition: TopicPartition, marker: Marker, *, is_strict: bool, done: Callable[[bool], None]
    ) -> None:
        # Transaction version 2 has raised the epoch with the decision, and so has a fence or a time-out.
        data_epoch = self._epoch_of_last_record(marker.producer_id) if partition[0] == LEDGER else None
        if data_epoch is not None and self._is_to_be_lost(marker):
            self.lost_markers[marker.producer_id, data_epoch] = marker.is_commit
            self.trace.count("fault lose_marker" if marker.is_commit else "marker of an aborted ledger record is lost")
            self.trace.note(self.core.schedule.now_ms, f"marker of {marker.producer_id} {data_epoch} is lost")
            done(True)
            return
        self._write_marker(partition, marker, is_strict=is_strict, done=done)

    def _is_to_be_lost(self, marker: Marker) -> bool:
        if marker.is_commit:
            is_lost = self._markers_to_lose > 0
            self._markers_to_lose -= is_lost
        else:
            is_lost = self._aborts_to_lose > 0
            self._aborts_to_lose -= is_lost
        return is_lost

    def _epoch_of_last_record(self, producer_id: int) -> int | None:
        """None: its transaction has written nothing, or the cleaner has taken that."""
        batches = self.core.cluster.topics[LEDGER].partitions[0].log.batches
        last = next((one for one in reversed(batches) if one.producer_id == producer_id), None)
        if last is None or last.is_control or (producer_id, last.producer_epoch) in self.lost_markers:
            return None
        return last.producer_epoch

    # ---- ids ----

    def expire_ids(self, pick: Random, length_ms: int) -> bool:
        coordinator, oldest_ms = self.core.coordinator, self.core.schedule.now_ms - IDLE_MS
        idle = [
            transactional_id
            for transactional_id, transaction in coordinator.transactions.items()
            if transaction.pending is None
            and transaction.record.state in SETTLED
            and transaction.record.updated_ms <= oldest_ms
        ]
        if pick.random() < 0.5:
            idle = [transactional_id for transactional_id in idle if _DRIVER.search(transactional_id)]
        for transactional_id in idle:
            del coordinator.transactions[transactional_id]
            self.trace.count("driver's id expired" if _DRIVER.search(transactional_id) else "task's id expired")
        return bool(idle)

    # ---- drivers' ids ----

    def fence_drivers(self) -> None:
        """Another client requests the ids of drivers that have a transaction open, which aborts it."""
        for transactional_id, transaction in list(self.core.coordinator.transactions.items()):
            is_open = transaction.pending is None and transaction.record.state is CoordinatorState.ONGOING
            if is_open and _DRIVER.search(transactional_id):
                self.core.coordinator.init_producer_id(transactional_id, 60_000, None, lambda *_: None)
                self.trace.count("driver's open record aborted while the ledger was read")

    # ---- lies ----

    def lie(self, pick: Random, length_ms: int) -> bool:
        broker_id = pick.choice(list(self.core.cluster.brokers))
        self._liars_until_ms[broker_id] = self.core.schedule.now_ms + length_ms
        self._codes[broker_id] = pick
        return True

    def _lied(self, api: str, version: int, broker_id: int, body: Mapping[str, Any]) -> Fault | None:
        if api not in LIES or self.core.schedule.now_ms >= self._liars_until_ms.get(broker_id, -1):
            return None
        code = self._codes[broker_id].choice(LIES[api])
        self.trace.count(f"lie: {api} answered with {code}")
        ids = [body["transactional_id"]] if api == "EndTxn" else body["transactional_ids"]
        self.lied_about.update(ids)
        self.trace.note(self.core.schedule.now_ms, f"broker {broker_id} lies: {api} {code} {ids}")
        return Fault(api=api, error_code=code)
