"""`pykafka-sink perf`: the records that it reports are in the log, and its lines are like Kafka's own."""

from __future__ import annotations

import json
import re
import time
import tracemalloc
from pathlib import Path

import pytest

from kafka_sink.__main__ import main
from kafka_sink.operate.cli.perf_meter import Meter
from kafka_sink.testing import EmbeddedBroker
from tools.foreign_reader import read_topic
from tools.java import PRODUCER_PERFORMANCE, run_class
from tools.kafka_jars import VERSIONS

WINDOW = re.compile(
    r"(\d+) records sent, \d+\.\d records/sec \(\d+\.\d\d MB/sec\), \d+\.\d ms avg latency, \d+\.\d ms max latency\."
)
LAST = re.compile(
    r"(\d+) records sent, \d+\.\d+ records/sec \(\d+\.\d\d MB/sec\), \d+\.\d\d ms avg latency, "
    r"\d+\.\d\d ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99\.9th\."
)


def perf(broker: EmbeddedBroker, *words: str) -> int:
    return main(["perf", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t", *words])


def values(broker: EmbeddedBroker) -> list[bytes]:
    return [record.value or b"" for record in read_topic(broker.bootstrap_servers, "t")]


def test_records_of_a_size_are_written_and_the_last_line_is_javas(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        perf(broker, "--num-records", "25000", "--record-size", "40", "--producer-props", "linger.ms=5", "acks=all")
        == 0
    )
    found = LAST.fullmatch(capsys.readouterr().out.splitlines()[-1])
    assert found is not None and found[1] == "25000"
    written = values(broker)
    assert len(written) == 25_000 and len(set(written)) > 9_000
    assert {len(value) for value in written} == {40} and written[0].isalpha() and written[0].isupper()


def test_kafkas_own_tool_says_the_same_lines(broker: EmbeddedBroker) -> None:
    words = ["--topic", "t", "--num-records", "6000", "--record-size", "10", "--throughput", "1000"]
    words += ["--command-property", f"bootstrap.servers={broker.bootstrap_servers}"]
    *windows, last = run_class(VERSIONS[0], PRODUCER_PERFORMANCE, words).decode().splitlines()
    found = LAST.fullmatch(last)
    assert found is not None and found[1] == "6000"
    told = [WINDOW.fullmatch(line) for line in windows if line]
    assert told and all(told), windows


def test_a_pace_is_kept_and_told_now_and_then(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    started_s = time.monotonic()
    words = ["--num-records", "1000", "--payload-monotonic", "--throughput", "2000", "--reporting-interval", "100"]
    assert perf(broker, *words) == 0
    assert time.monotonic() - started_s >= 0.45
    *windows, _ = capsys.readouterr().out.splitlines()
    told = [WINDOW.fullmatch(line) for line in windows]
    assert told and all(told)
    assert sorted(values(broker), key=int) == [b"%d" % number for number in range(1, 1001)]


def test_lines_of_a_file_are_drawn_and_the_warm_up_does_not_count(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "payload"
    path.write_text("one;two;three;")
    words = ["--num-records", "500", "--warmup-records", "100", "--payload-file", str(path), "--payload-delimiter", ";"]
    assert perf(broker, *words, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["warm_up"]["records"]) == (400, 100)
    assert set(found["latency_ms"]) == {"mean", "max", "p50", "p95", "p99", "p99.9"}
    written = values(broker)
    assert len(written) == 500 and set(written) == {b"one", b"two", b"three"}


@pytest.mark.parametrize(
    ("given", "between"), [("\\t", "\t"), ("\\u00e9", "\u00e9"), ("\u00e9", "\u00e9"), ("\u2192\\n", "\u2192\n")]
)
def test_a_file_is_divided_by_any_text(broker: EmbeddedBroker, tmp_path: Path, given: str, between: str) -> None:
    path = tmp_path / "payload"
    path.write_text(f"one{between}two", encoding="utf-8")
    words = ["--num-records", "50", "--payload-file", str(path), "--payload-delimiter", given]
    assert perf(broker, *words) == 0
    assert set(values(broker)) == {b"one", b"two"}


@pytest.mark.parametrize("named", [["--transactional-id", "load"], ["--option", "kafka.transactional.id=load"]])
def test_transactions_are_committed_to_the_last_record(broker: EmbeddedBroker, named: list[str]) -> None:
    words = ["--num-records", "600", "--payload-monotonic", "--throughput", "2000", *named]
    assert perf(broker, *words, "--transaction-duration-ms", "50") == 0
    assert len(values(broker)) == 600


def test_metrics_are_printed_on_demand(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert perf(broker, "--num-records", "10", "--payload-monotonic", "--print-metrics") == 0
    assert re.search(r"^producer-metrics:record-send-total:.* : 10\.000$", capsys.readouterr().out, re.MULTILINE)
    assert perf(broker, "--num-records", "10", "--payload-monotonic", "--print-metrics", "--json") == 0
    found = json.loads(capsys.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert None in found["metrics"].values()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--payload-file", "/nowhere"], "--payload-file /nowhere cannot be read"),
        (["--payload-monotonic", "--warmup-records", "10"], "--warmup-records must be fewer than --num-records"),
        (["--payload-monotonic", "--option", "kafka.lingerms=5"], "lingerms"),
        (["--payload-file", __file__, "--payload-delimiter", ""], "--payload-delimiter ''"),
        (["--payload-file", __file__, "--payload-delimiter", "\\"], "--payload-delimiter '"),
    ],
)
def test_a_load_that_cannot_be_is_wrong_usage(
    broker: EmbeddedBroker, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert perf(broker, "--num-records", "10", *words) == 2
    assert said in capsys.readouterr().err


def test_a_record_that_is_refused_ends_it_with_the_reason(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--num-records", "5", "--record-size", "3000000", "--option", "kafka.max.request.size=4000000"]
    assert perf(broker, *words) == 4
    assert "MESSAGE_TOO_LARGE" in capsys.readouterr().err


def test_the_memory_of_a_meter_does_not_grow_with_the_records() -> None:
    meter = Meter(1, tell=None)
    tracemalloc.start()
    try:
        for number in range(50_000):
            meter.record(10, 100, 5 + number % 100 / 1000)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    found = meter.summary()
    assert found["records"] == 500_000 and found["latency_ms"]["p50"] == pytest.approx(5.05, abs=0.1)
