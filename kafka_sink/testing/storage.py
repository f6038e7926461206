"""The data directory of an embedded broker: one append-only file of batches per partition, and one JSON file.

    state.json          topics with ids, configuration, leaders; producer ids; transactions; committed offsets
    <topic id>-<n>.log  the batches of partition n as in the log

Producer state is not stored: it is rebuilt from the batches. A partition whose log was truncated or compacted is
written to a new file, which then replaces the old one. An incomplete batch at the end of a file (the process was
killed) is dropped. Passwords and ACLs are not stored: they are given at each start. This is a shell: it does I/O.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from kafka_sink.testing.batches import split_batches
from kafka_sink.testing.broker import BrokerCluster
from kafka_sink.testing.groups import CommittedOffset, Group
from kafka_sink.testing.settings import TopicConfig
from kafka_sink.testing.topics import Partition, Topic
from kafka_sink.testing.transaction_state import CoordinatorState, TransactionRecord
from kafka_sink.testing.transactions import CoordinatedTransaction

STATE_FILE = "state.json"


class Storage:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, BinaryIO] = {}
        self._written: dict[str, tuple[int, int]] = {}
        self._state = ""

    # ---- writing ----

    def save(self, core: BrokerCluster) -> None:
        """Saves changes since the last time."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for topic in core.cluster.topics.values():
            for partition in topic.partitions:
                self._save_log(topic, partition)
        state = json.dumps(_state_of(core))
        if state != self._state:
            temporary = self._directory / (STATE_FILE + ".new")
            temporary.write_text(state)
            os.replace(temporary, self._directory / STATE_FILE)
            self._state = state

    def _save_log(self, topic: Topic, partition: Partition) -> None:
        name = _file_name(topic, partition.index)
        log = partition.log
        rewrites, count = self._written.get(name, (-1, 0))
        if rewrites == log.rewrites and count == log.appended_count:
            return
        is_new = rewrites != log.rewrites
        if is_new and name in self._files:
            self._files.pop(name).close()
        path = self._directory / name
        if is_new:
            temporary = path.with_suffix(".new")
            temporary.write_bytes(b"".join(batch.data for batch in log.batches))
            os.replace(temporary, path)
        if name not in self._files:
            self._files[name] = path.open("ab")
        for batch in [] if is_new else log.batches[count - log.appended_count :]:
            self._files[name].write(batch.data)
        self._files[name].flush()
        self._written[name] = (log.rewrites, log.appended_count)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    # ---- reading ----

    def load(self, core: BrokerCluster) -> None:
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
                partition.log.load(split_batches(data), entry["start_offset"])
                partition.log.cleaned_offset = min(entry["cleaned_offset"], partition.log.end_offset)
                topic.partitions.append(partition)
        for transactional_id, fields in state["transactions"].items():
            fields["state"] = CoordinatorState(fields["state"])
            fields["partitions"] = tuple((topic, index) for topic, index in fields["partitions"])
            core.coordinator.transactions[transactional_id] = CoordinatedTransaction(
                transactional_id, TransactionRecord(**fields)
            )
        for group_id, offsets in state["groups"].items():
            group = core.groups.groups[group_id] = Group(group_id)
            for topic, index, offset, leader_epoch, metadata in offsets:
                group.offsets[topic, index] = CommittedOffset(offset, leader_epoch, metadata)
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
    groups = {
        group.group_id: [
            [*partition, one.offset, one.leader_epoch, one.metadata] for partition, one in group.offsets.items()
        ]
        for group in core.groups.groups.values()
    }
    return {
        "topics_created": cluster.topics_created,
        "next_producer_id": cluster.next_producer_id,
        "topics": topics,
        "transactions": transactions,
        "groups": groups,
    }
