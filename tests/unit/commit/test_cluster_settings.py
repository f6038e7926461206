"""Whoever reads a ledger reads it as the driver does: by what the brokers of this cluster report."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import kafka_sink
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.cluster_settings import settings_of_operator
from kafka_sink.commit.admin.support import TransactionSupport
from kafka_sink.commit.command_texts import UNKNOWN_BROKERS
from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.replay_progress import ReplayProgress, encode_progress
from kafka_sink.commit.session import Conclusion, DeliverySettings
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.operate.checks.finding import OK, ProbeResult
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.ledger import decisions
from kafka_sink.operate.cli.arguments import DEFAULT_TIMEOUT_S, parse_arguments
from kafka_sink.operate.cli.replay import ReplaySession
from kafka_sink.options.parse_sink import parse_sink_options
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import END, SINK, Bench, stop_before

SERVERS, WAIT_MS = "b:9092", 60_000
NAME = "again"


class BenchClient:
    """Kafka 4.0.0: a fence, or a time-out, raises the epoch twice."""

    options = SimpleNamespace(request_timeout_ms=30_000, max_block_ms=WAIT_MS)

    def __init__(self) -> None:
        self.bench = Bench(transaction_version=2)
        self.bench.broker.fence_raises = 2

    def transaction_support(self, *, is_sweeping: bool = True) -> TransactionSupport:
        return TransactionSupport(2, True, fence_raises_max=2)

    def cluster_id(self) -> str:
        return "here"

    def run_step(self, step: Any) -> Any:
        return self.bench.drive(SingleStep(step, self.bench.now_ms + WAIT_MS))


def write_progress(bench: Bench, written_count: int, *, commit: bool) -> None:
    broker = bench.broker
    code, producer_id, epoch = broker.init(NAME, None)
    while code:
        bench.settle()
        code, producer_id, epoch = broker.init(NAME, None)
    progress = ReplayProgress(NAME, "dead", "", "orders", {}, {0: written_count}, written_count)
    batch = encode_batch([Record(0, progress.ledger_key.encode(), encode_progress(progress))], make_compressor("none"))
    header = seal(batch, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True)
    broker._produce(NAME, (LEDGER, 0), producer_id, epoch, header + batch.payload)
    if commit:
        broker.end(NAME, producer_id, epoch, commit=True, is_first=False)
    else:
        broker.time_out(NAME)
    bench.settle()


def test_a_replay_goes_on_behind_its_last_committed_letters_and_not_behind_aborted_ones() -> None:
    client: Any = BenchClient()
    write_progress(client.bench, 100, commit=True)
    write_progress(client.bench, 200, commit=False)
    words = ("--bootstrap-server", SERVERS, "--ledger-topic", LEDGER, "--name", NAME)
    session = ReplaySession(parse_arguments(("replay", "--from", "dead", "--to", "orders", *words)))
    session.client = client
    claim_offset = len(client.bench.broker.logs[LEDGER, 0]) - 1
    for found in (session.list_replays(), session.list_replays(claim_offset)):
        assert found[NAME].next_offsets == {0: 100}


def list_checked(client: Any) -> list[ProbeResult]:
    settings = {"kafka.bootstrap.servers": SERVERS, "topic": "t", "sink.id": SINK, "ledger.topic": LEDGER}
    return list(decisions(CheckedJob(settings, parse_sink_options(settings)), client))


def test_a_check_takes_no_draft_that_was_aborted_for_an_open_decision() -> None:
    client: Any = BenchClient()
    bench = client.bench
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    bench.settle()
    stop_before(bench, END, bench.receipts(1), session)
    bench.broker.time_out(f"{SINK}-driver")
    bench.settle()
    assert [(each.verdict, each.text) for each in list_checked(client)] == [(OK, "1 of sink sink, none open")]


def test_settings_are_made_in_one_place() -> None:
    root = Path(kafka_sink.__file__).parent
    makers = [path.name for path in sorted(root.rglob("*.py")) if "DeliverySettings(" in path.read_text("utf-8")]
    assert makers == ["cluster_settings.py"]


def test_a_command_in_its_usual_time_comes_to_an_end_with_a_decision_whose_topic_is_gone() -> None:
    """Before a log counts as gone, brokers must have said so for a while, whatever time the command has."""

    def settings_in(patience_s: float) -> DeliverySettings:
        return settings_of_operator(cast(Client, BenchClient()), LEDGER, UNKNOWN_BROKERS, int(patience_s * 1000))

    usual = settings_in(DEFAULT_TIMEOUT_S)
    assert usual.short_log_ms < usual.patience_ms
    assert settings_in(1).short_log_ms == usual.short_log_ms
    assert settings_in(600).short_log_ms == DeliverySettings().short_log_ms
