"""The commands of the guide for YARN, taken from its page, with one of the jobs of spark_jobs/ for the reader's job."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from tests.support.page_blocks import ROOT, code_blocks, placed
from tools.jvm_cluster import SubmittedJob
from tools.yarn_cluster import YarnCluster

PAGE = "docs/guides/clusters.md"
ARCHIVE = "environment.tar.gz"
JOBS = ROOT / "spark_jobs"
Mode = Literal["cluster", "client"]

# The reader's job, and a folder that exists on every machine.
_JOB, _SOCKETS = " job.py\n", "socket.dir=/tmp"


def pack_command() -> str:
    return _commands()[0]


class Recipe:
    """`folder` has the archive; the commands are run there."""

    def __init__(self, yarn: YarnCluster, folder: Path) -> None:
        self._yarn = yarn
        self._folder = folder

    def submit(self, mode: Mode, script: str, *arguments: object) -> SubmittedJob:
        code = _commands()[1 if mode == "cluster" else 2]
        assert ("--deploy-mode cluster" in code) == (mode == "cluster")
        job = ["--py-files", JOBS / "job_arguments.py", JOBS / script, *arguments]
        # A killed JVM leaves its sockets behind.
        sockets = f"socket.dir={self._yarn.folder / 'tmp'}"
        assert code.count(_JOB) == code.count(_SOCKETS) == 1
        words = shlex.join(str(word) for word in job)
        return self._yarn.run(placed(code, {_JOB: f" {words}\n", _SOCKETS: sockets}), self._folder)


def _commands() -> list[str]:
    """The blocks that this folder runs: to pack, for cluster mode, for client mode."""
    found = [block.code for block in code_blocks(PAGE) if "tests/yarn" in block.reason]
    assert len(found) == 3, f"{PAGE} has {len(found)} commands for YARN"
    return found
