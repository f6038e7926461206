"""The words and JSON objects of commands: of decisions, of a sink that is watched, of topics; and the question before a
change."""

from __future__ import annotations

import argparse
import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafka_sink.commit.admin.topics import TopicState
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, TransactionOutcome
from kafka_sink.commit.open_decisions import OpenDecision, Standing
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey
from kafka_sink.errors import ConfigError
from kafka_sink.formats.records.scalar import Record
from kafka_sink.operate.cli import report, topic, watch
from kafka_sink.operate.cli.report import Declined, batch_word, confirm, decision, table, verdict_word
from kafka_sink.operate.cli.signs import Signs
from kafka_sink.operate.cli.texts import LEDGER
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures

NOW, RUN = 1_700_000_000_000, "0123456789abcdef"
S, MIN, H = 1_000, 60_000, 3_600_000
BATCH = BatchKey("query-1", 7)
ENTRIES = (
    TransactionEntry(0, 2, 4711, 3, 2, "t", 1, 19, 10),
    TransactionEntry(1, 0, 4712, 0, 2, "u", 0, 9, 5, task_partition=4),
)
INTENT = LedgerRecord(
    Kind.INTENT, "orders", BATCH, RUN, wall_ms=NOW - 90 * S, row_count=15, topics={"u": 5, "t": 10}, entries=ENTRIES
)
DONE = replace(INTENT, kind=Kind.DONE, entries=())
OPEN, OVERDUE = OpenDecision(INTENT, Standing.OPEN, 5_000), OpenDecision(INTENT, Standing.OVERDUE)


# ---- decisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "found", "word"),
    [
        (DONE, None, "delivered"),
        (replace(DONE, is_accepted=True), None, "accepted"),
        (INTENT, None, "open"),
        (INTENT, OPEN, "open"),
        (INTENT, OpenDecision(INTENT, Standing.UNKNOWN), "open"),
        (INTENT, OpenDecision(INTENT, Standing.COMMITTED), "committed"),
        (INTENT, OVERDUE, "overdue"),
        (replace(INTENT, kind=Kind.STUCK), None, "lost"),
        (replace(INTENT, kind=Kind.REPLAY), None, "replay"),
    ],
)
def test_a_decision_has_one_word(record: LedgerRecord, found: OpenDecision | None, word: str) -> None:
    assert verdict_word(record, found) == word


def test_the_help_explains_each_word() -> None:
    kinds = [replace(INTENT, kind=kind, is_accepted=is_accepted) for kind in Kind for is_accepted in (False, True)]
    words = {verdict_word(INTENT, OpenDecision(INTENT, standing)) for standing in Standing}
    words |= {verdict_word(record) for record in kinds}
    assert words == set(re.findall(r"^  (\w+) ", LEDGER, re.MULTILINE)) - {"pykafka"}


def test_a_decision_is_told_whole_and_with_its_transactions() -> None:
    first = {
        "transactional_id": f"orders-{RUN}-0-2", "spark_partition": 0, "row_count": 10, "fate": None,
        "witness": {"topic": "t", "partition": 1, "offset": 19},
    }  # fmt: skip
    second = {
        "transactional_id": f"orders-{RUN}-1-0", "spark_partition": 4, "row_count": 5, "fate": None,
        "witness": {"topic": "u", "partition": 0, "offset": 9},
    }  # fmt: skip
    told = {
        "sink_id": "orders", "name": None, "query_id": "query-1", "batch_id": 7, "verdict": "open",
        "time_left_ms": 5_000, "row_count": 15, "topics": {"t": 10, "u": 5}, "run": RUN,
        "recorded_at_ms": NOW - 90 * S, "age_ms": 90 * S, "transactions": [first, second],
    }  # fmt: skip
    assert decision(INTENT, NOW, OPEN) == told
    assert list(decision(INTENT, NOW)["topics"]) == ["t", "u"]
    assert decision(INTENT, NOW) == {**told, "time_left_ms": None}
    outcomes = (TransactionOutcome.COMMITTED, TransactionOutcome.LOST)
    lost = decision(replace(INTENT, kind=Kind.STUCK, outcomes=outcomes, label="Orders"), NOW)
    assert lost == {
        **told, "verdict": "lost", "name": "Orders", "time_left_ms": None,
        "transactions": [{**first, "fate": "committed"}, {**second, "fate": "lost"}],
    }  # fmt: skip
    export = decision(replace(DONE, key=BatchKey("", "monday"), wall_ms=NOW + S), NOW)
    assert (export["query_id"], export["batch_id"], export["age_ms"]) == (None, "monday", 0)
    assert export["transactions"] == []


