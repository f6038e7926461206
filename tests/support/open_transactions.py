"""What brokers list as open, for any kind of test."""

from __future__ import annotations

from contextlib import suppress

from kafka_sink.commit.admin.client import Client
from tests.support.asking import client_of
from tools.listed_transactions import listed_transactions
from tools.waiting import wait_until


def open_transactions(servers: str, sink_id: str, patience_s: float = 10) -> list[str]:
    """Transactions of this sink that are neither committed nor aborted, as listed by all brokers. The markers of one
    that has just ended take a moment; with `patience_s` of 0 such a transaction counts as open."""
    with client_of(servers) as client:
        with suppress(TimeoutError):
            wait_until(lambda: not _listed(client, f"{sink_id}-"), "nothing is open", patience_s)
        return _listed(client, f"{sink_id}-")


def _listed(client: Client, prefix: str) -> list[str]:
    rows = listed_transactions(client, "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
    return sorted(
        f"{row['transactional_id']} {row['transaction_state']}"
        for row in rows
        if row["transactional_id"].startswith(prefix)
    )
