"""The code blocks of the pages: which are run and how, and which are not run and why.

The language of a block follows its fence. `python` and `sh` blocks are run; a `text` block right after one is its
expected output. A comment `<!-- not run: reason -->` right before a block excludes it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The pages whose blocks are run with a Spark session and an embedded broker, in this order.
PAGES = (
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "guides").glob("*.md")),
    *(
        f"docs/{name}.md"
        for name in ("quickstart", "migration", "operations", "faq", "how-it-works", "exactly-once", "order")
    ),
    *(f"docs/{name}.md" for name in ("schemas", "producer", "embedded-broker")),
)
# Placeholders in the pages for the reader's own addresses and folders.
BROKER, REGISTRY, FOLDER = "broker:9092", "http://registry:8081", "/data/"
# A block in these languages is run or says why not. Other blocks are no code: output, configuration, diagrams.
CODE = frozenset({"python", "sh"})

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n)?(?P<fence>```+)(?P<language>\w*)\n(?P<code>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_TOPIC = re.compile(r'(?:\.option\("topic", |"topic": |`topic` = )["\']([\w.-]+)["\']')


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str
    reason: str  # why it is not run; empty: it is run
    prints: str | None  # the text block right after it

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    every = []
    for match, following in zip_longest(found, found[1:]):
        is_output = (
            following is not None
            and following["language"] == "text"
            and not text[match.end() : following.start()].strip()
        )
        line = text.count("\n", 0, match.start("code")) + 1
        prints = following["code"] if following is not None and is_output else None
        every.append(Block(page, line, match["language"], match["code"], (match["reason"] or "").strip(), prints))
    return every


def code_blocks(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in CODE]


def placed(code: str, places: Mapping[str, str]) -> str:
    """Returns the code with the addresses of this run instead of those of the page."""
    for before, after in places.items():
        code = code.replace(before, after)
    return code


def topics_written(page: str) -> set[str]:
    """Topics to which blocks that are run write at the broker of this run: they must contain rows afterwards."""
    written = (block.code for block in code_blocks(page) if not block.reason and BROKER in block.code)
    return {name for code in written for name in _TOPIC.findall(code)}


def commands(code: str) -> list[list[str]]:
    """Splits each command line of a shell block into words."""
    lines = code.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]
