"""What brokers list as open, for any kind of test."""

from __future__ import annotations

from contextlib import suppress

from kafka_sink.commit.admin.client import Client
from kafka_sink.kafka.client.ask import AllBrokers
from kafka_sink.kafka.wire.apis import LIST_TRANSACTIONS
from tests.support.asking import answers_to, client_of, request
from tools.waiting import wait_until


def open_transactions(servers: str, sink_id: str, patience_s: float = 10) -> list[str]:
    """Transactions of this sink that are neither committed nor aborted, as listed by all brokers. The markers of one
    that has just ended take a moment; with `patience_s` of 0 such a transaction counts as open."""
    with client_of(servers) as client:
        with suppress(TimeoutError):
            wait_until(lambda: not _listed(client, f"{sink_id}-"), "nothing is open", patience_s)
        return _listed(client, f"{sink_id}-")


def _listed(client: Client, prefix: str) -> list[str]:
    body = {"state_filters": ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"]}
    (answer,) = answers_to(client, request(AllBrokers(), LIST_TRANSACTIONS, {**body, "producer_id_filters": []}))
    states = [state for body in answer.bodies for state in body["transaction_states"]]
    return sorted(
        f"{state['transactional_id']} {state['transaction_state']}"
        for state in states
        if state["transactional_id"].startswith(prefix)
    )
