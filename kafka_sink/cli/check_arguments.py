"""What can be typed behind `pykafka-sink check`. Loaded with the parser: what it runs is imported when it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from kafka_sink.cli.shared_arguments import add_options, add_output
from kafka_sink.options.presets import PRESETS

_ABOUT = """\
Will a job with these options work here? Say so before it runs, in two seconds: brokers and login, topic, permissions,
transactions and their time limits, ledger, schema registry, versions, clocks.

Each line is asked of the real brokers. Nothing is written, unless --probe-write is given: then one record in a
transaction that is aborted.

  ✓  is as it should be; advice behind it would make it better
  !  works today, and will cost you a night
  ✗  will not work
"""

_EPILOG = """\
exit codes:
  0  all is well
  1  there are warnings
  2  something will not work, or an option is wrong

--json prints a list of objects with name, verdict (ok, warn or fail), text and advice.

examples:
  pykafka-sink check --bootstrap-server localhost:9092 --topic events --sink-id orders
  pykafka-sink check --properties job.properties --topic events --columns 'key STRING, value STRING' --probe-write
  pykafka-sink check --preset msk-serverless --explain
"""


def add_check(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], pair: Callable[[str], tuple[str, str]]
) -> None:
    command = commands.add_parser(
        "check", help="will a job with these options work here?", description=_ABOUT, epilog=_EPILOG,
        allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_options(command, pair, "NAME=VALUE", "those of the producer with the prefix kafka. or without")
    command.add_argument("--topic", help="the option topic of the job")
    names = command.add_mutually_exclusive_group()
    names.add_argument("--sink-id", metavar="ID", help="the option sink.id of the job")
    names.add_argument("--checkpoint", metavar="LOCATION", help="the option checkpointLocation of a stream")
    command.add_argument("--preset", choices=list(PRESETS), help="the service that the brokers belong to")
    command.add_argument("--explain", action="store_true", help="say what --preset sets, needs and cannot do")
    command.add_argument(
        "--columns", metavar="SCHEMA",
        help="of the DataFrame: df.schema.json(), or DDL as in 'key STRING, value STRING', or a file of either",
    )  # fmt: skip
    command.add_argument(
        "--timeout", type=_seconds, default=2.0, metavar="SECONDS", help="for all of it (default %(default)s)"
    )
    command.add_argument("--probe-write", action="store_true", help="write a record in a transaction, and abort it")
    add_output(command, "print a list of JSON objects")
    command.set_defaults(run=_run, place=_desk)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 600:
        raise argparse.ArgumentTypeError("a number of seconds from 0.1 to 600 is needed")
    return seconds


def _desk(given: argparse.Namespace) -> Any:
    from kafka_sink.cli.check import CheckDesk

    return CheckDesk(given)


def _run(desk: Any, given: argparse.Namespace) -> Any:
    from kafka_sink.cli.check import run

    return run(desk, given)
