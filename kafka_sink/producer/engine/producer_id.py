"""The producer id of an idempotent producer without transactions: requested once, and again when its epochs run out.

Any broker assigns one. Until then batches have no sequences, so nothing is sent.
"""

from __future__ import annotations

from kafka_sink.errors import AuthorizationError, BrokerError, KafkaSinkError, RemoteProtocolError, TransportError
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.outcome import CoordinatorOutcome, coordinator_outcome, describe
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import INIT_PRODUCER_ID
from kafka_sink.producer.engine.producer_batch import ProducerIdentity

# There is no transaction to time out, but the field needs a value.
NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class ProducerIdSource:
    def __init__(self, request_timeout_ms: int, backoff: Backoff) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        self._is_waiting = False
        self._failures = 0
        self.retry_at_ms = 0
        # Why the request is refused for good; the producer has failed.
        self.fatal_error: KafkaSinkError | None = None

    def is_due(self, now_ms: int) -> bool:
        return not self._is_waiting and now_ms >= self.retry_at_ms and self.fatal_error is None

    def make_request(self) -> Request:
        self._is_waiting = True
        return Request(
            api=INIT_PRODUCER_ID,
            body={"transactional_id": None, "transaction_timeout_ms": NO_TRANSACTION_TIMEOUT_MS},
            purpose=self,
            timeout_ms=self._request_timeout_ms,
        )

    def on_answer(self, now_ms: int, answer: Answer) -> ProducerIdentity | None:
        self._is_waiting = False
        if answer.failure is not None:
            if isinstance(answer.failure, (TransportError, RemoteProtocolError)):
                self._repeat_later(now_ms)
            else:
                self.fatal_error = answer.failure
            return None
        assert answer.body is not None
        error_code = answer.body["error_code"]
        outcome = coordinator_outcome(INIT_PRODUCER_ID.key, error_code)
        if outcome is CoordinatorOutcome.DONE:
            self._failures = 0
            return ProducerIdentity(answer.body["producer_id"], answer.body["producer_epoch"])
        text = f"no producer id: InitProducerId was answered with {describe(error_code)}"
        if outcome is CoordinatorOutcome.UNAUTHORIZED:
            self.fatal_error = AuthorizationError(
                f"{text}. The principal needs IdempotentWrite on the cluster (brokers before 2.8) or Write on a topic, "
                "or set enable.idempotence=false"
            )
        elif outcome in (CoordinatorOutcome.FATAL, CoordinatorOutcome.FENCED, CoordinatorOutcome.ABORT):
            self.fatal_error = BrokerError(text, code=error_code, api=INIT_PRODUCER_ID.name)
        else:
            self._repeat_later(now_ms)
        return None

    def _repeat_later(self, now_ms: int) -> None:
        self._failures += 1
        self.retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)
