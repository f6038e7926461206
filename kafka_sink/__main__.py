"""`pykafka-sink`, also as `python -m kafka_sink`: one command, its report, an exit code.

An error is one line on standard error, and with --json an object on standard output as well. Its text comes from its
origin and contains no secret; a traceback is shown only for a bug of this program.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import closing, suppress

from kafka_sink.errors import CommitLost, CommitPending, ConfigError, KafkaSinkError, OperationTimeout, TransportError
from kafka_sink.operate.cli.arguments import parse_arguments
from kafka_sink.operate.cli.report import OPEN, REFUSED, UNREACHABLE, USAGE, Declined, Report
from kafka_sink.operate.cli.streams import OutputFailed, ReaderGone, prepare_streams, print_error, print_text

# A shell's exit codes for processes ended by a signal: SIGINT, SIGPIPE.
INTERRUPTED, UNREAD = 130, 141
_LOGGER = logging.getLogger("kafka_sink")


def main(words: Sequence[str] | None = None) -> int:
    prepare_streams()
    try:
        given = parse_arguments(words)  # imports the command, which takes a moment
        _show_log(is_wanted=given.verbose)
        try:
            report = _report(given)
        except (KafkaSinkError, Declined) as error:
            report = _report_error(error)
        _show(report, is_json=given.json)
    except OutputFailed as error:
        print_error(f"pykafka-sink: {error}")
        return REFUSED
    except ReaderGone:
        return UNREAD
    except KeyboardInterrupt:
        print_error("pykafka-sink: interrupted; whatever had been begun may be repeated")
        return INTERRUPTED
    return report.exit_code


def _report_error(error: KafkaSinkError | Declined) -> Report:
    text = "; ".join(line.removeprefix("- ") for line in str(error).splitlines())
    name = error.name if isinstance(error, KafkaSinkError) else None
    print_error(f"pykafka-sink: {text}{f' [{name}]' if name else ''}")
    return Report(_exit_code(error), {"error": type(error).__name__, "name": name, "text": text})


def _show(report: Report, *, is_json: bool) -> None:
    """The exit code is that of the command even if the output is not read."""
    with suppress(ReaderGone):
        if is_json and (report.content or report.objects is not None):
            content = {**report.content, "exit_code": report.exit_code}
            shown = content if report.objects is None else report.objects
            print_text(json.dumps(shown, indent=2))
        elif report.lines:
            print_text("\n".join(report.lines))


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


def _show_log(*, is_wanted: bool) -> None:
    """Without a handler Python would print warnings among the command's output. Only this package logs everything:
    botocore's log has the answer of STS, with its keys."""
    if is_wanted:
        logging.basicConfig()
        _LOGGER.setLevel(logging.DEBUG)
    else:
        _LOGGER.addHandler(logging.NullHandler())


if __name__ == "__main__":
    sys.exit(main())
