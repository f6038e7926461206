"""Elements of an Arrow array by index: like `array.take`, but without its imports.

When imported, `pyarrow.compute` makes a Python function with a docstring for each of Arrow's 300 kernels: 20 ms, a
third of this package's load time in a new task. `array.take` imports it to call one of them. This calls the kernel by
name. If pyarrow has moved `call_function`, `array.take` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    from pyarrow._compute import call_function
except ImportError:
    call_function = None

if TYPE_CHECKING:
    import pyarrow as pa


def take_elements(array: pa.Array, indices: pa.Array) -> Any:
    """An index outside the array is an error, as in `take`."""
    return array.take(indices) if call_function is None else call_function("take", [array, indices])
