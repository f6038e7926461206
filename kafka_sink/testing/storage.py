"""The data directory of an embedded broker: one append-only file of batches per partition, and one JSON file.

    state.json          topics with ids, configuration, leaders; producer ids; transactions; offsets
    <topic id>-<n>.log  the batches of partition n as in the log

Producer state is not stored: it is rebuilt from the batches. A partition whose log was truncated or compacted is
written to a new file, which then replaces the old one. A lock keeps a second broker away from the directory. An
incomplete batch at the end of a file (the process was killed) is dropped. Passwords and ACLs are not stored: they are
given at each start. This is a shell: it does I/O.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from kafka_sink.testing.batches import split_batches
from kafka_sink.testing.broker import BrokerCluster
from kafka_sink.testing.groups import CommittedOffset, Group, Offsets, TopicPartition
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.settings import TopicConfig
from kafka_sink.testing.topics import Partition, Topic
from kafka_sink.testing.transaction_state import CoordinatorState, TransactionRecord
from kafka_sink.testing.transactions import CoordinatedTransaction

STATE_FILE = "state.json"


class Storage:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[str, tuple[int, int]] = {}
        self._state = ""
        self._lock: TextIO | None = None

    # ---- writing ----

    def save(self, core: BrokerCluster) -> None:
        """Saves changes since the last time."""
        logs = {
            _file_name(topic, partition.index): partition.log
            for topic in core.cluster.topics.values()
            for partition in topic.partitions
        }
        for name, log in logs.items():
            self._save_log(self._directory / name, log)
        for name in self._written.keys() - logs.keys():
            del self._written[name]
            (self._directory / name).unlink()
        state = json.dumps(_state_of(core))
        if state != self._state:
            temporary = self._directory / (STATE_FILE + ".new")
            temporary.write_text(state)
            os.replace(temporary, self._directory / STATE_FILE)
            self._state = state

    def _save_log(self, path: Path, log: PartitionLog) -> None:
        """A file is open only while it is written: there may be more partitions than file descriptors."""
        rewrites, count = self._written.get(path.name, (-1, 0))
        if rewrites != log.rewrites:
            temporary = path.with_suffix(".new")
            temporary.write_bytes(b"".join(batch.data for batch in log.batches))
            os.replace(temporary, path)
        elif count != log.appended_count:
            with path.open("ab") as file:
                file.writelines(batch.data for batch in log.batches[count - log.appended_count :])
        self._written[path.name] = (log.rewrites, log.appended_count)

    def close(self) -> None:
        """Another one may use the directory now."""
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process forked meanwhile has the file open, too
            self._lock.close()

    def leave_to_parent(self) -> None:
        """In a forked child, which must not unlock what its parent has locked."""
        if self._lock is not None:
            self._lock.close()

    # ---- reading ----

    def load(self, core: BrokerCluster) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = (self._directory / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, "another embedded broker uses it", str(self._directory)) from None
        path = self._directory / STATE_FILE
        if not path.exists():
            return
        state: dict[str, Any] = json.loads(path.read_text())
        cluster = core.cluster
        cluster.topics_created = state["topics_created"]
        cluster.next_producer_id = state["next_producer_id"]
        for stored in state["topics"]:
            config = TopicConfig(core.settings, stored["configs"])
            topic = Topic(stored["name"], bytes.fromhex(stored["topic_id"]), config)
            cluster.topics[topic.name] = topic
            for index, entry in enumerate(stored["partitions"]):
                replicas = tuple(one for one in entry["replicas"] if one in cluster.brokers) or (cluster.controller_id,)
                partition = Partition(
                    topic.name, index, replicas, list(replicas), replicas[0], entry["leader_epoch"] + 1
                )
                file = self._directory / _file_name(topic, index)
                data = file.read_bytes() if file.exists() else b""
                partition.log.load(split_batches(data), entry["start_offset"], entry.get("segments", ()))
                partition.log.cleaned_offset = min(entry["cleaned_offset"], partition.log.end_offset)
                topic.partitions.append(partition)
        for transactional_id, fields in state["transactions"].items():
            fields["state"] = CoordinatorState(fields["state"])
            fields["partitions"] = tuple((topic, index) for topic, index in fields["partitions"])
            core.coordinator.transactions[transactional_id] = CoordinatedTransaction(
                transactional_id, TransactionRecord(**fields)
            )
        core.groups.commit_count = state.get("commit_count", 0)
        for group_id, offsets in state["groups"].items():
            core.groups.groups[group_id] = Group(group_id, offsets=_read_offsets(offsets))
        for group_id, producer_id, offsets in state.get("pending_offsets", ()):
            core.groups.groups[group_id].pending[producer_id] = _read_offsets(offsets)
        core.coordinator.finish_prepared(list(core.coordinator.transactions))


def _file_name(topic: Topic, index: int) -> str:
    return f"{topic.topic_id.hex()}-{index}.log"


def _state_of(core: BrokerCluster) -> dict[str, Any]:
    cluster = core.cluster
    topics = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id.hex(),
            "configs": topic.configs,
            "partitions": [
                {
                    "replicas": one.replicas,
                    "leader_epoch": one.leader_epoch,
                    "start_offset": one.log.start_offset,
                    "cleaned_offset": one.log.cleaned_offset,
                    "segments": one.log.segments,
                }
                for one in topic.partitions
            ],
        }
        for topic in cluster.topics.values()
    ]
    transactions = {
        transactional_id: {**asdict(transaction.record), "state": transaction.record.state.value}
        for transactional_id, transaction in core.coordinator.transactions.items()
    }
    groups = core.groups.groups.values()
    return {
        "topics_created": cluster.topics_created,
        "next_producer_id": cluster.next_producer_id,
        "topics": topics,
        "transactions": transactions,
        "commit_count": core.groups.commit_count,
        "groups": {group.group_id: _list_offsets(group.offsets) for group in groups},
        "pending_offsets": [
            (group.group_id, producer_id, _list_offsets(offsets))
            for group in groups
            for producer_id, offsets in group.pending.items()
        ],
    }


def _list_offsets(offsets: Offsets) -> list[tuple[Any, ...]]:
    return [(*partition, *offset) for partition, offset in offsets.items()]


def _read_offsets(stored: list[list[Any]]) -> dict[TopicPartition, CommittedOffset]:
    return {(topic, index): CommittedOffset(*rest) for topic, index, *rest in stored}
