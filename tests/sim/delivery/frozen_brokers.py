"""Brokers that were frozen, and answer the check of a batch as of before it (the breaker `frozen`).

When the tasks of a batch begin, a broker loses what it leads and coordinates, and does not notice before the driver has
begun to commit. It wakes up then, and is wrong for some moments. A batch must not be refused because of that (I25): at
the moment of a refusal, the transaction that it names has ended, or holds less than its task has written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.preflight import Preflight
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import DriverOperation
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.topics import TRANSACTION_TOPIC, Partition
from kafka_sink.testing.transaction_state import CoordinatorState
from tests.sim.delivery.assumptions import Assumptions
from tests.sim.network import Network
from tests.sim.scenario import TOPICS
from tests.sim.trace import Trace, Violation

# For so long it is wrong when it is awake, and it does not sleep for longer than that.
AWAKE_MS, ASLEEP_MS = 300, 10_000
UNAWARE_MS = 1 << 40
_REFUSED = re.compile(r"was not committed: transaction (\S+) (?:is|does) ")


class FrozenBrokers:
    def __init__(self, network: Network, trace: Trace, assumptions: Assumptions) -> None:
        self._network = network
        self._core: BrokerCluster = network.core
        self._trace = trace
        self._assumptions = assumptions
        # For the next batch; and the broker that does not know its successors.
        self._pick: Random | None = None
        self._frozen: int | None = None
        # Until when a leader may be wrong for another reason, by topic.
        self.outdated_until_ms: dict[str, int] = {}
        self.table: dict[str, Callable[[Random, int], bool]] = {"freeze_broker": self.freeze_broker}

    def freeze_broker(self, pick: Random, length_ms: int) -> bool:
        self._pick = pick
        return False  # counted when it happens

    def heal(self) -> None:
        self._pick = None

    def on_job(self) -> None:
        pick, self._pick = self._pick, None
        if pick is None or self._frozen is not None:
            return
        led = self._led()
        if not led:
            return
        self._frozen = node_id = pick.choice(sorted(led))
        for partition, others in led[node_id]:
            self._core.cluster.depose_leader(*partition.key, pick.choice(others), UNAWARE_MS)
        self._trace.count("fault freeze_broker")
        self._trace.note(self._core.schedule.now_ms, f"broker {node_id} is frozen")
        self._network.loop.after(ASLEEP_MS, lambda: self._notices(node_id))
        self._network.route(self._core.tick(self._core.schedule.now_ms))

    def on_commit(self) -> None:
        node_id = self._frozen
        if node_id is not None:
            self._network.loop.after(AWAKE_MS, lambda: self._notices(node_id))

    def _notices(self, node_id: int) -> None:
        if self._frozen == node_id:
            self._frozen = None
            self._core.cluster.end_outdated_views(node_id)
            self._trace.note(self._core.schedule.now_ms, f"broker {node_id} knows its successors")

    def _led(self) -> dict[int, list[tuple[Partition, list[int]]]]:
        """What each broker leads that another one could lead."""
        found: dict[int, list[tuple[Partition, list[int]]]] = {}
        topics = [topic for name in (*TOPICS, TRANSACTION_TOPIC) if (topic := self._core.cluster.topics.get(name))]
        for partition in [one for topic in topics for one in topic.partitions]:
            up = [one for one in partition.in_sync if self._core.cluster.is_up(one)]
            others = [one for one in up if one != partition.leader_id]
            if partition.leader_id in up and others:
                found.setdefault(partition.leader_id, []).append((partition, others))
        return found

    # ---- the check ----

    def on_checking(self, machine: Committer) -> None:
        if isinstance(machine._current, Preflight) and machine._current._suspicions:
            self._trace.count("what refuses a batch is asked for again")

    def check_refused(self, machine: Committer) -> None:
        """Before anything of it is discarded."""
        found = _REFUSED.search(str(machine._intended.error or ""))
        if found is None or machine._job.operation is not DriverOperation.COMMIT:
            return
        for receipt in machine._receipts:
            transaction = receipt.transaction
            if transaction is None or transaction.transactional_id != found[1] or self._may_be_wrong(receipt):
                continue
            if self._is_whole(receipt):
                raise Violation("I25", f"{found[1]} is whole, and its batch is refused: {machine._intended.error}")

    def _may_be_wrong(self, receipt: TaskReceipt) -> bool:
        assert receipt.transaction is not None
        now_ms, latest_ms = self._core.schedule.now_ms, 1_000
        is_outdated = any(
            now_ms <= self.outdated_until_ms.get(one.topic, -latest_ms) + latest_ms for one in receipt.written
        )
        return is_outdated or receipt.transaction.transactional_id in self._assumptions.lied_about

    def _is_whole(self, receipt: TaskReceipt) -> bool:
        transaction = receipt.transaction
        assert transaction is not None
        known = self._core.coordinator.transactions.get(transaction.transactional_id)
        if known is None or known.pending is not None or known.record.state is not CoordinatorState.ONGOING:
            return False
        record = known.record
        if (record.producer_id, record.producer_epoch) != transaction.identity:
            return False
        return all(
            (one.topic, one.partition) in record.partitions
            and self._is_open_since(one.topic, one.partition, transaction.producer_id, one.first_offset)
            for one in receipt.written
        )

    def _is_open_since(self, topic: str, index: int, producer_id: int, offset: int) -> bool:
        partition = self._core.cluster.partition(topic, index)
        entry = None if partition is None else partition.log.producers.entries.get(producer_id)
        since = None if entry is None else entry.transaction_first_offset
        return since is not None and (offset < 0 or since <= offset)
