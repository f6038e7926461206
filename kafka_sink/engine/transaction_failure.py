"""Errors for requests that coordinators refuse: request, response, what it means, what to do.

It only makes the texts. The effect of a code on the transaction is decided by `outcome` and passed in.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.client.outcome import CoordinatorVerdict, describe
from kafka_sink.errors import AuthorizationError, BrokerError, KafkaSinkError, ProducerFenced
from kafka_sink.wire.apis import TXN_OFFSET_COMMIT, Api

TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_TXN_STATE, INVALID_TRANSACTION_TIMEOUT = 29, 30, 48, 50


def coordinator_error(
    api: Api,
    error_code: int,
    verdict: CoordinatorVerdict,
    *,
    transactional_id: str,
    transaction_timeout_ms: int,
    is_commit: bool,
    topics: Sequence[str],
    group_id: str,
) -> KafkaSinkError:
    who = f"transactional id {transactional_id!r}"
    answer = f"{api.name} was answered with {describe(error_code)}"
    if verdict is CoordinatorVerdict.FENCED:
        doubt = ". If an earlier try to commit stayed without an answer, the transaction may have been committed by it"
        return ProducerFenced(
            f"{who}: another producer took it over, or the transaction was open for longer than "
            f"transaction.timeout.ms and was aborted by the broker ({answer}). Nothing more can be sent; make a new "
            f"producer if no other one is running{doubt if is_commit else ''}"
        )
    if verdict is CoordinatorVerdict.UNAUTHORIZED:
        return AuthorizationError(f"{who}: {answer}. The principal needs Write and Describe on this TransactionalId")
    if error_code == GROUP_AUTHORIZATION_FAILED:
        return AuthorizationError(f"{who}: {answer}. The principal needs Read on group {group_id!r}")
    if error_code == TOPIC_AUTHORIZATION_FAILED:
        operation = "Read" if api is TXN_OFFSET_COMMIT else "Write"
        names = ", ".join(f"topic {topic!r}" for topic in topics)
        return AuthorizationError(f"{who}: {answer}. The principal needs {operation} on {names}")
    if error_code == INVALID_TXN_STATE and is_commit:
        # Brokers with transaction.version 2 answer this for a transaction that they aborted, if nothing was sent since.
        answer = (
            f"the broker has no open transaction to commit. Most likely it was open for longer than "
            f"transaction.timeout.ms={transaction_timeout_ms} and was aborted by the broker ({answer}). Nothing more "
            "can be sent; make a new producer"
        )
    if error_code == INVALID_TRANSACTION_TIMEOUT:
        answer = (
            f"transaction.timeout.ms={transaction_timeout_ms} is more than the brokers allow; lower it, or raise "
            "transaction.max.timeout.ms of the brokers (900000 by default). A query of Spark that does not set it uses "
            f"the brokers' limit after a restart ({answer})"
        )
    return BrokerError(f"{who}: {answer}", code=error_code, api=api.name)
