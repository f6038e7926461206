"""Releases: the same files give the same bytes, and the version number is the same everywhere."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_sink.version import VERSION
from tools import release
from tools.release import SUMS, ReleaseFailed, check_sums, normalise, sums_of

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


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


def make_dist(folder: Path) -> Path:
    for name in ("a-py3-none-any.whl", "a.tar.gz", "a.zip"):
        (folder / name).write_text(name)
    (folder / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums_of(folder).items()))
    return folder


def test_files_that_differ_from_their_sums_are_refused(tmp_path: Path) -> None:
    check_sums(make_dist(tmp_path))
    (tmp_path / "a.cdx.json").write_text("the SBOM of an earlier run")
    check_sums(tmp_path)
    (tmp_path / "a.zip").write_text("another")
    with pytest.raises(ReleaseFailed, match=r"a\.zip$"):
        check_sums(tmp_path)
    (tmp_path / "a.zip").unlink()
    with pytest.raises(ReleaseFailed, match=r"a\.zip$"):
        check_sums(tmp_path)
    (tmp_path / SUMS).write_text("")
    with pytest.raises(ReleaseFailed, match="names none"):
        check_sums(tmp_path)


@pytest.mark.parametrize("changed", ["a-py3-none-any.whl", SUMS, "b.whl", ""])
def test_what_is_installed_beside_the_files_must_not_change_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], changed: str
) -> None:
    """The newest dependencies run then, and nobody has pinned them."""

    def install(python: Path, wheel: Path) -> Path:
        if changed:
            (tmp_path / changed).write_text("of a dependency")
        return python

    def write_sbom(*words: object) -> None:
        (tmp_path / "a.cdx.json").write_text("{}")

    monkeypatch.setattr(release, "DIST", make_dist(tmp_path))
    monkeypatch.setattr(release, "WORK", tmp_path)
    monkeypatch.setattr(release, "pythons", lambda: iter([Path("python3")]))
    monkeypatch.setattr(release, "_tools", lambda: Path("python3"))
    monkeypatch.setattr(release, "_install", install)
    monkeypatch.setattr(release, "_run_tool", write_sbom)
    monkeypatch.setattr(release, "_lint_workflows", lambda: None)
    assert release.main(["try"]) == int(bool(changed))
    assert (f"has changed dist/: {changed}" in capsys.readouterr().err) is bool(changed)


def workflow(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / name).read_text(encoding="utf-8"))
    return found


def test_what_a_release_publishes_was_made_and_attested_before_any_unpinned_code_ran() -> None:
    jobs = workflow("release.yml")["jobs"]
    commands = {
        name: [step["run"] for step in job["steps"] if "make" in step.get("run", "")] for name, job in jobs.items()
    }
    assert commands == {
        "build": ["make release STEP=build HASHED=1"], "try": ["make release STEP=try HASHED=1"],
        "publish": [],
    }  # fmt: skip
    attesting = [name for name, job in jobs.items() if "attest-build-provenance" in str(job)]
    assert attesting == ["build"] and "id-token" not in str(jobs["try"])
    assert jobs["publish"]["needs"] == ["build", "try"]
    check = next(step for step in jobs["publish"]["steps"] if "sha256sum" in step.get("run", ""))
    assert check["env"]["SUMS"] == "${{ needs.build.outputs.sums }}"


@pytest.mark.parametrize("name", ["ci.yml", "release.yml"])
def test_actions_are_pinned_by_their_commits(name: str) -> None:
    """A tag or a branch can be moved to other code."""
    used = re.findall(r"uses: (.*)", (WORKFLOWS / name).read_text(encoding="utf-8"))
    assert used and [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", one)] == []


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
