"""Standard streams of the command that a script has closed, or that are full: none of them ends in a traceback."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_sink import Producer
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.testing import EmbeddedBroker
from tests.support.commanding import Sink
from tools.foreign_reader import read_topic
from tools.waiting import wait_until

PROGRAM = f"{sys.executable} -m kafka_sink"


def in_shell(line: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **(more or {})}
    return subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip


@pytest.mark.parametrize(
    ("redirection", "exit_code", "told"),
    [
        ("<&-", 0, ""),
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 4, "pykafka-sink: standard output cannot be written: No space left on device\n"),
    ],
)
def test_streams_that_are_closed_or_full_end_without_a_trace(redirection: str, exit_code: int, told: str) -> None:
    done = in_shell(f"{PROGRAM} explain PKS-6001 {redirection}")
    assert (done.returncode, done.stderr) == (exit_code, told)


def test_whoever_reads_no_more_changes_no_exit_code() -> None:
    # The reader ends before the command writes anything.
    done = in_shell(f"{{ sleep 0.1; {PROGRAM} explain PKS-6001; echo exit code $? >&2; }} | true")
    assert done.stderr == "exit code 0\n"


def test_an_interrupt_while_the_output_waits_for_its_reader_is_no_traceback() -> None:
    """As with `| less`, where Ctrl-C goes to both."""
    output, given = os.pipe()
    page = fcntl.fcntl(given, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "kafka_sink", "completion", "zsh"]  # more than a page
    with subprocess.Popen(command, stdout=given, stderr=subprocess.PIPE, text=True) as running:
        os.close(given)
        wait_until(lambda: _unread_bytes(output) == page, "the pipe is full")
        running.send_signal(signal.SIGINT)
        told = running.communicate(timeout=60)[1]
    os.close(output)
    assert (running.returncode, "interrupted" in told, "Traceback" in told) == (130, True, False)


def _unread_bytes(pipe: int) -> int:
    found = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return found[0]


def test_letters_that_the_terminal_does_not_have_are_written_in_another_way() -> None:
    done = in_shell(f"{PROGRAM} check --help", {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "\\u2713  works; the advice" in done.stdout


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&1 >/dev/null | true"])
def test_a_replay_whose_errors_nobody_can_read_goes_on(redirection: str) -> None:
    with EmbeddedBroker(topics={"dead": 1, "back": 1}) as broker:
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.send("dead", b"v", headers=[("pykafka-sink.error", b"?")])
        replay = f"{PROGRAM} replay --bootstrap-server {broker.bootstrap_servers} --from dead --to back"
        done = in_shell(f"exec 3>&1; {{ echo yes | {replay}; echo exit code $? >&3; }} {redirection}")
        assert "exit code 0" in done.stdout
        assert [record.value for record in read_topic(broker.bootstrap_servers, "back")] == [b"v"]


def test_without_standard_input_nobody_is_there_to_be_asked() -> None:
    with EmbeddedBroker() as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
        sink.create()
        sink.decide_and_die(BatchKey("query-1", 0))
        about = f"--bootstrap-server {sink.servers} --ledger-topic ledger --sink-id orders"
        asked = in_shell(f"{PROGRAM} transactions --abort {about} <&-")
        assert asked.returncode == 2 and "nobody is there to be asked" in asked.stderr
        recovered = in_shell(f"{PROGRAM} recover {about} <&-")
        assert (recovered.returncode, recovered.stderr) == (0, "")


@pytest.mark.parametrize(
    ("answer", "exit_code", "told"),
    [("0>/dev/null", 2, "nobody is there to be asked"), (r"< answer", 1, "nothing was changed")],
)
def test_an_answer_that_cannot_be_read_is_no_yes(tmp_path: Path, answer: str, exit_code: int, told: str) -> None:
    (tmp_path / "answer").write_bytes(b"\xff\n")
    with EmbeddedBroker() as broker:
        create = f"{PROGRAM} topic --create --topic t --bootstrap-server {broker.bootstrap_servers}"
        asked = in_shell(f"cd {tmp_path}; {create} {answer}", {"PYTHONIOENCODING": "utf-8:strict"})
    assert asked.returncode == exit_code and told in asked.stderr and "Traceback" not in asked.stderr
