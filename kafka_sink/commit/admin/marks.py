"""Marks of commits on this driver that have begun but not succeeded, and of aborts: empty files in the folder of an
application, called `{run}.{process id}`, `{run}.failed` or `{run}.aborted`, with the code of a line before the run.

Planning asks Kafka once per process and configuration. A query restarted in the same application may be planned by the
same process, which has cached a response from before the failure, and Spark passes neither query nor run: a data source
is created anew for each micro-batch, and the instance for commits only at the first commit (seen on PySpark 4.0 to
4.3). So a commit leaves a mark. If planning finds one whose commit failed or whose process is gone, it asks again,
and an open decision is finished before the first task runs. An abort leaves one as well: tasks may have failed because
of what planning remembers, such as a limit of the brokers that was lowered since. Where it has found nothing open, it
takes the place of the commit's mark.

A mark only causes a check; open decisions are in the ledger. Without a folder there are no marks. A process that plans
and commits, as a user's own one does, needs none for itself (`SharedAnswers.doubt`); otherwise the next commit finishes
an open decision. The folder is deleted with the application, and a new one checks anyway.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kafka_sink.commit.identity import Line, run_hash
from kafka_sink.commit.ledger import line_of
from kafka_sink.commit.receipt import BatchKey

# Instead of the process id: the commit has failed; the batch was aborted, so it has no open decision.
FAILED, ABORTED = "failed", "aborted"
_OF_LABEL = "~"


def marked_line(sink_id: str, key: BatchKey | None, ledger_topic: str) -> Line:
    """Whose marks they are. Planning knows the label of a write, but of a stream only the sink."""
    if key is not None and not key.is_named:
        return Line("")  # planning finishes those of every write
    return line_of(sink_id, key, ledger_topic) if key is not None and key.is_label else Line(sink_id)


@dataclass(frozen=True)
class Marks:
    """Those of one line of decisions. `application_folder` None: there is none, and nothing is marked."""

    application_folder: str | None
    line: Line

    @contextmanager
    def mark_commit(self, run: str) -> Iterator[None]:
        """Leaves a mark if the block raises, or the process dies in it."""
        under_way, failed = (self._path(run, state) for state in (os.getpid(), FAILED))
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

    def mark_abort(self, run: str) -> None:
        mark = self._path(run, ABORTED)
        if mark is not None:
            _make(mark)

    def settle(self, run: str) -> None:
        """An abort has found that nothing is open. Planning asks all the same, because of the mark that stays."""
        settled = self._path(run, ABORTED)
        for mark in self.find_unfinished():
            if settled is not None and mark.rpartition(".")[0] == settled.rpartition(".")[0]:
                with suppress(OSError):
                    os.replace(mark, settled)

    def find_unfinished(self) -> list[str]:
        """Those of this line, without those of running commits: another query may use the same sink id."""
        if self.application_folder is None:
            return []
        marks = _list_unfinished(_folder(self.application_folder, self.line.sink_id))
        return [mark for mark in marks if os.path.basename(mark).rpartition(_OF_LABEL)[0] == self.line.code]

    def _path(self, run: str, state: object) -> str | None:
        if self.application_folder is None:
            return None
        code = f"{self.line.code}{_OF_LABEL}" if self.line.code else ""
        return os.path.join(_folder(self.application_folder, self.line.sink_id), f"{code}{run}.{state}")


def remove_marks(marks: Iterable[str]) -> None:
    for mark in marks:
        with suppress(OSError):
            os.remove(mark)


def count_open_decisions(application_folder: str, sink_id: str) -> int:
    """Of all lines of a sink: each mark of a commit may stand for an open decision."""
    return sum(not mark.endswith(ABORTED) for mark in _list_unfinished(_folder(application_folder, sink_id)))


def _folder(application_folder: str, sink_id: str) -> str:
    """One for all lines of a sink: an application may write any number of labels."""
    return os.path.join(application_folder, run_hash(sink_id))


def _make(mark: str) -> None:
    with suppress(OSError):
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        open(mark, "w").close()


def _list_unfinished(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if not _is_running(name)]
    except OSError:
        return []


def _is_running(name: str) -> bool:
    state = name.rpartition(".")[2]
    return state.isdecimal() and _is_alive(int(state))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process, so it is alive
        return True
    return True
