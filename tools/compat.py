"""Runs the tests that depend on Kafka or PySpark with every supported version: writes docs/compatibility-runs.md.

    python -m tools.compat                                    everything; about an hour on two idle cores
    python -m tools.compat --kafka 3.4.1 4.4.0 --pyspark --no-oldest    only these brokers
    python -m tools.compat --kafka --pyspark 4.2.0 --no-oldest    only this PySpark
    python -m tools.compat --kafka --pyspark                  only the oldest dependencies that setup.py allows
    python -m tools.compat --kafka --pyspark --groups unit    only some columns of these; also of a PySpark
    python -m tools.compat --print                            writes the page again from earlier results

Each version is tested in one pytest process. PYKAFKA_SINK_KAFKA names its brokers (tests/conftest.py); each PySpark and
the oldest dependencies have their own virtual environments in the cache, with the jars. docs/compatibility.json keeps
the results by version, so that a single version can be tested again; the page is created from that file. The exit code
is 1 if a test has failed.

nox would create these environments, 22 of 455 lines; the groups of tests, the kept results and the page would stay.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree

from tools.kafka_jars import cache_folder, cache_lock

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "compatibility.json"
PAGE = ROOT / "docs" / "compatibility-runs.md"

# 3.4 and 3.5: the leader accepts a Produce into a transaction without asking its coordinator (before KIP-890, part 1).
# 3.9: the last line with transaction version 1. 4.0: the first with version 2. 4.3 and 4.4: the newest lines.
KAFKA = ("3.4.1", "3.5.2", "3.9.1", "4.0.2", "4.3.1", "4.4.0")
# 3.4 and 3.5 have no data sources in Python; 4.0 is the first with the format.
PYSPARK = ("3.4.4", "3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0")
FIRST_WITH_FORMAT = "4.0"

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
FORMAT_TESTS: Mapping[str, tuple[str, ...]] = {
    "batch": ("tests/compat/test_batch.py",),
    "stream": ("tests/compat/test_stream.py", "tests/compat/test_arrow_stream.py"),
    "foreachBatch": ("tests/compat/test_foreach_batch.py",),
    "SQL": ("tests/compat/test_sql.py",),
    "pipelines": ("tests/compat/test_pipelines.py",),
    "triggers": ("tests/compat/test_triggers.py",),
    "Connect": ("tests/compat/test_connect.py", "tests/compat/test_connect_canary.py"),
    # Connect of PySpark 3 is not tried: 3.4 has no streams there.
    "functions, Connect": ("tests/compat/test_second_door_connect.py",),
}
SECOND_DOOR_TESTS: Mapping[str, tuple[str, ...]] = {
    "functions": ("tests/compat/test_second_door.py", "tests/compat/test_chunks.py")
}
WITHOUT_FORMAT_TESTS: Mapping[str, tuple[str, ...]] = {"format refused": ("tests/compat/test_without_format.py",)}
SPARK_TESTS = {**FORMAT_TESTS, **SECOND_DOOR_TESTS, **WITHOUT_FORMAT_TESTS}
# A process has either classic sessions or Connect sessions.
ALONE = frozenset({"Connect", "functions, Connect"})
# Packages that the tests above need besides PySpark, in the versions of constraints.txt. PyYAML is for pipelines.
SPARK_PACKAGES = ("lz4", "crc32c", "mmh3", "confluent-kafka", "pytest", "pytest-timeout", "pyyaml")
# pandas is for Connect. PySpark 4 warns about newer versions; the extras of PySpark 3 exclude numpy 2, which newer
# versions of pyarrow require.
ARROW_PACKAGES = ("pyarrow", "numpy", "pandas<3")
ARROW_PACKAGES_OF_3 = ("pyarrow==18.1.0", "numpy==1.26.4", "pandas==2.2.3")
# Tests with the lowest versions that setup.py allows, all at once. OLDEST_EXTRA_TESTS run in a separate environment:
# the oldest OpenTelemetry and the oldest cryptography do not work with the versions of protobuf and Authlib that the
# independent implementations in the other tests need.
OLDEST_TESTS: Mapping[str, tuple[str, ...]] = {
    "unit": ("tests/unit",),
    "property": ("tests/property",),
    "golden": ("tests/golden",),
    "producer": (
        "tests/integration/test_producer_sending.py",
        "tests/integration/test_transactions.py",
        "tests/integration/test_codec_matrix.py",
    ),
    "tasks": (
        "tests/integration/test_spark_task.py",
        "tests/integration/test_envelope.py",
        "tests/chaos/test_task_faults.py",
    ),
    "command": ("tests/integration/test_command.py", "tests/integration/test_watch.py"),
}
OLDEST_SPARK_TESTS: Mapping[str, tuple[str, ...]] = {
    "Spark": ("tests/compat/test_batch.py", "tests/compat/test_stream.py", "tests/compat/test_foreach_batch.py"),
}
OLDEST_EXTRA_TESTS: Mapping[str, tuple[str, ...]] = {
    "extras": ("tests/integration/test_metrics.py", "tests/integration/test_tls.py"),
}
OLDEST_ALL = {**OLDEST_TESTS, **OLDEST_SPARK_TESTS, **OLDEST_EXTRA_TESTS}
EXTRAS_ALONE = ("otlp", "pkcs12")
# Packages that the tests of extras need besides: they read what a collector receives, and lineage events.
_EXTRA_PACKAGES = (
    "pytest",
    "pytest-timeout",
    "confluent-kafka",
    "jsonschema",
    "openlineage-python",
    "prometheus-client",
)
# PySpark determines the version of py4j, the oldest OpenTelemetry those of its other packages and of protobuf.
_NOT_PINNED = ("pyspark", "py4j")
_EXTRAS_NOT_PINNED = (*_NOT_PINNED, "opentelemetry", "protobuf", "googleapis-common-protos")


@dataclass
class Cell:
    """The results of the tests of one group. `remarks` are texts that tests recorded themselves."""

    passed: int = 0
    skipped: int = 0
    failed: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    problem: str = ""


def read_report(text: str, groups: Mapping[str, Sequence[str]]) -> dict[str, Cell]:
    """Turns pytest's JUnit file into a cell for each group, by the files or folders of the tests."""
    cells = {name: Cell() for name in groups}
    places = {path.removesuffix(".py").replace("/", "."): name for name, paths in groups.items() for path in paths}
    for case in ElementTree.fromstring(text).iter("testcase"):
        # A test file that could not be loaded is a case without a class.
        module = case.get("classname") or case.get("name") or ""
        group = next((name for place, name in places.items() if f"{module}.".startswith(f"{place}.")), None)
        if group is None:
            continue
        cell = cells[group]
        if case.find("failure") is not None or case.find("error") is not None:
            cell.failed.append(case.get("name") or module)
        elif case.find("skipped") is not None:
            cell.skipped += 1
        else:
            cell.passed += 1
        cell.remarks += [each.get("value") or "" for each in case.iter("property") if each.get("name") == "remark"]
    return cells


