"""One entry of the table, and common answers to: is my data safe?"""

from __future__ import annotations

from typing import NamedTuple


class ErrorEntry(NamedTuple):
    """`phrases` are parts of the error texts, for searching; `data`: is it safe? `page` has more about this one: those
    of a whole chapter are named at its beginning, by tools/error_reference.py.
    """

    name: str
    title: str
    happened: str
    cure: str
    phrases: tuple[str, ...] = ()
    data: str = ""
    page: str = ""


BEFORE = "Nothing was written."
TASK = "Nothing of the batch is visible; with at-least-once rows may repeat."
UNCHANGED = "Nothing was committed or aborted."
HELD = "Safe: nothing of the batch is visible, and Spark still has the input."
DECIDED = "Safe if you act in time: the next run (or `recover`) completes what the ledger has decided."
