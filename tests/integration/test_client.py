"""The driver's admin client against the embedded broker: coordinators move, answers get lost, brokers die.

confluent-kafka shows what was carried out.
"""

from __future__ import annotations

import _thread
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest

from kafka_sink.commit.admin.client import ABOUT_US, Client
from kafka_sink.commit.admin.client_pool import ClientPool
from kafka_sink.commit.admin.topics import topic_query, topic_state, wait_on_all_brokers
from kafka_sink.commit.commit_step import Progress
from kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    LocalProtocolError,
    OperationTimeout,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.kafka.client.ask import (
    AllBrokers,
    AnyBroker,
    Ask,
    Coordinator,
    Coordinators,
    Leader,
    Reply,
    ReplyKind,
)
from kafka_sink.kafka.wire.apis import (
    API_VERSIONS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    PRODUCE,
)
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.testing import EmbeddedBroker, Fault
from kafka_sink.testing.call import Call
from kafka_sink.testing.topics import TRANSACTION_TOPIC, internal_partition
from tests.support.asking import (
    LIST_BODY,
    Once,
    answers_to,
    client_of,
    described,
    end_body,
    end_versions,
    listed_ids,
    prepared,
    request,
)
from tools.foreign_reader import read_topic

NOT_COORDINATOR = 16
FOR_EVER_MS = 3_600_000


@pytest.fixture
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=3, topics={"t": 3}) as kafka:
        yield kafka


@pytest.fixture
def client(kafka: EmbeddedBroker) -> Iterator[Client]:
    with client_of(kafka.bootstrap_servers, max_block_ms=20_000) as client:
        yield client


def coordinator_of(kafka: EmbeddedBroker, transactional_id: str) -> int:
    partitions = kafka.core.cluster.topics[TRANSACTION_TOPIC].partitions
    return partitions[internal_partition(transactional_id, len(partitions))].leader_id


def ids_on_every_broker(kafka: EmbeddedBroker, client: Client) -> dict[int, str]:
    """One transactional id for each broker, which coordinates it."""
    ids: dict[int, str] = {}
    number = 0
    while len(ids) < len(kafka.core.cluster.brokers):
        name, number = f"tx-{number}", number + 1
        if number == 1:
            client.ask(
                Coordinator(name), INIT_PRODUCER_ID, {"transactional_id": name, "transaction_timeout_ms": 60_000}
            )
        ids.setdefault(coordinator_of(kafka, name), name)
    return ids


def move_coordinator(kafka: EmbeddedBroker, transactional_id: str) -> None:
    with kafka.control() as core:
        partitions = core.cluster.topics[TRANSACTION_TOPIC].partitions
        index = internal_partition(transactional_id, len(partitions))
        target = next(one for one in partitions[index].replicas if one != partitions[index].leader_id)
        core.cluster.move_leader(TRANSACTION_TOPIC, index, target)


def values(kafka: EmbeddedBroker, topic: str = "t") -> set[bytes | None]:
    return {record.value for record in read_topic(kafka.bootstrap_servers, topic)}


# ---- ordinary use ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["4.3", "3.9"])
def test_prepared_transactions_are_ended_on_all_their_coordinators_at_once(release: str) -> None:
    with EmbeddedBroker(brokers=3, topics={"t": 3}, release=release) as kafka:
        with client_of(kafka.bootstrap_servers) as client:
            ids = sorted(ids_on_every_broker(kafka, client).values())
            receipts = [prepared(kafka.bootstrap_servers, one, "t", one.encode()) for one in ids]
            (states, listed) = answers_to(
                client,
                request(Coordinators(tuple(ids)), DESCRIBE_TRANSACTIONS, {"transactional_ids": ids}),
                request(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY),
            )
            assert states.kind is ReplyKind.ANSWERED and len(states.bodies) == 3
            assert described(states.bodies) == dict.fromkeys(ids, "Ongoing")
            assert (
                listed.kind is ReplyKind.ANSWERED and len(listed.bodies) == 3 and listed_ids(listed.bodies) >= set(ids)
            )
            ends = [
                request(Coordinator(one.transactional_id), END_TXN, end_body(one), **end_versions(one))
                for one in receipts
            ]
            assert [answer.bodies[0]["error_code"] for answer in answers_to(client, *ends)] == [0, 0, 0]
        assert values(kafka) == {one.encode() for one in ids}


