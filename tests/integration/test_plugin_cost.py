"""The pytest plugin is loaded in every run wherever this package is installed, so it must not cost time there."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys, pytest
before = set(sys.modules)
import kafka_sink.testing.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""


def test_the_pytest_plugin_loads_nothing_before_a_fixture_is_used() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["kafka_sink", "kafka_sink.testing", "kafka_sink.testing.pytest_plugin"]
