"""`make soak MINUTES=30`: a streaming query on a standalone cluster while everything around it is killed.

The run has three Apache Kafka nodes, a Spark master with two workers on two addresses, and files of rows that appear
continuously. Every few seconds a process is killed or paused: the driver, an executor, a Python process that runs a
task, a Spark worker, a broker (one at a time, because min.insync.replicas is 2 of 3). Killed processes are started
again, the query from its checkpoint. An operator aborts open transactions by command, whatever writes. Beside the
stream, batch writes run in another application (soak_exports.py): exports with their own labels under one sink id at
the same time, and nameless writes that are cancelled. At the end all processes are restored, everything completes, and
confluent-kafka reads the topics with isolation read_committed: every row must be there once, and of a cancelled write
all rows or none. Meanwhile a watch notes how long readers of each partition were held back.

The seed decides faults and their times, but not what runs at that time: real processes cannot be replayed. The exit
code is 0 only if no row is missing, duplicated or damaged, no transaction is left open, and no reader was held back
longer than the time-out of a transaction and the outage of a broker explain.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kafka_sink.commit.admin.client import Client
from kafka_sink.options.parse import parse_producer_options
from tools.demo_rows import Feed, Plan, Tally, table
from tools.driver_processes import kill_driver
from tools.foreign_reader import EndsFollower, scan_topic
from tools.jvm_cluster import SubmittedJob
from tools.kafka_cluster import KafkaCluster
from tools.listed_transactions import listed_transactions
from tools.soak_exports import SINK_ID, STOP, TOPICS, TRANSACTION_TIMEOUT_MS
from tools.spark_cluster import SparkCluster

ROOT = Path(__file__).parent.parent
JOB = ROOT / "spark_jobs" / "demo.py"
STARTED = "the query has started"
TOPIC, PARTITIONS = "soak", 6
FILES_PER_S, ROWS_PER_FILE = 2, 1000
PAUSE_S = (3.0, 9.0)  # between two faults
DOWN_S = (2.0, 12.0)  # until a stopped process is started again
# A new driver runs at least this long before it may be killed; otherwise no batch would be committed.
GRACE_S = 8.0
TOLD_EVERY_S = 10.0
END_PATIENCE_S = 600.0
# Readers wait for the rest of a transaction's time-out at most, and while a partition has no leader. A decided batch of
# the stream must be finished by the next driver in that time, so it is much longer there.
STREAM_TIMEOUT_MS = 900_000
HELD_BACK_S_MAX = {
    TOPIC: STREAM_TIMEOUT_MS / 1000 + 60,
    **dict.fromkeys(TOPICS, TRANSACTION_TIMEOUT_MS / 1000 + 60),
}
NOTED_S = 80.0
# Texts of errors that end a query by design and ask for a restart; anything else is a finding.
EXPECTED_ENDS = ("CommitAborted", "CommitPending", "OperationTimeout", "DeliveryTimeout", "TransactionAborted")


class SoakFailed(Exception):
    """The query ended for a reason that no fault explains."""


class ReadersWatch:
    """How long the last stable offset of a partition stood still behind its end, and behind which transactions."""

    def __init__(self, servers: str, log: Path) -> None:
        self._servers = servers
        self._log = log
        self._noted_s = 0.0
        # By topic.
        self.longest_s = dict.fromkeys(HELD_BACK_S_MAX, 0.0)
        self._ends = EndsFollower(servers)
        self._since: dict[tuple[str, int], tuple[int, float]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ReadersWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._is_over.wait(1.0):
            for topic in self.longest_s:
                with suppress(Exception):  # brokers are down now and then: asked again
                    self._look(topic)

    def _look(self, topic: str) -> None:
        stable, ends = self._ends.end_offsets(topic, "read_committed"), self._ends.end_offsets(topic)
        now_s = time.monotonic()
        for partition, offset in stable.items():
            where = (topic, partition)
            if offset >= ends.get(partition, -1):
                self._since.pop(where, None)
                continue
            known, since_s = self._since.get(where, (-1, now_s))
            self._since[where] = (offset, since_s if offset == known else now_s)
            if offset == known:
                self.longest_s[topic] = max(self.longest_s[topic], now_s - since_s)
                if now_s - since_s > NOTED_S and now_s - self._noted_s > NOTED_S / 4:
                    self._note(f"{topic}-{partition}: {now_s - since_s:.0f} s at offset {offset}")
                    self._noted_s = time.monotonic()

    def _note(self, where: str) -> None:
        """For the reader of a verdict: what was open meanwhile."""
        command = [sys.executable, "-m", "kafka_sink", "transactions", "--bootstrap-server", self._servers]
        told = subprocess.run([*command, "--timeout", "10"], cwd=ROOT, capture_output=True, text=True, check=False)
        with self._log.open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {where}\n{told.stdout}{told.stderr}\n")

    @property
    def too_long(self) -> list[str]:
        return [topic for topic, longest_s in self.longest_s.items() if longest_s > HELD_BACK_S_MAX[topic]]


class Soak:
    def __init__(
        self, kafka: KafkaCluster, spark: SparkCluster, folder: Path, plan: Plan, *, seed: int, calm: float
    ) -> None:
        self._kafka = kafka
        self._spark = spark
        self._folder = folder
        self._plan = plan
        self._dice = random.Random(seed)
        self._calm = calm
        self._feed = Feed(folder, plan)
        self._faults: Counter[str] = Counter()
        self._healings: list[tuple[float, Callable[[], None]]] = []
        self._down_broker: int | None = None
        self._started_s = time.monotonic()
        self._job = self._submit()
        self._job_started_s = time.monotonic()
        self._exports = self._start_exports()
        self._commands: list[subprocess.Popen[bytes]] = []

    def run(self, watch: ReadersWatch) -> bool:
        next_fault_s, next_told_s = GRACE_S, 0.0
        while not self._feed.is_over:
            self._feed.write_until(self._age_s())
            self._heal_what_is_due()
            self._restart_if_ended()
            if self._age_s() >= next_fault_s:
                self._strike()
                next_fault_s = self._age_s() + self._dice.uniform(*PAUSE_S) * self._calm
            if self._age_s() >= next_told_s:
                self._tell()
                next_told_s = self._age_s() + TOLD_EVERY_S
            time.sleep(0.1)
        self._come_to_the_end()
        return self._judge(self._end_exports(), watch)

    # ---- faults ----------------------------------------------------------------------------------------------------

    def _strike(self) -> None:
        strikes = (
            self._kill_driver,
            self._kill_executor,
            self._kill_python_worker,
            self._pause_executor,
            self._kill_spark_worker,
            self._kill_broker,
            self._pause_broker,
            self._abort_by_hand,
        )
        with suppress(ProcessLookupError, ValueError):  # the process had ended already
            self._dice.choice(strikes)()

    def _kill_driver(self) -> None:
        if STARTED in self._job.output and time.monotonic() - self._job_started_s > GRACE_S * self._calm:
            kill_driver(self._job.process)
            self._note("driver killed")
            self._start_again()

    def _kill_executor(self) -> None:
        executors = self._spark.executors()
        if executors:
            self._spark.kill(self._dice.choice(executors).process_id)
            self._note("executor killed")

    def _kill_python_worker(self) -> None:
        workers = self._spark.python_workers()
        if workers:
            self._spark.kill(self._dice.choice(workers))
            self._note("python worker killed")

    def _pause_executor(self) -> None:
        executors = self._spark.executors()
        if executors:
            process_id = self._dice.choice(executors).process_id
            self._spark.pause(process_id)
            self._note("executor paused")
            self._later(lambda: self._spark.resume(process_id))

    def _kill_spark_worker(self) -> None:
        number = self._dice.choice((1, 2))
        self._spark.kill(self._spark.worker_process_id(number))
        self._note("Spark worker killed")
        self._later(lambda: self._spark.start_worker(number))

    def _kill_broker(self) -> None:
        self._with_broker(self._kafka.kill, lambda node_id: self._kafka.start(node_id, wait=False), "broker killed")

    def _pause_broker(self) -> None:
        self._with_broker(self._kafka.pause, self._kafka.resume, "broker paused")

    def _abort_by_hand(self) -> None:
        """As an operator does who did not stop the query first."""
        chosen = self._dice.choice((["--checkpoint", str(self._folder / "checkpoint")], ["--sink-id", SINK_ID]))
        command = [sys.executable, "-m", "kafka_sink", "transactions", "--abort", "--yes", *chosen]
        command += ["--bootstrap-server", self._kafka.bootstrap_servers]
        with (self._folder / "operator.log").open("ab") as log:
            self._commands.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
        self._note("transactions aborted by an operator")

    def _with_broker(self, break_it: Callable[[int], None], mend_it: Callable[[int], None], name: str) -> None:
        """Only one broker at a time: without two of three, nothing can be written."""
        if self._down_broker is not None:
            return
        node_id = self._down_broker = self._dice.choice(self._kafka.node_ids)
        break_it(node_id)
        self._note(name)

        def mend() -> None:
            mend_it(node_id)
            # It must catch up before another one may be stopped.
            self._healings.append((self._age_s() + DOWN_S[1], self._forget_broker))

        self._later(mend)

    def _forget_broker(self) -> None:
        self._down_broker = None

    def _note(self, name: str) -> None:
        self._faults[name] += 1

    def _later(self, heal: Callable[[], None]) -> None:
        self._healings.append((self._age_s() + self._dice.uniform(*DOWN_S), heal))

    def _heal_what_is_due(self, *, is_everything: bool = False) -> None:
        due = [each for each in self._healings if is_everything or each[0] <= self._age_s()]
        self._healings = [each for each in self._healings if each not in due]
        for _, heal in due:
            with suppress(ProcessLookupError, ValueError):
                heal()

    # ---- batch writes ----------------------------------------------------------------------------------------------

    def _start_exports(self) -> subprocess.Popen[bytes]:
        folder = self._folder / "exports"
        folder.mkdir()
        command = [sys.executable, "-m", "tools.soak_exports", "--servers", self._kafka.bootstrap_servers]
        command += ["--folder", str(folder), "--seed", str(self._dice.randrange(1 << 31))]
        with (folder / "output.log").open("wb") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, start_new_session=True)

    def _end_exports(self) -> dict[str, Any]:
        """Their own verdict."""
        folder = self._folder / "exports"
        (folder / STOP).touch()
        try:
            output, _ = self._exports.communicate(timeout=END_PATIENCE_S + 300)
        except subprocess.TimeoutExpired:
            raise SoakFailed("the batch writes did not end") from None
        lines = output.decode().splitlines()
        if not lines:
            raise SoakFailed(
                f"the batch writes ended without a verdict:\n{(folder / 'output.log').read_text()[-4000:]}"
            )
        verdict: dict[str, Any] = json.loads(lines[-1])
        return verdict

    def close(self) -> None:
        for process in (self._exports, *self._commands):
            if process.poll() is None:
                process.kill()
                process.wait(30)

    # ---- the query -------------------------------------------------------------------------------------------------

    def _submit(self) -> SubmittedJob:
        arguments = ["--input", str(self._feed.input), "--end", str(self._feed.end), "--partitions", str(PARTITIONS)]
        arguments += ["--checkpoint", str(self._folder / "checkpoint"), "--to", f"topic={TOPIC}"]
        arguments += ["--to", f"kafka.bootstrap.servers={self._kafka.bootstrap_servers}"]
        arguments += ["--to", "ledger.replication.factor=3"]
        arguments += ["--to", f"kafka.transaction.timeout.ms={STREAM_TIMEOUT_MS}"]
        return self._spark.submit(JOB, arguments, conf={"spark.task.maxFailures": "8"})

    def _start_again(self) -> None:
        self._job = self._submit()
        self._job_started_s = time.monotonic()

    def _restart_if_ended(self) -> None:
        if self._job.is_running:
            return
        if self._job.process.returncode == 0:
            raise SoakFailed("the query ended before its input did")
        log = self._job.log
        if "CommitLost" in log:
            raise SoakFailed(f"the query says that rows are lost:\n{log[-4000:]}")
        unexpected = f"something else (exit code {self._job.process.returncode})"
        reason = next((each for each in EXPECTED_ENDS if each in log), unexpected)
        self._note(f"query stopped by itself: {reason}")
        (self._folder / f"stopped-{sum(self._faults.values())}.log").write_text(log)
        self._start_again()

    def _come_to_the_end(self) -> None:
        """Waits as long as batches are committed: on a busy machine many files may be left."""
        self._say("the input has ended; all processes are restored")
        deadline_s, newest = time.monotonic() + END_PATIENCE_S, -1
        self._heal_what_is_due(is_everything=True)
        self._kafka.heal()
        while self._job.is_running or self._job.process.returncode != 0:
            self._heal_what_is_due(is_everything=True)
            if not self._job.is_running:
                self._restart_if_ended()
            if self._newest_batch() > newest:
                deadline_s, newest = time.monotonic() + END_PATIENCE_S, self._newest_batch()
            if time.monotonic() > deadline_s:
                raise SoakFailed(
                    f"the query has committed nothing for {END_PATIENCE_S} s after its input:\n{self._job.log[-4000:]}"
                )
            time.sleep(0.2)

    def _newest_batch(self) -> int:
        commits = self._folder / "checkpoint" / "commits"
        names = [path.name for path in commits.iterdir()] if commits.is_dir() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    # ---- the verdict -----------------------------------------------------------------------------------------------

    def _judge(self, exports: Mapping[str, Any], watch: ReadersWatch) -> bool:
        tally = Tally(self._plan)
        tally.add_all(scan_topic(self._kafka.bootstrap_servers, TOPIC))
        open_count = self._open_transactions()
        print(f"\n{table(self._plan, tally)}\n")
        for name, count in sorted(self._faults.items()):
            print(f"{count:5} x {name}")
        print(f"\n{open_count} transactions left open, {tally.damaged_count} records damaged, {self._age_s():.0f} s")
        print(", ".join(f"{name}: {value}" for name, value in exports.items()))
        for topic, longest_s in watch.longest_s.items():
            print(f"readers of {topic} were held back for {longest_s:.0f} s (of {HELD_BACK_S_MAX[topic]:.0f} allowed)")
        is_right = not (tally.missing_count or tally.duplicate_count or tally.damaged_count or open_count)
        is_right = is_right and not exports["wrong"] and not watch.too_long
        print("Every row once." if is_right else "NOT RIGHT.", flush=True)
        return is_right

    def _open_transactions(self) -> int:
        with Client(parse_producer_options({"bootstrap.servers": self._kafka.bootstrap_servers})) as client:
            return len(listed_transactions(client, "Ongoing"))

    def _tell(self) -> None:
        state = "streaming" if STARTED in self._job.output else "starting"
        faults = sum(self._faults.values())
        self._say(f"rows in {self._feed.row_count:>9,}  faults {faults:>4}  query {state}")

    def _say(self, text: str) -> None:
        print(f"{self._age_s():6.0f} s  {text}", flush=True)

    def _age_s(self) -> float:
        return time.monotonic() - self._started_s


def keep_logs(folder: Path, kept: Path | None) -> None:
    if kept is None:
        return
    for pattern in ("*.log", "exports/*.log", "exports/*.json"):
        for path in folder.glob(pattern):
            target = kept / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--kafka", default="4.3.1", help="4.3.1 or 3.9.1")
    parser.add_argument(
        "--calm",
        type=float,
        default=1,
        help="pauses are so many times as long, and files so many times as small: on a busy machine",
    )
    parser.add_argument("--logs", type=Path, help="a new folder that gets the logs, and the ends of all writes")
    given = parser.parse_args()
    print(f"seed {given.seed}, Apache Kafka {given.kafka}, {given.minutes:g} minutes", flush=True)
    plan = Plan(given.minutes * 60, round(ROWS_PER_FILE / given.calm), PARTITIONS, FILES_PER_S)
    try:
        with (
            TemporaryDirectory(prefix="pykafka-sink-soak-") as folder,
            KafkaCluster(given.kafka, nodes=3) as kafka,
            SparkCluster(workers=2) as spark,
        ):
            kafka.create_topic(TOPIC, partitions=PARTITIONS)
            for topic in TOPICS:
                kafka.create_topic(topic, partitions=2)
            soak = Soak(kafka, spark, Path(folder), plan, seed=given.seed, calm=given.calm)
            try:
                with ReadersWatch(kafka.bootstrap_servers, Path(folder, "held.log")) as watch:
                    is_right = soak.run(watch)
            finally:
                soak.close()
                keep_logs(Path(folder), given.logs)
            return 0 if is_right else 1
    except SoakFailed as error:
        print(f"NOT RIGHT: {error}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