def run_pytest(python: Path | str, groups: Mapping[str, Sequence[str]], environment: Mapping[str, str]) -> Any:
    """Runs the tests of these groups and returns their cells as they are written to the file of results."""
    paths = [path for group in groups.values() for path in group]
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-") as folder:
        report = Path(folder) / "report.xml"
        command = [str(python), "-m", "pytest", "-p", "no:randomly", "-q", "--tb=short", "--timeout=900"]
        # Only this family of reports supports remarks of single tests.
        command += ["-o", "junit_family=xunit1", f"--junitxml={report}"]
        done = subprocess.run([*command, *paths], cwd=ROOT, env=whole(environment))
        cells = read_report(report.read_text(), groups) if report.exists() else {name: Cell() for name in groups}
    if not any(cell.passed or cell.skipped or cell.failed for cell in cells.values()):
        for cell in cells.values():
            cell.problem = f"pytest ended with {done.returncode} and ran no test"
    return {name: asdict(cell) for name, cell in cells.items()}


def whole(environment: Mapping[str, str]) -> dict[str, str]:
    """The complete environment of a test process. Spark's workers and the tests import the sources of this folder, and
    the interpreter's own PySpark is used instead of SPARK_HOME."""
    named = {"PYTHONPATH": str(ROOT), "PYKAFKA_SINK_REQUIRE_KAFKA": "1", "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | named | dict(environment)


def environment(name: str, requirements: Iterable[str], not_pinned: Sequence[str] = _NOT_PINNED) -> Path:
    """The interpreter of a virtual environment with these packages. It is created if it does not exist. Versions that
    the requirements do not fix come from constraints.txt."""
    folder = cache_folder() / name
    python, ready, wanted = folder / "bin" / "python", folder / "ready", "\n".join(requirements)
    with cache_lock(name):
        if not ready.exists() or ready.read_text() != wanted:
            venv.create(folder, with_pip=True, clear=True)
            pins = folder / "constraints.txt"
            pins.write_text(
                "".join(f"{line}\n" for line in _constraints([*not_pinned, *names_of_fixed(wanted.splitlines())]))
            )
            install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", str(pins)]
            subprocess.run([*install, *wanted.splitlines()], check=True)
            ready.write_text(wanted)
    return python


def names_of_fixed(requirements: Iterable[str]) -> list[str]:
    """`pyarrow==18` -> `pyarrow`."""
    return [each.partition("==")[0].partition("[")[0] for each in requirements if "==" in each]


def _constraints(apart_from: Sequence[str]) -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith(tuple(apart_from))]


