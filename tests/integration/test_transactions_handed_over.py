"""Transactions that change hands: ended by another process from a receipt, fenced by a newer producer, timed out.

They run on both transaction versions; foreign readers show what is visible afterwards.
"""

from __future__ import annotations

import base64
import pickle
import signal
import subprocess
import sys

import pytest

from kafka_sink import Producer
from kafka_sink.errors import KafkaSinkError, LocalProtocolError, ProducerFenced, TransactionAborted, TransactionError
from tests.support.producing import TIMEOUT_S, is_settled, rows, transact, transactional, values
from tools.foreign_reader import read_topic, wait_until_settled
from tools.kafka_cluster import KafkaCluster

# ---- other processes -------------------------------------------------------------------------------------------

PREPARE = """
import base64, os, pickle, signal, sys
import pyarrow as pa
from kafka_sink import Producer
servers, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
producer.init_transactions()
producer.begin_transaction()
producer.send_arrow(pa.table({"value": [b"row %d" % number for number in range(500)]}), topic=topic)
print(base64.b64encode(pickle.dumps(producer.prepare_transaction())).decode(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

RESUME = """
import base64, pickle, sys
from kafka_sink import Producer
servers, topic, receipt_text, verb = sys.argv[1:]
receipt = pickle.loads(base64.b64decode(receipt_text))
with Producer({"bootstrap.servers": servers, "transactional.id": topic}) as producer:
    producer.resume_transaction(receipt)
    (producer.commit_transaction if verb == "commit" else producer.abort_transaction)()
print("ended")
"""


def run(program: str, *arguments: str, expected: int = 0) -> str:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == expected, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.parametrize("verb", ["commit", "abort"])
def test_a_prepared_transaction_of_a_killed_process_is_ended_by_another_one(
    kafka: KafkaCluster, topic_name: str, verb: str
) -> None:
    kafka.create_topic(topic_name, partitions=2)
    servers = kafka.bootstrap_servers
    receipt_text = run(PREPARE, servers, topic_name, expected=-signal.SIGKILL)
    receipt = pickle.loads(base64.b64decode(receipt_text))
    assert sum(receipt.last_offsets.values()) == 500 - len(receipt.last_offsets)
    assert [place[0] for place in receipt.last_offsets] == [topic_name] * len(receipt.last_offsets)
    # Prepared is not committed.
    assert read_topic(servers, topic_name, settle_timeout_s=0) == []

    assert run(RESUME, servers, topic_name, receipt_text, verb) == "ended"
    assert is_settled(kafka, topic_name)
    assert len(values(kafka, topic_name)) == (500 if verb == "commit" else 0)
    # A restarted driver repeats the request: it gets the same answer, and nothing changes.
    with transactional(kafka, topic_name) as again:
        again.resume_transaction(receipt)
        (again.commit_transaction if verb == "commit" else again.abort_transaction)()
    assert len(values(kafka, topic_name)) == (500 if verb == "commit" else 0)
    assert len(values(kafka, topic_name, "read_uncommitted")) == 500


def test_closing_after_prepare_leaves_the_transaction_to_the_receipt(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_arrow(rows("row", 100), topic=topic_name)
        receipt = producer.prepare_transaction()
    assert receipt.last_offsets == {(topic_name, 0): 99}
    assert read_topic(kafka.bootstrap_servers, topic_name, settle_timeout_s=0) == []
    with transactional(kafka, topic_name) as other:
        other.resume_transaction(pickle.loads(pickle.dumps(receipt)))
        with pytest.raises(LocalProtocolError):
            other.send(topic_name, value=b"not part of it").result(TIMEOUT_S)
        other.commit_transaction()
        # The producer had the identity only for that end; its own transactions begin as usual.
        with pytest.raises(LocalProtocolError, match=r"init_transactions\(\) first"):
            other.begin_transaction()
        other.init_transactions()
        transact(other, topic_name, b"next")
    assert is_settled(kafka, topic_name)
    assert values(kafka, topic_name) == [*(b"row-%d" % number for number in range(100)), b"next"]


def test_the_wrong_end_for_a_decided_transaction_is_refused(kafka: KafkaCluster, topic_name: str) -> None:
    """A receipt cannot abort a committed transaction, or commit an aborted one; nothing changes."""
    kafka.create_topic(topic_name)
    with transactional(kafka, topic_name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic_name, value=b"v")
        receipt = producer.prepare_transaction()
        producer.commit_transaction()
    wait_until_settled(kafka.bootstrap_servers, topic_name)
    with transactional(kafka, topic_name) as other:
        other.resume_transaction(receipt)
        with pytest.raises(KafkaSinkError) as caught:
            other.abort_transaction()
        assert topic_name in str(caught.value)
    assert is_settled(kafka, topic_name)
    assert values(kafka, topic_name) == [b"v"]


# ---- fencing and time-outs -------------------------------------------------------------------------------------


def send_and_commit(producer: Producer, topic: str, value: bytes) -> None:
    producer.send(topic, value=value)
    producer.commit_transaction()


def fenced(producer: Producer, topic: str) -> TransactionError:
    """The error of the older producer: a ProducerFenced, at the latest when it ends its transaction."""
    with pytest.raises(TransactionError) as caught:
        send_and_commit(producer, topic, b"of the fenced one")
    if not isinstance(caught.value, ProducerFenced):
        # The leader says only that the epoch is old, which may also mean a time-out; the coordinator knows which.
        with pytest.raises(ProducerFenced) as caught:
            producer.abort_transaction()
    return caught.value


def test_a_second_producer_with_the_same_id_fences_the_first_and_its_records_are_gone(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name)
    first = transactional(kafka, topic_name)
    first.init_transactions()
    first.begin_transaction()
    first.send(topic_name, value=b"of the fenced one").result(TIMEOUT_S)
    with transactional(kafka, topic_name) as second:
        second.init_transactions()
        transact(second, topic_name, b"of the newer one")
        error = fenced(first, topic_name)
        assert topic_name in str(error)
        # Later calls fail as well.
        with pytest.raises(ProducerFenced):
            first.begin_transaction()
        with pytest.raises(KafkaSinkError):
            first.send(topic_name, value=b"of the fenced one").result(TIMEOUT_S)
        first.close(timeout_s=10)
        transact(second, topic_name, b"of the newer one, again")
    assert is_settled(kafka, topic_name)
    assert values(kafka, topic_name) == [b"of the newer one", b"of the newer one, again"]


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker_and_the_producer_is_told(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """Brokers look for such transactions every ten seconds."""
    kafka.create_topic(topic_name)
    with transactional(kafka, topic_name, transaction_timeout_ms=1000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic_name, value=b"of the late one").result(TIMEOUT_S)
        wait_until_settled(kafka.bootstrap_servers, topic_name)
        with pytest.raises(TransactionError) as caught:
            send_and_commit(producer, topic_name, b"after the end")
        assert topic_name in str(caught.value)
        outcome = [type(caught.value)]
        # If the broker allows it, an abort makes the producer usable again; otherwise a new producer takes over.
        try:
            producer.abort_transaction()
            transact(producer, topic_name, b"next")
        except ProducerFenced:
            outcome.append(ProducerFenced)
    assert outcome in ([TransactionAborted], [TransactionAborted, ProducerFenced], [ProducerFenced, ProducerFenced])
    with transactional(kafka, topic_name) as successor:
        successor.init_transactions()
        transact(successor, topic_name, b"of the successor")
    assert is_settled(kafka, topic_name)
    assert values(kafka, topic_name) == [*([b"next"] if len(outcome) == 1 else []), b"of the successor"]
