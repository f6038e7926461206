"""The exit codes of commands, which scripts go by, and the paces of a watch: without a broker."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.__main__ import _exit_code
from kafka_sink.commit.command_texts import BrokerArguments, CommandTexts
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, TransactionOutcome, ledger_key
from kafka_sink.commit.listing import Listed
from kafka_sink.commit.open_decisions import OpenDecision, Standing
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    CommitAborted,
    CommitLost,
    CommitPending,
    ConfigError,
    OperationTimeout,
    TransportError,
)
from kafka_sink.operate.cli import perf_meter
from kafka_sink.operate.cli.cluster_screen import Pace
from kafka_sink.operate.cli.perf_meter import Meter
from kafka_sink.operate.cli.read_commands import ledger, transactions
from kafka_sink.operate.cli.recover_all import _one_of_each_line
from kafka_sink.operate.cli.report import Declined, Report
from kafka_sink.operate.cli.status import describe, exit_code_of, limits_of, status_lines, waiting_topics
from kafka_sink.operate.cli.watch_cluster import Paces, content_of, make_screen, sink_lines
from kafka_sink.operate.status.facts import ClusterFacts, LedgerFacts
from kafka_sink.operate.status.findings import Finding, Limits, Severity, Trouble

NOW, RUN, MIN = 1_700_000_000_000, "0123456789abcdef", 60_000
BATCH = BatchKey("query-1", 7)
BROKERS = BrokerArguments(("--bootstrap-server", "b:9092"), "")
ENTRY = TransactionEntry(0, 2, 4711, 3, 2, "t", 1, 19, 10)
DONE = LedgerRecord(Kind.DONE, "orders", BATCH, RUN, wall_ms=NOW - 2 * MIN, row_count=10, topics={"t": 10})
INTENT = replace(DONE, kind=Kind.INTENT, entries=(ENTRY,))
STUCK = replace(INTENT, kind=Kind.STUCK, outcomes=(TransactionOutcome.LOST,))
BROKEN = Listed("orders/x", 9, None, "it is no JSON")


def listed(record: LedgerRecord) -> Listed:
    return Listed(ledger_key(record.sink_id, record.key), 5, record)


class FakeSink:
    """What the ledger and the brokers of an operator's command say."""

    wall_ms, ledger_topic, sink_id = NOW, "ledger", None
    commands = CommandTexts(BROKERS, "ledger")

    def __init__(
        self, *found: Listed, standing: Standing | None = None, open_ones: Sequence[TransactionDescription] = (),
        notes: Sequence[str] = (), has_ledger: bool = True,
    ) -> None:  # fmt: skip
        self.found, self.standing, self.has_ledger = list(found), standing, has_ledger
        self.listing = SimpleNamespace(found=list(open_ones), notes=list(notes))

    def known_decisions(self) -> list[Listed]:
        return self.found

    def list_decisions(self) -> list[Listed]:
        return self.found

    def look_for_ledger(self) -> bool:
        return self.has_ledger

    def judge_open(self, found: list[Listed]) -> tuple[list[Listed], dict[str, OpenDecision]]:
        judged = {} if self.standing is None else {
            each.ledger_key: OpenDecision(each.record, self.standing, 5_000) for each in found
            if each.record is not None and each.record.kind is Kind.INTENT
        }  # fmt: skip
        return found, judged

    def list_open_transactions(self) -> SimpleNamespace:
        return self.listing

    def settings(self) -> DeliverySettings:
        return DeliverySettings(ledger_topic="ledger", cluster_id="here", brokers=BROKERS)


def run(command: Any, sink: FakeSink) -> Report:
    report: Report = command(sink, argparse.Namespace(follow=False))
    return report


# ---- codes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (CommitLost("x"), 1),
        (CommitPending("x"), 1),
        (Declined("x"), 1),
        (TransportError("x"), 3),
        (OperationTimeout("x"), 3),
        (CommitAborted("x"), 4),
        (BrokerError("x", code=1, api="Fetch"), 4),
        (AuthorizationError("x"), 4),
    ],
)
def test_an_error_ends_with_the_code_of_its_kind(error: Exception, code: int) -> None:
    assert _exit_code(error) == code


