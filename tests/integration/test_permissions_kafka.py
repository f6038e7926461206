"""The permissions that docs/security.md lists for each mode suffice on Apache Kafka, and each is needed.

The permissions are granted as in the table of the page. Topics, ids and ledgers have unique names in each test, so
nothing has to be revoked again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import kafka_sink
from kafka_sink import AuthorizationError, CommitAborted, KafkaSinkError, Producer
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.options.sink_options import TopicPlan
from tests.conftest import FIRST_GENERATION, NEWEST, started_when_asked
from tests.support.asking import client_of
from tests.support.commanding import Shell, Sink, rows
from tests.support.secured_kafka import USERS
from tools.kafka_cluster import KafkaCluster
from tools.kafka_security import AUTHORIZER

pytestmark = pytest.mark.kafka
WAIT_S = 90.0
PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
BATCH, NEXT = BatchKey("query-1", 0), BatchKey("query-1", 1)


class Grant(NamedTuple):
    operation: str
    kind: str
    name: str


def documented() -> dict[str, list[Grant]]:
    rows = re.findall(r"^\| (.+?) \| (\w+) \| (topic|transactional ids) `(.+?)` \| .+ \|$", PAGE, re.MULTILINE)
    modes: dict[str, list[Grant]] = {}
    for mode, *grant in rows:
        modes.setdefault(mode, []).append(Grant(*grant))
    return modes


MODES = documented()
# Kafka does not refuse the request: the list lacks what the principal must not see.
HIDDEN = ("`pykafka-sink transactions`", 1)
CASES = [
    (mode, left_out)
    for mode, grants in MODES.items()
    for left_out in (None, *range(len(grants)))
    if (mode, left_out) != HIDDEN
]


@pytest.fixture(scope="module")
def guarded_of() -> Iterator[Callable[[str], KafkaCluster]]:
    properties = {**AUTHORIZER, "auto.create.topics.enable": "false"}
    with started_when_asked(lambda version: KafkaCluster(version, users=USERS, properties=properties)) as of:
        yield of


# That both allow and forbid alike is shown by tests/conformance/test_security.py.
@pytest.fixture(params=[NEWEST, pytest.param(FIRST_GENERATION, marks=pytest.mark.slow)])
def kafka(request: pytest.FixtureRequest, guarded_of: Callable[[str], KafkaCluster]) -> KafkaCluster:
    return guarded_of(request.param)


@dataclass
class Place:
    """Names that no other test uses, and what alice may do with them."""

    kafka: KafkaCluster
    topic: str

    @property
    def ledger(self) -> str:
        return f"{self.topic}-ledger"

    @property
    def login(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
        }

    @property
    def options(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.kafka.sasl_bootstrap_servers, "max.block.ms": 10_000, **self.login}

    def sink(self) -> Sink:
        return Sink(self.kafka.sasl_bootstrap_servers, self.topic, self.topic, self.ledger, login=self.login)

    @property
    def arguments(self) -> list[str]:
        """Of a command that looks at all sinks."""
        login = [word for name, value in self.login.items() for word in ("--option", f"kafka.{name}={value}")]
        where = ["--bootstrap-server", self.kafka.sasl_bootstrap_servers, "--ledger-topic", self.ledger]
        return [*where, *login, "--silent-after", "0"]  # the decisions of these tests are of 1970

    def name_of(self, grant: Grant) -> str:
        return {"t": self.topic, "orders-": f"{self.topic}-"}.get(grant.name, self.ledger)

    def binding(self, grant: Grant) -> AclBinding:
        is_topic = grant.kind == "topic"
        return AclBinding(
            ResourceType.TOPIC if is_topic else ResourceType.TRANSACTIONAL_ID,
            self.name_of(grant),
            ResourcePatternType.LITERAL if is_topic else ResourcePatternType.PREFIXED,
            "User:alice",
            "*",
            AclOperation[grant.operation.upper()],
            AclPermissionType.ALLOW,
        )

    def allow(self, *grants: Grant) -> None:
        admin = self._admin()
        bindings = [self.binding(grant) for grant in grants]
        for future in (admin.create_acls(bindings) if bindings else {}).values():
            future.result(WAIT_S)
        # The controller has them; the broker that is asked may not have them yet.
        deadline_s = time.monotonic() + WAIT_S
        while not all(admin.describe_acls(filter_of(each)).result(WAIT_S) for each in bindings):
            assert time.monotonic() < deadline_s

    def forbid(self, grant: Grant) -> None:
        admin, wanted = self._admin(), filter_of(self.binding(grant))
        for future in admin.delete_acls([wanted]).values():
            assert len(future.result(WAIT_S)) == 1
        deadline_s = time.monotonic() + WAIT_S
        while admin.describe_acls(wanted).result(WAIT_S):
            assert time.monotonic() < deadline_s

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers})


def filter_of(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype, binding.name, binding.resource_pattern_type, binding.principal, binding.host,
        binding.operation, binding.permission_type,
    )  # fmt: skip


@pytest.fixture
def place(kafka: KafkaCluster, topic_name: str) -> Place:
    topic = kafka.create_topic(f"p{abs(hash(topic_name)) % 10**12}", partitions=2)
    with client_of(kafka.bootstrap_servers) as client:
        client.create_topic(f"{topic}-ledger", TopicPlan(1, 1, (("cleanup.policy", "compact"),)))
    return Place(kafka, topic)


# ---- what each mode does ---------------------------------------------------------------------------------------


def produce(place: Place, shell: Shell) -> None:
    with Producer(place.options) as producer:
        assert producer.send(place.topic, value=b"1", partition=0).result(WAIT_S).offset == 0
    with Producer({**place.options, "enable.idempotence": "false"}) as producer:
        assert producer.send(place.topic, value=b"2", partition=0).result(WAIT_S).offset == 1


def transact(place: Place, shell: Shell) -> None:
    with Producer({**place.options, "transactional.id": f"{place.topic}-1"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(place.topic, value=b"1")
        producer.commit_transaction()


def deliver(place: Place, shell: Shell) -> None:
    """A batch is delivered, the next one is decided and loses a transaction, and an operator resolves it."""
    sink = place.sink()
    sink.deliver(BATCH)
    sink.run = "f" * 16
    transaction = sink.decide_and_die(NEXT)[0].transaction
    assert transaction is not None
    intruder = {"bootstrap.servers": place.kafka.bootstrap_servers, "transactional.id": transaction.transactional_id}
    ConfluentProducer(intruder).init_transactions(60)
    recovered = shell.about(sink, "recover", "--timeout", "20")
    if recovered.exit_code != 1 or "1 of 2 are committed" not in recovered.err:
        raise AuthorizationError(recovered.err)
    assert shell.about(sink, "resolve", "--replay", "--yes").exit_code == 0
    assert shell.about(sink, "transactions", "--abort", "--yes").exit_code == 0


def look(*commands: str) -> Callable[[Place, Shell], None]:
    def work(place: Place, shell: Shell) -> None:
        Sink(place.kafka.bootstrap_servers, place.topic, place.topic, place.ledger).deliver(BATCH)
        for command in commands:
            of_all = command == "status"
            said = shell(command, *place.arguments) if of_all else shell.about(place.sink(), *command.split())
            if said.exit_code != 0:
                assert said.exit_code == 4, said
                raise AuthorizationError(said.err)

    return work


WORK: dict[str, Callable[[Place, Shell], None]] = {
    "`Producer`, idempotent or not": produce,
    "`Producer` with transactions": transact,
    "the sink, `recover`, `resolve`": deliver,
    "`pykafka-sink ledger`, `status`, `watch`": look("ledger", "status", "watch --count 1"),
    "`pykafka-sink transactions`": look("transactions"),
}


def test_the_page_lists_every_mode() -> None:
    assert list(MODES) == list(WORK) and len(CASES) > 12


@pytest.mark.parametrize(("mode", "left_out"), CASES)
def test_the_documented_permissions_are_enough_and_what_is_missing_is_named(
    mode: str, left_out: int | None, place: Place, shell: Shell
) -> None:
    grants = MODES[mode]
    place.allow(*(grant for index, grant in enumerate(grants) if index != left_out))
    if left_out is None:
        WORK[mode](place, shell)
        return
    with pytest.raises(KafkaSinkError) as caught:
        WORK[mode](place, shell)
    text, missing = str(caught.value), grants[left_out]
    # A principal that may write to no topic at all may be refused a producer id first, without the topic's name.
    is_named = place.name_of(missing).rstrip("-") in text or (missing.kind == "topic" and "or Write on a topic" in text)
    assert re.search(rf"\b{missing.operation}\b", text) and is_named, text


def test_transactions_that_the_principal_must_not_see_are_missing_in_the_list(place: Place, shell: Shell) -> None:
    read, describe = MODES[HIDDEN[0]]
    place.allow(read)
    open_sink = Sink(place.kafka.bootstrap_servers, place.topic, place.topic, place.ledger)
    open_sink.deliver(BATCH)
    open_sink.task(NEXT, 0)
    assert shell.about(place.sink(), "transactions", "--json").content["transactions"] == []
    # Nor does the list say that something is missing in it.
    place.allow(Grant("Read", "topic", "t"))
    login = [word for name, value in place.login.items() for word in ("--option", f"kafka.{name}={value}")]
    where = ("--bootstrap-server", place.kafka.sasl_bootstrap_servers, "--topic", place.topic)
    said = shell("readers", *where, *login)
    assert said.exit_code == 0 and "which no coordinator lists to this principal" in said.out, said
    place.allow(describe)
    assert "wait for a transaction of sink" in shell("readers", *where, *login).out
    assert len(shell.about(place.sink(), "transactions", "--json").content["transactions"]) == 1


@pytest.mark.parametrize("revoked", ["topic t", "topic ledger", "transactional ids orders-"])
def test_x7_a_permission_taken_away_between_prepare_and_decision_loses_nothing(
    revoked: str, place: Place, shell: Shell
) -> None:
    """Write on the topic is not needed any more; if another one is missing, nothing is decided until it is back."""
    grants = MODES["the sink, `recover`, `resolve`"]
    place.allow(*grants)
    sink = place.sink()
    sink.deliver(BATCH)
    receipts = [sink.task(NEXT, number) for number in range(2)]
    kind, name = revoked.rsplit(" ", 1)
    taken = next(
        grant
        for grant in grants
        if (grant.operation, grant.kind) == ("Write", kind) and (name != "ledger") == (grant.name in ("t", "orders-"))
    )
    place.forbid(taken)
    with client_of(sink.servers, **sink.login) as client:
        verdict = client.run(sink.committer(client, NEXT, receipts))
    visible = Sink(place.kafka.bootstrap_servers, place.topic, place.topic, place.ledger).visible
    if name == "t":
        assert verdict.error is None and visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))
        return
    assert isinstance(verdict.error, CommitAborted), verdict.error
    text = str(verdict.error)
    assert "Write" in text and place.name_of(taken).rstrip("-") in text and "nothing is lost" in text, text
    place.allow(taken)
    # Spark runs the batch again, in a new run of the query.
    sink.run = "f" * 16
    sink.deliver(NEXT)
    assert visible() == sorted(rows(BATCH, 0, 1) + rows(NEXT, 0, 1))


@pytest.mark.parametrize("left_out", [None, *range(len(MODES["the sink, `recover`, `resolve`"]))])
def test_check_names_the_permission_that_is_missing(left_out: int | None, place: Place) -> None:
    grants = MODES["the sink, `recover`, `resolve`"]
    # Brokers have no coordinators before the first use of transactions.
    Sink(place.kafka.bootstrap_servers, place.topic, place.topic, place.ledger).deliver(BATCH)
    place.allow(*(grant for index, grant in enumerate(grants) if index != left_out))
    options = {f"kafka.{name}": str(value) for name, value in place.options.items()}
    named = {"topic": place.topic, "sink.id": place.topic, "ledger.topic": place.ledger}
    report = kafka_sink.check({**options, **named}, timeout_s=20)
    refused = [each.text for each in report if each.name == "permissions" and each.verdict == "fail"]
    if left_out is None:
        assert refused == [] and report.is_ok, report
        return
    missing = grants[left_out]
    assert len(refused) == 1 and missing.operation in refused[0] and place.name_of(missing) in refused[0], report
