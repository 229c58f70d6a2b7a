"""``trainwright``: finds the command, runs it, and turns errors into exit statuses."""

import argparse
import errno
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from textwrap import wrap
from typing import Any, NoReturn

from trainwright import __version__
from trainwright.cli.command import Command, HelpFormatter, LazyCommand, add_commands, registered
from trainwright.cli.declare import add_options, describe
from trainwright.cli.screen import screen_width
from trainwright.support.errors import MOST_LINE, UserError, one_line
from trainwright.support.once import StoreOnce
from trainwright.support.streams import prepare_streams
from trainwright.support.text import shortened, suggestion


@dataclass(frozen=True)
class RootOptions:
    """Train tensor-train networks in ultra-low precision on an FPGA accelerator.

    A network's weight matrices are kept as tensor trains of 4-bit factors, hundreds of times
    smaller than the matrices. Forward and backward passes are programs that run on the accelerator:
    on its golden model (exact integers, fast) or on the hardware description itself, simulated
    cycle by cycle (`rtl`). Both give the same bits.

    Examples
    --------
      trainwright train --network digits                train handwritten digits on the golden model
      trainwright train --network digits --backend rtl  the same on the simulated hardware
      trainwright train --network fashion --data DIR    the paper's network on Fashion-MNIST
      trainwright eval runs/digits/model.safetensors    classify with the trained model
      trainwright look --backend serial:PORT            how far a board is that trains alone
      trainwright check --network digits                one step on both, every tensor compared
      trainwright plan fashion                          how its layers are computed, and the cycles
      trainwright listing digits                        the program that the accelerator executes
      trainwright trace digits --descriptor 8 --out x.fst   a waveform of one of its descriptors
      trainwright compress dense.safetensors --rank 16  a trained dense network as tensor trains
      trainwright sweep SPEC.toml                       many trainings, and the best of them
      trainwright reproduce qr                          experiments in mixed-precision arithmetic
      trainwright posit 3.14159 --format 16,2           a number as a posit, field by field

    `trainwright COMMAND --help` explains each command. Exit status: 0 done, 1 golden model and
    hardware differ, 2 an error told in one line, 130 interrupted.
    """

    traceback: bool = False
    """show where an error comes from (for developers)"""


_MODULES = {"eval": "evaluate", "export-job": "export_job"}
"""Modules of commands, where a module is not called like its command."""
_HELP = {
    "train": "train a network on the accelerator and report the results",
    "eval": "classify test samples with a stored model, class by class",
    "check": "compare the hardware with the golden model, bit by bit",
    "look": "say how far a board is that trains without its host",
    "plan": "how each layer is computed, and its costs",
    "profile": "cycles of a step, descriptor by descriptor",
    "listing": "print the programs that the accelerator executes",
    "compress": "a trained dense network as tensor trains, to start training from",
    "export-job": "write a training run as files, for a driver in any language",
    "formats": "the narrowest width of each tensor that holds an error",
    "posit": "a number in a posit format, field by field",
    "sweep": "train all combinations of a few options; their Pareto front",
    "reproduce": "repeat a paper's experiments, with tables and plots",
    "bench": "cycles, and time and accuracy next to other libraries",
}
OWN: tuple[Command, ...] = tuple(
    LazyCommand(name, text, f"trainwright.cli.{_MODULES.get(name, name)}")
    for name, text in _HELP.items()
)
"""Commands of this package, in the order in which `trainwright --help` lists them."""


def complaint(text: str) -> str:
    """Return the message of an error: one line, which a terminal gets folded between words."""
    line = f"trainwright: error: {text}"
    if not sys.stderr.isatty():
        return line
    return "\n".join(wrap(line, screen_width(), subsequent_indent="  ", break_on_hyphens=False))


class Parser(argparse.ArgumentParser):
    """Complains in one line, also about an option that is given twice."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("action", None, StoreOnce)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        """Note an option after `--`, which argparse takes for a value, for the message of error."""
        behind = [word for word in dropwhile("--".__ne__, args or ()) if word[:2] == "--" != word]
        self.advice = f"; put {behind[0]} before '--', which ends the options" if behind else ""
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Add a suggestion to the message of argparse for a value that is no choice."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            close = suggestion(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, error.message + close) from None

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse an empty value: an unset variable of a shell must not mean the default."""
        if "" in arg_strings and action.nargs != argparse.PARSER:
            raise argparse.ArgumentError(action, "must not be empty")
        if action.option_strings and "--" in arg_strings:  # argparse would drop it from --name=--
            raise argparse.ArgumentError(action, "must have a value, not '--'")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        text = shortened(message, MOST_LINE) + self.advice
        self.exit(2, complaint(f"{text} (see {self.prog} --help)") + "\n")


def _parser(commands: Sequence[Command], asked: str | None) -> Parser:
    """Return the parser. Import and ask only the command `asked` for its options."""
    parser = Parser(prog="trainwright", formatter_class=HelpFormatter)
    describe(parser, RootOptions)
    parser.add_argument("--version", action="version", version=f"trainwright {__version__}")
    add_options(parser, RootOptions)
    add_commands(parser, commands, asked, title="commands", metavar="COMMAND", dest="command")
    return parser


def _commands(asked: str | None) -> list[Command]:
    """Return all commands, but those of other packages only to find or to list them."""
    if asked in [command.name for command in OWN]:
        return list(OWN)
    return [*OWN, *(registered(asked) or registered())]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, as `trainwright.cli.main` says, which reports Ctrl-C."""
    argv = sys.argv[1:] if argv is None else argv
    prepare_streams()
    asked = next((word for word in argv if not word.startswith("-")), None)
    try:
        status = _run(argv, asked)
        sys.stdout.flush()  # a full disk shows when the last lines are written
        return status
    except BrokenPipeError:  # the reader of our output is gone, `trainwright listing | head`
        _drop_output()
        return 141
    except Exception as error:
        if "--traceback" in argv or not isinstance(error, _REPORTED):
            raise
        text = one_line(error)
        if isinstance(error, MemoryError):
            text = f"too little memory ({text}): use fewer or smaller samples, or a smaller network"
        if isinstance(error, OSError) and error.errno in _UNWRITABLE:
            _drop_output()
            text = f"cannot write: {error.strerror}; make room, or write elsewhere"
        print(complaint(text), file=sys.stderr)
        return 2


_REPORTED = (UserError, OSError, MemoryError)
"""Errors of a line: users can mend an OSError that no command foresaw, as of a name too long."""
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def _drop_output() -> None:
    """Discard the rest of the output, because Python would fail again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str], asked: str | None) -> int:
    commands = _commands(asked)
    broken = [command.name for command in commands if getattr(command, "broken", False)]
    parser = _parser(commands, asked)
    args, unknown = parser.parse_known_args(argv)
    unknown = [word for word in unknown if word != "--"]
    if unknown and args.command not in broken:
        place: Parser = args.parser_of_command if args.command else parser
        option = "" if place.advice else unknown[0].partition("=")[0]
        close = suggestion(option, place._option_string_actions) if option[0:1] == "-" else ""
        if option[:1] == "-" and (option[1:2].isdigit() or option == "-inf"):
            close = f"; a value that begins with - goes behind '--', as in -- {option}"
        place.error(f"unrecognized arguments: {' '.join(unknown)}{close}")
    if args.command is None:
        parser.print_help()
        return 0
    args.command_line = shlex.join(["trainwright", *argv])
    return args.run(args)
