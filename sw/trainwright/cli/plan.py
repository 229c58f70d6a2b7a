"""``trainwright plan``: how each layer can be computed, what that takes, and what is chosen."""

import argparse

from trainwright.cli.command import CommandBody
from trainwright.cli.options import (
    accelerator_parameters,
    add_accelerator_options,
    add_formats_option,
    add_network_argument,
    add_plan_option,
    add_ranks_option,
    positive,
    with_formats,
    with_ranks,
)
from trainwright.cli.screen import add_wide_option, screen_width

DESCRIPTION = """\
Show how a training step of a network is computed, and what that was chosen from.

First the contraction orders of each layer, those of its gradients among them, the cheapest first:
an order is a tree of products of two tensors. Those that have names are shown, too: W rebuilt from
the factors left and right of a bond, both sides of a bond without W, and the paper's. Where an
order is not the chosen one its row says why. Then what is computed together, in slices of how many
values of which axes, by which array; and cycles, multiply-accumulates and memory of each program,
by the cycle model. Utilisation is the useful multiply-accumulates (padding and copies left out)
over multipliers times cycles.

Exit status 2, and one line that says what is lacking and what to change, where nothing fits.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_network_argument(parser)
    add_ranks_option(parser)
    add_formats_option(parser)
    add_plan_option(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument(
        "--effort", type=positive, metavar="N",
        help="alternatives after which the best programs so far are taken",
    )  # fmt: skip
    add_wide_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON and no tables")
    add_accelerator_options(parser)


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli import plan_report
    from trainwright.cli.output import to_json
    from trainwright.network import UserNames, load_network

    network = with_formats(load_network(args.network), args.formats)
    network = with_ranks(network, args.ranks)
    parameters = accelerator_parameters(args.accelerator, network)
    figures = plan_report.report(network, args.batch, parameters, args.plan, args.effort)
    if args.json:
        print(to_json(figures))
    elif args.wide:
        plan_report.show_wide(figures)
    else:
        plan_report.show(figures, UserNames.of_network(network), screen_width())
    return 0


command = CommandBody(_add_arguments, _run)
