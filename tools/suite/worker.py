"""A pytest process for one bundle of files, and the messages of its plugin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import kafka_watchdog
from tools.suite import plugin
from tools.suite.plan import Bundle

# The limit from the end of the last test to the end of the process.
END_PATIENCE_S = 90.0
# Plugins of packages that other packages need. No test uses them; to import them takes a third of the start of pytest.
UNUSED_PLUGINS = ("anyio", "xdist", "xdist.looponfail")
# Set in many images. Hundreds of Python processes import the package in a run, as Spark starts new ones for each write,
# and each of them would compile it again, in half a second of CPU.
NO_CACHE = "PYTHONDONTWRITEBYTECODE"
# Exit codes: passed, failed, no test (all deselected). Any other code means that the process itself failed.
ENDS = (0, 1, 5)


class Worker:
    """Its standard output and its temporary files are below `home`, which must be a new folder."""

    def __init__(self, bundle: Bundle, home: Path, arguments: Sequence[str]) -> None:
        self.bundle = bundle
        self.failed_count = 0
        self.files_done: set[str] = set()
        self._ended_s: float | None = None
        self._home = home
        self._rest = b""
        (home / "tmp").mkdir(parents=True)
        self.pipe, writing = os.pipe()
        os.set_blocking(self.pipe, False)
        environment = {**os.environ, plugin.PIPE: str(writing), "TMPDIR": str(home / "tmp")}
        environment[kafka_watchdog.MARK] = str(home.parent)
        environment.pop(NO_CACHE, None)
        command = [sys.executable, "-m", "pytest", "-p", plugin.__name__, "-p", "no:cacheprovider"]
        command += [word for name in UNUSED_PLUGINS for word in ("-p", f"no:{name}")]
        command += ["--continue-on-collection-errors", "--basetemp", str(home / "pytest")]
        command += [*with_or_without_hypothesis(bundle.files, arguments), *(bundle.tests or bundle.files)]
        try:
            with open(home / "output", "wb") as output:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    pass_fds=[writing],
                    # Own session, so that Ctrl-C in the terminal reaches it only once, through the runner.
                    start_new_session=True,
                )
        finally:
            os.close(writing)

    @property
    def output(self) -> str:
        return (self._home / "output").read_text(errors="replace")

    @property
    def is_over(self) -> bool:
        """True if the process has ended. A process that does not end after its last test is killed."""
        if self._ended_s is not None and time.monotonic() - self._ended_s > END_PATIENCE_S:
            self.kill()
        return self.process.poll() is not None

    @property
    def share_left(self) -> float:
        """The share of its files that are not done."""
        return 1 - len(self.files_done) / len(self.bundle.files)

    def read_messages(self) -> list[dict[str, Any]]:
        """The messages since the last call."""
        try:
            while chunk := os.read(self.pipe, 1 << 16):
                self._rest += chunk
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        found = [json.loads(line) for line in lines]
        for one in found:
            self.failed_count += one.get("outcome") == "failed"
            if "done" in one:
                self.files_done.add(one["done"])
            if "end" in one:
                self._ended_s = time.monotonic()
        return found

    def problem(self) -> str | None:
        """A failure of the process itself that failed tests do not explain."""
        code = self.process.wait()
        if self._ended_s is None or code not in ENDS:
            end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            left = " ".join(file for file in self.bundle.files if file not in self.files_done)
            return f"a process {end} before its time; not finished: {left or 'its end'}"
        if code == 1 and not self.failed_count:
            return f"a process ended with exit code 1, and no test of it failed: {' '.join(self.bundle.files)}"
        return None

    def interrupt(self) -> None:
        """Acts like Ctrl-C: fixtures are torn down."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        os.close(self.pipe)


def with_or_without_hypothesis(files: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Disables the Hypothesis plugin if no file needs it: it imports Hypothesis at the end of every process, half of
    the cost of starting pytest. Without the plugin its seed would be an unknown argument."""
    if any("hypothesis" in Path(file).read_text(encoding="utf-8", errors="replace") for file in files):
        return list(arguments)
    others = [one for one in arguments if not one.startswith("--hypothesis-seed")]
    return others if "hypothesis" in " ".join(others) else ["-p", "no:hypothesispytest", *others]
