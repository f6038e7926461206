"""Several queries share the processes that plan and commit, as in one Spark application; any of them serves any query.

What a process remembers of a query may then be older than what another one did since. That ends no query and duplicates
no row; only another run of the same query counts as another driver. With Spark itself:
tests/spark/test_many_streams.py.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.chaos.bare_spark import BareQuery, Killed, Worker
from tests.chaos.bare_stream import BareStream
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

QUERIES, PROCESSES, STEPS = 3, 3, 45
# How long a commit is in progress when its query is stopped.
IN_COMMIT_S = (0.0, 0.2)


class SharedProcesses:
    """Some processes for planning and committing and one for tasks. A dead one is replaced when it is needed."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._workers = [Worker() for _ in range(PROCESSES)]
        self.tasks = Worker()

    def choose(self) -> Worker:
        return self._dice.choice(self._workers)

    def replace(self, worker: Worker) -> None:
        worker.close()
        if worker is self.tasks:
            self.tasks = Worker()
        else:
            self._workers[self._workers.index(worker)] = Worker()

    def close(self) -> None:
        for worker in (*self._workers, self.tasks):
            worker.close()


class SharingQuery(BareQuery):
    """Every call goes to a process that other queries use, too."""

    def __init__(self, stream: BareStream, processes: SharedProcesses) -> None:
        super().__init__(stream.checkpoint, stream.settings)
        self._processes = processes

    def worker(self, role: str) -> Worker:
        self._workers[role] = self._processes.tasks if role == "tasks" else self._processes.choose()
        return self._workers[role]

    def end_worker(self, role: str) -> None:
        worker = self._workers.pop(role, None)
        if worker is not None:
            self._processes.replace(worker)

    def stop_in_commit(self, dice: random.Random) -> bool:
        """Spark interrupts the stream, which ends its process. Returns whether the batch was committed before that."""
        self.plan()
        self.begin_commit(self.write_tasks())
        time.sleep(dice.uniform(*IN_COMMIT_S))
        worker = self._workers["commit"]
        worker.kill()
        try:
            worker.result()
        except Killed:
            return False
        finally:
            self.end_worker("commit")
        return True


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_queries_that_share_their_processes_and_are_stopped_and_started_deliver_each_row_once(
    kafka: KafkaCluster, topic_name: str, seed: int
) -> None:
    dice = random.Random(seed)
    streams = [BareStream(kafka, f"{topic_name}-{number}", is_direct=True) for number in range(QUERIES)]
    processes = SharedProcesses(dice)
    try:
        queries = [SharingQuery(stream, processes) for stream in streams]
        for _ in range(STEPS):
            number = dice.randrange(QUERIES)
            act = dice.choice(("batch",) * 5 + ("stop", "stop in commit", "kill"))
            if act == "batch":
                queries[number].run_batch()
            elif act == "stop in commit":
                streams[number].checkpoint.committed += queries[number].stop_in_commit(dice)
            elif act == "kill":
                processes.replace(processes.choose())
            if act in ("stop", "stop in commit"):
                queries[number] = SharingQuery(streams[number], processes)
        for query in queries:  # completes what the last stop has left
            query.run_batch()
    finally:
        processes.close()
    for stream in streams:
        stream.check()
