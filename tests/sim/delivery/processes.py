"""The driver-side Python processes of one application, and what each remembers of a run.

Spark chooses freely among the Python processes that plan and commit: the commits of one run move between them, and may
return to one that was idle in between. Without this breaker a run has one process; some of its commits, and all after a
failure, begin without state.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kafka_sink.commit.identity import Line
from kafka_sink.commit.session import DriverSession
from tests.sim.delivery.breakers import PROCESSES

if TYPE_CHECKING:
    from tests.sim.delivery.stage import Stage

Sessions = dict[tuple[Line, str], DriverSession]


class Processes:
    def __init__(self, stage: Stage, query: str) -> None:
        self._stage = stage
        self._pick: Random = stage.dice[f"processes {query}"]
        self._are_reused = PROCESSES in stage.plan.breakers
        self._all: list[Sessions] = [{} for _ in range(stage.plan.processes if self._are_reused else 1)]
        self._newest: DriverSession | None = None

    def session(self, line: Line, named_sink_id: str, run: str, *, is_forgetful: bool) -> DriverSession:
        """`is_forgetful`: begin without state, unless processes are reused."""
        process = self._pick.choice(self._all)
        where = (line, run)
        if where not in process or (is_forgetful and not self._are_reused):
            process[where] = new_session(line, named_sink_id, run)
        session = process[where]
        if self._are_reused and self._newest is not None and self._newest is not session:
            self._stage.count("commit moved to another process")
            if session.identity is not None:
                self._stage.count("commit came back to an earlier process")
        self._newest = session
        return session

    def forget(self, session: DriverSession) -> None:
        """The operation of this session failed: the process forgets it."""
        for process in self._all:
            for where in [where for where, known in process.items() if known is session]:
                del process[where]

    def has(self, session: DriverSession) -> bool:
        return any(known is session for process in self._all for known in process.values())

    def end_one(self) -> bool:
        """Spark ends processes that have been idle, or of which it has too many."""
        process = self._pick.choice(self._all)
        was_of_use = bool(process)
        process.clear()
        return was_of_use

    def end_all(self) -> None:
        for process in self._all:
            process.clear()
        self._newest = None


def new_session(line: Line, named_sink_id: str = "", run: str = "") -> DriverSession:
    return DriverSession(line.sink_id, run, named_sink_id=named_sink_id, is_only_sink=True, code=line.code)
