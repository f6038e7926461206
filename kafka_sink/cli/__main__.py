"""`pykafka-sink`, also as `python -m kafka_sink.cli`: one command, its report, an exit code.

An error is one line on standard error, and with --json an object on standard output as well. Its texts come from where
it arose and hold no secret; a trace is shown for nothing but a bug of this program.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from kafka_sink.cli.arguments import parsed
from kafka_sink.cli.report import OPEN, REFUSED, UNREACHABLE, USAGE, Declined, Report
from kafka_sink.errors import (
    CommitLost,
    CommitPending,
    ConfigError,
    KafkaSinkError,
    OperationTimeout,
    TransportError,
)

INTERRUPTED = 130
_LOGGER = logging.getLogger("kafka_sink")


def main(words: Sequence[str] | None = None) -> int:
    given = parsed(words)
    _show_log(is_wanted=given.verbose)
    try:
        report = _report(given)
    except (KafkaSinkError, Declined) as error:
        exit_code, text = _exit_code(error), "; ".join(line.removeprefix("- ") for line in str(error).splitlines())
        name = error.name if isinstance(error, KafkaSinkError) else None
        sys.stderr.write(f"pykafka-sink: {text}{f' [{name}]' if name else ''}\n")
        if given.json:
            _print_json({"error": type(error).__name__, "name": name, "text": text}, exit_code)
        return exit_code
    except KeyboardInterrupt:
        sys.stderr.write("pykafka-sink: interrupted; whatever had been begun may be repeated\n")
        return INTERRUPTED
    if given.json and (report.content or report.objects is not None):
        _print_json(report.content, report.exit_code, report.objects)
    elif report.lines:
        sys.stdout.write("\n".join(report.lines) + "\n")
    return report.exit_code


def _report(given: argparse.Namespace) -> Report:
    if given.session is None:
        alone: Report = given.run(given)
        return alone
    with closing(given.session(given)) as session:
        report: Report = given.run(session, given)
        return report


def _exit_code(error: Exception) -> int:
    if isinstance(error, ConfigError):
        return USAGE
    if isinstance(error, (CommitLost, CommitPending, Declined)):
        return OPEN
    return UNREACHABLE if isinstance(error, (TransportError, OperationTimeout)) else REFUSED


def _print_json(content: dict[str, Any], exit_code: int, objects: list[dict[str, str]] | None = None) -> None:
    shown = {**content, "exit_code": exit_code} if objects is None else objects
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")


def _show_log(*, is_wanted: bool) -> None:
    """Without a handler Python would print warnings among what the command says."""
    if is_wanted:
        logging.basicConfig(level=logging.DEBUG)
    else:
        _LOGGER.addHandler(logging.NullHandler())


if __name__ == "__main__":
    sys.exit(main())