@pytest.mark.parametrize(
    ("sink", "code"),
    [
        (FakeSink(), 0),
        (FakeSink(listed(DONE)), 0),
        (FakeSink(listed(INTENT)), 1),
        (FakeSink(listed(INTENT), standing=Standing.OPEN), 1),
        (FakeSink(listed(INTENT), standing=Standing.OVERDUE), 1),
        (FakeSink(listed(INTENT), standing=Standing.COMMITTED), 0),
        (FakeSink(listed(DONE), listed(STUCK)), 1),
        (FakeSink(listed(DONE), BROKEN), 4),
        (FakeSink(listed(INTENT), BROKEN), 4),
    ],
)
def test_a_ledger_is_fine_open_or_not_to_be_read(sink: FakeSink, code: int) -> None:
    assert run(ledger, sink).exit_code == code


@pytest.mark.parametrize(
    ("standing", "verdict", "left_ms"),
    [(Standing.OPEN, "open", 5_000), (Standing.COMMITTED, "committed", 5_000), (None, "open", None)],
)
def test_an_open_decision_is_told_with_how_it_stands(
    standing: Standing | None, verdict: str, left_ms: int | None
) -> None:
    report = run(ledger, FakeSink(listed(INTENT), standing=standing))
    (told,) = report.content["decisions"]
    assert (told["verdict"], told["time_left_ms"]) == (verdict, left_ms)
    assert f"  {verdict}  " in report.lines[1]


def test_a_ledger_is_told_record_by_record() -> None:
    report = run(ledger, FakeSink(listed(replace(DONE, label="Orders")), BROKEN, Listed("a b\x1b", 3, None, "odd")))
    assert [line for line in report.lines if line][:2] == [
        "SINK    NAME    BATCH         VERDICT    ROWS  TOPICS  AGE",
        "orders  Orders  7 of query-1  delivered    10  t       2 min",
    ]
    assert "orders/x: the record at offset 9 cannot be read: it is no JSON" in report.lines
    assert "'a b\\x1b': the record at offset 3 cannot be read: odd" in report.lines
    assert "No sink has such a key, so it stops none" in report.lines
    assert report.content["ledger_topic"] == "ledger" and report.content["copied_from"] == []
    assert report.content["unreadable"] == [
        {"ledger_key": "orders/x", "offset": 9, "problem": "it is no JSON"},
        {"ledger_key": "a b\x1b", "offset": 3, "problem": "odd"},
    ]
    assert [each["verdict"] for each in report.content["decisions"]] == ["delivered"]
    assert list(run(ledger, FakeSink()).lines) == ["the ledger ledger holds no decision"]
    alone = run(ledger, FakeSink(*[replace(BROKEN, ledger_key=f"k/{n}") for n in range(12)]))
    assert "and 2 more records that cannot be read" in alone.lines
    assert alone.lines[-1] == "No record of ledger can be read: is it the ledger topic of a sink?"


NAME = f"orders-{RUN}-0-2"
OPEN_ONE = TransactionDescription(NAME, "Ongoing", 4711, 3, 15 * MIN, NOW - 3 * MIN, (("u", 1), ("t", 0)))


