"""What can be typed, read from the parsers themselves: commands, their options, what an option takes.

For completion scripts, and for tests that hold every command to the same rules. A command that is added to the parser
is known here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

# A metavar by which an option asks for a file.
FILE = "FILE"


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
    """`path` is empty for the program itself. `commands`: what may follow, with its title."""

    path: tuple[str, ...]
    parser: argparse.ArgumentParser
    options: tuple[OptionWords, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    # Of the argument that has no name.
    choices: tuple[str, ...] = field(default=())

    @property
    def is_command(self) -> bool:
        """Something that can be run."""
        return not self.commands


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
