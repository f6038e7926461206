"""Runs the tests that depend on Kafka or PySpark with every supported version, and writes docs/compatibility.md.

    python -m tools.compat                                    everything; about an hour on two idle cores
    python -m tools.compat --kafka 3.4.1 4.4.0 --pyspark      only these brokers, no PySpark
    python -m tools.compat --kafka --pyspark 4.2.0            only this PySpark
    python -m tools.compat --print                            writes the page again from earlier results

Each version is tested in one pytest process. PYKAFKA_SINK_KAFKA names its brokers (tests/conftest.py); each PySpark has
its own virtual environment in the cache, with the jars. docs/compatibility.json keeps the results by version, so that a
single version can be tested again; the page is created from that file. The exit code is 1 if a test has failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tools.kafka_jars import cache_folder, cache_lock

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "compatibility.json"
PAGE = ROOT / "docs" / "compatibility.md"

# 3.4 and 3.5: brokers that take a Produce into a transaction without asking its coordinator (before KIP-890, part 1).
# 3.9: the last with transaction version 1. 4.0: the first with version 2. 4.3 and 4.4: the newest.
KAFKA = ("3.4.1", "3.5.2", "3.9.1", "4.0.2", "4.3.1", "4.4.0")
PYSPARK = ("4.1.4", "4.2.0", "4.3.0")

BROKER_TESTS: Mapping[str, tuple[str, ...]] = {
    "transactions": (
        "tests/integration/test_transactions.py",
        "tests/integration/test_transactions_handed_over.py",
    ),
    "exactly once": (
        "tests/chaos/test_task_faults.py",
        "tests/chaos/test_driver_crashes.py",
        "tests/chaos/test_commit_errors.py",
        "tests/chaos/test_ledger_faults.py",
        "tests/integration/test_old_brokers.py",
    ),
    "placement": ("tests/integration/test_placement.py",),
    "codecs": ("tests/integration/test_codec_matrix.py",),
}
SPARK_TESTS: Mapping[str, tuple[str, ...]] = {
    "batch": ("tests/compat/test_batch.py",),
    "stream": ("tests/compat/test_stream.py",),
    "foreachBatch": ("tests/compat/test_foreach_batch.py",),
    "SQL": ("tests/compat/test_sql.py",),
    "pipelines": ("tests/compat/test_pipelines.py",),
    "triggers": ("tests/compat/test_triggers.py",),
    # A process has classic sessions or Connect sessions; the last file is run alone.
    "Connect": ("tests/compat/test_connect.py",),
}
ALONE = frozenset({"Connect"})
# What the tests above want besides PySpark; the versions are those of constraints.txt.
SPARK_PACKAGES = (
    "pyarrow", "numpy", "lz4", "crc32c", "mmh3", "confluent-kafka", "pytest", "pytest-timeout",
    # For Connect; PySpark warns of newer ones.
    "pandas<3",
    # For declarative pipelines.
    "pyyaml",
)  # fmt: skip
_NOT_PINNED = ("pyspark==", "py4j==")


@dataclass
class Cell:
    """What became of the tests of one group. `remarks` are what the tests themselves wanted to be said."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    problem: str = ""


def read_report(text: str, groups: Mapping[str, Sequence[str]]) -> dict[str, Cell]:
    """pytest's JUnit file -> a cell for each group, by the files of the tests."""
    cells = {name: Cell() for name in groups}
    of_module = {path.removesuffix(".py").replace("/", "."): name for name, paths in groups.items() for path in paths}
    for case in ElementTree.fromstring(text).iter("testcase"):
        # A file that could not be loaded is a case without a class.
        module = case.get("classname") or case.get("name") or ""
        if module not in of_module:
            continue
        cell = cells[of_module[module]]
        if case.find("failure") is not None or case.find("error") is not None:
            cell.failed.append(case.get("name") or module)
        elif case.find("skipped") is not None:
            cell.skipped += 1
        else:
            cell.passed += 1
        cell.remarks += [each.get("value") or "" for each in case.iter("property") if each.get("name") == "remark"]
    return cells


