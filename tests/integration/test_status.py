"""`pykafka-sink status` and `recover --all`: every state is told, with a command that mends it; what is healthy is not.

Embedded broker and Apache Kafka.
"""

from __future__ import annotations

import io
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink import Producer
from kafka_sink.commit import open_parts
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.command_texts import UNKNOWN_BROKERS
from kafka_sink.commit.identity import Line, run_of_query, sink_id_of_query, sink_id_of_write
from kafka_sink.commit.ledger import Kind, LedgerRecord, transaction_entry_of
from kafka_sink.commit.ledger_codec import encode_record
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey
from kafka_sink.commit.session import DriverSession
from kafka_sink.errors import BrokerError
from kafka_sink.kafka.client.commands import Send
from kafka_sink.kafka.io.network import Network
from kafka_sink.kafka.wire.apis import LIST_TRANSACTIONS
from kafka_sink.kafka.wire.codes import UNSUPPORTED_VERSION
from kafka_sink.operate.status.collect import NOT_LISTED, ClusterLook, Repeated, examine
from kafka_sink.operate.status.findings import HANGING_PAGE, Limits, Trouble
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import DEFAULT_LEDGER, TopicPlan
from kafka_sink.spark.driver import Driver
from kafka_sink.testing import EmbeddedBroker, acl
from kafka_sink.testing.acl import Acl
from kafka_sink.testing.topics import TRANSACTION_TOPIC
from kafka_sink.testing.transaction_state import CoordinatorState
from tests.integration.advising import copy_from_elsewhere, enter, lose, paste, poison, record_loss
from tests.integration.statuses import (
    FOREIGN,
    abort_another,
    age,
    begin_foreign,
    delivered,
    end_without_leader,
    findings,
    forget,
    record_all,
    status,
    wall_ms,
)
from tests.support.asking import client_of
from tests.support.commanding import ROWS_PER_TASK, Shell, Sink
from tests.support.foreign_records import copied, put, put_plain
from tools.foreign_reader import read_topic
from tools.waiting import wait_until

BATCH, NEXT, DAY = BatchKey("query-1", 0), BatchKey("query-1", 1), BatchKey("", "2026-11-01")
# All in one process: the stream must not take all of its time, nor fill its ledger in the course of a thousand polls.
BETWEEN_BATCHES_S = 0.1
# How often the embedded broker looks for transactions that have timed out.
QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"}
pytestmark = pytest.mark.embedded_kafka(properties=QUICK)


@pytest.fixture
def sink(broker: EmbeddedBroker) -> Sink:
    sink = Sink(broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER)
    sink.create()
    return sink


# ---- states, and the commands that mend them -------------------------------------------------------------------------


def open_decision(sink: Sink, broker: EmbeddedBroker) -> None:
    sink.decide_and_die(BATCH)


def committed_decision(sink: Sink, broker: EmbeddedBroker) -> None:
    sink.decide_and_die(BATCH, committed=2)


def overdue(sink: Sink, broker: EmbeddedBroker) -> None:
    lose(sink)


def lost(sink: Sink, broker: EmbeddedBroker) -> None:
    record_loss(sink)


def lost_day(sink: Sink, broker: EmbeddedBroker) -> None:
    sink.run = sink.run_of(str(DAY.batch_id), "unique")
    record_loss(sink, DAY)


def unreadable(sink: Sink, broker: EmbeddedBroker) -> None:
    poison(sink)


def elsewhere(sink: Sink, broker: EmbeddedBroker) -> None:
    copy_from_elsewhere(sink)


def open_task(sink: Sink, number: int = 7) -> str:
    receipt = sink.task(NEXT, number)
    assert receipt.transaction is not None
    return receipt.transaction.transactional_id


def slow(sink: Sink, broker: EmbeddedBroker) -> None:
    sink.deliver(BATCH)
    age(broker, open_task(sink))


def foreign(sink: Sink, broker: EmbeddedBroker) -> None:
    sink.deliver(BATCH)
    begin_foreign(sink.servers, sink.topic)
    age(broker, FOREIGN)


STATES: dict[str, tuple[Callable[[Sink, EmbeddedBroker], None], str, str, int]] = {
    "an open decision": (open_decision, "open", "act now", 1),
    # Since 1970.
    "an open decision of which all is committed": (committed_decision, "open", "look", 1),
    "an overdue decision": (overdue, "overdue", "act now", 1),
    "a lost batch": (lost, "lost", "act now", 2),
    "a lost export": (lost_day, "lost", "act now", 2),
    "a record that cannot be read": (unreadable, "unreadable", "act now", 1),
    "a decision of another cluster": (elsewhere, "elsewhere", "look", 2),
    "transactions that no decision names": (slow, "transaction", "look", 1),
    "a transaction of another application": (foreign, "foreign", "look", 1),
}
PASTED = [(name, number) for name, (_, _, _, count) in STATES.items() for number in range(count)]