def test_features_configurations_and_topics_are_told(kafka: EmbeddedBroker, client: Client) -> None:
    assert client.transaction_support().transaction_version == 2
    assert client.broker_configs(["transaction.max.timeout.ms", "no.such.name"]) == {
        "transaction.max.timeout.ms": "900000"
    }
    assert [info.partition for info in client.describe_topic("t")] == [0, 1, 2]
    infos = client.create_topic("led", TopicPlan(2, 3, (("cleanup.policy", "compact"),)))
    assert len(infos) == 2 and all(info.leader_id is not None for info in infos)
    assert client.topic_configs("led", ["cleanup.policy"]) == {"cleanup.policy": "compact"}
    assert client.create_topic("led", TopicPlan(9)) == infos, "a topic that exists is taken as it is"
    assert len(client.create_topic("of-the-brokers-size", TopicPlan())) == 1


def test_a_leader_is_found_without_creating_its_topic(kafka: EmbeddedBroker, client: Client) -> None:
    body: dict[str, Any] = {"acks": -1, "timeout_ms": 1, "topic_data": []}
    known, unknown = answers_to(
        client,
        request(Leader("t", 1), PRODUCE, body, version_max=12),
        request(Leader("not-there", 0), PRODUCE, body, version_max=12),
    )
    assert known.kind is ReplyKind.ANSWERED and unknown.kind is ReplyKind.NOT_SENT
    assert "not-there-0 has no leader" in str(unknown.error)
    assert "not-there" not in kafka.core.cluster.topics


# ---- faults ----------------------------------------------------------------------------------------------------


def test_a_coordinator_that_moved_says_so_and_is_found_again(kafka: EmbeddedBroker, client: Client) -> None:
    receipt = prepared(kafka.bootstrap_servers, "tx", "t", b"v")

    def end(**more: Any) -> Ask:
        return request(Coordinator("tx"), END_TXN, end_body(receipt), **end_versions(receipt), **more)

    answers_to(client, request(Coordinators(("tx",)), DESCRIBE_TRANSACTIONS, {"transactional_ids": ["tx"]}))
    move_coordinator(kafka, "tx")
    (answer,) = answers_to(client, end())
    assert answer.kind is ReplyKind.ANSWERED and answer.bodies[0]["error_code"] == NOT_COORDINATOR
    (answer,) = answers_to(client, end(find_again=True))
    assert answer.bodies[0]["error_code"] == 0
    assert values(kafka) == {b"v"}


def test_an_answer_that_got_lost_is_lost_although_the_end_was_carried_out(
    kafka: EmbeddedBroker, client: Client
) -> None:
    receipt = prepared(kafka.bootstrap_servers, "tx", "t", b"v")
    kafka.inject(Fault("EndTxn", disconnect=True, after_apply=True))
    end = request(Coordinator("tx"), END_TXN, end_body(receipt), **end_versions(receipt))
    (answer,) = answers_to(client, end)
    assert answer.kind is ReplyKind.LOST and isinstance(answer.error, TransportError)
    assert values(kafka) == {b"v"}
    (answer,) = answers_to(client, end)
    assert answer.bodies[0]["error_code"] == 0


def test_ask_does_not_repeat_what_may_have_arrived(kafka: EmbeddedBroker, client: Client) -> None:
    receipt = prepared(kafka.bootstrap_servers, "tx", "t", b"v")
    fault = kafka.inject(Fault("EndTxn", disconnect=True, times=2))
    for _ in range(2):
        with pytest.raises(TransportError, match="lost"):
            client.ask(Coordinator("tx"), END_TXN, end_body(receipt), **end_versions(receipt))
    assert fault.times == 0
    assert client.ask(Coordinator("tx"), END_TXN, end_body(receipt), **end_versions(receipt))["error_code"] == 0


def test_ask_tries_again_while_the_coordinator_is_not_to_be_found(kafka: EmbeddedBroker, client: Client) -> None:
    fault = kafka.inject(Fault("FindCoordinator", error_code=15, times=2))
    body = {"transactional_id": "tx", "transaction_timeout_ms": 60_000}
    assert client.ask(Coordinator("tx"), INIT_PRODUCER_ID, body)["error_code"] == 0
    assert fault.times == 0