@pytest.mark.parametrize(
    ("sink", "code", "is_decided"),
    [
        (FakeSink(listed(DONE)), 0, None),
        (FakeSink(listed(DONE), open_ones=[OPEN_ONE]), 1, False),
        (FakeSink(listed(INTENT), open_ones=[OPEN_ONE]), 1, True),
        (FakeSink(listed(STUCK), open_ones=[OPEN_ONE]), 1, False),
        (FakeSink(listed(DONE), BROKEN, open_ones=[OPEN_ONE]), 4, None),
        (FakeSink(listed(INTENT), BROKEN, open_ones=[OPEN_ONE]), 4, True),
        (FakeSink(Listed("other/x", 9, None, "odd"), open_ones=[OPEN_ONE]), 1, False),
        (FakeSink(listed(DONE), notes=["a broker is away"]), 4, None),
        (FakeSink(listed(INTENT), open_ones=[OPEN_ONE], has_ledger=False), 1, False),
    ],
)
def test_an_open_transaction_is_decided_or_not_or_nobody_can_say(
    sink: FakeSink, code: int, is_decided: bool | None
) -> None:
    report = run(transactions, sink)
    assert report.exit_code == code
    assert [each["is_decided"] for each in report.content["transactions"]] == [is_decided] * len(sink.listing.found)


def test_an_open_transaction_is_told_with_what_it_holds_back() -> None:
    report = run(transactions, FakeSink(listed(INTENT), open_ones=[OPEN_ONE, replace(OPEN_ONE, partitions=())]))
    assert report.content["transactions"][0] == {
        "transactional_id": NAME, "state": "Ongoing", "producer_id": 4711, "producer_epoch": 3, "age_ms": 3 * MIN,
        "timeout_ms": 15 * MIN, "is_decided": True, "partitions": ["t-0", "u-1"],
    }  # fmt: skip
    assert [" ".join(line.split()) for line in report.lines] == [
        "TRANSACTIONAL ID STATE AGE TIMEOUT DECIDED PARTITIONS",
        f"{NAME} Ongoing 3 min 15 min yes t-0, u-1",
        f"{NAME} Ongoing 3 min 15 min yes none yet",
    ]
    assert run(transactions, FakeSink()).lines == ["no open transaction of any sink"]


# ---- status ----------------------------------------------------------------------------------------------------------


def finding(severity: Severity, **more: Any) -> Finding:
    return Finding(Trouble.LOST, severity, "rows are missing", ("mend it",), (1,), **more)


LEDGER = LedgerFacts("ledger", [listed(DONE), listed(replace(DONE, sink_id="users", key=BatchKey("", "monday")))])
FACTS = ClusterFacts(NOW, "here", [LEDGER])
UNREAD = ClusterFacts(NOW, "here", [LEDGER, LedgerFacts("other", problem="it was not read")])
ACT, LOOK = finding(Severity.ACT), finding(Severity.LOOK)


@pytest.mark.parametrize(
    ("facts", "found", "code"),
    [
        (FACTS, [], 0),
        (FACTS, [LOOK], 1),
        (FACTS, [LOOK, ACT], 2),
        (replace(FACTS, notes=("a broker is away",)), [], 4),
        (replace(FACTS, notes=("a broker is away",)), [LOOK], 4),
        (UNREAD, [LOOK], 4),
        (UNREAD, [ACT], 2),
        (replace(FACTS, limits=("these brokers do not tell",)), [], 0),
    ],
)
def test_a_status_is_as_bad_as_its_worst_finding_or_partial(
    facts: ClusterFacts, found: list[Finding], code: int
) -> None:
    assert exit_code_of(facts, found) == code


def test_limits_are_given_in_seconds() -> None:
    given = argparse.Namespace(open_after=60, silent_after=7, retired=["a", "b", "a"])
    assert limits_of(given) == Limits(60_000, 7_000, frozenset({"a", "b"}))


FOREIGN = replace(OPEN_ONE, transactional_id="foreign", partitions=(("t", 0),))
HELD = replace(
    FACTS, transactions=[OPEN_ONE, replace(FOREIGN, start_ms=NOW - 9 * MIN)],
    ends={("t", 0): (4, 10), ("t", 1): (5, 5), ("u", 1): (1, 3), ("v", 0): (0, 7)}, id_counts={"orders": 6},
)  # fmt: skip


