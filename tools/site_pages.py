"""A hook of mkdocs (mkdocs.yml) that adds to the site what is outside docs/.

- README.md is the first page; DESIGN.md, CHANGELOG.md and similar files are pages, too.
- A link that leaves docs/ leads to a copy of its file, so that the tests which prove a page can be read offline. Only
  files that a page links to are copied; a link to a missing file is a warning, like any other.
- A notebook is a page, too: its texts and its code, for those who have no Jupyter at hand.
- The navigation supports patterns, so that a new page needs no entry.
- The search shows pages for users before those for builders.
"""

from __future__ import annotations

import fnmatch
import json
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = "docs"
# Pages outside of docs/: their path in the repository, and on the site.
PAGES = {
    "README.md": "index.md",
    "DESIGN.md": "design.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
SOURCES = "source"
NOTEBOOK = ".ipynb"
# The part of the navigation for those who build the sink, and what a word there counts for the search.
BUILDERS, BUILDERS_BOOST = "Build it", 0.2
# A link or a picture.
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
# In a table a long name breaks behind one of these signs only, so that it can be read on a phone.
CODE, BREAK_AFTER = re.compile(r"<code>.*?</code>", re.DOTALL), re.compile(r"(?<=\w)([._=/,]+)(?=[\w&])")
FENCE = re.compile(r"^(```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)


def address(target: str) -> str:
    """The address on the site of a path in the repository."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith(f"{DOCS}/"):
        return target.removeprefix(f"{DOCS}/")
    if target.endswith(NOTEBOOK):
        return target.removesuffix(NOTEBOOK) + ".md"
    return f"{SOURCES}/{target}.txt"


def linked_paths(text: str, path: str) -> list[str]:
    """The existing paths in the repository to which the text of the file `path` links."""
    targets = [_target(found[2], path) for part in FENCE.split(text)[::2] for found in LINK.finditer(part)]
    return sorted({target for target in targets if target is not None and (ROOT / target).exists()})


def relink(text: str, path: str) -> str:
    """The same text, with addresses of the site instead of paths of the repository."""
    here = posixpath.dirname(address(path))

    def replace_link(found: re.Match[str]) -> str:
        target = _target(found[2], path)
        if target is None or not (ROOT / target).exists():
            return found[0]
        return f"{found[1]}{posixpath.relpath(address(target), here or '.')}{found[3]}"

    parts = FENCE.split(text)
    return "".join(part if number % 2 else LINK.sub(replace_link, part) for number, part in enumerate(parts))


def notebook_page(text: str, path: str) -> str:
    """The cells of a notebook, in their order, and where it is as a file."""
    cells = [("".join(cell["source"]), cell["cell_type"]) for cell in json.loads(text)["cells"]]
    (title, *_), *rest = cells
    whole = f"The notebook itself: `{path}` in a clone."
    return "\n\n".join([title, whole, *(f"```python\n{each}\n```" if kind == "code" else each for each, kind in rest)])


def breakable(html: str) -> str:
    """The same page, in whose tables names may break behind a dot, an underscore and the like."""

    def in_code(code: re.Match[str]) -> str:
        return BREAK_AFTER.sub(r"\1<wbr>", code[0])

    return TABLE.sub(lambda table: CODE.sub(in_code, table[0]), html)


def notebooks() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob(f"*{NOTEBOOK}"))


def expand(patterns: list[str], pages: list[str], taken: set[str]) -> list[str]:
    """The pages that match the patterns, each once."""
    found = []
    for pattern in patterns:
        for page in fnmatch.filter(pages, pattern):
            if page not in taken:
                taken.add(page)
                found.append(page)
    return found


def navigation(sections: list[dict[str, list[str]]], pages: list[str]) -> list[dict[str, list[str]]]:
    named = {pattern for section in sections for patterns in section.values() for pattern in patterns}
    taken: set[str] = set()
    # A page with its own entry does not match a pattern of an earlier entry.
    plain = named & set(pages)
    found = []
    for section in sections:
        for title, patterns in section.items():
            others = taken | (plain - set(patterns))
            before = set(others)
            found.append({title: expand(patterns, pages, others)})
            taken |= others - before
    rest = [page for page in pages if page not in taken]
    return [*found, {"More": rest}] if rest else found


def _target(link: str, path: str) -> str | None:
    """The path in the repository that a link leads to; None for addresses on the web."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return None if found.startswith("..") or found == "." else found


def _listing(target: str) -> str:
    place = ROOT / target
    if place.is_file():
        return place.read_text(encoding="utf-8")
    names = sorted(path.relative_to(ROOT).as_posix() for path in place.rglob("*") if path.is_file())
    return "\n".join(name for name in names if "__pycache__" not in name) + "\n"


# ---- hooks that mkdocs calls; its objects are Any, because other tools work without mkdocs ----


def on_config(config: Any) -> Any:
    pages = sorted(path.relative_to(ROOT / DOCS).as_posix() for path in (ROOT / DOCS).rglob("*.md"))
    pages += [page for path, page in PAGES.items() if (ROOT / path).is_file()]
    pages += [address(path) for path in notebooks()]
    config.nav = navigation(config.nav, pages)
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    paths = [path for path in PAGES if (ROOT / path).is_file()]
    for path in paths:
        files.append(File.generated(config, PAGES[path], content=(ROOT / path).read_text(encoding="utf-8")))
    for path in notebooks():
        text = notebook_page((ROOT / path).read_text(encoding="utf-8"), path)
        files.append(File.generated(config, address(path), content=text))
    paths += [path.relative_to(ROOT).as_posix() for path in (ROOT / DOCS).rglob("*.md")]
    targets = {target for path in paths for target in linked_paths((ROOT / path).read_text(encoding="utf-8"), path)}
    for target in sorted(targets):
        if address(target).startswith(f"{SOURCES}/"):
            files.append(File.generated(config, address(target), content=_listing(target)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    menus = (menu for section in config.nav for menu in section.items())
    builders: list[str] = next((pages for title, pages in menus if title == BUILDERS), [])
    if page.file.src_uri in builders:
        page.meta["search"] = {"boost": BUILDERS_BOOST}
    own = {site: path for path, site in PAGES.items()} | {address(path): path for path in notebooks()}
    return relink(markdown, own.get(page.file.src_uri, f"{DOCS}/{page.file.src_uri}"))


def on_post_page(output: str, **_: Any) -> str:
    # Here the search has its words already.
    return breakable(output)
