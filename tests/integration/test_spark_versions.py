"""What older PySparks lack: 4.0 a name for a stream's writer that takes Arrow batches, 3.5 data sources in Python.

The older version is simulated: names are removed from the installed one before anything of the sink is imported. `make
compat` runs the real ones.
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
import pyspark.sql.datasource as api
del api.DataSourceStreamArrowWriter
from pyspark.sql.types import StructType
from pyspark_pykafka_sink import DefaultSource
options = {"kafka.bootstrap.servers": sys.argv[1], "topic": "rows", "sink.id": "s", "queryname": "q"}
source, schema = DefaultSource(options), StructType().add("value", "string")
for writer in (source.writer(schema, False), source.streamWriter(schema, False)):
    print(type(writer).__name__, isinstance(writer, api.DataSourceArrowWriter))
print(isinstance(writer, api.DataSourceStreamWriter))
"""
# `sys.argv[1:]` are the modules to import.
_AS_IN_3_5 = """
import importlib, sys
import pyspark.sql
pyspark.__version__ = "3.5.8"
sys.modules["pyspark.sql.datasource"] = None
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, error.name, error)
import kafka_sink
try:
    kafka_sink.register(None)
except Exception as error:
    print("register", error.name, error)
"""
_WITHOUT_ARROW_WRITERS = """
import pyspark, pyspark.sql.datasource as api
pyspark.__version__ = "3.5.2-vendor"
del api.DataSourceArrowWriter
import pyspark_pykafka_sink
from pyspark.sql.types import StructType
source = pyspark_pykafka_sink.DefaultSource({"topic": "rows"})
for make in (source.writer, source.streamWriter):
    try:
        make(StructType(), False)
    except Exception as error:
        print(error.name, str(error).splitlines()[0])
"""
# What the format consists of. Everything else has to work where there are no data sources in Python.
OF_THE_FORMAT = {"datasource", "writers"}
WAY_OUT = (
    'format("pykafka-sink") needs PySpark 4.0 or newer, this is {version}; '
    "kafka_sink.foreach_batch(options) and kafka_sink.write(frame, options) work from PySpark 3.4 on "
    "(docs/guides/second-door.md)"
)
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


def test_in_pyspark_4_0_both_writers_are_what_its_workers_give_arrow_batches_to() -> None:
    with EmbeddedBroker(1, topics={"rows": 1}) as broker:
        writers = printed(_AS_IN_4_0, broker.bootstrap_servers)
    assert writers == ["BatchWriter True", "StreamWriter True", "True"]


@pytest.mark.parametrize("name", ["kafka_sink.spark.datasource", "pyspark_pykafka_sink"])
def test_with_pyspark_3_5_importing_or_registering_the_format_names_the_way_out(name: str) -> None:
    way_out = f"PKS-1103 {WAY_OUT.format(version='3.5.8')}"
    assert printed(_AS_IN_3_5, name) == [f"{name} {way_out}", f"register {way_out}"]


def test_with_data_sources_that_take_no_arrow_batches_spark_can_look_up_formats_and_writes_name_the_way_out() -> None:
    """Some platforms brought the data sources of 4.0 to 3.5. A failing import would hide all others there."""
    way_out = f"PKS-1103 PKS-1103 PySpark is too old for the format: {WAY_OUT.format(version='3.5.2-vendor')}"
    assert printed(_WITHOUT_ARROW_WRITERS) == [way_out] * 2


def test_nothing_but_the_format_needs_data_sources_in_python() -> None:
    modules = {each.stem for each in (ROOT / "kafka_sink" / "spark").glob("*.py")}
    assert modules > OF_THE_FORMAT
    (line,) = printed(_AS_IN_3_5, *(f"kafka_sink.spark.{each}" for each in sorted(modules - OF_THE_FORMAT)))
    assert line.startswith("register ")


def test_a_python_without_the_dependencies_is_named_with_the_variable_to_set() -> None:
    text = printed(_WITHOUT_DEPENDENCIES)[0]
    assert text.startswith("ConfigError PKS-1104 ")
    assert f"Spark runs {sys.executable}, where pykafka-sink cannot be loaded: " in text
    assert "PYSPARK_PYTHON" in text


def test_the_look_up_of_data_sources_costs_no_heavy_import() -> None:
    pytest.importorskip("pyspark")
    assert printed(_LOOKED_UP) == ["[]"]
