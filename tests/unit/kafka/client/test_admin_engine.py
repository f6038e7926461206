"""Requests to brokers that move, refuse, stop answering and die: each request gets exactly one reply, the right one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.errors import AuthenticationError, AuthorizationError, BrokerError, KafkaSinkError, TransportError
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.kafka.client import coordinator_lookup
from kafka_sink.kafka.client.admin_engine import ENDS_IN_FLIGHT
from kafka_sink.kafka.client.ask import (
    AllBrokers,
    AnyBroker,
    Ask,
    Controller,
    Coordinator,
    Coordinators,
    Leader,
    Leaders,
    OneBroker,
    ReplyKind,
    failure_kind,
)
from kafka_sink.kafka.client.commands import Disconnected
from kafka_sink.kafka.client.metadata import DELETED_MS
from kafka_sink.kafka.client.nodes import LANES_MAX, REFUSED_BACKOFF_MS
from kafka_sink.kafka.wire.apis import (
    API_VERSIONS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from kafka_sink.security.passwords import password_exchange
from tests.unit.kafka.client.admin_driver import TIMEOUT_MS, AdminDriver
from tests.unit.producer.engine.fake_cluster import Asked

END_BODY = {"transactional_id": "a", "producer_id": 1, "producer_epoch": 0, "committed": True}
LIST_BODY = {"state_filters": [], "producer_id_filters": []}


def ok(request: Asked) -> dict[str, Any]:
    return {"error_code": 0, "producer_id": request.node_id, "producer_epoch": 0}


def listed(request: Asked) -> dict[str, Any]:
    row = {"transactional_id": f"of {request.node_id}", "producer_id": 1, "transaction_state": "Ongoing"}
    return {"error_code": 0, "unknown_state_filters": [], "transaction_states": [row]}


def described(request: Asked) -> dict[str, Any]:
    rows = [
        {"error_code": 0, "transactional_id": key, "transaction_state": "Ongoing", "transaction_timeout_ms": 1,
         "transaction_start_time_ms": 1, "producer_id": request.node_id, "producer_epoch": 0, "topics": []}
        for key in request.body["transactional_ids"]
    ]  # fmt: skip
    return {"transaction_states": rows}


def answer_all(driver: AdminDriver) -> None:
    """Answers all waiting EndTxn requests, and every later one at once."""
    driver.cluster.scripts[END_TXN.key] = ok
    for request in driver.cluster.pending_of(END_TXN):
        driver.cluster.answer(request, ok(request))
    driver.run()


@pytest.fixture
def driver() -> AdminDriver:
    driver = AdminDriver()
    driver.cluster.scripts |= {END_TXN.key: ok, LIST_TRANSACTIONS.key: listed, DESCRIBE_TRANSACTIONS.key: described}
    driver.coordinators = {"a": 0, "b": 1, "c": 2, "d": 1}
    return driver


# ---- targets ---------------------------------------------------------------------------------------------------


def test_a_question_reaches_the_coordinator_of_its_id(driver: AdminDriver) -> None:
    reply = driver.reply_to(driver.ask(Coordinator("b"), END_TXN, END_BODY))
    assert (reply.kind, reply.error) == (ReplyKind.ANSWERED, None)
    assert [body["producer_id"] for body in reply.bodies] == [1]


def test_coordinators_are_remembered_until_they_are_to_be_found_again(driver: AdminDriver) -> None:
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    assert driver.count(FIND_COORDINATOR) == 1
    driver.coordinators["b"] = 2
    reply = driver.reply_to(driver.ask(Coordinator("b"), END_TXN, END_BODY, find_again=True))
    assert driver.count(FIND_COORDINATOR) == 2
    assert [node_id for node_id, _ in driver.asked(END_TXN)] == [1, 1, 2]
    assert reply.kind is ReplyKind.ANSWERED


def test_many_ids_are_looked_up_together_and_each_coordinator_is_asked_for_its_own(driver: AdminDriver) -> None:
    reply = driver.reply_to(driver.ask(Coordinators(("a", "b", "c", "d")), DESCRIBE_TRANSACTIONS))
    assert driver.count(FIND_COORDINATOR) == 1
    assert {node: body["transactional_ids"] for node, body in driver.asked(DESCRIBE_TRANSACTIONS)} == {
        0: ["a"], 1: ["b", "d"], 2: ["c"]
    }  # fmt: skip
    found = {row["transactional_id"]: row["producer_id"] for body in reply.bodies for row in body["transaction_states"]}
    assert found == driver.coordinators and reply.kind is ReplyKind.ANSWERED


def test_brokers_that_find_one_coordinator_at_a_time_are_asked_for_one_at_a_time() -> None:
    driver = AdminDriver(api_versions={FIND_COORDINATOR.key: (0, 3)})
    driver.cluster.scripts[DESCRIBE_TRANSACTIONS.key] = described
    driver.coordinators = {"a": 0, "b": 1, "c": 1}
    reply = driver.reply_to(driver.ask(Coordinators(("a", "b", "c")), DESCRIBE_TRANSACTIONS))
    assert sorted(body["key"] for _, body in driver.asked(FIND_COORDINATOR)) == ["a", "b", "c"]
    assert reply.kind is ReplyKind.ANSWERED and len(reply.bodies) == 2


def test_ids_of_a_thousand_are_asked_for_in_parts(driver: AdminDriver) -> None:
    ids = tuple(f"id-{number}" for number in range(2_500))
    driver.ask(Coordinators(ids), DESCRIBE_TRANSACTIONS)
    assert [len(body["coordinator_keys"]) for _, body in driver.asked(FIND_COORDINATOR)] == [1_000, 1_000, 500]
    assert [len(body["transactional_ids"]) for _, body in driver.asked(DESCRIBE_TRANSACTIONS)] == [2_500]


def offsets_told(request: Asked) -> dict[str, Any]:
    topics = [
        {"name": topic["name"], "partitions": [
            {"partition_index": asked["partition_index"], "error_code": 0, "timestamp": -1, "offset": request.node_id,
             "leader_epoch": 0}
            for asked in topic["partitions"]
        ]}
        for topic in request.body["topics"]
    ]  # fmt: skip
    return {"topics": topics}


def offsets_body(partitions: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    names = dict.fromkeys(topic for topic, _ in partitions)
    topics = [
        {"name": name, "partitions": [
            {"partition_index": number, "timestamp": -1} for topic, number in partitions if topic == name
        ]}
        for name in names
    ]  # fmt: skip
    return {"replica_id": -1, "isolation_level": 1, "topics": topics}


def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    driver = AdminDriver(topics={"t": {0: 0, 1: 1, 2: 0}, "u": {0: 1}})
    driver.cluster.scripts[LIST_OFFSETS.key] = offsets_told
    partitions = (("t", 0), ("t", 1), ("t", 2), ("u", 0))
    reply = driver.reply_to(driver.ask(Leaders(partitions), LIST_OFFSETS, offsets_body(partitions), version_min=2))
    assert reply.kind is ReplyKind.ANSWERED
    told = {
        (topic["name"], row["partition_index"]): row["offset"]
        for body in reply.bodies
        for topic in body["topics"]
        for row in topic["partitions"]
    }
    assert told == {("t", 0): 0, ("t", 1): 1, ("t", 2): 0, ("u", 0): 1}
    assert len(driver.asked(LIST_OFFSETS)) == 2


def test_a_partition_without_a_leader_is_lost_and_the_others_are_asked_all_the_same() -> None:
    driver = AdminDriver(topics={"t": {0: 0, 1: -1}})
    driver.cluster.scripts[LIST_OFFSETS.key] = offsets_told
    partitions = (("t", 0), ("t", 1))
    question = driver.ask(Leaders(partitions), LIST_OFFSETS, offsets_body(partitions), version_min=2)
    driver.sleep(1_000)
    reply = driver.reply_to(question)
    assert reply.kind is ReplyKind.LOST and "t-1 has no leader" in str(reply.error)
    assert [len(body["topics"][0]["partitions"]) for body in reply.bodies] == [1]


def test_what_needs_leaders_is_not_sent_while_one_is_missing(driver: AdminDriver) -> None:
    """Fresh metadata decides: an earlier leader may be gone."""
    partitions = (("t", 0), ("t", 1))
    first = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=partitions)
    assert driver.reply_to(first).kind is ReplyKind.ANSWERED
    driver.sleep(500)
    driver.cluster.move_leader("t", 1, -1)
    second = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=partitions)
    reply = driver.reply_to(second)
    assert reply.kind is ReplyKind.LEADERLESS and "t-1 has no leader" in str(reply.error)
    others = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 0), ("not there", 0)))
    driver.sleep(2_000)
    assert driver.reply_to(others).kind is ReplyKind.ANSWERED
    driver.cluster.move_leader("t", 1, 2)
    third = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=partitions)
    driver.sleep(2_000)
    assert driver.reply_to(third).kind is ReplyKind.ANSWERED and driver.count(END_TXN) == 3


def test_what_needs_leaders_is_not_sent_because_a_broker_does_not_know_the_topic(driver: AdminDriver) -> None:
    driver.cluster.move_leader("t", 1, -1)
    known = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
    assert driver.reply_to(known).kind is ReplyKind.LEADERLESS
    driver.cluster.topic_errors["t"] = 3
    for _ in range(2):
        unknown = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
        driver.sleep(2_000)
        assert driver.reply_to(unknown).kind is ReplyKind.LEADERLESS
    other = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 0),))
    driver.sleep(2_000)
    assert driver.reply_to(other).kind is ReplyKind.ANSWERED


def test_what_needs_leaders_is_sent_once_the_topic_was_deleted(driver: AdminDriver) -> None:
    """Its partition had no leader before, and gets none any more."""

    def ask() -> ReplyKind:
        asked = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
        driver.sleep(2_000)
        return driver.reply_to(asked).kind

    driver.cluster.move_leader("t", 1, -1)
    assert ask() is ReplyKind.LEADERLESS
    driver.cluster.topic_errors["t"] = 3
    assert ask() is ReplyKind.LEADERLESS, "a broker may not know the topic yet"
    driver.sleep(DELETED_MS)
    assert ask() is ReplyKind.ANSWERED
    del driver.cluster.topic_errors["t"]
    assert ask() is ReplyKind.LEADERLESS


def older_answer(driver: AdminDriver) -> Callable[[], None]:
    """A refresh of the metadata is in flight, from now. Returns what delivers its response; later ones are answered."""
    driver.sleep(1_000)
    driver.cluster.scripts[METADATA.key] = lambda _: None
    driver.asking.metadata.request_update()
    driver.run()
    (older,) = driver.cluster.pending_of(METADATA)
    body = driver.cluster.metadata_body(older)

    def deliver() -> None:
        driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body
        driver.cluster.answer(older, body)
        driver.run()

    return deliver


def test_an_answer_requested_before_a_transaction_is_ended_says_nothing_about_leaders(driver: AdminDriver) -> None:
    known = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
    assert driver.reply_to(known).kind is ReplyKind.ANSWERED
    deliver = older_answer(driver)
    driver.cluster.move_leader("t", 1, -1)
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
    deliver()
    assert driver.count(END_TXN) == 1, "it comes later, but says how things were before"
    driver.sleep(1_000)
    assert driver.reply_to(question).kind is ReplyKind.LEADERLESS and driver.count(END_TXN) == 1


def test_an_answer_that_took_long_is_as_old_as_its_request(driver: AdminDriver) -> None:
    known = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
    assert driver.reply_to(known).kind is ReplyKind.ANSWERED
    deliver = older_answer(driver)
    driver.sleep(5_000)
    deliver()
    driver.cluster.move_leader("t", 1, -1)
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
    driver.sleep(1_000)
    assert driver.reply_to(question).kind is ReplyKind.LEADERLESS and driver.count(END_TXN) == 1


def test_a_coordinator_has_not_left_because_older_metadata_do_not_have_it(driver: AdminDriver) -> None:
    for name, node_id in (("x", 0), ("y", 1), ("z", 2)):  # each broker is connected
        driver.coordinators[name] = node_id
        driver.ask(Coordinator(name), END_TXN, END_BODY)
    deliver = older_answer(driver)
    driver.cluster.brokers[7] = ("host7", 9092)
    driver.coordinators["b"] = 7
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    deliver()
    driver.sleep(1_000)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED


def test_a_lookup_in_flight_does_not_count_for_an_id_whose_coordinator_was_found_wrong(driver: AdminDriver) -> None:
    driver.coordinators["b"] = 1
    driver.cluster.scripts[FIND_COORDINATOR.key] = lambda _: None
    first = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    (older,) = driver.cluster.pending_of(FIND_COORDINATOR)
    body = driver._find_coordinator(older)
    driver.coordinators["b"] = 2
    again = driver.ask(Coordinator("b"), END_TXN, END_BODY, find_again=True)
    driver.cluster.scripts[FIND_COORDINATOR.key] = driver._find_coordinator
    driver.cluster.answer(older, body)
    for newer in driver.cluster.pending_of(FIND_COORDINATOR):
        driver.cluster.answer(newer, driver._find_coordinator(newer))
    driver.run()
    assert driver.reply_to(first).kind is driver.reply_to(again).kind is ReplyKind.ANSWERED
    assert [node_id for node_id, _ in driver.asked(END_TXN)] == [2, 2]


def test_an_answer_about_other_topics_says_nothing_about_leaders(driver: AdminDriver) -> None:
    assert driver.reply_to(driver.ask(Coordinator("b"), END_TXN, END_BODY)).kind is ReplyKind.ANSWERED
    driver.cluster.move_leader("t", 1, -1)
    driver.sleep(1_000)
    driver.cluster.scripts[METADATA.key] = lambda _: None
    driver.asking.metadata.forget_topics([])  # those of the last operation
    driver.asking.metadata.request_update()
    driver.run()
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
    (of_no_topic,) = driver.cluster.pending_of(METADATA)
    assert not of_no_topic.body["topics"]
    driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body
    driver.cluster.answer(of_no_topic, driver.cluster.metadata_body(of_no_topic))
    driver.run()
    driver.sleep(1_000)
    assert driver.reply_to(question).kind is ReplyKind.LEADERLESS and driver.count(END_TXN) == 1


def test_what_needs_leaders_is_sent_at_once_if_they_have_just_been_learnt(driver: AdminDriver) -> None:
    for _ in range(3):
        question = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 0),))
        # At once: the driver's clock has not moved.
        assert driver.reply_to(question).kind is ReplyKind.ANSWERED
    assert driver.count(METADATA) <= 2


@pytest.mark.parametrize("is_noticed_before", [True, False])
def test_what_has_just_been_learnt_is_in_doubt_once_a_broker_is_lost(
    driver: AdminDriver, is_noticed_before: bool
) -> None:
    first = driver.ask(AllBrokers(), DESCRIBE_TRANSACTIONS, led_partitions=(("t", 1),))
    assert driver.reply_to(first).kind is ReplyKind.ANSWERED
    driver.cluster.move_leader("t", 1, -1)
    driver.cluster.disconnect(1)
    if is_noticed_before:
        driver.run()
    second = driver.ask(Coordinator("b"), END_TXN, END_BODY, led_partitions=(("t", 1),))
    driver.sleep(1_000)
    assert driver.reply_to(second).kind is ReplyKind.LEADERLESS and driver.count(END_TXN) == 0


def test_no_ids_are_answered_by_nobody(driver: AdminDriver) -> None:
    reply = driver.reply_to(driver.ask(Coordinators(()), DESCRIBE_TRANSACTIONS))
    assert (reply.kind, reply.bodies) == (ReplyKind.ANSWERED, ()) and driver.count(DESCRIBE_TRANSACTIONS) == 0


def test_every_broker_is_asked_and_one_that_joined_just_now_is_not_left_out(driver: AdminDriver) -> None:
    assert len(driver.reply_to(driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)).bodies) == 3
    driver.cluster.brokers[7] = ("host7", 9092)
    driver.sleep(200)
    reply = driver.reply_to(driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY))
    ids = {row["transactional_id"] for body in reply.bodies for row in body["transaction_states"]}
    assert ids == {"of 0", "of 1", "of 2", "of 7"}


def test_every_broker_is_asked_at_once_when_the_brokers_have_just_been_learnt(driver: AdminDriver) -> None:
    driver.reply_to(driver.ask(Controller(), LIST_TRANSACTIONS, LIST_BODY))
    question = driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    # The clock has not moved, so there was no wait; another request for the brokers would wait for its back-off.
    assert len(driver.reply_to(question).bodies) == 3 and driver.count(METADATA) == 1


def test_every_broker_can_be_asked_after_every_batch_without_waiting_longer_each_time(driver: AdminDriver) -> None:
    driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    for _ in range(10):
        driver.sleep(300)
        question = driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
        # The clock has not moved, so there was no wait.
        assert driver.reply_to(question).kind is ReplyKind.ANSWERED


def test_a_leader_that_moved_is_found_again(driver: AdminDriver) -> None:
    body: dict[str, Any] = {"acks": -1, "timeout_ms": 1, "topic_data": []}
    driver.cluster.scripts[PRODUCE.key] = lambda request: {"responses": []}
    driver.ask(Leader("t", 1), PRODUCE, body, version_max=12)
    driver.cluster.move_leader("t", 1, 2)
    driver.ask(Leader("t", 1), PRODUCE, body, version_max=12)
    question = driver.ask(Leader("t", 1), PRODUCE, body, version_max=12, find_again=True)
    driver.sleep(200)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED
    assert [node_id for node_id, _ in driver.asked(PRODUCE)] == [1, 1, 2]


def test_any_broker_one_broker_and_the_controller_can_be_asked(driver: AdminDriver) -> None:
    for target, wanted in ((AnyBroker(), {0, 1, 2}), (OneBroker(2), {2}), (Controller(), {0})):
        reply = driver.reply_to(driver.ask(target, LIST_TRANSACTIONS, LIST_BODY))
        assert reply.kind is ReplyKind.ANSWERED
        assert driver.asked(LIST_TRANSACTIONS)[-1][0] in wanted


def test_questions_of_one_step_are_all_out_before_the_first_answer(driver: AdminDriver) -> None:
    driver.cluster.scripts[END_TXN.key] = lambda request: None
    driver.run(*[Ask(Coordinator(key), END_TXN, END_BODY, timeout_ms=TIMEOUT_MS) for key in "abcd" * 5])
    assert len(driver.cluster.pending_of(END_TXN)) == 20 and not driver.replies
    answer_all(driver)
    assert len(driver.replies) == 20


# ---- looking ahead ----


def test_what_will_be_needed_is_found_with_one_request_each_and_every_broker_is_connected(driver: AdminDriver) -> None:
    driver.asking.look_ahead(driver.now_ms, ["t"], ["a", "b"])
    driver.run()
    assert [sorted(body["coordinator_keys"]) for _, body in driver.asked(FIND_COORDINATOR)] == [["a", "b"]]
    assert [[topic["name"] for topic in body["topics"]] for _, body in driver.asked(METADATA)] == [["t"]]
    assert [len(driver.cluster.connections_of(node_id)) for node_id in range(3)].count(0) == 0
    ahead = driver.count(METADATA), driver.count(FIND_COORDINATOR), driver.count(API_VERSIONS)
    for target in (Coordinator("a"), Coordinator("b")):
        assert driver.reply_to(driver.ask(target, END_TXN, END_BODY)).kind is ReplyKind.ANSWERED
    assert (driver.count(METADATA), driver.count(FIND_COORDINATOR), driver.count(API_VERSIONS)) == ahead


def test_a_coordinator_that_is_not_found_ahead_is_looked_for_again_by_the_request_that_needs_it(
    driver: AdminDriver,
) -> None:
    driver.lookup_codes["a"] = 15
    driver.asking.look_ahead(driver.now_ms, [], ["a"])
    driver.run()
    assert not driver.replies
    del driver.lookup_codes["a"]
    assert driver.reply_to(driver.ask(Coordinator("a"), END_TXN, END_BODY)).kind is ReplyKind.ANSWERED
    assert driver.count(FIND_COORDINATOR) == 2


def test_topics_of_an_earlier_operation_are_not_asked_for_again(driver: AdminDriver) -> None:
    """They may be gone, and a topic that is missing is asked for again and again."""
    driver.asking.look_ahead(driver.now_ms, ["gone"], [])
    driver.run()
    driver.asking.look_ahead(driver.now_ms, ["t"], [])
    driver.sleep(5_000)
    assert [row["name"] for row in driver.asked(METADATA)[-1][1]["topics"]] == ["t"]
    assert driver.count(METADATA) <= 3


def test_what_was_looked_for_ahead_ends_with_the_operation(driver: AdminDriver) -> None:
    driver.asking.look_ahead(driver.now_ms, [], ["a", "b"])
    driver.asking.forget_asks()
    driver.run()
    assert driver.count(FIND_COORDINATOR) == 0


def test_coordinators_of_earlier_operations_are_not_kept_without_limit(
    driver: AdminDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_lookup, "FOUND_MAX", 10)
    for number in range(30):
        driver.asking.look_ahead(driver.now_ms, [], ["driver", f"write-{number}"])
        driver.run()
    assert len(driver.asking._lookup._found) <= 12
    asked = [key for _, body in driver.asked(FIND_COORDINATOR) for key in body["coordinator_keys"]]
    assert asked.count("driver") == 1


# ---- several connections to a coordinator ----------------------------------------------------------------------


def many_ends(driver: AdminDriver, count: int) -> list[Ask]:
    """Sends EndTxn requests to one coordinator, which does not answer until the test does."""
    driver.cluster.scripts[END_TXN.key] = lambda request: None
    ends = [Ask(Coordinator("b"), END_TXN, END_BODY, timeout_ms=TIMEOUT_MS) for _ in range(count)]
    driver.run(*ends)
    return ends


def test_the_ends_of_many_transactions_go_over_several_connections(driver: AdminDriver) -> None:
    ends = many_ends(driver, 40)
    counts = Counter(request.connection_id for request in driver.cluster.pending_of(END_TXN))
    assert list(counts.values()) == [10] * LANES_MAX, "once all connections are open, requests do not wait for answers"
    while waiting := driver.cluster.pending_of(END_TXN):
        driver.cluster.answer(waiting[-1], ok(waiting[-1]))
        driver.cluster.answer(waiting[0], ok(waiting[0]))
        driver.run()
    assert driver.count(END_TXN) == 40
    assert {driver.reply_to(end).kind for end in ends} == {ReplyKind.ANSWERED}


def test_the_ends_of_a_few_transactions_need_no_further_connection(driver: AdminDriver) -> None:
    many_ends(driver, ENDS_IN_FLIGHT)
    assert len({request.connection_id for request in driver.cluster.pending_of(END_TXN)}) == 1
    assert len(driver.cluster.connections_of(1)) == 1


def test_a_further_connection_that_is_lost_takes_along_only_what_was_on_it(driver: AdminDriver) -> None:
    ends = many_ends(driver, 40)
    waiting = driver.cluster.pending_of(END_TXN)
    lost_id = max(request.connection_id for request in waiting)
    driver.cluster.lose(lost_id)
    driver.run()
    lost = [end for end in ends if end in driver.replies]
    assert len(lost) == 10
    assert {driver.reply_to(end).kind for end in lost} == {ReplyKind.LOST}
    assert "(node 1)" in str(driver.reply_to(lost[0]).error)
    answer_all(driver)
    assert Counter(driver.reply_to(end).kind for end in ends) == {ReplyKind.LOST: 10, ReplyKind.ANSWERED: 30}
    assert driver.count(END_TXN) == 40, "what may have arrived is not sent again"


def test_further_connections_without_an_answer_are_closed_at_their_own_time_limit(driver: AdminDriver) -> None:
    many_ends(driver, 40)
    waiting = driver.cluster.pending_of(END_TXN)
    first_id = min(request.connection_id for request in waiting)
    for request in waiting:
        if request.connection_id == first_id:
            driver.cluster.answer(request, ok(request))
    driver.run()
    driver.sleep(TIMEOUT_MS)
    assert driver.cluster.connections_of(1) == [first_id]


def test_where_no_further_connection_is_to_be_had_one_does_it_all(driver: AdminDriver) -> None:
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    driver.cluster.refusing.add(1)
    ends = many_ends(driver, 40)
    assert len(driver.cluster.pending_of(END_TXN)) == ENDS_IN_FLIGHT
    answer_all(driver)
    assert {driver.reply_to(end).kind for end in ends} == {ReplyKind.ANSWERED}


def accepted(_asked: Asked) -> dict[str, Any]:
    return {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": 0}


def with_login() -> AdminDriver:
    driver = AdminDriver(
        authenticator=lambda _host: password_exchange("PLAIN", {"username": "alice", "password": "hunter2"}, "")
    )
    driver.coordinators = {"b": 1}
    driver.cluster.scripts[SASL_HANDSHAKE.key] = lambda asked: {"error_code": 0, "mechanisms": ["PLAIN"]}
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = accepted
    return driver


def refuse_logins(driver: AdminDriver, *node_ids: int) -> None:
    """At these brokers, or at all."""

    def answer(asked: Asked) -> dict[str, Any]:
        is_refused = asked.node_id in node_ids or not node_ids
        return {**accepted(asked), "error_code": 58, "error_message": "no"} if is_refused else accepted(asked)

    driver.cluster.scripts[SASL_AUTHENTICATE.key] = answer


def end(driver: AdminDriver, transactional_id: str) -> ReplyKind:
    return driver.reply_to(driver.ask(Coordinator(transactional_id), END_TXN, END_BODY)).kind


def test_a_login_that_one_broker_alone_refuses_ends_no_question_to_the_others() -> None:
    driver = with_login()
    driver.coordinators["c"] = 2
    driver.cluster.scripts[END_TXN.key] = ok
    assert end(driver, "b") is ReplyKind.ANSWERED
    refuse_logins(driver, 2)
    refused = driver.reply_to(driver.ask(Coordinator("c"), END_TXN, END_BODY))
    assert refused.kind is ReplyKind.REFUSED and isinstance(refused.error, AuthenticationError)
    assert not refused.ask.is_hopeless
    logins = driver.count(SASL_AUTHENTICATE)
    for _ in range(3):
        driver.sleep(10_000)
        assert (end(driver, "b"), end(driver, "c")) == (ReplyKind.ANSWERED, ReplyKind.REFUSED)
    assert driver.count(SASL_AUTHENTICATE) == logins, "refused credentials are not tried again for a while"
    driver.sleep(REFUSED_BACKOFF_MS)
    assert end(driver, "c") is ReplyKind.REFUSED and driver.count(SASL_AUTHENTICATE) == logins + 1
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = accepted
    driver.sleep(REFUSED_BACKOFF_MS // 2)
    assert end(driver, "c") is ReplyKind.REFUSED, "the wait grows"
    driver.sleep(2 * REFUSED_BACKOFF_MS)
    assert end(driver, "c") is ReplyKind.ANSWERED and driver.asking.nodes.refusal is None


def test_a_login_that_a_second_broker_refuses_ends_all_questions() -> None:
    driver = with_login()
    driver.coordinators["c"] = 2
    driver.cluster.scripts[END_TXN.key] = ok
    assert end(driver, "b") is ReplyKind.ANSWERED
    refuse_logins(driver)
    assert (end(driver, "c"), end(driver, "b")) == (ReplyKind.REFUSED, ReplyKind.ANSWERED)
    driver.cluster.disconnect(1)
    driver.run()
    driver.sleep(1_000)
    logins = driver.count(SASL_AUTHENTICATE)
    assert [end(driver, each) for each in "ba"] == [ReplyKind.REFUSED] * 2
    assert driver.count(SASL_AUTHENTICATE) == logins + 1
    driver.sleep(10 * REFUSED_BACKOFF_MS)
    assert end(driver, "c") is ReplyKind.REFUSED and driver.count(SASL_AUTHENTICATE) == logins + 1
    hopeless = driver.ask(Coordinator("c"), END_TXN, END_BODY)
    assert driver.reply_to(hopeless).kind is ReplyKind.REFUSED and hopeless.is_hopeless


def test_a_login_that_the_first_broker_refuses_is_tried_at_no_other() -> None:
    driver = with_login()
    refuse_logins(driver)
    assert end(driver, "b") is ReplyKind.REFUSED and driver.count(SASL_AUTHENTICATE) == 1


def test_a_login_that_is_refused_to_a_further_connection_costs_nothing_but_that_connection() -> None:
    driver = with_login()
    driver.cluster.scripts[END_TXN.key] = ok
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    refuse_logins(driver)
    logins = driver.count(SASL_AUTHENTICATE)
    ends = many_ends(driver, 40)
    assert driver.asking.nodes.refusal is None
    assert driver.count(SASL_AUTHENTICATE) == logins + 1, "refused credentials are not tried again"
    assert len(driver.cluster.pending_of(END_TXN)) == ENDS_IN_FLIGHT
    answer_all(driver)
    assert {driver.reply_to(end).kind for end in ends} == {ReplyKind.ANSWERED}
    assert driver.count(SASL_AUTHENTICATE) == logins + 1


def test_a_login_that_succeeds_later_opens_further_connections_again() -> None:
    driver = with_login()
    driver.cluster.scripts[END_TXN.key] = ok
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    refuse_logins(driver)
    many_ends(driver, 40)
    answer_all(driver)
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = accepted
    driver.cluster.disconnect(1)
    driver.run()
    driver.sleep(1_000)
    driver.cluster.scripts[END_TXN.key] = ok
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    many_ends(driver, 40)
    assert len(driver.cluster.connections_of(1)) == LANES_MAX


def test_a_login_that_is_refused_to_a_further_connection_counts_for_its_broker_if_the_first_one_is_gone() -> None:
    driver = with_login()
    driver.cluster.scripts[END_TXN.key] = ok
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    (first_id,) = driver.cluster.connections_of(1)
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: None
    many_ends(driver, 40)
    (login,) = driver.cluster.pending_of(SASL_AUTHENTICATE)
    driver.cluster.lose(first_id)
    driver.run()
    driver.cluster.answer(login, {**accepted(login), "error_code": 58})
    driver.run()
    logins = driver.count(SASL_AUTHENTICATE)
    assert isinstance(driver.asking.nodes.failure_of(1), AuthenticationError)
    assert end(driver, "b") is ReplyKind.REFUSED and driver.count(SASL_AUTHENTICATE) == logins


def test_all_connections_to_a_broker_that_left_or_moved_are_closed(driver: AdminDriver) -> None:
    many_ends(driver, 40)
    answer_all(driver)
    assert len(driver.cluster.connections_of(1)) == LANES_MAX
    driver.cluster.brokers[1] = ("host9", 9092)
    driver.asking.metadata.request_update()
    driver.sleep(1_000)
    assert driver.cluster.connections_of(1) == []
    many_ends(driver, 40)
    assert len(driver.cluster.connections_of(1)) == LANES_MAX
    answer_all(driver)
    del driver.cluster.brokers[1]
    driver.asking.metadata.request_update()
    driver.sleep(1_000)
    assert driver.cluster.connections_of(1) == []


# ---- failures --------------------------------------------------------------------------------------------------


def test_a_disconnect_with_a_question_on_the_wire_loses_it_and_forgets_the_coordinator(driver: AdminDriver) -> None:
    driver.cluster.scripts[END_TXN.key] = lambda request: None
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    driver.cluster.disconnect(1)
    driver.run()
    reply = driver.reply_to(question)
    assert reply.kind is ReplyKind.LOST and isinstance(reply.error, TransportError)
    assert reply.error.name == "PKS-3003"
    assert driver.count(END_TXN) == 1, "what may have arrived is not sent again"
    driver.cluster.scripts[END_TXN.key] = ok
    driver.coordinators["b"] = 2
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED and driver.asked(END_TXN)[-1][0] == 2


def test_a_dead_broker_does_not_hold_up_the_answers_of_the_living(driver: AdminDriver) -> None:
    driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    driver.cluster.refusing.add(1)
    driver.cluster.disconnect(1)
    driver.run()
    to_dead = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    to_living = driver.ask(Coordinator("c"), END_TXN, END_BODY)
    assert driver.reply_to(to_living).kind is ReplyKind.ANSWERED
    driver.sleep(1_000)
    reply = driver.reply_to(to_dead)
    assert reply.kind is ReplyKind.NOT_SENT and "host1:9092" in str(reply.error)


def test_of_several_brokers_the_answers_of_those_that_live_are_kept(driver: AdminDriver) -> None:
    driver.cluster.refusing.add(1)
    question = driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    driver.sleep(1_000)
    reply = driver.reply_to(question)
    assert reply.kind is ReplyKind.LOST and len(reply.bodies) == 2
    question = driver.ask(Coordinators(("a", "b", "c", "d")), DESCRIBE_TRANSACTIONS)
    driver.sleep(1_000)
    reply = driver.reply_to(question)
    assert reply.kind is ReplyKind.LOST
    assert {row["transactional_id"] for body in reply.bodies for row in body["transaction_states"]} == {"a", "c"}


def test_silence_ends_at_the_time_limit_and_late_answers_are_nobodys(driver: AdminDriver) -> None:
    driver.cluster.scripts[END_TXN.key] = lambda request: None
    silent = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    quick = driver.ask(Coordinator("b"), LIST_TRANSACTIONS, LIST_BODY)
    driver.sleep(TIMEOUT_MS - 1)
    assert not driver.replies
    late = driver.cluster.pending_of(END_TXN)[0]
    driver.sleep(1)
    assert driver.reply_to(silent).kind is ReplyKind.LOST
    assert driver.reply_to(quick).kind is ReplyKind.LOST
    driver.sleep(TIMEOUT_MS)
    assert late.connection_id not in driver.cluster.connections, "a connection that owes an answer is given up"
    assert len(driver.replies) == 2


def test_nothing_is_sent_after_the_time_limit_to_a_broker_that_could_not_take_it() -> None:
    driver = AdminDriver(max_in_flight_requests_per_connection=1)
    driver.cluster.scripts[END_TXN.key] = lambda request: None
    first = driver.ask(Coordinator("b"), END_TXN, END_BODY, timeout_ms=20_000)
    second = driver.ask(Coordinator("b"), END_TXN, END_BODY, timeout_ms=1_000)
    driver.sleep(1_000)
    reply = driver.reply_to(second)
    assert reply.kind is ReplyKind.NOT_SENT
    driver.cluster.answer(driver.cluster.pending_of(END_TXN)[0], {"error_code": 0})
    driver.run()
    assert driver.reply_to(first).kind is ReplyKind.ANSWERED and driver.count(END_TXN) == 1


def test_what_was_not_sent_in_time_names_the_broker_in_the_way_though_others_answer_meanwhile() -> None:
    driver = AdminDriver(socket_connection_setup_timeout_ms=1_000)
    driver.cluster.scripts[LIST_TRANSACTIONS.key] = listed
    driver.cluster.deaf.add(2)
    driver.ask(OneBroker(2), LIST_TRANSACTIONS, LIST_BODY, timeout_ms=2_000)
    driver.sleep(2_000)
    late = driver.ask(OneBroker(2), LIST_TRANSACTIONS, LIST_BODY, timeout_ms=100)
    assert driver.reply_to(driver.ask(OneBroker(0), LIST_TRANSACTIONS, LIST_BODY)).error is None
    driver.sleep(100)
    text = str(driver.reply_to(late).error)
    assert text.startswith("ListTransactions was not sent within 100 ms: host2:9092 (node 2): connection was not est")


def test_an_answer_at_the_last_moment_counts(driver: AdminDriver) -> None:
    (question,) = many_ends(driver, 1)
    (waiting,) = driver.cluster.pending_of(END_TXN)
    driver.cluster.answer(waiting, ok(waiting))
    driver.now_ms += TIMEOUT_MS
    driver.run()
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED


def test_what_was_sent_late_and_not_answered_in_time_may_have_been_carried_out(driver: AdminDriver) -> None:
    driver.cluster.is_naming = False
    (question,) = many_ends(driver, 1)
    driver.sleep(TIMEOUT_MS // 2)
    driver.cluster.is_naming = True
    driver.run()
    assert driver.count(END_TXN) == 1
    driver.sleep(TIMEOUT_MS // 2)
    reply = driver.reply_to(question)
    assert reply.kind is ReplyKind.LOST
    assert str(reply.error) == f"EndTxn was sent but not answered within {TIMEOUT_MS} ms"


def test_the_engine_wants_to_be_called_at_the_time_limit_of_a_request(driver: AdminDriver) -> None:
    driver.cluster.is_naming = False
    driver.ask(AnyBroker(), LIST_TRANSACTIONS, LIST_BODY, timeout_ms=500)
    assert driver.wake_at_ms == driver.now_ms + 500


def test_nothing_waits_once_two_brokers_have_refused_this_client(driver: AdminDriver) -> None:
    def list_at(node_id: int) -> ReplyKind:
        return driver.reply_to(driver.ask(OneBroker(node_id), LIST_TRANSACTIONS, LIST_BODY)).kind

    for node_id in (1, 2):
        assert list_at(node_id) is ReplyKind.ANSWERED
        (connection_id,) = driver.cluster.connections_of(node_id)
        driver.asking.step(driver.now_ms, [Disconnected(connection_id, AuthenticationError("unknown issuer"))])
        assert list_at(node_id) is ReplyKind.REFUSED
    assert isinstance(driver.asking.nodes.refusal, AuthenticationError) and list_at(0) is not ReplyKind.ANSWERED


def test_what_was_not_sent_in_time_because_of_a_quota_says_so() -> None:
    driver = AdminDriver()
    driver.cluster.scripts[LIST_TRANSACTIONS.key] = lambda request: {**listed(request), "throttle_time_ms": 5_000}
    assert driver.reply_to(driver.ask(OneBroker(2), LIST_TRANSACTIONS, LIST_BODY)).error is None
    late = driver.ask(OneBroker(2), LIST_TRANSACTIONS, LIST_BODY, timeout_ms=100)
    driver.sleep(100)
    assert "was not sent within 100 ms: a quota of this client is used up" in str(driver.reply_to(late).error)


def test_a_version_that_the_broker_does_not_speak_is_unsupported() -> None:
    driver = AdminDriver(api_versions={END_TXN.key: (0, 4), LIST_TRANSACTIONS.key: None})
    reply = driver.reply_to(driver.ask(Coordinator("a"), END_TXN, END_BODY, version_min=5))
    assert reply.kind is ReplyKind.UNSUPPORTED
    assert isinstance(reply.error, BrokerError) and reply.error.code == 35
    question = driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    driver.sleep(200)
    reply = driver.reply_to(question)
    assert reply.kind is ReplyKind.UNSUPPORTED and reply.bodies == ()


def test_a_field_that_has_no_place_in_the_brokers_version_is_unsupported() -> None:
    driver = AdminDriver(api_versions={LIST_TRANSACTIONS.key: (0, 0)})
    reply = driver.reply_to(driver.ask(AnyBroker(), LIST_TRANSACTIONS, {**LIST_BODY, "duration_filter": 5}))
    assert reply.kind is ReplyKind.UNSUPPORTED and "duration_filter" in str(reply.error)


def test_a_lookup_that_is_not_permitted_is_refused_and_other_ids_go_on(driver: AdminDriver) -> None:
    driver.lookup_codes["b"] = 53
    refused = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    assert driver.reply_to(refused).kind is ReplyKind.REFUSED
    assert isinstance(driver.reply_to(refused).error, AuthorizationError)
    reply = driver.reply_to(driver.ask(Coordinators(("a", "b", "c")), DESCRIBE_TRANSACTIONS))
    assert reply.kind is ReplyKind.REFUSED and len(reply.bodies) == 2 and driver.count(END_TXN) == 0


@pytest.mark.parametrize("code", [14, 15, 16, -1])
def test_a_coordinator_that_is_not_to_be_found_now_loses_the_question_unsent(driver: AdminDriver, code: int) -> None:
    driver.lookup_codes["b"] = code
    reply = driver.reply_to(driver.ask(Coordinator("b"), END_TXN, END_BODY))
    assert reply.kind is ReplyKind.NOT_SENT
    assert isinstance(reply.error, BrokerError) and reply.error.code == code and "'b'" in str(reply.error)
    driver.lookup_codes.clear()
    assert driver.reply_to(driver.ask(Coordinator("b"), END_TXN, END_BODY)).kind is ReplyKind.ANSWERED


def test_lost_outweighs_refused_because_engine_again_may_mend_it(driver: AdminDriver) -> None:
    driver.lookup_codes = {"a": 53, "b": 15}
    assert driver.reply_to(driver.ask(Coordinators(("a", "b")), DESCRIBE_TRANSACTIONS)).kind is ReplyKind.NOT_SENT


def test_a_lookup_that_got_lost_is_repeated_elsewhere(driver: AdminDriver) -> None:
    driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    held = driver.cluster.scripts.pop(FIND_COORDINATOR.key)
    question = driver.ask(Coordinator("c"), END_TXN, END_BODY)
    asked_at = driver.cluster.pending_of(FIND_COORDINATOR)[0].node_id
    driver.cluster.scripts[FIND_COORDINATOR.key] = held
    driver.cluster.disconnect(asked_at)
    driver.run()
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED
    assert [node_id for node_id, _ in driver.asked(FIND_COORDINATOR)] != [asked_at] * 2


def test_a_coordinator_that_joined_just_now_is_waited_for_until_the_metadata_names_it(driver: AdminDriver) -> None:
    driver.ask(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    driver.cluster.brokers[7] = ("host7", 9092)
    driver.coordinators["e"] = 7
    question = driver.ask(Coordinator("e"), END_TXN, END_BODY)
    driver.sleep(500)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED and driver.asked(END_TXN)[-1][0] == 7


def test_a_coordinator_outside_of_the_cluster_loses_the_question(driver: AdminDriver) -> None:
    driver.coordinators["e"] = 99
    question = driver.ask(Coordinator("e"), END_TXN, END_BODY)
    driver.sleep(500)
    assert driver.reply_to(question).kind is ReplyKind.NOT_SENT and "99" in str(driver.reply_to(question).error)


def test_what_is_missing_in_what_was_known_before_is_looked_for_again(driver: AdminDriver) -> None:
    body = {"acks": -1, "timeout_ms": 1, "topic_data": []}
    driver.cluster.scripts[PRODUCE.key] = lambda request: {"responses": [], "throttle_time_ms": 0}
    driver.cluster.topics["t"][1] = 99
    driver.ask(Leader("t", 1), PRODUCE, body, version_max=12)
    driver.sleep(500)
    driver.cluster.topics["t"][1] = 1
    driver.cluster.brokers[3] = ("host3", 9092)
    to_leader = driver.ask(Leader("t", 1), PRODUCE, body, version_max=12)
    driver.sleep(500)
    assert driver.reply_to(to_leader).kind is ReplyKind.ANSWERED
    driver.cluster.brokers[4] = ("host4", 9092)
    to_broker, to_nobody = (driver.ask(OneBroker(number), LIST_TRANSACTIONS, LIST_BODY) for number in (4, 9))
    driver.sleep(500)
    assert driver.reply_to(to_broker).kind is ReplyKind.ANSWERED
    assert str(driver.reply_to(to_nobody).error) == "broker 9 is not part of the cluster"


@pytest.mark.parametrize(("controller_id", "asked"), [(2, 2), (-1, 0)])
def test_the_controller_is_asked_and_any_broker_while_there_is_none(
    driver: AdminDriver, controller_id: int, asked: int
) -> None:
    body = driver.cluster.metadata_body
    driver.cluster.scripts[METADATA.key] = lambda request: {**body(request), "controller_id": controller_id}
    question = driver.ask(Controller(), LIST_TRANSACTIONS, LIST_BODY)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED
    assert [node_id for node_id, _ in driver.asked(LIST_TRANSACTIONS)] == [asked]


def test_a_broker_that_cannot_be_reached_is_forgotten_as_the_coordinator_of_every_id(driver: AdminDriver) -> None:
    driver.asking.look_ahead(driver.now_ms, [], ["b", "d"])
    driver.run()
    driver.cluster.refusing.add(1)
    driver.cluster.disconnect(1)
    driver.run()
    assert driver.reply_to(driver.ask(Coordinator("b"), END_TXN, END_BODY)).kind is ReplyKind.NOT_SENT
    driver.coordinators["d"] = 2
    assert driver.reply_to(driver.ask(Coordinator("d"), END_TXN, END_BODY)).kind is ReplyKind.ANSWERED


def test_a_partition_without_a_leader_loses_the_question_after_a_fresh_look(driver: AdminDriver) -> None:
    driver.cluster.topics["t"][1] = 99
    question = driver.ask(Leader("t", 1), PRODUCE, {"acks": -1, "timeout_ms": 1, "topic_data": []}, version_max=12)
    driver.sleep(500)
    assert driver.reply_to(question).kind is ReplyKind.NOT_SENT and "t-1 has no leader" in str(
        driver.reply_to(question).error
    )


def test_a_partition_that_brokers_do_not_know_is_told_as_an_unknown_topic_is_until_they_hear_of_it(
    driver: AdminDriver,
) -> None:
    """The topic was created again with fewer partitions, or brokers have not heard yet that partitions were added."""

    def ask(partition: int) -> Ask:
        body = {"acks": -1, "timeout_ms": 1, "topic_data": []}
        question = driver.ask(Leader("t", partition), PRODUCE, body, version_max=12)
        driver.sleep(2_000)
        return question

    driver.cluster.topics["t"][1] = -1
    missing, leaderless = driver.reply_to(ask(2)).error, driver.reply_to(ask(1)).error
    assert missing is not None and missing.entry is TOPIC_UNKNOWN
    assert leaderless is not None and leaderless.entry is not TOPIC_UNKNOWN
    driver.cluster.topics["t"][2] = 2
    ask(2)
    assert [request.node_id for request in driver.cluster.pending_of(PRODUCE)] == [2]


def test_a_topic_that_may_not_be_described_refuses_the_question(driver: AdminDriver) -> None:
    driver.cluster.topic_errors["t"] = 29
    question = driver.ask(Leader("t", 0), PRODUCE, {"acks": -1, "timeout_ms": 1, "topic_data": []}, version_max=12)
    driver.sleep(500)
    assert driver.reply_to(question).kind is ReplyKind.REFUSED


def test_of_several_topics_one_that_may_not_be_described_leaves_the_others_their_answers() -> None:
    driver = AdminDriver(topics={"t": {0: 0}, "u": {0: 1}})
    driver.cluster.topic_errors["t"] = 29
    driver.cluster.scripts[LIST_OFFSETS.key] = lambda request: {"topics": []}
    asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in ("t", "u")]
    question = driver.ask(Leaders((("t", 0), ("u", 0))), LIST_OFFSETS, {"replica_id": -1, "topics": asked})
    driver.sleep(500)
    reply = driver.reply_to(question)
    assert (reply.kind, len(reply.bodies)) == (ReplyKind.LOST, 1)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(reply.error)


def test_while_nobody_can_be_reached_questions_end_at_once_and_unsent() -> None:
    driver = AdminDriver()
    driver.cluster.refusing |= {0, 1, 2}
    for target, api in ((Coordinator("a"), END_TXN), (AllBrokers(), METADATA), (AnyBroker(), API_VERSIONS)):
        reply = driver.reply_to(driver.ask(target, api, END_BODY if api is END_TXN else {"topics": []}))
        assert reply.kind is ReplyKind.NOT_SENT and "connection refused" in str(reply.error)
    assert driver.wake_at_ms is not None and driver.wake_at_ms > driver.now_ms, "nothing spins"


def test_forgotten_questions_have_no_reply_and_leave_the_connections_usable(driver: AdminDriver) -> None:
    driver.cluster.scripts[END_TXN.key] = lambda request: None
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    driver.asking.forget_asks()
    late = driver.cluster.pending_of(END_TXN)[0]
    driver.cluster.answer(late, ok(late))
    driver.run()
    assert driver.replies == {}
    driver.cluster.scripts[END_TXN.key] = ok
    assert driver.reply_to(driver.ask(Coordinator("b"), END_TXN, END_BODY)).kind is ReplyKind.ANSWERED


def test_a_broker_that_asks_for_a_pause_is_waited_for(driver: AdminDriver) -> None:
    driver.cluster.scripts[LIST_TRANSACTIONS.key] = lambda request: {**listed(request), "throttle_time_ms": 3_000}
    driver.ask(OneBroker(1), LIST_TRANSACTIONS, LIST_BODY)
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    driver.sleep(2_999)
    assert question not in driver.replies and driver.count(END_TXN) == 0
    driver.sleep(1)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED


def test_a_broker_that_was_lost_and_asks_for_a_pause_as_soon_as_it_is_connected_again_is_waited_for(
    driver: AdminDriver,
) -> None:
    driver.ask(Coordinator("b"), END_TXN, END_BODY)
    driver.cluster.disconnect(1)
    driver.run()
    driver.sleep(1_000)
    versions = driver.cluster.versions_body
    driver.cluster.scripts[API_VERSIONS.key] = lambda request: {**versions(request), "throttle_time_ms": 3_000}
    question = driver.ask(Coordinator("b"), END_TXN, END_BODY)
    lookups = driver.count(FIND_COORDINATOR)
    driver.sleep(3_000)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED
    assert driver.count(FIND_COORDINATOR) == lookups, "it is still the coordinator, and a lookup uses up the quota"


def test_a_bootstrap_server_that_does_not_react_is_left_for_the_next_one() -> None:
    driver = AdminDriver()
    driver.cluster.scripts[LIST_TRANSACTIONS.key] = listed
    driver.cluster.deaf.add(0)
    question = driver.ask(AnyBroker(), LIST_TRANSACTIONS, LIST_BODY, timeout_ms=30_000)
    driver.sleep(29_000)
    assert driver.reply_to(question).kind is ReplyKind.ANSWERED


@pytest.mark.parametrize("error", [AuthenticationError("no"), AuthorizationError("no"), BrokerError("no", code=35)])
def test_whatever_happened_after_bytes_left_the_question_is_lost(error: KafkaSinkError) -> None:
    assert failure_kind(error, was_sent=True) is ReplyKind.LOST
    assert failure_kind(error, was_sent=False) is not ReplyKind.LOST
