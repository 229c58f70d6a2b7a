"""``trainwright bench board``: a training step on a simulated board, its memory chip included."""

import argparse
from contextlib import closing
from typing import Any

from trainwright.accelerator import open_accelerator
from trainwright.cli.command import CommandBody
from trainwright.cli.declare import add_options, natural, positive
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    FormOptions,
    PlanOptions,
    accelerator_parameters,
    with_formats,
    with_ranks,
)
from trainwright.support.text import amount
from trainwright_boards.board import SDRAM
from trainwright_boards.catalogue import BOARDS, find_board

BACKEND = "sdram-board"
"""The back end that simulates a board with its SDRAM."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run one training step on a simulated board with its SDRAM, at the clock of its design, "
        "and compare every tensor with the golden model. Memory is written and read in the chip "
        "itself, all else goes over the simulated serial line. `predicted_cycles` are those of "
        "the cycle model with this memory. Exit status 1 where a tensor differs."
    )
    parser.add_argument("board", metavar="BOARD", help="one with an SDRAM, such as ulx3s-85f")
    parser.add_argument("--network", default="digits", metavar="NAME", help="default: digits")
    add_options(parser, FormOptions)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the operands")
    add_options(parser, PlanOptions)
    parser.add_argument(
        "--accelerator", metavar="NAME=N", action="append",
        help="a size other than that of the board's preset (repeatable)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """Measure, and return the object that ``--json`` prints. Raises ``OptionError``."""
    from trainwright.check.step import check_step
    from trainwright.network import load_network

    board = find_board(args.board)
    if board.sdram is None:
        having = ", ".join(name for name, listed in BOARDS.items() if listed.sdram)
        raise OptionError(f"{board.name} has no SDRAM that is simulated; choose {having}")
    network = with_formats(load_network(args.network), args.formats)
    network = with_ranks(network, args.ranks)
    parameters = accelerator_parameters(
        [f"preset={board.sdram.preset}", *(args.accelerator or ())], network
    )
    memory_bytes = board.sdram.timing.memory_bytes
    accelerator = open_accelerator(
        BACKEND, parameters, memory_bytes=memory_bytes, clock_hz=board.design_hz
    )
    with closing(accelerator):
        outcome = check_step(network, args.batch, accelerator, seed=args.seed, plan=args.plan)
    from trainwright_boards.table2 import memory_timing  # imports torch

    predicted = outcome.step.cycles_with(memory_timing(SDRAM, parameters))
    cycles = outcome.counters.cycles
    return {
        "board": board.name,
        "clock_hz": board.design_hz,
        **outcome.to_dict(),
        "predicted_cycles": predicted,
        "milliseconds": cycles / board.design_hz * 1e3,
    }


def _run(args: argparse.Namespace) -> int:
    from trainwright.cli.output import to_json

    figures = measured(args)
    if args.json:
        print(to_json(figures))
    else:
        print(
            f"{figures['network']}, batch {figures['batch']}, plan {figures['plan']}, on "
            f"{figures['board']} at {figures['clock_hz'] / 1e6:g} MHz\n"
            f"{figures['cycles']:,} cycles, {figures['milliseconds']:.3g} ms, "
            f"{figures['predicted_cycles']:,} predicted; {figures['mac_utilisation']:.1%} "
            f"utilisation\n{figures['bytes_read']:,} bytes read, {figures['bytes_written']:,} "
            f"written\ncompared {amount(figures['tensors'], 'tensor')}, "
            f"{amount(figures['values'], 'value')}: {amount(figures['mismatches'], 'mismatch')}"
        )
    return 1 if figures["mismatches"] else 0


command = CommandBody(
    _add_arguments, _run, "board", "a training step on a simulated board with its SDRAM"
)
