"""The project's style as a program: `python -m tools.tidy` prints what breaks it and fails if anything does.

It checks rules that a formatter and a type checker cannot: which folder may import which, what a pure folder must not
use, files that import each other, the length of files and functions, dead modules, modules without a docstring,
comments that name files which do not exist, functions named by a participle and not by a verb, questions that change
something, tests that check nothing or patch what every thread uses, unfinished work, and paths of a developer's
machine.

import-linter would need a contract for each folder, hundreds of lines of folders that it must not import, where LAYERS
has one line for each of those that it may; it sees no import that is named in a string; the other rules read the same
trees.

Every rule is a function from sources to complaints and is tested on small made-up sources (tests/unit/test_tidy.py).
"""

from __future__ import annotations

import ast
import gc
import graphlib
import io
import re
import sys
import tokenize
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent
PACKAGE = "kafka_sink"

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# Which folder may import which inside the package, besides itself. A lower layer must not import a higher one. A room
# is a folder of the first level; rooms form no circle either (tests/unit/test_tidy.py).
_BASE = frozenset({"errors/table", "errors", "frozen", "version"})
_BYTES = _BASE | {"formats/records", "kafka/wire"}
_DECISIONS = _BYTES | {"security", "formats/schemas", "formats/registry", "options", "kafka/client"}
# Modules with input and output, from the bottom up.
_KAFKA = _DECISIONS | {"options/host", "kafka/io", "kafka/auth"}
_SHELL = _KAFKA | {"producer/engine", "producer", "commit", "commit/admin"}
LAYERS: Mapping[str, frozenset[str]] = {
    # Rooms that have nothing but inner folders.
    **dict.fromkeys(("formats", "kafka", "telemetry", "operate"), frozenset()),
    "errors/table": frozenset(),
    "errors": frozenset({"errors/table", "version"}),
    "frozen": frozenset(),
    "version": frozenset(),
    "security": _BASE,
    "formats/records": _BASE,
    "formats/schemas": _BASE | {"formats/records"},
    "formats/registry": _BASE,
    "options": _BASE | {"security", "formats/records", "formats/registry"},
    "options/host": _BASE | {"security", "options"},
    "kafka/wire": _BASE,
    "kafka/client": _BYTES | {"security", "options"},
    "kafka/io": _DECISIONS | {"options/host"},
    "kafka/auth": _DECISIONS | {"options/host", "kafka/io"},
    "producer/engine": _BYTES | {"options", "kafka/client"},
    "producer": _KAFKA | {"producer/engine"},
    "commit": _BYTES | {"options", "kafka/client"},
    "commit/admin": _KAFKA | {"commit"},
    "telemetry/metrics": _SHELL,
    "telemetry/lineage": _SHELL | {"telemetry/metrics"},
    "spark/formats": _KAFKA,
    "spark": _SHELL | {"telemetry/metrics", "telemetry/lineage", "spark/formats"},
    # Checks use all layers below a job.
    "operate/checks": _SHELL | {"spark/formats", "spark"},
    "operate/status": _SHELL | {"telemetry/metrics"},
    "operate/cli": _SHELL | {"telemetry/metrics", "spark/formats", "operate/checks", "operate/status"},
    "testing": _BYTES,
    "__init__": _SHELL | {"telemetry/metrics", "spark", "operate/checks"},
    "__main__": _BASE | {"operate/cli"},
}

# Folders with input and output; the rest of the package is pure. In testing/ only these modules have any.
SHELLS = frozenset(
    {"options/host", "kafka/io", "kafka/auth", "commit/admin", "producer", "telemetry/metrics", "telemetry/lineage"}
    | {"spark/formats", "spark", "operate/checks", "operate/cli", "operate/status"}
)
SHELL_MODULES = frozenset(
    {"testing/server.py", "testing/__main__.py", "testing/storage.py", "testing/pytest_plugin.py"}
    | {"testing/registry/server.py", "testing/forks.py"}
)
IMPURE_IMPORTS = frozenset(
    {"socket", "ssl", "select", "selectors", "threading", "_thread", "queue", "asyncio", "concurrent", "time"}
    | {"multiprocessing", "random", "secrets", "os", "logging", "subprocess", "signal", "pyspark"}
)
IMPURE_CALLS = frozenset({"now", "utcnow", "today", "open", "print", "input", "uuid1", "uuid4"})
# Test oracles and competitors: the package must not need any Kafka library.
FOREIGN_CLIENTS = frozenset({"confluent_kafka", "kafka", "aiokafka", "kio"})

