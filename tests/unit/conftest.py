"""Unit tests touch nothing outside themselves: sockets, threads, processes, sleeping and clocks raise an error."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from typing import Any, NoReturn

import pytest

BLOCKED = (
    (socket, "socket"),
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
        monkeypatch.setattr(owner, name, _refusal(f"{owner.__name__}.{name}"))


def _refusal(name: str) -> Any:
    def refuse(*arguments: object, **named: object) -> NoReturn:
        raise AssertionError(f"a unit test must not use {name}: pass the time in, or move the test to integration")

    return refuse
