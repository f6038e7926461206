"""Mutation tests: which small changes of the code does no test notice?

    python -m tools.mutants [options kafka/wire ...] [--processes 1] [--again]       (make mutants PLACE=kafka/wire)
    python -m tools.mutants formats/records --count 100 [--seed 7]                   some of them, in minutes

mutmut makes the mutants of a folder, runs each in a forked process against the tests that called its function, and
keeps those that no test kills. It forks after the imports, so mutants of functions that run while modules are imported
have no effect. Survivors among these get a second trial: a new process, with all tests of the folder. What then remains
is written to build/mutants/<folder>.txt, with its diff. After new tests, --again tries only those that were left.
With --count a random sample is tried (mutant_sample.py); the same seed chooses the same mutants of the same code.

Only folders whose tests run in the process of pytest: mutmut does not see what another process calls.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from tools.mutant_sample import by_duration, choose, make_tree, show, try_sample

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "mutants"
# The tests that judge each folder, as patterns of files or folders.
JUDGES: Mapping[str, Sequence[str]] = {
    "options": (
        "tests/unit/options",
        "tests/unit/test_options*.py",
        "tests/unit/test_*_options.py",
        "tests/unit/formats/registry/test_registry_options.py",
    ),
    "security": (
        "tests/unit/security",
        "tests/unit/test_options_security.py",
        "tests/unit/test_secret_options.py",
        "tests/unit/test_sink_options.py",
        "tests/property/test_security_bytes.py",
        "tests/property/test_sigv4_botocore.py",
    ),
    "formats/registry": (
        "tests/unit/formats/registry",
        "tests/property/test_registry_bytes.py",
        "tests/integration/test_schema_rules.py",
    ),
    "formats/records": (
        "tests/unit/formats/records",
        "tests/unit/formats/schemas",
        "tests/property/test_records_*.py",
        "tests/property/test_unsendable_rows.py",
        "tests/property/test_spark_changes.py",
        "tests/unit/commit/test_replay.py",
        "tests/unit/producer/test_buffer.py",
        "tests/golden",
    ),
    "formats/schemas": (
        "tests/unit/formats/schemas",
        "tests/unit/spark/test_spark_formats.py",
        "tests/property/test_schemas_*.py",
    ),
    "kafka/wire": (
        "tests/unit/kafka/wire",
        "tests/property/test_wire_*.py",
        "tests/property/test_produce_acknowledgements.py",
    ),
    "telemetry/metrics": (
        "tests/unit/telemetry/metrics",
        "tests/integration/test_metrics.py",
        "tests/integration/test_receivers.py",
    ),
    "telemetry/lineage": (
        "tests/unit/telemetry/metrics",
        "tests/integration/test_metrics.py",
        "tests/integration/test_receivers.py",
    ),
    "operate/status": ("tests/unit/operate/status", "tests/integration/test_status.py"),
    "operate/cli": (
        "tests/unit/operate/cli",
        "tests/integration/test_command*.py",
        "tests/integration/test_completion.py",
        "tests/integration/test_perf_command.py",
        "tests/integration/test_readers.py",
        "tests/integration/test_replay.py",
        "tests/integration/test_schema_command.py",
        "tests/integration/test_status.py",
        "tests/integration/test_watch.py",
    ),
}
NOT_LINKED = frozenset({"build", "dist", "env", "pyproject.toml"})
SURVIVED, KILLED, NOT_COVERED = 0, 1, (5, 33)
# A mutant runs in a process of its own, which would start a broker of its own.
CHOSEN = ("-p", "no:cacheprovider", "-m", "not slow and not kafka")
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:randomly", *CHOSEN)
# Prints what is called while modules and tests are imported, in the last line.
IMPORT = """
import sys
import pytest
from mutmut.state import state
status = pytest.main(["--collect-only", "-q", *sys.argv[1:]])
print(*sorted(state()._stats))
sys.exit(status)
"""
SHOW = """
import sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
for name in sys.stdin.read().split():
    print(name, get_diff_for_mutant(name), sep="\\n")