# Split into pieces, so that this file does not break its own rules.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
MACHINE_PATH = re.compile("/" + r"(work|root|home/\w+|Users/\w+)/\w")

# A file name in a sentence. After a wildcard it is a pattern, not a name.
MENTIONED = re.compile(r"(?<![\w*./-])(?:\w+/)*\w+\.py\b")
COMMENTED = re.compile(r"#.*\.py\b")
OTHER_PROJECTS = ("pyspark/",)
# A function's name says what it does. A participle that describes the result (`joined`) is not a verb.
PARTICIPLES = frozenset(
    {"built", "chosen", "drawn", "found", "given", "gone", "held", "kept", "known", "left", "lost", "made", "meant"}
    | {"said", "seen", "sent", "shown", "taken", "told", "understood", "written"}
)
# A method that is named as a question, and a property, must not change its object.
QUESTION = re.compile(
    r"_?(is|are|was|were|has|have|can|may|might|must|should|needs?|uses|waits|wants|accepts|survives|leaves|find|without)_"
)
CHANGING_CALLS = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem", "popleft"}
    | {"remove", "setdefault", "update", "difference_update", "intersection_update"}
)
VERBS_IN_ED = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})

# Modules of shell commands are named in strings and imported when the command runs.
IMPORTED_BY_NAME = re.compile(PACKAGE + r"(\.\w+)+:\w+")

# Modules and classes of which a process has one.
OF_ALL_THREADS = frozenset({"time", "os", "random", "socket", "select", "threading", "Thread"})

# Calls that make a test fail, and what stands for one among the names that a function uses.
CHECKING_CALLS, CHECK = frozenset({"raises", "warns", "fail"}), "an assertion"


@dataclass(frozen=True)
class Source:
    """One file: its path relative to the root, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return walk(self.tree)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def in_package(self) -> bool:
        return self.is_python and self.path.startswith(PACKAGE + "/")

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def layer(self) -> str:
        return find_layer(PurePosixPath(self.path).parts[1:])

    @property
    def is_pure(self) -> bool:
        inner = self.path.removeprefix(PACKAGE + "/")
        return self.layer not in SHELLS and inner not in SHELL_MODULES and inner not in ("__init__.py", "__main__.py")

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """Line and full dotted name of all imports: at the top, inside a function, or named in a string."""
        return list(self._imports())

    def _imports(self) -> Iterator[tuple[int, str]]:
        here = self.module.split(".") if self.path.endswith("__init__.py") else self.module.split(".")[:-1]
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                parent = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
                origin = ".".join(part for part in (parent, node.module) if part)
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Constant) and IMPORTED_BY_NAME.fullmatch(str(node.value)):
                yield node.lineno, str(node.value).replace(":", ".")


def walk(top: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields, in its order, without what says whether a name is read or written: that is every third
    node, and no rule asks for it. Most of the time of all rules was spent in the walk."""
    found = [top]
    for node in found:  # which grows meanwhile
        for value in vars(node).values():
            if isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                found.append(value)
    return found


def find_layer(parts: Sequence[str]) -> str:
    """An inner folder that is a layer of its own, or the room, or the name of a file at the top of the package."""
    inner = "/".join(parts[:2])
    return inner if inner in LAYERS else parts[0].removesuffix(".py")


