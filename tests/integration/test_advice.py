"""The commands that errors, other commands and the operations page tell people to run: each is pasted, and works."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.commit.command_texts import CommandTexts, broker_arguments
from kafka_sink.errors.table import ENTRIES
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from kafka_sink.options.sink_table import SINK_OPTIONS
from kafka_sink.testing import EmbeddedBroker
from tests.integration.advising import (
    BATCH,
    CASES,
    ENTRIES_OF,
    OF_PAGE,
    QUOTED,
    Case,
    Done,
    command_in,
    enter,
    paste,
    pending,
)
from tests.support.commanding import Sink
from tools.kafka_cluster import KafkaCluster

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operations.md"
MAKERS = {name for name, kind in vars(CommandTexts).items() if inspect.isfunction(kind) and not name.startswith("_")}
WRITTEN = re.compile(
    r"pykafka-sink (?:recover|resolve|ledger|transactions|watch|replay|explain|check|topic|schema)\b[^`]*"
)
SPOKEN = re.compile(r"`(\w+)`")
MAIN = [(case, name) for case in CASES if case.is_main for name in case.commands]
CHOSEN = [(case, name) for case in CASES for name in case.commands]


def named(case: Case, command: str) -> str:
    return f"{case.name}: {command}"


def check(case: Case, name: str, sink: Sink, run: Callable[[str], Done]) -> None:
    sink.create()
    command = command_in(case.make(sink), case, name)
    if "HOST:PORT" not in command:
        case.commands[name](sink, run(command))
        return
    with EmbeddedBroker() as other:
        there = replace(sink, servers=other.bootstrap_servers, run="a" * 16)
        there.create()
        there.decide_and_die(BATCH)
        case.commands[name](there, run(command.replace("HOST:PORT", other.bootstrap_servers)))


@pytest.mark.parametrize(("case", "name"), CHOSEN, ids=[named(*each) for each in CHOSEN])
def test_a_command_in_a_text_does_what_the_text_says(case: Case, name: str, broker: EmbeddedBroker) -> None:
    check(case, name, Sink(broker.bootstrap_servers, "t", "orders", "ledger"), enter)


@pytest.mark.parametrize(("case", "name"), MAIN, ids=[named(*each) for each in MAIN])
def test_a_command_in_a_text_does_what_the_text_says_on_apache_kafka(
    case: Case, name: str, kafka_4: KafkaCluster, topic_name: str
) -> None:
    short = topic_name[-60:].lstrip("-")
    check(case, name, Sink(kafka_4.bootstrap_servers, topic_name, short, f"ledger-{short}"), paste)


def test_every_text_that_names_a_command_is_among_them() -> None:
    assert {case.place for case in CASES} == set(named_commands())


def named_commands() -> Iterator[str]:
    """The functions that take a command for a text."""
    for path in sorted((ROOT / "kafka_sink").rglob("*.py")):
        source = path.read_text()
        for function in ast.walk(ast.parse(source)) if "commands" in source else ():
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Attribute) and node.attr in MAKERS and is_maker(ast.unparse(node.value)):
                        yield f"{path.stem}.{function.name}"


def is_maker(source: str) -> bool:
    return source == "commands" or source.endswith(".commands")


ALONE = {
    # Parts of f-strings: the rest is a side, a preset or a name.
    ("registry", "pykafka-sink schema check --side "),
    ("run", "pykafka-sink check --preset "),
    ("__init__", "pykafka-sink explain "),
    ("check", "pykafka-sink check --help"),
    ("explain", "pykafka-sink explain"),
    ("commits", "pykafka-sink replay --help"),
}


def test_no_text_has_a_command_of_its_own_making() -> None:
    """Help texts show examples, and a few commands have no arguments."""
    found = set()
    for path in sorted((ROOT / "kafka_sink").rglob("*.py")):
        source = path.read_text()
        if "pykafka-sink " in source and path.name not in ("texts.py", "completion.py", "command_texts.py"):
            tree = ast.parse(source)
            comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in comments:
                    found |= {(path.stem, each) for each in WRITTEN.findall(node.value)}
    assert found == ALONE


def test_commands_without_arguments_can_be_pasted_too() -> None:
    for command in (
        "pykafka-sink schema check --side key --help", "pykafka-sink check --preset confluent-cloud --explain",
        "pykafka-sink explain PKS-6001", "pykafka-sink check --help", "pykafka-sink explain",
        "pykafka-sink replay --help",
    ):  # fmt: skip
        assert paste(command).returncode == 0, command


def test_the_table_of_errors_speaks_of_commands_that_the_texts_have() -> None:
    """`The recover command of the text`: the table cannot know brokers and sinks."""
    spoken = {name: set(SPOKEN.findall(entry.cure)) for name, entry in ENTRIES.items() if "of the text" in entry.cure}
    raised: dict[str, set[str]] = {}
    for case in CASES:
        raised.setdefault(ENTRIES_OF.get(case.place, ""), set()).update(name.split()[0] for name in case.commands)
    assert spoken == {name: raised[name] for name in ENTRIES_OF.values()}


def test_a_login_is_not_repeated_but_asked_for(tmp_path: Path) -> None:
    with EmbeddedBroker(users={"alice": "secret of alice"}) as broker:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
        sink = Sink(
            broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER, login=login | {"sasl.password": "secret of alice"}
        )
        sink.create()
        text = pending(sink)
        assert "secret" not in text and "client.properties stands for a file with" in text
        (command,) = QUOTED.findall(text)
        assert "--ledger-topic" not in command
        (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in sink.login.items()))
        done = paste(command, tmp_path)
        assert done.returncode == 0 and "20 rows are visible" in done.stdout


def test_arguments_are_quoted_and_the_default_ledger_is_that_of_the_option() -> None:
    assert SINK_OPTIONS["ledger.topic"].default == DEFAULT_LEDGER
    brokers = broker_arguments(parse_producer_options({"bootstrap.servers": "[::1]:9092,b:9093"}))
    assert (
        CommandTexts(brokers).recover("-x")
        == "pykafka-sink recover --bootstrap-server '[::1]:9092,b:9093' --sink-id=-x"
    )
    assert CommandTexts().set_aside("s", "s/it's; a run").endswith(r"""--key 's/it'"'"'s; a run'""")
    assert CommandTexts().set_aside("s", "s/\x1b").endswith("--sink-id s")


# ---- docs/operations.md ------------------------------------------------------------------------------------------


def page_commands() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return [*re.findall(r"^pykafka-sink .*$", text, re.MULTILINE), *QUOTED.findall(text)]


def test_the_operations_page_has_no_command_that_is_not_pasted_here() -> None:
    assert sorted(page_commands()) == sorted(f"pykafka-sink {OF_PAGE[name][0]}" for name in OF_PAGE)


@pytest.mark.parametrize("name", OF_PAGE)
def test_a_command_of_the_operations_page_does_what_the_page_says(name: str, broker: EmbeddedBroker) -> None:
    words, make, check_state = OF_PAGE[name]
    sink = Sink(broker.bootstrap_servers, "t", "orders", DEFAULT_LEDGER)
    sink.create()
    make(sink)
    check_state(sink, paste(f"pykafka-sink {words}".replace("broker:9092", sink.servers)))