def test_a_permission_that_is_missing_and_a_version_that_is_not_spoken_are_told_apart(
    kafka: EmbeddedBroker, client: Client
) -> None:
    fault = kafka.inject(Fault("FindCoordinator", error_code=53))
    end = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0, "committed": True}
    (answer,) = answers_to(client, request(Coordinator("tx"), END_TXN, end))
    assert answer.kind is ReplyKind.REFUSED and isinstance(answer.error, AuthorizationError) and fault.times == 0
    with EmbeddedBroker(release="3.9") as old, client_of(old.bootstrap_servers) as other:
        (answer,) = answers_to(other, request(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY, version_min=2))
        assert answer.kind is ReplyKind.UNSUPPORTED and isinstance(answer.error, BrokerError)


def test_a_broker_that_is_silent_holds_up_nobody_else(kafka: EmbeddedBroker, client: Client) -> None:
    """The result is complete when the live brokers have answered: the silent one would take an hour."""
    ids = ids_on_every_broker(kafka, client)
    answers_to(client, *[describe(one) for one in ids.values()])
    kafka.inject(Fault("DescribeTransactions", delay_before_ms=FOR_EVER_MS, broker_id=1, times=None))
    requests = {node_id: describe(one, timeout_ms=FOR_EVER_MS) for node_id, one in ids.items()}

    answered = client.run(Once(list(requests.values()), wanted_count=2))
    assert set(answered) == {requests[2], requests[3]}
    assert {answer.kind for answer in answered.values()} == {ReplyKind.ANSWERED}
    # The client no longer waits for the third broker, and still works.
    (answer,) = answers_to(client, describe(ids[2]))
    assert answer.kind is ReplyKind.ANSWERED


def describe(transactional_id: str, **more: Any) -> Ask:
    body = {"transactional_ids": [transactional_id]}
    return request(Coordinators((transactional_id,)), DESCRIBE_TRANSACTIONS, body, **more)


def test_the_time_limit_of_a_request_ends_it_as_lost(kafka: EmbeddedBroker, client: Client) -> None:
    receipt = prepared(kafka.bootstrap_servers, "tx", "t", b"v")
    kafka.inject(Fault("EndTxn", delay_before_ms=FOR_EVER_MS))
    end = request(Coordinator("tx"), END_TXN, end_body(receipt), **end_versions(receipt), timeout_ms=300)
    (answer,) = answers_to(client, end)
    assert answer.kind is ReplyKind.LOST and "within" in str(answer.error)
    # The connection was closed, and until the back-off of the next one is over the coordinator cannot be reached.
    again = request(Coordinator("tx"), END_TXN, end_body(receipt), **end_versions(receipt))
    while answer.kind.is_unanswered:
        (answer,) = answers_to(client, again)
    assert answer.kind is ReplyKind.ANSWERED and answer.bodies[0]["error_code"] == 0


def test_a_dead_broker_leaves_the_answers_of_the_others_until_it_is_known_to_be_gone(
    kafka: EmbeddedBroker, client: Client
) -> None:
    everyone = request(AllBrokers(), LIST_TRANSACTIONS, LIST_BODY)
    assert len(answers_to(client, everyone)[0].bodies) == 3
    kafka.inject(Fault("ListTransactions", disconnect=True, broker_id=2))
    (answer,) = answers_to(client, everyone)
    assert answer.kind is ReplyKind.LOST and len(answer.bodies) == 2
    kafka.stop_broker(2, is_crash=True)
    (answer,) = answers_to(client, everyone)
    assert answer.kind is ReplyKind.ANSWERED and len(answer.bodies) == 2
    kafka.start_broker(2)
    # Not at once: metadata that is younger than retry.backoff.ms is not requested again.
    while len(answer.bodies) < 3:
        (answer,) = answers_to(client, everyone)
    assert answer.kind is ReplyKind.ANSWERED


def test_a_coordinator_that_died_is_replaced(kafka: EmbeddedBroker, client: Client) -> None:
    receipt = prepared(kafka.bootstrap_servers, "tx", "t", b"v")
    answers_to(client, describe("tx"))
    kafka.stop_broker(coordinator_of(kafka, "tx"))
    end = {"api": END_TXN, "body": end_body(receipt), **end_versions(receipt)}
    assert client.ask(Coordinator("tx"), **end, find_again=True)["error_code"] == 0
    assert values(kafka) == {b"v"}


# ---- time limits and their errors ------------------------------------------------------------------------------