@pytest.mark.parametrize(
    ("key", "word"),
    [(BATCH, "7 of query-1"), (BatchKey("", "monday"), "'monday'"), (UNNAMED_BATCH, "without a name")],
)
def test_a_batch_is_named_as_it_is_chosen(key: BatchKey, word: str) -> None:
    assert batch_word(key) == word


def test_numbers_of_a_table_end_below_each_other_and_texts_begin_there() -> None:
    assert table(("NAME", "ROWS", "X"), [("a", 5, "-"), ("longer", 1234, 7)]) == [
        "NAME    ROWS  X", "a          5  -", "longer  1234  7",
    ]  # fmt: skip
    assert table(("A", "B"), []) == ["A  B"]


# ---- the question ----------------------------------------------------------------------------------------------------


def ask(typed: io.TextIOBase, monkeypatch: pytest.MonkeyPatch, yes: bool = False, *more: object) -> None:
    monkeypatch.setattr(report, "sys", SimpleNamespace(stdin=typed))
    confirm(argparse.Namespace(yes=yes), ["about\x1b to change"], *more)  # type: ignore[arg-type]


@pytest.mark.parametrize("typed", ["y\n", "YES\n", " yes \n", "yes"])
def test_a_yes_goes_on(typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ask(io.StringIO(typed), monkeypatch)
    assert capsys.readouterr() == ("", "about\\x1b to change\nGo on? [yes/no] ")


@pytest.mark.parametrize("typed", ["\n", "no\n", "ye\n", "yes please\n"])
def test_anything_else_changes_nothing(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Declined, match="nothing was changed"):
        ask(io.StringIO(typed), monkeypatch)
    with pytest.raises(Declined):
        ask(io.StringIO("yes\n"), monkeypatch, False, "Type it: ", ("take over",))
    ask(io.StringIO("Take over\n"), monkeypatch, False, "Type it: ", ("take over",))


class Unreadable(io.StringIO):
    def readline(self, *_: object) -> str:
        raise OSError("input/output error")


@pytest.mark.parametrize("typed", [io.StringIO(""), Unreadable()])
def test_without_anybody_to_ask_nothing_is_changed_unless_that_was_allowed(
    typed: io.StringIO, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"nothing was changed\. Add --yes") as refused:
        ask(typed, monkeypatch)
    assert refused.value.name == "PKS-8001"
    capsys.readouterr()
    ask(typed, monkeypatch, True)
    assert capsys.readouterr() == ("", "")


# ---- one sink, watched -----------------------------------------------------------------------------------------------

BEFORE = watch.Snapshot(NOW - 2 * S, [replace(DONE, key=BatchKey("query-1", 6))], [], {}, [], [])
HELD = TransactionDescription(f"orders-{RUN}-0-0", "Ongoing", 1, 0, MIN, NOW - 3 * MIN, (("t", 0),))
LATER = watch.Snapshot(
    NOW, [DONE], [replace(HELD, start_ms=NOW - S), HELD], {("t", 0): (30, 25), ("t", 1): (9, 9), ("u", 0): (20, 8)},
    [], ["a broker is away"],
)  # fmt: skip


def figures(query_id: str, commits: int, seconds: float) -> StreamFigures:
    found = StreamFigures("orders", "", query_id, "c", 0)
    found.histograms["commit_seconds"] = ([0, commits, 0], seconds)
    return found


def test_a_look_at_a_sink_tells_its_batches_and_what_readers_wait_for() -> None:
    look = watch.make_look(
        "orders", replace(LATER, figures=[figures("other", 1, 9.0), figures("query-1", 4, 1.0)]), BEFORE
    )
    assert look.lines == [
        "sink orders", "",
        "BATCH         VERDICT    ROWS  ROWS/S  COMMIT  AGE",
        "7 of query-1  delivered    15  8       250 ms  90 s", "",
        "2 open transactions, the oldest for 3 min", "",
        "PARTITION  END  STABLE  BEHIND",
        "u-0         20       8      12",
        "t-0         30      25       5",
        "t-1          9       9       0",
        "", "a broker is away",
    ]  # fmt: skip
    assert look.line == (
        "sink orders; 7 of query-1 delivered 90 s ago, 15 rows, 8 rows/s, commit 250 ms; "
        "2 open transactions, the oldest for 3 min; 17 offsets not visible yet; a broker is away"
    )
    name = HELD.transactional_id
    assert look.content == {
        "at_ms": NOW, "sink_id": "orders", "notes": ["a broker is away"],
        "batches": [
            {"query_id": "query-1", "batch_id": 7, "verdict": "delivered", "row_count": 15, "rows_per_s": "8",
             "age_ms": 90 * S}
        ],
        "open_transactions": [
            {"transactional_id": name, "age_ms": S}, {"transactional_id": name, "age_ms": 3 * MIN},
        ],
        "partitions": [
            {"topic": "t", "partition": 0, "end": 30, "stable": 25, "behind": 5},
            {"topic": "t", "partition": 1, "end": 9, "stable": 9, "behind": 0},
            {"topic": "u", "partition": 0, "end": 20, "stable": 8, "behind": 12},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("now", "before", "pace"),
    [
        (BATCH, 7, "0"),
        (BATCH, 6, "8"),
        (BATCH, 4, "~22"),
        (BATCH, 9, "0"),
        (BATCH, None, "-"),
        (BatchKey("query-2", 7), 6, "-"),
        (BatchKey("", "monday"), 6, "-"),
    ],
)
def test_a_pace_is_that_of_the_batches_between_two_looks(now: BatchKey, before: int | None, pace: str) -> None:
    seen = None if before is None else replace(BEFORE, records=[replace(DONE, key=BatchKey("query-1", before))])
    look = watch.make_look("orders", replace(LATER, records=[replace(DONE, key=now)]), seen)
    _, rows_per_s, commit, *_ = look.lines[3].partition(" delivered ")[2].split()
    assert (rows_per_s, commit) == (pace, "-"), "no figures, no duration of a commit"


def test_partitions_that_do_not_fit_are_summed() -> None:
    ends = {("t", number): (100, 99 - number) for number in range(watch.PARTITIONS_SHOWN_MAX + 3)}
    lines = watch.make_look("orders", replace(LATER, ends=ends, notes=[]), None).lines
    assert lines[-1] == "and 3 partitions more, 6 behind" and lines[8].split() == ["t-22", "100", "77", "23"]
    assert watch.make_look("orders", replace(LATER, ends={}, notes=[]), None).lines[-1] == "no topic written yet"


# ---- whether a query lives -------------------------------------------------------------------------------------------

DEAD = Signs("orders", None, [], [], False, NOW)
LIVE_MS = 300 * S


@pytest.mark.parametrize(
    ("signs", "reason"),
    [
        (DEAD, None),
        (replace(DEAD, is_moving=True), "its tasks are writing now"),
        (replace(DEAD, claim=(RUN, NOW - 299 * S)), "it claimed the ledger 4 min ago"),
        (replace(DEAD, claim=(RUN, NOW - LIVE_MS)), None),
        (replace(DEAD, records=[DONE, replace(DONE, wall_ms=NOW - 10 * S)]), "its newest decision is 10 s old"),
        (replace(DEAD, records=[replace(DONE, wall_ms=NOW - LIVE_MS)]), None),
        (replace(DEAD, transactions=[HELD, replace(HELD, start_ms=NOW - S)]), "its open transactions began 1 s ago"),
        (replace(DEAD, transactions=[replace(HELD, start_ms=NOW - LIVE_MS)]), None),
        (
            replace(DEAD, claim=(RUN, NOW - MIN), records=[replace(DONE, wall_ms=NOW - 2 * S)], transactions=[HELD]),
            "its newest decision is 2 s old",
        ),
    ],
)
def test_a_query_seems_to_run_by_what_it_did_last(signs: Signs, reason: str | None) -> None:
    assert signs.reason_to_think_it_lives() == reason
    assert signs.content()["seems_to_run"] == reason
    assert any(line == f"  A query seems to be running: {reason}" for line in signs.lines()) == (reason is not None)


def test_signs_of_a_sink_are_told_with_their_ages() -> None:
    other = replace(HELD, transactional_id="orders-fedcba9876543210-0-0", start_ms=NOW - 9 * MIN)
    signs = Signs("orders", (RUN, NOW - H), [DONE], [HELD, replace(HELD, start_ms=NOW - 8 * MIN), other], False, NOW)
    assert signs.lines() == [
        "sink orders:",
        f"  last claimed the ledger: run {RUN}, 60 min ago",
        f"  newest decision: batch 7 of query-1, delivered, run {RUN}, 90 s ago",
        f"  open transactions: 2 of run {RUN}, for 8 min",
        "  open transactions: 1 of run fedcba9876543210, for 9 min",
        "  A query seems to be running: its newest decision is 90 s old",
    ]
    assert signs.content() == {
        "sink_id": "orders", "claim_run": RUN, "claim_age_ms": H, "decision_age_ms": 90 * S, "open_transactions": 3,
        "oldest_transaction_age_ms": 9 * MIN, "seems_to_run": "its newest decision is 90 s old",
    }  # fmt: skip
    assert DEAD.content() == {
        "sink_id": "orders", "claim_run": None, "claim_age_ms": None, "decision_age_ms": None, "open_transactions": 0,
        "oldest_transaction_age_ms": None, "seems_to_run": None,
    }  # fmt: skip


# ---- a topic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (
            TopicPlan(),
            ["  partitions: as many as the brokers' default", "  replicas:   as many as the brokers' default"],
        ),
        (TopicPlan(6, 3, (("a.b", "c"),)), ["  partitions: 6", "  replicas:   3", "  a.b=c"]),
    ],
)
def test_what_will_be_created_is_said_before(plan: TopicPlan, lines: list[str]) -> None:
    assert list(topic._plan_lines(plan)) == lines


