"""The smallest broker that the driver's machine needs: transaction states, epochs, logs with markers. No I/O.

It follows the tables of Apache Kafka's coordinator (both versions). It has no replication, expiry of ids or several
producers per transaction, because the model does not need them. A state is a nested tuple, so that two paths to the
same state can be recognised; `TinyBroker` unpacks it, answers one request, and returns the next state.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from crc32c import crc32c

from kafka_sink.formats.records import batch as layout
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch, encode_records
from kafka_sink.kafka.client.ask import Ask

LEDGER = "ledger"
READ_COMMITTED = 1
# Producer id, epoch, state, partitions, and the clock when the transaction began.
Transaction = tuple[int, int, str, tuple[Any, ...], int]
EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE = {True: "PrepareCommit", False: "PrepareAbort"}
COMPLETE = {"PrepareCommit": "CompleteCommit", "PrepareAbort": "CompleteAbort"}
TIMEOUT_MS = 1_000_000

State = tuple[Any, ...]
NEW: State = ((), (), 0)


class TinyBroker:
    def __init__(self, state: State, transaction_version: int) -> None:
        transactions, logs, self.clock = state
        self.transactions: dict[str, Transaction] = dict(transactions)
        # An entry is (producer id, epoch, record batch or None, marker or None).
        self.logs: dict[Any, list[Any]] = {partition: list(entries) for partition, entries in logs}
        self.transaction_version = transaction_version
        # Not part of the state: in the model every partition always has a leader.
        self.leaderless: set[Any] = set()
        # The ids of topics that have one, None if the topic was deleted. In the model no topic has one.
        self.topic_ids: dict[str, bytes | None] = {}
        # Of the ledger; None: it is not told to those who may not know it.
        self.cleanup_policy: str | None = "compact"
        # As Metadata names it; None: it names none.
        self.cluster_id: str | None = None
        # By how much an abort by the broker itself raises the epoch: twice in Kafka 4.0.0 (KAFKA-19367).
        self.fence_raises = 1
        # Whether DescribeProducers tells the number of a producer's last record. In the model one record may stand for
        # two rows.
        self.tells_sequences = True
        # First offsets of segments: no Fetch reads beyond the end of one.
        self.segments: dict[Any, list[int]] = {}

    def state(self) -> State:
        transactions = tuple(sorted(self.transactions.items()))
        logs = tuple((partition, tuple(entries)) for partition, entries in sorted(self.logs.items()))
        return (transactions, logs, self.clock)

    # ---- calls of tasks ----

    def write_in_task(self, transactional_id: str, partition: Any, value: bytes) -> tuple[int, int, int]:
        """A whole task attempt in one step: the epoch that the end of the last transaction gave, or a new one; one
        record. Gives producer id, epoch and offset. Epoch -1: the task has to try again."""
        expected = self._epoch_that_goes_on(transactional_id, partition)
        if expected is not None:
            code = self._check_owner(transactional_id, *expected)
            if code == 0:
                self.add_partitions(transactional_id, [partition])
                return (*expected, self.write(partition, value, *expected))
            if code == 51:
                return -1, -1, -1
        code, producer_id, epoch = self.init(transactional_id, None)
        if code:
            return -1, -1, -1
        self.add_partitions(transactional_id, [partition])
        return producer_id, epoch, self.write(partition, value, producer_id, epoch)

    def _epoch_that_goes_on(self, transactional_id: str, partition: Any) -> tuple[int, int] | None:
        """As its process remembers it: after that of the last record that was written under the id."""
        if self.transaction_version == 1:
            return None
        own, entries = _producer_id(transactional_id), reversed(self.logs.get(partition, []))
        last = next((entry for entry in entries if entry[0] == own and entry[2] is not None), None)
        return None if last is None else (own, last[1] + 1)

    def write_more(
        self, transactional_id: str, partition: Any, value: bytes, producer_id: int, epoch: int, *, is_new: bool
    ) -> int | None:
        """A further record of a task, which has not written to this partition before if `is_new`. None: refused."""
        if self._check_owner(transactional_id, producer_id, epoch):
            return None
        _, _, state, partitions, _ = self.transactions[transactional_id]
        if self.transaction_version >= 2 or is_new:
            self.add_partitions(transactional_id, [partition])
        elif state != ONGOING or partition not in partitions:
            return None
        return self.write(partition, value, producer_id, epoch)

    def repeat_adding(self, transactional_id: str, partition: Any, producer_id: int, epoch: int) -> None:
        """A copy of a request that was answered before arrives late."""
        if not self._check_owner(transactional_id, producer_id, epoch):
            self.add_partitions(transactional_id, [partition])

    def add_partitions(self, transactional_id: str, added: Iterable[Any]) -> None:
        """Begins the transaction, if none is open."""
        producer_id, epoch, state, partitions, start = self.transactions[transactional_id]
        if state != ONGOING:
            self.clock += 1
            start, partitions = self.clock, ()
        partitions = tuple(sorted({*partitions, *added}))
        self.transactions[transactional_id] = (producer_id, epoch, ONGOING, partitions, start)

    def write(self, partition: Any, value: bytes, producer_id: int, epoch: int) -> int:
        return self._append(partition, (producer_id, epoch, _data(value, producer_id, epoch), None))

    # ---- events without a request ----

    def lose_tail(self, partition: Any, count: int = 1) -> None:
        """Acknowledged records at the end of the log are gone with the only replica that had them."""
        del self.logs[partition][-count:]

    def time_out(self, transactional_id: str) -> None:
        """Aborts the transaction, and raises the epoch in both transaction versions."""
        producer_id, epoch, _, partitions, start = self.transactions[transactional_id]
        raised = epoch + self.fence_raises
        self.transactions[transactional_id] = (producer_id, raised, PREPARE[False], partitions, start)

    def complete(self, transactional_id: str, *, is_lost: bool = False) -> None:
        """Writes markers to all partitions of a prepared transaction. `is_lost`: no marker is written, and this is not
        noticed, because the coordinator takes the unavailable partitions for deleted."""
        producer_id, epoch, state, partitions, start = self.transactions[transactional_id]
        for partition in () if is_lost else partitions:
            self._append(partition, (producer_id, epoch, None, state == PREPARE[True]))
        self.transactions[transactional_id] = (producer_id, epoch, COMPLETE[state], (), start)

    def write_marker(self, partition: Any, producer_id: int, epoch: int, *, commit: bool) -> None:
        """As Kafka's own tool does (WriteTxnMarkers): the coordinator does not hear of it."""
        self._append(partition, (producer_id, epoch, None, commit))

    def repeat_marker(self, partition: Any) -> None:
        """The newest marker of the partition arrives again. Before Kafka 4.2 a leader takes it if its epoch is not
        below that of the producer (KAFKA-19446)."""
        entries = self.logs.get(partition, [])
        last = next((entry for entry in reversed(entries) if entry[2] is None), None)
        if last is not None and last[1] >= max(entry[1] for entry in entries if entry[0] == last[0]):
            self._append(partition, last)

    # ---- requests of the driver ----

    def answer(self, request: Ask) -> dict[str, Any]:
        answered: dict[str, Any] = getattr(self, f"_on_{request.api.name}")(request.body, request)
        return answered

    def _on_InitProducerId(self, body: Any, request: Ask) -> dict[str, Any]:
        given = (body["producer_id"], body["producer_epoch"]) if "producer_id" in body else None
        code, producer_id, epoch = self.init(body["transactional_id"], given)
        return {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch}

    def init(self, transactional_id: str, given: tuple[int, int] | None) -> tuple[int, int, int]:
        known = self.transactions.get(transactional_id)
        if known is None:
            producer_id = _producer_id(transactional_id)
            self.transactions[transactional_id] = (producer_id, 0, EMPTY, (), 0)
            return 0, producer_id, 0
        producer_id, epoch, state, _, _ = known
        if given is not None and given[0] != producer_id:
            return 90, -1, -1
        if state == ONGOING:
            self.time_out(transactional_id)
            return 51, -1, -1
        if state in COMPLETE:
            return 51, -1, -1
        if given is not None and given[1] != epoch:
            return 90, -1, -1
        self.transactions[transactional_id] = (producer_id, epoch + 1, EMPTY, (), 0)
        return 0, producer_id, epoch + 1

    def _on_AddPartitionsToTxn(self, body: Any, request: Ask) -> dict[str, Any]:
        code = self._check_owner(
            body["v3_and_below_transactional_id"],
            body["v3_and_below_producer_id"],
            body["v3_and_below_producer_epoch"],
        )
        topics = [(topic["name"], topic["partitions"][0]) for topic in body["v3_and_below_topics"]]
        if not code:
            self.add_partitions(body["v3_and_below_transactional_id"], topics)
        added = [
            {"name": name, "results_by_partition": [{"partition_index": number, "partition_error_code": code}]}
            for name, number in topics
        ]
        return {"results_by_topic_v3_and_below": added}

    def _check_owner(self, transactional_id: str, producer_id: int, epoch: int) -> int:
        known = self.transactions.get(transactional_id)
        if known is None or known[0] != producer_id:
            return 49
        if known[1] != epoch:
            return 90
        return 51 if known[2] in COMPLETE else 0

    def _on_Produce(self, body: Any, request: Ask) -> dict[str, Any]:
        topic = body["topic_data"][0]
        sent = topic["partition_data"][0]
        partition = (topic["name"], sent["index"])
        records = sent["records"]
        producer_id, epoch = struct.unpack_from(">qh", records, 43)
        code, offset = self._produce(body["transactional_id"], partition, producer_id, epoch, records)
        answered = {"index": sent["index"], "error_code": code, "base_offset": offset}
        return {"responses": [{"name": topic["name"], "partition_responses": [answered]}]}

    def _produce(self, transactional_id: str, partition: Any, producer_id: int, epoch: int, records: bytes) -> Any:
        if transactional_id is None:
            return 0, self._append(partition, (producer_id, epoch, records, None))
        for offset, entry in enumerate(self.logs.get(partition, [])):
            if entry[:2] == (producer_id, epoch) and entry[2] is not None:
                return 0, offset
        code = self._check_owner(transactional_id, producer_id, epoch)
        if code:
            return (47 if code == 90 else code), -1
        known = self.transactions[transactional_id]
        if self.transaction_version == 1:
            if known[2] != ONGOING or partition not in known[3]:
                return 48, -1
        else:
            self.add_partitions(transactional_id, [partition])
        return 0, self._append(partition, (producer_id, epoch, records, None))

    def _append(self, partition: Any, entry: Any) -> int:
        entries = self.logs.setdefault(partition, [])
        entries.append(entry)
        return len(entries) - 1

    def _on_EndTxn(self, body: Any, request: Ask) -> dict[str, Any]:
        is_first = request.version_max <= 4
        owner = body["transactional_id"], body["producer_id"], body["producer_epoch"]
        code = self.end(*owner, commit=body["committed"], is_first=is_first)
        producer_id, epoch = self.transactions[body["transactional_id"]][:2] if code == 0 else (-1, -1)
        return {"error_code": code, "producer_id": producer_id, "producer_epoch": epoch}

    def end(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, is_first: bool) -> int:
        """`is_first`: by the rules of transaction version 1, which a request of an old version selects."""
        known = self.transactions.get(transactional_id)
        if known is None or known[0] != producer_id:
            return 49
        _, current, state, partitions, start = known
        is_repeat = not is_first and current == epoch + 1
        if state == ONGOING or is_first:
            if epoch != current:
                return 90
        elif state == EMPTY:
            return (48 if commit else 0) if epoch == current else 90
        elif not is_repeat:
            is_next = epoch == current and state not in COMPLETE
            return (48 if commit else 0) if is_next else 90
        if state == ONGOING:
            raised = current if is_first else current + 1
            self.transactions[transactional_id] = (producer_id, raised, PREPARE[commit], partitions, start)
            return 0
        if state == PREPARE[commit]:
            return 51
        return 0 if state == COMPLETE[PREPARE[commit]] else 48

    def _on_ListOffsets(self, body: Any, request: Ask) -> dict[str, Any]:
        topics = []
        for topic in body["topics"]:
            answered = []
            for asked in topic["partitions"]:
                partition = (topic["name"], asked["partition_index"])
                stop = len(self.logs.get(partition, []))
                stop = self.last_stable_offset(partition) if body["isolation_level"] else stop
                offset = stop if asked["timestamp"] == -1 else 0
                answered.append({"partition_index": partition[1], "error_code": 0, "offset": offset})
            topics.append({"name": topic["name"], "partitions": answered})
        return {"topics": topics}

    def _on_DescribeConfigs(self, body: Any, request: Ask) -> dict[str, Any]:
        name = body["resources"][0]["resource_name"]
        configs = [] if self.cleanup_policy is None else [{"name": "cleanup.policy", "value": self.cleanup_policy}]
        error_code = 29 if self.cleanup_policy is None else 0
        result = {"resource_type": 2, "resource_name": name, "error_code": error_code, "configs": configs}
        return {"results": [result]}

    def _on_Fetch(self, body: Any, request: Ask) -> dict[str, Any]:
        topic = body["topics"][0]
        asked = topic["partitions"][0]
        partition = (topic["topic"], asked["partition"])
        entries = self.logs.get(partition, [])
        first = asked["fetch_offset"]
        is_committed = body["isolation_level"] == READ_COMMITTED
        stop = min((one for one in self.segments.get(partition, ()) if one > first), default=len(entries))
        stop = min(stop, self.last_stable_offset(partition)) if is_committed else stop
        # Every entry is larger than one byte, and at least one is returned.
        stop = min(stop, first + 1) if asked["partition_max_bytes"] == 1 else stop
        records = b"".join(
            _at_offset(offset, _marker(entry[0], entry[1], entry[3]) if entry[2] is None else entry[2])
            for offset, entry in enumerate(entries[:stop])
            if offset >= first
        )
        answered = {
            "partition_index": asked["partition"],
            "error_code": 1 if asked["fetch_offset"] > len(entries) else 0,
            "high_watermark": len(entries),
            "last_stable_offset": self.last_stable_offset(partition),
            "records": records,
            "aborted_transactions": self._aborted(partition, first, stop) if is_committed else None,
        }
        return {"error_code": 0, "responses": [{"topic": topic["topic"], "partitions": [answered]}]}

    def _aborted(self, partition: Any, first: int, stop: int) -> list[dict[str, int]]:
        """Those that overlap these offsets."""
        found, open_since = [], dict[int, int]()
        for offset, (producer_id, _, batch, is_commit) in enumerate(self.logs.get(partition, [])):
            if batch is not None:
                if producer_id >= 0:
                    open_since.setdefault(producer_id, offset)
                continue
            since = open_since.pop(producer_id, None)
            if since is not None and not is_commit and offset >= first and since < stop:
                found.append({"producer_id": producer_id, "first_offset": since})
        return found

    def last_stable_offset(self, partition: Any) -> int:
        return min(self._open_since(partition).values(), default=len(self.logs.get(partition, [])))

    def has_open(self, partition: Any) -> bool:
        return bool(self._open_since(partition))

    def _open_since(self, partition: Any) -> dict[int, int]:
        """The first offsets of open transactions by producer id."""
        open_since: dict[int, int] = {}
        for offset, entry in enumerate(self.logs.get(partition, [])):
            if entry[2] is None:
                open_since.pop(entry[0], None)
            elif entry[0] >= 0:
                open_since.setdefault(entry[0], offset)
        return open_since

    def _last_of(self, partition: Any, producer_id: int) -> dict[str, int]:
        """Each entry is one record, and a marker leaves the numbers of its epoch as they are."""
        epochs = [entry[1] for entry in self.logs[partition] if entry[0] == producer_id and entry[2] is not None]
        last_sequence = epochs.count(epochs[-1]) - 1 if self.tells_sequences else -1
        return {"producer_epoch": epochs[-1], "last_sequence": last_sequence}

    def _on_DescribeProducers(self, body: Any, request: Ask) -> dict[str, Any]:
        topics = []
        for topic in body["topics"]:
            answered = []
            for number in topic["partition_indexes"]:
                where = topic["name"], number
                active = [
                    {"producer_id": one, **self._last_of(where, one), "current_txn_start_offset": at}
                    for one, at in self._open_since(where).items()
                ]
                answered.append({"partition_index": number, "error_code": 0, "active_producers": active})
            topics.append({"name": topic["name"], "partitions": answered})
        return {"topics": topics}

    def _on_DescribeTransactions(self, body: Any, request: Ask) -> dict[str, Any]:
        states = []
        for transactional_id in body["transactional_ids"]:
            known = self.transactions.get(transactional_id)
            producer_id, epoch, state, partitions, start = known or (-1, -1, "", (), -1)
            states.append(
                {
                    "error_code": 0 if known else 105,
                    "transactional_id": transactional_id,
                    "transaction_state": state,
                    "transaction_timeout_ms": TIMEOUT_MS,
                    "transaction_start_time_ms": start,
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "topics": [{"topic": topic, "partitions": [number]} for topic, number in partitions],
                }
            )
        return {"transaction_states": states}

    def _on_DescribeQuorum(self, body: Any, request: Ask) -> dict[str, Any]:
        """The controller's clock is that of the coordinators."""
        voter = {"replica_id": 1, "last_caught_up_timestamp": self.clock}
        row = {"partition_index": 0, "leader_id": 1, "current_voters": [voter]}
        return {"error_code": 0, "topics": [{"topic_name": "__cluster_metadata", "partitions": [row]}]}

    def _on_Metadata(self, body: Any, request: Ask) -> dict[str, Any]:
        topics = []
        for asked in body["topics"]:
            # A topic to which nobody has written yet has its first partition all the same.
            numbers = sorted({0, *(partition[1] for partition in self.logs if partition[0] == asked["name"])})
            partitions = [
                {
                    "error_code": 5 if (asked["name"], number) in self.leaderless else 0,
                    "partition_index": number,
                    "leader_id": -1 if (asked["name"], number) in self.leaderless else 1,
                }
                for number in numbers
            ]
            topic_id = self.topic_ids.get(asked["name"], bytes(16))
            told = {"error_code": 0 if topic_id else 3, "topic_id": topic_id or bytes(16)}
            topics.append({**told, "name": asked["name"], "partitions": partitions if topic_id else []})
        return {"brokers": [], "cluster_id": self.cluster_id, "topics": topics}

    def _on_ListTransactions(self, body: Any, request: Ask) -> dict[str, Any]:
        listed = [
            {"transactional_id": name, "producer_id": known[0], "transaction_state": known[2]}
            for name, known in sorted(self.transactions.items())
            if known[2] == ONGOING
        ]
        return {"error_code": 0, "transaction_states": listed}


