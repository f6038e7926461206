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

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, DataType, IntegerType, MapType, StringType, TimestampType

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
OF_A_TASK = NOBODYS | PARSING | DECIDING | {"lz4", "kafka_sink.spark.planning"}
UNWANTED = {
    "planning": NOBODYS | COLUMNS | {"lz4"},
    "task": OF_A_TASK,
    "task with more columns": OF_A_TASK,
    "commit": NOBODYS | COLUMNS | PARSING | {"lz4", "kafka_sink.spark.planning"},
    "stream commit": NOBODYS | COLUMNS | {"lz4"},
}
# Modules of this package, including its folders, with some room: one more module need not fail a test, ten must.
OWN_MAX = {"planning": 141, "task": 136, "task with more columns": 136, "commit": 124, "stream commit": 143}
FOREIGN_MAX = dict.fromkeys(OWN_MAX, 15)

VALUES = [b"row %d" % number for number in range(10)]
# All but the topic: rows that name theirs are looked at with pyarrow.compute (spark/ledger_rows.py). Some cells are
# null, and one header has a name beyond ASCII.
TYPES: dict[str, DataType] = {
    "value": StringType(), "key": StringType(), "partition": IntegerType(), "timestamp": TimestampType(),
    "headers": MapType(StringType(), BinaryType()),
}  # fmt: skip
ROWS = pa.RecordBatch.from_arrays(
    [
        pa.array(VALUES),
        pa.array([None, *VALUES[1:]]),
        pa.array([0, None] * 5, pa.int32()),
        pa.array([1_700_000_000_000_000, None] * 5, pa.timestamp("us", "UTC")),
        pa.array([[("ä", b"x")], None] * 5, pa.map_(pa.string(), pa.binary())),
    ],
    list(TYPES),
)


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
        named = {**options, "sink.id": "imports", "batch.id": "export-1"}
        found["planning"], writer = play("planning", (named, {"value": StringType()}))
        # Batches are unpickled in the task as they come from Spark: with nothing that builds them.
        found["task"], written = play("task", (writer, ROWS.select(["value"])))
        found["commit"], row_count = play("commit", written)
        assert row_count == 10
        found["stream commit"], _ = play("stream commit", {**options, "sink.id": "a-stream", "queryname": "q"})
        _, writer = play("planning", ({**named, "batch.id": "export-2"}, TYPES))
        found["task with more columns"], (_, messages) = play("task", (writer, ROWS))
        assert [each[:3] for each in messages[0].receipt.written] == [("rows", 0, 10)]
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