def test_topics_whose_readers_wait_are_told_with_the_oldest_transaction() -> None:
    assert waiting_topics(HELD) == [
        {"topic": "v", "behind": 7, "oldest_ms": 0, "by": []},
        {"topic": "t", "behind": 6, "oldest_ms": 9 * MIN, "by": ["foreign", NAME]},
        {"topic": "u", "behind": 2, "oldest_ms": 3 * MIN, "by": [NAME]},
    ]


def test_a_status_is_told_to_people_and_to_programs() -> None:
    lost = finding(Severity.ACT, ledger_topic="ledger", sink_id="orders", key=BATCH, topics=("t",))
    told = describe(replace(HELD, notes=("a note",), limits=("a limit",)), [lost, LOOK])
    assert told["state"] == "act now" and (told["at_ms"], told["cluster_id"]) == (NOW, "here")
    assert told["findings"][0] == {
        "severity": "act now", "kind": "lost", "text": "rows are missing", "commands": ["mend it"],
        "ledger_topic": "ledger", "sink_id": "orders", "name": None, "query_id": "query-1", "batch_id": 7,
        "topics": ["t"],
    }  # fmt: skip
    assert [told["findings"][1][name] for name in ("ledger_topic", "sink_id", "query_id", "batch_id")] == [None] * 4
    assert told["ledgers"] == [{"topic": "ledger", "sinks": 2, "problem": None}]
    assert told["sinks"][0] == {
        "ledger_topic": "ledger", "sink_id": "orders", "name": None, "query_id": "query-1", "batch_id": 7,
        "verdict": "delivered", "severity": 2, "row_count": 10, "age_ms": 2 * MIN, "time_left_ms": None,
        "topics": ["t"], "open_transactions": 1, "transactional_ids": 6,
    }  # fmt: skip
    assert [(each["sink_id"], each["severity"], each["query_id"]) for each in told["sinks"]][1:] == [("users", 0, None)]
    assert (told["notes"], told["limits"]) == (["a note"], ["a limit"])
    lines = status_lines(replace(HELD, notes=("a note",), limits=("a limit",)), [lost], BROKERS, [])
    assert lines[:4] == [
        "act now: 2 sinks in ledger: 1 act now", "", "ACT NOW: rows are missing:", "    mend it",
    ]  # fmt: skip
    rows = [" ".join(line.split()) for line in lines]
    assert "orders - 7 of query-1 delivered 10 2 min 1 6" in rows and "users - 'monday' delivered 10 2 min 0 0" in rows
    assert "t 6 9 min foreign, orders-0123456789abcdef-0-2" in rows and "v 7 0 s -" in rows
    assert lines[-5:] == ["", "This is not all:", "a note", "", "a limit"]
    assert status_lines(FACTS, [], BROKERS, [])[0] == "fine: 2 sinks in ledger: nothing is wrong"
    one = replace(FACTS, ledgers=[LedgerFacts("ledger", [listed(DONE)])])
    assert status_lines(one, [], BROKERS, [])[0] == "fine: 1 sink in ledger: nothing is wrong"


def test_a_record_that_cannot_be_read_has_a_line_of_its_own() -> None:
    facts = replace(FACTS, ledgers=[LedgerFacts("ledger", [BROKEN, listed(INTENT)], {
        ledger_key("orders", BATCH): OpenDecision(INTENT, Standing.OPEN, 7_000),
    })])  # fmt: skip
    broken, open_one = describe(facts, [])["sinks"]
    assert broken == {
        "ledger_topic": "ledger", "sink_id": "orders", "name": None, "query_id": None, "batch_id": None,
        "verdict": "unreadable", "severity": 0, "row_count": 0, "age_ms": 0, "time_left_ms": None, "topics": [],
        "open_transactions": 0, "transactional_ids": 0,
    }  # fmt: skip
    assert (open_one["verdict"], open_one["time_left_ms"], open_one["age_ms"]) == ("open", 7_000, 2 * MIN)
    rows = [" ".join(line.split()) for line in status_lines(facts, [], BROKERS, [])]
    assert "orders - orders/x unreadable 0 0 s 0 0" in rows


