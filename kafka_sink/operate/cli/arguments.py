"""The command line of `pykafka-sink`: only parsing, no behaviour.

A command has the function that runs it, and its session (a client of the cluster, for example), as `module:name`. They
are imported when the command is run, so that `explain` does not load what `perf` needs.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

from kafka_sink.operate.cli import texts
from kafka_sink.operate.cli.completion import SCRIPTS
from kafka_sink.options.format_names import ENCODED
from kafka_sink.options.presets import PRESETS
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from kafka_sink.version import VERSION

DEFAULT_TIMEOUT_S = 60
INTERVAL_S = 2
# Of `status`: between two looks of --serve, and from when something is a finding.
LOOK_INTERVAL_S, OPEN_AFTER_S, SILENT_AFTER_S = 15, 60, 86_400
# The largest numbers that fields of the protocol hold.
INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
# Records per second of `perf`; a slower one would sleep for days.
RATE_MIN = 0.001
_FILE = (
    "a properties file (Java's grammar, UTF-8) with options of the job, those of the producer with or without the "
    "prefix kafka., as for --command-config of Kafka's tools"
)
_WHOLE = re.compile(r"[0-9]{1,19}")


def _whole_number(lowest: int, highest: int, what: str = "a whole number") -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"{what} from {lowest} to {highest} is needed")
        return int(text)

    return parse


_parse_seconds = _whole_number(1, 86_400, "a whole number of seconds")
_parse_count, _parse_large_count = _whole_number(1, INT32_MAX), _whole_number(1, INT64_MAX)
_parse_silence, _parse_port = _whole_number(0, 31_536_000, "a whole number of seconds"), _whole_number(0, 65_535)
_parse_count_or_zero, _parse_replicas = _whole_number(0, INT64_MAX), _whole_number(1, INT16_MAX)

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="pykafka-sink", description=texts.ABOUT, epilog=f"{texts.CODES}\n{texts.EXAMPLES}", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"pykafka-sink {VERSION}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        *(_add_status, _add_readers, _add_ledger, _add_watch, _add_recover, _add_resolve, _add_transactions),
        _add_replay,
        *(_add_perf, _add_check, _add_topic, _add_schema, _add_explain, _add_completion),
    ):
        add(commands)
    return top


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Replaces `run` and `session` by the callables that they name."""
    reader = parser()
    given = reader.parse_args(words)
    if getattr(given, "abort", False):
        if given.transactional_id is None and given.sink_id is None and given.checkpoint is None:
            reader.error("transactions --abort needs --sink-id, --checkpoint or --transactional-id")
        given.run = "kafka_sink.operate.cli.write_commands:abort_transactions"
        if given.transactional_id is not None:
            given.run = "kafka_sink.operate.cli.foreign:end_transaction"
    elif hasattr(given, "abort") and given.transactional_id is not None:
        reader.error("--transactional-id goes with transactions --abort")
    if hasattr(given, "run_of_one"):
        _choose_watch(reader, given)
    if getattr(given, "all", False):
        given.run = "kafka_sink.operate.cli.recover_all:recover_all"
    if not getattr(given, "follow", True) and (given.count or given.interval != INTERVAL_S):
        reader.error("--interval and --count go with ledger --follow")
    if getattr(given, "serve", 0) is None and (given.count or given.interval != LOOK_INTERVAL_S):
        reader.error("--interval and --count go with status --serve")
    if getattr(given, "set_aside", False):
        if given.batch is not None:
            reader.error("resolve --set-aside is about a record that names no batch: choose with --key")
        given.run = "kafka_sink.operate.cli.write_commands:set_aside"
    elif getattr(given, "key", None) is not None:
        reader.error("--key is for resolve --set-aside; a lost batch is chosen with --batch")
    given.run = _import_callable(given.run)
    given.session = None if given.session is None else _import_callable(given.session)
    return given