@cache
def _producer_id(transactional_id: str) -> int:
    """Derived from the name and not from a counter, so that the order of tasks does not make different states."""
    return zlib.crc32(transactional_id.encode())


@cache
def _data(value: bytes, producer_id: int, epoch: int) -> bytes:
    batch = encode_batch([Record(0, b"k", value)], make_compressor("none"))
    header = seal(batch, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    return header + batch.payload


@cache
def _marker(producer_id: int, epoch: int, is_commit: bool) -> bytes:
    payload = encode_records([Record(0, struct.pack(">hh", 0, is_commit), struct.pack(">hi", 0, 0))], 0)
    attributes = layout.TRANSACTIONAL_BIT | layout.CONTROL_BIT
    checked = layout.CHECKED.pack(attributes, 0, 0, 0, producer_id, epoch, -1, 1)
    checksum = crc32c(payload, crc32c(checked))
    size = layout.HEADER_BYTES + len(payload)
    return layout.PREFIX.pack(0, size - layout.LENGTH_STARTS_AT, -1, 2, checksum) + checked + payload


def _at_offset(offset: int, batch: bytes) -> bytes:
    return offset.to_bytes(8, "big") + batch[8:]


def rows_of(state: State) -> dict[bytes, list[str]]:
    """For each row that a task ever wrote, the state of each copy: visible, coming, open or aborted."""
    transactions, logs, _ = state
    by_producer = {known[0]: known for _, known in transactions}
    fates: dict[bytes, list[str]] = {}
    for partition, entries in logs:
        if partition[0] == LEDGER:
            continue
        for offset, (producer_id, _, batch, _) in enumerate(entries):
            if batch is None:
                continue
            marker = next((e[3] for e in entries[offset + 1 :] if e[0] == producer_id and e[2] is None), None)
            if marker is None:
                fate = {PREPARE[True]: "coming", PREPARE[False]: "aborted"}.get(by_producer[producer_id][2], "open")
            else:
                fate = "visible" if marker else "aborted"
            fates.setdefault(batch[-8:-1], []).append(fate)
    return fates
