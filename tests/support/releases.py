"""Other releases, for tests of upgrades and of two releases at once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kafka_sink.version import VERSION
from tools.kafka_watchdog import MARK
from tools.make_zip import PACKAGES, write_zip

ROOT = Path(__file__).parents[2]
# 0.1.0, before the query id became a part of the sink id: decisions are stored under the sink id alone.
BEFORE_QUERY_IDS = "98dd2ad"
# 0.2.0, before ledger records contained the name of their sink, and before each label had a driver of its own.
BEFORE_NAMES = "d2cfa39"


def release_of(commit: str, factory: pytest.TempPathFactory) -> Path:
    """All files of this commit; the test is skipped if the clone does not contain the commit.

    They are unpacked once for all tests of a run: the first application compiles them for the others. A test may add
    files, and changes none."""
    run = os.environ.get(MARK)
    folder = (Path(run) if run else factory.getbasetemp()) / f"release-{commit}"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack(commit, folder.with_suffix(".new")).rename(folder)
    return folder


def _unpack(commit: str, folder: Path) -> Path:
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True)
    if archive.returncode != 0:
        pytest.skip(f"commit {commit} is not in this clone")
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def other_release(folder: Path, version: str, *, compares_versions: bool = True) -> Path:
    """A zip for --py-files of this code under another version; or one from before writers compared versions."""
    sources = folder / "sources"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, sources / package, ignore=shutil.ignore_patterns("__pycache__"))
    _replace(sources / "kafka_sink" / "version.py", f'VERSION = "{VERSION}"', f'VERSION = "{version}"')
    if not compares_versions:
        (sources / "kafka_sink" / "spark" / "same_version.py").unlink()
        writer = sources / "kafka_sink" / "spark" / "task_writer.py"
        _replace(writer, "from kafka_sink.spark.same_version import SameVersion\n", "")
        _replace(writer, "class TaskWriter(SameVersion):", "class TaskWriter:")
        _replace(writer, "class TaskResult(SameVersion):", "class TaskResult:")
    archive = folder / "other.zip"
    write_zip(archive, sources)
    return archive


def _replace(path: Path, text: str, other: str) -> None:
    before = path.read_text()
    assert text in before
    path.write_text(before.replace(text, other))
