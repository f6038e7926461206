"""A random sample of a folder's mutants: some minutes, on a busy machine, too.

mutmut runs all tests three times before it tries the first mutant, and takes a second of CPU for each. Here it only
makes the mutants. One process imports the tests, and each mutant is tried in a fork of it: 0.3 s of CPU, and the tests,
the quickest file first. A mutant of what runs while modules are imported is tried in a fork from before that.
"""

from __future__ import annotations

import ast
import json
import os
import random
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from difflib import unified_diff
from importlib import import_module
from pathlib import Path

# Of CPU time, for all tests of a mutant: one that never ends counts as killed.
LIMIT_S = 120
MEMORY_BYTES = 8 * 2**30
QUIET = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not slow and not kafka", "--tb=no")


def make_tree(root: Path, tree: Path, folder: str, settings: str) -> list[str]:
    """A copy of package and tests in which the folder has its mutants, all of them asleep. Returns their names."""
    # Only who wants mutants has mutmut.
    mutate = import_module("mutmut.mutation.file_mutation").mutate_file_contents
    name_of = import_module("mutmut.utils.format_utils").get_mutant_name
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for path in sorted(root.iterdir()):
        if path.name in ("kafka_sink", "tests"):
            shutil.copytree(path, tree / path.name)
        elif path.name[0] != "." and path.name not in ("build", "pyproject.toml"):
            (tree / path.name).symlink_to(path)
    (tree / "pyproject.toml").write_text(settings)
    os.chdir(tree)  # where mutmut looks for its settings
    names: list[str] = []
    for path in sorted(Path("kafka_sink", folder).rglob("*.py")):
        made = mutate(str(path), path.read_text())
        path.write_text(made.code)
        names += [name_of(path, name) for name in made.mutant_names]
    return names


def by_duration(root: Path, tests: Sequence[str]) -> list[str]:
    """The files of these files and folders, the quickest first."""
    durations = json.loads((root / "tests" / "durations.json").read_text())
    files = {
        each.relative_to(root).as_posix()
        for test in tests
        for each in ([root / test] if test.endswith(".py") else (root / test).rglob("test_*.py"))
    }
    return sorted(files, key=lambda file: (durations.get(file, [10.0])[0], file))


def try_sample(tree: Path, names: Sequence[str], at_import: Sequence[str], tests: Sequence[str]) -> dict[str, int]:
    """The exit codes of these mutants. `at_import`: those of them that take effect while modules are imported."""
    given = {"names": [name for name in names if name not in at_import], "at_import": list(at_import), "tests": tests}
    command = [sys.executable, "-m", "tools.mutant_sample"]
    environment = {**os.environ, "MUTANT_UNDER_TEST": ""}
    run = subprocess.run(
        command, cwd=tree, env=environment, input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=True
    )
    codes: dict[str, int] = json.loads(run.stdout.splitlines()[-1])
    return codes


def choose(names: Sequence[str], count: int, seed: int) -> list[str]:
    return random.Random(seed).sample(names, min(count, len(names)))


def show(tree: Path, name: str) -> str:
    """What the mutant changes."""
    module, _, mutant = name.rpartition(".")
    text = Path(tree, *module.split(".")).with_suffix(".py").read_text()
    bodies = {node.name: node.body for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    original = f"{mutant.rpartition('__mutmut_')[0]}__mutmut_orig"
    before, after = ("\n".join(map(ast.unparse, bodies[each])).split("\n") for each in (original, mutant))
    lines = unified_diff(before, after, n=0, lineterm="")
    changed = [line for line in lines if line[:3] not in ("+++", "---", "@@ ")]
    return "\n".join([name, *changed])


# ---- in the process of its own ---------------------------------------------------------------------------------------


def _try(name: str, tests: Sequence[str]) -> int:
    """In a fork, with the mutant awake."""
    import pytest

    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            os.environ["MUTANT_UNDER_TEST"] = name
            code = int(pytest.main([*QUIET, *tests]))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    given = json.load(sys.stdin)
    tests, codes = given["tests"], {}
    import pytest

    for name in ("numpy", "pyarrow"):  # once, and not in each fork
        import_module(name)
    for name in given["at_import"]:
        codes[name] = _try(name, tests)
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if _try("", tests) or pytest.main(["--collect-only", *QUIET, *tests]):
        sys.exit("the tests fail without a mutant, too")
    os.dup2(out, 1)
    for name in given["names"]:
        codes[name] = _try(name, tests)
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
