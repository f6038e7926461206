"""`pykafka-sink completion bash|zsh|fish`: a script for the shell, made from the parsers.

The script contains all words, so that a Tab does not start Python; it must be regenerated after an update. The words
are read from the parsers: a command added there is included here, and in the tests that apply the same rules to every
command.

shtab makes such scripts as well. It would be one more package on users' machines, or 60 kB of made scripts in a zip
that goes to every executor; this file has 10.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.commit.command_texts import PROGRAM
from kafka_sink.operate.cli.report import DONE, Report

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
class CommandWords:
    """`path` is empty for the program itself. `commands`: subcommands with their titles. `choices`: of the positional
    argument."""

    path: tuple[str, ...]
    parser: argparse.ArgumentParser
    options: Sequence[argparse.Action]
    commands: Sequence[tuple[str, str]]
    choices: Sequence[str]


def command_words(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[CommandWords]:
    """The program and every command below it."""
    options = [action for action in parser._actions if action.option_strings]
    commands: list[tuple[str, str]] = []
    choices: list[str] = []
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            titles = {each.dest: each.help or "" for each in action._choices_actions}
            commands = [(name, titles.get(name, "")) for name in below]
        elif not action.option_strings:
            choices += map(str, action.choices or ())
    yield CommandWords(path, parser, options, commands, choices)
    for name, inner in below.items():
        yield from command_words(inner, (*path, name))


def _choices(option: argparse.Action) -> str:
    return " ".join(map(str, option.choices or ()))


def _title_of(option: argparse.Action) -> str:
    return _title((option.help or "") % vars(option))


# ---- bash and zsh: a case for each path of commands ------------------------------------------------------------------


def bash(commands: Sequence[CommandWords]) -> str:
    def reply(option: argparse.Action) -> str:
        if option.choices:
            return f'COMPREPLY=($(compgen -W "{_choices(option)}" -- "$word")); return'
        return "compopt -o default; return" if option.metavar == FILE else "return"

    def words(command: CommandWords) -> str:
        return f'words="{" ".join(word for word, _ in _words_with_titles(command))}"'

    return _fill(_BASH, commands, reply, words)


def zsh(commands: Sequence[CommandWords]) -> str:
    def reply(option: argparse.Action) -> str:
        if option.choices:
            return f"compadd -- {_choices(option)}; return"
        return "_files; return" if option.metavar == FILE else "return"

    def titles(command: CommandWords) -> str:
        return f"titles=({' '.join(_quote(f'{word}:{title}') for word, title in _words_with_titles(command))})"

    return _fill(_ZSH, commands, reply, titles)


def _fill(
    script: str,
    commands: Sequence[CommandWords],
    reply: Callable[[argparse.Action], str],
    words: Callable[[CommandWords], str],
) -> str:
    """`reply`: what follows an option that takes a value; `words`: what may follow a command."""
    values = []
    for command in commands:
        for option in command.options:
            if option.nargs != 0:
                pattern = "|".join(f'"{_path(command)} {name}"' for name in option.option_strings)
                values.append(f"        {pattern}) {reply(option)} ;;")
    return script.format(
        program=PROGRAM,
        paths="|".join(f'"{_path(each)}"' for each in commands if each.path),
        values="\n".join(values),
        words="\n".join(f'        "{_path(each)}") {words(each)} ;;' for each in commands),
    )


def _path(command: CommandWords) -> str:
    return "".join(f" {name}" for name in command.path)


def _words_with_titles(command: CommandWords) -> list[tuple[str, str]]:
    named = [(word, _title(title)) for word, title in command.commands]
    named += [(word, "") for word in command.choices]
    return named + [(name, _title_of(option)) for option in command.options for name in option.option_strings]


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
            names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.option_strings]
            lines.append(f"{start} {' '.join(names)}{_argument(option)} -d {_fish_quote(_title_of(option))}")
    return _FISH.format(program=PROGRAM, words="\n".join(lines))


def _condition(command: CommandWords) -> str:
    """All words of the path are present, and no subcommand."""
    seen = [f"__fish_seen_subcommand_from {name}" for name in command.path]
    following = " ".join(name for name, _ in command.commands)
    return "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {following}"] if following else [])])


def _argument(option: argparse.Action) -> str:
    if option.choices:
        return f" -xa {_fish_quote(_choices(option))}"
    return "" if option.nargs == 0 else " -rF" if option.metavar == FILE else " -x"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS: Mapping[str, Callable[[Sequence[CommandWords]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
