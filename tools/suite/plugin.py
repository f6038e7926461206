"""A pytest plugin in the processes that worker.py starts: it writes test results as lines of JSON into a pipe.

After the last test of a file it writes the cost of the file: seconds, seconds of CPU of this process and of all its
children (brokers, Spark), and the expensive fixtures that it used.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from tools.suite.plan import EXPENSIVE

# The environment variable with the file descriptor of the pipe.
PIPE = "PYKAFKA_SINK_SUITE_PIPE"


class Reporter:
    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._outcome = ""
        self._started_s = time.monotonic()
        self._cpu_s = 0.0
        self._shared: set[str] = set()

    def pytest_collection_finish(self) -> None:
        """The time of collection does not count for any file."""
        self._started_s, self._cpu_s = time.monotonic(), cpu_of_tree(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        self._shared |= EXPENSIVE & set(getattr(item, "fixturenames", ()))
        self._outcome = ""
        result = yield
        file = file_of(item.nodeid)
        self._tell(test=item.nodeid, file=file, outcome=self._outcome or "passed")
        if nextitem is None or file_of(nextitem.nodeid) != file:
            self._tell_of_file(file)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcome = "failed"
        elif report.skipped and self._outcome != "failed":
            self._outcome = "skipped"
            self._tell(skipped=reason(report), file=file_of(report.nodeid))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Reports a file that cannot be imported, or that skips itself completely."""
        if report.failed or report.skipped:
            if report.skipped:
                self._tell(skipped=reason(report), file=file_of(report.nodeid))
            self._tell(test=report.nodeid, file=file_of(report.nodeid), outcome=report.outcome)

    def pytest_sessionfinish(self) -> None:
        self._tell(end=True)

    def _tell_of_file(self, file: str) -> None:
        now_s, cpu_s = time.monotonic(), cpu_of_tree(os.getpid())
        self._tell(
            done=file, seconds=now_s - self._started_s, cpu_s=cpu_s - self._cpu_s, shared=" ".join(sorted(self._shared))
        )
        self._started_s, self._cpu_s, self._shared = now_s, cpu_s, set()

    def _tell(self, **what: object) -> None:
        line = json.dumps(what).encode() + b"\n"
        while line:
            line = line[os.write(self._pipe, line) :]


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr
    text = told[2] if isinstance(told, tuple) else getattr(report, "wasxfail", "") or str(told)
    return text.removeprefix("Skipped: ")


def cpu_of_tree(process_id: int) -> float:
    """Seconds of CPU of a process and its descendants, including ended ones. 0 without /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    # The name in parentheses may contain anything; the parent is the second word after it.
                    words = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(name)] = int(words[1])
            ticks[int(name)] = sum(map(int, words[11:15]))
    tree = {process_id}
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in tree} - tree
        tree |= more
        grown = bool(more)
    return sum(ticks.get(one, 0) for one in tree) / os.sysconf("SC_CLK_TCK")


def pytest_configure(config: pytest.Config) -> None:
    """Removes the variable, so that processes of tests do not write into the pipe."""
    number = os.environ.pop(PIPE, None)
    if number is not None:
        os.set_inheritable(int(number), False)
        config.pluginmanager.register(Reporter(int(number)), "suite-reporter")
