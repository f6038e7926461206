"""The judge of many tests, "nothing is open", against brokers that do not answer it or refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_sink import Producer
from kafka_sink.errors import BrokerError, TransportError
from kafka_sink.testing import EmbeddedBroker, Fault
from tests.support.asking import client_of
from tests.support.open_transactions import open_transactions
from tools.listed_transactions import listed_transactions

LOADING = 14  # COORDINATOR_LOAD_IN_PROGRESS
pytestmark = pytest.mark.embedded_kafka(2, topics={"rows": 1})


@pytest.fixture
def servers(broker: EmbeddedBroker) -> Iterator[str]:
    """A transaction of the sink "orders" is open."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "orders-1"}
    with Producer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("rows", value=b"x").result(60)
        yield broker.bootstrap_servers


@pytest.mark.parametrize("broker_id", [1, 2])
@pytest.mark.parametrize(
    "fault", [{"error_code": LOADING}, {"disconnect": True}], ids=["a coordinator that loads", "a lost answer"]
)
def test_what_is_open_is_seen_over_answers_that_do_not_tell(
    broker: EmbeddedBroker, servers: str, fault: dict[str, Any], broker_id: int
) -> None:
    broker.inject(Fault(api="ListTransactions", broker_id=broker_id, times=3, **fault))
    assert open_transactions(servers, "orders", patience_s=0) == ["orders-1 Ongoing"]
    assert open_transactions(servers, "others") == []


@pytest.mark.parametrize("broker_id", [1, 2])
@pytest.mark.parametrize(
    ("fault", "error"),
    [({"error_code": LOADING}, BrokerError), ({"disconnect": True}, TransportError)],
    ids=["refused", "unanswered"],
)
def test_no_answer_is_no_verdict(
    broker: EmbeddedBroker, servers: str, fault: dict[str, Any], error: type[Exception], broker_id: int
) -> None:
    broker.inject(Fault(api="ListTransactions", broker_id=broker_id, times=None, **fault))
    with client_of(servers) as client, pytest.raises(error):
        listed_transactions(client, timeout_ms=1_500)
