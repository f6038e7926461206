"""PySpark 4.0 has no Arrow writer for streams: batch writes work there, and a stream's error says what is needed.

The older version is simulated: the class is removed from the installed version before anything imports it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink.testing import EmbeddedBroker

ROOT = Path(__file__).parents[2]
_AS_IN_4_0 = """
import sys
import pyspark, pyspark.sql.datasource as api
del api.DataSourceStreamArrowWriter
pyspark.__version__ = "4.0.1"
from pyspark.sql.types import StructType
from pyspark_pykafka_sink import DefaultSource
source = DefaultSource({"kafka.bootstrap.servers": sys.argv[1], "topic": "rows"})
schema = StructType().add("value", "string")
print(type(source.writer(schema, False)).__name__)
try:
    source.streamWriter(schema, False)
except Exception as error:
    print(type(error).__name__, error)
"""
_WITHOUT_DEPENDENCIES = """
import sys
sys.modules["pyarrow"] = None
from pyspark_pykafka_sink import DefaultSource
from pyspark.sql.types import StructType
try:
    DefaultSource({"topic": "rows"}).writer(StructType().add("value", "string"), False)
except Exception as error:
    print(type(error).__name__, error)
"""
_LOOKED_UP = """
import sys
import pyspark_pykafka_sink
print(sorted(name for name in ("numpy", "pyarrow", "kafka_sink.producer.producer") if name in sys.modules))
"""


def printed(program: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_pyspark_4_0_writes_batches_and_says_what_a_stream_needs() -> None:
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        writer, refusal, *_ = printed(_AS_IN_4_0, broker.bootstrap_servers)
    assert writer == "BatchWriter"
    assert refusal.startswith("ConfigError PKS-1103 ")
    assert "streaming needs PySpark 4.1 or newer, this is 4.0.1; batch writes, also" in refusal


def test_a_python_without_the_dependencies_is_named_with_the_variable_to_set() -> None:
    text = printed(_WITHOUT_DEPENDENCIES)[0]
    assert text.startswith("ConfigError PKS-1104 ")
    assert f"Spark runs {sys.executable}, where pykafka-sink cannot be loaded: " in text
    assert "PYSPARK_PYTHON" in text


def test_the_look_up_of_data_sources_costs_no_heavy_import() -> None:
    pytest.importorskip("pyspark")
    assert printed(_LOOKED_UP) == ["[]"]