def test_of_what_is_fine_people_see_some_and_what_is_wrong_first() -> None:
    many = LedgerFacts("ledger", [listed(replace(DONE, sink_id=f"s{number:03d}")) for number in range(50)])
    lost = finding(Severity.LOOK, ledger_topic="ledger", sink_id="s049", key=None)
    lines = status_lines(replace(FACTS, ledgers=[many]), [lost], BROKERS, [])
    assert [line.split()[0] for line in lines if line.startswith("s0")] == [
        "s049", *(f"s{number:03d}" for number in range(40)),
    ]  # fmt: skip
    assert lines[-1] == "and 9 more, all fine (--json)"


def test_the_driver_of_a_line_is_asked_once() -> None:
    first, newer = INTENT, replace(INTENT, key=BatchKey("query-1", 8))
    export = replace(INTENT, key=BatchKey("", "monday"))
    found = [("ledger", first), ("ledger", newer), ("ledger", export), ("other", first)]
    assert _one_of_each_line(found) == [("ledger", first), ("ledger", export), ("other", first)]


# ---- paces -----------------------------------------------------------------------------------------------------------


def look(at_ms: int, *records: LedgerRecord) -> ClusterFacts:
    return ClusterFacts(at_ms, "here", [LedgerFacts("ledger", [listed(each) for each in records])])


@pytest.mark.parametrize(
    ("before", "after", "pace"),
    [
        ([DONE], [DONE], Pace(0.0, False, (0.0,))),
        ([DONE], [replace(DONE, key=BatchKey("query-1", 8))], Pace(5.0, False, (5.0,))),
        ([DONE], [replace(DONE, key=BatchKey("query-1", 10))], Pace(15.0, True, (15.0,))),
        ([DONE], [replace(DONE, key=BatchKey("query-1", 3))], Pace(0.0, False, (0.0,))),
        ([], [DONE], Pace(5.0, False, (5.0,))),
        ([DONE], [replace(DONE, run="another")], Pace(0.0, False, (0.0,))),
    ],
)
def test_a_pace_is_that_of_the_batches_since_the_last_look(
    before: list[LedgerRecord], after: list[LedgerRecord], pace: Pace
) -> None:
    paces = Paces()
    assert not paces.is_begun
    paces.add(look(NOW, *before))
    assert paces.is_begun and paces.now == {}
    paces.add(look(NOW + 2_000, *after))
    assert paces.now == {("ledger", "orders"): pace}


def test_an_export_that_ran_again_counts_again_and_paces_of_labels_are_added() -> None:
    monday, tuesday = (replace(DONE, key=BatchKey("", day)) for day in ("monday", "tuesday"))
    paces = Paces()
    paces.add(look(NOW, monday, tuesday))
    paces.add(look(NOW + 1_000, replace(monday, run="another"), replace(tuesday, run="third")))
    assert paces.now["ledger", "orders"] == Pace(20.0, False, (20.0,))
    paces.add(look(NOW + 1_500))
    assert paces.now == {}
    paces.add(look(NOW + 2_000, replace(monday, run="another")))
    assert paces.now["ledger", "orders"] == Pace(0.0, False, (20.0, 0.0))


def test_a_watched_sink_is_shown_by_its_worst_and_newest_decision() -> None:
    older = replace(DONE, key=BatchKey("", "monday"), wall_ms=NOW - 9 * MIN, row_count=3)
    facts = look(NOW, older, DONE, replace(DONE, sink_id="a-fine-one"))
    pace = Pace(1.0, False, (1.0,))
    lost = finding(Severity.ACT, ledger_topic="ledger", sink_id="orders", key=older.key)
    first, second = sink_lines(facts, [lost], {("ledger", "orders"): pace})
    assert first.cells() == ("!!", "orders", "-", "monday", "delivered", "1", 3, "9 min", 0)
    assert second.cells() == ("", "a-fine-one", "-", "7", "delivered", "-", 10, "2 min", 0)
    assert [each.batch for each in sink_lines(facts, [], {})] == ["7", "7"]


