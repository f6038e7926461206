"""The record that closes a decision after its commit: what writes it, without I/O, and how tests wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_sink.commit.commit_step import CommitStep, Progress, SingleStep
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_write import LedgerWrite
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.session import DeliverySettings, DriverSession
from kafka_sink.kafka.client.ask import Reply
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from tests.support.asking import client_of
from tools.waiting import wait_until


class Closing:
    # As if the commit were still going on: for what happens at a step of a phase.
    phase = Phase.RECORDING

    def __init__(self, settings: DeliverySettings, session: DriverSession, record: LedgerRecord, now_ms: int) -> None:
        self.write = LedgerWrite(settings, session, record)
        self._single = SingleStep(self.write, now_ms + settings.patience_ms)

    def step(self, now_ms: int, replies: Sequence[Reply] = ()) -> Progress[LedgerWrite]:
        return self._single.step(now_ms, replies)

    def steps(self) -> Iterator[CommitStep]:
        yield self.write


def open_decisions(servers: str, sink_id: str | None = None, ledger_topic: str = DEFAULT_LEDGER) -> list[str]:
    """Of a sink, with those of its queries, or of all, by ledger key: decisions whose closing record is not there."""
    with client_of(servers) as client:
        client.reach()
        found = client.run_step(LedgerListing(DeliverySettings(ledger_topic=ledger_topic), sink_id)).listed
    return [each.ledger_key for each in found or () if each.record is not None and each.record.kind is Kind.INTENT]


def wait_until_closed(servers: str, sink_id: str | None = None, ledger_topic: str = DEFAULT_LEDGER) -> None:
    """A stream's batch is delivered some moments before."""
    wait_until(lambda: not open_decisions(servers, sink_id, ledger_topic), "every decision is closed")