def run_pytest(python: Path | str, groups: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> Any:
    """The cells of these groups as they are written to the file of results."""
    paths = [path for group in groups.values() for path in group]
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-") as folder:
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", "-p", "no:randomly", "-q", "--tb=short", "--timeout=900"]
        # The one family of reports that takes the remarks of single tests.
        command += ["-o", "junit_family=xunit1", f"--junitxml={report}"]
        done = subprocess.run([*command, *paths], cwd=ROOT, env=whole(environment))
        cells = read_report(report.read_text(), groups) if report.exists() else {name: Cell() for name in groups}
    if not any(cell.passed or cell.skipped or cell.failed for cell in cells.values()):
        for cell in cells.values():
            cell.problem = f"pytest ended with {done.returncode} and ran no test"
    return {name: asdict(cell) for name, cell in cells.items()}


def whole(environment: Mapping[str, str]) -> dict[str, str]:
    """Workers of Spark and processes of the tests import the sources of this folder, and Spark is the one that the
    interpreter finds, whatever SPARK_HOME says here."""
    named = {"PYTHONPATH": str(ROOT), "PYKAFKA_SINK_REQUIRE_KAFKA": "1", "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | named | dict(environment)


def spark_python(version: str) -> Path:
    """The interpreter of an environment with that PySpark, which is made if it is not there."""
    folder = cache_folder() / f"pyspark-{version}"
    python, ready = folder / "bin" / "python", folder / "ready"
    with cache_lock(f"pyspark-{version}"):
        if not ready.exists():
            venv.create(folder, with_pip=True, clear=True)
            pins = folder / "constraints.txt"
            lines = (ROOT / "constraints.txt").read_text().splitlines()
            pins.write_text("".join(f"{line}\n" for line in lines if not line.startswith(_NOT_PINNED)))
            install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(pins)]
            subprocess.run([*install, f"pyspark[connect]=={version}", *SPARK_PACKAGES], check=True)
            ready.touch()
    return python


def try_kafka(version: str) -> Any:
    return run_pytest(sys.executable, BROKER_TESTS, {"PYKAFKA_SINK_KAFKA": version})


def try_pyspark(version: str) -> Any:
    try:
        python = spark_python(version)
    except (OSError, subprocess.CalledProcessError) as error:
        problem = f"the environment could not be made ({type(error).__name__})"
        return {name: asdict(Cell(problem=problem)) for name in SPARK_TESTS}
    found: dict[str, Any] = {}
    together = {name: paths for name, paths in SPARK_TESTS.items() if name not in ALONE}
    for groups in (together, *({name: SPARK_TESTS[name]} for name in ALONE)):
        found |= run_pytest(python, groups, {"PYSPARK_PYTHON": str(python)})
    return found


# ---- the page ----------------------------------------------------------------------------------------------------

_INTRODUCTION = """\
# Compatibility

What was really run, and when. `make compat` makes this page: it runs the tests below once for each version and writes
what became of them. A version that is not here was not tried. `make test` and continuous integration use Apache Kafka
4.3.1 and 3.9.1 and PySpark 4.3.0.
"""
_BROKERS = """\
## Apache Kafka

One node, KRaft. The tests: {links}. Those that are marked as slow are left out. From 4.0 on transactions are of
version 2 (KIP-890), and the tests of a step that only older brokers need are skipped. Apache Kafka 4.4.0 has no
kafka-tools on Maven; the broker does not need it, and its topics are read by the console consumer of 4.3.1.
"""
_SPARK = """\
## PySpark

Each in an environment of its own, local mode, Python {python}, against Apache Kafka 4.3.1. The tests: {links}. A
trigger has to deliver its rows or to be refused with a text that says so; a query that goes on without delivering is a
failure.
"""


def cell_text(cell: Mapping[str, Any]) -> str:
    if cell["problem"]:
        return f"**not run**: {cell['problem']}"
    counts = [f"{cell['passed']} passed"] if cell["passed"] or not cell["failed"] else []
    counts = [f"**{len(cell['failed'])} failed**", *counts] if cell["failed"] else counts
    counts += [f"{cell['skipped']} skipped"] if cell["skipped"] else []
    return "; ".join([", ".join(counts), *cell["remarks"]])


def table(head: str, groups: Mapping[str, object], rows: Mapping[str, Any], wanted: Sequence[str]) -> list[str]:
    lines = [f"| {head} | " + " | ".join(groups) + " | run on |", "|---|" + "---|" * len(groups) + "---|"]
    for version in sorted({*rows, *wanted}, key=_in_order):
        known = rows.get(version, {"cells": {}, "date": ""})
        cells = [cell_text(known["cells"][name]) if name in known["cells"] else "not run" for name in groups]
        lines.append(f"| {version} | " + " | ".join(cells) + f" | {known['date']} |")
    return lines


def page(results: Mapping[str, Any]) -> str:
    spark = _SPARK.format(python=results["python"], links=_links(SPARK_TESTS))
    parts = [_INTRODUCTION, _BROKERS.format(links=_links(BROKER_TESTS))]
    parts += [*table("Apache Kafka", BROKER_TESTS, results["kafka"], KAFKA), "", spark]
    parts += table("PySpark", SPARK_TESTS, results["pyspark"], PYSPARK)
    failures = [
        f"- {title} {version}, {group}: `{name}`"
        for title, rows in (("Apache Kafka", results["kafka"]), ("PySpark", results["pyspark"]))
        for version in sorted(rows, key=_in_order)
        for group, cell in rows[version]["cells"].items()
        for name in cell["failed"]
    ]
    if failures:
        parts += ["\n## What failed\n", *failures]
    return "\n".join(parts) + "\n"


def _in_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _links(groups: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"[{Path(path).stem}](../{path})" for paths in groups.values() for path in paths)


def read_results() -> dict[str, Any]:
    found: dict[str, Any] = {"python": "", "kafka": {}, "pyspark": {}}
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else found


def keep(side: str, version: str, cells: Mapping[str, Any]) -> None:
    """After each version, because the whole takes long; read anew, because another run may have added to it."""
    results = read_results()
    results[side][version] = {"date": datetime.date.today().isoformat(), "cells": cells}
    results["python"] = ".".join(str(part) for part in sys.version_info[:2])
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


def has_failed(results: Mapping[str, Any]) -> bool:
    rows = [*results["kafka"].values(), *results["pyspark"].values()]
    return any(cell["failed"] or cell["problem"] for row in rows for cell in row["cells"].values())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.compat", description="Runs tests against many versions.")
    parser.add_argument("--kafka", nargs="*", default=KAFKA, metavar="VERSION", help="none: no broker")
    parser.add_argument("--pyspark", nargs="*", default=PYSPARK, metavar="VERSION", help="none: no PySpark")
    parser.add_argument("--print", action="store_true", help="run nothing, write the page anew")
    chosen = parser.parse_args(arguments)
    tries = [("kafka", version, try_kafka) for version in chosen.kafka]
    tries += [("pyspark", version, try_pyspark) for version in chosen.pyspark]
    for side, version, attempt in [] if chosen.print else tries:
        print(f"== {side} {version}", flush=True)
        keep(side, version, attempt(version))
    results = read_results()
    PAGE.write_text(page(results))
    print(page(results))
    return 1 if has_failed(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
