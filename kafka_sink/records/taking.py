"""Elements of an Arrow array by index: what `array.take` does, without what it loads.

`pyarrow.compute` makes a Python function with a text for each of Arrow's 300 kernels when it is imported: 20 ms, a
third of what a fresh task loads of ours. `array.take` imports it to call one of them. Here that kernel is called by its
name. Where pyarrow has put `call_function` somewhere else, it is `array.take` after all.
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
