"""The session of an operator's command: a client of the cluster, the settings, and the sink.

A command that changes something acts as the driver of the sink, with the state machines of commit/. Nothing is
decided here.
"""

from __future__ import annotations

import argparse
import difflib
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from kafka_sink.commit.admin.broker_clock import BrokersTime, brokers_time, controller_difference
from kafka_sink.commit.admin.client import Client, topic_query
from kafka_sink.commit.admin.cluster_settings import settings_of_operator
from kafka_sink.commit.admin.topics import topic_state
from kafka_sink.commit.command_texts import CommandTexts
from kafka_sink.commit.commit_step import SingleStep, StepT
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.describe_transactions import DescribeTransactions, TransactionDescription
from kafka_sink.commit.each_line import carry_out, lines_of, operate_each_line
from kafka_sink.commit.identity import Line, sink_id_of_checkpoint
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.listing import LedgerListing, Listed, LogEnds, NotAnswered, TransactionListing
from kafka_sink.commit.open_decisions import OpenDecision, Standing, ask_rows, describe_open, judge_open
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import CommitResult, DeliverySettings, DriverOperation, DriverSession, Job
from kafka_sink.commit.set_aside import SetAside
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import NO_LEDGER, NO_SUCH_SINK
from kafka_sink.kafka.client.outcome import describe_answer
from kafka_sink.kafka.wire.apis import METADATA, ONGOING
from kafka_sink.operate.cli.brokers import chosen_ledger, given_brokers, producer_options
from kafka_sink.operate.status.collect import DESCRIBE_LIMIT_MS
from kafka_sink.options import ProducerOptions
from kafka_sink.options.sink_table import SINK_ID
from kafka_sink.options.values import TOPIC_NAME

LOOK_AGAIN_S = 0.05


class ClusterSession:
    """A client that asks for as long as --timeout says."""

    def __init__(self, given: argparse.Namespace, options: ProducerOptions) -> None:
        self.ledger_topic = TOPIC_NAME.parse("--ledger-topic", chosen_ledger(given))
        self.options = options
        self._patience_ms: int = given.timeout * 1000
        self.client = Client(replace(options, max_block_ms=self._patience_ms))

    def close(self) -> None:
        self.client.close()

    def run_step(self, step: StepT, what: str) -> StepT:
        finished = self.client.run_step(step)
        if finished.failure is not None:
            raise NotAnswered(f"{what} was not available: {finished.failure}")
        return finished


