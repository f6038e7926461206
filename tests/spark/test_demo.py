"""`make demo` with small figures, and the parts of it that check: a demo that cannot find a fault shows nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.spark.conftest import require_java
from tools import kafka_watchdog
from tools.demo import GUARANTEE, IN_BATCH, IN_COMMIT, judge, server_properties
from tools.demo_driver import MomentToKill
from tools.demo_rows import Feed, Plan, Tally, table
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
SMALL = ["--seconds", "3", "--rows-per-second", "2000"]
PLAN = Plan(seconds=0.5, rows_per_file=10, partitions=4)


def start_demo(folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    require_java()
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("BROKER", "BOOTSTRAP")}
    return subprocess.Popen(
        [sys.executable, "-m", "tools.demo", *arguments],
        cwd=ROOT,
        env={**environment, **more, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def lines_of_table(output: str) -> dict[str, list[int]]:
    found = re.findall(r"^(partition \d|all) +([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)$", output, re.MULTILINE)
    return {name: [int(figure.replace(",", "")) for figure in figures] for name, *figures in found}


def left_behind(folder: Path) -> tuple[list[str], list[int]]:
    """Files below the folder and processes that use them; the last processes need a moment to end."""

    def found() -> tuple[list[str], list[int]]:
        return os.listdir(folder), kafka_watchdog.processes_using(str(folder))

    with suppress(TimeoutError):
        wait_until(lambda: found() == ([], []), "nothing is left", 20)
    return found()


@pytest.mark.slow  # a driver that is killed in its commits, in every run: test_killed_drivers.py
@pytest.mark.timeout(600)
@pytest.mark.parametrize("values", ["json", "avro"])
def test_the_demo_ends_well_its_table_adds_up_and_nothing_is_left(tmp_path: Path, values: str) -> None:
    demo = start_demo(tmp_path / "tmp", *SMALL, FORMAT=values)
    output, _ = demo.communicate(timeout=580)
    assert demo.returncode == 0, output
    rows = lines_of_table(output)
    assert set(rows) == {"partition 0", "partition 1", "partition 2", "partition 3", "all"}, output
    assert rows["all"] == [sum(figures) for figures in zip(*(rows[f"partition {n}"] for n in range(4)), strict=True)]
    # Three seconds of rows, and further files of 250 rows until the driver was killed in the middle of a commit.
    rows_in, rows_seen, missing, _ = rows["all"]
    assert rows_in == rows_seen >= 6_000 and rows_in % 250 == 0 and missing == 0
    assert rows["all"][3] == 0 or GUARANTEE == "at-least-once"
    assert ("values are Avro" in output) == (values == "avro")
    assert "SIGKILL to the driver in the middle of a commit" in output and "1 kill of the driver" in output
    assert re.search(r"^ +[0-9a-f]{32}-[0-9a-f]{16} .* open ", output, re.MULTILINE), output
    assert left_behind(tmp_path / "tmp") == ([], [])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    demo = start_demo(tmp_path / "tmp", *SMALL)
    assert demo.stdout is not None
    for line in demo.stdout:
        if "rows begin to appear" in line:
            break
    demo.send_signal(signal.SIGINT)
    output = demo.stdout.read()
    assert demo.wait(60) == 130
    assert "Traceback" not in output
    assert left_behind(tmp_path / "tmp") == ([], [])
    demo.stdout.close()


def values(folder: Path) -> list[tuple[int, bytes]]:
    """Every row of a feed that was written to its end, with the partition that it belongs to."""
    feed = Feed(folder, PLAN)
    feed.write_until(PLAN.seconds / 2)
    assert 0 < feed.row_count < PLAN.row_count and not feed.end.exists()
    feed.write_until(PLAN.seconds)
    assert feed.is_over and feed.end.exists()
    lines = [line for file in sorted(feed.input.glob("*.json")) for line in file.read_bytes().splitlines()]
    return [(json.loads(line)["row"] % PLAN.partitions, line) for line in lines]


def test_rows_go_on_appearing_beyond_the_plan_while_they_are_wanted(tmp_path: Path) -> None:
    feed = Feed(tmp_path, PLAN)
    feed.write_until(PLAN.seconds + 3, goes_on=True)
    assert feed.file_count == PLAN.file_count + 3 and not feed.is_over and not feed.end.exists()
    feed.write_until(PLAN.seconds + 9)
    assert feed.is_over and feed.end.exists()
    assert feed.file_count == PLAN.file_count + 3 and feed.written.row_count == feed.row_count


def tally_of(rows: Sequence[tuple[int, bytes | None]]) -> Tally:
    tally = Tally(PLAN)
    for partition, value in rows:
        tally.add(partition, value)
    return tally


def counts(rows: list[tuple[int, bytes | None]]) -> tuple[int, int, int]:
    tally = tally_of(rows)
    return tally.missing_count, tally.duplicate_count, tally.damaged_count


def test_every_row_once_is_right(tmp_path: Path) -> None:
    rows = values(tmp_path)
    tally = Tally(PLAN)
    for partition, value in reversed(rows):
        tally.add(partition, value)
    assert (tally.missing_count, tally.duplicate_count, tally.damaged_count) == (0, 0, 0)
    assert lines_of_table(table(PLAN, tally)) == {
        "partition 0": [12, 12, 0, 0],
        "partition 1": [12, 12, 0, 0],
        "partition 2": [8, 8, 0, 0],
        "partition 3": [8, 8, 0, 0],
        "all": [40, 40, 0, 0],
    }


def test_a_lost_row_a_repeated_one_and_a_damaged_one_are_found(tmp_path: Path) -> None:
    rows = values(tmp_path)
    (partition, value), others = rows[0], rows[1:]
    assert counts(others) == (1, 0, 0)
    assert counts([*rows, rows[5], rows[5]]) == (0, 2, 0)
    assert counts([*others, (partition, value.replace(b"event", b"Event"))]) == (1, 0, 1)
    assert counts([*others, (partition + 1, value)]) == (1, 0, 1)
    assert counts([*others, (partition, None)]) == (1, 0, 1)
    assert counts([*others, (partition, b"{}")]) == (1, 0, 1)


def test_apache_kafka_takes_the_demo_brokers_properties() -> None:
    from tests.conftest import without_kafka
    from tools.kafka_jars import KafkaUnavailable

    try:
        with KafkaCluster(properties=server_properties()) as kafka:
            text = (kafka.data_folder(1).parent / "server.properties").read_text()
            assert kafka.leader_of(kafka.create_topic("rows"), 0) == 1
    except KafkaUnavailable as error:
        without_kafka(str(error))
    assert "transaction.max.timeout.ms=900000" in text


def test_the_verdict_is_about_the_rows_and_then_says_what_was_not_shown(tmp_path: Path) -> None:
    rows = values(tmp_path)
    whole = tally_of(rows)
    assert judge(whole, IN_COMMIT) == (True, "Every row arrived, and none twice.")
    for killed, words in ((IN_BATCH, "Not shown: a kill in the middle of a commit"), ("", "Not shown: a kill of the")):
        is_right, text = judge(whole, killed)
        assert is_right and text.startswith("Every row arrived, and none twice.\n" + words)
    wrong = (rows[1:], "1 missing"), ([*rows, rows[0]], "1 twice"), ([*rows, (0, b"x")], "1 not what was written")
    for found, words in wrong:
        assert judge(tally_of(found), IN_COMMIT) == (False, f"NOT RIGHT: {words}.")


def test_late_the_driver_is_killed_in_any_micro_batch_and_only_in_one(tmp_path: Path) -> None:
    killed = []
    driver = SimpleNamespace(kill=lambda: killed.append(True))
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    moment = MomentToKill(tmp_path, lambda: 0, lambda: False)
    assert not moment.kills(driver, is_late=True)  # type: ignore[arg-type]
    (tmp_path / "offsets" / "0").touch()
    (tmp_path / "commits" / "0").touch()
    assert not moment.kills(driver, is_late=True) and killed == []  # type: ignore[arg-type]
    (tmp_path / "offsets" / "1").touch()
    assert moment.kills(driver, is_late=True) and killed == [True]  # type: ignore[arg-type]
