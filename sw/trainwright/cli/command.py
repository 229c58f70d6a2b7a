"""Commands, and how other packages register theirs."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Protocol

from trainwright.cli.errors import OptionError, one_line

GROUP = "trainwright.commands"
BENCHES = "trainwright.benches"
"""Entry-point group of the parts of ``trainwright bench``."""


class Command(Protocol):
    """A command. Objects of this shape register under the entry-point group ``GROUP``."""

    @property
    def name(self) -> str:
        """Word typed after ``trainwright``."""
        ...

    @property
    def help(self) -> str:
        """Line in the list of commands."""
        ...

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Declare the options; may also set ``description`` and ``epilog`` of the parser."""
        ...

    def run(self, args: argparse.Namespace, /) -> int:
        """Run the command and return its exit status. Slow imports belong here."""
        ...


@dataclass(frozen=True)
class CommandBody:
    """Two functions of a command; name and help may be in a `LazyCommand`."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    name: str = ""
    help: str = ""


@dataclass(frozen=True)
class LazyCommand:
    """Command whose module is imported once its options are asked for.

    `trainwright --help` lists commands by name and help, and their modules take seconds to import.
    """

    name: str
    help: str
    module: str
    attribute: str = "command"
    """Name of the `CommandBody` or `Command` in `module`."""
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


@dataclass(frozen=True)
class BrokenCommand:
    """Stand-in for a registered command that cannot be loaded, while all other commands work."""

    name: str
    reason: str

    @property
    def help(self) -> str:
        """Line that says why the command is not available."""
        return f"(not available: {self.reason})"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare nothing: the options are not known."""

    def run(self, args: argparse.Namespace) -> int:
        """Raise ``OptionError``."""
        raise OptionError(f"command {self.name!r} is not available: {self.reason}")


def _load(entry: EntryPoint) -> Command:
    try:
        command = entry.load()
        for attribute in ("name", "help", "add_arguments", "run"):
            getattr(command, attribute)
        for module in getattr(command, "needs", ()):
            if find_spec(module) is None:
                return BrokenCommand(entry.name, f"it needs the module {module!r}")
        return command
    except ModuleNotFoundError as error:
        return BrokenCommand(entry.name, f"it needs the module {error.name!r}")
    except Exception as error:  # whatever an extra does at import must not stop the others
        return BrokenCommand(entry.name, f"{type(error).__name__}: {one_line(error)}")


def registered(name: str | None = None, group: str = GROUP) -> list[Command]:
    """Return the registered commands, or only that of a name; ``BrokenCommand`` where one fails."""
    entries = sorted(entry_points(group=group), key=lambda entry: entry.name)
    return [_load(entry) for entry in entries if name in (None, entry.name)]
