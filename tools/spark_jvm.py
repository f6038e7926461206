"""How the JVMs of Spark start in tests and demos: the first compiler tier only, and from a class archive.

Start-up counts here, throughput does not. A driver that runs one small query takes 12 s of CPU without an archive
(class data sharing) and 7 s with it; executors, workers and masters become faster, too. The archive is created once for
each Java and each folder of Spark's jars, before the tests (download.py), and kept beside Kafka's. Without it
everything works, but slower.

A JVM uses the archive if its class path begins like that of the JVM which wrote it. Spark puts its configuration folder
before its jars; `extraClassPath` with the jars puts them first.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.kafka_jars import KafkaUnavailable, cache_folder, cache_lock, java_command

# With one compiler the code cache has 48 MB by default. A session with many streams fills that in minutes, and then its
# JVM only interprets new code.
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:-UsePerfData"
_PATIENCE_S = 600


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def quick_settings(tmp: Path) -> dict[str, str]:
    """Settings for the driver and the executors of an application. Their temporary files go below `tmp`."""
    found = {}
    for process in ("driver", "executor"):
        found[f"spark.{process}.extraJavaOptions"] = quick_options(tmp)
        found[f"spark.{process}.extraClassPath"] = jars_first()
    return found


def quick_options(tmp: Path) -> str:
    options = f"{QUICK_JVM} -Djava.io.tmpdir={tmp}"
    try:
        archive = _archive_path()
    except KafkaUnavailable:  # there is no Java, which the start of a JVM will report
        return options
    # Otherwise a JVM prints warnings about an archive that does not fit into the output of a job. The star also covers
    # cds+dynamic.
    return f"{options} -XX:SharedArchiveFile={archive} -Xshare:auto -Xlog:cds*=off" if archive.exists() else options


def jars_first() -> str:
    """Written exactly like in Spark's launcher, which leaves out what is already in the class path."""
    return str(spark_home() / "jars" / "*")


def make_spark_archive() -> None:
    """Creates the archive if it does not exist: runs a small application, whose JVM writes the archive at its end."""
    final = _archive_path()
    final.parent.mkdir(parents=True, exist_ok=True)
    with cache_lock(final.parent.name), tempfile.TemporaryDirectory(prefix="pykafka-sink-") as folder:
        # A JVM rejects an archive if the times of the jars have changed.
        if final.exists() and final.stat().st_mtime > (spark_home() / "jars").stat().st_mtime:
            return
        written = Path(folder) / "classes.jsa"
        run = subprocess.run(
            [sys.executable, "-m", __name__, folder, f"-XX:ArchiveClassesAtExit={written}"],
            cwd=Path(__file__).parent.parent,
            env=_environment(Path(folder) / "conf"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE_S,
        )
        if run.returncode != 0:
            raise RuntimeError(f"no class archive of Spark:\n{run.stdout[-2000:]}")
        if written.exists():  # an older JVM cannot write one
            temporary = final.with_suffix(".new")
            temporary.write_bytes(written.read_bytes())
            temporary.rename(final)


def _environment(conf: Path) -> dict[str, str]:
    # A JVM writes no archive if a folder of its class path contains files.
    conf.mkdir()
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**ours, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def _archive_path() -> Path:
    places = f"{os.path.realpath(java_command())} {spark_home()}"
    return cache_folder() / "spark" / f"classes-{hashlib.sha256(places.encode()).hexdigest()[:12]}.jsa"


def _run_application(folder: Path, option: str) -> None:
    """Does what most tests begin with: rows and a function in Python, a SQL query, a stream into a Python sink."""
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
    from pyspark.sql.functions import udf

    class Nowhere(DataSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
            return NowhereWriter()

    class NowhereWriter(DataSourceStreamWriter):
        def write(self, iterator: Any) -> WriterCommitMessage:
            list(iterator)
            return WriterCommitMessage()

    # cds*=off: otherwise the JVM prints each class that it cannot put into the archive.
    options = f"{QUICK_JVM} -Djava.io.tmpdir={folder} {option} -Xlog:cds*=off"
    # Any: each call of a builder returns another type.
    builder: Any = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", options)
    for name, value in {
        "spark.driver.extraClassPath": jars_first(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{folder}/local",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = spark.createDataFrame([(number, str(number)) for number in range(10)], "number int, text string")
    rows.groupBy("text").count().select(udf(str.upper)("text")).collect()
    (folder / "source").mkdir()
    (folder / "source" / "lines").write_text("one\ntwo\n")
    spark.dataSource.register(Nowhere)
    stream = spark.readStream.text(f"{folder}/source").writeStream.format("Nowhere")
    stream = stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    stream.start().awaitTermination()
    server = spark.sparkContext._gateway.proc
    spark.stop()
    # The stream ends with its input; then the JVM ends and writes the archive.
    server.stdin.close()
    server.wait()


if __name__ == "__main__":
    _run_application(Path(sys.argv[1]), sys.argv[2])