def layers(source: Source) -> Iterator[str]:
    if not source.in_package:
        return
    if source.layer not in LAYERS:
        yield f"{source.path}: unknown layer {source.layer}"
        return
    for line, name in source.imports:
        parts = name.split(".")
        if parts[0] == PACKAGE and len(parts) > 1:
            wanted = find_layer(parts[1:])
            if wanted != source.layer and wanted in LAYERS and wanted not in LAYERS[source.layer]:
                yield f"{source.path}:{line}: {source.layer} must not import {wanted}"
        elif parts[0] in FOREIGN_CLIENTS:
            yield f"{source.path}:{line}: the package needs no {parts[0]}"


def purity(source: Source) -> Iterator[str]:
    if not source.in_package or not source.is_pure:
        return
    for line, name in source.imports:
        if name.split(".")[0] in IMPURE_IMPORTS:
            yield f"{source.path}:{line}: a pure module must not import {name.split('.')[0]}"
    for node in source.nodes:
        if isinstance(node, ast.Call) and _called_name(node) in IMPURE_CALLS:
            yield f"{source.path}:{node.lineno}: a pure module must not call {_called_name(node)}()"
        if isinstance(node, ast.Attribute) and node.attr == "random" and _is_name(node.value, ("np", "numpy")):
            yield f"{source.path}:{node.lineno}: a pure module draws no random numbers"


def sizes(source: Source) -> Iterator[str]:
    if not source.in_package:
        return
    line_count = source.text.count("\n")
    if line_count > FILE_LINES_MAX:
        yield f"{source.path}: {line_count} lines, at most {FILE_LINES_MAX}"
    for function in source.functions:
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{source.path}:{function.lineno}: {function.name} has {length} lines, at most {FUNCTION_LINES_MAX}"


def introductions(source: Source) -> Iterator[str]:
    needs_one = source.in_package or source.path.startswith(("tools/", "spark_jobs/"))
    if needs_one and source.is_python and source.text.strip() and not ast.get_docstring(source.tree):
        yield f"{source.path}: no module docstring"


def unfinished_work(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        found = UNFINISHED.search(line)
        if found:
            yield f"{source.path}:{number}: {found[0]}"


def machine_paths(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        found = MACHINE_PATH.search(line)
        if found:
            yield f"{source.path}:{number}: a path of one machine: {found[0]}"


def participles(source: Source) -> Iterator[str]:
    """Functions whose name is only a participle. A property is not called, so its name may be an adjective."""
    if not source.is_python or source.path.startswith("tests/"):
        return
    for function in source.functions:
        word = function.name.strip("_")
        is_participle = word in PARTICIPLES or (re.fullmatch(r"[a-z]+ed", word) and word not in VERBS_IN_ED)
        if is_participle and not any("property" in ast.unparse(one) for one in function.decorator_list):
            yield f"{source.path}:{function.lineno}: {function.name} is not a verb"


def questions(source: Source) -> Iterator[str]:
    """Methods named as a question, and properties, that change their object: directly, or by another of its methods."""
    if not source.in_package:
        return
    for owner in source.nodes:
        if not isinstance(owner, ast.ClassDef):
            continue
        methods = {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)}
        changing = {name for name, method in methods.items() if _changes_self(method)}
        grown = True
        while grown:
            more = {name for name, method in methods.items() if _own_names(method) & changing} - changing
            grown = bool(more)
            changing |= more
        for name in sorted(changing):
            is_property = any("property" in ast.unparse(one) for one in methods[name].decorator_list)
            if is_property or QUESTION.match(name):
                yield f"{source.path}:{methods[name].lineno}: {name} is a question, and changes {owner.name}"


def _changes_self(method: ast.FunctionDef) -> bool:
    for node in walk(method):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING_CALLS:
            targets = [node.func.value]
        parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        if any(_is_of_self(part) for part in parts):
            return True
    return False


def _is_of_self(target: ast.expr) -> bool:
    """An attribute of `self`, or something in it."""
    is_inside = isinstance(target, ast.Attribute | ast.Subscript)
    while isinstance(target, ast.Attribute | ast.Subscript):
        target = target.value
    return is_inside and _is_name(target, ("self",))


def _own_names(method: ast.FunctionDef) -> set[str]:
    nodes = walk(method)
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and _is_name(node.value, ("self",))}


