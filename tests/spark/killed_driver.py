"""jobs/stream_and_exports.py under fire: its driver is killed at chosen requests or at any moment and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kafka_sink.kafka.wire.apis import END_TXN, PRODUCE, Api
from tests.spark.applications import ROOT, start_application
from tests.support.faults import Harm, Request, of_a_task, of_the_driver, of_the_driver_alone, whose
from tests.support.kafka_proxy import KafkaProxy
from tests.support.manifests import manifest_problems
from tests.support.open_transactions import open_transactions
from tools.driver_processes import kill_driver
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

JOB = Path(__file__).parent / "jobs" / "stream_and_exports.py"
ROWS = 20
# What is added before each start.
FILES = 3
PATIENCE_S = 500


class Phase(NamedTuple):
    """The driver dies at the `nth` request of this kind."""

    api: Api
    where: Callable[[Request], bool]
    nth: int
    harm: Harm


# A write has two tasks. Its driver writes the decision, commits the tasks' transactions, and writes that it is done.
PHASES = {
    "in the tasks": Phase(PRODUCE, of_a_task, 2, Harm.LOSE_ANSWER),
    "after the tasks": Phase(PRODUCE, of_the_driver, 1, Harm.LOSE_REQUEST),
    "after the decision": Phase(END_TXN, of_a_task, 1, Harm.LOSE_REQUEST),
    "between two EndTxn": Phase(END_TXN, of_a_task, 2, Harm.LOSE_REQUEST),
    "before the done record": Phase(PRODUCE, of_the_driver, 2, Harm.LOSE_REQUEST),
    "before Spark's commit log": Phase(END_TXN, of_the_driver, 2, Harm.LOSE_ANSWER),
}
STREAM, EXPORTS = "stream", "exports"


class KilledDriver:
    """A context manager, because of the application. Brokers are reached through the proxy."""

    def __init__(self, kafka: KafkaCluster, proxy: KafkaProxy, topic: str, folder: Path, door: str) -> None:
        self.kills: Counter[str] = Counter()
        self._kafka = kafka
        self._proxy = proxy
        self._folder = folder
        self._door = door
        self._process: subprocess.Popen[bytes] | None = None
        self._is_dead = False
        self._survivor = proxy.on(None, Harm.LOSE_REQUEST, where=self._is_of_survivor)
        self._start_count = self._file_count = 0
        self._topics = {STREAM: topic, EXPORTS: f"{topic}-exports"}
        sink_id = topic[-40:].lstrip("-")
        self.sink_ids = {STREAM: sink_id, EXPORTS: f"{sink_id}-exports"}
        for name in self._topics.values():
            kafka.create_topic(name, partitions=3)
        for name in ("input", "orders", "done"):
            (folder / name).mkdir()
        self._manifests = f"{topic}-manifests"
        kafka.create_topic(self._manifests, partitions=2)
        self._options = {"kafka.bootstrap.servers": proxy.bootstrap_servers, "topic": topic, "sink.id": sink_id}
        self._options["manifest.topic"] = self._manifests

    def __enter__(self) -> KilledDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill_at(self, phase: str, whose_write: str) -> None:
        api, kind, nth, harm = PHASES[phase]
        fault = self._proxy.on(
            api,
            harm,
            nth=nth,
            before=self.kill,
            where=lambda request: kind(request) and self._is_of(request, whose_write),
        )
        self._start()
        self._wait_until(lambda: fault.has_acted, f"{phase} of the {whose_write}")
        self._note(f"{phase} ({whose_write}: {whose(fault)})")

    def kill_after(self, seconds: float) -> None:
        """Counted from the start of the query."""
        self._start()
        self._wait_until(lambda: b"started" in self._output.read_bytes(), "the query has started")
        with suppress(subprocess.TimeoutExpired):
            self._running.wait(seconds)
        self._check_that_it_runs("any moment")
        self.kill()
        self._note("any moment")

    def finish(self) -> None:
        """The last application delivers everything."""
        (self._folder / "end").touch()
        self._start()
        while self._running.poll() is None:
            known = self._delivered()
            with suppress(subprocess.TimeoutExpired):
                self._running.wait(PATIENCE_S)
            assert self._running.poll() is not None or self._delivered() > known, self._errors()
        assert self._running.returncode == 0, self._errors()

    def problems(self) -> list[str]:
        """What is wrong with the rows and the manifests, what is open, and what the ledger has not closed."""
        wanted = Counter(b"%d" % number for number in range(self._file_count * ROWS))
        found_wrong = []
        for name, topic in self._topics.items():
            found = Counter(record.value for record in read_topic(self._kafka.bootstrap_servers, topic))
            missing, added = (wanted - found).total(), (found - wanted).total()
            print(f"{name}: rows in {wanted.total()}, rows out {found.total()}, missing {missing}, added {added}")
            found_wrong += [f"{name}: {missing} rows missing, {added} added"] if missing or added else []
            found_wrong += open_transactions(self._kafka.bootstrap_servers, self.sink_ids[name])
            found_wrong += self._decided(self.sink_ids[name])
            found_wrong += manifest_problems(
                self._kafka.bootstrap_servers, self._manifests, self.sink_ids[name], self._batches(name), topic
            )
        return found_wrong

    def _batches(self, name: str) -> list[object]:
        if name == EXPORTS:
            return [f"export-{path.name}" for path in (self._folder / "done").iterdir()]
        commits = (self._folder / "checkpoint" / "commits").glob("[0-9]*")
        return [int(path.name) for path in commits]

    def kill(self) -> None:
        if self._process is not None:
            kill_driver(self._process)
            self._is_dead = True

    def _start(self) -> None:
        self._check_that_it_is_dead()
        self._is_dead = False
        for _ in range(FILES):
            self._add_file()
        number, self._start_count = self._start_count, self._start_count + 1
        arguments = [str(self._folder), self._door, *(f"{name}={value}" for name, value in self._options.items())]
        self._process = start_application(JOB, arguments, self._folder, number, stdin=subprocess.DEVNULL)

    def _add_file(self) -> None:
        """The same rows for the stream and for an export."""
        first = self._file_count * ROWS
        for kind in ("input", "orders"):
            hidden = self._folder / "hidden"
            hidden.write_text("".join(f"{first + row}\n" for row in range(ROWS)))
            hidden.rename(self._folder / kind / f"{self._file_count:06d}")
        self._file_count += 1

    def _is_of(self, request: Request, whose_write: str) -> bool:
        body = request.body
        owner = str(body.get("transactional_id") or body.get("v3_and_below_transactional_id") or "")
        is_export = owner.startswith(f"{self.sink_ids[EXPORTS]}-")
        return is_export if whose_write == EXPORTS else owner.startswith(f"{self.sink_ids[STREAM]}-") and not is_export

    def _is_of_survivor(self, request: Request) -> bool:
        return self._is_dead and of_the_driver_alone(request) and request.is_of_the_living

    def _check_that_it_is_dead(self) -> None:
        assert not self._survivor.has_acted, f"the killed driver goes on: {whose(self._survivor)}"

    def _delivered(self) -> int:
        """Exports and micro-batches, to see that it goes on."""
        commits = self._folder / "checkpoint" / "commits"
        return len([*(self._folder / "done").iterdir(), *commits.glob("[0-9]*")])

    def _note(self, what: str) -> None:
        self._running.wait(60)
        self.kills[what] += 1
        print(f"kill {self.kills.total():3}  {what}", flush=True)

    def _decided(self, sink_id: str) -> list[str]:
        command = [sys.executable, "-m", "kafka_sink", "ledger", "--sink-id", sink_id]
        command += ["--bootstrap-server", self._kafka.bootstrap_servers]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        return [] if answer.returncode == 0 else [answer.stdout + answer.stderr]

    def _wait_until(self, is_true: Callable[[], Any], what: str) -> None:
        wait_until(
            lambda: is_true() or self._check_that_it_runs(what), lambda: f"{what}:\n{self._errors()}", PATIENCE_S
        )

    def _check_that_it_runs(self, awaited: str) -> None:
        """Its death by a fault is seen after the fault."""
        code = self._running.poll()
        assert code in (None, -signal.SIGKILL), f"the application has ended before {awaited}:\n{self._errors()}"

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def _output(self) -> Path:
        return self._folder / f"output-{self._start_count - 1}"

    def _errors(self) -> str:
        path = self._folder / f"errors-{self._start_count - 1}"
        return f"{self._output.read_text()[-1000:]}\n{path.read_text()[-4000:]}"