def test_a_cluster_that_is_not_there_is_named_with_what_each_server_said() -> None:
    with EmbeddedBroker(brokers=2) as kafka:
        servers = kafka.bootstrap_servers
    with client_of(servers, max_block_ms=300) as client:
        with pytest.raises(OperationTimeout) as caught:
            client.reach()
        with pytest.raises(TransportError):
            client.ask(AnyBroker(), LIST_TRANSACTIONS, LIST_BODY, timeout_ms=300)
    text = str(caught.value)
    assert "max.block.ms=300" in text and text.count("refused") >= 2
    assert all(server in text for server in servers.split(","))


def test_one_server_that_answers_is_enough(kafka: EmbeddedBroker) -> None:
    with EmbeddedBroker() as gone:
        dead = gone.bootstrap_servers
    with client_of(f"{dead},{kafka.bootstrap_servers}") as client:
        client.reach()
        assert len(client.describe_topic("t")) == 3


def test_an_unknown_topic_is_waited_for_and_then_named(kafka: EmbeddedBroker, client: Client) -> None:
    assert len(client.describe_topic("created")) == 1, "allow.auto.create.topics is true by default"
    with client_of(kafka.bootstrap_servers, allow_auto_create_topics="false") as looking:
        with pytest.raises(OperationTimeout, match=r"not-there is not known within 300 ms.*UNKNOWN_TOPIC_OR_PARTITION"):
            looking.describe_topic("not-there", timeout_ms=300)
        assert "not-there" not in kafka.core.cluster.topics
        threading.Timer(0.2, kafka.create_topic, ("late",)).start()
        assert len(looking.describe_topic("late")) == 1


def test_topics_that_may_not_be_seen_or_made_are_refused_at_once(kafka: EmbeddedBroker, client: Client) -> None:
    kafka.inject(Fault("Metadata", error_code=29, topic="t", times=None))
    for creates in ("true", "false"):
        with client_of(kafka.bootstrap_servers, allow_auto_create_topics=creates) as looking:
            with pytest.raises(AuthorizationError, match="topic t"):
                looking.describe_topic("t")
            with pytest.raises(BrokerError, match="no valid topic name"):
                looking.describe_topic("not valid")
    kafka.inject(Fault("CreateTopics", error_code=29))
    with pytest.raises(AuthorizationError, match="needs Create"):
        client.create_topic("new", TopicPlan())
    kafka.inject(Fault("DescribeConfigs", error_code=29))
    assert client.topic_configs("t", None) is None


def test_a_topic_that_a_quota_keeps_from_being_created_is_named(kafka: EmbeddedBroker) -> None:
    kafka.do(lambda core: core.throttle_times_ms.update(CreateTopics=60_000))
    kafka.inject(Fault("CreateTopics", error_code=89, times=None))
    says = r"topic new was not created: THROTTLING_QUOTA_EXCEEDED .* quota"
    with client_of(kafka.bootstrap_servers, max_block_ms=1000) as client, pytest.raises(BrokerError, match=says):
        client.create_topic("new", TopicPlan())


def test_a_topic_is_created_although_the_answer_got_lost_or_the_controller_was_another(
    kafka: EmbeddedBroker, client: Client
) -> None:
    kafka.inject(Fault("CreateTopics", disconnect=True, after_apply=True))
    assert len(client.create_topic("first", TopicPlan(2))) == 2
    kafka.inject(Fault("CreateTopics", error_code=41))
    assert len(client.create_topic("second", TopicPlan(2))) == 2
    with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
        client.create_topic("third", TopicPlan(1, 9))


@pytest.mark.parametrize("creates", ["true", "false"])
def test_a_silent_broker_is_waited_for_no_longer_than_the_call_may_take(kafka: EmbeddedBroker, creates: str) -> None:
    with client_of(kafka.bootstrap_servers, request_timeout_ms=15_000, allow_auto_create_topics=creates) as client:
        client.reach()
        kafka.inject(Fault("Metadata", delay_before_ms=FOR_EVER_MS, times=None))
        began_ms = client.now_ms()
        with pytest.raises(OperationTimeout, match="t is not known within 300 ms"):
            client.describe_topic("t", timeout_ms=300)
        assert client.now_ms() - began_ms < 10_000


# ---- interrupts, wake-ups, closing, forks ----------------------------------------------------------------------


