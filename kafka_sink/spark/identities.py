"""Transactional ids that this process has used before: when an attempt may reuse one, and when it returns its own.

The rules are in commit/identity_pool.py; this has the pool of the process and the request to the coordinator. A
forked child starts without both: the ids are its parent's. A worker process runs one task at a time: one thread is
assumed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafka_sink.commit.identity_pool import IdentityPool, is_over
from kafka_sink.commit.receipt import PreparedTransaction
from kafka_sink.errors import KafkaSinkError
from kafka_sink.options import ProducerOptions

if TYPE_CHECKING:
    from kafka_sink.commit.admin.client_pool import ClientPool

# After this time a new id is the better choice.
ASK_TIMEOUT_MS = 2_000
# One per configuration.
CLIENTS_MAX = 4


class Identities:
    def __init__(self) -> None:
        self.pool = IdentityPool()
        self._clients: ClientPool | None = None

    def ask_if_ended(self, options: ProducerOptions, transaction: PreparedTransaction) -> bool:
        """The coordinator is asked; False also if it does not know."""
        from kafka_sink.commit.admin.client_pool import ClientPool
        from kafka_sink.kafka.client.ask import Coordinator, Repeat
        from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS

        target, body = Coordinator(transaction.transactional_id), {"transactional_ids": [transaction.transactional_id]}
        if self._clients is None:
            self._clients = ClientPool(CLIENTS_MAX)
        try:
            with self._clients.borrow(options) as client:
                answer = client.ask(
                    target, DESCRIBE_TRANSACTIONS, body, timeout_ms=ASK_TIMEOUT_MS, repeat=Repeat.ALWAYS
                )
        except KafkaSinkError:
            return False
        return any(is_over(transaction, state) for state in answer["transaction_states"])

    def close(self) -> None:
        if self._clients is not None:
            self._clients.close()
        self.forget()

    def forget(self) -> None:
        self.pool, self._clients = IdentityPool(), None


# The instance of this process.
IDENTITIES = Identities()

os.register_at_fork(after_in_child=IDENTITIES.forget)
