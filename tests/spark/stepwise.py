"""Applications that take a step of their stream when the test requests it: jobs/stepwise_stream.py, with a folder each.

`package` is the folder that contains `kafka_sink`, so that an application can use another release.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

from tests.spark.applications import ROOT, start_application
from tools.driver_processes import kill_driver
from tools.waiting import wait_until

JOB = Path(__file__).parent / "jobs" / "stepwise_stream.py"
PATIENCE_S = 400


class StepwiseStream:
    """One application, as a context manager. `add` creates files for it."""

    def __init__(
        self, folder: Path, options: dict[str, str], *, checkpoint: str = "checkpoint", package: Path = ROOT
    ) -> None:
        self._folder = folder
        self._source = folder / "source"
        self._source.mkdir(parents=True, exist_ok=True)
        self._said = 0
        number = len(list(folder.glob("conf-*")))
        self._output = folder / f"output-{number}"
        arguments = [str(self._source), checkpoint, *(f"{name}={value}" for name, value in options.items())]
        self._process = start_application(JOB, arguments, folder, number, package=package, stdin=subprocess.PIPE)

    def __enter__(self) -> StepwiseStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait_until_dead()

    def add(self, *lines: str) -> None:
        number = len(list(self._source.iterdir()))
        hidden = self._folder / "hidden"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(self._source / f"{number}.txt")

    def step(self) -> str:
        """Returns the result, as the job prints it."""
        self.begin_step()
        return self.result()

    def begin_step(self) -> None:
        self._hear()  # "ready", or nothing new
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def result(self) -> str:
        self._said += 1
        return self._hear()

    def _hear(self) -> str:
        """The next line: the job prints one when it is ready, and one for each step."""

        def line() -> str | None:
            lines = self._output.read_text().splitlines(keepends=True)
            if len(lines) > self._said and lines[-1].endswith("\n"):
                return lines[self._said]
            assert self._process.poll() is None, f"the application has ended:\n{self._errors()}"
            return None

        answer = wait_until(line, lambda: f"the application answers:\n{self._errors()}", PATIENCE_S)
        assert answer is not None
        return answer.strip()

    def _errors(self) -> str:
        return self._output.with_name(self._output.name.replace("output", "errors")).read_text()[-4000:]

    def kill(self) -> None:
        """From any thread."""
        kill_driver(self._process)

    def wait_until_dead(self) -> None:
        self._process.wait(60)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
