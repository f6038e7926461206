"""The pages of compatibility say what the results say; README, quick start and metadata require the same PySpark."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.operate.checks.environment import PYARROW_MIN
from tools import compat
from tools.kafka_jars import VERSIONS

ROOT = Path(__file__).parents[2]
GROUPS = {"one": ("tests/a/test_one.py",), "two": ("tests/a/test_two.py", "tests/a/test_three.py")}
NOTHING: dict[str, Any] = {"python": "3.11", "kafka": {}, "pyspark": {}, "oldest": {}}
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_one" name="test_good"/>
<testcase classname="tests.a.test_one" name="test_bad[3.4.1]"><failure message="no">trace</failure></testcase>
<testcase classname="tests.a.test_one" name="test_left_out"><skipped message="why"/></testcase>
<testcase classname="tests.a.test_two" name="test_told">
<properties><property name="remark" value="refused"/><property name="other" value="x"/></properties></testcase>
<testcase classname="" name="tests.a.test_three"><error message="no import"/></testcase>
<testcase classname="tests.a.test_stranger" name="test_of_no_group"/>
</testsuite></testsuites>"""


def test_a_report_is_counted_by_the_files_of_its_tests() -> None:
    one, two = compat.read_report(REPORT, GROUPS).values()
    assert (one.passed, one.skipped, one.failed, one.remarks) == (1, 1, ["test_bad[3.4.1]"], [])
    assert (two.passed, two.skipped, two.failed, two.remarks) == (1, 0, ["tests.a.test_three"], ["refused"])


def test_a_failure_stands_in_the_table_and_below_it() -> None:
    cells = {name: dict(vars(compat.Cell(passed=2)), failed=["test_x"]) for name in compat.BROKER_TESTS}
    results = NOTHING | {"kafka": {"3.4.1": {"date": "2026-11-22", "cells": cells}}}
    assert compat.has_failed(results)
    text = compat.page(results)
    assert "| 3.4.1 | **1 failed**, 2 passed |" in text and "Apache Kafka 3.4.1, codecs: `test_x`" in text


def test_what_could_not_be_run_is_no_success() -> None:
    cells = {name: vars(compat.Cell(problem="no test ran")) for name in compat.SPARK_TESTS}
    results = NOTHING | {"pyspark": {"4.1.4": {"date": "2026-11-22", "cells": cells}}}
    assert compat.has_failed(results) and "**not run**: no test ran" in compat.page(results)


def test_a_version_that_nobody_has_run_yet_is_in_the_table_as_such() -> None:
    rows = {line.split(" | ")[0]: line for line in compat.page(NOTHING).splitlines()}
    for version in (*compat.KAFKA, *compat.PYSPARK, compat.oldest_versions()):
        assert "| not run |" in rows[f"| {version}"], version


def test_a_failure_with_the_oldest_dependencies_counts_and_is_named() -> None:
    cells = {name: dict(vars(compat.Cell()), failed=["test_x"]) for name in compat.OLDEST_ALL}
    results = NOTHING | {"oldest": {compat.oldest_versions(): {"date": "2026-11-24", "cells": cells}}}
    assert compat.has_failed(results)
    assert f"- Oldest dependencies: {compat.oldest_versions()}, unit: `test_x`" in compat.page(results)


def test_an_installation_with_an_older_python_ends_at_once_and_says_which_one_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"needs Python 3\.10 or newer"):
        runpy.run_path(str(ROOT / "setup.py"))


def test_the_lower_bounds_of_the_metadata_are_what_is_installed_as_the_oldest() -> None:
    text = (ROOT / "setup.py").read_text()
    needed = re.search(r"install_requires=\[(.+)\]", text)
    assert needed is not None
    bounds = set(re.findall(r'"([\w-]+>=[\d.]+)"', needed[1]))
    assert {name.partition(">=")[0] for name in bounds} == {"pyarrow", "numpy", "lz4", "crc32c", "mmh3"}
    bounds.add(f"pyspark>={compat.FIRST_WITH_FORMAT}")
    for extra in ("WATCH", "PKCS12", "OTLP"):
        found = re.search(rf"^{extra} = \[(.+)\]", text, re.MULTILINE)
        assert found is not None
        bounds |= set(re.findall(r'"([\w-]+>=[\d.]+)"', found[1]))
    assert bounds == {each.replace("==", ">=") for each in (*compat.oldest_base(), *compat.oldest_extras())}


