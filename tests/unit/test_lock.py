"""The files with hashes have the versions of constraints.txt and a hash of every file, and are what gets installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.lock import DEV, RELEASE
from tools.release import HASHED_TOOLS, TOOLS

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+?))?(?: \\|$)")


def pins(name: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text().splitlines():
        match = PIN.match(re.sub(r" *; *", " ; ", line))
        if match:
            found.setdefault(re.sub(r"[-_.]+", "-", match["name"]).lower(), set()).add(match["version"])
    return found


@pytest.mark.parametrize("name", [RELEASE, DEV])
def test_every_requirement_is_one_version_with_hashes(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"\n(?=[A-Za-z])", text.partition("\n")[2].strip())
    assert len(entries) > 50
    for entry in entries:
        first, *hashes = entry.splitlines()
        assert PIN.match(first), first
        assert hashes and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", each) for each in hashes), first
    assert "://" not in text


@pytest.mark.parametrize("name", [RELEASE, DEV])
def test_the_versions_are_those_of_the_constraints(name: str) -> None:
    constrained, locked = pins("constraints.txt"), pins(name)
    both = constrained.keys() & locked.keys()
    assert len(both) > 25
    assert {each: locked[each] - constrained[each] for each in both if not locked[each] <= constrained[each]} == {}


def test_what_setup_py_wants_for_development_and_what_a_release_is_built_with_is_locked() -> None:
    wanted = re.findall(r'"([A-Za-z0-9_.-]+)(?:[><=~!;\[ ]|")', (ROOT / "setup.py").read_text().partition("SPARK =")[2])
    constrained, locked = pins("constraints.txt"), pins(DEV)
    named = {re.sub(r"[-_.]+", "-", each).lower() for each in wanted} & constrained.keys()
    optional = {"gssapi"}  # built against the host's Kerberos library, by `make gssapi`
    assert named - locked.keys() == optional
    assert {"pip", *TOOLS} <= pins(RELEASE).keys() and HASHED_TOOLS == RELEASE


def test_continuous_integration_and_releases_install_with_hashes() -> None:
    assert "export HASHED=1" in (ROOT / ".ci" / "run").read_text()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        calls = re.findall(r"run: (make .*)", path.read_text())
        assert [call for call in calls if not call.endswith(" HASHED=1")] == [], path.name
