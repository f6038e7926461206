"""The site, built once and served on this machine, and a browser to test it."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tools.browser import Browser, BrowserUnavailable

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Site:
    folder: Path
    url: str
    # The same pages with a search index of one entry.
    pages_url: str
    said: str  # by the build

    @property
    def pages(self) -> list[str]:
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.html"))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def end_headers(self) -> None:
        """As hosts of sites do: what has a sum in its name may be kept. Otherwise the browser asks for it and compiles
        it again for each page."""
        if "/assets/" in self.path:
            self.send_header("Cache-Control", "max-age=3600")
        super().end_headers()


class _WithShortIndex(_Quiet):
    """The index of all pages takes a third of the time to open any page. Here it has one entry."""

    def do_GET(self) -> None:
        if not self.path.endswith("/search_index.json"):
            super().do_GET()
            return
        index = json.loads(Path(self.translate_path(self.path)).read_text(encoding="utf-8"))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({**index, "docs": index["docs"][:1]}).encode())


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if find_spec("mkdocs") is None or find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install '.[site]', Python 3.11 or newer")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    with served(folder, _Quiet) as url, served(folder, _WithShortIndex) as pages_url:
        yield Site(folder, url, pages_url, built.stderr)


@contextmanager
def served(folder: Path, handler: type[_Quiet]) -> Iterator[str]:
    make = functools.partial(handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        started = Browser()
    except BrowserUnavailable as missing:
        pytest.skip(str(missing))
    with started:
        yield started
