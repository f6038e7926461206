"""`recover --all` says what it could not find out, and never that all is well then."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.admin.support import TransactionSupport
from kafka_sink.commit.command_texts import BrokerArguments, CommandTexts
from kafka_sink.errors import AuthenticationError, BrokerError, ConfigError, KafkaSinkError, OperationTimeout
from kafka_sink.operate.cli.recover_all import recover_all
from kafka_sink.operate.cli.report import DONE, REFUSED, Report
from kafka_sink.options.sink_options import DEFAULT_LEDGER

BROKERS = BrokerArguments(("--bootstrap-server", "b:9092"), "")
OTHER = "orders-ledger"
SILENT, FORBIDDEN = OperationTimeout(f"{OTHER}-0: no broker has answered"), BrokerError("no", code=29, api="Fetch")
DAMAGED = BrokerError(f"{OTHER}-0: CORRUPT_MESSAGE", code=2, api="Fetch")


class TwoTopics:
    """Two compacted topics with one partition: the default ledger, which is empty, and one that is to be looked into,
    whose Fetch, or the description of it, fails."""

    options = SimpleNamespace(request_timeout_ms=1_000, max_block_ms=1_000)

    def __init__(self, fetch: KafkaSinkError | None, config_error: int = 0, *, names: tuple[str, ...]) -> None:
        self.fetch, self.config_error, self.names = fetch, config_error, names

    def now_ms(self) -> int:
        return 0

    def ask_metadata(self, _body: object) -> Mapping[str, Any]:
        more = {"error_code": 0, "is_internal": False, "partitions": [{"partition_index": 0, "leader_id": 1}]}
        return {"topics": [{"name": name, **more} for name in self.names]}

    def ask(self, _target: object, api: Any, body: Mapping[str, Any], **_more: object) -> Mapping[str, Any]:
        if api.name == "DescribeConfigs":
            asked = {"resource_type": 2, "resource_name": body["resources"][0]["resource_name"]}
            value = {"name": "cleanup.policy", "value": "compact"}
            return {"results": [{**asked, "error_code": self.config_error, "configs": [value]}]}
        if api.name == "ListOffsets":
            offset = 5 if body["topics"][0]["partitions"][0]["timestamp"] == -1 else 0
            return {"topics": [{"partitions": [{"error_code": 0, "offset": offset}]}]}
        assert api.name == "Fetch" and self.fetch is not None
        raise self.fetch

    def transaction_support(self) -> TransactionSupport:
        return TransactionSupport(2, True)

    def cluster_id(self) -> str:
        return "here"

    def run_step(self, step: Any) -> Any:
        step.listed = []
        return step


def recover(client: TwoTopics) -> Report:
    sink: Any = SimpleNamespace(
        client=client, ledger_topic=DEFAULT_LEDGER, commands=CommandTexts(BROKERS), use_ledger=lambda topic: None
    )
    return recover_all(sink, argparse.Namespace(timeout=1))


@pytest.mark.parametrize("why", [SILENT, DAMAGED])
def test_a_topic_that_may_be_a_ledger_and_was_not_read_is_told_and_no_success(why: KafkaSinkError) -> None:
    report = recover(TwoTopics(why, names=(DEFAULT_LEDGER, OTHER)))
    note = f"whether {OTHER} is a ledger is not known: {why}"
    assert report.exit_code == REFUSED
    assert report.content["notes"] == [note] and report.lines[-1] == note
    assert report.content["ledgers"] == [DEFAULT_LEDGER]


def test_a_topic_whose_configuration_was_refused_may_be_a_ledger() -> None:
    report = recover(TwoTopics(None, 44, names=(DEFAULT_LEDGER, OTHER)))
    assert report.exit_code == REFUSED and report.lines[-1].startswith(f"whether {OTHER} is a ledger is not known")


@pytest.mark.parametrize("client", [
    TwoTopics(FORBIDDEN, names=(DEFAULT_LEDGER, OTHER)),
    # It was deleted meanwhile.
    TwoTopics(None, 3, names=(DEFAULT_LEDGER, OTHER)),
    TwoTopics(None, names=(DEFAULT_LEDGER,)),
])  # fmt: skip
def test_what_this_principal_may_not_read_and_what_is_not_there_is_no_ledger(client: TwoTopics) -> None:
    report = recover(client)
    assert report.exit_code == DONE and report.content["notes"] == []


def test_credentials_that_are_refused_are_not_tried_for_one_topic_after_the_other() -> None:
    with pytest.raises(AuthenticationError):
        recover(TwoTopics(AuthenticationError("no"), names=(DEFAULT_LEDGER, OTHER)))


def test_where_no_ledger_was_found_the_reason_is_told_too() -> None:
    with pytest.raises(ConfigError) as raised:
        recover(TwoTopics(SILENT, names=(OTHER,)))
    assert str(SILENT) in str(raised.value)
