"""Checks the promises against the logs when a run is over.

The simulation's own decoder reads the logs. Without idempotence, duplicates and a changed order are allowed; with
acks=1 the death of a leader may lose acknowledged records. A deleted topic loses its records; those in its last log
still count as delivered, since they were there when the producer was told so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.log import PartitionLog
from tests.sim.cluster_faults import ClusterFaults
from tests.sim.decoder import read_batch
from tests.sim.history import End, Fate, History, Record, TopicPartition, Transaction
from tests.sim.scenario import TOPICS
from tests.sim.trace import Trace, Violation
from tests.sim.workload import group_of


@dataclass(slots=True)
class LogView:
    """One partition as a reader sees it. `visible` is what read_committed shows, in the order of the offsets."""

    topic_partition: TopicPartition
    is_dead: bool
    offsets: dict[int, int] = field(default_factory=dict)
    stored: list[int] = field(default_factory=list)
    # The records that each producer id wrote, in the order of the log.
    written: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    visible: list[int] = field(default_factory=list)
    open_count: int = 0


def read_log(topic_partition: TopicPartition, log: PartitionLog, *, is_dead: bool) -> LogView:
    view = LogView(topic_partition, is_dead)
    pending: dict[int, list[tuple[int, int]]] = defaultdict(list)
    visible: list[tuple[int, int]] = []
    for batch in log.batches:
        seen = read_batch(batch.data)
        if seen.marker is not None:
            ended = pending.pop(seen.producer_id, [])
            visible += ended if seen.marker == "commit" else []
            continue
        rows = [(seen.base_offset + index, number) for index, number in enumerate(seen.numbers)]
        view.offsets.update(rows)
        view.stored += seen.numbers
        view.written[seen.producer_id] += seen.numbers
        if seen.is_transactional:
            pending[seen.producer_id] += rows
        else:
            visible += rows
    view.visible = [number for _, number in sorted(visible)]
    view.open_count = len(pending)
    return view


class Checkers:
    def __init__(self, core: BrokerCluster, faults: ClusterFaults, history: History, trace: Trace) -> None:
        self.core = core
        self.history = history
        self.trace = trace
        self._reborn = faults.reborn_topics
        self._lost_tails = faults.lost_tails
        self.views = [
            read_log((name, partition.index), partition.log, is_dead=False)
            for name in TOPICS
            if name in core.cluster.topics
            for partition in core.cluster.topics[name].partitions
        ]
        self.views += [
            read_log(key, log, is_dead=True) for key, log in faults.dead_logs if isinstance(log, PartitionLog)
        ]
        self._by_partition: dict[TopicPartition, list[LogView]] = defaultdict(list)
        for view in self.views:
            self._by_partition[view.topic_partition].append(view)
        self._visible = {number for view in self.views if not view.is_dead for number in view.visible}

    def check_all(self) -> None:
        for view in self.views:
            self.check_place(view)
            self.check_once(view)
            self.check_order(view)
        for record in self.history.records:
            self.check_record(record)
        for transaction in self.history.transactions:
            self.check_transaction(transaction)
        self.check_offsets()
        self.check_stable()

    def _records(self, numbers: Iterable[int]) -> list[Record]:
        return [self.history.records[number] for number in numbers]

    def check_place(self, view: LogView) -> None:
        for record in self._records(view.stored):
            if record.topic_partition != view.topic_partition:
                raise Violation("I1", f"{record} is in the log of {view.topic_partition}")

    def check_once(self, view: LogView) -> None:
        for number, times in Counter(view.stored).items():
            if times > 1 and self.history.records[number].is_idempotent:
                raise Violation("I2", f"{self.history.records[number]} is {times} times in the log")
            if times > 1:
                self.trace.count("duplicate without idempotence")

    def check_order(self, view: LogView) -> None:
        """The order is checked per producer id: nothing fences a late request of an earlier producer id.

        A topic that was deleted and re-created is not checked: its new log accepts any first sequence of a producer
        that the old one knew, so a refused batch can be overtaken. Every Kafka client has this problem.
        """
        if view.topic_partition[0] in self._reborn:
            return
        for numbers in view.written.values():
            last: dict[str, int] = {}
            for record in self._records(numbers):
                if record.is_idempotent and record.number < last.get(record.client, -1):
                    raise Violation("I4", f"{record} stands behind record {last[record.client]} of the same producer")
                last[record.client] = record.number

    def check_record(self, record: Record) -> None:
        if record.fate is Fate.PENDING:
            raise Violation("I6", f"{record} was never answered")
        if record.fate is Fate.DELIVERED:
            self._check_delivered(record)
        elif record.fate is Fate.FAILED and record.number in self._visible:
            raise Violation("I3", f"{record} is in the log, but its producer was sure that it is not")

    def _check_delivered(self, record: Record) -> None:
        views = self._by_partition[record.topic_partition]
        is_safe = record.acks == -1 or (record.acks == 1 and not self._lost_tails)
        if record.offset < 0:
            # With acks=0, or with a duplicate so old that the broker no longer knows its offset.
            is_there = any(record.number in view.stored for view in views)
        else:
            is_there = any(view.offsets.get(record.offset) == record.number for view in views)
        if is_safe and not is_there:
            raise Violation("I1", f"{record} is not at offset {record.offset}")

    def check_transaction(self, transaction: Transaction) -> None:
        survivors = [one for one in transaction.records if one.topic_partition[0] not in self._reborn]
        shown = [one for one in survivors if one.number in self._visible]
        about = f"transaction {transaction.number} of {transaction.transactional_id} ({transaction.end.value})"
        if transaction.end is End.COMMITTED:
            missing = [one for one in survivors if one.number not in self._visible]
            if missing:
                raise Violation("I5", f"{about} lacks {missing[0]}")
        elif transaction.end is End.ABORTED or not transaction.wanted_commit:
            shown = [one for one in transaction.records if one.number in self._visible]
            if shown:
                raise Violation("I5", f"{about} shows {shown[0]}")
        elif shown and len(shown) != len(survivors):
            missing = [one for one in survivors if one.number not in self._visible]
            raise Violation("I5", f"{about} is torn: it shows {shown[0]} but not {missing[0]}")
        elif transaction.records:
            self.trace.count("undecided transaction turned out " + ("committed" if shown else "aborted"))

    def check_offsets(self) -> None:
        """The offsets of a group change with the transactions that carried them, and only with those."""
        for transactional_id in dict.fromkeys(one.transactional_id for one in self.history.transactions):
            group = self.core.groups.groups.get(group_of(transactional_id))
            carriers = [
                one for one in self.history.transactions if one.transactional_id == transactional_id and one.offsets
            ]
            committed = [one.number + 1 for one in carriers if one.end is End.COMMITTED]
            aborted = [one.number + 1 for one in carriers if one.end is End.ABORTED or not one.wanted_commit]
            found = group.offsets[("source", 0)].offset if group is not None and group.offsets else 0
            if found < max(committed, default=0) or found in aborted:
                raise Violation("I5", f"group of {transactional_id} stands at {found}; {committed=} {aborted=}")

    def check_stable(self) -> None:
        """Nothing hangs: every log is fully replicated, and every transaction has ended."""
        for name, topic in self.core.cluster.topics.items():
            for partition in topic.partitions:
                log = partition.log
                if log.high_watermark != log.end_offset or log.last_stable_offset != log.high_watermark:
                    marks = (log.last_stable_offset, log.high_watermark, log.end_offset)
                    raise Violation("I12", f"{name}-{partition.index}: stable, replicated and end offset are {marks}")
        for transactional_id, transaction in self.core.coordinator.transactions.items():
            if transaction.pending is not None:
                raise Violation("I12", f"the coordinator never finished {transactional_id}")
