"""The transaction coordinator of the embedded broker, row by row, for both transaction versions of the protocol."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.wire import apis
from kafka_sink.testing import BrokerCluster, Settings
from tests.support.cluster_client import ClusterClient, batch

COMMIT, ABORT = True, False
SLOW_MARKERS = 1000


def slow_client(*, brokers: int = 1, transaction_log_ms: int = 0, version: str = "2") -> ClusterClient:
    delays = {"marker": SLOW_MARKERS, "transaction_log": transaction_log_ms}
    settings = Settings(properties={"transaction.version": version}, delay_ms=lambda what: delays.get(what, 0))
    return ClusterClient(BrokerCluster(brokers, topics={"t": 2}, settings=settings))


def open_transaction(client: ClusterClient, *, version: int) -> tuple[int, int]:
    producer_id, epoch = client.begin("tx")
    if version < 2:
        assert client.add("tx", producer_id, epoch, 0) == 0
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12 if version >= 2 else 11)[0] == 0
    return producer_id, epoch


def state_of(client: ClusterClient, broker_id: int = 1) -> str:
    answer = client.ask(broker_id, apis.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["tx"]})
    return str(answer["transaction_states"][0]["transaction_state"])


@pytest.mark.parametrize("wait_ms", [0, SLOW_MARKERS])
@pytest.mark.parametrize("decision", [COMMIT, ABORT])
def test_end_without_bump_repeats_its_answer_and_refuses_the_opposite(decision: bool, wait_ms: int) -> None:
    client = slow_client()
    producer_id, epoch = open_transaction(client, version=1)
    assert client.end("tx", producer_id, epoch, decision, version=4)[0] == 0
    client.advance(wait_ms)
    pending = wait_ms == 0
    assert client.end("tx", producer_id, epoch, decision, version=4)[0] == (51 if pending else 0)
    assert client.end("tx", producer_id, epoch, not decision, version=4)[0] == (51 if pending else 48)
    assert client.end("tx", producer_id, epoch + 1, decision, version=4)[0] == 90
    assert client.end("tx", producer_id + 1, epoch, decision, version=4)[0] == 49
    assert client.end("other", producer_id, epoch, decision, version=4)[0] == 49


@pytest.mark.parametrize("decision", [COMMIT, ABORT])
def test_end_with_bump_answers_the_next_epoch_and_a_repeat_gets_it_again(decision: bool) -> None:
    client = slow_client()
    producer_id, epoch = open_transaction(client, version=2)
    assert client.end("tx", producer_id, epoch, decision, version=5) == (0, producer_id, epoch + 1)
    assert client.end("tx", producer_id, epoch, decision, version=5) == (51, -1, -1)
    client.advance(SLOW_MARKERS)
    assert client.end("tx", producer_id, epoch, decision, version=5) == (0, producer_id, epoch + 1)
    assert client.end("tx", producer_id, epoch, not decision, version=5) == (48, -1, -1)
    assert client.end("tx", producer_id, epoch + 2, decision, version=5) == (90, -1, -1)


def test_an_abort_of_nothing_takes_an_epoch_in_version_2_and_is_refused_before(client: ClusterClient) -> None:
    producer_id, epoch = client.begin("tx")
    assert client.end("tx", producer_id, epoch, COMMIT, version=5)[0] == 48
    assert client.end("tx", producer_id, epoch, ABORT, version=4)[0] == 48
    assert client.end("tx", producer_id, epoch, COMMIT, version=4)[0] == 48
    assert client.end("tx", producer_id, epoch, ABORT, version=5) == (0, producer_id, epoch + 1)
    client.advance(1)
    assert state_of(client) == "CompleteAbort"
    assert client.end("tx", producer_id, epoch + 1, ABORT, version=5) == (0, producer_id, epoch + 2)


@pytest.mark.parametrize(("first", "second", "code"), [(5, 4, 90), (4, 5, 48)])
def test_a_repeat_in_the_other_version_misleads(client: ClusterClient, first: int, second: int, code: int) -> None:
    producer_id, epoch = open_transaction(client, version=2)
    assert client.end("tx", producer_id, epoch, COMMIT, version=first)[0] == 0
    client.advance(1)
    assert client.end("tx", producer_id, epoch, COMMIT, version=second)[0] == code


def test_init_aborts_an_open_transaction_and_answers_when_the_markers_are_written() -> None:
    client = slow_client()
    producer_id, epoch = open_transaction(client, version=2)
    assert client.init("tx") == (51, -1, -1)
    assert state_of(client) == "PrepareAbort"
    assert client.init("tx") == (51, -1, -1)
    client.advance(SLOW_MARKERS)
    assert client.end("tx", producer_id, epoch, COMMIT, version=5)[0] == 48
    assert client.init("tx") == (0, producer_id, epoch + 2)
    assert client.end("tx", producer_id, epoch, COMMIT, version=5)[0] == 90


def test_init_with_a_stale_epoch_of_the_right_producer_aborts_too(client: ClusterClient) -> None:
    client.begin("tx")
    producer_id, epoch = open_transaction(client, version=2)
    assert epoch == 1
    assert client.init("tx", producer_id=producer_id, epoch=0)[0] == 51
    assert client.init("tx", producer_id=producer_id + 1, epoch=0)[0] == 51
    client.advance(1)
    assert client.init("tx", producer_id=producer_id + 1, epoch=0)[0] == 90


def test_init_with_the_own_epoch_is_repeatable(client: ClusterClient) -> None:
    producer_id, epoch = client.begin("tx")
    assert client.init("tx", producer_id=producer_id, epoch=epoch) == (0, producer_id, epoch + 1)
    assert client.init("tx", producer_id=producer_id, epoch=epoch) == (0, producer_id, epoch + 1)
    assert client.init("tx") == (0, producer_id, epoch + 2)
    assert client.init("tx", producer_id=producer_id, epoch=epoch) == (90, -1, -1)
    assert client.init("tx", producer_id=producer_id, epoch=epoch, version=3) == (47, -1, -1)


def test_init_refusals(client: ClusterClient) -> None:
    client.find("tx")
    assert client.init("")[0] == 42
    assert client.init("tx", timeout_ms=900_001)[0] == 50
    assert client.init("tx", timeout_ms=0)[0] == 50
    assert client.init("tx", producer_id=3)[0] == 42


def test_a_time_out_aborts_and_fences(client: ClusterClient) -> None:
    producer_id, epoch = client.begin("tx", timeout_ms=5000)
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12)[0] == 0
    client.advance(10_001)
    assert state_of(client) == "CompleteAbort"
    assert client.fetch(committed=True)["aborted_transactions"] == [{"producer_id": producer_id, "first_offset": 0}]
    late = batch(b"w", producer_id=producer_id, epoch=epoch, sequence=1, transactional=True)
    assert client.produce(late, transactional_id="tx", version=12) == (47, -1)
    assert client.end("tx", producer_id, epoch, COMMIT, version=5)[0] == 48


def test_a_time_out_before_version_2_leaves_another_answer(old_client: ClusterClient) -> None:
    producer_id, epoch = old_client.begin("tx", timeout_ms=5000)
    assert old_client.add("tx", producer_id, epoch, 0) == 0
    old_client.advance(10_001)
    assert old_client.end("tx", producer_id, epoch, COMMIT, version=4)[0] == 90
    assert old_client.init("tx") == (0, producer_id, epoch + 2)


def test_the_last_epoch_is_followed_by_a_new_producer_id(client: ClusterClient) -> None:
    producer_id, _ = client.begin("tx")
    transaction = client.core.coordinator.transactions["tx"]
    transaction.record = type(transaction.record)(producer_id, 60_000, 0, producer_epoch=32_766)
    data = batch(b"v", producer_id=producer_id, epoch=32_766, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12)[0] == 0
    code, new_id, new_epoch = client.end("tx", producer_id, 32_766, COMMIT, version=5)
    assert (code, new_epoch) == (0, 0) and new_id != producer_id
    client.advance(1)
    assert client.end("tx", producer_id, 32_766, COMMIT, version=5) == (0, new_id, 0)
    assert client.end("tx", producer_id, 32_766, ABORT, version=5)[0] == 48


def test_init_on_an_exhausted_epoch_gives_a_new_producer_id(client: ClusterClient) -> None:
    producer_id, _ = client.begin("tx")
    transaction = client.core.coordinator.transactions["tx"]
    transaction.record = type(transaction.record)(producer_id, 60_000, 0, producer_epoch=32_766)
    code, new_id, epoch = client.init("tx")
    assert (code, epoch) == (0, 0) and new_id != producer_id


def test_an_id_that_was_idle_too_long_is_forgotten() -> None:
    settings = Settings(properties={"transactional.id.expiration.ms": "1000"})
    client = ClusterClient(BrokerCluster(1, topics={"t": 1}, settings=settings))
    producer_id, epoch = client.begin("tx")
    client.advance(3_600_000)
    assert client.end("tx", producer_id, epoch, ABORT, version=5)[0] == 49
    assert client.init("tx")[1] != producer_id


# ---- partitions ----


def test_partitions_must_be_added_before_version_12_and_are_added_by_the_broker_from_then_on(
    client: ClusterClient,
) -> None:
    producer_id, epoch = client.begin("tx")
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=10) == (48, -1)
    assert client.produce(data, transactional_id="tx", version=11) == (120, -1)
    assert client.produce(data, transactional_id="tx", version=12) == (0, 0)
    assert client.produce(data, transactional_id=None, version=12) == (53, -1)
    stale = batch(b"v", producer_id=producer_id, epoch=epoch - 1, sequence=0, transactional=True)
    assert client.produce(stale, transactional_id="tx", version=12, partition=1) == (47, -1)
    assert client.produce(stale, transactional_id="unknown", version=12, partition=1) == (49, -1)


def test_the_first_batch_of_a_version_2_transaction_starts_at_zero(client: ClusterClient) -> None:
    producer_id, epoch = client.begin("tx")
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=1, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12) == (45, -1)


def test_adding_an_unknown_partition_adds_none(client: ClusterClient) -> None:
    producer_id, epoch = client.begin("tx")
    assert client.add("tx", producer_id, epoch, 0, 5) == 55
    assert client.add("tx", producer_id, epoch, 5) == 3
    assert state_of(client) == "Empty"
    assert client.add("tx", producer_id, epoch + 1, 0) == 90
    assert client.add("tx", producer_id, epoch + 1, 0, version=1) == 47
    assert client.add("tx", producer_id + 1, epoch, 0) == 49


def test_while_markers_are_written_the_next_transaction_is_held_up() -> None:
    client = slow_client()
    producer_id, epoch = open_transaction(client, version=1)
    assert client.end("tx", producer_id, epoch, COMMIT, version=4)[0] == 0
    assert client.add("tx", producer_id, epoch, 1) == 51
    data = batch(b"w", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    started_ms = client.now_ms
    assert client.produce(data, transactional_id="tx", version=12, partition=1) == (51, -1)
    assert client.now_ms == started_ms + 100
    assert client.produce(data, transactional_id="tx", version=11, partition=1) == (19, -1)


def test_a_version_2_produce_waits_a_little_for_the_markers() -> None:
    settings = Settings(delay_ms=lambda what: 30 if what == "marker" else 0)
    client = ClusterClient(BrokerCluster(1, topics={"t": 2}, settings=settings))
    producer_id, epoch = open_transaction(client, version=2)
    assert client.end("tx", producer_id, epoch, COMMIT, version=5)[0] == 0
    data = batch(b"w", producer_id=producer_id, epoch=epoch + 1, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12) == (0, 2)


def test_a_delayed_batch_of_an_ended_transaction_is_refused_in_both_versions(client: ClusterClient) -> None:
    producer_id, epoch = open_transaction(client, version=2)
    assert client.end("tx", producer_id, epoch, COMMIT, version=5)[0] == 0
    client.advance(1)
    late = batch(b"w", producer_id=producer_id, epoch=epoch, sequence=1, transactional=True)
    assert client.produce(late, transactional_id="tx", version=12) == (47, -1)
    again = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(again, transactional_id="tx", version=12) == (47, -1)
    assert client.produce(late, transactional_id="tx", version=11) == (47, -1)


# ---- what readers see ----


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(client: ClusterClient) -> None:
    producer_id, epoch = open_transaction(client, version=2)
    assert client.produce(batch(b"plain")) == (0, 1)
    assert client.fetch(committed=True)["records"] == b""
    assert len(client.fetch()["records"]) > 0
    assert client.end("tx", producer_id, epoch, ABORT, version=5)[0] == 0
    client.advance(1)
    answer = client.fetch(committed=True)
    assert answer["last_stable_offset"] == 3
    assert answer["aborted_transactions"] == [{"producer_id": producer_id, "first_offset": 0}]
    assert client.fetch(2, committed=True)["aborted_transactions"] == [{"producer_id": producer_id, "first_offset": 0}]
    assert client.fetch()["aborted_transactions"] is None


def test_plain_writes_of_a_producer_with_an_open_transaction_are_refused(client: ClusterClient) -> None:
    producer_id, epoch = open_transaction(client, version=2)
    plain = batch(b"w", producer_id=producer_id, epoch=epoch, sequence=1)
    assert client.produce(plain) == (48, -1)


def without_leader(settings: Settings) -> tuple[ClusterClient, int, int, int]:
    """A transaction has written to a partition that has no leader now. Returns also its id, and its coordinator."""
    client = ClusterClient(BrokerCluster(2, settings=settings))
    client.core.cluster.create_topic("t", 1, 1)
    producer_id, epoch = client.begin("tx")
    assert client.add("tx", producer_id, epoch, 0, broker_id=client.find("tx")) == 0
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=11)[0] == 0
    client.core.cluster.take_offline("t", 0)
    return client, producer_id, epoch, client.find("tx")


def stable_offset(client: ClusterClient) -> int:
    return client.core.cluster.topics["t"].partitions[0].log.last_stable_offset


@pytest.mark.parametrize(
    "settings", [Settings(release="3.9"), Settings(forgets_leaderless=False)], ids=["3.9", "told to wait"]
)
def test_a_transaction_without_leader_ends_when_the_leader_is_back(settings: Settings) -> None:
    client, producer_id, epoch, coordinator = without_leader(settings)
    assert client.end("tx", producer_id, epoch, COMMIT, version=4, broker_id=coordinator)[0] == 0
    client.advance(10_000)
    assert client.init("tx", broker_id=coordinator, version=4)[0] == 51
    client.core.cluster.bring_online("t", 0)
    client.advance(100)
    assert stable_offset(client) == 2
    assert client.init("tx", broker_id=coordinator, version=4) == (0, producer_id, epoch + 1)


@pytest.mark.parametrize("decision", [COMMIT, ABORT])
def test_brokers_of_4_3_forget_a_partition_without_leader_until_the_next_marker_of_its_producer(decision: bool) -> None:
    """KAFKA-20734. The next transaction of the id decides about both."""
    client, producer_id, epoch, coordinator = without_leader(Settings())
    assert client.end("tx", producer_id, epoch, decision, version=4, broker_id=coordinator)[0] == 0
    client.advance(100)
    assert state_of(client, coordinator) == ("CompleteCommit" if decision is COMMIT else "CompleteAbort")
    client.core.cluster.bring_online("t", 0)
    client.advance(10_000)
    assert stable_offset(client) == 0
    assert client.init("tx", broker_id=coordinator, version=4) == (0, producer_id, epoch + 1)
    assert client.add("tx", producer_id, epoch + 1, 0, broker_id=coordinator) == 0
    assert client.end("tx", producer_id, epoch + 1, COMMIT, version=4, broker_id=coordinator)[0] == 0
    client.advance(100)
    assert stable_offset(client) == 2


def test_a_leader_that_the_coordinator_still_knows_is_tried_again_until_it_knows_that_there_is_none() -> None:
    delays = {"metadata": 500}
    client, producer_id, epoch, coordinator = without_leader(Settings(delay_ms=lambda what: delays.get(what, 0)))
    assert client.end("tx", producer_id, epoch, COMMIT, version=4, broker_id=coordinator)[0] == 0
    client.advance(400)
    assert state_of(client, coordinator) == "PrepareCommit"
    client.advance(200)
    assert state_of(client, coordinator) == "CompleteCommit"
    delays.clear()
    client.core.cluster.bring_online("t", 0)
    assert stable_offset(client) == 0


def test_a_leader_of_which_the_coordinator_has_not_heard_yet_gets_no_marker() -> None:
    delays = {"metadata": 0}
    client, producer_id, epoch, coordinator = without_leader(Settings(delay_ms=lambda what: delays.get(what, 0)))
    delays["metadata"] = 500
    client.core.cluster.bring_online("t", 0)
    assert client.end("tx", producer_id, epoch, COMMIT, version=4, broker_id=coordinator)[0] == 0
    client.advance(1_000)
    assert state_of(client, coordinator) == "CompleteCommit" and stable_offset(client) == 0


# ---- coordinators that move ----


def moved_coordinator(survives: bool) -> tuple[ClusterClient, int, int, int, int]:
    """The coordinator moves to another broker while a commit is being appended to its log."""
    delays = {"transaction_log": 0, "marker": 1, "coordinator_load": 20}
    settings = Settings(delay_ms=lambda what: delays.get(what, 0), chance=lambda _what: survives)
    client = ClusterClient(BrokerCluster(3, settings=settings))
    client.core.cluster.create_topic("t", 2, 1)
    producer_id, epoch = client.begin("tx")
    old = client.find("tx")
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12)[0] == 0
    delays["transaction_log"] = 10
    body = {"transactional_id": "tx", "producer_id": producer_id, "producer_epoch": epoch, "committed": True}
    asked = client.send(old, apis.END_TXN, 5, body)
    partition = client.core.cluster.coordinator_partition("__transaction_state", "tx")
    new = next(one for one in partition.replicas if one != old)
    client.core.cluster.move_leader("__transaction_state", partition.index, new)
    assert client.receive(old, apis.END_TXN, 5, asked)["error_code"] == 16
    assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=old)[0] == 16
    assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=new)[0] == 14
    client.advance(50)
    return client, producer_id, epoch, old, new


def test_a_commit_that_survived_the_move_is_finished_by_the_new_coordinator() -> None:
    client, producer_id, epoch, _, new = moved_coordinator(survives=True)
    assert client.fetch(committed=True)["last_stable_offset"] == 2
    assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=new) == (0, producer_id, epoch + 1)


def test_a_commit_that_was_lost_in_the_move_can_be_asked_for_again() -> None:
    client, producer_id, epoch, _, new = moved_coordinator(survives=False)
    assert client.fetch(committed=True)["last_stable_offset"] == 0
    assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=new) == (0, producer_id, epoch + 1)
    client.advance(50)
    assert client.fetch(committed=True)["last_stable_offset"] == 2


def open_since(client: ClusterClient, broker_id: int) -> dict[int, int] | int:
    """By producer id; or the error code."""
    body = {"topics": [{"name": "t", "partition_indexes": [0]}]}
    told = client.ask(broker_id, apis.DESCRIBE_PRODUCERS, 0, body)["topics"][0]["partitions"][0]
    found = {one["producer_id"]: one["current_txn_start_offset"] for one in told["active_producers"] or ()}
    return told["error_code"] or found


def test_a_leader_that_was_deposed_without_hearing_of_it_tells_the_open_transactions_of_before() -> None:
    client = ClusterClient(BrokerCluster(3, topics={"t": 1}))
    client.core.cluster.depose_leader("t", 0, 2, unaware_ms=500)
    producer_id, epoch = client.begin("tx")
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12, broker_id=2)[0] == 0
    assert (open_since(client, 1), open_since(client, 2)) == ({}, {producer_id: 0})
    client.core.cluster.depose_leader("t", 0, 3, unaware_ms=1_000)
    assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=client.find("tx"))[0] == 0
    client.advance(500)
    assert [open_since(client, one) for one in (1, 2, 3)] == [6, {producer_id: 0}, {producer_id: -1}]


def test_a_coordinator_that_was_deposed_without_hearing_of_it_describes_transactions_as_of_before() -> None:
    client = ClusterClient(BrokerCluster(3, topics={"t": 1}))
    client.begin("tx")
    old = client.find("tx")
    partition = client.core.cluster.coordinator_partition("__transaction_state", "tx")
    new = next(one for one in partition.replicas if one != old)
    client.core.cluster.depose_leader(*partition.key, new, unaware_ms=500)
    asked = {"key_type": 1, "coordinator_keys": ["tx"]}
    assert client.ask(old, apis.FIND_COORDINATOR, 4, asked)["coordinators"][0]["node_id"] == old
    producer_id, epoch = client.init("tx", broker_id=new)[1:]
    data = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert client.produce(data, transactional_id="tx", version=12)[0] == 0
    assert (state_of(client, old), state_of(client, new)) == ("Empty", "Ongoing")
    assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=old)[0] == 16
    client.advance(500)
    assert (state_of(client, old), state_of(client, new)) == ("", "Ongoing")


def commit_offset(client: ClusterClient, producer_id: int, epoch: int, offset: int, broker_id: int) -> int:
    body = {
        "transactional_id": "tx",
        "group_id": "readers",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": offset}]}],
    }
    answer = client.ask(broker_id, apis.TXN_OFFSET_COMMIT, 5, body)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_wait_for_a_coordinator_that_is_gone_and_do_not_mix_with_a_transaction_it_was_ending(
    is_committed: bool,
) -> None:
    # The commit is decided, its marker cannot be written, and then the coordinator dies as well.
    settings = Settings(delay_ms=lambda what: 50 if what == "marker" else 0)
    client = ClusterClient(BrokerCluster(2, topics={"t": 1}, settings=settings))
    cluster = client.core.cluster
    producer_id, epoch = client.begin("tx")
    coordinator, group_coordinator = 1, 2
    for topic, key, broker_id in (
        ("__transaction_state", "tx", coordinator),
        ("__consumer_offsets", "readers", group_coordinator),
    ):
        partition = cluster.coordinator_partition(topic, key)
        cluster.move_leader(topic, partition.index, broker_id)
        cluster.hold_out_of_sync(topic, partition.index, [3 - broker_id])
    assert commit_offset(client, producer_id, epoch, 7, group_coordinator) == 0
    if is_committed:
        assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=coordinator)[0] == 0
    client.core.stop_broker(coordinator, is_crash=True)
    next_epoch = epoch + is_committed
    assert commit_offset(client, producer_id, next_epoch, 8, group_coordinator) == 15
    client.core.start_broker(coordinator)
    if not is_committed:
        assert client.end("tx", producer_id, epoch, COMMIT, version=5, broker_id=coordinator)[0] == 0
    client.advance(200)
    (committed,) = client.core.groups.groups["readers"].offsets.values()
    assert committed.offset == 7
