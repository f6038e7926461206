"""One entry of the table, and common answers to: is my data safe?"""

from __future__ import annotations

from typing import NamedTuple


class ErrorEntry(NamedTuple):
    """`phrases` are parts of the error texts, for searching; `page` has more."""

    name: str
    title: str
    happened: str
    data: str
    cure: str
    phrases: tuple[str, ...] = ()
    page: str = ""


BEFORE = "Nothing was written: the error comes before the first row."
TASK = "Exactly once: nothing of the batch is visible. At least once: rows sent before may be there, and come again."
UNCHANGED = "Nothing was committed or aborted by this."
HELD = "Safe: the input is still with Spark, and nothing of the batch is visible."
DECIDED = "Safe if somebody acts in time: the decision is in the ledger, and whoever runs next finishes it."