"""


@dataclass(frozen=True)
class Result:
    folder: str
    mutants: int
    survivors: tuple[str, ...]
    not_covered: int

    @property
    def killed(self) -> int:
        return self.mutants - len(self.survivors) - self.not_covered


def choose_tests(folder: str, root: Path = ROOT) -> list[str]:
    found = [path.relative_to(root).as_posix() for pattern in JUDGES[folder] for path in sorted(root.glob(pattern))]
    return list(dict.fromkeys(found))


def write_settings(ours: str, folder: str, tests: Iterable[str], copied: Iterable[str]) -> str:
    """The text of pyproject.toml: that of the project, for pytest, with a section for mutmut."""
    entries = {
        "source_paths": [f"kafka_sink/{folder}"],
        "pytest_add_cli_args_test_selection": list(tests),
        "pytest_add_cli_args": CHOSEN,
        "also_copy": list(copied),
        # A mutant that does not end is killed after so many times the duration of its tests, and not after mutmut's 15.
        "timeout_multiplier": 4,
        "timeout_constant": 5,
    }
    # Lists of plain strings and numbers are the same text in JSON and in TOML.
    return f"{ours}\n[tool.mutmut]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in entries.items())


def read_exit_codes(mutated: Path, expected: Iterable[str] = ()) -> dict[str, int]:
    """What mutmut found, by the name of the mutant, in a file for each module: of all mutants, or of those whose names
    fit one of the expected patterns."""
    codes: dict[str, int | None] = {}
    for path in sorted(mutated.rglob("*.meta")):
        codes.update(json.loads(path.read_text())["exit_code_by_key"])
    patterns = [re.compile(translate(pattern)) for pattern in expected]
    found = {name: code for name, code in codes.items() if not patterns or any(each.match(name) for each in patterns)}
    judged = {name: code for name, code in found.items() if code is not None}
    if not judged or len(judged) < len(found):
        raise SystemExit(f"mutmut ended early: it has results of {len(judged)} mutants of {len(found)}")
    return judged


def prepare(folder: str, tests: Sequence[str], is_again: bool) -> Path:
    """A folder with links to everything that the tests read, in which mutmut makes its own copy."""
    work = BUILD / folder
    linked = [path for path in sorted(ROOT.iterdir()) if path.name[0] != "." and path.name not in NOT_LINKED]
    if not is_again:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for path in linked:
            (work / path.name).symlink_to(path)
    ours = (ROOT / "pyproject.toml").read_text()
    (work / "pyproject.toml").write_text(write_settings(ours, folder, tests, [path.name for path in linked]))
    return work


def read_imported(mutated: Path, tests: Sequence[str]) -> frozenset[str]:
    """The functions that are called while modules are imported."""
    command = [sys.executable, "-c", IMPORT, *tests]
    environment = {**os.environ, "MUTANT_UNDER_TEST": "stats"}
    run = subprocess.run(command, cwd=mutated, env=environment, check=True, capture_output=True, text=True)
    return frozenset(run.stdout.splitlines()[-1].split())


def function_of(mutant: str) -> str:
    return mutant.rpartition("__mutmut_")[0]


def try_again(mutated: Path, survivors: Iterable[str], tests: Sequence[str], processes: int) -> list[str]:
    """The mutants of what runs at import that a new process kills."""
    imported = read_imported(mutated, tests)
    names = [name for name in survivors if function_of(name) in imported]

    def survives(name: str) -> bool:
        command, environment = [sys.executable, *PYTEST, *tests], {**os.environ, "MUTANT_UNDER_TEST": name}
        return subprocess.run(command, cwd=mutated, env=environment, stdout=subprocess.DEVNULL).returncode == 0

    with ThreadPoolExecutor(processes) as threads:
        return [name for name, alive in zip(names, threads.map(survives, names), strict=True) if not alive]


def judge_sample(folder: str, count: int, seed: int) -> Result:
    tree = BUILD / f"{folder}.sample"
    tests = by_duration(ROOT, choose_tests(folder))
    settings = write_settings((ROOT / "pyproject.toml").read_text(), folder, tests, ())
    names = choose(make_tree(ROOT, tree, folder, settings), count, seed)
    imported = read_imported(tree, tests)
    codes = try_sample(tree, names, [name for name in names if function_of(name) in imported], tests)
    survivors = tuple(name for name, code in codes.items() if code == SURVIVED)
    (BUILD / f"{folder}.txt").write_text("\n".join(show(tree, name) for name in survivors))
    return Result(folder, len(codes), survivors, 0)


def judge(folder: str, processes: int, is_again: bool) -> Result:
    tests = choose_tests(folder)
    work, results, log = prepare(folder, tests, is_again), BUILD / f"{folder}.json", BUILD / f"{folder}.log"
    # mutmut forgets results when other tests are chosen.
    codes: dict[str, int] = json.loads(results.read_text()) if is_again else {}
    left = [name for name, code in codes.items() if code in (SURVIVED, *NOT_COVERED)]
    mutmut = [str(Path(sys.executable).with_name("mutmut")), "run", "--max-children", str(processes), *left]
    with log.open("w") as output:
        run = subprocess.run(mutmut, cwd=work, stdout=output, stderr=subprocess.STDOUT)
    if run.returncode != 0:
        raise SystemExit(f"mutmut failed: {log}")
    codes |= read_exit_codes(work / "mutants", left)
    survivors = [name for name, code in codes.items() if code == SURVIVED]
    for name in try_again(work / "mutants", survivors, tests, processes):
        codes[name] = KILLED
    results.write_text(json.dumps(codes, indent=0))
    survivors = [name for name in survivors if codes[name] == SURVIVED]
    uncovered = [name for name, code in codes.items() if code in NOT_COVERED]
    for title, names in (("txt", survivors), ("not_covered.txt", uncovered)):
        shown = subprocess.run(
            [sys.executable, "-c", SHOW], cwd=work, input="\n".join(names), check=True, capture_output=True, text=True
        )
        (BUILD / f"{folder}.{title}").write_text(shown.stdout)
    return Result(folder, len(codes), tuple(survivors), len(uncovered))


def main() -> int:
    parser = argparse.ArgumentParser(description="which changes of the code does no test notice?")
    parser.add_argument("folders", nargs="*", metavar="folder", help=", ".join(JUDGES))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="only what was left by the last run")
    parser.add_argument("--count", type=int, metavar="N", help="only so many, chosen at random")
    parser.add_argument("--seed", type=int, default=1, help="of that choice")
    arguments = parser.parse_args()
    unknown = [folder for folder in arguments.folders if folder not in JUDGES]
    if unknown:
        parser.error(f"no tests are named for {', '.join(unknown)}: choose from {', '.join(JUDGES)}")
    print(
        "| folder | mutants | killed | survived | not covered | minutes |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for folder in arguments.folders or JUDGES:
        start = time.monotonic()
        if arguments.count:
            result = judge_sample(folder, arguments.count, arguments.seed)
        else:
            result = judge(folder, arguments.processes, arguments.again)
        cells = (result.mutants, result.killed, len(result.survivors), result.not_covered)
        minutes = round((time.monotonic() - start) / 60)
        print(f"| {folder} | {' | '.join(f'{cell:,}' for cell in cells)} | {minutes} |", flush=True)
    print(f"Survivors: {BUILD.relative_to(ROOT)}/<folder>.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