def verdicts(sources: Iterable[Source]) -> Iterator[str]:
    """A test needs an assert, a pytest.raises or something alike, or a function of tests and tools that has one: of its
    own file or of one that it imports. What a function uses, it may call; a function with a promising name may not."""
    every = {
        source.module: source for source in sources if source.is_python and source.path.startswith(("tests/", "tools/"))
    }
    used: dict[tuple[str, str], set[str]] = {}
    for module, source in every.items():
        for function in source.functions:
            used.setdefault((module, function.name), set()).update(_used_names(function))
    seen = {module: {module, *_imports(source)} & every.keys() for module, source in every.items()}
    checking = {one for one, names in used.items() if CHECK in names}
    grown = True
    while grown:
        more = {
            (module, name)
            for (module, name), names in used.items() if (module, name) not in checking
            and any((place, each) in checking for place in seen[module] for each in names)
        }  # fmt: skip
        checking |= more
        grown = bool(more)
    for module, source in every.items():
        for function in source.functions if _is_of_tests(source) else ():
            if function.name.startswith("test_") and (module, function.name) not in checking:
                yield f"{source.path}:{function.lineno}: {function.name} checks nothing"


def _is_of_tests(source: Source) -> bool:
    return source.path.startswith("tests/") and source.path.rsplit("/", 1)[-1].startswith("test_")


def _used_names(function: ast.AST) -> set[str]:
    """The names that it reads and the methods that it calls; CHECK, if it judges something itself."""
    names = set()
    for node in walk(function):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Call):
            name = _called_name(node)
            names.add(CHECK if name in CHECKING_CALLS or name.startswith("assert") else name)
        elif isinstance(node, ast.Assert) or (isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node)):
            names.add(CHECK)
    return names


def _imports(source: Source) -> set[str]:
    """The modules that it imports, and names that may be modules."""
    found = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            name = f"{source.module.rsplit('.', node.level)[0]}.{node.module}" if node.level else node.module
            found |= {name, *(f"{name}.{each.name}" for each in node.names)}
    return found


def shared_patches(source: Source) -> Iterator[str]:
    """Tests that replace what belongs to every thread: `setattr(time, "sleep", ...)`, `setattr("a.b.time.sleep", ...)`.
    Threads of the test, and those that earlier tests have left, get the replacement as well. What tests/support
    replaces looks at the thread."""
    is_judged = source.is_python and source.path.startswith("tests/") and not source.path.startswith("tests/support/")
    for node in source.nodes if is_judged else ():
        if isinstance(node, ast.Call) and _called_name(node) == "setattr" and len(node.args) > 1:
            owner = node.args[0]
            name = str(owner.value).rpartition(".")[0] if isinstance(owner, ast.Constant) else ast.unparse(owner)
            if name.rpartition(".")[2] in OF_ALL_THREADS:
                yield f"{source.path}:{node.lineno}: every thread gets this {name}: replace the name in the module"


def lost_files(sources: Iterable[Source]) -> Iterator[str]:
    """File names in comments, docstrings and DESIGN.md must exist."""
    every = list(sources)
    paths = [f"/{source.path}" for source in every]
    for source in every:
        if source.is_python:
            sentences = _sentences(source)
        elif source.path == "DESIGN.md":
            sentences = enumerate(source.text.splitlines(), 1)
        else:
            continue
        for number, sentence in sentences:
            for name in MENTIONED.findall(sentence):
                if not name.startswith(OTHER_PROJECTS) and not any(path.endswith(f"/{name}") for path in paths):
                    yield f"{source.path}:{number}: there is no {name}"


