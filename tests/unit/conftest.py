"""Unit tests use nothing outside the test: sockets, threads, processes, sleeping and clocks raise an error."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from typing import Any

import pytest

BLOCKED = (
    (socket.socket, "__init__"),
    (socket, "create_connection"),
    (socket, "socketpair"),
    (socket, "getaddrinfo"),
    (threading.Thread, "start"),
    (subprocess, "Popen"),
    (os, "fork"),
    (time, "sleep"),
    (time, "time"),
    (time, "monotonic"),
)


@pytest.fixture(autouse=True)
def nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in BLOCKED:
        title = f"{owner.__module__}.{owner.__name__}" if name == "__init__" else f"{owner.__name__}.{name}"
        monkeypatch.setattr(owner, name, _refusal(title, getattr(owner, name)))


def _refusal(name: str, original: Any) -> Any:
    """Only the thread of the test is restricted. Other threads belong to services of the whole run, such as Spark."""
    test_thread = threading.current_thread()

    def refuse(*arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is not test_thread:
            return original(*arguments, **named)
        raise AssertionError(f"a unit test must not use {name}: pass the time in, or move the test to integration")

    return refuse