def metadata() -> Mapping[str, Any]:
    """The arguments that setup.py passes to setuptools."""
    with mock.patch("setuptools.setup") as setup:
        runpy.run_path(str(ROOT / "setup.py"))
    return dict(setup.call_args.kwargs)


def oldest(requirements: Iterable[str]) -> list[str]:
    """`pyarrow>=18` -> `pyarrow==18`."""
    return [each.partition(",")[0].replace(">=", "==") for each in requirements if ">=" in each]


def oldest_base() -> list[str]:
    """The run-time dependencies, the oldest Spark that has the format, and the extra `watch`."""
    said = metadata()
    return oldest([*said["install_requires"], f"pyspark>={FIRST_WITH_FORMAT}", *said["extras_require"]["watch"]])


def oldest_extras() -> list[str]:
    extras = metadata()["extras_require"]
    return oldest(requirement for name in EXTRAS_ALONE for requirement in extras[name])


def oldest_versions() -> str:
    """The title of their row on the page. If a lower bound changes, the row has a new title and was not run yet."""
    return _list_versions([*oldest_base(), *oldest_extras()])


def _list_versions(fixed: Iterable[str]) -> str:
    return ", ".join(each.replace("==", " ") for each in fixed)


def spark_tests(version: str) -> Mapping[str, tuple[str, ...]]:
    """The groups that this PySpark is tried with."""
    if has_format(version):
        return {**FORMAT_TESTS, **SECOND_DOOR_TESTS}
    return {**SECOND_DOOR_TESTS, **WITHOUT_FORMAT_TESTS}


def has_format(version: str) -> bool:
    return _in_order(version) >= _in_order(FIRST_WITH_FORMAT)


def spark_python(version: str) -> Path:
    arrow = ARROW_PACKAGES if has_format(version) else ARROW_PACKAGES_OF_3
    return environment(f"pyspark-{version}", [f"pyspark[connect]=={version}", *arrow, *SPARK_PACKAGES])


def try_kafka(version: str) -> Any:
    return run_pytest(sys.executable, BROKER_TESTS, {"PYKAFKA_SINK_KAFKA": version})


def try_pyspark(version: str, chosen: Collection[str]) -> Any:
    """Runs the chosen groups; the others keep their earlier results."""
    groups = {name: paths for name, paths in spark_tests(version).items() if name in chosen}
    together = {name: paths for name, paths in groups.items() if name not in ALONE}
    alone = ({name: paths} for name, paths in groups.items() if name in ALONE)
    # Before 4.2 `collect` leaves its sockets to the garbage collector. 3 uses what newer Pythons advise against.
    ignored = "-W ignore::ResourceWarning" + ("" if has_format(version) else " -W ignore::DeprecationWarning")
    found = run_in(lambda: spark_python(version), together, *alone, PYTEST_ADDOPTS=ignored)
    return _earlier_cells("pyspark", version) | found


