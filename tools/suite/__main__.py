"""`make test`: runs the test files in parallel pytest processes, as many as the cores have room for.

    python -m tools.suite                            # everything except tests marked slow
    python -m tools.suite tests/chaos -- -k ledger   # some folders or files; arguments after -- are for pytest
    python -m tools.suite --seed 7                   # the order and the random data of an earlier run

plan.py decides which files share a process and which process starts next, from the figures in tests/durations.json;
`--record` rewrites them. With `--second-try N`, if at most N tests failed, each of them is tried again by itself; one
that passes then is listed as unsteady and does not fail the run. The last line is `N passed, N failed, N skipped`, and
the exit code is 0 only if no test failed and every process completed. Why not pytest-xdist: docs/testing.md.

Each process has its own sessions, temporary files and clusters, and one plain broker serves them all (shared_kafka.py).
All files are below one folder. At the end, also after Ctrl-C, the folder is removed and all processes that use it are
killed; a watchdog does this if the runner is killed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.suite.plan import GUESS, Bundle, bundles, guess_cost, next_to_start, read_costs, seconds_left, written_costs
from tools.suite.plugin import file_of
from tools.suite.tally import Tally
from tools.suite.worker import Worker
from tools.workspace import workspace

# Paths are relative to the current folder, as in pytest. `make compat` runs the first, with each PySpark, and
# `make yarn` the second.
ELSEWHERE = ("tests/compat", "tests/yarn")
DURATIONS = Path("tests/durations.json")
# A core counts as busy with this load. More than one, because the load of a bundle is an average: cores would be idle
# whenever several wait at once.
BUSY_LOAD = 1.3
PROCESSES_PER_CORE = 3
# The memory of three brokers, or of Spark with its executors, in addition to the tests.
BYTES_PER_PROCESS = 2_500_000_000
# The limit from Ctrl-C to the end of the fixtures.
INTERRUPT_PATIENCE_S = 30.0


class Suite:
    def __init__(
        self, waiting: list[Bundle], folder: Path, arguments: Sequence[str], processes_max: int | None = None
    ) -> None:
        self.tally = Tally()
        self.again: list[str] = []
        self._waiting = waiting
        self._folder = folder
        self._arguments = arguments
        self._cores = len(os.sched_getaffinity(0))
        self._processes_max = processes_max or min(self._cores * PROCESSES_PER_CORE, processes_in_memory())
        self._file_count = sum(len(bundle.files) for bundle in waiting)
        self._whole_s = seconds_left(waiting, [], self._cores)
        self._done_count = 0
        self._started_count = 0
        self._started_s = time.monotonic()
        self._running: list[Worker] = []
        self._downloads: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        if any(bundle.needs_brokers for bundle in self._waiting):
            self._downloads = subprocess.Popen([sys.executable, "-m", "tools.download"])
        try:
            while self._waiting or self._running:
                self._start_what_fits()
                for key, _ in self._selector.select(timeout=0.5):
                    self._listen(key.data)
                for worker in [one for one in self._running if one.is_over]:
                    self._finish(worker)
        finally:
            self._stop()

    def try_again(self, tests_max: int) -> None:
        """Each failed test once more, alone in a process. A failure of a process itself is no test, and stays one."""
        tests = [what for what in self.tally.failures if Path(file_of(what)).is_file()]
        if len(self.tally.failures) > tests_max:
            return
        for number, test in enumerate(tests):
            bundle = Bundle((file_of(test),), GUESS.seconds, GUESS.cpu_s, (test,))
            worker = Worker(bundle, self._folder / f"again-{number}", self._arguments)
            self._running = [worker]
            try:
                outcomes = outcomes_of(worker)
            finally:
                self._stop()
            worker.close()
            self._running = []
            if outcomes == ["passed"] and worker.problem() is None:
                self.tally.passed_alone(test)
            else:
                sys.stdout.write(worker.output)

    def _start_what_fits(self) -> None:
        startable = [bundle for bundle in self._waiting if not (self._is_downloading() and bundle.needs_brokers)]
        running = [worker.bundle for worker in self._running]
        while bundle := next_to_start(startable, running, self._cores * BUSY_LOAD, self._processes_max):
            self._started_count += 1
            worker = Worker(bundle, self._folder / str(self._started_count), self._arguments)
            self._running.append(worker)
            self._selector.register(worker.pipe, selectors.EVENT_READ, worker)
            for waiting in (startable, self._waiting):
                waiting.remove(bundle)
            running.append(bundle)

    def _is_downloading(self) -> bool:
        return self._downloads is not None and self._downloads.poll() is None

    def _listen(self, worker: Worker) -> None:
        for told in worker.read_messages():
            file = self.tally.take(told)
            if file is not None:
                self._done_count += 1
                self._say(self.tally.line_of(file))

    def _finish(self, worker: Worker) -> None:
        self._listen(worker)
        self._selector.unregister(worker.pipe)
        worker.close()
        self._running.remove(worker)
        self._done_count += len(set(worker.bundle.files) - worker.files_done)
        problem = worker.problem()
        if problem is not None:
            self.tally.fail(problem)
        if problem is not None or worker.failed_count:
            self.again.append(shlex.join([".venv/bin/pytest", *self._arguments, *worker.bundle.files]))
            sys.stdout.write(worker.output)

    def _say(self, what: str) -> None:
        age_s = int(time.monotonic() - self._started_s)
        figures = f"{self._done_count:3}/{self._file_count} {age_s // 60:2}:{age_s % 60:02}"
        sys.stdout.write(f"[{figures}, {math.ceil(self._left_s(age_s) / 60)} min left] {what}\n")
        sys.stdout.flush()

    def _left_s(self, age_s: float) -> float:
        """An estimate from the table of durations and the speed of this run so far."""
        running = [(worker.bundle, worker.share_left) for worker in self._running]
        left_s = seconds_left(self._waiting, running, self._cores)
        done_s = self._whole_s - left_s
        return left_s * age_s / done_s if done_s > self._whole_s / 10 else left_s

    def _stop(self) -> None:
        """Ends processes that still run, after Ctrl-C or an error in this process."""
        if self._downloads is not None and self._downloads.poll() is None:
            self._downloads.terminate()
        for worker in self._running:
            worker.interrupt()
        deadline = time.monotonic() + INTERRUPT_PATIENCE_S
        while any(worker.process.poll() is None for worker in self._running) and time.monotonic() < deadline:
            time.sleep(0.05)
        for worker in self._running:
            worker.kill()


def outcomes_of(worker: Worker) -> list[str]:
    """Waits until a process ends. Returns what became of its tests."""
    found: list[str] = []
    while True:
        is_over = worker.is_over
        found += [told["outcome"] for told in worker.read_messages() if "test" in told]
        if is_over:
            return found
        time.sleep(0.05)


def processes_in_memory() -> int:
    bytes_here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, bytes_here // BYTES_PER_PROCESS)


def test_files(places: Sequence[str]) -> list[str]:
    """Paths relative to the current folder, as in pytest."""
    here = Path.cwd()
    found: set[str] = set()
    for place in places:
        path = here / place
        paths = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
        if not paths:
            raise SystemExit(f"no test file at {place}")
        names = {one.relative_to(here).as_posix() for one in paths}
        found |= {name for name in names if place.startswith(ELSEWHERE) or not name.startswith(ELSEWHERE)}
    return sorted(found)


def seed_of(options: str) -> int:
    """The seed that pytest's options name, or a new one."""
    asked = re.search(r"--randomly-seed[= ](\d+)", options)
    return int(asked[1]) if asked else random.SystemRandom().randrange(1 << 31)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", default=["tests"], help="folders and files (default: tests)")
    parser.add_argument("--seed", type=int, help="seed of order and random data (default: a new one)")
    parser.add_argument("--processes", type=int, help="maximum number (default: three for each core)")
    parser.add_argument("--second-try", type=int, default=0, metavar="N", help="try up to N failed tests again, alone")
    parser.add_argument("--record", action="store_true", help="write tests/durations.json; needs an idle machine")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if given is None else given
    end = words.index("--") if "--" in words else len(words)
    wanted, for_pytest = arguments(words[:end]), words[end + 1 :]
    seed = seed_of(os.environ.get("PYTEST_ADDOPTS", "")) if wanted.seed is None else wanted.seed
    costs = read_costs(DURATIONS.read_text()) if DURATIONS.exists() else {}
    files = test_files(wanted.places)
    guesses = {file: guess_cost(Path(file).read_text(encoding="utf-8")) for file in files if file not in costs}
    # SIGTERM acts like Ctrl-C, also if a shell started this process in the background: its children must end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.stdout.write(f"{len(files)} files, seed {seed}: repeat with --seed {seed}\n")
    with workspace("pks-") as folder:
        chosen = [f"--randomly-seed={seed}", f"--hypothesis-seed={seed}", *for_pytest]
        suite = Suite(bundles(files, {**costs, **guesses}), folder, chosen, wanted.processes)
        try:
            suite.run()
            suite.try_again(wanted.second_try)
        except KeyboardInterrupt:
            suite.tally.fail("interrupted")
    if wanted.record:
        known = {file: cost for file, cost in costs.items() if Path(file).exists()}
        DURATIONS.write_text(written_costs(known | suite.tally.costs))
    *details, counts = suite.tally.summary(suite.again)
    sys.stdout.write("".join(f"{line}\n" for line in (*details, f"seed {seed}", counts)))
    return 0 if suite.tally.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
