"""What the tests of the command line share: sinks in every state that an operator may find, and a way to run commands.

The states are made with the sink's own parts: tasks prepare transactions with a Producer, a Committer decides, and a
dead driver is a Committer that is not stepped any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_sink import Producer
from kafka_sink.__main__ import main
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.command_texts import broker_arguments
from kafka_sink.commit.commit_step import Progress
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import run_of_label
from kafka_sink.commit.ledger import line_of
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import (
    CommitResult,
    Conclusion,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
)
from kafka_sink.errors import TransportError
from kafka_sink.kafka.client.ask import Reply, ReplyKind
from kafka_sink.options.sink_options import TopicPlan
from tests.support.asking import client_of
from tools.foreign_reader import read_topic

RUN = "0123456789abcdef"
ROWS_PER_TASK = 10


@dataclass
class Dying:
    """A Committer whose process dies, with a failed result, when it has decided and `commits` transactions are
    committed. What it would ask next is never sent."""

    committer: Committer
    commits: int = 0

    def step(self, now_ms: int, answers: Sequence[Reply]) -> Progress[CommitResult]:
        progress = self.committer.step(now_ms, answers)
        self.commits -= sum(each.ask.purpose == "commit transaction" for each in answers)
        if self.commits <= 0 and self.committer.phase in (Phase.COMMITTING, Phase.RECORDING):
            return Progress((), None, CommitResult(Conclusion.FAILED))
        return progress


@dataclass
class Unanswered:
    """A Committer that gets no answer to what it asks in `phase` (to `purpose`, or to anything), until its time is up.
    `is_sent`: the brokers carry it out all the same."""

    committer: Committer
    phase: Phase
    purpose: str = ""
    is_sent: bool = False
    _late_ms: int = 0

    def step(self, now_ms: int, answers: Sequence[Reply]) -> Progress[CommitResult]:
        is_there = self.committer.phase is self.phase
        progress = self._step(now_ms, [self._lose(each) if is_there else each for each in answers])
        while not self.is_sent and self.committer.phase is self.phase:
            out = [each for each in progress.asks if self.purpose in each.purpose]
            if not out and not self._late_ms:
                break
            progress = self._step(now_ms, [self._lose(Reply(each, ReplyKind.LOST)) for each in out])
        return progress

    def _step(self, now_ms: int, answers: Sequence[Reply]) -> Progress[CommitResult]:
        progress = self.committer.step(now_ms + self._late_ms, answers)
        if self._late_ms and progress.result is None and not progress.asks:
            progress = self.committer.step(now_ms + self._late_ms, ())
        return progress

    def _lose(self, answer: Reply) -> Reply:
        if self.purpose not in answer.ask.purpose:
            return answer
        self._late_ms = 10**9
        return replace(answer, kind=ReplyKind.LOST, bodies=(), error=TransportError("connection reset"))


@dataclass
class Sink:
    """One sink of a cluster, with the work of its tasks and drivers. `login`: the options for the login."""

    servers: str
    topic: str
    sink_id: str
    ledger_topic: str
    timeout_ms: int = 300_000
    run: str = RUN
    login: Mapping[str, str] = field(default_factory=dict)
    accepts_new_sink: bool = False
    ledger_look_ms: int = 0
    # When decisions are made, by the driver's clock.
    wall_ms: int = 1

    def command(self, words: str) -> str:
        """As texts name it; `words` begin with the command, such as `resolve --replay`, and may end with more."""
        name, _, more = words.partition(" | ")
        about = f"--bootstrap-server {self.servers} --ledger-topic {self.ledger_topic} --sink-id {self.sink_id}"
        return " ".join(filter(None, ("pykafka-sink", name, about, more)))

    def create(self) -> None:
        with client_of(self.servers, **self.login) as client:
            client.create_topic(self.ledger_topic, TopicPlan(1, 1, (("cleanup.policy", "compact"),)))
            client.create_topic(self.topic, TopicPlan(2, 1))

    def task_options(self, spark_partition: int) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "transactional.id": f"{self.sink_id}-{self.run}-{spark_partition}-0",
            "transaction.timeout.ms": self.timeout_ms,
            **self.login,
        }

    def task(self, key: BatchKey, spark_partition: int) -> TaskReceipt:
        options = self.task_options(spark_partition)
        transactional_id, partition = options["transactional.id"], spark_partition % 2
        with Producer(options) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in rows(key, spark_partition):
                producer.send(self.topic, value=value, partition=partition)
            found = producer.prepare_transaction()
        last_offset = found.last_offsets[self.topic, partition]
        transaction = PreparedTransaction(
            transactional_id, found.producer_id, found.producer_epoch, found.transaction_version
        )
        written = WrittenPartition(self.topic, partition, ROWS_PER_TASK, last_offset - ROWS_PER_TASK + 1, last_offset)
        return TaskReceipt(
            key, self.run, spark_partition, 0, transaction, self.timeout_ms, self.timeout_ms - 1, (written,),
            row_count=ROWS_PER_TASK,
        )  # fmt: skip

    def settings(self, client: Client) -> DeliverySettings:
        support = client.transaction_support()
        return DeliverySettings(
            ledger_topic=self.ledger_topic,
            brokers=broker_arguments(client.options),
            cluster_id=client.cluster_id(),
            transaction_version=support.transaction_version,
            fence_raises_max=support.fence_raises_max,
            epoch_of_end_is_safe=support.epoch_of_end_is_safe,
            brokers_verify=support.verifies,
            margin_ms=0,
            # One request at a time, so that a driver can die between two of them.
            parallel_requests=1,
            accept_unknown_sink=self.accepts_new_sink,
            ledger_look_ms=self.ledger_look_ms,
        )

    def committer(
        self, client: Client, key: BatchKey, receipts: Sequence[TaskReceipt], driver: DriverSession | None = None
    ) -> Committer:
        job = Job(DriverOperation.COMMIT, key, receipts, wall_ms=self.wall_ms)
        return Committer(self.settings(client), driver or self.session(key), job, client.now_ms())

    def run_of(self, label: str, unique: str) -> str:
        return run_of_label(label, unique, self.ledger_topic)

    def session(self, key: BatchKey) -> DriverSession:
        return DriverSession(self.sink_id, self.run, code=line_of(self.sink_id, key, self.ledger_topic).code)

    def deliver(self, key: BatchKey, driver: DriverSession | None = None) -> None:
        """`driver`: the session of one that has committed before."""
        with client_of(self.servers, **self.login) as client:
            receipts = [self.task(key, number) for number in range(2)]
            verdict = client.run(self.committer(client, key, receipts, driver))
        if verdict.error is not None:
            raise verdict.error
        assert verdict.conclusion is Conclusion.DELIVERED

    def decide_and_die(self, key: BatchKey, *, committed: int = 0) -> list[TaskReceipt]:
        receipts = [self.task(key, number) for number in range(2)]
        with client_of(self.servers, **self.login) as client:
            committer = self.committer(client, key, receipts)
            verdict = client.run(Dying(committer, committed))
        if verdict.error is not None:
            raise verdict.error
        assert verdict.conclusion is Conclusion.FAILED
        return receipts

    def visible(self) -> list[bytes]:
        """The visible values, sorted, as a foreign reader finds them."""
        return sorted(record.value or b"" for record in read_topic(self.servers, self.topic))


def rows(key: BatchKey, *tasks: int) -> list[bytes]:
    return [b"%s-%d-%d" % (str(key.batch_id).encode(), task, row) for task in tasks for row in range(ROWS_PER_TASK)]


@dataclass
class Said:
    exit_code: int
    out: str
    err: str

    @property
    def content(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict) and found["exit_code"] == self.exit_code
        return found


@dataclass
class Shell:
    """Runs `pykafka-sink` commands."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Said:
        self.capture.readouterr()
        exit_code = main(words)
        captured = self.capture.readouterr()
        assert "Traceback" not in captured.err
        return Said(exit_code, captured.out, captured.err)

    def about(self, sink: Sink, command: str, *words: str) -> Said:
        where = ("--bootstrap-server", sink.servers, "--ledger-topic", sink.ledger_topic, "--sink-id", sink.sink_id)
        login = [word for name, value in sink.login.items() for word in ("--option", f"kafka.{name}={value}")]
        return self(command, *where, *login, *words)
