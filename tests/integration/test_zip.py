"""The zip for --py-files: the same bytes each time, and importable without being unpacked."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from kafka_sink.version import VERSION
from tools.make_zip import write_zip


def test_the_same_sources_give_the_same_zip(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip")
    write_zip(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_the_zip_holds_both_packages_and_nothing_else_and_can_be_imported(tmp_path: Path) -> None:
    write_zip(tmp_path / "package.zip")
    names = zipfile.ZipFile(tmp_path / "package.zip").namelist()
    assert {name.split("/")[0] for name in names} == {"kafka_sink", "pyspark_pykafka_sink"}
    assert {"kafka_sink/__init__.py", "pyspark_pykafka_sink/__init__.py"} <= set(names)
    assert all(name.endswith((".py", "py.typed")) for name in names)
    program = (
        "import kafka_sink.wire.apis, kafka_sink.records.batch, kafka_sink.version as v; print(v.__file__, v.VERSION)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "package.zip")},
        capture_output=True,
        text=True,
        check=True,
    )
    file, version = run.stdout.split()
    assert file.startswith(str(tmp_path / "package.zip"))
    assert version == VERSION
