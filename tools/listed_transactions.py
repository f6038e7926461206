"""The transactions that brokers list, for judges: an answer that is missing, or that is an error, is no empty list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.commit.admin.asking import Bodies
from kafka_sink.commit.admin.client import Client
from kafka_sink.errors import BrokerError
from kafka_sink.kafka.client.ask import AllBrokers, Repeat
from kafka_sink.kafka.wire.apis import LIST_TRANSACTIONS
from kafka_sink.kafka.wire.codes import code

TIMEOUT_MS = 90_000


def listed_transactions(client: Client, *states: str, timeout_ms: int = TIMEOUT_MS) -> list[Mapping[str, Any]]:
    """Those in these states, or all. Asks again until each broker of the cluster has answered without an error, as a
    coordinator that loads its log does not; raises if that takes too long."""
    body = {"state_filters": list(states), "producer_id_filters": []}
    bodies = client.ask_all(
        AllBrokers(), LIST_TRANSACTIONS, body, timeout_ms=timeout_ms, repeat=Repeat.ALWAYS, lacks=_error_of_one
    )
    return [row for answer in bodies for row in answer["transaction_states"]]


def _error_of_one(bodies: Bodies) -> BrokerError | None:
    error_code = next((body["error_code"] for body in bodies if body["error_code"]), 0)
    if not error_code:
        return None
    name = LIST_TRANSACTIONS.name
    return BrokerError(f"{name} was answered with {code(error_code).name}", code=error_code, api=name)
