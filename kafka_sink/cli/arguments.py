"""What can be typed behind `pykafka-sink`, and the texts of --help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from kafka_sink.cli import read_commands, set_aside, write_commands
from kafka_sink.cli.perf import LoadTest, perf
from kafka_sink.cli.schema_arguments import add_schema
from kafka_sink.cli.sink_client import SinkClient
from kafka_sink.options.sink_table import SINK_OPTIONS
from kafka_sink.version import VERSION

DEFAULT_TIMEOUT_S = 60

_ABOUT = """\
Look at, and put in order, what the Spark sink format("pykafka-sink") has decided; or see how fast it writes (perf).

Under exactly-once each batch is decided by one record in a ledger topic; then its transactions are committed, and a
second record closes the decision. A driver that dies in between leaves an open decision. The query finishes it when it
starts again, or `recover` does, as long as the transactions have not timed out. If they have, rows are missing and a
person has to choose: `resolve`.
"""

_CODES = """\
exit codes:
  0  nothing is open, or it was put in order
  1  something is open or lost, or the question was answered with no: see the text
  2  wrong usage: an option, a file, or a sink or ledger that does not exist
  3  no broker could be reached in time
  4  the brokers refused (credentials, permissions), could not do it, or told only a part
"""

_EXAMPLES = """\
examples:
  pykafka-sink ledger --bootstrap-server localhost:9092
  pykafka-sink recover --bootstrap-server localhost:9092 --checkpoint hdfs://nn/checkpoints/orders
  pykafka-sink resolve --replay --properties client.properties --sink-id orders
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --json

`pykafka-sink COMMAND --help` explains each command.
"""

_LEDGER = """\
Show the newest decision of each sink, and of each named batch write. It only reads; running queries are not disturbed.

  delivered  every row is visible to read_committed readers, once
  open       decided, not known to be finished. Normal for a moment while a query runs; if no query runs: recover
  lost       decided, but transactions had ended otherwise: rows are missing. Choose with resolve
  accepted   was lost; an operator went on without the missing rows
  replay     was lost; an operator has the query run the batch again

The age is by this machine's clock and by the clock of the driver that wrote the record.
"""

_RECOVER = """\
Finish an open decision without starting the query: commit the transactions that the ledger names, and record it.
Repeating it is harmless. It takes the driver's place, so stop the query first: one that runs fails at its next commit
(nothing is lost, nothing doubled, it may be restarted).

The transactions wait for at most their transaction.timeout.ms. If it has passed, the batch is lost, the exit code is 1,
and `resolve` is next.
"""

_RESOLVE = """\
Choose what becomes of a lost batch. The query stops at every start until you do; stop it first.

  --replay  the query runs the batch again at its next start. No row is missing; rows that are visible already appear
            twice
  --accept  the query goes on with the next batch. No row appears twice; the missing rows stay missing

A decision of another cluster, found in a ledger that was copied from there, is chosen about in the same way.

  --set-aside  for a record that cannot be read (`ledger` shows it): an empty one takes its place. What it said is not
               known then, so the sink counts as unknown; what that means is shown first

What is lost is shown before you are asked; --yes does not ask.
"""

_TRANSACTIONS = """\
Show the open transactions of tasks: a read_committed reader of their partitions waits until they end. While a query
runs its tasks have some. "decided" says that the ledger names the transaction: its rows are to become visible, so
nobody may abort it (recover commits it).

  --abort   commit what is decided, then abort all others of the sink. It takes the driver's place: stop the query
            first. Without it they end by themselves after their transaction.timeout.ms
"""


_PERF = """\
Write records to a topic as fast as possible, or at a pace, and print rates and latencies: the options and lines of
Kafka's kafka-producer-perf-test, for this producer. Options of the producer go into --option or a file.

Records are handed over as Arrow batches, as Spark hands them to the sink; all records of a batch have the latency of
the last one that is acknowledged.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="pykafka-sink", description=_ABOUT, epilog=f"{_CODES}\n{_EXAMPLES}", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"pykafka-sink {VERSION}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    ledger = _asking(commands, "ledger", "show the decisions of a sink, or of all", _LEDGER)
    _sink(ledger, is_required=False)
    ledger.set_defaults(run=read_commands.ledger)

    recover = _asking(commands, "recover", "finish an open decision", _RECOVER)
    _sink(recover, is_required=True)
    recover.set_defaults(run=write_commands.recover)

    resolve = _asking(commands, "resolve", "choose what becomes of a lost batch", _RESOLVE)
    _sink(resolve, is_required=True)
    choice = resolve.add_mutually_exclusive_group(required=True)
    choice.add_argument("--replay", action="store_true", help="have the batch run again")
    choice.add_argument("--accept", action="store_true", help="go on without the missing rows")
    choice.add_argument("--set-aside", action="store_true", help="give up a record that cannot be read")
    resolve.add_argument("--key", metavar="KEY", help="which one, if several records of the sink cannot be read")
    resolve.add_argument("--batch", metavar="BATCH_ID", help="which one, if several batch writes of the sink are lost")
    resolve.add_argument("--yes", action="store_true", help="do not ask")
    resolve.set_defaults(run=write_commands.resolve)

    transactions = _asking(commands, "transactions", "show open transactions, abort the dangling ones", _TRANSACTIONS)
    _sink(transactions, is_required=False)
    transactions.add_argument("--abort", action="store_true", help="abort those that no decision names (needs a sink)")
    transactions.add_argument("--yes", action="store_true", help="do not ask before aborting")
    transactions.set_defaults(run=read_commands.transactions)

    _perf(commands)
    add_schema(commands, _property)
    return top


