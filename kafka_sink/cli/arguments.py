"""What can be typed behind `pykafka-sink`, and the texts of --help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from kafka_sink.cli import explain, read_commands, set_aside, topic, write_commands
from kafka_sink.cli.check_arguments import add_check
from kafka_sink.cli.completion import SCRIPTS, completion, nowhere
from kafka_sink.cli.perf import LoadTest, perf
from kafka_sink.cli.report import Report
from kafka_sink.cli.schema_arguments import add_schema
from kafka_sink.cli.shared_arguments import add_options, add_output
from kafka_sink.cli.sink_client import SinkClient
from kafka_sink.cli.watch import watch
from kafka_sink.options.sink_table import SINK_OPTIONS
from kafka_sink.version import VERSION

DEFAULT_TIMEOUT_S = 60
INTERVAL_S = 2

_ABOUT = """\
Look at, and put in order, what the Spark sink format("pykafka-sink") has decided; see beforehand whether a job will
work (check), or how fast it writes (perf).

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
  pykafka-sink check --bootstrap-server localhost:9092 --topic events
  pykafka-sink ledger --bootstrap-server localhost:9092
  pykafka-sink recover --bootstrap-server localhost:9092 --checkpoint hdfs://nn/checkpoints/orders
  pykafka-sink resolve --replay --properties client.properties --sink-id orders
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --json

`pykafka-sink COMMAND --help` explains each command. Words are completed by Tab after
`source <(pykafka-sink completion bash)`; zsh and fish have their own.
"""

_PERF_CODES = """\
exit codes:
  0  all records are acknowledged
  2  wrong usage: an option, a file
  3  no broker could be reached in time
  4  the brokers refused (credentials, permissions), or records were not delivered
"""

_LEDGER = """\
Show the newest decision of each sink, and of each named batch write. It only reads; running queries are not disturbed.

  delivered  every row is visible to read_committed readers, once
  open       decided, not known to be finished. Normal for a moment while a query runs; if no query runs: recover
  lost       decided, but transactions had ended otherwise: rows are missing. Choose with resolve
  accepted   was lost; an operator went on without the missing rows
  replay     was lost; an operator has the query run the batch again

The age is by this machine's clock and by the clock of the driver that wrote the record.

examples:
  pykafka-sink ledger --bootstrap-server localhost:9092
  pykafka-sink ledger --bootstrap-server localhost:9092 --checkpoint /data/checkpoints/orders --json
  pykafka-sink ledger --properties client.properties --sink-id orders
"""

_WATCH = """\
Watch a sink: its newest batches, rows per second, how old the last batch is, open transactions, and for each partition
how far the stable offset is behind the end: read_committed readers see nothing of what lies between. It only reads.

A terminal is drawn anew at each look (by rich, if pykafka-sink[watch] is installed). Into a file or a pipe goes one
line per look; with --json one object per line. Ctrl-C ends it.

examples:
  pykafka-sink watch --bootstrap-server localhost:9092 --sink-id orders
  pykafka-sink watch --bootstrap-server localhost:9092 --sink-id orders --interval 60 >> orders.log
"""

_RECOVER = """\
Finish an open decision without starting the query: commit the transactions that the ledger names, and record it.
Repeating it is harmless. It takes the driver's place, so stop the query first: one that runs fails at its next commit
(nothing is lost, nothing doubled, it may be restarted).

The transactions wait for at most their transaction.timeout.ms. If it has passed, the batch is lost, the exit code is 1,
and `resolve` is next.

What is open is shown first. On a terminal you are asked; --yes does not ask, and a script is never asked, because what
is decided has to be finished.

examples:
  pykafka-sink recover --bootstrap-server localhost:9092 --checkpoint hdfs://nn/checkpoints/orders
  pykafka-sink recover --bootstrap-server localhost:9092 --sink-id orders --yes
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

