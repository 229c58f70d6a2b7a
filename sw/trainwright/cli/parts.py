"""Commands made of commands: ``trainwright reproduce qr``, ``trainwright bench qr``."""

import argparse
from collections.abc import Callable, Sequence

from trainwright.cli.command import Command, CommandBody


def command_of_parts(description: str, parts: Callable[[], Sequence[Command]]) -> CommandBody:
    """Make a command whose subcommands are ``parts``."""

    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.description = description
        places = parser.add_subparsers(title="parts", metavar="PART", dest="part", required=True)
        for part in parts():
            place = places.add_parser(
                part.name, help=part.help, description=part.help,
                formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
            )  # fmt: skip
            part.add_arguments(place)
            place.set_defaults(run_part=part.run)

    return CommandBody(add_arguments, lambda args: args.run_part(args))
