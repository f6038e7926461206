"""Each of Spark's Python processes loads only the modules that its part of a write needs.

A write is planned, run and committed in separate processes, against the embedded broker, as Spark does it: the first
row waits for all modules that they have loaded in the end. Modules are counted, not milliseconds, so a new module that
delays all rows shows on any machine.

Assumption: Spark's own workers load at least what `role_probe` loads first. Modules that they load in addition count as
ours here, so these tests are too strict rather than too lax.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.testing import EmbeddedBroker

ROOT = Path(__file__).parent.parent.parent
# Not needed before the first row, with the options of this write.
NOBODYS = {
    "argparse", "difflib", "email.message", "http.client", "ssl", "urllib.request",  # of other packages
    "pyarrow.compute", "crc32c", "gssapi", "botocore", "pandas",
    "kafka_sink.kafka.auth.login", "kafka_sink.kafka.io.tls", "kafka_sink.kafka.auth.aws",
    "kafka_sink.kafka.auth.kerberos",
    "kafka_sink.security.passwords", "kafka_sink.security.scram", "kafka_sink.security.kerberos",
    "kafka_sink.security.aws_msk_iam", "kafka_sink.security.sigv4", "kafka_sink.security.jaas",
    "kafka_sink.options.sasl_rules", "kafka_sink.spark.unsendable", "kafka_sink.testing", "kafka_sink.formats.schemas",
    "kafka_sink.operate.checks", "kafka_sink.commit.admin.topics",
    "kafka_sink.options.parse_formats", "kafka_sink.spark.formats.side_planning", "kafka_sink.spark.encoding",
}  # fmt: skip
COLUMNS = {
    "numpy",
    "pyarrow",
    "kafka_sink.formats.records.columns",
    "kafka_sink.producer.producer",
    "kafka_sink.spark.task",
}
PARSING = {"kafka_sink.options.parse", "kafka_sink.options.table", "kafka_sink.options.foreign_table",
           "kafka_sink.options.security_table", "kafka_sink.options.sink_table", "kafka_sink.options.engine",
           "kafka_sink.options.option"}  # fmt: skip
DECIDING = {"kafka_sink.commit.admin.client", "kafka_sink.spark.driver", "kafka_sink.commit.committer"}
UNWANTED = {
    "planning": NOBODYS | COLUMNS | {"lz4"},
    "task": NOBODYS | PARSING | DECIDING | {"lz4", "kafka_sink.spark.planning"},
    "commit": NOBODYS | COLUMNS | PARSING | {"lz4", "kafka_sink.spark.planning"},
    "stream commit": NOBODYS | COLUMNS | {"lz4"},
}
# Modules of this package, including its folders, with some room: one more module need not fail a test, ten must.
OWN_MAX = {"planning": 131, "task": 134, "commit": 114, "stream commit": 132}
FOREIGN_MAX = {"planning": 15, "task": 15, "commit": 15, "stream commit": 15}


def play(role: str, given: Any) -> tuple[list[str], Any]:
    """The modules that it loaded, and what it hands over."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.role_probe", role], input=pickle.dumps(given), capture_output=True,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    report = json.loads(done.stdout)
    return report["loaded"], pickle.loads(bytes.fromhex(report["result"]))


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """The modules of each role, in one write and the first commit of a stream."""
    found: dict[str, list[str]] = {}
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "rows"}
        found["planning"], writer = play("planning", {**options, "sink.id": "imports", "batch.id": "export-1"})
        found["task"], written = play("task", writer)
        found["commit"], row_count = play("commit", written)
        assert row_count == 10
        found["stream commit"], _ = play("stream commit", {**options, "sink.id": "a-stream"})
    return found


@pytest.mark.parametrize("role", UNWANTED)
def test_a_role_loads_nothing_that_is_for_others_or_for_other_options(loaded: dict[str, list[str]], role: str) -> None:
    assert UNWANTED[role].intersection(loaded[role]) == set()


@pytest.mark.parametrize("role", OWN_MAX)
def test_no_more_modules_are_loaded_than_the_first_row_needs(loaded: dict[str, list[str]], role: str) -> None:
    own = [name for name in loaded[role] if name.startswith("kafka_sink")]
    foreign = [name for name in loaded[role] if not name.startswith(("kafka_sink", "pyspark", "numpy", "pyarrow"))]
    assert len(own) <= OWN_MAX[role], own
    assert len(foreign) <= FOREIGN_MAX[role], foreign


def test_the_checksum_comes_without_the_package_around_it_and_is_the_same() -> None:
    program = (
        "import sys; from kafka_sink.formats.records.checksum import crc32c as alone\n"
        "assert 'crc32c' not in sys.modules and 'argparse' not in sys.modules\n"
        "from crc32c import crc32c as whole\n"
        "assert alone(b'123456789') == whole(b'123456789') == 0xE3069283\n"
        "assert alone(b'789', alone(b'123456')) == 0xE3069283"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