examples:
  pykafka-sink resolve --replay --properties client.properties --sink-id orders
  pykafka-sink resolve --accept --bootstrap-server localhost:9092 --sink-id nightly --batch 2026-11-21 --yes
  pykafka-sink resolve --set-aside --bootstrap-server localhost:9092 --sink-id orders
"""

_TRANSACTIONS = """\
Show the open transactions of tasks: a read_committed reader of their partitions waits until they end. While a query
runs its tasks have some. "decided" says that the ledger names the transaction: its rows are to become visible, so
nobody may abort it (recover commits it).

  --abort   commit what is decided, then abort all others of the sink. It takes the driver's place: stop the query
            first. Without it they end by themselves after their transaction.timeout.ms

examples:
  pykafka-sink transactions --bootstrap-server localhost:9092
  pykafka-sink transactions --bootstrap-server localhost:9092 --sink-id orders --abort
"""

_PERF = """\
Write records to a topic as fast as possible, or at a pace, and print rates and latencies: the options and lines of
Kafka's kafka-producer-perf-test, for this producer. Options of the producer go into --option or a file.

Records are handed over as Arrow batches, as Spark hands them to the sink; all records of a batch have the latency of
the last one that is acknowledged.

examples:
  pykafka-sink perf --bootstrap-server localhost:9092 --topic load --num-records 1000000 --record-size 100
  pykafka-sink perf --bootstrap-server localhost:9092 --topic load --num-records 60000 --record-size 1000 \\
      --throughput 1000 --option kafka.compression.type=lz4 --print-metrics
"""

_REPLAY = """\
Write dead letters again: each becomes the record that it was made of, with its key, value, headers and timestamp, in
the topic --to. The letters stay where they are.

A letter is written exactly once by a replay, whatever crashes: how far it has come is kept in the ledger, in the same
transaction as the records. The same words typed again go on where the last run ended, and write what has come since. A
replay is known by --from, --to and --filter together, or by --name; another name begins from the first letter.

Left out, and counted: letters that are too large to have kept their value, those that hold JSON of a row that did not
fit its schema, and records that are no letters. What is going to be written is shown before you are asked.

The principal needs Read on --from, Write on --to and on the ledger topic, and Write on the transactional id, which is
the name of the replay (replay-... unless --name says otherwise).

examples:
  pykafka-sink replay --bootstrap-server localhost:9092 --from orders-dead --to orders --dry-run
  pykafka-sink replay --bootstrap-server localhost:9092 --from orders-dead --to orders \\
      --filter 'reason=too large' --option kafka.max.request.size=8388608 --yes
"""

_REPLAY_CODES = """\
exit codes:
  0  every letter was looked at, and written if it was chosen
  1  you were asked, and said no: nothing was written
  2  wrong usage: an option, a file, or a topic that does not exist; or a letter that cannot be sent
  3  no broker could be reached in time; what is committed stays, the same command goes on from there
  4  the brokers refused (credentials, permissions), or another run of this replay has taken over
"""

_COMPLETION = """\
Print a script that completes commands, options and their values at Tab.

examples:
  pykafka-sink completion bash
  pykafka-sink completion zsh
  pykafka-sink completion fish

  source <(pykafka-sink completion bash)                                    # in ~/.bashrc
  source <(pykafka-sink completion zsh)                                     # in ~/.zshrc, after compinit
  pykafka-sink completion fish | source                                     # in ~/.config/fish/config.fish
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
    ledger.add_argument("--follow", action="store_true", help="look again and again, until Ctrl-C")
    _refreshing(ledger)
    ledger.set_defaults(run=read_commands.ledger)

    watched = _asking(commands, "watch", "see what a sink does, look by look", _WATCH)
    _sink(watched, is_required=True)
    _refreshing(watched)
    watched.add_argument(
        "--metrics-url", metavar="URL",
        help="the address that metrics.prometheus.port opens on the driver; tells how long commits take",
    )  # fmt: skip
    watched.set_defaults(run=watch)

    recover = _asking(commands, "recover", "finish an open decision", _RECOVER)
    _sink(recover, is_required=True)
    recover.add_argument("--yes", action="store_true", help="do not ask")
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

    _replay(commands)
    _perf(commands)
    add_check(commands, _property)
    topic.add_topic(_command(commands, "topic", topic.TITLE, topic.ABOUT), _property, _count)
    add_schema(commands, _property)
    _explain(commands)
    _completion(commands)
    return top


