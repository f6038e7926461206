"""Partitions that lose their leader, and whether the sink kept away from them (I20), and not for too long (I26).

From Kafka 4.3 on a coordinator drops the marker of a partition that has no leader (KAFKA-20734). So the sink asks for
leaders before it ends a transaction, and waits. Each dropped marker has a cause, which is found here and counted:

  time-out        the coordinator itself has ended the transaction
  after the check a broker had told the client in time that the partition has a leader
  late news       there is a leader again, a broker had told the client, but the coordinator had not heard of it
  deadline        the driver's time was up, and the decided batch had to be committed; help for another driver has none
  last call       the decided transaction was about to time out
  lie             a coordinator had wrongly answered that the transaction is over (`lies`), so its id was used again
  losing attempt  nobody took the receipt of the attempt, and its process used the id again before the sweep could abort

Any other cause is a violation. "In time" means: for the first EndTxn of a batch, since the check before the decision;
for a repetition, since the EndTxn before it; for all other requests of a driver, since its operation began. A task must
have heard it in its newest answer. Answers with an older leader epoch than the client knows change nothing: their
brokers are behind. Nor does an error instead of the partitions. Metadata that is not asked for again, because it is
new, counts as told now. The leader of a manifest has told it with the answer to the manifest itself, once.

The ledger is excepted: its markers wait for the leader here, since lost markers of the ledger are a breaker of their
own.

An operator ends what was forgotten when the faults are over, as troubleshooting.md says: a committed transaction by a
commit, an aborted one by an abort. If the next transaction of the producer id has ended it first, its rows are in
doubt; then a row of it may be missing or there twice, and no other row. Rows that its attempt has written after the
end that was forgotten belong to it: the leader takes them, because the transaction is open there. A manifest is in
doubt in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from random import Random
from typing import Any

from kafka_sink.commit.end_txn import CommitTransactions
from kafka_sink.kafka.client.ask import Ask
from kafka_sink.kafka.client.cluster import NO_EPOCH
from kafka_sink.kafka.wire import frames
from kafka_sink.kafka.wire.apis import END_TXN, INIT_PRODUCER_ID, METADATA
from kafka_sink.testing.batches import Marker
from kafka_sink.testing.call import Call
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.topics import NO_LEADER
from kafka_sink.testing.transaction_state import CoordinatorState, TopicPartition, TransactionRecord
from kafka_sink.testing.transactions import CoordinatedTransaction
from tests.sim.decoder import Seen, read_batch
from tests.sim.delivery.books import Attempt, Books
from tests.sim.delivery.driver_host import DriverHost
from tests.sim.delivery.plan import LEDGER, MANIFESTS
from tests.sim.network import Connection, Network
from tests.sim.scenario import TOPICS
from tests.sim.trace import Trace, Violation

TIME_OUT, AFTER_THE_CHECK, LATE_NEWS = "time-out", "after the check", "late news"
DEADLINE, LAST_CALL, LIE, LOSING = "deadline", "last call", "lie", "losing attempt"
# Those that a long run must show; the other two are too rare.
CAUSES = (TIME_OUT, AFTER_THE_CHECK, LATE_NEWS, DEADLINE, LAST_CALL)
# A driver that begins to wait for a leader so long before the time-out is in time, if nothing else happens; and so long
# after it no request of one is under way any more.
IN_TIME_MS, OVERDUE_MS = 1_000, 1_500
OPEN_SHARE = 0.8
# Longer than most answers take.
LATENCY_MS = 50


@dataclass(frozen=True, slots=True)
class Excuse:
    """What a client knew when it sent an EndTxn: why each partition may have no leader, if there is a reason."""

    who: str
    by_partition: dict[TopicPartition, str | None]


@dataclass(slots=True)
class Forgotten:
    """A transaction that its coordinator has ended, but not in this partition."""

    partition: TopicPartition
    producer_id: int
    first_offset: int
    is_commit: bool
    # More than one if a later transaction of the id was forgotten, too.
    attempts: frozenset[Attempt]
    # Offsets.
    manifests: frozenset[int]


class Leaders:
    def __init__(
        self, network: Network, trace: Trace, books: Books, lied_about: Set[str], *, freshness_ms: int,
        has_no_other_faults: bool,
    ) -> None:  # fmt: skip
        """`lied_about`: transactional ids about which a coordinator has answered wrongly. `has_no_other_faults`: a
        request is neither lost nor late."""
        self._books = books
        self._lied_about = lied_about
        self.network = network
        self.core = network.core
        self.trace = trace
        # Metadata as old as this is not asked for again.
        self._freshness_ms = freshness_ms
        self._has_no_other_faults = has_no_other_faults
        # By host and claim: when a transaction times out whose commit waits in time for a leader.
        self._times_out_ms: dict[tuple[str, str, int], int] = {}
        self.in_doubt: set[int] = set()
        self.manifests_in_doubt: set[int] = set()
        self._forgotten: list[Forgotten] = []
        # By host and partition: when a broker told the host about its leader, whether there was one, and its epoch.
        self._told: dict[tuple[str, TopicPartition], list[tuple[int, bool, int]]] = defaultdict(list)
        self._sent_ms: dict[tuple[str, str, int], int] = {}
        self._excuses: dict[tuple[int, int], Excuse] = {}
        self._call: Call | None = None
        self._cause: dict[str, Excuse | None] = {}
        self._watch()

    def _watch(self) -> None:
        core, network, coordinator = self.core, self.network, self.core.coordinator
        markers = coordinator._markers
        self._really_handle, self._really_send = core._handle, network._send
        self._really_decide, self._really_drop = coordinator._decide, markers.is_dropped
        core._handle = self._handle  # type: ignore[method-assign]
        network._send = self._send  # type: ignore[method-assign]
        coordinator._decide = self._decide  # type: ignore[method-assign]
        markers.is_dropped = self._is_dropped  # type: ignore[method-assign]
        markers.on_dropped = self._on_dropped

    # ---- faults ----

    def lose(self, pick: Random, length_ms: int) -> bool:
        """Takes a partition offline for a while; mostly one that an open transaction has written to."""
        cluster = self.core.cluster
        led = [one.key for name in TOPICS for one in cluster.topics[name].partitions if cluster.is_up(one.leader_id)]
        written = [
            partition
            for transaction in self.core.coordinator.transactions.values()
            if transaction.record.state is CoordinatorState.ONGOING
            for partition in transaction.record.partitions
            if partition in led
        ]
        if not led:
            return False
        topic, index = pick.choice(written if written and pick.random() < OPEN_SHARE else led)
        cluster.take_offline(topic, index)
        self.trace.note(self.core.schedule.now_ms, f"{topic}-{index} has no leader for {length_ms} ms")
        self.network.loop.after(length_ms, lambda: self._bring_back(topic, index))
        return True

    def _bring_back(self, topic: str, index: int) -> None:
        self.core.cluster.bring_online(topic, index)
        self.network.route(self.core.tick(self.network.loop.now_ms))

    def heal(self) -> None:
        for name in TOPICS:
            for partition in self.core.cluster.topics[name].partitions:
                self.core.cluster.bring_online(name, partition.index)
        self.core.cluster.end_outdated_views()

    def check_wait(self, host: str, ask: Ask) -> None:
        """A commit was not sent, since a partition has no leader."""
        if ask.api is not END_TXN or not ask.body["committed"]:
            return
        now_ms, name, epoch = self.network.loop.now_ms, ask.body["transactional_id"], ask.body["producer_epoch"]
        waiting = host, name, epoch
        known = self.core.coordinator.transactions.get(name)
        if waiting not in self._times_out_ms and known is not None and known.record.producer_epoch == epoch:
            times_out_ms = known.record.start_ms + known.record.timeout_ms
            if known.record.state is CoordinatorState.ONGOING and now_ms + IN_TIME_MS <= times_out_ms:
                self._times_out_ms[waiting] = times_out_ms
                self.trace.count("decided transaction waits for a leader in time")
        if self._has_no_other_faults and now_ms > self._times_out_ms.get(waiting, now_ms) + OVERDUE_MS:
            raise Violation("I26", f"{host} waits for a leader while {name} is decided and times out")

    # ---- what clients know ----

    def _handle(self, call: Call) -> None:
        self._call = call
        try:
            self._really_handle(call)
        finally:
            self._call = None
        is_error = call.fault is not None and call.fault.error_code is not None
        if call.api is METADATA and (call.fault is None or is_error):
            self._on_told(call, is_error=is_error)

    def _on_told(self, call: Call, *, is_error: bool) -> None:
        connection = self.network.connections.get(call.connection_id)
        if connection is None:
            return
        cluster, asked = self.core.cluster, call.body["topics"]
        judged = {name for name in (*TOPICS, MANIFESTS) if name in cluster.topics}
        for name in judged if asked is None else [one["name"] for one in asked if one["name"] in judged]:
            for partition in cluster.topics[name].partitions:
                leader_id, epoch = cluster.leader_as_seen_by(call.broker_id, partition)
                told = (False, NO_EPOCH) if is_error else (cluster.is_up(leader_id), epoch)
                self._told[connection.host.name, partition.key].append((call.now_ms, *told))

    def _send(self, connection: Connection, data: bytes, *, tells_written: bool) -> None:
        key, version, correlation_id, _, body_offset = frames.decode_request_header(data[4:])
        if key == END_TXN.key:
            body = END_TXN.decode_request(version, data[4:], body_offset)
            ended = (body["transactional_id"], body["producer_epoch"])
            excuse = self._excuse(connection.host, *ended, is_commit=body["committed"])
            self._excuses[connection.number, correlation_id] = excuse
        self._really_send(connection, data, tells_written=tells_written)

    def _excuse(self, host: Any, transactional_id: str, epoch: int, *, is_commit: bool) -> Excuse:
        now_ms = self.network.loop.now_ms
        transaction = self.core.coordinator.transactions.get(transactional_id)
        partitions = transaction.record.partitions if transaction is not None else ()
        before_ms = self._sent_ms.get((host.name, transactional_id, epoch))
        self._sent_ms[host.name, transactional_id, epoch] = now_ms
        found: dict[TopicPartition, str | None] = {}
        for partition in partitions:
            told = self._told[host.name, partition]
            if not isinstance(host, DriverHost):
                found[partition] = AFTER_THE_CHECK if is_led_by_the_newest(told) else None
                continue
            since_ms = host.checked_since_ms if before_ms is None else before_ms
            if before_ms is not None or not is_commit:
                since_ms = min(since_ms, now_ms - self._freshness_ms - LATENCY_MS)
            has_just_answered = partition[0] == MANIFESTS and before_ms is None
            if has_just_answered or _is_told_of_a_leader(told, since_ms):
                found[partition] = AFTER_THE_CHECK
            elif is_commit:
                found[partition] = _excuse_of_driver(host, transactional_id)
            else:
                found[partition] = None
            if found[partition] in (DEADLINE, LAST_CALL):
                self.trace.count(f"EndTxn sent without a leader at the {found[partition]}")
        return Excuse(host.name, found)

    # ---- markers ----

    def _decide(self, transaction: CoordinatedTransaction, after: TransactionRecord, done: Any) -> None:
        call, cause = self._call, None
        if call is not None and call.api is END_TXN:
            cause = self._excuses.get((call.connection_id, call.correlation_id), Excuse("nobody", {}))
        elif call is not None and call.api is INIT_PRODUCER_ID:
            record = transaction.record
            exact = (transaction.transactional_id, record.producer_id, record.producer_epoch)
            is_lost = self._books.prepared.get(exact) in self._books.losers
            cause = Excuse("InitProducerId", dict.fromkeys(record.partitions, LOSING) if is_lost else {})
        self._cause[transaction.transactional_id] = cause
        self._really_decide(transaction, after, done)

    def _is_dropped(self, partition: TopicPartition, coordinator_id: int) -> bool:
        return partition[0] != LEDGER and self._really_drop(partition, coordinator_id)

    def _on_dropped(self, partition: TopicPartition, marker: Marker) -> None:
        forgotten = self._open_rows(partition, marker)
        if forgotten is None:
            # The partition was registered, but nothing has arrived there.
            self.trace.count("marker dropped: nothing to end")
            return
        if self._is_known(forgotten):
            # The next transaction of the id was registered there, and has written nothing.
            self.trace.count("marker dropped: forgotten before")
            return
        transactions = self.core.coordinator.transactions
        name = next(one for one, known in transactions.items() if known.record.producer_id == marker.producer_id)
        cause = self._cause[name]
        why = TIME_OUT if cause is None else cause.by_partition.get(partition)
        if why == AFTER_THE_CHECK and self._has_leader(partition):
            why = LATE_NEWS
        if why is None and name in self._lied_about:
            why = LIE
        text = f"{'commit' if marker.is_commit else 'abort'} of {name} was sent to {partition[0]}-{partition[1]}"
        if why is None:
            assert cause is not None
            raise Violation("I20", f"{text}, which has no leader, by {cause.who}")
        self.trace.count(f"marker dropped: {why}")
        self.trace.note(self.core.schedule.now_ms, f"{text}, which has no leader: {why}")
        self._forgotten.append(forgotten)

    def _is_known(self, found: Forgotten) -> bool:
        return any(
            (one.partition, one.producer_id, one.attempts, one.manifests)
            == (found.partition, found.producer_id, found.attempts, found.manifests)
            for one in self._forgotten
        )

    def _has_leader(self, partition: TopicPartition) -> bool:
        known = self.core.cluster.partition(*partition)
        return known is not None and known.leader_id != NO_LEADER

    def _open_rows(self, partition: TopicPartition, marker: Marker) -> Forgotten | None:
        known = self.core.cluster.partition(*partition)
        assert known is not None
        entry = known.log.producers.entries.get(marker.producer_id)
        if entry is None or entry.transaction_first_offset is None:
            return None
        first = entry.transaction_first_offset
        written = list(_written_since(known.log, marker.producer_id, first))
        attempts, manifests = frozenset[Attempt](), frozenset[int]()
        if partition[0] == MANIFESTS:
            manifests = frozenset(one.base_offset for one in written)
        else:
            attempts = frozenset(self._books.records[number][0] for one in written for number in one.numbers)
        return Forgotten(partition, marker.producer_id, first, marker.is_commit, attempts, manifests)

    # ---- the operator ----

    def end_forgotten(self) -> None:
        forgotten, self._forgotten = self._forgotten, []
        for one in forgotten:
            known = self.core.cluster.partition(*one.partition)
            assert known is not None
            if self._is_used(one.producer_id):
                self._forgotten.append(one)
                continue
            entry = known.log.producers.entries.get(one.producer_id)
            if entry is None or entry.transaction_first_offset != one.first_offset:
                self.trace.count("forgotten transaction ended by the next one of its id")
                self._doubt(one, known.log)
                continue
            self.trace.count(f"operator ended a forgotten transaction: {'commit' if one.is_commit else 'abort'}")
            now_ms, epoch = self.core.schedule.now_ms, known.leader_epoch
            marker = Marker(one.producer_id, entry.epoch, one.is_commit, entry.coordinator_epoch)
            config = self.core.cluster.known_topic(known.topic).config
            known.log.append_marker(marker, config, is_strict=False, leader_epoch=epoch, now_ms=now_ms)
            self.core.cluster.replicate(known)

    def _doubt(self, one: Forgotten, log: PartitionLog) -> None:
        self.manifests_in_doubt |= one.manifests
        if one.attempts:
            numbers = [each for seen in _written_since(log, one.producer_id, one.first_offset) for each in seen.numbers]
            self.in_doubt.update(each for each in numbers if self._books.records[each][0] in one.attempts)

    def _is_used(self, producer_id: int) -> bool:
        """The next transaction of the id is open or ending: what was forgotten ends with it."""
        return any(
            one.record.producer_id == producer_id
            and (one.pending is not None or one.record.state is CoordinatorState.ONGOING)
            for one in self.core.coordinator.transactions.values()
        )


def _written_since(log: PartitionLog, producer_id: int, first_offset: int) -> Iterator[Seen]:
    """Batches of the transaction that begins there, up to the marker that ends it."""
    seen = (read_batch(batch.data) for batch in log.batches if batch.base_offset >= first_offset)
    own = (one for one in seen if one.producer_id == producer_id)
    return takewhile(lambda one: one.marker is None, own)


def is_led_by_the_newest(told: Sequence[tuple[int, bool, int]]) -> bool:
    """A client ignores what an answer says about a leader of an earlier epoch than it knows."""
    newest_epoch = max((epoch for _, _, epoch in told), default=0)
    return next((is_led for _, is_led, epoch in reversed(told) if epoch == newest_epoch), False)


def _is_told_of_a_leader(told: Sequence[tuple[int, bool, int]], since_ms: int) -> bool:
    """By an answer since then; or one since then told nothing new, and the client knows of a leader."""
    newest_epoch = max((epoch for _, _, epoch in told), default=0)
    is_led_now = is_led_by_the_newest(told)
    return any(at_ms >= since_ms and (is_led or (is_led_now and epoch < newest_epoch)) for at_ms, is_led, epoch in told)


def _excuse_of_driver(host: DriverHost, transactional_id: str) -> str | None:
    machine = host.machine
    step = None if machine is None else machine._current
    if machine is None or not isinstance(step, CommitTransactions):
        return None
    one = next(each for each in step._decided if each.transaction.transactional_id == transactional_id)
    last_call_ms = step._last_call_ms(one)
    if last_call_ms is not None and host.loop.now_ms >= last_call_ms:
        return LAST_CALL
    is_help = machine._record is not None and machine._is_of_others(machine._record)
    return DEADLINE if step._stops_retrying and not is_help else None