def try_oldest(version: str, chosen: Collection[str]) -> Any:
    """Runs the chosen groups; the others keep their earlier results."""
    tests = metadata()["extras_require"]["test"]
    first, spark, extra = (
        {name: paths for name, paths in groups.items() if name in chosen}
        for groups in (OLDEST_TESTS, OLDEST_SPARK_TESTS, OLDEST_EXTRA_TESTS)
    )
    found = run_in(lambda: environment("oldest", [*oldest_base(), *tests]), first, spark)
    with_extras = [*oldest_base(), *oldest_extras(), *_EXTRA_PACKAGES]
    found |= run_in(lambda: environment("oldest-extras", with_extras, _EXTRAS_NOT_PINNED), extra)
    return _earlier_cells("oldest", version) | found


def _earlier_cells(side: str, version: str) -> dict[str, Any]:
    return dict(read_results()[side].get(version, {"cells": {}})["cells"])


def run_in(make: Callable[[], Path], *processes: Mapping[str, Sequence[str]], **variables: str) -> dict[str, Any]:
    """Runs these groups in the virtual environment that `make` creates, and returns their cells."""
    processes = tuple(filter(None, processes))
    if not processes:
        return {}
    try:
        python = make()
    except (OSError, subprocess.CalledProcessError) as error:
        problem = f"the environment could not be created ({type(error).__name__})"
        return {name: asdict(Cell(problem=problem)) for groups in processes for name in groups}
    found: dict[str, Any] = {}
    for groups in processes:
        found |= run_pytest(python, groups, {"PYSPARK_PYTHON": str(python), **variables})
    return found


# ---- the page ----------------------------------------------------------------------------------------------------

_INTRODUCTION = """\
# What was run, and when

By `make compat`; what follows from it for users: [compatibility](compatibility.md). Every run of the tests uses Apache
Kafka 4.3.1 and 3.9.1 and PySpark 4.3.0.
"""
_BROKERS = """\
## Apache Kafka

One node, KRaft. The tests: {links}. Slow tests are left out. From 4.0 on brokers use
transaction version 2 (KIP-890), so tests of a step that only older brokers need are skipped. Apache Kafka 4.4.0 has no
kafka-tools on Maven; the broker does not need it, and the console consumer of 4.3.1 reads its topics.
"""
_SPARK = """\
## PySpark

Each version has its own environment: local mode, Python {python}, against Apache Kafka 4.3.1. The tests: {links}. A
trigger must either deliver its rows or be refused with an error that says so; a query that runs without delivering is a
failure. PySpark 3 cannot have `format("pykafka-sink")`: whoever asks for it is told what works. It runs with
{arrow}; all others with the newest pyarrow and numpy.
"""


_OLDEST = """\
## Oldest dependencies

The lowest versions that setup.py allows, all at once; other packages that tests need are the newest. Python {python},
against Apache Kafka 4.3.1 and 3.9.1. The column `extras` tests {extras} in a separate environment. Not tested: the
extra `kerberos`, which is built against the host's library. The extra `aws` was tested alone, with botocore 1.34.0:
[test_aws](../tests/integration/test_aws.py). The tests: {links}.

Why these: current images with Spark 3.4 and 3.5 have pyarrow 14.0.2 and numpy 1.23.5 at least
([platforms](platforms.md)), and a newer numpy would not fit their pandas; so pip leaves both alone there. Python 3.9,
which Amazon EMR 7 has beside 3.11, is out of support, and so is what pip would find for it.
"""


def cell_text(cell: Mapping[str, Any]) -> str:
    if cell["problem"]:
        return f"**not run**: {cell['problem']}"
    counts = [f"{cell['passed']} passed"] if cell["passed"] or not cell["failed"] else []
    counts = [f"**{len(cell['failed'])} failed**", *counts] if cell["failed"] else counts
    counts += [f"{cell['skipped']} skipped"] if cell["skipped"] else []
    return "; ".join([", ".join(counts), *cell["remarks"]])