def signal_that_wakes() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def signal_that_is_only_noted() -> None:
    """Does not interrupt a system call, like a signal that arrives a moment before the call begins."""
    time.sleep(0.2)  # until the client waits for the answer
    _thread.interrupt_main()


@pytest.mark.parametrize("interrupt", [signal_that_wakes, signal_that_is_only_noted])
def test_an_interrupt_in_the_middle_leaves_a_client_that_goes_on(
    kafka: EmbeddedBroker, client: Client, interrupt: Callable[[], None]
) -> None:
    receipt = prepared(kafka.bootstrap_servers, "tx", "t", b"v")

    def interrupts(api: str, version: int, node_id: int, body: Mapping[str, Any]) -> Fault | None:
        if api != "EndTxn":
            return None
        interrupt()
        return Fault("EndTxn", delay_before_ms=FOR_EVER_MS)

    with kafka.control() as core:
        core.faults.interceptor = interrupts
    end = request(Coordinator("tx"), END_TXN, end_body(receipt), **end_versions(receipt), timeout_ms=FOR_EVER_MS)
    with pytest.raises(KeyboardInterrupt):
        answers_to(client, end)
    with kafka.control() as core:
        core.faults.clear()
    (answer,) = answers_to(client, end)
    assert answer.bodies[0]["error_code"] == 0


