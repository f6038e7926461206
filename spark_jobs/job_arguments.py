"""Arguments that the jobs in this folder share: `--to` and `--properties` for the sink, NAME=VALUE pairs, the columns.

Python finds this module in the folder of the script that spark-submit starts. If the cluster starts the script
(`--deploy-mode cluster`), add this file to `--py-files`.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession

from kafka_sink import ConfigError
from kafka_sink.options.host.properties_file import read_settings
from kafka_sink.options.parse_sink import add_prefix
from kafka_sink.spark import register

FORMAT = "pykafka-sink"


def register_format(spark: SparkSession) -> bool:
    """False: this PySpark has no formats in Python (before 4.0). The functions of the package write there."""
    try:
        register(spark)
    except ConfigError:
        return False
    return True


def parse_pair(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name.strip():
        raise argparse.ArgumentTypeError("NAME=VALUE is needed")  # the text may be a password
    return name.strip(), value


def read_properties(path: str) -> dict[str, str]:
    try:
        return read_settings("--properties", path)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_sink_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the sink")
    group.add_argument(
        "--select",
        action="append",
        default=[],
        metavar="EXPRESSION",
        help="a SQL expression with the name of a column of the sink: value, optionally key, topic, partition, "
        "headers, timestamp. Repeat it for each column. Without it, the source must have a column value, or "
        "--value-format says how its columns are written",
    )
    group.add_argument(
        "--value-format",
        choices=("avro", "protobuf", "json", "json-schema"),
        help="write the columns that are not key, topic, partition, headers or timestamp as one value in this format; "
        "short for --to value.format=...",
    )
    group.add_argument(
        "--schema-registry",
        metavar="URL",
        help="the registry of its schema; short for --to schema.registry.url=... Pass other options of the registry, "
        "such as auto.register.schemas=true, with --to (docs/schemas.md)",
    )
    group.add_argument(
        "--to",
        type=parse_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the sink, such as topic=events or kafka.bootstrap.servers=host:9092. Repeat it for each "
        "option. It overrides the same name in --properties",
    )
    group.add_argument(
        "--properties",
        type=read_properties,
        default={},
        metavar="FILE",
        help="a properties file (Java's grammar, UTF-8) with options of the sink; for those of the producer the prefix "
        "kafka. may be left out. Use it for passwords: everybody on the machine can read the command line. "
        "conf/producer.properties is an example",
    )


def add_source_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--option",
        type=parse_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the source. Repeat it for each option",
    )
    parser.add_argument("--schema", metavar="DDL", help="columns of the source, such as 'id BIGINT, name STRING'")
    parser.add_argument("--path", help="path of the source, if it reads files")


def sink_options(given: argparse.Namespace) -> dict[str, str]:
    short = {"value.format": given.value_format, "schema.registry.url": given.schema_registry}
    typed = {add_prefix(name): value for name, value in given.to}
    return {**given.properties, **{name: value for name, value in short.items() if value}, **typed}


def source_options(given: argparse.Namespace) -> dict[str, str]:
    return {**dict(given.option), **({"path": given.path} if given.path else {})}


def select_columns(frame: DataFrame, expressions: list[str]) -> DataFrame:
    return frame.selectExpr(*expressions) if expressions else frame
