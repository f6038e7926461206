"""The zip for --py-files: it has the same bytes each time and can be imported without being unpacked."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kafka_sink.version import VERSION
from tools.make_zip import differences, write_zip

ROOT = Path(__file__).parent.parent.parent
IMPORTED = "import kafka_sink.spark.writers, kafka_sink.version as v; print(v.__file__, v.VERSION)"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip, for tests that do not change it: to compile everything takes a second."""
    archive = tmp_path_factory.mktemp("zip") / "package.zip"
    write_zip(archive)
    return archive


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 sets are compiled in any order")
def test_the_same_sources_give_the_same_zip(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from tools.make_zip import differences, write_zip; write_zip(pathlib.Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program, str(tmp_path / seed)], cwd=ROOT, env=environment, check=True)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_the_zip_holds_both_packages_and_nothing_else_and_can_be_imported(package: Path) -> None:
    names = zipfile.ZipFile(package).namelist()
    assert {name.split("/")[0] for name in names} == {"kafka_sink", "pyspark_pykafka_sink"}
    assert {"kafka_sink/__init__.py", "pyspark_pykafka_sink/__init__.py"} <= set(names)
    assert all(name.endswith((".py", ".pyc", "py.typed")) for name in names)
    assert not any(name.startswith("kafka_sink/testing") for name in names)
    assert imported_from(package).endswith("version.pyc")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 sets are compiled in any order")
def test_what_differs_from_the_sources_is_named(package: Path, tmp_path: Path) -> None:
    """A file that was changed, compiled from other sources, added, left out, or there twice."""
    assert differences(package) == []
    source, compiled, gone = "kafka_sink/errors/__init__.py", "kafka_sink/frozen.pyc", "kafka_sink/version.py"
    with zipfile.ZipFile(package) as own, zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        for name in own.namelist():
            content = own.read(name)
            if name != gone:
                changed = {source: content + b"# more", compiled: content[:-1] + b"?"}
                other.writestr(name, changed.get(name, content))
        other.writestr("kafka_sink/added.py", b"import os")
        with pytest.warns(UserWarning, match="Duplicate name"):
            other.writestr("kafka_sink/__init__.py", own.read("kafka_sink/__init__.py"))
    found = differences(tmp_path / "other.zip")
    assert found == sorted([source, compiled, gone, "kafka_sink/added.py", "kafka_sink/__init__.py"])


def test_another_python_takes_the_sources(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(package) as own, zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        for name in own.namelist():
            content = own.read(name)
            other.writestr(name, b"\x00\x00" + content[2:] if name.endswith(".pyc") else content)
    assert imported_from(tmp_path / "other.zip").endswith("version.py")


def imported_from(archive: Path) -> str:
    """The file of a module, which must come from the archive and not from the checkout."""
    code = [sys.executable, "-c", IMPORTED]
    run = subprocess.run(
        code, cwd=archive.parent, env={"PYTHONPATH": str(archive)}, capture_output=True, text=True, check=True
    )
    file, version = run.stdout.split()
    assert file.startswith(str(archive))
    assert version == VERSION
    return file
