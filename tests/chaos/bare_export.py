"""A batch write without Spark: planning, tasks and commit, each in the process that Spark would use.

with BareExport(settings) as export:
    export.plan()
    export.write_tasks()
    export.commit()              # raises what the sink raises, or Killed
    export.abort()               # in another process, as Spark does after a commit that raised
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.chaos import bare_work
from tests.chaos.bare_spark import PARTITIONS, TASKS, Worker

ROWS = 60


class BareExport:
    def __init__(self, settings: Mapping[str, str], *, tasks: int = TASKS) -> None:
        self.settings = {name: value for name, value in settings.items() if name != "checkpointLocation"}
        self.messages: list[Any] = []
        self.planned: Any = None
        self._tasks = tasks
        self._worker = Worker()
        self._log: list[str] = []

    def __enter__(self) -> BareExport:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    @property
    def log(self) -> list[str]:
        return [*self._log, *self._worker.log]

    @property
    def sink_id(self) -> str:
        return str(self.planned._sink_id)

    def plan(self) -> None:
        self.planned = self._worker.call(bare_work.plan_export, self.settings)

    def write_tasks(self) -> None:
        self.messages = self._worker.call(bare_work.write_export, self.planned, self._tasks, ROWS, PARTITIONS)

    def begin_commit(self) -> None:
        self._worker.begin(bare_work.commit_export, self.planned, self.messages)

    def begin_all(self) -> None:
        """The tasks and the commit, in one call."""
        self._worker.begin(bare_work.export_all, self.planned, self._tasks, ROWS, PARTITIONS)

    def end_commit(self) -> None:
        self._worker.result()

    def commit(self) -> None:
        self.begin_commit()
        self.end_commit()

    def abort(self) -> None:
        self._renew()
        self._worker.call(bare_work.abort_export, self.planned, self.messages)

    def strike(self) -> None:
        """SIGKILL to the process that commits, from any thread."""
        self._worker.kill()

    def _renew(self) -> None:
        self._log += self._worker.log
        self._worker.close()
        self._worker = Worker()