class SinkClient(ClusterSession):
    def __init__(self, given: argparse.Namespace) -> None:
        self.sink_id: str | None = None
        self._brokers = given_brokers(given)
        if given.checkpoint is not None:
            self.sink_id = sink_id_of_checkpoint(given.checkpoint)
        elif given.sink_id is not None:
            self.sink_id = SINK_ID.parse("--sink-id", given.sink_id)
        options = producer_options(given)
        # If a broker accepts a request but does not answer, there must be time to try another one.
        request_ms = min(options.request_timeout_ms, given.timeout * 1000 // 2)
        super().__init__(given, replace(options, request_timeout_ms=request_ms))
        self._known_settings: DeliverySettings | None = None

    @property
    def named_sink(self) -> str:
        assert self.sink_id is not None, "the parser of the command line asks for it"
        return self.sink_id

    @property
    def commands(self) -> CommandTexts:
        return CommandTexts(self._brokers, self.ledger_topic)

    def use_ledger(self, topic: str) -> None:
        """From now on, of this cluster's ledgers."""
        self.ledger_topic = topic
        self._known_settings = None

    @property
    def wall_ms(self) -> int:
        """By the brokers' clocks, if they tell the time."""
        return self.brokers_time().at_ms

    @cached_property
    def _told_ms(self) -> int | None:
        """How far the brokers' clock is ahead of this one, if they tell."""
        return controller_difference(self.client, min(self._patience_ms, DESCRIBE_LIMIT_MS))

    def brokers_time(self, found: Iterable[TransactionDescription] = ()) -> BrokersTime:
        """`found`: open transactions."""
        return brokers_time(self._told_ms, [one.start_ms for one in found], int(time.time() * 1000))

    # ---- reading ---------------------------------------------------------------------------------------------------

    def look_for_ledger(self) -> bool:
        self.client.reach(self._patience_ms)
        return topic_state(self.client, self.ledger_topic) is not None

    def check_ledger(self) -> None:
        if not self.look_for_ledger():
            raise ConfigError(
                f"there is no ledger topic {self.ledger_topic} in this cluster: no sink has kept decisions under that "
                "name. Compare --bootstrap-server and --ledger-topic with the options of the query",
                NO_LEDGER,
            )

    def list_decisions(self) -> list[Listed]:
        """Decisions of the given sink, or of all."""
        return self._list_decisions_of(self.sink_id)

    def _list_decisions_of(self, sink_id: str | None) -> list[Listed]:
        listing = self.run_step(LedgerListing(self.settings(), sink_id), "the ledger")
        assert listing.listed is not None
        return listing.listed

    def known_decisions(self, *, needs_decision: bool = True) -> list[Listed]:
        """Like `list_decisions`. Nothing may be reported as fine for a missing ledger or a misspelled sink; without
        `needs_decision` a sink is known that has not decided anything, because its first commit failed."""
        self.check_ledger()
        found = self.list_decisions()
        if found or self.sink_id is None or (not needs_decision and self._look_for_driver(self.sink_id)):
            return found
        known = sorted({each.sink_id for each in self._list_decisions_of(None)})
        nearest = difflib.get_close_matches(self.named_sink, known, 1)
        hint = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ConfigError(
            f"the ledger {self.ledger_topic} has no record of sink {self.named_sink}{hint}. `{self.commands.ledger()}` "
            f"shows those that it knows{self.commands.hint}",
            NO_SUCH_SINK,
        )

    def _look_for_driver(self, sink_id: str) -> bool:
        """A driver claims its ledger before it decides anything."""
        state = self.run_step(LedgerRead(self.settings(), sink_id), "the ledger").state
        return state is not None and bool(state.claims)

    def check_ledger_is_theirs(self) -> None:
        """Before transactions without a decision are aborted: this ledger must be the one that would contain the
        decision. A driver claims its ledger before it decides anything, so the driver of a line that is known to the
        brokers but not to this ledger has another one. A line that never had a driver has no decisions."""
        of_line = {line: one for one in self.list_open_transactions().found for line in lines_of([one])}
        known = self.run_step(LedgerListing(self.settings(), self.sink_id), "the ledger").lines
        known_sinks = {line.sink_id for line in known}
        for line in sorted(of_line.keys() - known):
            is_known_sink = line.sink_id in known_sinks
            # Earlier releases had one driver for all lines of a sink.
            own = {line} if is_known_sink else {line, Line(line.sink_id)}
            drivers = DescribeTransactions(self.settings(), [each.driver_id for each in sorted(own)])
            if self.run_step(drivers, "the ids of the sink's drivers").found:
                about = f" about the batch.id of {of_line[line].transactional_id}" if is_known_sink else ""
                raise ConfigError(
                    f"the ledger {self.ledger_topic} has no record of sink {line.sink_id}{about}, but the brokers know "
                    "a driver of it: its decisions are in another ledger, or this ledger was emptied. Open "
                    "transactions may be decided. Nothing was aborted. Compare --ledger-topic with the option "
                    "ledger.topic of the query",
                    NO_SUCH_SINK,
                )

    def judge_open(self, found: list[Listed]) -> tuple[list[Listed], dict[str, OpenDecision]]:
        """How the open decisions among these stand, by ledger key. A query may close one between the two questions, and
        use its transactions again: what looks overdue is read once more."""
        judged = self.standings_of(found)
        if any(each.standing is Standing.OVERDUE for each in judged.values()):
            again = self.list_decisions()
            if again != found:
                return again, self.standings_of(again)
        return found, judged

    def standings_of(self, found: Sequence[Listed]) -> dict[str, OpenDecision]:
        intents = [(each.ledger_key, each.record) for each in found if each.record and each.record.kind is Kind.INTENT]
        elsewhere = [(key, record) for key, record in intents if self.ask_if_elsewhere(record)]
        judged = {key: OpenDecision(record, Standing.UNKNOWN) for key, record in elsewhere}
        own = [(key, record) for key, record in intents if key not in judged]
        if own:
            records = [record for _, record in own]
            question = describe_open(self.settings(), records)
            limit_ms = min(self._patience_ms, DESCRIBE_LIMIT_MS)
            answer = self.client.run(SingleStep(question, self.client.now_ms() + limit_ms))
            at_ms = self.brokers_time(one for one in answer.found.values() if one.state == ONGOING).at_ms
            rows = ask_rows(self.settings(), answer, records)
            seen = self.client.run(SingleStep(rows, self.client.now_ms() + limit_ms)).outcomes
            judged |= zip((key for key, _ in own), judge_open(answer, records, at_ms, seen), strict=True)
        return judged

    def list_open_transactions(self) -> TransactionListing:
        listing = TransactionListing(self.settings(), self.sink_id)
        return self.run_step(listing, "the list of transactions")

    def list_log_ends(self, topics: Sequence[str]) -> tuple[dict[tuple[str, int], tuple[int, int]], str]:
        """High watermark and last stable offset of each partition, and why some are missing."""
        if not topics:
            return {}, ""
        rows = self.client.ask_metadata(topic_query(*topics))["topics"]
        partitions = [(row["name"], each["partition_index"]) for row in rows for each in row["partitions"]]
        troubles = [
            f"{row['name']}: {describe_answer(METADATA.name, row['error_code'])}" for row in rows if row["error_code"]
        ]
        if not partitions:
            return {}, "; ".join(troubles[:1])
        found = self.run_step(LogEnds(self.settings(), partitions), "the ends of the logs")
        ends = {where: (found.end[where], found.stable[where]) for where in found.end if where in found.stable}
        return ends, "; ".join(filter(None, (*troubles[:1], found.last_trouble)))

    def list_transactions_left(self) -> TransactionListing:
        """After some were ended. Brokers answer EndTxn before writing markers, and list the transactions until then."""
        give_up_ms = self.client.now_ms() + self._patience_ms
        while True:
            left = self.list_open_transactions()
            if all(one.state == ONGOING for one in left.found) or self.client.now_ms() >= give_up_ms:
                return left
            time.sleep(LOOK_AGAIN_S)

    def ask_if_elsewhere(self, record: LedgerRecord) -> bool:
        """Decided in another cluster, of which this ledger is a copy: it cannot be finished here."""
        return record.kind is Kind.INTENT and record.is_of_another_cluster(self.settings().cluster_id)

    # ---- acting ----------------------------------------------------------------------------------------------------

    def run(self, operation: DriverOperation, sink_id: str, key: BatchKey) -> CommitResult:
        """Runs as the driver that decides about the batch: the current one is fenced."""
        return self._run(Job(operation, key, wall_ms=self.wall_ms), self.settings().line_of(sink_id, key))

    def finish(self, record: LedgerRecord) -> CommitResult:
        """Completes this open decision, and others of its line."""
        job = Job(DriverOperation.FINISH, wall_ms=self.wall_ms)
        return self._run(job, self.settings().line_of(record.sink_id, record.key))

    def _run(self, job: Job, line: Line) -> CommitResult:
        session = DriverSession(line.sink_id, code=line.code)
        return self.client.run(Committer(self.settings(), session, job, self.client.now_ms()))

    def run_for_each(self, operation: DriverOperation) -> list[CommitResult]:
        """FINISH or SWEEP in every line of the sink."""
        script = operate_each_line(self.settings(), self.named_sink, operation, self.wall_ms)
        return carry_out(script, lambda begin: self.client.run(begin(self.client.now_ms())))

    def set_aside(self, ledger_key: str, offset: int) -> SetAside:
        return self.client.run_step(SetAside(self.settings(), ledger_key, offset, self.wall_ms))

    def settings(self) -> DeliverySettings:
        if self._known_settings is None:
            self._known_settings = settings_of_operator(
                self.client, self.ledger_topic, self._brokers, self._patience_ms
            )
        return self._known_settings
