"""The jars of Spark's own Kafka sink, `format("kafka")`. Tests compare our sink with it record by record.

PySpark contains Spark's jars but not this one; `spark.jars` takes the list of `java_sink_jars()`. Maven has no release
of the sink for PySpark 4.3 yet. The previous one works there, for batches and streams: the data source interfaces that
it uses did not change. Each jar is fetched without its dependencies, because the token provider that the sink depends
on is not published either, and all other dependencies are among PySpark's jars.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.kafka_jars import Artifact, fetch_jars

SINK_VERSION = "4.2.0"

_WANTED = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", SINK_VERSION, alone=True),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1", alone=True),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
)


# to_avro and from_avro: the newest release. Its dependency (org.apache.avro) is among PySpark's jars.
AVRO_VERSION = "4.1.1"
_AVRO = Artifact("org.apache.spark", "spark-avro_2.13", AVRO_VERSION, alone=True)


def java_sink_jars() -> list[Path]:
    """Paths of the jars. The first call downloads them; KafkaUnavailable says why it cannot."""
    return fetch_jars(f"spark-sql-kafka-{SINK_VERSION}", _WANTED)


# Delta Lake has no release for PySpark 4.2 or newer yet; the tests of its change data feed run in the PySpark that it
# is built for (tools.compat has an environment of it).
DELTA_VERSION, DELTA_PYSPARK = "4.2.0", "4.1.4"
_DELTA = Artifact("io.delta", "delta-spark_4.1_2.13", DELTA_VERSION)


def avro_jars() -> list[Path]:
    return fetch_jars(f"spark-avro-{AVRO_VERSION}", [_AVRO])


def delta_jars() -> list[Path]:
    """Without those that PySpark has itself, in other versions."""
    return [jar for jar in fetch_jars(f"delta-{DELTA_VERSION}", [_DELTA]) if jar.name.startswith(("delta", "unity"))]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{jar}\n" for jar in java_sink_jars()))
