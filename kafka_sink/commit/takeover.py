"""C1, first half: become the only driver of a line, and make sure that the following read of the ledger is complete.

`Fence` fences every earlier driver. A successful InitProducerId proves that every earlier transaction of the driver's
id has ended, markers included. It does not prove that the ledger is read from its leader: a broker that was frozen, or
is cut off from its controllers, still answers as leader of a partition that has another leader by now, with an old log
end. A decision after that end would be missed, and its batch delivered twice.

`Claim` closes that gap. It appends one record to the ledger with acks=all, which an outdated leader cannot acknowledge,
since the in-sync replicas do not follow it. All earlier decisions have offsets below the claim, so a reader that has
reached the claim has seen them, whichever broker answered. The claim needs no transaction: only deciding records need
one. Meanwhile the coordinator that gave the identity is asked which cluster it is of (same_cluster.py).

A claim contains the run. Spark may commit each batch of a query in another Python process, and each process fences the
one before: a stale epoch means "another process", only a claim means "another run".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.identity import Line
from kafka_sink.commit.ledger import claim_key, stop_key
from kafka_sink.commit.ledger_codec import encode_claim, encode_stop
from kafka_sink.commit.log_scan import append_ask, read_append_answer
from kafka_sink.commit.same_cluster import CLUSTER, cluster_ask, moved_problem
from kafka_sink.commit.session import OWN_TIMEOUT_MS_MIN, DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.formats.records.batch import NO_TIMESTAMP, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Ask, Coordinator, Reply
from kafka_sink.kafka.client.outcome import describe_answer
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.kafka.wire.apis import INIT_PRODUCER_ID
from kafka_sink.kafka.wire.codes import INVALID_TRANSACTION_TIMEOUT

# How often one operation continues after it was fenced although no other run has appeared. Spark runs one commit of a
# query at a time, so once is normal. But requests of a killed process may arrive late, and a former coordinator may
# answer "fenced" for seconds: with the waits in between, 12 tries last about seven seconds.
LOOKS_MAX = 12
FENCE, CLAIM, STOP = "fence older drivers", "claim ledger", "stop runs"
CLAIM_OLDER = "claim ledger for the release before"
# 0.2.0 had one driver for all labels of a sink, and 0.1.0 for all queries under a name as well.
FENCE_OLDER = "fence a driver of the release before"
# The brokers' transaction.max.timeout.ms is lower than the requested timeout. Reading that setting needs a permission,
# so the timeout is halved until it is accepted, down to what a record needs.


class Fence(CommitStep):
    """InitProducerId without producer id and epoch: fences every earlier driver.

    If the ledger has signs of a driver of an earlier release that could decide here, that one is fenced as well; it may
    be a process that was frozen before the upgrade.
    """

    def __init__(self, settings: DeliverySettings, session: DriverSession) -> None:
        super().__init__(settings)
        self.identity: ProducerIdentity | None = None
        self._session = session
        self._ids = {FENCE: session.transactional_id}
        if session.older_sink_id:
            self._ids[FENCE_OLDER] = Line(session.older_sink_id).driver_id

    def ask_first(self, now_ms: int) -> None:
        for purpose in self._ids:
            self._ask(now_ms, purpose)

    def _ask(self, now_ms: int, purpose: str) -> None:
        name = self._ids[purpose]
        body = {"transactional_id": name, "transaction_timeout_ms": self._session.timeout_ms}
        self.asks.add(now_ms, Ask(Coordinator(name), INIT_PRODUCER_ID, body, purpose))

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code = body["error_code"]
        if error_code == INVALID_TRANSACTION_TIMEOUT and self._session.timeout_ms > OWN_TIMEOUT_MS_MIN:
            self._session.timeout_ms = max(OWN_TIMEOUT_MS_MIN, self._session.timeout_ms // 2)
            self._ask(now_ms, ask.purpose)
        elif not self.refuse_or_repeat(now_ms, ask, error_code):
            self.asks.drop(ask)
            if ask.purpose == FENCE:
                self.identity = ProducerIdentity(body["producer_id"], body["producer_epoch"])

    def error_text(self, ask: Ask, error_code: int) -> str:
        return f"{self._ids[ask.purpose]}: {describe_answer(ask.api.name, error_code)}"


def is_first_of_its_line(job: Job, identity: ProducerIdentity) -> bool:
    """The sink id of a write without a label is its own. Brokers give a new transactional id the epoch 0: no other
    driver has ever had it, so there is no decision to be read, and no claim is needed to prove that."""
    is_nameless = job.key is not None and not job.key.is_named
    return job.operation is DriverOperation.COMMIT and is_nameless and identity.producer_epoch == 0


class PlainAppend(CommitStep):
    """A record of the ledger without a transaction, appended at once; it is there twice if a response is lost."""

    def append(self, now_ms: int, purpose: str, records: Sequence[tuple[str, bytes]]) -> None:
        encoded = [Record(NO_TIMESTAMP, key.encode(), value) for key, value in records]
        batch = encode_batch(encoded, make_compressor("none"))
        self.asks.add(now_ms, append_ask(purpose, self.settings, self.settings.ledger, seal(batch) + batch.payload))

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code, offset = read_append_answer(body)
        if not self.refuse_or_repeat(now_ms, ask, error_code):
            self.asks.drop(ask)
            self.on_appended(now_ms, ask, offset)

    @abstractmethod
    def on_appended(self, now_ms: int, ask: Ask, offset: int) -> None: ...

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        self.note_topic(now_ms, is_gone=reply.error is not None and reply.error.entry is TOPIC_UNKNOWN)
        if self.is_gone_for_good(now_ms):
            self.fail(f"the ledger topic {self.settings.ledger_topic} is not there: {reply.error}")
        else:
            super().on_lost(now_ms, reply)

    def error_text(self, ask: Ask, error_code: int) -> str:
        return f"{self.settings.ledger_title}: {describe_answer(ask.api.name, error_code)}"


class Claim(PlainAppend):
    """Appends the claim. The ledger is read up to the acknowledged claim; the first claim of each run determines which
    run is younger (`DriverSession.note_claim`).

    A driver of the release before takes a fence for another process of its own run, and goes on. So a labelled write
    first claims what that driver looks at. If that driver claims later it sees this and stops; if it has claimed since
    the fence, that is read here, and it is fenced again (`LedgerState.older_offset`)."""

    def __init__(self, settings: DeliverySettings, session: DriverSession, wall_ms: int) -> None:
        super().__init__(settings)
        self.offset: int | None = None
        self._session = session
        self._value = encode_claim(session.line, session.run, wall_ms)

    def ask_first(self, now_ms: int) -> None:
        session = self._session
        if session.code and session.older_sink_id:
            self._ask(now_ms, CLAIM_OLDER, Line(session.older_sink_id))
        else:
            self._ask(now_ms, CLAIM, session.line)
        self.asks.add(now_ms, cluster_ask(Coordinator(session.transactional_id)))

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        if ask.purpose != CLUSTER:
            super().on_body(now_ms, ask, body)
            return
        self.asks.drop(ask)
        moved = moved_problem(self.settings, body)
        if moved is not None:
            self.offset = None
            self.fail(moved)

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        if reply.ask.purpose == CLUSTER:
            CommitStep.on_lost(self, now_ms, reply)
        else:
            super().on_lost(now_ms, reply)

    def _ask(self, now_ms: int, purpose: str, line: Line) -> None:
        self.append(now_ms, purpose, [(claim_key(line), self._value)])

    def on_appended(self, now_ms: int, ask: Ask, offset: int) -> None:
        if ask.purpose == CLAIM_OLDER:
            self._ask(now_ms, CLAIM, self._session.line)
        else:
            self.offset = offset


class StopRuns(PlainAppend):
    """What an operator's command writes before it fences a line and aborts what these runs have open. Nothing keeps
    its requests to abort from arriving after a driver has fenced the command, checked its transactions and decided. A
    driver that fences after the command reads up to its own claim, so it finds this, and decides nothing."""

    def __init__(self, settings: DeliverySettings, runs: Collection[tuple[str, str]], wall_ms: int) -> None:
        """`runs`: with the sink id of each."""
        super().__init__(settings)
        self._records = [(stop_key(*run), encode_stop(*run, wall_ms)) for run in sorted(runs)]

    def ask_first(self, now_ms: int) -> None:
        self.append(now_ms, STOP, self._records)

    def on_appended(self, now_ms: int, ask: Ask, offset: int) -> None:
        return
