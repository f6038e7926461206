"""CRC-32C, the checksum of record batches.

The package crc32c includes a command line: its import loads argparse, email and importlib.metadata, ten times what the
function itself needs, in each of Spark's Python processes. So the compiled module is loaded directly from the package's
folder. If it is not found there, as in another release, the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

Data = bytes | bytearray | memoryview
_COMPILED = "_crc32c"


def _import_crc32c() -> Callable[..., int]:
    """Of data; a second argument is the checksum of the preceding data."""
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec(_COMPILED, places) if places else None
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        if callable(alone := getattr(module, "crc32c", None)):
            found: Callable[..., int] = alone
            return found
    from crc32c import crc32c as whole

    return whole


crc32c = _import_crc32c()
