"""Records of the ledger that no sink writes: a tool copies an old one without a transaction, or garbage takes its key.

Each stops the sink until an operator repairs the ledger: the newest record of the key is copied again, in a
transaction. The cleaner may have removed the original by then, so it is kept here.
"""

from __future__ import annotations

from random import Random

from kafka_sink.commit.ledger import ledger_key
from kafka_sink.commit.ledger_codec import encode_record
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.batches import Marker, check_batch, stamp
from tests.sim.delivery.ledger_log import ledger_entries
from tests.sim.delivery.plan import LEDGER
from tests.sim.trace import Trace

# Far from those that the brokers give.
COPIER = 1 << 40


class ForeignRecords:
    def __init__(self, core: BrokerCluster, trace: Trace) -> None:
        self._core = core
        self._trace = trace
        # By ledger key: offset of the foreign record, and the newest value of the sink below it.
        self._hidden: dict[str, tuple[int, bytes]] = {}
        self._copies = 0

    def write(self, pick: Random) -> bool:
        """Only while no record is on its way: it could become the newest below the foreign one."""
        log = self._core.cluster.topics[LEDGER].partitions[0].log
        entries = ledger_entries(self._core, {})
        if not entries or log.last_stable_offset < log.end_offset:
            return False
        newest = {ledger_key(one.record.sink_id, one.record.key): encode_record(one.record) for one in entries}
        key = pick.choice(sorted(newest.keys() - self._hidden.keys()) or [""])
        if not key:
            return False
        self._hidden[key] = (log.end_offset, newest[key])
        self._append(key, pick.choice((b"?", newest[key], None)))
        return True

    def repair(self) -> None:
        """Also only then. A sink that has written since needs none."""
        log = self._core.cluster.topics[LEDGER].partitions[0].log
        if log.last_stable_offset < log.end_offset:
            return
        newest = {ledger_key(one.record.sink_id, one.record.key): one.offset for one in ledger_entries(self._core, {})}
        for key, (offset, value) in sorted(self._hidden.items()):
            if newest.get(key, -1) < offset:
                self._trace.count("operator copied a ledger record again")
                self._append(key, value, is_transactional=True)
        self._hidden.clear()

    def _append(self, key: str, value: bytes | None, *, is_transactional: bool = False) -> None:
        cluster = self._core.cluster
        partition = cluster.topics[LEDGER].partitions[0]
        config, log, now_ms = cluster.topics[LEDGER].config, partition.log, cluster.schedule.now_ms
        batch = encode_batch([Record(now_ms, key.encode(), value)], make_compressor("none"))
        self._copies += 1
        producer_id = COPIER + self._copies if is_transactional else -1
        epoch, sequence = (0, 0) if is_transactional else (-1, -1)
        header = seal(
            batch, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
            is_transactional=is_transactional,
        )  # fmt: skip
        checked = check_batch(header + batch.payload, 1 << 20)
        stored = stamp(checked, log.end_offset, partition.leader_epoch, now_ms, is_append_time=False)
        log._store(stored, config)
        if is_transactional:
            log.producers.append(stored)
            marker = Marker(producer_id, epoch, True, 0)
            log.append_marker(marker, config, is_strict=False, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        cluster.replicate(partition)
