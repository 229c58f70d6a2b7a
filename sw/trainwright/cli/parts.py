"""Commands made of commands: ``trainwright reproduce qr``, ``trainwright bench qr``."""

import argparse
from collections.abc import Sequence

from trainwright.cli.command import Command


def add_parts(parser: argparse.ArgumentParser, parts: Sequence[Command]) -> None:
    """Make each part a subcommand of ``parser``; ``run_part`` runs the one that was named."""
    places = parser.add_subparsers(title="parts", metavar="PART", dest="part", required=True)
    for part in parts:
        place = places.add_parser(
            part.name,
            help=part.help,
            description=part.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        part.add_arguments(place)
        place.set_defaults(run_part=part.run)


def run_part(args: argparse.Namespace) -> int:
    """Run the part that was named; its exit status."""
    return args.run_part(args)
