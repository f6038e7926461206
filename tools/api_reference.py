"""Writes docs/python-api.md from the docstrings: `python -m tools.api_reference [file]`.

mkdocstrings makes its page while the site is built, and only there; this one is also read on GitHub, and a change of
the public names is a change of a file that somebody reviews.

It reads the sources, not imported modules, so that the page is the same with every Python version. A test compares the
committed file with it.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from pathlib import Path

import kafka_sink

ROOT = Path(__file__).parent.parent
PATH = ROOT / "docs" / "python-api.md"
PACKAGE = "kafka_sink"

_INTRODUCTION = """\
# Python API

Generated from the docstrings by `python -m tools.api_reference`. What is not on this page may change in any release.
In Spark jobs most of it is not needed: there are the format's [options](options.md). Names are imported from
`kafka_sink`, those of the last group from `kafka_sink.testing`.
"""

_OF_ERRORS = """\
All derive from `KafkaSinkError` and survive pickling. What each means for the records:
[producer.md](producer.md#what-an-error-means)."""
_ERRORS = """
KafkaSinkError AuthenticationError AuthorizationError BrokerError BufferExhausted CommitAborted CommitError CommitLost
CommitPending ConfigError DataError DeliveryError DeliveryTimeout LocalProtocolError OperationTimeout OutOfMemory
ProducerFenced RemoteProtocolError TransactionAborted TransactionError TransportError"""

# Title, introduction and names of each group. A test fails if a public name is in no group.
_GROUPS = (
    (
        "Spark",
        "How the functions are used: [second-door.md](guides/second-door.md), [exports.md](guides/exports.md).",
        "register foreach_batch write write_batch WriteSummary write_in_chunks ExportSummary ChunkSummary",
    ),
    (
        "Operations",
        "[check.md](check.md), [metrics.md](metrics.md).",
        "check CheckReport sink_metrics SinkMetrics read_manifests BatchManifest",
    ),
    ("Producer", "How it is used: [producer.md](producer.md).", "Producer parse_producer_options ProducerOptions"),
    ("Results", "", "RecordFuture RecordMetadata ArrowFuture ArrowMetadata PartitionRange"),
    ("Transactions", "", "TransactionReceipt ConsumerGroup OffsetAndMetadata"),
    ("Interceptors and partitions", "", "ProducerRecord PartitionInfo"),
    (
        "Errors",
        _OF_ERRORS,
        _ERRORS,
    ),
)
_TESTING = (
    "kafka_sink.testing",
    "For tests of your own: [embedded-broker.md](embedded-broker.md).",
    "EmbeddedBroker CommittedRecord Fault Acl EmbeddedRegistry RegistryFault BrokerCluster RegistryCore Settings",
)
# Methods by which the sender thread completes a future, a task looks into one, and the embedded broker looks into its
# rules. Users do not call them.
INTERNAL = frozenset(
    {"on_delivered", "on_failed", "fail_rest", "fail", "extents"}
    | {"concerns", "covers", "is_about", "endpoints", "fail_authentication"}
    | {"quirk", "drops_leaderless_markers", "text", "number", "names", "flag"}
)
# Classes with a field for each option of a page.
OPTIONS_OF = {"ProducerOptions": "options.md#producer-options"}
# Public names that are neither classes nor functions.
CONSTANTS = frozenset({"VERSION"})

Node = ast.ClassDef | ast.FunctionDef


def names_of_groups() -> set[str]:
    return {name for _, _, names in _GROUPS for name in names.split()}


def public_names() -> set[str]:
    return {
        name
        for name in dir(kafka_sink)
        if not name.startswith("_") and name not in CONSTANTS and name in _imported_names(PACKAGE)
    }


def reference() -> str:
    parts = [_INTRODUCTION]
    for (title, introduction, names), package in [
        *((group, PACKAGE) for group in _GROUPS),
        (_TESTING, f"{PACKAGE}.testing"),
    ]:
        homes = _imported_names(package)
        parts += [f"## {title}\n", *([f"{introduction}\n"] if introduction else [])]
        for name in names.split():
            parts.append(_describe(*_definition(homes[name], name)))
    return "\n".join(parts)


def _imported_names(package: str) -> dict[str, str]:
    """The names that the __init__ of a package imports, and the module that each comes from."""
    tree = ast.parse((_path(package)).read_text(encoding="utf-8"))
    return {
        alias.asname or alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGE)
        for alias in node.names
    }


def _path(module: str) -> Path:
    place = ROOT.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _definition(module: str, name: str) -> tuple[Node, str]:
    """The definition and its module, which may differ from the module that exports the name."""
    tree = ast.parse(_path(module).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node, module
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _definition(node.module, name)
    raise LookupError(f"{module} has no {name}")


def _describe(node: Node, module: str) -> str:
    lines = [f"### {node.name}\n"]
    text = ast.get_docstring(node)
    if isinstance(node, ast.FunctionDef):
        lines.append(_code(f"{node.name}{_signature(node, is_method=False)}"))
        return "\n".join([*lines, *([_prose(text)] if text else [])])
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    fields = list(_fields(node))
    methods = list(_methods(node, module))
    init = next((one for one in methods if one.name == "__init__"), None)
    if node.name in OPTIONS_OF:
        lines.append(f"A field for each [option]({OPTIONS_OF[node.name]}), with underscores in place of dots.\n")
    elif fields:
        lines.append(_code("\n".join([f"class {node.name}({bases}):" if bases else f"class {node.name}:", *fields])))
    elif init in node.body:
        lines.append(_code(f"{node.name}{_signature(init)}"))
    elif bases:
        lines.append(f"A `{bases}`.\n")
    if text:
        lines.append(_prose(text))
    for method in methods:
        if not method.name.startswith("_") and method.name not in INTERNAL:
            lines.append(_method(method))
    return "\n".join(lines)


def _method(method: ast.FunctionDef) -> str:
    decorators = {ast.unparse(one) for one in method.decorator_list}
    shown = method.name if "property" in decorators else f"{method.name}{_signature(method)}"
    if "property" in decorators and method.returns is not None:
        shown += f": {ast.unparse(method.returns)}"
    text = ast.get_docstring(method)
    return f"**`{shown}`**\n" + (f"\n{_prose(text)}" if text else "")


def _methods(node: ast.ClassDef, module: str) -> Iterator[ast.FunctionDef]:
    """The methods of the class, and those of its bases that have no place of their own on the page."""
    yield from (one for one in node.body if isinstance(one, ast.FunctionDef))
    for base in node.bases:
        if not isinstance(base, ast.Name) or hasattr(builtins, base.id) or base.id in names_of_groups():
            continue
        try:
            found, place = _definition(module, base.id)
        except (LookupError, FileNotFoundError):
            continue  # a base of the standard library
        if isinstance(found, ast.ClassDef):
            yield from _methods(found, place)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not one.target.id.startswith("_"):
            default = f" = {ast.unparse(one.value)}" if one.value is not None else ""
            annotation = ast.unparse(one.annotation)
            if not annotation.startswith("ClassVar"):
                yield f"    {one.target.id}: {annotation}{default}"


def _signature(function: ast.FunctionDef, *, is_method: bool = True) -> str:
    arguments = function.args
    if is_method and arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments = ast.arguments(**{**vars(arguments), "args": arguments.args[1:]})
    result = f" -> {ast.unparse(function.returns)}" if function.returns is not None else ""
    return f"({ast.unparse(arguments)})" + ("" if function.name == "__init__" else result)


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _prose(text: str) -> str:
    return text.strip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    path = Path(given[0]) if given else PATH
    path.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
