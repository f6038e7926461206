"""What tests of the admin client share: a client, a machine that sends requests once, prepared transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from kafka_sink import Producer, TransactionReceipt
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.commit_step import Progress
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.ask import Ask, Reply, Target
from kafka_sink.kafka.wire.apis import Api
from kafka_sink.options.parse import parse_producer_options

TIMEOUT_MS = 20_000
LIST_BODY: Mapping[str, Any] = {"state_filters": [], "producer_id_filters": []}
_keys = count()


def client_of(servers: str, **options: object) -> Client:
    named = {name.replace("_", "."): options[name] for name in options}
    return Client(parse_producer_options({"bootstrap.servers": servers, **named}))


def said(options: Mapping[str, Any], limit_ms: int = 90_000) -> KafkaSinkError:
    """The error of a client that cannot reach a cluster with these options."""
    with Client(parse_producer_options({**options, "max.block.ms": limit_ms})) as client:
        with pytest.raises(KafkaSinkError) as caught:
            client.reach()
        return caught.value


def request(target: Target, api: Api, body: Mapping[str, Any], **more: Any) -> Ask:
    find_again = more.pop("find_again", False)
    ask = Ask(target, api, body, **{"purpose": "test", "number": next(_keys), "timeout_ms": TIMEOUT_MS, **more})
    ask.find_again = find_again
    return ask


@dataclass
class Once:
    """Sends all requests at once. The verdict is the first `wanted_count` answers, or all, in order of arrival."""

    asks: Sequence[Ask]
    wanted_count: int | None = None
    replies: dict[Ask, Reply] = field(default_factory=dict)
    has_asked: bool = False

    def step(self, now_ms: int, replies: Sequence[Reply]) -> Progress[dict[Ask, Reply]]:
        for reply in replies:
            assert reply.ask not in self.replies, "answered twice"
            self.replies[reply.ask] = reply
        if not self.has_asked:
            self.has_asked = True
            return Progress(self.asks)
        is_over = len(self.replies) == (self.wanted_count or len(self.asks))
        return Progress((), None, self.replies if is_over else None)


def answers_to(client: Client, *asks: Ask) -> list[Reply]:
    replies = client.run(Once(asks))
    return [replies[one] for one in asks]


def prepared(
    servers: str, transactional_id: str, topic: str, *values: bytes, timeout_ms: int = 60_000
) -> TransactionReceipt:
    options = {
        "bootstrap.servers": servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
    }
    with Producer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value=value)
        return producer.prepare_transaction()


def end_body(receipt: TransactionReceipt, *, commit: bool = True) -> dict[str, Any]:
    return {
        "transactional_id": receipt.transactional_id,
        "producer_id": receipt.producer_id,
        "producer_epoch": receipt.producer_epoch,
        "committed": commit,
    }


def end_versions(receipt: TransactionReceipt) -> dict[str, int]:
    return (
        {"version_min": 5, "version_max": 5}
        if receipt.transaction_version == 2
        else {"version_min": 0, "version_max": 4}
    )


def listed_ids(bodies: Sequence[Mapping[str, Any]]) -> set[str]:
    return {row["transactional_id"] for body in bodies for row in body["transaction_states"]}


def described(bodies: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {row["transactional_id"]: row["transaction_state"] for body in bodies for row in body["transaction_states"]}
