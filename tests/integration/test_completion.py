"""Help and completion of the command: every command has examples that can be run, and shells complete all commands.

The tests take the commands from the parsers, so a new command is tested without changes here.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from kafka_sink.operate.cli.arguments import parse_arguments, parser
from kafka_sink.operate.cli.completion import CommandWords, bash, command_words, fish, zsh
from tests.support.commanding import Shell

COMMANDS = list(command_words(parser()))
RUNNABLE = [each for each in COMMANDS if not each.commands]


def examples(command: CommandWords) -> Iterator[list[str]]:
    """The lines of --help that begin with the name of the program, with continuation lines after a backslash."""
    text = command.parser.format_help().replace("\\\n", " ")
    for line in text.splitlines():
        words = shlex.split(line, comments=True) if line.startswith("  pykafka-sink ") else []
        if words[1 : 1 + len(command.path)] == list(command.path):
            yield list(takewhile(lambda word: word not in ("|", ">>"), words[1:]))


def by_name(command: CommandWords) -> str:
    return " ".join(command.path)


@pytest.mark.parametrize("command", RUNNABLE, ids=by_name)
def test_every_command_teaches_by_examples_that_can_be_typed(command: CommandWords) -> None:
    found = list(examples(command))
    assert found, f"{command.parser.prog} --help has no example"
    for words in found:
        assert callable(parse_arguments(words).run)


@pytest.mark.parametrize("command", RUNNABLE, ids=by_name)
def test_every_option_says_what_it_is(command: CommandWords) -> None:
    assert command.parser.description
    assert [option.option_strings for option in command.options if not option.help] == []


def test_what_changes_something_can_be_told_not_to_ask() -> None:
    asking = {by_name(each) for each in RUNNABLE if any("--yes" in option.option_strings for option in each.options)}
    assert {"recover", "resolve", "transactions", "replay"} <= asking


# ---- shells ----------------------------------------------------------------------------------------------------------

CASES = [
    ("", {command.path[0] for command in COMMANDS if command.path}),
    ("re", {"readers", "recover", "resolve", "replay"}),
    ("schema ", {"show", "check"}),
    ("completion ", {"bash", "zsh", "fish"}),
    ("schema check --format ", {"avro", "protobuf", "json", "json-schema"}),
    ("schema check --format js", {"json", "json-schema"}),
    ("ledger --sink", {"--sink-id"}),
    # The name of a command does not count where the value of an option is expected.
    ("perf --topic ledger --num", {"--num-records"}),
    ("ledger --sink-id ", set()),
]


def run(shell: str, *arguments: str, folder: Path) -> list[str]:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=300, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


def check(found: set[str], typed: str, expected: set[str]) -> None:
    """Options are offered along with commands; a shell may leave them out as long as nothing is typed."""
    if typed.endswith(" ") or not typed:
        found = {each for each in found if not each.startswith("-")}
    assert found == expected


@pytest.mark.parametrize(("typed", "expected"), CASES)
def test_bash_completes(typed: str, expected: set[str], tmp_path: Path) -> None:
    words = ["pykafka-sink", *typed.split(" ")]
    script = (
        f"{bash(COMMANDS)}\nCOMP_WORDS=({shlex.join(words)})\nCOMP_CWORD={len(words) - 1}\n_pykafka_sink\n"
        'for each in "${COMPREPLY[@]}"; do echo "$each"; done'
    )
    check(set(run("bash", "--norc", "-c", script, folder=tmp_path)), typed, expected)


def test_bash_completes_files_where_a_file_is_wanted_and_knows_the_program(tmp_path: Path) -> None:
    script = (
        f'{bash(COMMANDS)}\ncompopt() {{ echo "compopt $*"; }}\nCOMP_WORDS=(pykafka-sink ledger --properties "")\n'
        "COMP_CWORD=3\n_pykafka_sink\ncomplete -p pykafka-sink"
    )
    assert run("bash", "--norc", "-c", script, folder=tmp_path) == [
        "compopt -o default",
        "complete -F _pykafka_sink pykafka-sink",
    ]


@pytest.mark.parametrize(("typed", "expected"), CASES)
def test_zsh_completes(typed: str, expected: set[str], tmp_path: Path) -> None:
    """The builtins of zsh work only inside completion; here functions that print their arguments replace them."""
    words = ["pykafka-sink", *typed.split(" ")]
    script = (
        'compdef() { : }\n_describe() { for each in $titles; do print -r -- "${each%%:*}"; done }\n'
        f'compadd() {{ shift; print -rl -- "$@" }}\n{zsh(COMMANDS)}\n'
        f"words=({shlex.join(words)})\nCURRENT={len(words)}\n_pykafka_sink"
    )
    found = {each for each in run("zsh", "-f", "-c", script, folder=tmp_path) if each.startswith(words[-1])}
    check(found, typed, expected)


@pytest.mark.parametrize(("typed", "expected"), CASES)
def test_fish_completes(typed: str, expected: set[str], tmp_path: Path) -> None:
    script = f"{fish(COMMANDS)}\ncomplete -C {shlex.quote(f'pykafka-sink {typed}')}"
    lines = run("fish", "--no-config", "-c", script, folder=tmp_path)
    check({line.partition("\t")[0] for line in lines}, typed, expected)


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys)
    assert shell("completion", "bash").out == bash(COMMANDS)
    assert shell("completion", "fish", "--json").content["script"] == fish(COMMANDS)
