"""`pykafka-sink watch` and `ledger --follow` while a sink delivers, holds a transaction open, and delivers again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from kafka_sink import Producer
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.operate.cli import refresh
from kafka_sink.testing import EmbeddedBroker
from tests.support.commanding import ROWS_PER_TASK, Said, Shell, Sink
from tools.foreign_reader import end_offsets


@pytest.fixture
def sink() -> Iterator[Sink]:
    with EmbeddedBroker() as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
        sink.create()
        yield sink


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What happens while the command waits for its next look: one call for each wait."""

    def plan(*acts: Callable[[], object]) -> None:
        coming = list(acts)
        monkeypatch.setattr(refresh, "sleep", lambda _seconds: coming.pop(0)())

    return plan


def batch(number: int) -> BatchKey:
    return BatchKey("query-1", number)


def test_each_look_tells_batches_paces_transactions_and_what_is_held_back(
    shell: Shell, sink: Sink, between: Callable[..., None]
) -> None:
    sink.deliver(batch(0))
    between(lambda: sink.task(batch(1), 0), lambda: (sink.deliver(batch(1)), sink.deliver(batch(2))))
    said = shell.about(sink, "watch", "--count", "3", "--json")
    assert said.exit_code == 0
    first, second, third = (json.loads(line) for line in said.out.splitlines())
    assert [each["batches"][0]["batch_id"] for each in (first, second, third)] == [0, 0, 2]
    assert [each["batches"][0]["rows_per_s"][0] for each in (first, second, third)] == ["-", "0", "~"]
    assert [len(each["open_transactions"]) for each in (first, second)] == [0, 1]
    held = {(each["topic"], each["partition"]): each["behind"] for each in second["partitions"]}
    assert sum(held.values()) == ROWS_PER_TASK
    ends = end_offsets(sink.servers, "t")
    assert {each["partition"]: each["end"] for each in third["partitions"]} == ends


def watch_all(shell: Shell, sink: Sink, *words: str) -> Said:
    about = ("--bootstrap-server", sink.servers, "--ledger-topic", sink.ledger_topic, "--silent-after", "0")
    return shell("watch", *about, *words)


def test_without_a_sink_every_sink_of_the_cluster_is_watched_with_its_pace_and_what_is_wrong(
    shell: Shell, sink: Sink, between: Callable[..., None]
) -> None:
    other = replace(sink, sink_id="invoices", run="b" * 16)
    sink.deliver(batch(0))
    other.deliver(batch(0))
    between(
        lambda: (sink.deliver(batch(1)), sink.deliver(batch(2))),
        lambda: other.decide_and_die(batch(1)),
        lambda: None,
        lambda: replace(other, run="c" * 16).deliver(batch(2)),
    )
    said = watch_all(shell, sink, "--count", "5", "--json")
    looks = [json.loads(line) for line in said.out.splitlines()]
    assert said.exit_code == 0 and len(looks) == 5
    paces = [{each["sink_id"]: each["rows_per_s"] for each in look["rows_per_s"]} for look in looks]
    names = {each["sink_id"][:6]: each["sink_id"] for each in looks[0]["sinks"]}
    orders, invoices = names["orders"], names["invoic"]
    assert paces[0] == {}
    assert paces[1][orders] > 0 and paces[1][invoices] == 0
    assert [each["is_about"] for each in looks[1]["rows_per_s"] if each["sink_id"] == orders] == [True]
    assert paces[2][orders] == 0 and paces[2][invoices] > 0 and paces[3][invoices] == 0
    # The decision may have been about to end when it was seen first.
    assert [[each["kind"] for each in look["findings"]] for look in looks] == [[], [], [], ["open"], []]
    (command,) = looks[3]["findings"][0]["commands"]
    assert command == other.command("recover").replace("invoices", invoices)


def test_a_cluster_that_is_away_is_told_and_the_watch_goes_on(shell: Shell, between: Callable[..., None]) -> None:
    with EmbeddedBroker() as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
        sink.create()
        sink.deliver(batch(0))
        between(lambda: broker.stop_broker(1), lambda: None)
        first, second, third = watch_all(shell, sink, "--count", "3", "--timeout", "1").out.splitlines()
    assert first == "fine: 1 sink, 0 rows/s, nothing is wrong"
    assert second.startswith("fine: 1 sink, 0 rows/s, nothing is wrong; not seen now: ")
    assert third.startswith("fine: 1 sink") and "not seen now" in third
    gone = watch_all(shell, sink, "--count", "1", "--timeout", "1")
    assert gone.exit_code == 3 and "no broker has answered" in gone.err


