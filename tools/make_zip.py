"""Builds dist/pykafka_sink-<version>.zip, the package in the form that `spark-submit --py-files` takes.

The same sources give the same bytes: names are sorted, and all files have the same date and mode. The zip contains only
Python sources, their compiled form for this Python, and the marker for type checkers, without `kafka_sink.testing`. Its
dependencies (pyarrow, numpy, lz4, crc32c, mmh3) are compiled packages and must be installed where the
zip is used.

Python does not cache the modules that it compiles from a zip: every worker process would compile the package again, and
that takes longer than all other imports. Another version of Python uses the sources.
"""

from __future__ import annotations

import importlib.util
import marshal
import sys
import zipfile
from collections import Counter
from pathlib import Path

from kafka_sink.version import VERSION

ROOT = Path(__file__).parent.parent
# Spark looks for the second one, so that the format needs no call of register().
PACKAGES = ("kafka_sink", "pyspark_pykafka_sink")
# The embedded broker and registry, which jobs do not need.
LEFT_OUT = "kafka_sink/testing"

# The earliest date that a zip supports.
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16
_NOT_CHECKED = (1).to_bytes(4, "little")


def write_zip(target: Path, root: Path = ROOT) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        for path in _sources(root):
            name, content = path.relative_to(root).as_posix(), path.read_bytes()
            _add(archive, name, content)
            if path.suffix == ".py":
                _add(archive, f"{name}c", _compile(name, content))


def differences(archive: Path, root: Path = ROOT) -> list[str]:
    """Names in the zip, or missing there, that are not exactly what these sources make."""
    wanted = {}
    for path in _sources(root):
        name, content = path.relative_to(root).as_posix(), path.read_bytes()
        wanted[name] = content
        if path.suffix == ".py":
            wanted[f"{name}c"] = _compile(name, content)
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
        found = {name: opened.read(name) for name in names}
    twice = [name for name, count in Counter(names).items() if count > 1]
    return sorted({*twice, *(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))})


def _sources(root: Path) -> list[Path]:
    return sorted(path for package in PACKAGES for path in (root / package).rglob("*") if _belongs(path, root))


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.external_attr = _MODE
    entry.create_system = 3
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)


def _compile(name: str, source: bytes) -> bytes:
    """Makes a .pyc file that Python does not compare with its source (PEP 552).

    Newer marshal formats contain references that depend on what the process did before.
    """
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + _NOT_CHECKED + bytes(8) + marshal.dumps(code, 2)


def _belongs(path: Path, root: Path) -> bool:
    is_of_package = path.suffix == ".py" or path.name == "py.typed"
    return is_of_package and not path.is_relative_to(root / LEFT_OUT)


if __name__ == "__main__":
    wanted = ROOT / "dist" / f"pykafka_sink-{VERSION}.zip"
    write_zip(wanted)
    sys.stdout.write(f"{wanted.relative_to(ROOT)}: {wanted.stat().st_size:,} bytes\n")
