"""`make demo`: a streaming job into Kafka, killed in the middle of its work and started again; every row is counted.

The demo starts the embedded broker in a separate process; `BROKER=kafka` starts Apache Kafka instead (needs Maven),
`BOOTSTRAP=host:port` uses your own broker. `FORMAT=avro` writes Avro instead of JSON, with its schema in an embedded
registry or in that of `REGISTRY=url`. For some seconds the demo creates files of rows, and a Spark application streams
them to a topic, gets a SIGKILL during a commit, starts again from its checkpoint and completes. A commit takes only
milliseconds and can be missed: the demo creates rows until it has killed the driver during one. If the machine is too
busy for that, it kills the driver in the middle of any micro-batch, and says so. confluent-kafka reads the topic with
isolation read_committed, so that the result does not depend on our own code.

The demo needs Java 17, and Linux, where /proc tells which processes are its own. It leaves no process and no file
behind, even after Ctrl-C. The exit code is 0 only if every row arrived and, with exactly-once delivery, none arrived
twice; 1 if not; 2 if the demo cannot run here.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs do not re-export it

from kafka_sink.options.sink_options import EXACTLY_ONCE
from kafka_sink.options.sink_table import SINK_OPTIONS
from kafka_sink.testing import EmbeddedRegistry
from tools.demo_display import NEXT, Display, Progress, display_on
from tools.demo_driver import ROOT, Driver, DriverFailed, MomentToKill
from tools.demo_ledger import Decisions
from tools.demo_rows import Feed, Plan, Reader, Tally, avro_reader, table
from tools.foreign_reader import TopicFollower, end_offsets, scan_topic
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import KafkaUnavailable
from tools.kafka_watchdog import can_find_processes
from tools.workspace import workspace

PARTITIONS = 4
# The guarantee that the demo checks: the sink's default.
GUARANTEE = SINK_OPTIONS["delivery.guarantee"].default
LEDGER = str(SINK_OPTIONS["ledger.topic"].default)
# The earliest time to kill the driver, as a share of the time in which rows appear.
KILL_AFTER = 0.35
# The share of the rows that must be visible by then: a kill at the very beginning shows nothing.
KILL_AFTER_VISIBLE = 0.1
# How much longer rows appear while the driver has not been killed, and when any moment of a micro-batch will do.
WAIT_FOR_KILL_S = 120.0
WAIT_FOR_COMMIT_S = 60.0
IN_COMMIT, IN_BATCH = "in the middle of a commit", "in the middle of a micro-batch"
PATIENCE_S = 300
WIDTH = 100


@dataclass(frozen=True)
class Values:
    """How values are written and read."""

    arguments: Sequence[str] = ()
    read: Reader = json.loads


class Demo:
    def __init__(self, servers: str, topic: str, folder: Path, plan: Plan, display: Display, values: Values) -> None:
        self._servers = servers
        self._topic = topic
        self._plan = plan
        self._display = display
        self._feed = Feed(folder, plan)
        checkpoint = folder / "checkpoint"
        arguments = ["--input", str(self._feed.input), "--end", str(self._feed.end), "--checkpoint", str(checkpoint)]
        arguments += ["--partitions", str(plan.partitions), "--to", f"topic={topic}"]
        arguments += values.arguments
        self._driver = Driver(folder, [*arguments, "--to", f"kafka.bootstrap.servers={servers}"])
        self._moment = MomentToKill(checkpoint, lambda: ledger_end(servers), lambda: bool(ledger(servers).returncode))
        # The rows that appear if the driver is killed at the last moment, or never.
        self._longest = replace(plan, seconds=plan.seconds + WAIT_FOR_KILL_S)
        self._read = values.read
        self._tally = Tally(self._longest, self._read)
        self._started_s = time.monotonic()
        self._feed_started_s: float | None = None
        self._killed = ""  # at which moment
        self._decision_count = 0

    def run(self) -> bool:
        """True if the topic has the expected rows."""
        self._driver.start()
        with (
            TopicFollower(self._servers, self._topic) as follower,
            Decisions(self._servers, LEDGER, self._topic) as decisions,
        ):
            while not self._feed.is_over or self._driver.is_running:
                self._driver.check()
                self._feed_what_is_due()
                self._tally.add_all(follower.poll(0.1))
                # The first row is visible after the first decision.
                decisions.look(is_there=self._tally.seen_count > 0)
                self._decision_count = decisions.count
                self._show_progress()
                is_late = self._is_late()
                if self._may_be_killed() and self._moment.kills(self._driver, is_late=is_late):
                    self._restart(IN_BATCH if is_late else IN_COMMIT)
                if self._age_s() > self._longest.seconds + PATIENCE_S:
                    raise DriverFailed(f"not at the end {PATIENCE_S} s after the last row was written")
            self._driver.check()
        streamed_s = time.monotonic() - (self._feed_started_s or self._started_s)
        return self._judge(streamed_s)

    def _feed_what_is_due(self) -> None:
        if self._feed_started_s is None:
            if not self._driver.is_streaming:
                return
            self._feed_started_s = time.monotonic()
            self._display.say(f"{self._age_s():5.1f} s  the query runs, rows begin to appear")
        fed_s = time.monotonic() - self._feed_started_s
        self._feed.write_until(fed_s, goes_on=not self._killed and fed_s < self._longest.seconds)

    def _may_be_killed(self) -> bool:
        wanted = KILL_AFTER_VISIBLE * self._plan.row_count
        if self._killed or self._feed_started_s is None or self._tally.seen_count < wanted:
            return False
        return time.monotonic() - self._feed_started_s > KILL_AFTER * self._plan.seconds

    def _is_late(self) -> bool:
        since_s = self._feed_started_s
        return since_s is not None and time.monotonic() - since_s > self._plan.seconds + WAIT_FOR_COMMIT_S

    def _restart(self, moment: str) -> None:
        self._display.keep(self._progress("killed"))
        self._killed = moment
        self._display.say(f"{self._age_s():5.1f} s  SIGKILL to the driver {moment}. The ledger says:")
        self._display.say(_indent(ledger(self._servers).stdout.rstrip()))
        self._display.say(f"{self._age_s():5.1f} s  it starts again")
        self._driver.start()

    def _show_progress(self) -> None:
        self._display.show(self._progress("streaming" if self._driver.is_streaming else "Spark is starting"))

    def _progress(self, state: str) -> Progress:
        return Progress(
            age_s=self._age_s(),
            rows_planned=max(self._plan.row_count, self._feed.row_count),
            rows_in=self._feed.row_count,
            rows_visible=self._tally.seen_count,
            rows_per_s=self._rows_per_s(),
            duplicates=self._tally.duplicate_count,
            decisions=self._decision_count,
            kills=int(bool(self._killed)),
            state=state,
        )

    def _rows_per_s(self) -> float:
        if self._feed_started_s is None:
            return 0
        return self._tally.seen_count / max(0.001, time.monotonic() - self._feed_started_s)

    def _age_s(self) -> float:
        return time.monotonic() - self._started_s

    def _judge(self, streamed_s: float) -> bool:
        """Reads the whole topic again from the start, and does not rely on what was shown before."""
        self._display.keep(self._progress("at the end"))
        self._display.say(f"{self._age_s():5.1f} s  the query has ended; every row of the topic is read and counted")
        written = self._feed.written
        tally = Tally(written, self._read)
        tally.add_all(scan_topic(self._servers, self._topic))
        rate = written.row_count / streamed_s
        self._display.say(f"\n{table(written, tally)}\n")
        self._display.say(
            f"{int(bool(self._killed))} kill of the driver, {self._decision_count} decisions in the ledger, "
            f"{streamed_s:.0f} s with the restart, {rate:,.0f} rows/s, delivery {GUARANTEE}"
        )
        is_right, text = judge(tally, self._killed)
        self._display.say(f"{text}\n\n{NEXT}")
        return is_right


def _indent(text: str) -> str:
    """Wraps sentences, but not rows of a table."""
    lines = (line if "  " in line else textwrap.fill(line, WIDTH) for line in text.splitlines())
    return textwrap.indent("\n".join(lines), " " * 9)


def ledger_end(servers: str) -> int:
    return sum(end_offsets(servers, LEDGER).values())


def ledger(servers: str) -> subprocess.CompletedProcess[str]:
    """What an operator would see now; the exit code is 1 if a decision is open."""
    command = [sys.executable, "-m", "kafka_sink", "ledger", "--bootstrap-server", servers]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def judge(tally: Tally, killed: str) -> tuple[bool, str]:
    """What became of the rows, which alone is right or wrong, and then what could not be shown. `killed`: when."""
    doubled = tally.duplicate_count if GUARANTEE == EXACTLY_ONCE else 0
    wrong = {"missing": tally.missing_count, "twice": doubled, "not what was written": tally.damaged_count}
    if any(wrong.values()):
        return False, f"NOT RIGHT: {', '.join(f'{count:,} {what}' for what, count in wrong.items() if count)}."
    text = "Every row arrived, and none twice."
    if tally.duplicate_count:
        text = (
            "Every row arrived; those of the micro-batch that was cut short are there twice, as at least once allows."
        )
    if killed == IN_BATCH:
        text += "\nNot shown: a kill in the middle of a commit. On this machine none could be caught in time."
    elif not killed:
        text += "\nNot shown: a kill of the driver. The query ended before one."
    return True, text


@contextlib.contextmanager
def values_of(topic: str, display: Display) -> Iterator[Values]:
    chosen = os.environ.get("FORMAT", "json")
    if chosen == "json":
        yield Values()
    elif chosen == "avro":
        with contextlib.ExitStack() as stack:
            url = os.environ.get("REGISTRY") or stack.enter_context(EmbeddedRegistry()).url
            display.say(f"values are Avro, their schema is in the registry {url}")
            options = {"value.format": "avro", "schema.registry.url": url, "auto.register.schemas": "true"}
            pairs = [word for name, value in options.items() for word in ("--to", f"{name}={value}")]
            yield Values(["--format", "avro", *pairs], avro_reader(url, topic))
    else:
        raise SystemExit(f"FORMAT={chosen} is unknown: json or avro")


@contextlib.contextmanager
def broker(folder: Path, display: Display) -> Iterator[str]:
    named = os.environ.get("BOOTSTRAP")
    kind = os.environ.get("BROKER", "embedded")
    if named:
        yield named
    elif kind == "kafka":
        with KafkaCluster(properties=server_properties()) as kafka:
            display.say(f"Apache Kafka {kafka.version} runs on {kafka.bootstrap_servers}")
            yield kafka.bootstrap_servers
    elif kind == "embedded":
        with embedded_broker(folder) as servers:
            display.say(f"the embedded broker runs on {servers}")
            yield servers
    else:
        raise SystemExit(f"BROKER={kind} is unknown: embedded or kafka, or BOOTSTRAP=host:port")


@contextlib.contextmanager
def embedded_broker(folder: Path) -> Iterator[str]:
    """In a separate process, with its records on disk."""
    command = [sys.executable, "-m", "kafka_sink.testing", "--port", "0", "--data-dir", str(folder / "broker")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        finally:
            process.kill()


def server_properties() -> dict[str, str]:
    lines = (ROOT / "conf" / "server.properties").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


@contextlib.contextmanager
def topic_on(servers: str) -> Iterator[str]:
    name = f"demo-{uuid.uuid4().hex[:8]}"
    # Output is discarded: it would complain that the broker stops first.
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(name, num_partitions=PARTITIONS)])[name].result(30)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(30)


def arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="minimum time in which rows appear (default 10)")
    parser.add_argument("--rows-per-second", type=int, default=10_000, help="default 10000")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    wanted = arguments(given)
    if not can_find_processes():
        print("The demo needs Linux: without /proc it cannot find the processes that it has to kill", file=sys.stderr)
        return 2
    display = display_on(sys.stdout)
    plan = Plan(wanted.seconds, max(1, wanted.rows_per_second // 8), PARTITIONS)
    # Handled like Ctrl-C: all started processes must end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with (
            workspace("pykafka-sink-demo-") as folder,
            broker(folder, display) as servers,
            topic_on(servers) as topic,
            values_of(topic, display) as values,
        ):
            return 0 if Demo(servers, topic, folder, plan, display, values).run() else 1
    except KafkaUnavailable as error:
        print(f"{error}\nThe demo needs Java 17, and with BROKER=kafka Maven", file=sys.stderr)
        return 2
    except DriverFailed as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        display.say("stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
