"""Random walks of a transactional producer: calls in any order, answers with any code, lost connections, time.

The broker side answers nothing by itself, so every interleaving of answers and calls can occur. The invariants are
checked on every request that is sent and on every call that ends.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_sink.errors import OperationTimeout
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from kafka_sink.kafka.wire.codes import CODES
from kafka_sink.producer.engine.commands import Abandon, TransactionReceipt
from kafka_sink.producer.engine.producer_batch import ProducerBatch, ProducerIdentity
from kafka_sink.producer.engine.transaction import TransactionState
from tests.unit.producer.engine.fake_cluster import Asked
from tests.unit.producer.engine.transaction_driver import COORDINATED, PRODUCER_ID, TransactionDriver

STARTING = (PRODUCE, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT)
OF_ONE_EPOCH = (*STARTING, END_TXN)
REGISTERING = (ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN)
EXPECTED = ProducerIdentity(PRODUCER_ID, 7)
# Connection and correlation id.
Call = tuple[int, int]
# Success is the most likely code; otherwise no walk would make progress.
codes = st.sampled_from((0,) * 150 + (51, 14, 16, 120, 87, 45, 3) * 6 + tuple(sorted(CODES)))


def identity_in(request: Asked) -> ProducerIdentity:
    if request.api is PRODUCE:
        records = bytes(request.body["topic_data"][0]["partition_data"][0]["records"])
        return ProducerIdentity(
            int.from_bytes(records[43:51], "big", signed=True), int.from_bytes(records[51:53], "big")
        )
    prefix = "v3_and_below_" if request.api is ADD_PARTITIONS_TO_TXN else ""
    return ProducerIdentity(request.body[f"{prefix}producer_id"], request.body[f"{prefix}producer_epoch"])


def call_of(request: Asked) -> Call:
    return request.connection_id, request.correlation_id


def is_final_refusal(code: int) -> bool:
    """The coordinator registered nothing: it registers all partitions of a request or none. After -1 it may have."""
    return code not in (0, -1) and not CODES[code].retriable


class TransactionWalk(RuleBasedStateMachine):
    """It tracks what the user and the brokers can know. Only some checks look at the engine's own state."""

    @initialize(
        transaction_version=st.sampled_from((1, 2)),
        receipt=st.sampled_from((None, None, None, None, 1, 2)),
        goes_on=st.booleans(),
    )
    def start(self, transaction_version: int, receipt: int | None, goes_on: bool) -> None:
        self.driver = TransactionDriver(
            transaction_version, brokers=2, leaders=(0, 1), coordinator=1, is_initialised=False,
            delivery_timeout_ms=20_000,
            request_timeout_ms=10_000, linger_ms=0,
        )  # fmt: skip
        self.operations: dict[int, str] = {}
        self.batches: list[ProducerBatch] = []
        self.requests_seen = len(self.driver.cluster.requests)
        self.finished_seen: set[int] = set()
        self.is_over = False
        self.forget_transaction()
        if receipt is None:
            if goes_on:
                self.ask("begin_expected")
            if self.driver.engine.refusal is not None:
                self.ask("init")
                self.ask("begin")
        else:
            self.receipt = TransactionReceipt("ledger", PRODUCER_ID, 4, receipt, True, {})
            self.ask("resume")
        self.driver.hold(*COORDINATED, PRODUCE)

    def forget_transaction(self) -> None:
        self.identities: set[ProducerIdentity] = set()
        self.registered: set[tuple[str, int]] = set()
        self.first_batch = len(self.batches)
        # Requests that may have started the transaction at the coordinator.
        self.starts: set[Call] = set()
        self.ends: list[bool] = []
        self.is_prepared = False

    # ---- events ----------------------------------------------------------------------------------------------------

    def ask(self, name: str) -> None:
        calls: dict[str, Any] = {
            "init": self.driver.init, "begin": self.driver.begin, "commit": self.driver.commit,
            "abort": self.driver.abort, "prepare": self.driver.prepare, "offsets": self.driver.send_offsets,
            "close": self.driver.close, "resume": lambda: self.driver.resume(self.receipt),
            "begin_expected": lambda: self.driver.begin_expected(EXPECTED),
        }  # fmt: skip
        if name in ("commit", "abort"):
            self.is_prepared = False  # the user ends the transaction
        self.operations[calls[name]()] = name
        self.look()

    @precondition(lambda self: self.is_open)
    @rule(name=st.sampled_from(("commit", "abort", "prepare", "offsets", "offsets")))
    def wish_in_a_transaction(self, name: str) -> None:
        self.ask(name)

    @precondition(lambda self: not self.is_open)
    @rule(name=st.sampled_from(("begin", "begin", "begin", "commit", "abort", "abort", "prepare", "offsets", "init")))
    def wish(self, name: str) -> None:
        self.ask(name)

    # Usual sequences in one step: single random steps would seldom complete a whole transaction.

    @precondition(lambda self: not self.is_open)
    @rule(end=st.sampled_from(("abort", "commit", "prepare")))
    def begin_anew(self, end: str) -> None:
        for name in (end, "init", "begin"):
            self.ask(name)
            self.answer_everything()

    @precondition(lambda self: self.is_open)
    @rule(
        partitions=st.lists(st.sampled_from((0, 1)), max_size=3),
        with_offsets=st.booleans(),
        are_answered=st.booleans(),
        end=st.sampled_from(("commit", "commit", "abort", "prepare")),
    )
    def write_and_end(self, partitions: list[int], with_offsets: bool, are_answered: bool, end: str) -> None:
        for partition in partitions:
            self.send(partition)
        if with_offsets:
            self.ask("offsets")
        if are_answered:
            self.answer_everything()
        self.ask(end)

    @rule(partition=st.sampled_from((0, 1)))
    def send(self, partition: int) -> None:
        is_accepted = self.is_open
        batch = self.driver.send(partition)
        if is_accepted:
            self.batches.append(batch)
        else:
            assert batch in self.driver.failed
        self.look()

    @precondition(lambda self: self.driver.cluster.pending)
    @rule(data=st.data(), code=codes)
    def answer(self, data: st.DataObject, code: int) -> None:
        self.reply(data.draw(st.sampled_from(self.oldest)), code)

    @rule()
    def answer_everything(self) -> None:
        while self.oldest:
            self.reply(self.oldest[0], 0)

    @property
    def oldest(self) -> list[Asked]:
        """The request that each broker would answer next."""
        return list({request.connection_id: request for request in reversed(self.driver.cluster.pending)}.values())

    def reply(self, request: Asked, code: int) -> None:
        if code == 0 and request.api is ADD_PARTITIONS_TO_TXN and self.is_alive(request):
            topics = request.body["v3_and_below_topics"]
            self.registered |= {(topic["name"], index) for topic in topics for index in topic["partitions"]}
        if request.api in REGISTERING and is_final_refusal(code) and self.is_alive(request):
            self.starts.discard(call_of(request))
        if code == 0 and request.api is END_TXN and self.is_alive(request):
            self.ends.append(request.body["committed"])
        self.driver.cluster.answer(request, self.driver._body(request, code))
        self.driver.run()
        self.look()

    @rule(node_id=st.sampled_from((0, 1)))
    def disconnect(self, node_id: int) -> None:
        self.driver.disconnect(node_id)
        self.look()

    @rule(time_ms=st.sampled_from((1, 30, 150, 1_500, 12_000)))
    def wait(self, time_ms: int) -> None:
        self.driver.run_for(time_ms)
        self.look()

    @rule(transaction_version=st.sampled_from((1, 2)))
    def upgrade(self, transaction_version: int) -> None:
        self.driver.engine.nodes.finalized_features = {"transaction.version": transaction_version}

    @precondition(lambda self: len(self.operations) > 5)
    @rule()
    def close(self) -> None:
        self.ask("close")

    # ---- checks ----------------------------------------------------------------------------------------------------

    def is_alive(self, request: Asked) -> bool:
        return request.connection_id in self.driver.cluster.connections

    def look(self) -> None:
        """Requests are checked first: they were sent before the calls that end in this step could start anything."""
        requests = self.driver.cluster.requests
        for request in requests[self.requests_seen :]:
            if request.api not in (METADATA, API_VERSIONS):
                self.on_request(request)
        self.requests_seen = len(requests)
        for operation_id in [key for key in self.driver.finished if key not in self.finished_seen]:
            self.finished_seen.add(operation_id)
            self.on_finished(self.operations[operation_id], self.driver.ok(operation_id))

    def on_request(self, request: Asked) -> None:
        assert not self.is_over, f"{request.api.name} after the end of the producer"
        assert not self.is_prepared or request.api not in OF_ONE_EPOCH, f"{request.api.name} after prepare"
        if request.api is INIT_PRODUCER_ID and self.state is TransactionState.REPLACING:
            mine = self.batches[self.first_batch :]
            assert not [batch for batch in mine if batch in self.driver.delivered], "written under the refused identity"
            self.identities.clear()
        if request.api in STARTING:
            self.starts.add(call_of(request))
        if request.api in OF_ONE_EPOCH:
            self.identities.add(identity_in(request))
            assert len(self.identities) == 1, f"one transaction, several identities: {self.identities}"
        if request.api is PRODUCE and request.version <= 11:
            for topic in request.body["topic_data"]:
                for partition in topic["partition_data"]:
                    assert (topic["name"], partition["index"]) in self.registered, "a record before the registration"
        if request.api is END_TXN:
            self.on_end_request(request)

    def on_end_request(self, request: Asked) -> None:
        mine = self.batches[self.first_batch :]
        assert not self.open_among(mine), "EndTxn while a batch is incomplete"
        assert not [produce for produce in self.driver.produces if self.is_alive(produce)], "EndTxn over a Produce"
        if request.body["committed"]:
            assert all(batch in self.driver.delivered for batch in mine), "a commit after a failure"

    def on_finished(self, name: str, is_ok: bool) -> None:
        if not is_ok:
            return
        if name == "begin":
            self.forget_transaction()
        elif name == "prepare":
            self.is_prepared = True
        elif name == "resume":
            self.forget_transaction()
            self.is_prepared = True
        elif name in ("commit", "abort"):
            if self.ends:
                assert self.ends[-1] is (name == "commit"), f"{name} succeeded, but the other end was asked for"
            elif self.starts:
                # Without an identity: it was refused, and so was all that was sent.
                states = (TransactionState.RENEWING, TransactionState.UNINITIALIZED)
                assert name == "abort" and self.state in states, "what may have started was not ended"

    @invariant()
    def no_batch_fails_unseen(self) -> None:
        """A transaction in which records failed accepts no more records."""
        if self.is_open:
            mine = self.batches[self.first_batch :]
            assert not [batch for batch in mine if batch in self.driver.failed], "records failed, yet all goes on"

    @invariant()
    def the_end_is_final(self) -> None:
        has_ended = self.driver.engine._end is not None
        assert has_ended or not self.is_over, "the producer works again after its end"
        self.is_over = has_ended

    @property
    def state(self) -> TransactionState:
        transaction = self.driver.engine._transaction
        assert transaction is not None
        return transaction.state

    @property
    def is_open(self) -> bool:
        return self.driver.engine.refusal is None

    def open_among(self, batches: list[ProducerBatch]) -> list[ProducerBatch]:
        return [batch for batch in batches if self.driver.is_open(batch)]

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        self.driver.run(Abandon(OperationTimeout("the walk is over")))
        assert not [name for key, name in self.operations.items() if key not in self.driver.finished]
        assert not self.open_among(self.batches)
        assert not self.driver.cluster.connections


TransactionWalk.TestCase.settings = settings(max_examples=150, stateful_step_count=40, derandomize=True)
TestTransactionWalk = TransactionWalk.TestCase