@pytest.mark.parametrize(("name", "number"), PASTED, ids=[f"{name}-{number}" for name, number in PASTED])
def test_each_command_is_pasted_in_the_state_in_which_it_was_printed_and_all_is_fine_then(
    name: str, number: int, sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    make, kind, severity, count = STATES[name]
    make(sink, broker)
    said = status(shell, sink)
    assert said.exit_code == {"look": 1, "act now": 2}[severity], said
    (found,) = findings(shell, sink)
    assert (found["kind"], found["severity"], len(found["commands"])) == (kind, severity, count)
    command = found["commands"][number]
    assert f"\n    {command}\n" in said.out, "a line of its own"
    asks_for_words = kind == "transaction"
    done = enter(command, answer="take over" if asks_for_words else "yes")
    if kind == "overdue":
        # Its command finds out that rows are missing: the next look names the choice.
        assert done.returncode == 1, done
        (found,) = findings(shell, sink)
        assert found["kind"] == "lost"
        done = enter(found["commands"][number])
    assert done.returncode == 0, done
    after = status(shell, sink)
    assert after.exit_code == 0 and after.out.startswith("fine: "), after


def test_a_decision_of_which_all_is_committed_is_called_committed_and_not_open(sink: Sink, shell: Shell) -> None:
    sink.decide_and_die(BATCH, committed=2)
    assert " committed " in status(shell, sink).out
    shown = shell.about(sink, "ledger", "--json")
    assert shown.exit_code == 0 and [one["verdict"] for one in shown.content["decisions"]] == ["committed"]
    assert "only the ledger has to be told" in shell.about(sink, "ledger").out


@pytest.mark.parametrize("choice", [0, 1])
def test_an_overdue_decision_becomes_a_lost_one_with_either_choice(
    choice: int, sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    overdue(sink, broker)
    enter(findings(shell, sink)[0]["commands"][0])
    assert enter(findings(shell, sink)[0]["commands"][choice]).returncode == 0
    assert status(shell, sink).exit_code == 0


def test_a_silent_stream_is_told_until_it_is_called_retired(sink: Sink, shell: Shell) -> None:
    sink.wall_ms = wall_ms() - 2 * 86_400_000
    sink.deliver(BATCH)
    assert status(shell, sink).exit_code == 0, "silence was not asked about"
    said = shell("status", "--bootstrap-server", sink.servers)
    assert said.exit_code == 1 and "is the last one, 2 d ago" in said.out
    (command,) = [line.strip() for line in said.out.splitlines() if line.startswith("    pykafka-sink")]
    done = paste(command)
    assert done.returncode == 0 and done.stdout.startswith("fine: "), done


# After the rows of the first batch and their marker.
START = ROWS_PER_TASK + 1


@pytest.mark.parametrize(
    "state", [CoordinatorState.COMPLETE_ABORT, CoordinatorState.COMPLETE_COMMIT, CoordinatorState.EMPTY]
)
def test_a_transaction_that_hangs_is_told_with_kafkas_tool_if_its_coordinator_has_aborted_it(
    state: CoordinatorState, sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    sink.deliver(BATCH)
    forget(broker, open_task(sink), state)
    (found,) = findings(shell, sink)
    assert (found["kind"], found["severity"], found["topics"]) == ("hanging", "act now", ["t"])
    tool = (
        f"kafka-transactions.sh --bootstrap-server {sink.servers} abort --topic t --partition 1 --start-offset {START}"
    )
    assert found["commands"] == ([tool] if state is CoordinatorState.COMPLETE_ABORT else [])
    said = status(shell, sink)
    assert said.exit_code == 2 and f"which says {state.value}, does not know of that" in said.out
    assert (HANGING_PAGE in said.out) == (state is not CoordinatorState.COMPLETE_ABORT)


@pytest.mark.parametrize("is_used_again", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_what_brokers_forgot_to_end_is_aborted_only_if_an_abort_is_what_they_forgot(
    commit: bool, is_used_again: bool, sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    """The rows of a commit stay hidden, too. If its id is used again, elsewhere, and that is aborted, the coordinator
    says CompleteAbort, and an abort would hide delivered rows."""
    sink.deliver(BATCH)
    receipt = sink.task(NEXT, 7)
    assert receipt.transaction is not None
    end_without_leader(broker, sink.servers, receipt, commit=commit)
    if is_used_again:
        abort_another(sink.servers, receipt.transaction.transactional_id, "t", partition=0)
    (found,) = findings(shell, sink)
    assert (found["kind"], found["severity"], found["topics"]) == ("hanging", "act now", ["t"])
    assert bool(found["commands"]) == (not commit and not is_used_again)
    assert ("CompleteCommit" in found["text"]) == (commit and not is_used_again)


def test_what_hangs_where_tasks_write_all_the_time_is_found_when_those_of_an_earlier_look_have_ended(
    sink: Sink, broker: EmbeddedBroker
) -> None:
    """No transaction that began later holds back the offset at which readers stood then."""
    sink.deliver(BATCH)
    end_without_leader(broker, sink.servers, sink.task(NEXT, 7), commit=True)
    with client_of(sink.servers) as client:
        looks = Repeated(ClusterLook(client, UNKNOWN_BROKERS, (), 20_000), Limits(60_000, 0))
        told = []
        for number in (9, 11, 13):
            transactional_id = open_task(sink, number)
            facts, found = looks.look()
            assert ("t", 1) in facts.transactions[0].partitions
            told.append([each.trouble for each in found])
            abort_another(sink.servers, transactional_id, "t", partition=1)
    assert told == [[], [], [Trouble.HANGING]]


def test_a_decision_of_which_brokers_forgot_a_part_is_recovered_and_not_aborted(
    sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    _, second = sink.decide_and_die(BATCH)
    end_without_leader(broker, sink.servers, second, commit=True)
    found = findings(shell, sink)
    assert [each["kind"] for each in found] == ["open", "hanging"]
    assert "recover" in found[0]["commands"][0] and found[1]["commands"] == []
    assert "The ledger names it" in found[1]["text"]


def test_where_leaders_would_tell_of_too_many_producers_one_partition_of_each_topic_is_asked_about(
    sink: Sink, broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a commit does: answers about all partitions of a topic might not fit into a frame."""
    monkeypatch.setattr(open_parts, "PRODUCERS_ASKED_MAX", 0)
    sink.deliver(BATCH)
    for number in (6, 7):
        forget(broker, open_task(sink, number))
    told = status(shell, sink, "--json").content
    (found,) = told["findings"]
    assert (found["kind"], found["topics"]) == ("hanging", ["t"])
    (limit,) = told["limits"]
    assert "who holds readers of t-1 back is not known: they would tell of more than" in limit


def test_a_ledger_that_was_copied_is_one_finding(sink: Sink, shell: Shell) -> None:
    for number in range(3):
        label = BatchKey("", f"day {number}")
        put_plain(sink, f"orders/day {number}", copied(sink, label))
    (found,) = findings(shell, sink)
    assert (found["kind"], found["severity"]) == ("copied", "look")
    assert "is a copy" in paste(found["commands"][0]).stdout


# ---- what is healthy -------------------------------------------------------------------------------------------------


@contextmanager
def running(sink: Sink, behind_ms: int) -> Iterator[Callable[[], int]]:
    """A stream that delivers batch after batch; how many it has delivered. `behind_ms`: the clock of its driver."""
    stop, delivered_count, failures = threading.Event(), [0], list[BaseException]()

    def run() -> None:
        driver = DriverSession(sink.sink_id, sink.run)
        try:
            while not stop.is_set():
                sink.wall_ms = wall_ms() - behind_ms
                sink.deliver(BatchKey("query-1", delivered_count[0]), driver)
                delivered_count[0] += 1
                time.sleep(BETWEEN_BATCHES_S)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: delivered_count[0]
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


def check_polls(sink: Sink, shell: Shell, count: int, behind_ms: int = 0) -> None:
    with running(sink, behind_ms) as delivered_count:
        wait_until(delivered_count, "the first batch is delivered")
        for _ in range(count):
            said = shell("status", "--bootstrap-server", sink.servers, "--ledger-topic", sink.ledger_topic, "--json")
            own = [each for each in said.content["findings"] if each["sink_id"] == sink.sink_id]
            assert own == [] and not said.content["notes"], said.out
        assert delivered_count() > 1


def test_a_stream_that_delivers_all_the_time_is_fine_in_every_poll(sink: Sink, shell: Shell) -> None:
    check_polls(sink, shell, 20)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_stream_that_delivers_all_the_time_is_fine_in_a_thousand_polls(sink: Sink, shell: Shell) -> None:
    check_polls(sink, shell, 1_000)


def test_a_stream_is_fine_on_apache_kafka_and_what_its_driver_left_open_is_recovered(
    sink_on_kafka: Sink, shell: Shell
) -> None:
    sink = sink_on_kafka
    check_polls(sink, shell, 10)
    other = replace(sink, sink_id=f"{sink.sink_id}-2", run="e" * 16, wall_ms=1)
    other.decide_and_die(BATCH)
    (found,) = [each for each in findings(shell, sink) if each["sink_id"] == other.sink_id]
    assert (found["kind"], found["ledger_topic"]) == ("open", sink.ledger_topic)
    assert paste(found["commands"][0]).returncode == 0
    assert not [each for each in findings(shell, sink) if each["sink_id"] == other.sink_id]


def test_a_stream_is_fine_in_every_poll_though_the_clock_of_its_driver_is_an_hour_behind(
    sink: Sink, shell: Shell
) -> None:
    """Whatever is open seems to have been open for an hour, so only the second look tells that it is not."""
    check_polls(sink, shell, 10, behind_ms=3_600_000)


# ---- which ledgers, which sinks --------------------------------------------------------------------------------------


def test_ledgers_are_found_by_what_they_hold(broker: EmbeddedBroker, shell: Shell) -> None:
    compacted = (("cleanup.policy", "compact"),)
    sinks = [Sink(broker.bootstrap_servers, f"t{number}", f"sink{number}", f"ledger {number}".replace(" ", "-"))
             for number in range(3)]  # fmt: skip
    for each in sinks:
        each.create()
        each.deliver(BATCH)
    with client_of(broker.bootstrap_servers) as client:
        client.create_topic("connect-offsets", TopicPlan(1, 1, compacted))
        client.create_topic("empty", TopicPlan(1, 1, compacted))
        client.create_topic("wide-ledger", TopicPlan(3, 1, compacted))
    wide = Sink(broker.bootstrap_servers, "t0", "wide", "wide-ledger", run="e" * 16)
    wide.deliver(BATCH)
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send("connect-offsets", b"{}", b"key")
    found = [each["topic"] for each in status(shell, wide, "--json").content["ledgers"]]
    assert found == ["ledger-0", "ledger-1", "ledger-2"]
    named = status(shell, wide, "--ledger-topic", "wide-ledger", "--ledger-topic", "ledger-1", "--json")
    assert [each["topic"] for each in named.content["ledgers"]] == ["wide-ledger", "ledger-1", "ledger-0", "ledger-2"]
    assert {each["sink_id"] for each in named.content["sinks"]} == {"sink0", "sink1", "sink2", "wide"}


def test_nothing_is_fine_where_no_ledger_is_found(broker: EmbeddedBroker, shell: Shell) -> None:
    nowhere = Sink(broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER)
    said = status(shell, nowhere)
    assert said.exit_code == 2 and "no ledger topic was found" in said.err
    missing = status(shell, nowhere, "--ledger-topic", "misspelled")
    assert missing.exit_code == 2 and "there is no topic misspelled" in missing.err


def test_sinks_labels_and_what_is_open_of_them_are_counted(sink: Sink, shell: Shell) -> None:
    query = replace(sink, sink_id=sink_id_of_query("orders", "query-1"))
    query.deliver(BATCH)
    query.task(NEXT, 5)
    for label in ("2026-11-01", "2026-11-02"):
        replace(sink, run=sink.run_of(label, "unique")).deliver(BatchKey("", label))
    content = status(shell, sink, "--json").content
    told = {(each["sink_id"], each["batch_id"]): each for each in content["sinks"]}
    assert set(told) == {(query.sink_id, 0), ("orders", "2026-11-01"), ("orders", "2026-11-02")}
    of_query = told[query.sink_id, 0]
    assert (of_query["open_transactions"], of_query["transactional_ids"]) == (1, 3)
    assert (of_query["verdict"], of_query["row_count"]) == ("delivered", 2 * ROWS_PER_TASK)
    (waiting,) = content["waiting_topics"]
    assert (waiting["topic"], waiting["behind"]) == ("t", 3 * ROWS_PER_TASK + 2), "rows, and two markers"
    assert waiting["by"] == [f"{query.sink_id}-{query.run}-5-0"]
    shown = status(shell, sink)
    assert shown.exit_code == 0 and "HELD BACK BY" in shown.out and "'2026-11-02'" in shown.out


def test_a_broker_that_does_not_answer_makes_the_status_partial(shell: Shell) -> None:
    with EmbeddedBroker(brokers=3) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER)
        sink.create()
        sink.deliver(BATCH)
        broker.do(lambda core: setattr(core.cluster.topics["t"].partitions[1], "leader_id", -1))
        said = status(shell, sink)
        assert said.exit_code == 4 and "This is not all:\nt-1 has no leader now" in said.out


def test_a_coordinator_that_is_away_makes_the_status_partial_and_nothing_hangs(
    sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    """Its transactions are not listed, and live brokers do not say so."""
    sink.deliver(BATCH)
    transactional_id = open_task(sink)

    def lose_coordinator(core: Any) -> None:
        place = core.cluster.coordinator_partition(TRANSACTION_TOPIC, transactional_id)
        core.cluster.take_offline(TRANSACTION_TOPIC, place.index)

    broker.do(lose_coordinator)
    said = status(shell, sink)
    assert said.exit_code == 4 and "wait for ever" not in said.out, said
    assert f"1 partitions of {TRANSACTION_TOPIC} have no leader: their transactions are not listed" in said.out


def test_how_long_a_producer_that_nobody_lists_holds_readers_back_is_counted_from_the_first_look(shell: Shell) -> None:
    """So does a process that goes on looking. It knows the brokers' limit if it may."""
    users = {"admin": "admin", "ann": "ann"}
    allowed = [Acl("User:ann", acl.READ, acl.TOPIC, topic) for topic in (DEFAULT_LEDGER, "t")]
    allowed.append(Acl("User:ann", acl.DESCRIBE_CONFIGS, acl.CLUSTER, acl.CLUSTER_NAME))
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    as_admin, as_ann = ({**login, "sasl.username": name, "sasl.password": name} for name in users)
    properties = {"super.users": "User:admin", "transaction.max.timeout.ms": "1200000"}
    with EmbeddedBroker(users=users, acls=allowed, properties=properties) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER, login=as_admin)
        sink.create()
        sink.deliver(BATCH)
        sink.task(NEXT, 6)
        with client_of(sink.servers, **{name.replace(".", "_"): value for name, value in as_ann.items()}) as client:
            cluster = ClusterLook(client, UNKNOWN_BROKERS, (), 20_000)
            looks = [examine(cluster, Limits(60_000, 0), lambda _: time.sleep(0.01))[0] for _ in range(2)]
        (first,), (second,) = (facts.unlisted for facts in looks)
        assert first == second and second.since_ms < looks[0].at_ms < looks[1].at_ms
        assert (second.topic, second.partition, second.start_offset) == ("t", 0, START)
        assert [facts.transaction_max_ms for facts in looks] == [1_200_000] * 2


def test_brokers_that_do_not_list_transactions_limit_what_is_told_and_are_no_failure(
    sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BrokerError("not spoken", code=UNSUPPORTED_VERSION, api=LIST_TRANSACTIONS.name)

    sink.deliver(BATCH)
    monkeypatch.setattr(Client, "answers_of_all", refuse)
    said = status(shell, sink)
    assert said.exit_code == 0 and NOT_LISTED in said.out
    replace(sink, sink_id="late", run="e" * 16).decide_and_die(BATCH)
    (found,) = findings(shell, sink)
    assert (found["kind"], found["sink_id"]) == ("open", "late")


def test_a_principal_that_may_not_ask_about_transactions_is_told_what_it_sees(shell: Shell) -> None:
    users = {"admin": "admin", "ann": "ann"}
    readable = (DEFAULT_LEDGER, "t")
    allowed = [Acl("User:ann", acl.READ, acl.TOPIC, topic) for topic in readable]
    allowed += [Acl("User:ann", acl.DESCRIBE, acl.TOPIC, "secret")]
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    as_admin = {**login, "sasl.username": "admin", "sasl.password": "admin"}
    with EmbeddedBroker(users=users, acls=allowed, properties={"super.users": "User:admin"}) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER, login=as_admin)
        sink.create()
        broker.create_topic("secret", 1, {"cleanup.policy": "compact"})
        sink.deliver(BATCH)
        as_ann = {**login, "sasl.username": "ann", "sasl.password": "ann"}
        words = [word for name, value in as_ann.items() for word in ("--option", f"kafka.{name}={value}")]
        assert status(shell, sink, *words).exit_code == 0
        sink.task(NEXT, 6)
        said = status(shell, sink, *words)
        assert said.exit_code == 0 and "which no coordinator lists to this principal" in said.out, said
        replace(sink, sink_id="late", run="e" * 16).decide_and_die(BATCH)
        said = status(shell, sink, *words)
        assert said.exit_code == 1 and "of sink late was decided" in said.out
        assert "how it stands is not yours to see: this login may not describe its transactional ids" in said.out
        assert "client.properties stands for a file with kafka.sasl.username, kafka.sasl.password" in said.out


@contextmanager
def two_teams() -> Iterator[tuple[Sink, Sink]]:
    """Of one cluster and ledger, with the permissions of docs/security.md: each under its own prefix."""
    allowed, sinks = [], []
    for user, team in (("alice", "team-a"), ("bob", "team-b")):
        for operation in (acl.READ, acl.WRITE):
            allowed.append(Acl(f"User:{user}", operation, acl.TOPIC, f"{team}.", acl.PREFIXED))
            allowed.append(Acl(f"User:{user}", operation, acl.TOPIC, DEFAULT_LEDGER))
        allowed.append(Acl(f"User:{user}", acl.WRITE, acl.TRANSACTIONAL_ID, f"{team}-", acl.PREFIXED))
    users, topics = {"alice": "alice", "bob": "bob"}, {"team-a.t": 2, "team-b.t": 2}
    with EmbeddedBroker(users=users, acls=allowed, topics={**topics, DEFAULT_LEDGER: 1}) as broker:
        for user, team in (("alice", "team-a"), ("bob", "team-b")):
            login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            login |= {"sasl.username": user, "sasl.password": user}
            place = f"{team}.t", f"{team}-orders", DEFAULT_LEDGER
            sinks.append(Sink(broker.bootstrap_servers, *place, login=login, wall_ms=wall_ms() - 120_000))
        alice, bob = sinks
        yield alice, bob


def test_what_another_team_has_decided_raises_no_alarm_about_ones_own_sink(shell: Shell) -> None:
    """Two streams that were stopped after a batch, each seen by the login of the other."""
    with two_teams() as (alice, bob):
        words = [word for name, value in alice.login.items() for word in ("--option", f"kafka.{name}={value}")]
        alice.decide_and_die(BATCH, committed=2)
        bob.decide_and_die(BATCH, committed=2)
        said = status(shell, alice, *words)
        assert said.exit_code == 1 and said.out.count("LOOK: ") == 1 and "ACT NOW" not in said.out, said
        assert "team-b-orders was decided 2 min ago, and how it stands is not yours to see" in said.out
        assert "This is not all" not in said.out and "pykafka-sink recover" not in said.out
        where = ("--bootstrap-server", alice.servers, *words)
        listed = shell("ledger", *where, "--json").content["decisions"]
        assert [one["verdict"] for one in listed] == ["committed", "open"]
        # What is open of her own is told with its command, and finished.
        replace(alice, sink_id="team-a-late").decide_and_die(BATCH)
        assert [each["sink_id"] for each in findings(shell, alice, *words)] == ["team-a-late", "team-b-orders"]
        done = shell("recover", "--all", *where)
        assert done.exit_code == 0 and done.out.count("20 rows are visible") == 2, done
        left = "decisions of sinks whose transactional ids this login may not describe (team-b-orders)"
        assert f"left alone: 1 {left}" in done.out
        again = shell("recover", "--all", *where)
        assert again.exit_code == 0 and "no decision that this login may describe is open" in again.out


def test_a_start_says_nothing_of_what_another_team_has_decided(caplog: pytest.LogCaptureFixture) -> None:
    """Of writes without a label every start with their ledger learns. One decision is old, the other one is not."""
    with two_teams() as (alice, bob):
        for number, decided_ms in enumerate((1, wall_ms())):
            run = run_of_query(f"write {number}")
            write = replace(bob, sink_id=sink_id_of_write(bob.sink_id, run), run=run, wall_ms=decided_ms)
            write.decide_and_die(UNNAMED_BATCH)
        given = {"bootstrap.servers": alice.servers, **alice.login}
        options = parse_sink_options({f"kafka.{name}": value for name, value in given.items()} | {"topic": alice.topic})
        caplog.clear()
        with client_of(alice.servers, **alice.login) as client:
            Driver(options, alice.sink_id).recover(client)
        assert not [line for line in caplog.messages if "team-b" in line]


# ---- recover --all ---------------------------------------------------------------------------------------------------


def test_recover_all_finishes_every_open_decision_of_the_ledgers_that_are_named(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    ledgers = ("ledger1", DEFAULT_LEDGER, "ledger2")
    sinks = [Sink(broker.bootstrap_servers, f"t{name}", f"sink-{name}", name) for name in ledgers]
    for each in sinks:
        each.create()
        each.decide_and_die(BATCH)
    labels = ["2026-11-01", "2026-11-02"]
    for label in labels:
        replace(sinks[0], run=sinks[0].run_of(label, "unique")).decide_and_die(BatchKey("", label))
    said = status(shell, sinks[0])
    assert said.exit_code == 2 and said.out.count("ACT NOW: ") == 5
    command = f"pykafka-sink recover --all --bootstrap-server {broker.bootstrap_servers}"
    commands = [f"{command} --ledger-topic {name}" for name in ("ledger1", "ledger2")]
    assert f"All open decisions of the cluster at once:\n    {commands[0]}\n    {commands[1]}\n" in said.out
    assert "whoever may write there decides: ledger1, ledger2. Run" in said.out
    first, second = map(paste, commands)
    assert first.returncode == 4 and first.stdout.count("20 rows are visible") == 4, first
    assert "ledger2 looks like a ledger with open decisions (1), and whoever may write there" in first.stdout
    assert f"`{commands[1]}` finishes them" in first.stdout
    assert second.returncode == 0 and second.stdout.count("20 rows are visible") == 1, second
    assert [len(each.visible()) for each in sinks] == [6 * ROWS_PER_TASK, 2 * ROWS_PER_TASK, 2 * ROWS_PER_TASK]
    assert status(shell, sinks[0]).exit_code == 0
    again = shell("recover", "--all", "--bootstrap-server", broker.bootstrap_servers, "--json")
    assert again.exit_code == 0 and again.content["recovered"] == []


def test_recover_all_does_nothing_that_a_topic_asks_for_which_only_looks_like_a_ledger(
    sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    sink.deliver(BATCH)
    receipts = [sink.task(NEXT, number) for number in range(2)]
    entries = tuple(transaction_entry_of(sink.sink_id, sink.run, each) for each in receipts)
    forged = LedgerRecord(
        Kind.INTENT, sink.sink_id, NEXT, sink.run, row_count=20, topics={sink.topic: 20}, entries=entries
    )
    other = replace(sink, topic="other", ledger_topic="of-another-team")
    other.create()
    put(other, sink.sink_id, encode_record(forged))

    ids = [Line(sink.sink_id).driver_id, *map(forged.transactional_id, entries)]

    def known() -> list[tuple[int, int, CoordinatorState]]:
        found = broker.do(lambda core: [core.coordinator.transactions[each].record for each in ids])
        return [(each.producer_id, each.producer_epoch, each.state) for each in found]

    before = known()
    said = shell("recover", "--all", "--bootstrap-server", sink.servers)
    assert said.exit_code == 4 and "of-another-team looks like a ledger with open decisions (1)" in said.out
    assert known() == before and [state for _, _, state in before[1:]] == [CoordinatorState.ONGOING] * 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("words", [("--sink-id", "orders"), ("--all",)])
def test_recover_says_how_much_time_is_left_before_it_asks(
    words: tuple[str, ...], sink: Sink, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.decide_and_die(BATCH)
    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    said = shell("recover", "--bootstrap-server", sink.servers, *words)
    assert said.exit_code == 1 and re.search(r"within 2\d\d s: then they time out", said.err), said
    assert [each["kind"] for each in findings(shell, sink)] == ["open"], "nothing was done"


def test_a_lost_batch_does_not_keep_the_others_from_being_recovered(sink: Sink, shell: Shell) -> None:
    lose(sink)
    other = replace(sink, sink_id="invoices", run="e" * 16)
    other.decide_and_die(BATCH)
    third = replace(sink, sink_id="unread")
    poison(third)
    said = shell("recover", "--all", "--bootstrap-server", sink.servers, "--json")
    assert said.exit_code == 4
    assert [each["sink_id"] for each in said.content["recovered"]] == ["invoices"]
    (failed,) = said.content["failed"]
    assert (failed["sink_id"], failed["error"]) == ("orders", "CommitLost")
    assert (
        sink.command("resolve --replay | --batch 0").replace(f" --ledger-topic {DEFAULT_LEDGER}", "") in failed["text"]
    )
    assert "unread: the record at offset" in said.content["notes"][0]


# ---- transactions --abort --transactional-id -------------------------------------------------------------------------


def test_a_foreign_transaction_is_aborted_after_a_question_and_the_ids_of_sinks_are_refused(
    sink: Sink, shell: Shell
) -> None:
    begin_foreign(sink.servers, "t")
    abort = ("transactions", "--abort", "--bootstrap-server", sink.servers, "--transactional-id")
    assert shell(*abort, FOREIGN).exit_code == 2, "nobody is there to be asked"
    assert (
        f"fenced the producer of '{FOREIGN}': what it had open then was aborted" in shell(*abort, FOREIGN, "--yes").out
    )
    assert "nothing to abort" in shell(*abort, FOREIGN, "--yes").out
    assert "nothing to abort" in shell(*abort, "unheard-of", "--yes").out
    assert [record.value for record in read_topic(sink.servers, "t")] == []
    sink.deliver(BATCH)
    for own in (f"orders-{sink.run}-0-0", "orders-driver", "orders-driver-80000000"):
        said = shell(*abort, own, "--yes")
        assert said.exit_code == 2 and "transactions --abort --bootstrap-server" in said.err, said
    with pytest.raises(SystemExit):
        shell("transactions", "--bootstrap-server", sink.servers, "--transactional-id", FOREIGN)


@pytest.mark.embedded_kafka(properties=QUICK, release="3.9")
@pytest.mark.parametrize("commit", [True, False])
def test_a_foreign_transaction_that_waits_for_its_markers_is_not_said_to_be_aborted(
    commit: bool, sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    """It was committed with success while its partition had no leader."""
    options = {"bootstrap.servers": sink.servers, "transactional.id": FOREIGN}
    producer = Producer(options)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"row", partition=0).result(20)
    prepared = producer.prepare_transaction()
    producer.close(0)
    broker.do(lambda core: core.cluster.take_offline("t", 0))
    with Producer(options) as successor:
        successor.resume_transaction(prepared)
        successor.commit_transaction() if commit else successor.abort_transaction()
    abort = ("transactions", "--abort", "--bootstrap-server", sink.servers, "--transactional-id", FOREIGN, "--yes")
    said = shell(*abort, "--json")
    assert said.exit_code == 1 and said.content["aborted"] is False
    fate = "committed" if commit else "aborted"
    assert f"'{FOREIGN}' is {fate}, only its markers are missing" in shell(*abort).out
    broker.do(lambda core: core.cluster.bring_online("t", 0))
    wait_until(lambda: "nothing to abort" in shell(*abort).out, "the markers")
    assert [record.value for record in read_topic(sink.servers, "t")] == ([b"row"] if commit else [])


# ---- many sinks ------------------------------------------------------------------------------------------------------


@contextmanager
def counted_requests() -> Iterator[list[str]]:
    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        execute = Network.execute

        def count(self: Network, command: Any) -> None:
            if isinstance(command, Send):
                names.append(type(command).__name__)
            execute(self, command)

        patch.setattr(Network, "execute", count)
        yield names


def test_of_200_sinks_the_ten_that_are_ill_are_named_and_no_other(shell: Shell) -> None:
    with EmbeddedBroker(brokers=3, properties=QUICK) as broker:
        base = Sink(broker.bootstrap_servers, "t", "healthy", DEFAULT_LEDGER)
        base.create()
        ill = {number: replace(base, sink_id=f"ill-{number}", run=f"{number:016x}") for number in range(10)}
        record_all(base.servers, DEFAULT_LEDGER, [delivered(f"healthy-{number}", "t") for number in range(190)])
        open_decision(ill[0], broker)
        committed_decision(ill[1], broker)
        overdue(ill[2], broker)
        lost(ill[3], broker)
        lost_day(ill[4], broker)
        unreadable(ill[5], broker)
        elsewhere(ill[6], broker)
        record_all(base.servers, DEFAULT_LEDGER, [delivered("ill-7", "t", age_ms=100 * 86_400_000)])
        ill[8].task(BATCH, 0)
        age(broker, f"ill-8-{ill[8].run}-0-0")
        begin_foreign(base.servers, "t", "ill-9")
        age(broker, "ill-9")
        with counted_requests() as requests:
            said = shell("status", "--bootstrap-server", base.servers, "--json")
        told = said.content["findings"]
        named = sorted(each["sink_id"] or ("ill-9" if "'ill-9'" in each["text"] else each["text"]) for each in told)
        assert named == sorted(f"ill-{number}" for number in range(10)), json.dumps(told, indent=1)
        assert said.exit_code == 2 and len(said.content["sinks"]) == 198, "two of the ten have decided nothing"
        print(f"200 sinks, 3 brokers, two looks: {len(requests)} requests")
        assert len(requests) < 120


@pytest.mark.slow
def test_ten_thousand_sinks_are_read_in_few_requests(shell: Shell) -> None:
    """How long it takes is printed."""
    with EmbeddedBroker(brokers=3) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "ill", DEFAULT_LEDGER)
        sink.create()
        topics = [f"topic-{number}" for number in range(100)]
        for topic in topics:
            broker.create_topic(topic, 6)
        records = (delivered(f"healthy-{number}", topics[number % 100]) for number in range(10_000))
        record_all(sink.servers, DEFAULT_LEDGER, records)
        sink.decide_and_die(BATCH)
        began_s = time.monotonic()
        with counted_requests() as requests:
            said = shell("status", "--bootstrap-server", sink.servers, "--json")
        print(f"\n10,001 sinks, 100 topics: {time.monotonic() - began_s:.1f} s, {len(requests)} requests, two looks")
        assert [each["sink_id"] for each in said.content["findings"]] == ["ill"]
        assert len(said.content["sinks"]) == 10_001 and len(requests) < 200
