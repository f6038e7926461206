"""Which PySpark can have `format("pykafka-sink")`: one with data sources in Python that take Arrow batches. What can be
imported decides and not the version, because platforms bring newer parts to older versions."""

from __future__ import annotations

import pyspark

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import SPARK_TOO_OLD


def check_format_support() -> None:
    try:
        from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter  # noqa: F401
    except ImportError:
        raise ConfigError(
            f'format("pykafka-sink") needs PySpark 4.0 or newer, this is {pyspark.__version__}; '
            "kafka_sink.foreach_batch(options) and kafka_sink.write(frame, options) work from PySpark 3.4 on "
            "(docs/guides/second-door.md)",
            SPARK_TOO_OLD,
        ) from None
