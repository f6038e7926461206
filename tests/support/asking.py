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
from kafka_sink.kafka.client.admin_request import AdminRequest, AdminResponse, RequestKey, Target
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


def request(target: Target, api: Api, body: Mapping[str, Any], **more: Any) -> AdminRequest:
    return AdminRequest(target, api, body, **{"timeout_ms": TIMEOUT_MS, "key": RequestKey("test", next(_keys)), **more})


@dataclass
class Once:
    """Sends all requests at once. The verdict is the first `wanted_count` answers, or all, in order of arrival."""

    requests: Sequence[AdminRequest]
    wanted_count: int | None = None
    answers: dict[RequestKey, AdminResponse] = field(default_factory=dict)
    has_asked: bool = False

    def step(self, now_ms: int, answers: Sequence[AdminResponse]) -> Progress[dict[RequestKey, AdminResponse]]:
        for answer in answers:
            assert answer.key not in self.answers, "answered twice"
            self.answers[answer.key] = answer
        if not self.has_asked:
            self.has_asked = True
            return Progress(self.requests)
        return Progress(
            (), None, self.answers if len(self.answers) == (self.wanted_count or len(self.requests)) else None
        )


def answers_to(client: Client, *requests: AdminRequest) -> list[AdminResponse]:
    answers = client.run(Once(requests))
    return [answers[one.key] for one in requests]


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
