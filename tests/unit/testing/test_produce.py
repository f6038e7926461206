"""What the embedded broker accepts, refuses and remembers of produced batches."""

from __future__ import annotations

import lz4.frame
import pytest

from kafka_sink.kafka.wire import apis
from kafka_sink.testing import BrokerCluster, Fault, Settings
from tests.support.cluster_client import Closed, ClusterClient, batch, record


def idempotent(sequence: int, *values: bytes, epoch: int = 0, producer_id: int = 7) -> bytes:
    return batch(*(values or (b"v",)), producer_id=producer_id, epoch=epoch, sequence=sequence)


def test_batches_get_consecutive_offsets_and_keep_their_bytes(client: ClusterClient) -> None:
    first, second = batch(b"a", b"b"), batch(b"c")
    assert client.produce(first) == (0, 0)
    assert client.produce(second) == (0, 2)
    stored = client.fetch()["records"]
    assert stored[17 : len(first)] == first[17:]
    assert stored[len(first) :][:8] == (2).to_bytes(8, "big")


def test_each_of_the_last_five_batches_is_answered_with_its_old_offset_and_an_older_one_is_refused(
    client: ClusterClient,
) -> None:
    for sequence in range(6):
        assert client.produce(idempotent(sequence)) == (0, sequence)
    for sequence in range(1, 6):
        assert client.produce(idempotent(sequence)) == (0, sequence)
    assert client.produce(idempotent(0)) == (45, -1)
    assert client.fetch()["high_watermark"] == 6


def test_a_gap_is_refused_and_leaves_the_state_as_it_was(client: ClusterClient) -> None:
    assert client.produce(idempotent(0, b"a", b"b")) == (0, 0)
    assert client.produce(idempotent(3)) == (45, -1)
    assert client.produce(idempotent(2)) == (0, 2)


def test_part_of_an_old_batch_is_no_duplicate(client: ClusterClient) -> None:
    assert client.produce(idempotent(0, b"a", b"b")) == (0, 0)
    assert client.produce(idempotent(0, b"a")) == (45, -1)


def test_an_unknown_producer_may_start_anywhere_but_a_new_epoch_starts_at_zero(client: ClusterClient) -> None:
    assert client.produce(idempotent(17)) == (0, 0)
    assert client.produce(idempotent(18, epoch=1)) == (45, -1)
    assert client.produce(idempotent(0, epoch=1)) == (0, 1)
    assert client.produce(idempotent(18)) == (47, -1)


def test_the_sequence_wraps_to_zero(client: ClusterClient) -> None:
    last = (1 << 31) - 1
    assert client.produce(idempotent(last - 1)) == (0, 0)
    assert client.produce(idempotent(last, b"a", b"b", b"c")) == (0, 1)
    assert client.produce(idempotent(2)) == (0, 4)
    assert client.produce(idempotent(last, b"a", b"b", b"c")) == (0, 1)


def test_a_producer_that_expired_is_unknown_again() -> None:
    client = ClusterClient(BrokerCluster(1, topics={"t": 1}))
    assert client.produce(idempotent(0)) == (0, 0)
    client.advance(86_400_000 + 600_000)
    assert client.produce(idempotent(5)) == (0, 1)


LINKED = lz4.frame.compress(b"x" * 200_000, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(None, 87, id="no records"),
        pytest.param(b"", 87, id="empty records"),
        pytest.param(batch(b"a") + batch(b"b"), 87, id="two batches"),
        pytest.param(batch(b"a")[:-1], 87, id="cut off"),
        pytest.param(batch(b"a", magic=1), 87, id="old format"),
        pytest.param(batch(b"a", magic=3), 2, id="format of the future"),
        pytest.param(batch(b"a", base_offset=1), 87, id="base offset"),
        pytest.param(batch(b"a", crc=1), 2, id="checksum"),
        pytest.param(batch(b"a", count=2), 87, id="count above offsets"),
        pytest.param(batch(b"a", count=0, last_offset_delta=-1), 87, id="no record"),
        pytest.param(batch(b"a", count=2, last_offset_delta=1), 87, id="count above records"),
        pytest.param(batch(b"a", b"b", count=1, last_offset_delta=0), 87, id="count below records"),
        pytest.param(batch(b"a", attributes=0x20), 87, id="control batch"),
        pytest.param(batch(b"a", producer_id=1, epoch=0), 87, id="no sequence"),
        pytest.param(batch(b"a", section=record(1, b"a")), 87, id="offset delta"),
        pytest.param(batch(b"a", section=record(0, b"a") + b"\0"), 87, id="bytes behind the records"),
        pytest.param(batch(b"a", section=b"\x02"), 87, id="record without content"),
        pytest.param(batch(b"a", attributes=5), -1, id="unknown codec"),
        pytest.param(batch(b"a", attributes=3, section=b"no lz4"), -1, id="broken compression"),
        pytest.param(batch(b"a", attributes=3, section=LINKED), -1, id="linked lz4 blocks"),
        pytest.param(batch(b"x" * 1_048_588), 10, id="too large"),
        pytest.param(batch(b"a", timestamp_ms=3_601_001), 32, id="timestamp in the future"),
    ],
)
def test_a_bad_batch_is_refused_and_the_log_stays_empty(
    client: ClusterClient, records: bytes | None, code: int
) -> None:
    assert client.produce(records) == (code, -1)
    assert client.fetch()["high_watermark"] == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"topic": "nowhere"}, 3),
        ({"partition": 2}, 3),
        ({"acks": 2}, 21),
        ({"transactional_id": None}, 0),
    ],
)
def test_a_produce_request_to_a_wrong_place(client: ClusterClient, options: dict[str, object], code: int) -> None:
    assert client.produce(batch(b"a"), **options)[0] == code  # type: ignore[arg-type]