def test_every_dependency_has_a_lower_bound_that_can_be_tried() -> None:
    said = compat.metadata()
    extras = [each for name in ("spark", "watch", *compat.EXTRAS_ALONE) for each in said["extras_require"][name]]
    assert all(re.fullmatch(r"[\w-]+>=[\d.]+(,<\d+)?", each) for each in (*said["install_requires"], *extras))


def test_check_asks_for_the_pyarrow_of_the_metadata() -> None:
    bound = next(each for each in compat.metadata()["install_requires"] if each.startswith("pyarrow"))
    assert bound == "pyarrow>=" + ".".join(map(str, PYARROW_MIN))


def test_columns_that_are_run_again_leave_the_others_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    version = compat.oldest_versions()
    asked: list[str] = []

    def run(make: object, *processes: Mapping[str, object], **variables: str) -> dict[str, Any]:
        names = [name for groups in processes for name in groups]
        asked.extend(names)
        return dict.fromkeys(names, "new")

    monkeypatch.setattr(compat, "run_in", run)
    known: dict[str, Any] = {
        "oldest": {version: {"date": "2026-11-24", "cells": dict.fromkeys(compat.OLDEST_ALL, "old")}},
        "pyspark": {"4.0.5": {"date": "2026-11-24", "cells": {"batch": "old"}}},
    }
    monkeypatch.setattr(compat, "read_results", lambda: NOTHING | known)
    found = compat.try_oldest(version, ["unit", "extras"])
    assert asked == ["unit", "extras"]
    assert found == dict.fromkeys(compat.OLDEST_ALL, "old") | {"unit": "new", "extras": "new"}
    asked.clear()
    assert compat.try_pyspark("4.0.5", ["Connect"]) == {"batch": "old", "Connect": "new"} and asked == ["Connect"]


def test_the_committed_page_is_what_the_results_say() -> None:
    assert compat.PAGE.read_text() == compat.page(compat.read_results())
    assert set(compat.KAFKA) >= set(VERSIONS)


def test_the_page_for_users_names_the_versions_that_are_run() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    results = compat.read_results()
    for versions, side in ((compat.KAFKA, "kafka"), (compat.PYSPARK, "pyspark")):
        assert ", ".join(version for version in versions if version in results[side]) in text


def test_the_tests_that_are_named_exist() -> None:
    tables = (compat.BROKER_TESTS, compat.SPARK_TESTS, compat.OLDEST_ALL)
    assert all((ROOT / path).exists() for groups in tables for paths in groups.values() for path in paths)


def test_a_folder_is_a_group_of_all_its_files() -> None:
    (cell,) = compat.read_report(REPORT, {"all": ("tests/a",)}).values()
    assert (cell.passed, cell.skipped, len(cell.failed)) == (3, 1, 2)


def test_metadata_ask_for_the_oldest_pyspark_and_pages_for_the_oldest_with_the_format() -> None:
    found = re.search(r'SPARK = \["pyspark>=(.+)"\]', (ROOT / "setup.py").read_text())
    assert found is not None
    assert compat.PYSPARK[0].startswith(f"{found[1]}.")
    text = f"PySpark {compat.FIRST_WITH_FORMAT} or newer"
    pages = ("README.md", "docs/quickstart.md", "docs/platforms.md", "docs/troubleshooting.md")
    assert all(text in (ROOT / path).read_text() for path in pages)


def test_a_pyspark_is_tried_with_the_files_of_what_it_can_have() -> None:
    old, new = compat.spark_tests("3.5.9"), compat.spark_tests("4.0.5")
    assert {*old, *new} == {*compat.SPARK_TESTS}
    assert not {*old} & {*compat.FORMAT_TESTS} and not {*new} & {*compat.WITHOUT_FORMAT_TESTS}
    assert {*compat.SECOND_DOOR_TESTS} <= {*old} & {*new}
    text = compat.page(NOTHING)
    assert "| 3.5.9 | – | –" in text and "| 4.0.5 | not run | not run" in text
