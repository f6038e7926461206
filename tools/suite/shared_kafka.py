"""One node of Apache Kafka for all processes of a run: the first request starts it, and it runs until the run ends.

    python -m tools.suite.shared_kafka 4.3.1 FOLDER     # the process that owns the node

Tests have their own topics, ids and ledgers, so tests of several processes may share a broker. A test that stops a
node, or reads its log, starts its own.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path
from signal import Signals, pause
from typing import NoReturn

from tools.kafka_archive import make_archive
from tools.kafka_cluster import KafkaCluster
from tools.kafka_node import KafkaNode
from tools.waiting import wait_until

# In place of the controller's port, which tests that share the node do not need.
NO_PORT = 0
_PATIENCE_S = 240.0
# Keeps references: Python warns if a running process is garbage-collected.
_KEEPERS: list[subprocess.Popen[bytes]] = []


class LentNode(KafkaNode):
    """A running node that tests must not start, stop or signal."""

    @property
    def is_running(self) -> bool:
        return True

    def start(self) -> None:
        self._refuse()

    def signal(self, number: Signals) -> None:
        self._refuse()

    def kill(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError(f"node {self.node_id} serves other tests as well: a test that stops one starts its own")


class SharedKafka(KafkaCluster):
    def __init__(self, version: str, folder: Path) -> None:
        super().__init__(version)
        self._run_folder = folder

    def open(self) -> None:
        make_archive(self.version)  # raises an error if there is no Java
        told = self._run_folder / f"kafka-{self.version}.json"
        with open(told.with_suffix(".lock"), "w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            if not told.exists():
                _start(self.version, told)
        place = json.loads(told.read_text())
        self._folder = Path(place["folder"])
        self._nodes = {1: LentNode(self.version, 1, place["port"], NO_PORT, self._folder / "node-1")}

    def close(self) -> None:
        """Does nothing: the node serves other tests."""


def _start(version: str, told: Path) -> None:
    log = told.with_suffix(".log")
    with open(log, "wb") as output:
        # Own session, because it outlives the pytest process that starts it.
        keeper = subprocess.Popen(
            [sys.executable, "-m", __name__, version, str(told)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    _KEEPERS.append(keeper)

    def is_told() -> bool:
        if keeper.poll() is not None:
            raise RuntimeError(f"no shared Apache Kafka {version}:\n{log.read_text(errors='replace')[-4000:]}")
        return told.exists()

    wait_until(is_told, f"the shared Apache Kafka {version} runs", _PATIENCE_S)


def main() -> None:
    version, told = sys.argv[1], Path(sys.argv[2])
    with KafkaCluster(version) as kafka:
        port = int(kafka.address_of(1).rpartition(":")[2])
        new = told.with_suffix(".new")
        new.write_text(json.dumps({"folder": str(kafka.folder), "port": port}))
        new.rename(told)
        pause()


if __name__ == "__main__":
    main()