@pytest.mark.parametrize("ask", [Client.list_apis, lambda client: client.answers_by_broker(API_VERSIONS, ABOUT_US)])
def test_an_interrupt_between_two_turns_leaves_no_response_for_the_next_call(
    client: Client, ask: Callable[[Client], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.reach()
    turn = client._turn
    for wanted in itertools.count(1):
        turns = itertools.count(1)

        def interrupted(*arguments: Any, wanted: int = wanted, turns: Iterator[int] = turns) -> Any:
            responses = turn(*arguments)
            if next(turns) == wanted:
                raise KeyboardInterrupt
            return responses

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(client, "_turn", interrupted)
            ask(client)
            break
        assert client.ask_metadata(topic_query("t"))["topics"][0]["name"] == "t"
    assert wanted > 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.describe_topic("t"),
        lambda client: client.create_topic("u", TopicPlan()),
        lambda client: topic_state(client, "t"),
        lambda client: wait_on_all_brokers(client, "t", 3),
    ],
)
def test_an_answer_without_the_topic_that_was_asked_for_breaks_the_protocol(
    client: Client, ask: Callable[[Client], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a proxy that filters topics."""
    client.reach()
    whole = Call.answer

    def filter_topics(call: Call, body: Mapping[str, Any], **more: Any) -> None:
        whole(call, {**body, "topics": []} if "topics" in body else body, **more)

    monkeypatch.setattr(Call, "answer", filter_topics)
    with pytest.raises(RemoteProtocolError, match=r"answer does not name topic [tu]"):
        ask(client)


def test_a_closed_client_says_so(client: Client) -> None:
    client.reach()
    client.close()
    client.close()
    with pytest.raises(LocalProtocolError, match="the client is closed"):
        client.reach()
    assert "closed" in repr(client)


def test_a_machine_that_waits_for_nothing_is_an_error_and_not_a_wait_for_ever(client: Client) -> None:
    class Stuck:
        def step(self, now_ms: int, answers: Any) -> Progress[Any]:
            return Progress(())

    with pytest.raises(LocalProtocolError, match="Stuck waits for nothing"):
        client.run(Stuck())


def test_a_machine_is_woken_when_it_asked_to_be(client: Client) -> None:
    class Sleeper:
        def __init__(self) -> None:
            self.woken: list[int] = []
            self.due_ms = client.now_ms() + 50

        def step(self, now_ms: int, answers: Any) -> Progress[Any]:
            self.woken.append(now_ms)
            return Progress((), self.due_ms, {} if now_ms >= self.due_ms else None)

    sleeper = Sleeper()
    assert client.run(sleeper) == {} and len(sleeper.woken) <= 3


FORK = """
import os, sys
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.commit.admin.client import Client
client = Client(parse_producer_options({"bootstrap.servers": sys.argv[1]}))
client.reach()
child = os.fork()
if child == 0:
    client.reach()
    os._exit(7 if len(client.describe_topic("t")) == 3 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
client.reach()
assert len(client.describe_topic("t")) == 3
client.close()
print("both")
"""


def test_a_forked_child_has_connections_of_its_own(kafka: EmbeddedBroker) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORK, kafka.bootstrap_servers], capture_output=True, text=True, timeout=300
    )
    assert (done.stdout.strip(), done.stderr) == ("both", "")


def test_a_reply_belongs_to_its_ask_and_not_to_another_of_the_same_name(kafka: EmbeddedBroker, client: Client) -> None:
    """A machine gives up an ask and makes another of the same purpose and number: the late reply is the older one's."""
    ids = ids_on_every_broker(kafka, client)
    second_id = second_id_on(kafka, 1, ids[1])
    answers_to(client, *[describe(one) for one in [*ids.values(), second_id]])
    kafka.inject(Fault("DescribeTransactions", delay_after_ms=200, broker_id=1))
    first, second = describe(ids[1]), describe(second_id)

    second.number = first.number

    class Impatient:
        stepped = 0
        replies: list[Reply] = []

        def step(self, now_ms: int, replies: Sequence[Reply]) -> Progress[list[Reply]]:
            self.stepped += 1
            self.replies += replies
            if self.stepped == 1:
                return Progress((first,), now_ms + 1)
            if self.stepped == 2:
                return Progress((second,))
            return Progress((), None, self.replies if len(self.replies) == 2 else None)

    replies = {reply.ask: reply for reply in client.run(Impatient())}
    assert [set(described(replies[ask].bodies)) for ask in (first, second)] == [{ids[1]}, {second_id}]
    assert kafka.core.faults.fired == 1


def second_id_on(kafka: EmbeddedBroker, node_id: int, first: str) -> str:
    names = (f"tx-{number}" for number in range(1_000))
    return next(name for name in names if name != first and coordinator_of(kafka, name) == node_id)


# ---- clients that are kept -----------------------------------------------------------------------------------------


def test_a_kept_client_is_the_same_until_others_were_used_or_something_failed(kafka: EmbeddedBroker) -> None:
    first, second, third = (client_of(kafka.bootstrap_servers, client_id=name).options for name in "abc")
    pool = ClientPool(2)
    with pool.borrow(first) as kept:
        kept.reach()
    for other in (second, first, third, first):
        with pool.borrow(other) as client:
            assert (client is kept) is (other is first), "the least recently used client is closed"
    with pytest.raises(KeyboardInterrupt), pool.borrow(first):
        raise KeyboardInterrupt
    with pytest.raises(LocalProtocolError, match="closed"):
        kept.reach()
    with pool.borrow(first) as fresh:
        assert fresh is not kept
        fresh.reach()
    pool.close()


def test_two_that_borrow_at_once_have_a_client_each_and_the_pool_keeps_only_so_many(kafka: EmbeddedBroker) -> None:
    options = client_of(kafka.bootstrap_servers).options
    pool = ClientPool(1)
    with pool.borrow(options) as one:
        one.reach()
        with pool.borrow(options) as other:
            other.reach()
            assert other is not one
    with pytest.raises(LocalProtocolError, match="closed"):
        other.reach()
    with pool.borrow(options) as again:
        assert again is one
    pool.close()


def test_after_an_exception_no_client_with_the_same_options_is_kept(kafka: EmbeddedBroker) -> None:
    """What they know of the cluster may be as old: the next operation must not fail of that once more."""
    options, others = (client_of(kafka.bootstrap_servers, client_id=name).options for name in ("a", "b"))
    pool = ClientPool(3)
    with pool.borrow(options) as one, pool.borrow(options) as another, pool.borrow(others) as third:
        one.reach()
        another.reach()
        third.reach()
    with pytest.raises(ArithmeticError), pool.borrow(options):
        raise ArithmeticError
    for closed in (one, another):
        with pytest.raises(LocalProtocolError, match="closed"):
            closed.reach()
    with pool.borrow(others) as again:
        assert again is third
        again.reach()
    pool.close()


def test_a_kept_client_gets_over_brokers_that_closed_its_connections_meanwhile(kafka: EmbeddedBroker) -> None:
    pool = ClientPool(1)
    options = client_of(kafka.bootstrap_servers).options
    with pool.borrow(options) as client:
        client.reach()
    for node_id in (1, 2, 3):
        kafka.stop_broker(node_id)
    for node_id in (1, 2, 3):
        kafka.start_broker(node_id)
    with pool.borrow(options) as client:
        assert len(client.describe_topic("t")) == 3
    pool.close()