def _sentences(source: Source) -> Iterator[tuple[int, str]]:
    """Comments and docstrings with their lines."""
    for node in source.nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield node.body[0].lineno, text
    # To cut a file into tokens takes longer than all rules.
    if not COMMENTED.search(source.text):
        return
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def dead_modules(sources: Iterable[Source]) -> Iterator[str]:
    """Modules that no other module imports and that cannot be run. A tool may exist only for tests."""
    every = [source for source in sources if source.is_python]
    by_package, by_anyone = (
        _imported_modules(source for source in every if source.in_package or is_wide) for is_wide in (False, True)
    )
    for source in every:
        importers = by_package if source.in_package else by_anyone
        is_program = source.path.startswith((f"{PACKAGE}/", "tools/", "bench/"))
        if is_program and source.module not in importers and not _is_entry_point(source):
            yield f"{source.path}: dead, no other module imports it"


def names_twice(sources: Iterable[Source]) -> Iterator[str]:
    """Public classes of the package with the same name: a search for one finds the other."""
    homes: dict[str, str] = {}
    for source in sources:
        if not source.in_package:
            continue
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                first = homes.setdefault(node.name, source.path)
                if first != source.path:
                    yield f"{source.path}:{node.lineno}: there is a class {node.name} in {first}, too"


def circles(sources: Iterable[Source]) -> Iterator[str]:
    """Files of the package that import each other, also only for types or inside a function."""
    every = {source.module: source for source in sources if source.in_package}
    imports = {
        module: {found for _, name in source.imports if (found := _module_of(name, every)) not in (None, module)}
        for module, source in every.items()
    }
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        yield "a circle of files: " + " <- ".join(every[module].path for module in error.args[1])


def _module_of(name: str, known: Container[str]) -> str | None:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def bare_folders(sources: Iterable[Source]) -> Iterator[str]:
    """Folders without __init__.py: they can be imported, but an installation leaves them out."""
    paths = {source.path for source in sources if source.in_package}
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        if f"{folder}/__init__.py" not in paths:
            yield f"{folder}: no __init__.py"


TEXT_RULES = (unfinished_work, machine_paths)
PYTHON_RULES = (
    layers, purity, sizes, introductions, participles, questions, shared_patches, *TEXT_RULES,
)  # fmt: skip


def complaints(sources: Iterable[Source]) -> list[str]:
    """All trees live until the end: the garbage collector, which would visit them over and over, waits."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return _complaints(list(sources))
    finally:
        if collects:
            gc.enable()


def _complaints(every: Sequence[Source]) -> list[str]:
    found = [
        text for source in every for rule in (PYTHON_RULES if source.is_python else TEXT_RULES) for text in rule(source)
    ]
    found += [*lost_files(every), *dead_modules(every), *names_twice(every), *circles(every), *bare_folders(every)]
    found += verdicts(every)
    return found


def read_sources(root: Path = ROOT) -> list[Source]:
    folders = (PACKAGE, "pyspark_pykafka_sink", "spark_jobs", "tools", "tests", "bench", "docs", "stubs", ".ci")
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*")) if _is_text(path)]
    paths += [path for path in sorted(root.iterdir()) if path.is_file() and _is_text(path)]
    return [Source(path.relative_to(root).as_posix(), path.read_text()) for path in paths]


def _is_text(path: Path) -> bool:
    return path.suffix in (".py", ".pyi", ".md", ".toml", ".txt", ".java") or path.name in ("Makefile", "run")


def _imported_modules(sources: Iterable[Source]) -> set[str]:
    names = {
        name
        for source in sources
        for _, name in source.imports
        # An import of itself does not keep a module alive; an import by its package does.
        if source.path.endswith("__init__.py") or not f"{name}.".startswith(f"{source.module}.")
    }
    # `from a.b import c` imports a.b, and perhaps a.b.c.
    return names | {name.rpartition(".")[0] for name in names}


def _is_entry_point(source: Source) -> bool:
    name = source.path.rsplit("/", 1)[-1]
    return name in ("__init__.py", "__main__.py", "pytest_plugin.py") or '__name__ == "__main__"' in source.text


def _called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_name(node: ast.expr, names: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def main() -> None:
    found = complaints(read_sources())
    for text in found:
        sys.stdout.write(text + "\n")
    sys.stdout.write(f"tidy: {len(found)} complaints\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
