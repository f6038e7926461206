"""What words of a command line come to: defaults, limits of numbers, and which function runs with which session."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest

from kafka_sink.commit.command_texts import PROPERTIES, CommandTexts
from kafka_sink.errors import ConfigError
from kafka_sink.operate.cli.arguments import parse_arguments, parser
from kafka_sink.operate.cli.brokers import chosen_ledger, given_brokers, producer_options
from kafka_sink.operate.cli.completion import command_words
from kafka_sink.operate.cli.status import StatusSession

SINK = ("--sink-id", "s")
PERF = ("perf", "--topic", "t", "--num-records", "1", "--record-size", "1")
RUN = "kafka_sink.operate.cli."
SINK_CLIENT, STATUS_SESSION = f"{RUN}sink_client:SinkClient", f"{RUN}status:StatusSession"


def path(found: object) -> str | None:
    return None if found is None else f"{found.__module__}:{found.__qualname__}"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "run", "session"),
    [
        (("status",), "status:status", STATUS_SESSION),
        (("readers", "--topic", "t"), "readers:readers", f"{RUN}readers:ReadersSession"),
        (("ledger",), "read_commands:ledger", SINK_CLIENT),
        (("watch",), "watch_cluster:watch_cluster", STATUS_SESSION),
        (("watch", *SINK), "watch:watch", SINK_CLIENT),
        (("watch", "--checkpoint", "/c"), "watch:watch", SINK_CLIENT),
        (("recover", *SINK), "write_commands:recover", SINK_CLIENT),
        (("recover", "--all"), "recover_all:recover_all", SINK_CLIENT),
        (("resolve", *SINK, "--replay"), "write_commands:resolve", SINK_CLIENT),
        (("resolve", *SINK, "--accept", "--batch", "a"), "write_commands:resolve", SINK_CLIENT),
        (("resolve", *SINK, "--set-aside", "--key", "k"), "write_commands:set_aside", SINK_CLIENT),
        (("transactions",), "read_commands:transactions", SINK_CLIENT),
        (("transactions", *SINK, "--abort"), "write_commands:abort_transactions", SINK_CLIENT),
        (("transactions", "--checkpoint", "/c", "--abort"), "write_commands:abort_transactions", SINK_CLIENT),
        (("transactions", "--abort", "--transactional-id", "x"), "foreign:end_transaction", SINK_CLIENT),
        (("replay", "--from", "a", "--to", "b"), "replay:replay", f"{RUN}replay:ReplaySession"),
        (PERF, "perf:perf", None),
        (("check",), "check:run", None),
        (("topic", "--topic", "t"), "topic:topic", None),
        (("schema", "show", "--columns", "a INT"), "schema:show", None),
        (("schema", "check", "--columns", "a INT"), "schema:check", None),
        (("explain",), "explain:explain", None),
        (("completion", "bash"), "completion:completion", None),
    ],
)
def test_words_choose_the_function_and_its_session(words: tuple[str, ...], run: str, session: str | None) -> None:
    given = parse_arguments(words)
    assert (path(given.run), path(given.session)) == (f"{RUN}{run}", session)


@pytest.mark.parametrize(
    "words",
    [
        ("transactions", "--abort"),
        ("transactions", "--transactional-id", "x"),
        ("transactions", "--transactional-id", "x", *SINK),
        ("watch", "--metrics-url", "http://h"),
        ("watch", *SINK, "--ledger-topic", "l", "--ledger-topic", "m"),
        ("ledger", "--count", "1"),
        ("ledger", "--interval", "3"),
        ("status", "--count", "1"),
        ("status", "--interval", "3"),
        ("resolve", *SINK, "--set-aside", "--batch", "7"),
        ("resolve", *SINK, "--accept", "--key", "k"),
        ("recover",),
        ("recover", *SINK, "--all"),
        ("recover", *SINK, "--checkpoint", "/c"),
        ("resolve", *SINK),
        ("resolve", "--accept"),
        ("resolve", *SINK, "--accept", "--set-aside"),
        ("perf", "--topic", "t", "--num-records", "1"),
        (*PERF, "--payload-monotonic"),
        ("readers",),
        ("replay", "--from", "a"),
        ("replay", "--to", "a"),
        ("topic",),
        ("schema", "show"),
        ("schema",),
        ("completion", "csh"),
        ("check", "--preset", "nobody"),
        ("ledger", "--followed"),
        ("ledger", "--follo"),
    ],
)
def test_words_that_do_not_go_together_are_wrong_usage(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(words)
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("usage: pykafka-sink")


@pytest.mark.parametrize(
    ("words", "option", "lowest", "highest"),
    [
        (("ledger",), "--timeout", 1, 86_400),
        (("ledger", "--follow"), "--interval", 1, 86_400),
        (("ledger", "--follow"), "--count", 0, 2**63 - 1),
        (("status",), "--open-after", 1, 86_400),
        (("status",), "--silent-after", 0, 31_536_000),
        (("status",), "--serve", 0, 65_535),
        (("status", "--serve", "1"), "--interval", 1, 86_400),
        (("replay", "--from", "a", "--to", "b"), "--batch-size", 1, 2**31 - 1),
        (PERF, "--num-records", 1, 2**63 - 1),
        (PERF, "--record-size", 1, 2**31 - 1),
        (PERF, "--warmup-records", 0, 2**63 - 1),
        (PERF, "--reporting-interval", 1, 2**31 - 1),
        (PERF, "--transaction-duration-ms", 1, 2**31 - 1),
        (("topic", "--topic", "t"), "--records", 1, 2**31 - 1),
        (("topic", "--topic", "t"), "--partitions", 1, 2**31 - 1),
        (("topic", "--topic", "t"), "--replication-factor", 1, 2**15 - 1),
    ],
)
def test_a_number_has_its_limits(
    words: tuple[str, ...], option: str, lowest: int, highest: int, capsys: pytest.CaptureFixture[str]
) -> None:
    name = option[2:].replace("-", "_")
    for number in (lowest, highest):
        assert getattr(parse_arguments((*words, option, str(number))), name) == number
    for wrong in (lowest - 1, highest + 1):
        with pytest.raises(SystemExit):
            parse_arguments((*words, f"{option}={wrong}"))
        assert f"from {lowest} to {highest} is needed" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["", "1.5", "+1", "1e3", "\u0661", " 1", "1" * 20])
def test_a_whole_number_is_digits_alone(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(("ledger", f"--timeout={wrong}"))
    assert "a whole number of seconds from 1 to 86400 is needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option", "good", "bad"),
    [
        (PERF, "--throughput", {"-1": -1, "0": 0, "0.001": 0.001, "1e6": 1e6}, ("0.0009", "nan", "inf", "-inf", "x")),
        (("check",), "--timeout", {"0.1": 0.1, "600": 600, "2": 2}, ("0.09", "600.1", "nan", "x", "-1")),
        (("check",), "--batch-minutes", {"0.5": 0.5, "10080": 10_080}, ("0", "10080.1", "-1", "nan", "x")),
    ],
)
def test_a_number_with_a_point_has_its_limits(
    words: tuple[str, ...],
    option: str,
    good: dict[str, float],
    bad: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = option[2:].replace("-", "_")
    for text, number in good.items():
        assert getattr(parse_arguments((*words, f"{option}={text}")), name) == number
    for text in bad:
        with pytest.raises(SystemExit):
            parse_arguments((*words, f"{option}={text}"))
        assert "is needed" in capsys.readouterr().err


# By command; of options that several commands share, once.
DEFAULTS: dict[tuple[str, ...], dict[str, object]] = {
    ("status",): {
        "timeout": 60, "ledger_topics": [], "open_after": 60, "silent_after": 86_400, "retired": [], "serve": None,
        "host": "127.0.0.1", "interval": 15, "count": 0, "json": False, "verbose": False, "option": [],
        "bootstrap_servers": None, "properties": None,
    },
    ("readers", "--topic", "t"): {"timeout": 60, "ledger_topics": [], "topic": "t", "group": None},
    ("ledger",): {
        "timeout": 60, "ledger_topic": None, "follow": False, "interval": 2, "count": 0, "sink_id": None,
        "checkpoint": None,
    },
    ("watch",): {
        "interval": 2, "count": 0, "metrics_url": None, "open_after": 60, "silent_after": 86_400, "retired": [],
        "ledger_topics": [],
    },
    ("watch", "--ledger-topic", "l", "--ledger-topic", "m"): {"ledger_topics": ["l", "m"]},
    ("watch", *SINK, "--ledger-topic", "l"): {"ledger_topic": "l"},
    ("watch", *SINK): {"ledger_topic": None},
    ("recover", *SINK): {"yes": False, "all": False, "timeout": 60},
    ("resolve", *SINK, "--accept"): {"yes": False, "replay": False, "accept": True, "batch": None, "key": None},
    ("transactions",): {"yes": False, "abort": False, "transactional_id": None},
    ("replay", "--from", "a", "--to", "b"): {
        "source": "a", "target": "b", "filter": [], "name": None, "batch_size": 10_000, "dry_run": False, "yes": False,
    },
    PERF: {
        "warmup_records": 0, "throughput": -1, "reporting_interval": 5_000, "payload_delimiter": "\\n",
        "transaction_duration_ms": 3_000, "properties_given": [], "print_metrics": False, "transactional_id": None,
        "payload_file": None, "payload_monotonic": False, "json": False,
    },
    ("check",): {
        "timeout": 2.0, "topic": None, "preset": None, "explain": False, "columns": None, "probe_write": False,
        "batch_minutes": None, "json": False, "sink_id": None,
    },
    ("topic", "--topic", "t"): {
        "records": 0, "create": False, "partitions": -1, "replication_factor": -1, "config": [], "yes": False,
    },
    ("schema", "show", "--columns", "c"): {
        "column": None, "format": None, "record_name": None, "side": "value", "topic": None, "option": [],
        "properties": None,
    },
    ("explain",): {"name": None, "json": False, "verbose": False},
    ("completion", "zsh"): {"shell": "zsh", "json": False, "verbose": False, "parser": parser},
}  # fmt: skip


@pytest.mark.parametrize("words", DEFAULTS, ids=" ".join)
def test_what_is_not_given_has_its_default(words: tuple[str, ...]) -> None:
    given = vars(parse_arguments(words))
    assert {name: given[name] for name in DEFAULTS[words]} == DEFAULTS[words]


def test_words_of_kafkas_own_tools_mean_the_same() -> None:
    words = ("--bootstrap-servers", "h:1", "--command-config", "f", "--option", "a=b=c", "--option", "d=")
    given = parse_arguments(("ledger", *words))
    assert (given.bootstrap_servers, given.properties, given.option) == ("h:1", "f", [("a", "b=c"), ("d", "")])
    for name in ("--producer.config", "--properties"):
        assert parse_arguments(("ledger", name, "f")).properties == "f"
    perf = parse_arguments((*PERF, "--producer-props", "a=1", "b=2", "--command-property", "c=3"))
    assert perf.properties_given == [("a", "1"), ("b", "2"), ("c", "3")]
    status = parse_arguments(
        ("status", "--ledger-topic", "a", "--ledger-topic", "b", "--retired", "x", "--retired", "y")
    )
    assert (status.ledger_topics, status.retired) == (["a", "b"], ["x", "y"])
    again = parse_arguments(("replay", "--from", "a", "--to", "b", "--filter", "row=1", "--filter", "row=2"))
    assert again.filter == [("row", "1"), ("row", "2")]


def test_every_command_has_its_options_in_the_scripts_of_shells() -> None:
    named = {each.path: {name for option in each.options for name in option.option_strings}
             for each in command_words(parser())}  # fmt: skip
    brokers = {"--bootstrap-server", "--bootstrap-servers", "--option", "--properties", "--producer.config"}
    of_cluster = brokers | {"--command-config", "--timeout", "--ledger-topic", "--json", "-v", "--verbose"}
    for command in ("status", "ledger", "watch", "recover", "resolve", "transactions", "replay"):
        assert named[command,] >= of_cluster
    for command in ("readers", "perf", "check", "topic"):
        assert named[command,] >= brokers | {"--json", "--verbose"}
    assert named["explain",] == named["completion",] == {"-h", "--help", "--json"}


# ---- brokers ---------------------------------------------------------------------------------------------------------


def given(**more: object) -> argparse.Namespace:
    named = {"bootstrap_servers": None, "properties": None, "option": [], "ledger_topic": None, **more}
    return argparse.Namespace(**named)


SECRET = ("kafka.sasl.password", "hunter2")


def test_another_command_gets_the_same_brokers_and_no_secret() -> None:
    typed = given(bootstrap_servers="h:1", option=[("kafka.client.id", "a b"), SECRET, ("acks", "all")])
    found = given_brokers(typed)
    assert found.words == (
        "--bootstrap-server", "h:1", "--option", "kafka.client.id=a b", "--option", "kafka.acks=all", "--properties",
        PROPERTIES,
    )  # fmt: skip
    assert found.hint == f"{PROPERTIES} stands for a file with kafka.sasl.password"
    assert given_brokers(given(bootstrap_servers="h:1")).hint == ""
    assert given_brokers(given(option=[("kafka.bootstrap.servers", "h:1")])).words == (
        "--option", "kafka.bootstrap.servers=h:1",
    )  # fmt: skip


def test_a_secret_that_was_typed_belongs_into_the_file_that_there_is(tmp_path: object) -> None:
    file = f"{tmp_path}/job.properties"
    with open(file, "w", encoding="utf-8") as opened:
        opened.write("bootstrap.servers=h:1\nledger.topic=of-file\nclient.id=of-file\n")
    found = given_brokers(given(properties=file, option=[SECRET]))
    assert found.words == ("--properties", file)
    assert found.hint == f"Add kafka.sasl.password to {file}, or again as --option"
    assert chosen_ledger(given(properties=file)) == "of-file"
    assert chosen_ledger(given(properties=file, ledger_topic="named")) == "named"
    assert chosen_ledger(given()) == "__pykafka_sink_ledger"
    assert producer_options(given(properties=file)).bootstrap_servers == (("h", 1),)
    nearer = producer_options(given(properties=file, option=[("client.id", "typed")], bootstrap_servers="i:2"))
    assert (nearer.client_id, nearer.bootstrap_servers) == ("typed", (("i", 2),))
    own = producer_options(given(properties=file, option=[("client.id", "typed")]), {"client.id": "own"})
    assert own.client_id == "own"


def test_an_option_is_typed_once_and_brokers_are_needed() -> None:
    with pytest.raises(ConfigError, match="--option names the same option twice"):
        given_brokers(given(option=[("client.id", "a"), ("kafka.client.id", "b")]))
    with pytest.raises(ConfigError, match="add --bootstrap-server HOST:PORT"):
        producer_options(given(option=[("client.id", "a")]))
    named = given(bootstrap_servers="h:1", option=[("metadata.broker.list", "old:1")])
    assert producer_options(named).bootstrap_servers == (("h", 1),)


def test_kafkas_own_tool_gets_the_brokers_and_no_option_that_it_does_not_have(tmp_path: Path) -> None:
    job = tmp_path / "job.properties"
    job.write_text("kafka.bootstrap.servers=h:1,i:2\nkafka.client.id=a\n")
    servers = ("--bootstrap-server", "h:1,i:2")
    tool = [*servers, "abort", "--topic", "t", "--partition", "3", "--start-offset", "42"]

    def command(*words: str) -> tuple[list[str], str]:
        session = StatusSession(parse_arguments(["status", *words]))
        session.close()
        texts = CommandTexts(session.brokers)
        return shlex.split(texts.abort_hanging("t", 3, 42))[1:], texts.tool_hint

    assert command("--properties", str(job)) == (tool, "")
    assert command(*servers, "--option", "client.id=a") == (tool, "")
    for words in (["--properties", str(job)], list(servers)):
        found, hint = command(*words, "--option", "security.protocol=SSL")
        assert found == [*servers, "--command-config", PROPERTIES, *tool[2:]]
        assert "without the prefix kafka. and without ${...}" in hint
