"""Storage of metrics: two files per stream, in a folder shared by all Python processes of an application.

Spark commits the batches of a query in changing processes, and ends idle ones. So the state is in files: a commit reads
the metrics of its stream, adds its batch and writes them back, under a lock that the kernel releases when the process
dies. It overwrites the older of the two files in place, because replacing a file makes the file system flush it, which
takes milliseconds. Each file has its length and a checksum, so a reader during a write, or after a process was killed
during one, uses the other file.

If a process is killed between a commit and its note, a batch is not counted, nothing more: metrics are for people,
decisions are in the ledger.
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kafka_sink.commit.admin.marks import count_open_decisions
from kafka_sink.commit.identity import run_hash
from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.kafka.io.shelf import Shelf
from kafka_sink.telemetry.metrics.figures import BatchReport
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures, from_json, stream_of, to_json

FOLDER, SLOTS, TURN = "metrics", (".0", ".1"), ".turn"
# Before the JSON: the number of the note, length and checksum of the JSON.
HEADER = b"%020d %010d %010d\n"
HEADER_BYTES = len(HEADER % (0, 0, 0))
# The file of a stream's turns holds the number of the note that was sent last.
TURN_BYTES = 20
# This process's last notes: while the files have the same number, they need not be read.
NOTED_MAX = 64
NOTED: PerProcess[Shelf[str, tuple[int, StreamFigures]]] = PerProcess(lambda: Shelf(NOTED_MAX))
# A note takes a millisecond. A process that was stopped in the middle of one must not stop the commits of others.
LOCK_TIMEOUT_S, LOCK_RETRY_S = 3.0, 0.002


def figures_folder(application_folder: str) -> Path:
    return Path(application_folder, FOLDER)


def note(application_folder: str, report: BatchReport) -> int:
    """Adds the batch to its stream, and returns the number of the note."""
    path = _path(application_folder, report)
    slots: list[int] = []
    try:
        for suffix in SLOTS:
            slots.append(_open_slot(path + suffix))
        _lock(slots[0], LOCK_TIMEOUT_S)
        known = NOTED.value.take(path)
        found = [_number_and_text(os.pread(slot, os.fstat(slot).st_size, 0)) for slot in slots]
        newest, older = max(found), found.index(min(found))
        figures = (known[1] if known is not None and known[0] == newest[0] else _parse(newest)) or stream_of(report)
        figures.take(report)
        content, number = to_json(figures).encode(), newest[0] + 1
        # The rest of a longer earlier note is not read.
        _write(slots[older], HEADER % (number, len(content), zlib.crc32(content)) + content)
        NOTED.value.put(path, (number, figures))
    finally:
        for slot in slots:
            os.close(slot)
    return number


@contextmanager
def newest_in_turn(
    application_folder: str, report: BatchReport, number: int, limit_s: float
) -> Iterator[StreamFigures | None]:
    """The newest metrics of the stream, to be sent inside the block; None if this note, or a newer one, has been sent.

    A receiver believes what arrives last, and threads and processes commit at the same time. So one of them sends at a
    time, and whatever was noted before its turn."""
    path = _path(application_folder, report)
    turn = _open_slot(path + TURN)
    try:
        _lock(turn, limit_s)
        newest = _newest(path)
        if number <= int(os.pread(turn, TURN_BYTES, 0) or 0) <= newest[0]:
            fcntl.flock(turn, fcntl.LOCK_UN)
            yield None
            return
        figures = _parse(newest)
        yield None if figures is None else add_open_decisions(application_folder, figures)
        os.pwrite(turn, b"%0*d" % (TURN_BYTES, newest[0]), 0)
    finally:
        os.close(turn)


def _lock(slot: int, limit_s: float) -> None:
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            return fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"another process holds their file for more than {limit_s:g} s") from None
        time.sleep(LOCK_RETRY_S)


def _write(slot: int, content: bytes) -> None:
    """A full disk takes a part before it refuses: a note of which a part is missing is not this process's newest."""
    written = 0
    while written < len(content):
        written += os.pwrite(slot, content[written:], written)


def _open_slot(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def add_open_decisions(application_folder: str, figures: StreamFigures) -> StreamFigures:
    """Counted from the marks of commits, on request. Batch writes without a label share theirs, whatever their sink."""
    own = [figures.sink] if figures.sink else []
    shared = [""] if figures.has_nameless else []
    count = sum(count_open_decisions(application_folder, sink) for sink in own + shared)
    figures.set("open_decisions", count)
    return figures


def told_before(application_folder: str, report: BatchReport) -> tuple[str, str]:
    """Outcome and error of what was noted last about the batch, by whichever process; empty if nothing is known."""
    figures = _read(_path(application_folder, report))
    # Newer ones may be of other batches: batch writes at the same time count as one stream.
    for each in reversed(figures.recent if figures is not None else ()):
        if (each["batch_id"], each["run"]) == (report.key.batch_id, report.run):
            return str(each["outcome"]), str(each["error_text"])
    return "", ""


def read_streams(application_folder: str) -> list[StreamFigures]:
    """All streams of the application, in a stable order."""
    folder = figures_folder(application_folder)
    found = (_read(str(path.with_suffix(""))) for path in sorted(folder.glob(f"*{SLOTS[0]}")))
    return [add_open_decisions(application_folder, figures) for figures in found if figures is not None]


def _path(application_folder: str, report: BatchReport) -> str:
    """Without the suffix of a slot."""
    name = run_hash("\n".join((report.sink, report.query, report.key.query_id)))
    return os.path.join(application_folder, FOLDER, name)


def _read(path: str) -> StreamFigures | None:
    return _parse(_newest(path))


def _newest(path: str) -> tuple[int, bytes]:
    found = [(0, b"")]
    for slot in SLOTS:
        with suppress(OSError):
            found.append(_number_and_text(Path(path + slot).read_bytes()))
    return max(found)


def _parse(newest: tuple[int, bytes]) -> StreamFigures | None:
    try:
        return from_json(newest[1].decode()) if newest[0] else None
    except ValueError:
        return None  # another release wrote it


def _number_and_text(content: bytes) -> tuple[int, bytes]:
    """Zero and empty if it is empty or incomplete."""
    try:
        number, length, checksum = (int(word) for word in content[:HEADER_BYTES].split())
    except ValueError:
        return 0, b""
    text = content[HEADER_BYTES : HEADER_BYTES + length]
    return (number, text) if len(text) == length and zlib.crc32(text) == checksum else (0, b"")
