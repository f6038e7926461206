"""A headless Chromium for tests, controlled over two pipes with its own protocol: only the browser is needed.

    with Browser() as browser:
        browser.open("http://127.0.0.1:8000/index.html")
        browser.evaluate("document.title")

`problems` collects the errors on a page's console, uncaught exceptions, and files that could not be loaded.

playwright with the same Chromium takes twice the CPU for a first page (1.8 s, and 0.9 here) and 161 MB of packages,
with a browser's protocol that is tested with its own Chromium only.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 60.0
# Without these switches the browser does background work on this machine and sends requests to other hosts.
_SWITCHES = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    # One tab needs one process for its pages, and no spare process.
    "--process-per-site",
    "--disable-features=SpareRendererForSitePerProcess,BackForwardCache",
)

# In the browser the ends of the pipes must be the descriptors 3 and 4. Both are first copied to higher numbers, so that
# neither overwrites the other. A shell could do this, but dash supports only single-digit descriptors.
_START = """
import fcntl, os, sys
copies = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
os.dup2(copies[0], 3)
os.dup2(copies[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class BrowserUnavailable(Exception):
    """No browser is installed; the text says what to do."""


def browser_program() -> str:
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            return found
    raise BrowserUnavailable("no Chromium here: apt install chromium")


class Browser:
    """One tab. Each call waits for the browser's answer."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._program = browser_program()
        self._profile = Path(tempfile.mkdtemp(prefix="pykafka-sink-browser-"))
        self._number = 0
        self._unread = b""
        self._session = ""
        self._is_loaded = False

    def __enter__(self) -> Browser:
        from_us, self._to_browser = os.pipe()
        self._from_browser, to_us = os.pipe()
        switches = [*_SWITCHES, f"--user-data-dir={self._profile}", "about:blank"]
        if os.geteuid() == 0:
            switches.insert(0, "--no-sandbox")  # as root it refuses to start with a sandbox
        command = [sys.executable, "-S", "-c", _START, str(from_us), str(to_us), self._program, *switches]
        self._process = subprocess.Popen(
            command, pass_fds=(from_us, to_us), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(from_us)
        os.close(to_us)
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        tab = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def __exit__(self, *_: object) -> None:
        os.close(self._to_browser)  # the browser ends when its pipe is closed
        os.close(self._from_browser)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)

    def size(self, width: int, height: int, *, is_phone: bool = False) -> None:
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )

    def prefer(self, scheme: str) -> None:
        """Sets the colour scheme of the system: `light` or `dark`."""
        self._ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        self._is_loaded = False
        answer = self._ask("Page.navigate", url=url)
        if answer.get("errorText"):
            raise RuntimeError(f"{url}: {answer['errorText']}")
        self._wait(lambda: self._is_loaded, url)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; if it is a promise, the value that it resolves to."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Waits until the expression is true, and returns its value."""
        until = time.monotonic() + PATIENCE_S
        while True:
            found = self.evaluate(expression)
            if found:
                return found
            if time.monotonic() > until:
                raise TimeoutError(expression)
            time.sleep(0.05)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    # ---- the protocol: objects of JSON, each ended by a zero byte ----

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []

        def is_answered() -> bool:
            return bool(answers)

        self._wait(is_answered, method, lambda one: answers.append(one) if one.get("id") == number else None)
        if "error" in answers[0]:
            raise RuntimeError(f"{method}: {answers[0]['error']}")
        result: dict[str, Any] = answers[0]["result"]
        return result

    def _wait(
        self, is_over: Callable[[], bool], what: str, look: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_over():
            ready, _, _ = select.select([self._from_browser], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise TimeoutError(f"the browser did not answer within {PATIENCE_S} s: {what}")
            data = os.read(self._from_browser, 1 << 20)
            if not data:
                raise RuntimeError(f"the browser has ended: {what}")
            *whole, self._unread = (self._unread + data).split(b"\0")
            for each in whole:
                message = json.loads(each)
                self._on_event(message)
                look(message)

    def _on_event(self, message: dict[str, Any]) -> None:
        kind, body = message.get("method"), message.get("params", {})
        if kind == "Page.loadEventFired":
            self._is_loaded = True
        elif kind == "Runtime.exceptionThrown":
            self.problems.append(str(body["exceptionDetails"].get("exception", body["exceptionDetails"])))
        elif kind == "Runtime.consoleAPICalled" and body["type"] == "error":
            self.problems.append(" ".join(str(one.get("value", one)) for one in body["args"]))
        elif kind == "Log.entryAdded" and body["entry"]["level"] == "error":
            self.problems.append(f"{body['entry']['text']} {body['entry'].get('url', '')}")
        elif kind == "Network.requestWillBeSent" and not _is_local(body["request"]["url"]):
            self.problems.append(f"asks for {body['request']['url']}")


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "data:", "blob:", "about:", "file:"))
