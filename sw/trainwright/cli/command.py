"""Commands, and how other packages register theirs."""

import argparse
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from trainwright.cli.errors import OptionError
from trainwright.cli.screen import MOST_HELP, in_columns
from trainwright.support.errors import one_line

GROUP = "trainwright.commands"
ALL = "*"
"""Stands for every command where a command's name is asked for."""
BENCHES = "trainwright.benches"
"""Entry-point group of the parts of ``trainwright bench``."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help whose descriptions are wrapped for the terminal, tables and examples excepted."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(in_columns(text, min(width, MOST_HELP)), indent) + "\n"


@dataclass(frozen=True)
class CommandBody:
    """A command. Objects of this shape register under the entry-point group ``GROUP``."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    """Declares the options; may also set ``description`` and ``epilog`` of the parser."""
    run: Callable[[argparse.Namespace], int]
    """Runs the command and returns its exit status. Slow imports belong here."""
    name: str = ""
    """Word typed after ``trainwright``; may be in a `LazyCommand`, as ``help`` may."""
    help: str = ""
    """Line in the list of commands."""
    broken: bool = False
    """Whether the command only says why it is not available; its options are not known."""


@dataclass(frozen=True)
class LazyCommand:
    """Command whose module is imported once its options are asked for.

    `trainwright --help` lists commands by name and help, and their modules take seconds to import.
    """

    name: str
    help: str
    module: str
    attribute: str = "command"
    """Name of the `CommandBody` in `module`."""
    needs: tuple[str, ...] = ()
    """Modules of an extra, without which the command is not available."""

    def _body(self) -> CommandBody:
        try:
            return getattr(import_module(self.module), self.attribute)
        except ModuleNotFoundError as error:
            reason = f"it needs the module {error.name!r}"
            raise OptionError(f"command {self.name!r} is not available: {reason}") from None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        self._body().add_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Run the command and return its exit status."""
        return self._body().run(args)


Command = CommandBody | LazyCommand


def _broken(name: str, reason: str) -> CommandBody:
    """Return a stand-in for a registered command that cannot be loaded, while all others work."""

    def run(args: argparse.Namespace) -> int:
        raise OptionError(f"command {name!r} is not available: {reason}")

    return CommandBody(lambda parser: None, run, name, f"(not available: {reason})", broken=True)


def _load(entry: EntryPoint) -> Command:
    try:
        command = entry.load()
        for attribute in ("name", "help", "add_arguments", "run"):
            getattr(command, attribute)
        for module in getattr(command, "needs", ()):
            if find_spec(module) is None:
                return _broken(entry.name, f"it needs the module {module!r}")
        return command
    except ModuleNotFoundError as error:
        return _broken(entry.name, f"it needs the module {error.name!r}")
    except Exception as error:  # whatever an extra does at import must not stop the others
        return _broken(entry.name, f"{type(error).__name__}: {one_line(error)}")


def registered(name: str | None = None, group: str = GROUP) -> list[Command]:
    """Return the registered commands, or only that of a name; a stand-in where one fails."""
    entries = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return [_load(entry) for entry in entries if name in (None, entry.name)]


def add_commands(
    parser: argparse.ArgumentParser, commands: Iterable[Command], asked: str | None, **places: Any
) -> None:
    """Add commands below a parser, with the options of the command `asked` only, or of all."""
    below = parser.add_subparsers(**places)
    for command in commands:
        place = below.add_parser(
            command.name, help=command.help, description=command.help,
            formatter_class=HelpFormatter, allow_abbrev=False,
        )  # fmt: skip
        place.set_defaults(run=command.run, parser_of_command=place)
        if asked in (command.name, ALL):
            command.add_arguments(place)


def command_of_parts(description: str, parts: Callable[[], Sequence[Command]]) -> CommandBody:
    """Make a command whose subcommands are ``parts``, such as ``trainwright bench qr``."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.description = description
        add_commands(
            parser, parts(), ALL, title="parts", metavar="PART", dest="part", required=True
        )

    return CommandBody(add_arguments, lambda args: args.run(args))
