"""What can be typed behind every command that asks brokers."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_options(
    command: argparse.ArgumentParser, option: Callable[[str], tuple[str, str]], metavar: str, names_in_file: str
) -> None:
    """`option` reads one NAME=VALUE; `names_in_file` says how names are written in a file."""
    brokers = command.add_argument_group("brokers")
    brokers.add_argument(
        "--bootstrap-server", "--bootstrap-servers", dest="bootstrap_servers", metavar="HOST:PORT[,...]",
        help="brokers to begin with; short for --option kafka.bootstrap.servers=...",
    )  # fmt: skip
    brokers.add_argument(
        "--option", type=option, action="append", default=[], metavar=metavar,
        help="an option as in the Spark job; may be repeated. Others can see it in the list of processes: secrets "
        "belong into --properties",
    )  # fmt: skip
    brokers.add_argument(
        "--properties", "--producer.config", "--command-config", metavar="FILE",
        help=f"options in a Java properties file, {names_in_file}",
    )  # fmt: skip


def add_output(command: argparse.ArgumentParser, json_help: str) -> None:
    command.add_argument("--json", action="store_true", help=json_help)
    command.add_argument("-v", "--verbose", action="store_true", help="log what is done on standard error")