def test_a_screen_has_all_that_was_seen() -> None:
    session: Any = SimpleNamespace(brokers=BROKERS, cluster=SimpleNamespace(named=[]))
    facts = replace(HELD, ledgers=[LedgerFacts("ledger", [listed(replace(DONE, label="Orders"))], problem="half")],
                    notes=("a note",), limits=("a limit",))  # fmt: skip
    lost = finding(Severity.ACT, ledger_topic="ledger", sink_id="orders")
    paces = Paces()
    paces.add(look(NOW, DONE))
    paces.add(look(NOW + 1_000, replace(DONE, key=BatchKey("query-1", 8))))
    screen = make_screen(session, facts, [lost, LOOK], paces, "no broker")
    assert (screen.headline, screen.severity, screen.problem) == (
        "1 sink, 10 rows/s, 1 act now, 1 look", Severity.ACT, "no broker",
    )  # fmt: skip
    assert screen.findings == [lost, LOOK] and screen.command_lines[:3] == [
        "",
        "ACT NOW: rows are missing:",
        "    mend it",
    ]
    assert [each.cells()[:3] for each in screen.sinks] == [("!!", "orders", "Orders")]
    assert screen.topics == [
        ("v", 7, "0 s", "-"), ("t", 6, "9 min", f"foreign, {NAME}"), ("u", 2, "3 min", NAME),
    ]  # fmt: skip
    assert screen.notes == ["a note", "half", "a limit"]
    quiet = make_screen(session, FACTS, [], Paces(), "")
    assert quiet.headline == "2 sinks, 0 rows/s, nothing is wrong" and quiet.severity is Severity.FINE
    told = content_of(facts, [lost], paces, "no broker")
    assert (
        told["problem"] == "no broker"
        and told["state"] == "act now"
        and told["rows_per_s"]
        == [{"ledger_topic": "ledger", "sink_id": "orders", "rows_per_s": 10.0, "is_about": False}]
    )


# ---- perf ------------------------------------------------------------------------------------------------------------


def test_a_load_test_is_summed_up_in_all_and_since_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(perf_meter, "time", SimpleNamespace(monotonic=lambda: now))
    told: list[str] = []
    meter = Meter(5.0, tell=told.append)
    now = 101.0
    meter.begin()
    now = 103.0
    meter.record(300, 3 * 1024 * 1024, 10.0)
    meter.tell_if_due()
    now = 106.0
    meter.record(100, 1024 * 1024, 30.04)
    assert told == []
    meter.tell_if_due()
    assert told == ["400 records sent, 80.0 records/sec (0.80 MB/sec), 15.0 ms avg latency, 30.0 ms max latency."]
    now = 111.0
    meter.record(100, 1024 * 1024, 20.0)
    meter.tell_if_due()
    assert told[1:] == ["100 records sent, 20.0 records/sec (0.20 MB/sec), 20.0 ms avg latency, 20.0 ms max latency."]
    now = 500.0
    found = meter.summary()
    assert (found["records"], found["records_per_s"], found["mib_per_s"]) == (500, 50.0, 0.5)
    assert found["latency_ms"] == {
        "mean": pytest.approx(16.008), "max": 30.04, "p50": 10.0, "p95": 30.0, "p99": 30.0, "p99.9": 30.0,
    }  # fmt: skip
    assert meter.last_line() == (
        "500 records sent, 50.000000 records/sec (0.50 MB/sec), 16.01 ms avg latency, 30.04 ms max latency, "
        "10 ms 50th, 30 ms 95th, 30 ms 99th, 30 ms 99.9th."
    )


def test_the_first_error_of_a_load_test_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_meter, "time", SimpleNamespace(monotonic=lambda: 1.0))
    meter = Meter(5.0, tell=None)
    meter.check()
    meter.fail(ConfigError("first"))
    meter.fail(ConfigError("second"))
    with pytest.raises(ConfigError, match="first"):
        meter.check()