def test_a_terminal_has_a_screen_of_the_cluster_and_is_told_how_it_would_have_colours(
    shell: Shell, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.deliver(batch(0))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    drawn = watch_all(shell, sink, "--count", "1").out
    assert "pykafka-sink" in drawn and "nothing is wrong" in drawn and "ROWS/S" in drawn and "delivered" in drawn
    monkeypatch.setitem(sys.modules, "rich.live", None)  # as if it were not installed
    screen = watch_all(shell, sink, "--count", "1").out
    assert screen.startswith(f"{refresh.CLEAR}fine: 1 sink, 0 rows/s") and "ROWS/S" in screen
    assert screen.rstrip().endswith("pip install 'pykafka-sink[watch]'")


def test_figures_of_a_driver_are_those_of_one_sink(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        shell("watch", "--bootstrap-server", "h:1", "--metrics-url", "http://127.0.0.1:1")
    assert "--metrics-url goes with --sink-id or --checkpoint" in capsys.readouterr().err


def test_what_is_no_terminal_gets_a_line_per_look_and_a_terminal_a_screen(
    shell: Shell, sink: Sink, between: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.deliver(batch(0))
    between(lambda: None)
    line, again = shell.about(sink, "watch", "--count", "2").out.splitlines()
    assert (
        line.startswith("sink orders; 0 of query-1 delivered") and "0 open transactions; 0 offsets not visible" in line
    )
    assert "0 rows/s" in again
    monkeypatch.setitem(__import__("sys").modules, "rich.live", None)  # as if it were not installed
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    screen = shell.about(sink, "watch", "--count", "1").out
    assert screen.startswith(refresh.CLEAR) and "PARTITION  END  STABLE  BEHIND" in screen


def test_a_watch_ends_by_ctrl_c_and_a_sink_that_nobody_knows_is_an_error(
    shell: Shell, sink: Sink, between: Callable[..., None]
) -> None:
    sink.deliver(batch(0))

    def interrupt() -> None:
        raise KeyboardInterrupt

    between(interrupt)
    assert shell.about(sink, "watch").exit_code == 0
    said = shell("watch", "--bootstrap-server", sink.servers, "--ledger-topic", "ledger", "--sink-id", "order")
    assert (said.exit_code, "did you mean orders?" in said.err) == (2, True)


def test_a_topic_that_was_deleted_and_a_leader_that_is_away_are_notes_and_no_end(shell: Shell) -> None:
    with EmbeddedBroker() as broker:
        sink, other = (Sink(broker.bootstrap_servers, topic, "orders", "ledger") for topic in ("t", "gone"))
        sink.create()
        broker.create_topic("gone", 2)
        for written, label in ((sink, "kept"), (other, "old")):
            written.deliver(BatchKey("", label))
        admin = AdminClient({"bootstrap.servers": sink.servers})
        admin.delete_topics(["gone"])["gone"].result(60)
        broker.do(lambda core: setattr(core.cluster.topics["t"].partitions[1], "leader_id", -1))
        said = json.loads(shell.about(sink, "watch", "--count", "1", "--json").out)
    assert [(each["topic"], each["partition"]) for each in said["partitions"]] == [("t", 0)]
    (note,) = said["notes"]
    assert "gone: Metadata was answered with UNKNOWN_TOPIC" in note and "t-1 has no leader now" in note


def test_metrics_that_are_not_served_are_a_note_and_no_end(shell: Shell, sink: Sink) -> None:
    sink.deliver(batch(0))
    said = shell.about(sink, "watch", "--count", "1", "--metrics-url", "http://127.0.0.1:1")
    assert said.exit_code == 0 and "no figures at http://127.0.0.1:1/metrics.json" in said.out


def test_following_a_ledger_tells_what_is_new(shell: Shell, sink: Sink, between: Callable[..., None]) -> None:
    sink.deliver(batch(0))
    between(lambda: sink.deliver(batch(1)), lambda: None)
    lines = shell.about(sink, "ledger", "--follow", "--count", "3").out.splitlines()
    rows = 2 * ROWS_PER_TASK
    name = lines[0].partition(":")[0]
    assert lines == [
        f"{name}: batch 0 of query-1 delivered, {rows} rows", f"{name}: batch 1 of query-1 delivered, {rows} rows",
        "nothing new",
    ]  # fmt: skip
    with pytest.raises(SystemExit):
        shell.about(sink, "ledger", "--count", "3")


def test_a_record_that_cannot_be_read_is_told(shell: Shell, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.deliver(batch(0))
    with Producer({"bootstrap.servers": sink.servers, "transactional.id": "foreign"}) as foreign:
        foreign.init_transactions()
        with foreign.transaction():
            foreign.send("ledger", b"?", "orders", partition=0)
    told = "orders: the record at offset "
    for command in (("watch",), ("ledger", "--follow")):
        as_json = json.loads(shell.about(sink, *command, "--count", "1", "--json").out)
        assert told in as_json["notes"][0] if command == ("watch",) else as_json["unreadable"]
        assert told in shell.about(sink, *command, "--count", "1").out
    monkeypatch.setitem(sys.modules, "rich.live", None)  # as if it were not installed
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for command in (("watch",), ("ledger", "--follow")):
        assert told in shell.about(sink, *command, "--count", "1").out
