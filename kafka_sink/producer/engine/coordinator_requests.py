"""The requests of a transaction to coordinators, a class for each API: versions, body, and what follows from it.

Each is made from the state of the transaction, and changes nothing but the transaction: when it is sent (from then on
the coordinator may have carried it out), when it gets no response (it may still arrive), and when it is done. Who is
asked, when, and what follows from an error code is decided in transaction_requests.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from kafka_sink.errors import TransactionAborted
from kafka_sink.kafka.client.transaction_apis import versions_of
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    GROUP_KEY,
    INIT_PRODUCER_ID,
    TRANSACTION_KEY,
    TXN_OFFSET_COMMIT,
    Api,
)
from kafka_sink.producer.engine.commands import SendOffsets
from kafka_sink.producer.engine.producer_batch import ProducerIdentity
from kafka_sink.producer.engine.transaction import Transaction, TransactionState

MAY_ARRIVE_LATE = "an InitProducerId has no answer: it may still arrive, and would abort even a prepared transaction"


class CoordinatorRequest(ABC):
    """The purpose of a request. What is here is true of most of them."""

    api: Api
    group_id = ""
    # What the principal needs on each of `topics`.
    topic_operation = "Write"

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction

    @property
    def key(self) -> tuple[int, str]:
        """Of its coordinator: type and name."""
        return TRANSACTION_KEY, self.transaction.transactional_id

    @property
    def versions(self) -> tuple[int, int]:
        return versions_of(self.api, self.transaction.transaction_version)

    @property
    @abstractmethod
    def body(self) -> dict[str, Any]: ...

    @property
    def topics(self) -> Iterable[str]:
        return ()

    def codes_of(self, body: Mapping[str, Any]) -> list[int]:
        return [body["error_code"]]

    def on_sent(self) -> None:  # noqa: B027  (nothing follows from most of them)
        """From now on it may have been carried out."""

    def on_lost(self) -> None:
        """There is no response, and it may still arrive."""
        self.transaction.epoch_is_stale = self.transaction.transaction_version == 1

    @abstractmethod
    def on_done(self, body: Mapping[str, Any]) -> None: ...

    @property
    def _owner(self) -> dict[str, Any]:
        producer_id, producer_epoch = self.transaction.identity
        return {
            "transactional_id": self.transaction.transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
        }


class FindCoordinator(CoordinatorRequest):
    """Any broker may answer. The transaction stays as it is: coordinators outlive it."""

    api = FIND_COORDINATOR
    # One key is all that a producer needs.
    versions = (1, FIND_COORDINATOR.last_single)

    def __init__(self, wanted: CoordinatorRequest) -> None:
        super().__init__(wanted.transaction)
        self.group_id = wanted.group_id
        self._key = wanted.key

    @property
    def key(self) -> tuple[int, str]:
        return self._key

    @property
    def body(self) -> dict[str, Any]:
        key_type, key = self._key
        return {"key": key, "key_type": key_type}

    def on_lost(self) -> None:
        pass  # it changes nothing, whenever it arrives

    def on_done(self, body: Mapping[str, Any]) -> None:
        pass


class InitProducerId(CoordinatorRequest):
    """To renew the epoch it names the current identity."""

    api = INIT_PRODUCER_ID

    def __init__(self, transaction: Transaction, transaction_timeout_ms: int) -> None:
        super().__init__(transaction)
        self._transaction_timeout_ms = transaction_timeout_ms
        # An expected identity may be another one's.
        self._is_renewal = transaction.state is TransactionState.RENEWING and not transaction.is_expected

    @property
    def versions(self) -> tuple[int, int]:
        first, last = super().versions
        return (INIT_PRODUCER_ID.identity_since if self._is_renewal else first), last

    @property
    def body(self) -> dict[str, Any]:
        known = self._owner if self._is_renewal else {"transactional_id": self.transaction.transactional_id}
        return {**known, "transaction_timeout_ms": self._transaction_timeout_ms}

    def on_lost(self) -> None:
        super().on_lost()
        self.transaction.is_alone = False
        if self.transaction.state is TransactionState.REPLACING:
            # Too late for another transactional id.
            self.transaction.on_error(TransactionAborted(MAY_ARRIVE_LATE))

    def on_done(self, body: Mapping[str, Any]) -> None:
        self.transaction.on_initialized(ProducerIdentity(body["producer_id"], body["producer_epoch"]))


class AddPartitions(CoordinatorRequest):
    """Transaction version 1: registers the partitions that will be written to."""

    api = ADD_PARTITIONS_TO_TXN

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._partitions = tuple(transaction.unregistered)

    @property
    def body(self) -> dict[str, Any]:
        numbers: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            numbers.setdefault(topic, []).append(partition)
        topics = [{"name": topic, "partitions": partitions} for topic, partitions in numbers.items()]
        return {
            "v3_and_below_topics": topics,
            **{f"v3_and_below_{name}": value for name, value in self._owner.items()},
        }

    @property
    def topics(self) -> Iterable[str]:
        return {topic for topic, _ in self._partitions}

    def codes_of(self, body: Mapping[str, Any]) -> list[int]:
        topics = body["results_by_topic_v3_and_below"]
        return [partition["partition_error_code"] for topic in topics for partition in topic["results_by_partition"]]

    def on_sent(self) -> None:
        self.transaction.has_unknown_start = True

    def on_done(self, body: Mapping[str, Any]) -> None:
        self.transaction.on_begun()
        for topic_partition in self._partitions:
            self.transaction.unregistered.pop(topic_partition, None)
            self.transaction.registered.add(topic_partition)


class AddOffsets(CoordinatorRequest):
    """Transaction version 1: registers the consumer group whose offsets will be sent."""

    api = ADD_OFFSETS_TO_TXN

    def __init__(self, transaction: Transaction, offsets: SendOffsets) -> None:
        super().__init__(transaction)
        self.group_id = offsets.group.group_id

    @property
    def body(self) -> dict[str, Any]:
        return {**self._owner, "group_id": self.group_id}

    def on_sent(self) -> None:
        self.transaction.has_unknown_start = True

    def on_done(self, body: Mapping[str, Any]) -> None:
        self.transaction.on_begun()
        self.transaction.registered_groups.add(self.group_id)


class CommitOffsets(CoordinatorRequest):
    """To the group's coordinator, which registers the group in transaction version 2 as soon as this arrives."""

    api = TXN_OFFSET_COMMIT
    topic_operation = "Read"

    def __init__(self, transaction: Transaction, offsets: SendOffsets) -> None:
        super().__init__(transaction)
        self.group_id = offsets.group.group_id
        self._offsets = offsets

    @property
    def key(self) -> tuple[int, str]:
        return GROUP_KEY, self.group_id

    @property
    def body(self) -> dict[str, Any]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), (offset, leader_epoch, metadata) in self._offsets.offsets.items():
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": leader_epoch,
                    "committed_metadata": metadata,
                }
            )
        group = self._offsets.group
        return {
            **self._owner,
            "group_id": group.group_id,
            "generation_id": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.group_instance_id,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        }

    @property
    def topics(self) -> Iterable[str]:
        return {topic for topic, _ in self._offsets.offsets}

    def codes_of(self, body: Mapping[str, Any]) -> list[int]:
        return [partition["error_code"] for topic in body["topics"] for partition in topic["partitions"]]

    def on_sent(self) -> None:
        self.transaction.is_started = True

    def on_done(self, body: Mapping[str, Any]) -> None:
        self.transaction.is_started = True
        self.transaction.finish_offsets()


class EndTxn(CoordinatorRequest):
    """Commits or aborts, as the state says."""

    api = END_TXN

    @property
    def commits(self) -> bool:
        return self.transaction.state is TransactionState.COMMITTING

    @property
    def body(self) -> dict[str, Any]:
        return {**self._owner, "committed": self.commits}

    def on_sent(self) -> None:
        if self.commits:
            self.transaction.commit_may_be_done = True
        if not self.transaction.is_started:
            # The registration may have arrived or not. Requesting a new epoch at once would be quicker, but if it did
            # arrive, the coordinator aborts the transaction by fencing its owner, this producer. So EndTxn is sent
            # first ("no transaction" counts as ended), and the new epoch then rejects a late arrival.
            self.transaction.epoch_is_stale = True

    def on_done(self, body: Mapping[str, Any]) -> None:
        has_next = body.get("producer_id", -1) >= 0  # not by the rules of transaction version 1
        self.transaction.on_ended(ProducerIdentity(body["producer_id"], body["producer_epoch"]) if has_next else None)
