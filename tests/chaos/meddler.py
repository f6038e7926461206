"""An operator, or any other client, that ends the transactions of a sink's tasks: what each of them really sends.

EndTxn(abort)            with the epoch that DescribeTransactions shows, by the rules of the cluster's version
EndTxn(abort), version 1 the same as an older client sends it: it leaves the epoch, whatever version the cluster has
a marker                 WriteTxnMarkers to the leader of one partition, as Kafka's Admin.abortTransaction and
                         kafka-transactions.sh abort send it: the coordinator does not hear of it
the command              pykafka-sink transactions --abort --yes
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from kafka_sink.__main__ import main
from kafka_sink.commit.admin.client import Client
from kafka_sink.kafka.client.ask import AllBrokers, Coordinator, Coordinators, Leader
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.kafka.wire.apis import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, END_TXN, LIST_TRANSACTIONS
from tests.support.asking import answers_to, client_of, request
from tests.support.markers import write_marker
from tools.kafka_cluster import KafkaCluster


class Way(Enum):
    END = "EndTxn"
    END_OF_VERSION_1 = "EndTxn of version 1"
    MARKER = "a marker in one partition"
    COMMAND = "the sink's command"


class Meddler:
    def __init__(self, kafka: KafkaCluster, sink_id: str) -> None:
        self._kafka = kafka
        self._sink_id = sink_id

    def act(self, way: Way) -> int:
        """The number of transactions or partitions that were aborted."""
        if way is Way.COMMAND:
            where = ["--bootstrap-server", self._kafka.bootstrap_servers, "--sink-id", self._sink_id]
            return int(main(["transactions", "--abort", "--yes", *where]) == 0)
        with client_of(self._kafka.bootstrap_servers) as client:
            found = _open_of_tasks(client, self._sink_id)
            if way is Way.MARKER:
                return self._write_marker(client, found)
            own_version = 5 if client.transaction_support().transaction_version >= 2 else 4
            version = 4 if way is Way.END_OF_VERSION_1 else own_version
            return sum(_end(client, one, version) for one in found)

    def _write_marker(self, client: Client, found: list[dict[str, Any]]) -> int:
        """Into the first partition in which one of these transactions has rows."""
        for one in found:
            for topic in one["topics"]:
                for index in topic["partitions"]:
                    producer = _open_producer(client, topic["topic"], index, one["producer_id"])
                    if producer is not None:
                        address = self._kafka.address_of(self._kafka.leader_of(topic["topic"], index))
                        # With the epochs that DescribeProducers has told, as Admin.abortTransaction takes them.
                        owner = ProducerIdentity(producer["producer_id"], producer["producer_epoch"])
                        epoch = producer["coordinator_epoch"]
                        assert write_marker(address, topic["topic"], index, owner, coordinator_epoch=epoch) == 0
                        return 1
        return 0


def _open_of_tasks(client: Client, sink_id: str) -> list[dict[str, Any]]:
    body = {"state_filters": ["Ongoing"], "producer_id_filters": []}
    (listed,) = answers_to(client, request(AllBrokers(), LIST_TRANSACTIONS, body))
    ids = [row["transactional_id"] for body in listed.bodies for row in body["transaction_states"]]
    ids = [one for one in ids if one.startswith(f"{sink_id}-") and not one.endswith("-driver")]
    if not ids:
        return []
    body = {"transactional_ids": ids}
    (described,) = answers_to(client, request(Coordinators(tuple(ids)), DESCRIBE_TRANSACTIONS, body))
    states = [state for body in described.bodies for state in body["transaction_states"]]
    return [state for state in states if state["transaction_state"] == "Ongoing"]


def _end(client: Client, one: dict[str, Any], version: int) -> bool:
    body = {
        "transactional_id": one["transactional_id"],
        "producer_id": one["producer_id"],
        "producer_epoch": one["producer_epoch"],
        "committed": False,
    }
    versions = {"version_min": version, "version_max": version}
    (answer,) = answers_to(client, request(Coordinator(one["transactional_id"]), END_TXN, body, **versions))
    return bool(answer.bodies) and answer.bodies[0]["error_code"] == 0


def _open_producer(client: Client, topic: str, index: int, producer_id: int) -> dict[str, Any] | None:
    body = {"topics": [{"name": topic, "partition_indexes": [index]}]}
    (answer,) = answers_to(client, request(Leader(topic, index), DESCRIBE_PRODUCERS, body))
    ((told,),) = [topic["partitions"] for topic in answer.bodies[0]["topics"]]
    states: list[dict[str, Any]] = told["active_producers"]
    wanted = [one for one in states if one["producer_id"] == producer_id and one["current_txn_start_offset"] >= 0]
    return wanted[0] if wanted else None