def test_a_compacted_topic_wants_keys_and_names_each_record_without_one(client: ClusterClient) -> None:
    client.core.cluster.create_topic("c", 1, 1, {"cleanup.policy": "compact"})
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1,
        "topic_data": [
            {"name": "c", "partition_data": [{"index": 0, "records": batch(b"a", b"b", b"c", keys=(None, b"k", None))}]}
        ],
    }
    one = client.ask(1, apis.PRODUCE, 8, body)["responses"][0]["partition_responses"][0]
    assert one["error_code"] == 87
    assert [error["batch_index"] for error in one["record_errors"]] == [0, 2]
    assert client.produce(batch(b"a", keys=(b"k",)), topic="c") == (0, 0)


def test_log_append_time_replaces_the_timestamp_and_the_checksum_stays_right(client: ClusterClient) -> None:
    client.core.cluster.create_topic("l", 1, 1, {"message.timestamp.type": "LogAppendTime"})
    client.advance(5000)
    assert client.produce(batch(b"a"), topic="l") == (0, 0)
    stored = client.fetch(topic="l")["records"]
    assert int.from_bytes(stored[35:43], "big") == 5000
    client.core.cluster.create_topic("copy", 1, 1)
    assert client.produce(stored[:12] + b"\xff\xff\xff\xff" + stored[16:], topic="copy") == (0, 0)


def test_acks_zero_has_no_answer_and_an_error_closes_the_connection(client: ClusterClient) -> None:
    body = {
        "transactional_id": None,
        "acks": 0,
        "timeout_ms": 1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"a")}]}],
    }
    unanswered = client.send(1, apis.PRODUCE, 9, body)
    assert client.produce(batch(b"b")) == (0, 1)
    assert not client.has_answer(unanswered)
    client.core.faults.add(Fault("Produce", disconnect=True, after_apply=True))
    with pytest.raises(Closed):
        client.ask(1, apis.PRODUCE, 9, body)
    assert client.fetch()["high_watermark"] == 3
    body["topic_data"][0]["name"] = "nowhere"  # type: ignore[index]
    with pytest.raises(Closed):
        client.ask(1, apis.PRODUCE, 9, body)


def replicated_client(replication_ms: int = 0, **properties: str) -> ClusterClient:
    settings = Settings(properties=properties, delay_ms=lambda what: replication_ms if what == "replication" else 0)
    return ClusterClient(BrokerCluster(3, topics={"t": 1}, settings=settings))


def test_acks_all_waits_for_the_replicas_and_acks_one_does_not() -> None:
    client = replicated_client(replication_ms=40)
    assert client.produce(batch(b"a"), acks=1) == (0, 0)
    assert client.now_ms == 0
    assert client.fetch()["records"] == b""
    assert client.produce(batch(b"b"), acks=-1) == (0, 1)
    assert client.now_ms == 40


def test_replication_slower_than_the_request_times_out_but_the_batch_is_in_the_log() -> None:
    client = replicated_client(replication_ms=40)
    assert client.produce(batch(b"a"), timeout_ms=10) == (7, -1)
    client.advance(30)
    assert client.fetch()["high_watermark"] == 1


def test_too_few_replicas_before_and_after_the_append() -> None:
    client = replicated_client(replication_ms=40, **{"min.insync.replicas": "2"})
    waiting = client.send(
        1,
        apis.PRODUCE,
        9,
        {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"a")}]}],
        },
    )
    client.core.cluster.hold_out_of_sync("t", 0, [2, 3])
    answer = client.receive(1, apis.PRODUCE, 9, waiting)
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 20
    assert client.produce(batch(b"b")) == (19, -1)
    assert client.produce(batch(b"b"), acks=1) == (0, 1)
    client.core.cluster.restore_in_sync("t", 0)
    assert client.produce(batch(b"c")) == (0, 2)


def test_a_leader_that_crashes_takes_the_unreplicated_tail_with_it_and_the_retry_is_no_duplicate() -> None:
    client = replicated_client(replication_ms=1000)
    assert client.produce(idempotent(0), acks=1) == (0, 0)
    client.core.stop_broker(1, is_crash=True)
    assert client.core.cluster.topics["t"].partitions[0].leader_id == 2
    assert client.produce(idempotent(0), broker_id=2, acks=1) == (0, 0)
    client.advance(1000)
    assert client.fetch(broker_id=2)["high_watermark"] == 1