def test_a_topic_is_told_by_its_partitions_and_settings() -> None:
    state = TopicState(((1, 2), (2, 3)), ((1, 2), (3,)), (1, 3), {"b": None, "a": "x"}, bytes(16))
    record = topic._record_object(1, 4, Record(7, b"k", None))
    told = topic._topic_report("t", state, ["was there"], report.OPEN, [record])
    assert (told.exit_code, told.content) == (
        1,
        {
            "topic": "t", "exists": True, "configs": {"a": "x", "b": None}, "notes": ["was there"], "records": [record],
            "partitions": [
                {"partition": 0, "leader": 1, "replicas": [1, 2], "in_sync": [1, 2]},
                {"partition": 1, "leader": 3, "replicas": [2, 3], "in_sync": [3]},
            ],
        },
    )  # fmt: skip
    assert told.lines == [
        "was there",
        "PARTITION  LEADER  REPLICAS  IN SYNC",
        "        0       1  1 2       1 2",
        "        1       3  2 3       3",
        "", "a=x", "b=None", "",
        "PARTITION  OFFSET  KEY  VALUE",
        "        1       4  k    null",
    ]  # fmt: skip
    unknown = topic._topic_report("t", state._replace(configs=None), [])
    assert (unknown.exit_code, unknown.content["configs"], unknown.content["records"]) == (0, None, [])
    assert unknown.lines[-1] == "the configuration is not told: DescribeConfigs on the topic is missing"


def test_a_record_is_shown_as_text_and_in_json_whole() -> None:
    long = b"x" * (topic.TEXT_CHARACTERS_MAX + 1)
    told = topic._record_object(3, 12, Record(7, None, long, (("h", b"\xff"), ("i", None))))
    assert told == {
        "partition": 3, "offset": 12, "timestamp_ms": 7, "key": None, "value": long.decode(),
        "headers": [["h", "\\xff"], ["i", None]],
    }  # fmt: skip
    shown = [topic._shown_text(each) for each in (None, "", "x" * 200, long.decode())]
    assert shown == ["null", "", "x" * 200, "x" * 200 + "..."]
