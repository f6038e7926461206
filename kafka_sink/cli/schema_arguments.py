"""What can be typed behind `pykafka-sink schema`. Loaded with the parser: what it runs is imported when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from kafka_sink.options.format_names import ENCODED

_SHOW = """\
Print the schema that would be made of the columns and registered. No registry is asked.

examples:
  pykafka-sink schema show --format avro --record-name shop.Order --columns 'id BIGINT NOT NULL, name STRING'
  pykafka-sink schema show --format json-schema --columns orders.json --column address
"""

_CHECK = """\
Say whether columns fit the schema that they would be written by: the one that is given, or the one that the registry
has. Options are those of the Spark job. Nothing is registered; of a schema that is not, the text says whether it could
be.

examples:
  pykafka-sink schema check --format avro --topic orders --columns 'id BIGINT NOT NULL, name STRING' \\
      --option schema.registry.url=http://localhost:8081 --option use.latest.version=true
"""

_CODES = """\
exit codes:
  0  the columns fit
  1  they do not, or there is no schema for them: see the text
  2  wrong usage: an option, a file, or columns that cannot be read
  3  the registry could not be reached
  4  the registry refused (credentials, permissions)
"""


def add_schema(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], pair: Callable[[str], tuple[str, str]]
) -> None:
    top = commands.add_parser("schema", help="see which schema columns have, and whether they fit one")
    kinds = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, title, about in (("show", "print the schema of columns", _SHOW), ("check", "do columns fit?", _CHECK)):
        command = kinds.add_parser(
            name, help=title, description=about, epilog=_CODES, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        command.add_argument(
            "--columns", required=True, metavar="SCHEMA",
            help="df.schema.json(), or DDL as in 'id BIGINT, name STRING', or a file of either",
        )  # fmt: skip
        command.add_argument("--column", metavar="NAME", help="only this one of them, as a key or value by itself")
        command.add_argument("--format", choices=sorted(ENCODED), help="short for --option value.format=...")
        command.add_argument("--record-name", metavar="NAME", help="short for --option value.record.name=...")
        command.add_argument("--side", choices=("value", "key"), default="value", help="default: %(default)s")
        command.add_argument("--topic", help="the topic, of which the subject is made")
        command.add_argument(
            "--option", type=pair, action="append", default=[], metavar="NAME=VALUE",
            help="an option as in the Spark job; may be repeated. Secrets belong into --properties",
        )  # fmt: skip
        command.add_argument("--properties", metavar="FILE", help="such options in a Java properties file")
        command.add_argument("--json", action="store_true", help="print one JSON object")
        command.add_argument("-v", "--verbose", action="store_true", help="log what is done on standard error")
        command.set_defaults(run=_run(name), place=_desk)


def _desk(given: argparse.Namespace) -> Any:
    from kafka_sink.cli.schema import SchemaDesk

    return SchemaDesk(given)


def _run(name: str) -> Callable[[Any, argparse.Namespace], Any]:
    def run(desk: Any, given: argparse.Namespace) -> Any:
        from kafka_sink.cli import schema

        return (schema.show if name == "show" else schema.check)(desk, given)

    return run