def _choose_watch(reader: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Of the whole cluster, unless a sink is named."""
    if given.sink_id is not None or given.checkpoint is not None:
        if len(given.ledger_topics) > 1:
            reader.error("a sink has one --ledger-topic")
        given.ledger_topic = next(iter(given.ledger_topics), None)
        given.run, given.session = given.run_of_one, "kafka_sink.operate.cli.sink_client:SinkClient"
    elif given.metrics_url is not None:
        reader.error("--metrics-url goes with --sink-id or --checkpoint")


def _import_callable(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


# ---- commands about decisions of sinks -------------------------------------------------------------------------------


def _add_status(commands: Commands) -> None:
    command = _add_command(
        commands, "status", "is anything wrong with the sinks of a cluster", texts.STATUS, codes=texts.STATUS_CODES,
        run="kafka_sink.operate.cli.status:status", session="kafka_sink.operate.cli.status:StatusSession",
    )  # fmt: skip
    _add_broker_options(command)
    _add_output_options(command)
    _add_timeout_option(command)
    _add_ledger_topics(command)
    _add_limit_options(command)
    served = command.add_argument_group("figures for Prometheus")
    served.add_argument(
        "--serve", type=_parse_port, metavar="PORT", help="look repeatedly, and serve the figures (0: any free port)"
    )
    served.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default %(default)s)")
    _add_refresh_options(served, LOOK_INTERVAL_S)


def _add_readers(commands: Commands) -> None:
    command = _add_command(
        commands, "readers", "what read_committed readers of a topic see, and wait for", texts.READERS,
        codes=texts.STATUS_CODES, run="kafka_sink.operate.cli.readers:readers",
        session="kafka_sink.operate.cli.readers:ReadersSession",
    )  # fmt: skip
    _add_broker_options(command)
    _add_output_options(command)
    _add_timeout_option(command)
    command.add_argument("--topic", required=True, help="name of the topic")
    command.add_argument("--group", metavar="GROUP", help="a consumer group: its committed offsets are shown, too")
    command.set_defaults(ledger_topics=[])


def _add_ledger(commands: Commands) -> None:
    command = _add_cluster_command(
        commands, "ledger", "show the decisions of one sink or all sinks", texts.LEDGER,
        run="kafka_sink.operate.cli.read_commands:ledger",
    )  # fmt: skip
    _add_sink_options(command, is_required=False)
    command.add_argument("--follow", action="store_true", help="refresh repeatedly, until Ctrl-C")
    _add_refresh_options(command)


def _add_watch(commands: Commands) -> None:
    command = _add_command(
        commands, "watch", "watch all sinks of a cluster, or one", texts.WATCH,
        run="kafka_sink.operate.cli.watch_cluster:watch_cluster",
        session="kafka_sink.operate.cli.status:StatusSession",
    )  # fmt: skip
    _add_broker_options(command)
    _add_output_options(command)
    _add_timeout_option(command)
    _add_ledger_topics(command)
    _add_sink_options(command, is_required=False)
    _add_limit_options(command)
    _add_refresh_options(command)
    command.add_argument(
        "--metrics-url", metavar="URL",
        help="with one sink: the address that metrics.prometheus.port opens on the driver; shows how long commits take",
    )  # fmt: skip
    command.set_defaults(run_of_one="kafka_sink.operate.cli.watch:watch")


def _add_recover(commands: Commands) -> None:
    command = _add_cluster_command(
        commands,
        "recover",
        "finish an open decision",
        texts.RECOVER,
        run="kafka_sink.operate.cli.write_commands:recover",
    )
    names = _add_sink_options(command, is_required=True)
    names.add_argument(
        "--all", action="store_true", help="all open decisions, in the default ledger and in --ledger-topic"
    )
    _add_yes_option(command)


def _add_resolve(commands: Commands) -> None:
    command = _add_cluster_command(
        commands, "resolve", "choose what to do with a lost batch", texts.RESOLVE,
        run="kafka_sink.operate.cli.write_commands:resolve",
    )  # fmt: skip
    _add_sink_options(command, is_required=True)
    choice = command.add_mutually_exclusive_group(required=True)
    choice.add_argument("--replay", action="store_true", help="run the batch again")
    choice.add_argument("--accept", action="store_true", help="continue without the missing rows")
    choice.add_argument("--set-aside", action="store_true", help="give up a record that cannot be read")
    command.add_argument("--key", metavar="KEY", help="the key, if several records of the sink cannot be read")
    command.add_argument("--batch", metavar="BATCH_ID", help="the batch, if several batch writes of the sink are lost")
    _add_yes_option(command)


def _add_transactions(commands: Commands) -> None:
    command = _add_cluster_command(
        commands, "transactions", "show open transactions, abort abandoned ones", texts.TRANSACTIONS,
        run="kafka_sink.operate.cli.read_commands:transactions",
    )  # fmt: skip
    names = _add_sink_options(command, is_required=False)
    names.add_argument("--transactional-id", metavar="ID", help="with --abort: one of another application")
    command.add_argument("--abort", action="store_true", help="abort those without a decision (needs a sink)")
    _add_yes_option(command, "do not ask before aborting")


def _add_replay(commands: Commands) -> None:
    command = _add_cluster_command(
        commands, "replay", "write dead letters again, once", texts.REPLAY, codes=texts.REPLAY_CODES,
        run="kafka_sink.operate.cli.replay:replay", session="kafka_sink.operate.cli.replay:ReplaySession",
    )  # fmt: skip
    command.add_argument("--from", dest="source", required=True, metavar="TOPIC", help="the topic of dead letters")
    command.add_argument("--to", dest="target", required=True, metavar="TOPIC", help="the topic for the records")
    command.add_argument(
        "--filter", type=_parse_property, action="append", default=[], metavar="NAME=VALUE",
        help="only letters with this value in their header pykafka-sink.NAME: reason, topic, partition, row, query.id, "
        "batch.id, spark.partition. Repeat for more values of a name, or for more names (all must match)",
    )  # fmt: skip
    command.add_argument("--name", metavar="NAME", help="name of the replay, which is also its transactional id")
    command.add_argument(
        "--batch-size", type=_parse_count, default=10_000, metavar="N",
        help="maximum number of records in a transaction (default %(default)s)",
    )  # fmt: skip
    command.add_argument("--dry-run", action="store_true", help="read and count the letters; write nothing")
    _add_yes_option(command)


# ---- the other commands ----------------------------------------------------------------------------------------------


def _add_perf(commands: Commands) -> None:
    command = _add_command(
        commands, "perf", "measure how fast this producer writes", texts.PERF, codes=texts.PERF_CODES,
        run="kafka_sink.operate.cli.perf:perf",
    )  # fmt: skip
    _add_broker_options(command)
    _add_output_options(command)
    load = command.add_argument_group("load")
    load.add_argument("--topic", required=True, help="the topic to write to; use a topic created for this test")
    load.add_argument("--num-records", type=_parse_large_count, required=True, metavar="N", help="including warm-up")
    payload = load.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=_parse_count, metavar="BYTES", help="values of this many random letters")
    payload.add_argument("--payload-file", metavar="FILE", help="values drawn from the lines of a file")
    payload.add_argument("--payload-monotonic", action="store_true", help="values 1, 2, 3 and so on, as text")
    load.add_argument(
        "--payload-delimiter", default="\\n", metavar="TEXT", help="what separates records in the file (default \\n)"
    )
    load.add_argument(
        "--throughput", type=_parse_rate, default=-1, metavar="N",
        help="maximum number of records per second (default: no limit)",
    )  # fmt: skip
    load.add_argument(
        "--warmup-records", type=_parse_count_or_zero, default=0, metavar="N", help="do not count the first N records",
    )  # fmt: skip
    load.add_argument(
        "--reporting-interval", type=_parse_count, default=5_000, metavar="MS",
        help="interval between two lines (default %(default)s)",
    )  # fmt: skip
    load.add_argument(
        "--command-property", "--producer-props", dest="properties_given", type=_parse_property, nargs="+",
        action="extend", default=[], metavar="NAME=VALUE",
        help="producer options as in Kafka's tool",
    )  # fmt: skip
    load.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    load.add_argument("--transactional-id", metavar="ID", help="write in transactions")
    load.add_argument(
        "--transaction-duration-ms", type=_parse_count, default=3_000, metavar="MS",
        help="how long each transaction stays open (default %(default)s)",
    )  # fmt: skip


def _add_check(commands: Commands) -> None:
    command = _add_command(
        commands, "check", "check whether a job will work with these options", texts.CHECK, codes=texts.CHECK_CODES,
        run="kafka_sink.operate.cli.check:run",
    )  # fmt: skip
    _add_broker_options(command)
    command.add_argument("--topic", help="the option topic of the job")
    _add_sink_options(command, is_required=False, whose="job", of_stream="a stream")
    command.add_argument("--preset", choices=list(PRESETS), help="the service that the brokers belong to")
    command.add_argument("--explain", action="store_true", help="show what --preset sets, needs and does not support")
    command.add_argument(
        "--columns", metavar="SCHEMA",
        help="schema of the DataFrame: df.schema.json(), DDL such as 'key STRING, value STRING', or a file of one",
    )  # fmt: skip
    command.add_argument(
        "--timeout", type=_parse_any_seconds, default=2.0, metavar="SECONDS", help="in total (default %(default)s)"
    )
    command.add_argument("--probe-write", action="store_true", help="write a record in a transaction and abort it")
    command.add_argument(
        "--batch-minutes", type=_parse_minutes, metavar="MINUTES",
        help="how long the longest batch takes: a micro-batch, or a whole batch write; for the time limits",
    )  # fmt: skip
    _add_output_options(command, "print a list of JSON objects")


def _add_topic(commands: Commands) -> None:
    command = _add_command(
        commands, "topic", "show a topic, or create it", texts.TOPIC, run="kafka_sink.operate.cli.topic:topic"
    )
    _add_broker_options(command)
    _add_output_options(command)
    command.add_argument("--topic", required=True, help="name of the topic")
    command.add_argument(
        "--records", type=_parse_count, default=0, metavar="N",
        help="also show the newest N records of each partition that read_committed readers see",
    )  # fmt: skip
    command.add_argument("--create", action="store_true", help="create the topic if it is missing")
    command.add_argument("--partitions", type=_parse_count, default=-1, metavar="N", help="default: the brokers'")
    command.add_argument(
        "--replication-factor", type=_parse_replicas, default=-1, metavar="N", help="default: the brokers'"
    )
    command.add_argument(
        "--config", type=_parse_property, action="append", default=[], metavar="NAME=VALUE",
        help="topic configuration; may be repeated",
    )  # fmt: skip
    _add_yes_option(command)


def _add_schema(commands: Commands) -> None:
    top = commands.add_parser("schema", help="show the schema of columns, or check columns against a schema")
    kinds = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, title, about, run in (
        ("show", "print the schema of columns", texts.SCHEMA_SHOW, "kafka_sink.operate.cli.schema:show"),
        ("check", "check whether columns fit a schema", texts.SCHEMA_CHECK, "kafka_sink.operate.cli.schema:check"),
    ):
        command = _add_command(kinds, name, title, about, codes=texts.SCHEMA_CODES, run=run)
        command.add_argument(
            "--columns", required=True, metavar="SCHEMA",
            help="df.schema.json(), DDL such as 'id BIGINT, name STRING', or a file of one",
        )  # fmt: skip
        command.add_argument("--column", metavar="NAME", help="use only this column, as a key or value by itself")
        command.add_argument("--format", choices=sorted(ENCODED), help="short for --option value.format=...")
        command.add_argument("--record-name", metavar="NAME", help="short for --option value.record.name=...")
        command.add_argument("--side", choices=("value", "key"), default="value", help="default: %(default)s")
        command.add_argument("--topic", help="the topic from which the subject is derived")
        command.add_argument(
            "--option", type=_parse_property, action="append", default=[], metavar="NAME=VALUE",
            help="an option as in the Spark job; may be repeated. Put secrets into --properties",
        )  # fmt: skip
        command.add_argument("--properties", metavar="FILE", help=_FILE)
        _add_output_options(command)


def _add_explain(commands: Commands) -> None:
    command = _add_command(
        commands, "explain", "explain an error by its name", texts.EXPLAIN, codes=None,
        run="kafka_sink.operate.cli.explain:explain",
    )  # fmt: skip
    command.add_argument("name", nargs="?", metavar="PKS-NNNN", help="the name at the beginning of the error")
    _add_output_options(command, has_log=False)


def _add_completion(commands: Commands) -> None:
    command = _add_command(
        commands, "completion", "print a script for the shell's Tab key", texts.COMPLETION, codes=None,
        run="kafka_sink.operate.cli.completion:completion",
    )  # fmt: skip
    command.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")
    _add_output_options(command, has_log=False)
    command.set_defaults(parser=parser)


# ---- shared by several commands --------------------------------------------------------------------------------------


def _add_command(
    commands: Commands, name: str, title: str, about: str, *, codes: str | None = texts.CODES,
    run: str, session: str | None = None,
) -> argparse.ArgumentParser:  # fmt: skip
    """`about` contains examples: lines that can be typed."""
    command = commands.add_parser(
        name, help=title, description=about, epilog=codes, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    command.set_defaults(run=run, session=session)
    return command


def _add_cluster_command(
    commands: Commands, name: str, title: str, about: str, *, codes: str = texts.CODES, run: str,
    session: str = "kafka_sink.operate.cli.sink_client:SinkClient",
) -> argparse.ArgumentParser:  # fmt: skip
    command = _add_command(commands, name, title, about, codes=codes, run=run, session=session)
    _add_broker_options(command)
    _add_output_options(command)
    _add_timeout_option(command)
    command.add_argument(
        "--ledger-topic", metavar="TOPIC",
        help=f"the option ledger.topic of the query (default: that of --properties, else {DEFAULT_LEDGER})",
    )  # fmt: skip
    return command


def _add_ledger_topics(command: argparse.ArgumentParser) -> None:
    """Of a command about a whole cluster."""
    command.add_argument(
        "--ledger-topic", dest="ledger_topics", action="append", default=[], metavar="TOPIC",
        help="a ledger topic that is not found by itself; may be repeated",
    )  # fmt: skip


def _add_timeout_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--timeout", type=_parse_seconds, default=DEFAULT_TIMEOUT_S, metavar="SECONDS",
        help="how long to retry (default %(default)s)",
    )  # fmt: skip


def _parse_property(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError("NAME=VALUE is needed")
    return name, value


def _add_broker_options(command: argparse.ArgumentParser) -> None:
    brokers = command.add_argument_group("brokers")
    brokers.add_argument(
        "--bootstrap-server", "--bootstrap-servers", dest="bootstrap_servers", metavar="HOST:PORT[,...]",
        help="brokers for the first connection; short for --option kafka.bootstrap.servers=...",
    )  # fmt: skip
    brokers.add_argument(
        "--option", type=_parse_property, action="append", default=[], metavar="NAME=VALUE",
        help="an option as in the Spark job; may be repeated. Other users can see it in the process list: put secrets "
        "into --properties",
    )  # fmt: skip
    brokers.add_argument("--properties", "--producer.config", "--command-config", metavar="FILE", help=_FILE)


def _add_output_options(
    command: argparse.ArgumentParser, of_json: str = "print one JSON object", *, has_log: bool = True
) -> None:
    command.add_argument("--json", action="store_true", help=of_json)
    command.set_defaults(verbose=False)
    if has_log:
        command.add_argument("-v", "--verbose", action="store_true", help="write a log to standard error")


def _add_yes_option(command: argparse.ArgumentParser, text: str = "do not ask") -> None:
    command.add_argument("--yes", action="store_true", help=text)


def _add_sink_options(
    command: argparse.ArgumentParser, *, is_required: bool, whose: str = "query",
    of_stream: str = "a stream that has no sink.id",
) -> argparse._MutuallyExclusiveGroup:  # fmt: skip
    names = command.add_mutually_exclusive_group(required=is_required)
    names.add_argument("--sink-id", metavar="ID", help=f"the option sink.id of the {whose}")
    names.add_argument("--checkpoint", metavar="LOCATION", help=f"the option checkpointLocation of {of_stream}")
    return names


def _add_limit_options(command: argparse.ArgumentParser) -> None:
    """From when something is a finding."""
    command.add_argument(
        "--open-after", type=_parse_seconds, default=OPEN_AFTER_S, metavar="SECONDS",
        help="how long a decision may be open (default %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--silent-after", type=_parse_silence, default=SILENT_AFTER_S, metavar="SECONDS",
        help="how long a stream may deliver nothing; 0: for ever (default %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--retired", action="append", default=[], metavar="SINK", help="a sink that may be silent; may be repeated"
    )


def _add_refresh_options(command: argparse._ActionsContainer, interval_s: int = INTERVAL_S) -> None:
    command.add_argument(
        "--interval", type=_parse_seconds, default=interval_s, metavar="SECONDS",
        help="time between two refreshes (default %(default)s)",
    )  # fmt: skip
    command.add_argument(
        "--count", type=_parse_count_or_zero, default=0, metavar="N", help="end after N refreshes (0: never)"
    )


def _parse_rate(text: str) -> float:
    """0 and negative numbers, as Kafka's tool takes them, are no limit."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate) or 0 < rate < RATE_MIN:
        raise argparse.ArgumentTypeError(f"a number from {RATE_MIN} is needed; -1 for no limit")
    return rate


def _parse_minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes <= 10_080:
        raise argparse.ArgumentTypeError("a number of minutes above 0 is needed, of a week at most")
    return minutes


def _parse_any_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 600:
        raise argparse.ArgumentTypeError("a number of seconds from 0.1 to 600 is needed")
    return seconds
