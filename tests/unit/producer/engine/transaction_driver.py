"""An `EngineDriver` for a producer with a transactional id: calls on one side, coordinators on the other.

    driver = TransactionDriver(transaction_version=1)      # id known, transactions initialised
    driver.begin()
    batch = driver.send()
    assert driver.ok(driver.commit())

Every request is answered with success, unless the test says otherwise: `fail(END_TXN, 51)` queues a code for the next
answer, `hold(END_TXN)` leaves requests unanswered until `reply(END_TXN)`. The coordinator knows only the current epoch.
`names` lists the requests to brokers, in order.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.nodes import METADATA_OF_4_2
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Api,
)
from kafka_sink.producer.engine.commands import (
    Close,
    ConsumerGroup,
    Finished,
    ResumeTransaction,
    SendOffsets,
    StartOver,
    TransactionEvent,
    TransactionReceipt,
    TransactionStep,
)
from kafka_sink.producer.engine.producer_batch import ProducerIdentity
from tests.unit.producer.engine.driver import EngineDriver
from tests.unit.producer.engine.fake_cluster import Asked, FakeCluster

GROUP, TRANSACTION = 0, 1
TRANSACTIONAL_ID = "ledger"
PRODUCER_ID = 7000
OFFSETS = {("source", 0): (42, -1, "")}
COORDINATED = (
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    TXN_OFFSET_COMMIT,
    END_TXN,
)


class TransactionDriver(EngineDriver):
    def __init__(
        self,
        transaction_version: int = 1,
        *,
        brokers: int = 1,
        leaders: tuple[int, ...] = (0, 0),
        coordinator: int = 0,
        is_initialised: bool = True,
        api_versions: Mapping[int, tuple[int, int] | None] | None = None,
        metadata_version: int = METADATA_OF_4_2,
        **options: Any,
    ) -> None:
        cluster = FakeCluster(
            {node_id: (f"host{node_id}", 9092) for node_id in range(brokers)},
            {"t": dict(enumerate(leaders))},
            features={"transaction.version": transaction_version, "metadata.version": metadata_version},
            api_versions=api_versions,
        )
        self.coordinators = {TRANSACTION: coordinator, GROUP: coordinator}
        self.producer_id, self.producer_epoch = PRODUCER_ID, -1
        self._codes: defaultdict[int, deque[int]] = defaultdict(deque)
        self._held: set[int] = set()
        for api in (*COORDINATED, PRODUCE):
            cluster.scripts[api.key] = self._script
        super().__init__(cluster=cluster, transactional_id=TRANSACTIONAL_ID, **options)
        if is_initialised:
            assert self.ok(self.init())

    # ---- user side -------------------------------------------------------------------------------------------------

    def init(self) -> int:
        return self._call(TransactionStep(self.operation_id(), TransactionEvent.INIT))

    def begin_expected(self, identity: ProducerIdentity) -> int:
        """Or starts over only, where the rules give no such identity."""
        return self._call(StartOver(self.operation_id(), TRANSACTIONAL_ID, identity))

    def begin(self) -> int:
        return self._call(TransactionStep(self.operation_id(), TransactionEvent.BEGIN))

    def commit(self) -> int:
        return self._call(TransactionStep(self.operation_id(), TransactionEvent.COMMIT))

    def abort(self) -> int:
        return self._call(TransactionStep(self.operation_id(), TransactionEvent.ABORT))

    def prepare(self) -> int:
        return self._call(TransactionStep(self.operation_id(), TransactionEvent.PREPARE))

    def resume(self, receipt: TransactionReceipt) -> int:
        return self._call(ResumeTransaction(self.operation_id(), receipt))

    def send_offsets(self, group_id: str = "readers", **fields: Any) -> int:
        return self._call(SendOffsets(self.operation_id(), ConsumerGroup(group_id, **fields), OFFSETS))

    def close(self) -> int:
        return self._call(Close(self.operation_id()))

    def _call(self, call: Any) -> int:
        self.run(call)
        return int(call.operation)

    def is_waiting(self, operation_id: int) -> bool:
        return operation_id not in self.finished

    def ok(self, operation_id: int) -> bool:
        return operation_id in self.finished and self.finished[operation_id].error is None

    def refusal_of(self, operation_id: int) -> KafkaSinkError:
        error = self.finished[operation_id].error
        assert error is not None
        return error

    def receipt_of(self, operation_id: int) -> TransactionReceipt:
        finished: Finished = self.finished[operation_id]
        assert finished.error is None and isinstance(finished.result, TransactionReceipt)
        return finished.result

    # ---- time ------------------------------------------------------------------------------------------------------

    def run_for(self, time_ms: int) -> None:
        """Lets time pass, with a step at every time at which the engine asked to be called."""
        end_ms = self.now_ms + time_ms
        while (wake_at_ms := self.engine.step(self.now_ms).wake_at_ms) is not None and wake_at_ms <= end_ms:
            self.now_ms = wake_at_ms
            self.run()
        self.now_ms = end_ms
        self.run()

    # ---- broker side -----------------------------------------------------------------------------------------------

    def fail(self, api: Api, *codes: int) -> None:
        self._codes[api.key].extend(codes)

    def hold(self, *apis: Api) -> None:
        self._held.update(api.key for api in apis)

    def release(self, *apis: Api) -> None:
        """Answers waiting requests of these APIs, and later ones again automatically."""
        for api in apis:
            self._held.discard(api.key)
            while self.cluster.pending_of(api):
                self.reply(api)

    def reply(self, api: Api, code: int = 0, throttle_ms: int = 0) -> None:
        """Answers the oldest waiting request of this API."""
        request = self.cluster.pending_of(api)[0]
        self.cluster.answer(request, {**self._body(request, code), "throttle_time_ms": throttle_ms})
        self.run()

    def names(self, *, skip: int = 0) -> list[str]:
        """The requests so far, except those for metadata and versions, without the first `skip`."""
        apart = (METADATA, API_VERSIONS)
        return [request.api.name for request in self.cluster.requests if request.api not in apart][skip:]

    def count(self, api: Api) -> int:
        return len(self.cluster.requests_of(api))

    def last(self, api: Api) -> Asked:
        return self.cluster.requests_of(api)[-1]

    def _script(self, request: Asked) -> dict[str, Any] | None:
        if request.api.key in self._held:
            return None
        codes = self._codes[request.api.key]
        return self._body(request, codes.popleft() if codes else 0)

    def _body(self, request: Asked, code: int) -> dict[str, Any]:
        body: dict[str, Any] = {"throttle_time_ms": 0, "error_code": code}
        if request.api is FIND_COORDINATOR:
            node_id = self.coordinators[request.body["key_type"]]
            host, port = self.cluster.brokers.get(node_id, ("nowhere", 1))
            return {**body, "node_id": node_id, "host": host, "port": port}
        if request.api is INIT_PRODUCER_ID:
            self.producer_epoch += code == 0
            return {**body, "producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        if request.api is END_TXN and request.version >= 5:
            self.producer_epoch += code == 0
            return {**body, "producer_id": self.producer_id, "producer_epoch": self.producer_epoch}
        if request.api is ADD_PARTITIONS_TO_TXN:
            return {"results_by_topic_v3_and_below": registered(request, {}, code)}
        if request.api is TXN_OFFSET_COMMIT:
            topics = request.body["topics"]
            return {
                "topics": [{"name": topic["name"], "partitions": _rows(topic["partitions"], code)} for topic in topics]
            }
        return self._produced(request, code) if request.api is PRODUCE else body

    def _produced(self, request: Asked, code: int) -> dict[str, Any]:
        topics = [
            {
                **{key: topic[key] for key in ("name", "topic_id") if key in topic},
                "partition_responses": [
                    {"index": partition["index"], "error_code": code, "base_offset": -1 if code else 0}
                    for partition in topic["partition_data"]
                ],
            }
            for topic in request.body["topic_data"]
        ]
        return {"responses": topics, "node_endpoints": [], "throttle_time_ms": 0}


def registered(request: Asked, codes: Mapping[int, int], default: int = 0) -> list[dict[str, Any]]:
    """The answer to an AddPartitionsToTxn, with a code for each partition."""
    return [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": codes.get(index, default)}
                for index in topic["partitions"]
            ],
        }
        for topic in request.body["v3_and_below_topics"]
    ]


def _rows(partitions: list[dict[str, Any]], code: int) -> list[dict[str, Any]]:
    return [{"partition_index": partition["partition_index"], "error_code": code} for partition in partitions]


def started(transaction_version: int, **options: Any) -> TransactionDriver:
    """A producer with a transaction in which one batch is in the log."""
    driver = TransactionDriver(transaction_version, **options)
    assert driver.ok(driver.begin())
    batch = driver.send()
    assert batch in driver.delivered
    return driver
