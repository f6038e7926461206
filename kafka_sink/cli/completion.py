"""`pykafka-sink completion bash|zsh|fish`: a script for the shell, made from the parsers.

The script contains all words, so that a Tab does not start Python; it must be regenerated after an update. The words
are read from the parsers: a command added there is included here, and in the tests that apply the same rules to every
command.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.cli.report import DONE, Report

PROGRAM = "pykafka-sink"
# Limit of a title shown next to a word; shells truncate longer ones.
TITLE_CHARACTERS_MAX = 70
# The metavar of options that take a file.
FILE = "FILE"

_BASH = """\
# Completion of {program} for bash: source it, or put it into /usr/share/bash-completion/completions/{program}
_pykafka_sink() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} path="" index words
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        case "$path ${{COMP_WORDS[index]}}" in
            {paths}) path="$path ${{COMP_WORDS[index]}}" ;;
        esac
    done
    case "$path $before" in
{values}
    esac
    case "$path" in
{words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -F _pykafka_sink {program}
"""

_ZSH = """\
#compdef {program}
# Completion of {program} for zsh: source it after compinit, or put it into a folder of $fpath as _{program}
_pykafka_sink() {{
    local given="" index
    local -a titles
    for ((index = 2; index < CURRENT; index++)); do
        case "$given $words[index]" in
            {paths}) given="$given $words[index]" ;;
        esac
    done
    case "$given $words[CURRENT-1]" in
{values}
    esac
    case "$given" in
{words}
    esac
    _describe -V {program} titles
}}
compdef _pykafka_sink {program}
"""

_FISH = """\
# Completion of {program} for fish: source it, or put it into ~/.config/fish/completions/{program}.fish
complete -c {program} -e
complete -c {program} -f
{words}
"""


def completion(given: argparse.Namespace) -> Report:
    script = SCRIPTS[given.shell](tuple(command_words(given.parser())))
    return Report(DONE, {"shell": given.shell, "script": script}, [script.rstrip("\n")])


# ---- words of the command line ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OptionWords:
    """`choices`: the words that may follow; `takes_value` and no choices: anything, or a file."""

    names: tuple[str, ...]
    help: str
    takes_value: bool = False
    takes_file: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandWords:
    """`path` is empty for the program itself. `commands`: subcommands with their titles."""

    path: tuple[str, ...]
    parser: argparse.ArgumentParser
    options: tuple[OptionWords, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    # Choices of the positional argument.
    choices: tuple[str, ...] = ()


def command_words(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[CommandWords]:
    """The program and every command below it."""
    options: list[OptionWords] = []
    commands: list[tuple[str, str]] = []
    choices: tuple[str, ...] = ()
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            titles = {each.dest: each.help or "" for each in action._choices_actions}
            commands = [(name, titles.get(name, "")) for name in below]
        elif action.option_strings:
            options.append(_option(action, parser))
        elif action.choices is not None:
            choices = tuple(map(str, action.choices))
    yield CommandWords(path, parser, tuple(options), tuple(commands), choices)
    for name, inner in below.items():
        yield from command_words(inner, (*path, name))


def _option(action: argparse.Action, parser: argparse.ArgumentParser) -> OptionWords:
    takes_value = action.nargs != 0
    text = (action.help or "") % {"default": action.default, "prog": parser.prog}
    return OptionWords(
        tuple(action.option_strings),
        text,
        takes_value,
        takes_value and action.metavar == FILE,
        tuple(map(str, action.choices or ())),
    )


# ---- bash and zsh: a case for each path of commands ------------------------------------------------------------------


def bash(commands: Sequence[CommandWords]) -> str:
    def reply(option: OptionWords) -> str:
        if option.choices:
            return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word")); return'
        return "compopt -o default; return" if option.takes_file else "return"

    words = [
        f"""        "{_path(each)}") words="{" ".join(word for word, _ in _words_with_titles(each))}" ;;"""
        for each in commands
    ]
    return _BASH.format(
        program=PROGRAM, paths=_paths(commands), values=_values(commands, reply), words="\n".join(words)
    )


def zsh(commands: Sequence[CommandWords]) -> str:
    def reply(option: OptionWords) -> str:
        if option.choices:
            return f"compadd -- {' '.join(option.choices)}; return"
        return "_files; return" if option.takes_file else "return"

    def titles(command: CommandWords) -> str:
        return " ".join(_quote(f"{word}:{title}") for word, title in _words_with_titles(command))

    words = [f"""        "{_path(each)}") titles=({titles(each)}) ;;""" for each in commands]
    return _ZSH.format(program=PROGRAM, paths=_paths(commands), values=_values(commands, reply), words="\n".join(words))


def _path(command: CommandWords) -> str:
    return "".join(f" {name}" for name in command.path)


def _paths(commands: Iterable[CommandWords]) -> str:
    return "|".join(f'"{_path(each)}"' for each in commands if each.path)


def _values(commands: Iterable[CommandWords], reply: Callable[[OptionWords], str]) -> str:
    lines = []
    for command in commands:
        for option in command.options:
            if option.takes_value:
                pattern = "|".join(f'"{_path(command)} {name}"' for name in option.names)
                lines.append(f"        {pattern}) {reply(option)} ;;")
    return "\n".join(lines)


def _words_with_titles(command: CommandWords) -> list[tuple[str, str]]:
    named = [(word, _title(title)) for word, title in command.commands]
    named += [(word, "") for word in command.choices]
    return named + [(name, _title(option.help)) for option in command.options for name in option.names]


def _title(text: str) -> str:
    first = " ".join(text.replace(":", ",").split())
    return first if len(first) <= TITLE_CHARACTERS_MAX else f"{first[: TITLE_CHARACTERS_MAX - 3]}..."


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# ---- fish: a line for each word --------------------------------------------------------------------------------------


def fish(commands: Sequence[CommandWords]) -> str:
    lines = []
    for command in commands:
        start = f"complete -c {PROGRAM} -n {_fish_quote(_condition(command))}"
        for word, title in command.commands:
            lines.append(f"{start} -a {word} -d {_fish_quote(_title(title))}")
        if command.choices:
            lines.append(f"{start} -a {_fish_quote(' '.join(command.choices))}")
        for option in command.options:
            names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
            lines.append(f"{start} {' '.join(names)}{_argument(option)} -d {_fish_quote(_title(option.help))}")
    return _FISH.format(program=PROGRAM, words="\n".join(lines))


def _condition(command: CommandWords) -> str:
    """All words of the path are present, and no subcommand."""
    seen = [f"__fish_seen_subcommand_from {name}" for name in command.path]
    following = " ".join(name for name, _ in command.commands)
    return "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {following}"] if following else [])])


def _argument(option: OptionWords) -> str:
    if option.choices:
        return f" -xa {_fish_quote(' '.join(option.choices))}"
    return "" if not option.takes_value else " -rF" if option.takes_file else " -x"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Mapping[str, Callable[[Sequence[CommandWords]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
