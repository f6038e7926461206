"""Marks commits on this driver that have begun but not succeeded, and aborts: empty files in a folder of Spark's.

Planning asks Kafka once per process and configuration. A query restarted in the same application may be planned by the
same process, which has cached a response from before the failure, and Spark passes neither query nor run: a data source
is created anew for each micro-batch, and the instance for commits only at the first commit (seen on PySpark 4.0 to
4.3). So a commit leaves a mark. If planning finds one whose commit failed or whose process is gone, it asks again,
and an open decision is finished before the first task runs. An abort leaves one as well: tasks may have failed because
of what planning remembers, such as a limit of the brokers that was lowered since.

A mark only causes a check; open decisions are in the ledger. Without a folder there are no marks. A process that plans
and commits, as a user's own one does, needs none for itself (`SharedAnswers.doubt`); otherwise the next commit finishes
an open decision. The folder is deleted with the application, and a new one checks anyway.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from kafka_sink.commit.identity import Line, run_hash
from kafka_sink.commit.ledger import line_of
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.kafka.io.marks import ABORTED, FAILED, list_unfinished_marks
from kafka_sink.spark.files import application_folder

_OF_LABEL = "~"


def marked_line(sink_id: str, key: BatchKey | None) -> Line:
    """Whose marks they are. Planning knows the label of a write, but of a stream only the sink."""
    if key is not None and not key.is_named:
        return Line("")  # planning finishes those of every write
    return line_of(sink_id, key) if key is not None and key.is_label else Line(sink_id)


@contextmanager
def mark_commit(line: Line, run: str) -> Iterator[None]:
    """Leaves a mark if the block raises, or the process dies in it."""
    under_way, failed = (_mark(line, run, state) for state in (os.getpid(), FAILED))
    if under_way is None or failed is None:
        yield
        return
    try:
        _make(under_way)
        yield
    except BaseException:
        with suppress(OSError):
            os.replace(under_way, failed)
        raise
    remove_marks([under_way])


def mark_abort(line: Line, run: str) -> None:
    mark = _mark(line, run, ABORTED)
    if mark is not None:
        _make(mark)


def find_unfinished_commits(line: Line) -> list[str]:
    """The marks of a line, without those of running commits: another query may use the same sink id."""
    folder = _folder(line)
    marks = [] if folder is None else list_unfinished_marks(folder)
    return [mark for mark in marks if os.path.basename(mark).rpartition(_OF_LABEL)[0] == line.code]


def remove_marks(marks: Iterable[str]) -> None:
    for mark in marks:
        with suppress(OSError):
            os.remove(mark)


def _make(mark: str) -> None:
    with suppress(OSError):
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        open(mark, "w").close()


def _mark(line: Line, run: str, state: object) -> str | None:
    folder, code = _folder(line), f"{line.code}{_OF_LABEL}" if line.code else ""
    return None if folder is None else os.path.join(folder, f"{code}{run}.{state}")


def _folder(line: Line) -> str | None:
    """One for all lines of a sink: an application may write any number of labels."""
    folder = application_folder()
    return None if folder is None else os.path.join(folder, run_hash(line.sink_id))
