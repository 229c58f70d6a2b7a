"""``trainwright``: finds the command, runs it, and turns errors into exit statuses."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from trainwright import __version__
from trainwright.cli import (
    bench,
    check,
    compress,
    evaluate,
    formats,
    listing,
    look,
    plan,
    posit,
    profile,
    reproduce,
    sweep,
    train,
)
from trainwright.cli.command import BrokenCommand, Command, registered
from trainwright.cli.errors import MOST_LINE, is_expected, one_line
from trainwright.support.text import shortened

DESCRIPTION = """\
Train tensor-train networks in ultra-low precision on an FPGA accelerator.

A network's weight matrices are kept as tensor trains of 4-bit factors, hundreds of times smaller
than the matrices. Forward and backward passes are programs that run on the accelerator: on its
golden model (exact integers, fast) or on the hardware description itself, simulated cycle by cycle
(`rtl`). Both give the same bits.
"""

EPILOG = """\
examples:
  trainwright train --network digits                   train handwritten digits on the golden model
  trainwright train --network digits --backend rtl     the same on the simulated hardware
  trainwright train --network fashion --data DIR       the paper's network on Fashion-MNIST
  trainwright eval runs/digits/model.safetensors       classify with what came out, class by class
  trainwright look --backend serial:PORT               where a board is that trains alone
  trainwright check --network digits                   one step on both, every tensor compared
  trainwright plan fashion                             how its layers are computed, and the cycles
  trainwright listing digits                           the program that the accelerator executes
  trainwright compress dense.safetensors --rank 16     a trained dense network as tensor trains
  trainwright sweep SPEC.toml                          many trainings, and the best of them
  trainwright reproduce qr                             experiments in mixed-precision arithmetic
  trainwright posit 3.14159 --format 16,2              a number as a posit, field by field

`trainwright COMMAND --help` explains each command. Exit status: 0 done, 1 golden model and hardware
differ, 2 an error told in one line, 130 interrupted.
"""

OWN: tuple[Command, ...] = (
    train.command,
    evaluate.command,
    check.command,
    look.command,
    plan.command,
    profile.command,
    listing.command,
    compress.command,
    formats.command,
    posit.command,
    sweep.command,
    reproduce.command,
    bench.command,
)


class Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        text = shortened(message, MOST_LINE)
        self.exit(2, f"trainwright: error: {text} (see {self.prog} --help)\n")


def _parser(commands: Sequence[Command]) -> Parser:
    parser = Parser(
        prog="trainwright",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainwright {__version__}")
    parser.add_argument(
        "--traceback", action="store_true", help="show where an error comes from (for developers)"
    )
    places = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for command in commands:
        place = places.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(place)
        place.set_defaults(run=command.run, place=place)
    return parser


def _commands(argv: Sequence[str]) -> list[Command]:
    """All commands, but extras are loaded only where they are asked for or listed."""
    asked = next((word for word in argv if not word.startswith("-")), None)
    if asked in [command.name for command in OWN]:
        return list(OWN)
    return [*OWN, *(registered(asked) or registered())]


def main(argv: Sequence[str] | None = None) -> int:
    """See ``trainwright.cli.main``, which tells of Ctrl-C."""
    argv = sys.argv[1:] if argv is None else argv
    commands = _commands(argv)
    broken = [command.name for command in commands if isinstance(command, BrokenCommand)]
    parser = _parser(commands)
    args, unknown = parser.parse_known_args(argv)
    if unknown and args.command not in broken:
        (args.place if args.command else parser).error(
            f"unrecognized arguments: {' '.join(unknown)}"
        )
    if args.command is None:
        parser.print_help()
        return 0
    try:
        return args.run(args)
    except BrokenPipeError:  # the reader of our output is gone, `trainwright listing | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if args.traceback or not is_expected(error):
            raise
        print(f"trainwright: error: {one_line(error)}", file=sys.stderr)
        return 2