def table(
    head: str,
    groups: Mapping[str, object],
    rows: Mapping[str, Any],
    wanted: Sequence[str],
    of: Callable[[str], Collection[str]] | None = None,
) -> list[str]:
    """`of`: the groups that a version is tried with, if not all."""
    lines = [f"| {head} | " + " | ".join(groups) + " | run on |", "|---|" + "---|" * len(groups) + "---|"]
    for version in sorted({*rows, *wanted}, key=_in_order):
        known = rows.get(version, {"cells": {}, "date": ""})
        cells = [_cell_of(known["cells"], name, of(version) if of else groups) for name in groups]
        lines.append(f"| {version} | " + " | ".join(cells) + f" | {known['date']} |")
    return lines


def _cell_of(cells: Mapping[str, Any], name: str, tried: Collection[str]) -> str:
    if name not in tried:
        return "–"
    return cell_text(cells[name]) if name in cells else "not run"


def page(results: Mapping[str, Any]) -> str:
    spark = _SPARK.format(
        python=results["python"], links=_links(SPARK_TESTS), arrow=_list_versions(ARROW_PACKAGES_OF_3)
    )
    parts = [_INTRODUCTION, _BROKERS.format(links=_links(BROKER_TESTS))]
    parts += [*table("Apache Kafka", BROKER_TESTS, results["kafka"], KAFKA), "", spark]
    parts += table("PySpark", SPARK_TESTS, results["pyspark"], PYSPARK, spark_tests)
    extras = " and ".join(f"the extra `{name}`" for name in EXTRAS_ALONE)
    parts += ["", _OLDEST.format(python=results["python"], links=_links(OLDEST_ALL), extras=extras)]
    parts += table("Versions", OLDEST_ALL, results["oldest"], [oldest_versions()])
    failures = [
        f"- {title} {version}, {group}: `{name}`"
        for title, rows in zip(("Apache Kafka", "PySpark", "Oldest dependencies:"), _sides(results), strict=True)
        for version in sorted(rows, key=_in_order)
        for group, cell in rows[version]["cells"].items()
        for name in cell["failed"]
    ]
    if failures:
        parts += ["\n## What failed\n", *failures]
    return "\n".join(parts) + "\n"


def _sides(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [results[side] for side in ("kafka", "pyspark", "oldest")]


def _in_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _links(groups: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"[{Path(path).stem}](../{path})" for paths in groups.values() for path in paths)


def read_results() -> dict[str, Any]:
    found: dict[str, Any] = {"python": "", "kafka": {}, "pyspark": {}, "oldest": {}}
    return found | json.loads(RESULTS.read_text()) if RESULTS.exists() else found


def keep(side: str, version: str, cells: Mapping[str, Any]) -> None:
    """Called after each version, because a whole run takes long. Another run may have changed the file meanwhile."""
    results = read_results()
    results[side][version] = {"date": datetime.date.today().isoformat(), "cells": cells}
    results["python"] = ".".join(str(part) for part in sys.version_info[:2])
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


def has_failed(results: Mapping[str, Any]) -> bool:
    rows = [row for side in _sides(results) for row in side.values()]
    return any(cell["failed"] or cell["problem"] for row in rows for cell in row["cells"].values())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.compat", description="Runs tests against many versions.")
    parser.add_argument("--kafka", nargs="*", default=KAFKA, metavar="VERSION", help="none: no broker")
    parser.add_argument("--pyspark", nargs="*", default=PYSPARK, metavar="VERSION", help="none: no PySpark")
    parser.add_argument("--oldest", action=argparse.BooleanOptionalAction, default=True, help="oldest dependencies")
    every = [*OLDEST_ALL, *SPARK_TESTS]
    parser.add_argument("--groups", nargs="+", choices=every, default=every, help="only these columns; not of Kafka")
    parser.add_argument("--print", action="store_true", help="run nothing, write the page again")
    chosen = parser.parse_args(arguments)
    tries: list[tuple[str, str, Callable[[str], Any]]] = [("kafka", version, try_kafka) for version in chosen.kafka]
    tries += [("pyspark", version, lambda it: try_pyspark(it, chosen.groups)) for version in chosen.pyspark]
    if chosen.oldest:
        tries.append(("oldest", oldest_versions(), lambda version: try_oldest(version, chosen.groups)))
    for side, version, attempt in [] if chosen.print else tries:
        print(f"== {side} {version}", flush=True)
        keep(side, version, attempt(version))
    results = read_results()
    PAGE.write_text(page(results))
    print(page(results))
    return 1 if has_failed(results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
