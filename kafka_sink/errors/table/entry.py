"""One entry of the table, and common answers to: is my data safe?"""

from __future__ import annotations

from typing import NamedTuple


class ErrorEntry(NamedTuple):
    """`phrases` are parts of the error texts, for searching; `data`: is it safe? `page` has more.

    What is the same for most entries of a chapter is said once, at its beginning.
    """

    name: str
    title: str
    happened: str
    cure: str
    phrases: tuple[str, ...] = ()
    data: str = ""
    page: str = ""


BEFORE = "Nothing was written."
TASK = "Exactly-once: no row of the batch is visible. At-least-once: rows already sent may appear twice after a retry."
UNCHANGED = "The operation did not commit or abort anything."
HELD = "Safe: Spark still has the input, and no row of the batch is visible."
DECIDED = "Safe if you act in time: the decision is in the ledger, and the next run (or `recover`) completes it."