def _replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _asking(commands, "replay", "write dead letters again, once", _REPLAY, codes=_REPLAY_CODES)
    command.set_defaults(place=_replay_desk, run=_run_replay)
    command.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic of dead letters")
    command.add_argument("--to", dest="target", required=True, metavar="TOPIC", help="where the records go")
    command.add_argument(
        "--filter", type=_property, action="append", default=[], metavar="NAME=VALUE",
        help="only letters that say so in their header pykafka-sink.NAME: reason, topic, partition, row, query.id, "
        "batch.id, spark.partition. May be repeated: one of the values of a name, for every name",
    )  # fmt: skip
    command.add_argument("--name", metavar="NAME", help="of the replay, which is also its transactional id")
    command.add_argument(
        "--batch-size", type=_count, default=10_000, metavar="N",
        help="so many records in a transaction at most (default %(default)s)",
    )  # fmt: skip
    command.add_argument("--dry-run", action="store_true", help="read and count the letters, write nothing")
    command.add_argument("--yes", action="store_true", help="do not ask")


def _replay_desk(given: argparse.Namespace) -> Any:
    from kafka_sink.cli.replay import ReplayDesk  # most commands need no producer

    return ReplayDesk(given)


def _run_replay(desk: Any, given: argparse.Namespace) -> Report:
    from kafka_sink.cli.replay import replay

    return replay(desk, given)


def _completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "completion", help="print a script for the shell's Tab key", description=_COMPLETION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.add_argument("shell", choices=tuple(SCRIPTS), help="which shell")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(place=nowhere, run=completion, parser=parser, verbose=False)


def _explain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "explain", help="explain an error by its name", description=explain.ABOUT, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.add_argument("name", nargs="?", metavar="PKS-NNNN", help="the name at the beginning of the error")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(place=nullcontext, run=explain.explain, verbose=False)


def _perf(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(commands, "perf", "see how fast this producer writes", _PERF, codes=_PERF_CODES)
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
    if not getattr(given, "follow", True) and (given.count or given.interval != INTERVAL_S):
        reader.error("--interval and --count go with ledger --follow")
    if getattr(given, "set_aside", False):
        if given.batch is not None:
            reader.error("resolve --set-aside is about a record that names no batch: choose with --key")
        given.run = set_aside.set_aside
    elif getattr(given, "key", None) is not None:
        reader.error("--key is for resolve --set-aside; a lost batch is chosen with --batch")
    return given


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    title: str,
    about: str,
    *,
    codes: str = _CODES,
) -> argparse.ArgumentParser:
    """`about` has examples in it: lines that can be typed."""
    command = commands.add_parser(
        name, help=title, description=about, epilog=codes, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_options(
        command, _option, "kafka.NAME=VALUE", "without the prefix kafka., as for --command-config of Kafka's tools"
    )
    add_output(command, "print one JSON object")
    return command


def _asking(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    title: str,
    about: str,
    *,
    codes: str = _CODES,
) -> argparse.ArgumentParser:
    """A command about decisions of sinks."""
    command = _command(commands, name, title, about, codes=codes)
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


def _refreshing(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--interval",
        type=_seconds,
        default=INTERVAL_S,
        metavar="SECONDS",
        help="between two looks (default %(default)s)",
    )
    command.add_argument("--count", type=_count_or_none, default=0, metavar="N", help="end after N looks (0: never)")


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