def _perf(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(commands, "perf", "see how fast this producer writes", _PERF)
    command.set_defaults(place=LoadTest, run=perf)
    load = command.add_argument_group("load")
    load.add_argument("--topic", required=True, help="where to write; it should have been created for this")
    load.add_argument("--num-records", type=_count, required=True, metavar="N", help="how many, warm-up included")
    payload = load.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=_count, metavar="BYTES", help="values of so many random letters")
    payload.add_argument("--payload-file", metavar="FILE", help="values drawn from the lines of a file")
    payload.add_argument("--payload-monotonic", action="store_true", help="values 1, 2, 3 and so on, as text")
    load.add_argument(
        "--payload-delimiter", default="\\n", metavar="TEXT", help="what separates records in the file (default \\n)"
    )
    load.add_argument(
        "--throughput",
        type=float,
        default=-1,
        metavar="N",
        help="at most so many records per second (default: no limit)",
    )
    load.add_argument("--warmup-records", type=_count_or_none, default=0, metavar="N", help="the first N do not count")
    load.add_argument(
        "--reporting-interval",
        type=_count,
        default=5_000,
        metavar="MS",
        help="a line each so often (default %(default)s)",
    )
    load.add_argument(
        "--command-property", "--producer-props", dest="properties_given", type=_property, nargs="+", action="extend",
        default=[], metavar="NAME=VALUE", help="options of the producer as Kafka's tool takes them, without kafka.",
    )  # fmt: skip
    load.add_argument("--print-metrics", action="store_true", help="the producer's metrics in the end")
    load.add_argument("--transactional-id", metavar="ID", help="write in transactions")
    load.add_argument(
        "--transaction-duration-ms", type=_count, default=3_000, metavar="MS",
        help="how long each of them stays open (default %(default)s)",
    )  # fmt: skip


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    reader = parser()
    given = reader.parse_args(words)
    if getattr(given, "abort", False):
        if given.sink_id is None and given.checkpoint is None:
            reader.error("transactions --abort needs --sink-id or --checkpoint")
        given.run = write_commands.abort_transactions
    if getattr(given, "set_aside", False):
        if given.batch is not None:
            reader.error("resolve --set-aside is about a record that names no batch: choose with --key")
        given.run = set_aside.set_aside
    elif getattr(given, "key", None) is not None:
        reader.error("--key is for resolve --set-aside; a lost batch is chosen with --batch")
    return given


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, title: str, about: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name, help=title, description=about, epilog=_CODES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    brokers = command.add_argument_group("brokers")
    brokers.add_argument(
        "--bootstrap-server", "--bootstrap-servers", dest="bootstrap_servers", metavar="HOST:PORT[,...]",
        help="brokers to begin with; short for --option kafka.bootstrap.servers=...",
    )  # fmt: skip
    brokers.add_argument(
        "--option", type=_option, action="append", default=[], metavar="kafka.NAME=VALUE",
        help="an option as in the Spark job; may be repeated. Others can see it in the list of processes: secrets "
        "belong into --properties",
    )  # fmt: skip
    brokers.add_argument(
        "--properties", "--producer.config", "--command-config", metavar="FILE",
        help="options in a Java properties file, without the prefix kafka., as for --command-config of Kafka's tools",
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument("-v", "--verbose", action="store_true", help="log what is done on standard error")
    return command


def _asking(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, title: str, about: str
) -> argparse.ArgumentParser:
    """A command about decisions of sinks."""
    command = _command(commands, name, title, about)
    command.set_defaults(place=SinkClient)
    command.add_argument(
        "--timeout", type=_seconds, default=DEFAULT_TIMEOUT_S, metavar="SECONDS",
        help="how long to go on trying (default %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--ledger-topic", default=SINK_OPTIONS["ledger.topic"].default, metavar="TOPIC",
        help="the option ledger.topic of the query (default %(default)s)",
    )  # fmt: skip
    return command


def _sink(command: argparse.ArgumentParser, *, is_required: bool) -> None:
    names = command.add_mutually_exclusive_group(required=is_required)
    names.add_argument("--sink-id", metavar="ID", help="the option sink.id of the query")
    names.add_argument(
        "--checkpoint", metavar="LOCATION", help="the option checkpointLocation of a stream that has no sink.id"
    )


def _option(text: str) -> tuple[str, str]:
    name, value = _property(text)
    # Only the name is repeated: the value may be a secret.
    if not name.startswith("kafka."):
        raise argparse.ArgumentTypeError(f"{name!r} has no prefix kafka.: options of the producer are meant")
    return name.removeprefix("kafka."), value


def _property(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("NAME=VALUE is needed")
    return name, value


def _seconds(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 86_400:
        raise argparse.ArgumentTypeError("a whole number of seconds from 1 to 86400 is needed")
    return int(text)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("a whole number from 1 is needed")
    return int(text)


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else _count(text)
