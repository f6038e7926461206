"""What .ci/run installs on a fresh Debian: programs in place of apt and make write down how they are called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REAL = ("bash", "dirname", "env")
THERE = ("make", "mvn", "python3", "kinit", "zsh", "fish", "chromium", "promtool", "apt-get", "id")
JAVA = "openjdk-17-jre-headless"


@pytest.mark.parametrize(("known", "installed"), [(True, JAVA), (False, "default-jre-headless")])
def test_a_debian_without_java_17_gets_the_java_that_it_has(tmp_path: Path, known: bool, installed: str) -> None:
    log, programs = tmp_path / "log", tmp_path / "bin"
    programs.mkdir()
    for name in REAL:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    for name in (*THERE, "apt-cache"):
        code = int(name == "apt-cache" and not known)
        # `id -u` has to say something: the user is root.
        (programs / name).write_text(f'#!{programs}/bash\necho "{name} $*" >> {log}\necho 0\nexit {code}\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": str(programs)}
    done = subprocess.run([programs / "bash", ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    calls = log.read_text().splitlines()
    assert [call.split()[-1] for call in calls if call.startswith("apt-get install")] == [installed]
    assert calls.index("apt-get update -qq") < calls.index(f"apt-cache show {JAVA}")
