"""`check` names on Apache Kafka what will fail, each in a line of its own, and nothing else; its advice mends it.

The assumption under test: brokers tell their settings, replicas and quotas beforehand, and what they tell decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_sink
from kafka_sink import OperationTimeout, Producer
from kafka_sink.errors import explain_error
from kafka_sink.operate.checks.finding import OK, CheckReport, ProbeResult
from tests.conftest import NEWEST, or_without_kafka
from tests.integration.planted_environments import (
    ALONE,
    FAIL,
    PLACES,
    PLACES_ALONE,
    PLACES_OF_THREE,
    ROWS,
    Job,
    Place,
    job,
)
from tests.support.kafka_shell import KafkaShell
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

pytestmark = pytest.mark.kafka
# Lines about the machine that runs this test, not about the job.
OF_THE_MACHINE = {"sockets", "pyspark.zip", "package"}
AMPLE_S = 60.0
# The probe of a write gives up only at the end of its time.
SHORT_S = 6.0
COMMAND = re.compile(r"`([^`]*)`")
SETTING = re.compile(r"([a-z.]+[a-z])=([0-9]+)")


def checked(one: Job, *, writes: bool = True) -> CheckReport:
    more = dict(one.more) if writes else {**one.more, "probe_write": False}
    limit_s = SHORT_S if more.get("probe_write") else AMPLE_S
    return kafka_sink.check(one.options, one.schema, timeout_s=limit_s, **more)


def complaints(report: CheckReport) -> list[ProbeResult]:
    return [each for each in report if each.verdict != OK and each.name not in OF_THE_MACHINE]


def check_named(place: Place, report: CheckReport) -> None:
    """Each mistake has its own line, and there is no other."""
    left = complaints(report)
    for expected in place.expected:
        found = [each for each in left if each.name == expected.line and expected.said in each.text]
        assert [each.verdict for each in found] == [expected.verdict], (expected.title, report)
        assert found[0].advice, expected.title
        left.remove(found[0])
    assert left == [], report


def own_name(topic_name: str) -> str:
    return topic_name[-40:].lstrip("-")


@pytest.fixture(scope="module")
def alone() -> Iterator[KafkaCluster]:
    with or_without_kafka(KafkaCluster(NEWEST, 1, ALONE)) as kafka:
        yield kafka


@pytest.fixture
def shell(tmp_path: Path) -> KafkaShell:
    return KafkaShell(tmp_path, NEWEST)


def test_there_are_enough_environments() -> None:
    titles = [each.title for place in (*PLACES_ALONE, *PLACES, *PLACES_OF_THREE) for each in place.expected]
    assert len(set(titles)) == len(titles) >= 30


# ---- one broker with defaults for three ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES_ALONE, ids=str)
def test_a_broker_alone_with_the_defaults_for_three_is_named(
    place: Place, alone: KafkaCluster, topic_name: str
) -> None:
    planted = place.plant(alone, own_name(topic_name))
    report = checked(planted)
    about_the_cluster = {"transaction log", "consumer groups", "new topics"}
    own = [each for each in report if each.name not in about_the_cluster or place is PLACES_ALONE[0]]
    limits = {each.line for each in place.expected}
    # The low limit of transactions is named for each job.
    check_named(place, CheckReport(each for each in own if each.name != "time limits" or "time limits" in limits))


def test_the_error_that_comes_later_names_the_setting_too(alone: KafkaCluster, topic_name: str) -> None:
    alone.create_topic(topic_name, 1, 1)
    options = {"bootstrap.servers": alone.bootstrap_servers, "transactional.id": topic_name, "max.block.ms": 1000}
    with Producer(options) as producer, pytest.raises(OperationTimeout) as caught:
        producer.init_transactions()
    told = explain_error(caught.value)
    assert "COORDINATOR_NOT_AVAILABLE" in told and "transaction.state.log.replication.factor" in told, told


@pytest.mark.slow
def test_a_broker_alone_is_fine_with_the_settings_that_are_advised(topic_name: str) -> None:
    own = own_name(topic_name)
    with or_without_kafka(KafkaCluster(NEWEST, 1, ALONE)) as kafka:
        planted = [place.plant(kafka, f"{own}-{number}") for number, place in enumerate(PLACES_ALONE)]
        advices = [each.advice for one in planted for each in complaints(checked(one, writes=False))]
        settings = [advice for advice in advices if "in server.properties of every broker" in advice]
        wanted: dict[str, int] = {}
        for name, value in (
            each for advice in settings for each in SETTING.findall(advice.partition(" in server.properties")[0])
        ):
            if not name.startswith("kafka."):
                wanted[name] = max(int(value), wanted.get(name, 0))
        assert {name for name in ALONE if name != "auto.create.topics.enable"} <= set(wanted), advices
        with (kafka.folder / "node-1" / "server.properties").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in wanted.items())
        kafka.restart(1)
        for number, place in enumerate(PLACES_ALONE):
            report = checked(place.amend(planted[number], f"{own}-{number}"))
            # A missing topic that can be made now is still missing.
            left = [each for each in complaints(report) if "brokers make it on demand" not in each.text]
            assert left == [], report


# ---- one broker that is fine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_is_planted_on_one_broker_is_named(place: Place, kafka_4: KafkaCluster, topic_name: str) -> None:
    check_named(place, checked(place.plant(kafka_4, own_name(topic_name))))


def test_a_broker_that_is_fine_has_no_line_of_another_kind(kafka_4: KafkaCluster, topic_name: str) -> None:
    own = own_name(topic_name)
    report = checked(job(kafka_4, kafka_4.create_topic(f"{own}-rows", 2, 1), own, batch_minutes=5))
    assert complaints(report) == [], report
    assert {"transaction log", "time limits", "package"} <= {each.name for each in report}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_is_advised_for_one_broker_mends_it(
    place: Place, kafka_4: KafkaCluster, topic_name: str, shell: KafkaShell
) -> None:
    own = own_name(topic_name)
    planted = place.plant(kafka_4, own)
    follow(checked(planted), shell)
    amended = place.amend(planted, own)
    wait_until(lambda: complaints(checked(amended)) == [], lambda: f"nothing is left: {checked(amended)}")


def follow(report: CheckReport, shell: KafkaShell) -> None:
    """Pastes what each line advises: the last command, where one of two has to be chosen."""
    for each in complaints(report):
        commands = COMMAND.findall(each.advice)
        if commands and commands[-1].startswith(("kafka-", "echo ", "pykafka-sink ")):
            shell.paste(commands[-1])


# ---- three brokers ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES_OF_THREE, ids=str)
def test_what_is_planted_on_three_brokers_is_named_and_mended_as_advised(
    place: Place, kafka_three_nodes: KafkaCluster, topic_name: str, shell: KafkaShell
) -> None:
    own = own_name(topic_name)
    planted = place.plant(kafka_three_nodes, own)
    report = checked(planted)
    check_named(place, report)
    follow(report, shell)

    # New replicas have to catch up, and lines about replicas in sync come when there are three.
    def mended() -> bool:
        found = checked(planted)
        follow(found, shell)
        return complaints(found) == []

    wait_until(mended, lambda: f"nothing is left: {checked(planted)}", 180)


@pytest.mark.slow
def test_a_transaction_log_that_one_broker_acknowledges_alone_or_that_needs_all_is_named(
    kafka_three_nodes: KafkaCluster, topic_name: str, shell: KafkaShell
) -> None:
    kafka, own = kafka_three_nodes, own_name(topic_name)
    made = kafka.create_topic(f"{own}-rows", 1, 3, {"min.insync.replicas": 2})
    one = job(kafka, made, own, probe_write=True)
    assert [each.verdict for each in checked(one) if each.name == "write"] == [OK]
    again = Job(one.options, ROWS)
    for least, said in ((1, "acknowledged by one broker alone"), (3, "with one broker down no transaction begins")):
        alter_log(shell, kafka, least)
        (line,) = wait_until(lambda: complaints(checked(again)), "the setting is told")
        assert line.name == "transaction log" and said in line.text
        follow(checked(again), shell)
        wait_until(lambda: complaints(checked(again)) == [], "as advised")


def alter_log(shell: KafkaShell, kafka: KafkaCluster, least: int) -> None:
    entity = "--entity-type topics --entity-name __transaction_state"
    shell.paste(
        f"kafka-configs.sh --bootstrap-server {kafka.bootstrap_servers} --alter {entity} "
        f"--add-config min.insync.replicas={least}"
    )


@pytest.mark.slow
def test_with_a_broker_down_what_is_refused_now_is_a_failure_and_the_broker_is_named(
    kafka_three_nodes: KafkaCluster, topic_name: str, shell: KafkaShell
) -> None:
    kafka, own = kafka_three_nodes, own_name(topic_name)
    made = kafka.create_topic(f"{own}-rows", 3, 3, {"min.insync.replicas": 3})
    lonely = kafka.create_topic(f"{own}-lonely", 3, 1)
    kafka.create_topic(f"{own}-ledger", 1, 3, {"cleanup.policy": "compact", "min.insync.replicas": 3})
    one, other = job(kafka, made, own), job(kafka, lonely, own)
    checked(Job(one.options, ROWS, {"probe_write": True}))  # makes the transaction log
    alter_log(shell, kafka, 3)
    kafka.stop(3)
    try:
        lost = wait_until(lambda: failures(one, 3), "the broker has left all replicas in sync")
        assert {line: "start broker 3" in advice for line, advice in lost.items()} == {
            "brokers" if "brokers" in lost else "replicas": True, "replicas": True, "transaction log": True,
            "ledger": True,
        }  # fmt: skip
        (headless,) = [each for each in checked(other) if each.name == "topic" and each.verdict == FAIL]
        assert "has no leader for partition" in headless.text and "start broker 3" in headless.advice
    finally:
        kafka.start(3)
        alter_log(shell, kafka, 2)
    kafka.wait_in_sync(made, lonely, "__transaction_state")
    assert not failures(one, 0)


def failures(one: Job, at_least: int) -> dict[str, str]:
    found = {each.name: each.advice for each in checked(one) if each.verdict == FAIL}
    return found if len(found) >= at_least else {}
