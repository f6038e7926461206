"""Releases: the same files give the same bytes, and the version number is the same everywhere."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path

from kafka_sink.version import VERSION
from tools.release import normalise

ROOT = Path(__file__).parents[2]


def sdist(names: list[str], time_s: int, owner: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.uname, entry.mode = len(name), time_s, owner, 0o664
            archive.addfile(entry, io.BytesIO(name.encode()))
    return gzip.compress(packed.getvalue(), mtime=time_s)


def test_an_sdist_has_the_same_bytes_whoever_packed_it_and_when() -> None:
    one = normalise(sdist(["a/setup.py", "a/README.md"], 1_700_000_000, "me"), 1_800_000_000)
    other = normalise(sdist(["a/README.md", "a/setup.py"], 1_700_000_009, "you"), 1_800_000_000)
    assert one == other
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        entries = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
        assert list(entries) == ["a/README.md", "a/setup.py"]
        assert all(found is not None and found.read().decode() == name for name, found in entries.items())


def test_another_content_has_other_bytes() -> None:
    assert normalise(sdist(["a"], 1, "me"), 2) != normalise(sdist(["b"], 1, "me"), 2)


def test_the_workflows_name_each_python_of_the_metadata() -> None:
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    supported = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', setup))
    for name in ("ci.yml", "release.yml"):
        workflow = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
        assert set(re.findall(r"\b3\.\d\d\b", workflow)) == supported, name


def test_the_changelog_and_the_pages_know_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## (\d+\.\d+\.\d+) (?:- \d{4}-\d\d-\d\d|\((unreleased)\))$", changelog, re.MULTILINE)[0]
    assert newest[0] + (".dev0" if newest[1] else "") == VERSION
    pages = (*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.ipynb"), ROOT / "README.md")
    for path in (*pages, *(ROOT / "spark_jobs").glob("*.py")):
        named = set(
            re.findall(r"pykafka_sink-(\d[\w.]*?)(?:-py3-none-any)?\.(?:zip|whl)", path.read_text(encoding="utf-8"))
        )
        assert named <= {VERSION}, path
