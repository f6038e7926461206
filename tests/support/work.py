"""How much work a call is, without a clock: the number of Python's instructions that it takes. It tells if work grows
with the square of something."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_instructions(act: Callable[[], object]) -> int:
    """In functions that are called by `act`. What is done in C is not seen. Python 3.13.0 sees a function only from its
    second call under this trace on: count once before the calls that are compared."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count
