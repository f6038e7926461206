"""Marks of commits: a mark stays if and only if its commit failed or its process died."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from kafka_sink.commit.admin.marks import Marks, marked_line, remove_marks
from kafka_sink.commit.identity import Line
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, PreparedTransaction, TaskReceipt
from kafka_sink.errors import CommitPending
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark import driver
from kafka_sink.spark.driver import FinishedBatch, commit_batch
from kafka_sink.spark.files import LOCAL_FOLDERS, application_folder
from tools.worker_environment import worker_environment

SINK = Line("sink")
# Larger than any process id.
NOBODY = 2**30


def marks(line: Line = SINK) -> Marks:
    return Marks(application_folder(), line)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in worker_environment(f"{tmp_path},/another/disk").items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_commit_that_ended_well_leaves_nothing_and_is_no_reason_to_look_while_it_lasts(folder: Path) -> None:
    with marks().mark_commit("run"):
        assert marks().find_unfinished() == []
        assert [each.name for each in folder.rglob("*") if each.is_file()] == [f"run.{os.getpid()}"]
    assert marks().find_unfinished() == []
    assert [each for each in folder.rglob("*") if each.is_file()] == []


def test_a_commit_that_raised_is_seen_until_it_is_forgotten_and_by_its_sink_alone() -> None:
    with pytest.raises(KeyboardInterrupt), marks().mark_commit("run"):
        raise KeyboardInterrupt
    assert marks(Line("another")).find_unfinished() == []
    found = marks().find_unfinished()
    assert len(found) == 1
    remove_marks(found)
    assert marks().find_unfinished() == []


def test_a_commit_whose_process_is_gone_is_seen(folder: Path) -> None:
    with marks().mark_commit("run"):
        mark = next(each for each in folder.rglob("*") if each.is_file())
        mark.rename(mark.with_name(f"run.{NOBODY}"))
    assert marks().find_unfinished() == [str(mark.with_name(f"run.{NOBODY}"))]


@pytest.mark.parametrize("folders", ["", "/proc/no-such-folder"])
def test_without_a_folder_that_can_be_written_to_nothing_is_marked_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch, folders: str
) -> None:
    monkeypatch.setenv(LOCAL_FOLDERS, folders)
    with marks().mark_commit("run"):
        pass
    assert marks().find_unfinished() == []


@pytest.mark.parametrize("key", [UNNAMED_BATCH, BatchKey("", "monday"), BatchKey("q", 7)])
def test_a_failed_commit_is_seen_by_whoever_plans_its_line_and_by_nobody_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: BatchKey
) -> None:
    """Writes without a label share a place: planning finishes the decisions of all, and no folder is left for each."""

    def fail(*_: object) -> NoReturn:
        raise CommitPending("the brokers are gone")

    monkeypatch.setattr(driver, "_use_driver", fail)
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    receipt = TaskReceipt(key, "run", 0, 11, transaction=PreparedTransaction("sink-run-0-11", 1, 0, 2))
    with pytest.raises(CommitPending):
        commit_batch(FinishedBatch(options, "sink", key, "run", [receipt]))
    assert len(marks(marked_line("sink", key, options.ledger_topic)).find_unfinished()) == 1
    assert marks(Line("sink", "of another label")).find_unfinished() == []
    if key.is_label:
        assert marks().find_unfinished() == []
    assert len(list(folder.rglob("*"))) == 3