def test_the_old_leader_names_the_new_one() -> None:
    client = replicated_client()
    client.core.cluster.move_leader("t", 0, 3)
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"a")}]}],
    }
    answer = client.ask(1, apis.PRODUCE, 10, body)
    one = answer["responses"][0]["partition_responses"][0]
    assert (one["error_code"], one["current_leader"]) == (6, {"leader_id": 3, "leader_epoch": 1})
    assert [node["node_id"] for node in answer["node_endpoints"]] == [3]


def test_a_leader_that_was_deposed_without_hearing_of_it_tells_readers_what_it_knew_and_takes_no_records() -> None:
    client = replicated_client()
    client.produce(batch(b"before"))
    client.core.cluster.depose_leader("t", 0, 2, unaware_ms=500)
    assert client.produce(batch(b"after"), broker_id=2) == (0, 1)

    def leader_as_told_by(broker_id: int) -> int:
        answer = client.ask(broker_id, apis.METADATA, 12, {"topics": [{"name": "t"}]})
        return int(answer["topics"][0]["partitions"][0]["leader_id"])

    assert (leader_as_told_by(1), leader_as_told_by(2)) == (1, 2)
    assert (client.fetch(broker_id=1)["high_watermark"], client.fetch(broker_id=2)["high_watermark"]) == (1, 2)
    assert client.fetch(1, broker_id=1)["records"] == b""
    assert client.fetch(2, broker_id=1)["error_code"] == 1
    assert client.produce(batch(b"claim"), broker_id=1) == (6, -1)
    client.advance(500)
    assert (leader_as_told_by(1), client.fetch(broker_id=1)["error_code"]) == (2, 6)


def test_topic_ids_of_a_deleted_topic_are_unknown_after_it_was_created_again(client: ClusterClient) -> None:
    old_id = client.core.cluster.topics["t"].topic_id

    def produce(topic_id: bytes) -> int:
        answer = client.ask(
            1,
            apis.PRODUCE,
            13,
            {
                "transactional_id": None,
                "acks": 1,
                "timeout_ms": 1,
                "topic_data": [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": batch(b"a")}]}],
            },
        )
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])

    assert produce(old_id) == 0
    client.core.cluster.delete_topic("t")
    client.core.cluster.create_topic("t", 1, 1)
    assert produce(old_id) == 100
    assert produce(client.core.cluster.topics["t"].topic_id) == 0


def test_faults_before_and_after_the_append(client: ClusterClient) -> None:
    client.core.faults.add(Fault("Produce", error_code=56, topic="t", partition=1))
    assert client.produce(batch(b"a"), partition=1) == (56, -1)
    assert client.fetch(partition=1)["high_watermark"] == 0
    client.core.faults.add(Fault("Produce", error_code=1234, partition=1))
    assert client.produce(batch(b"z")) == (0, 0), "a request without that partition does not use the fault up"
    assert client.produce(batch(b"a"), partition=1) == (1234, -1)
    client.core.faults.add(Fault("Produce", error_code=20, after_apply=True))
    assert client.produce(batch(b"a")) == (20, -1)
    assert client.fetch()["high_watermark"] == 2
    client.core.faults.add(Fault("Produce", disconnect=True))
    with pytest.raises(Closed):
        client.produce(batch(b"b"))
    client.core.faults.add(Fault("Produce", disconnect=True, after_apply=True))
    with pytest.raises(Closed):
        client.produce(batch(b"c"))
    assert client.fetch()["high_watermark"] == 3
    client.core.faults.add(Fault("Produce", delay_before_ms=70, delay_after_ms=30, skip=1))
    assert client.produce(batch(b"d")) == (0, 3)
    started_ms = client.now_ms
    assert client.produce(batch(b"e")) == (0, 4)
    assert client.now_ms == started_ms + 100


def test_a_second_request_of_a_connection_waits_for_the_answer_to_the_first(client: ClusterClient) -> None:
    client.core.faults.add(Fault("Produce", delay_after_ms=50))
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": batch(b"a")}]}],
    }
    first = client.send(1, apis.PRODUCE, 9, body)
    second = client.send(1, apis.METADATA, 9, {"topics": []})
    client.advance(49)
    assert not client.has_answer(first) and not client.has_answer(second)
    client.advance(1)
    assert client.has_answer(first) and client.has_answer(second)


def test_a_service_without_codecs_refuses_a_compressed_batch_and_survives_one_without_a_whole_header() -> None:
    client = ClusterClient(BrokerCluster(1, topics={"t": 1}, settings=Settings(quirks="event-hubs")))
    assert client.produce(batch(b"a", attributes=1)) == (76, -1)
    assert client.produce(bytes(8) + (14).to_bytes(4, "big") + bytes(4) + b"\x02" + bytes(9)) == (2, -1)
