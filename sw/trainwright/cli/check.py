"""``trainwright check``: one training step on golden model and hardware, every tensor compared."""

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from trainwright.accelerator import Accelerator
from trainwright.cli.backend import (
    add_simulation_options,
    check_simulation_options,
    memory_options,
    opened,
)
from trainwright.cli.command import CommandBody
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    add_accelerator_options,
    add_formats_option,
    add_plan_option,
    add_ranks_option,
    check_chip_plan,
    natural,
    positive,
    tell_update_place,
    with_formats,
    with_ranks,
)
from trainwright.fixed.random_bits import ROUNDINGS
from trainwright.network import Network
from trainwright.onchip.choices import LOSS_NAMES

if TYPE_CHECKING:
    from trainwright.check.step import StepCheck

DESCRIPTION = """\
Run one training step, with random operands over the whole range of their formats, on the golden
model and on the simulated hardware, and compare bit by bit: every row that any engine writes to
the scratchpad, the external memory, the statistics. Exit status 1 where anything differs.

The golden model executes programs by a C kernel. With --backend golden that kernel is compared with
the golden model's readable interpreter (trainwright.golden.interpreter), in the same way.

Short programs follow in which every wait of one engine for another counts, as those of a network
rarely bring two commands close enough; in the simulation with a memory without latency, too.

With --update chip two whole steps are run, with loss and update by the vector engine, each from
what the one before left in the accelerator's memory; loss, state and the images of the factors are
compared with their definitions (trainwright.onchip) too. With an exponent file eight steps are run
by one start, the second of which looks for columns to cut; where samples are fetched a test set is
classified behind them.

Utilisation (`mac_utilisation` in --json) is the useful multiply-accumulates, `macs`, over
multipliers times cycles: padding and copies left out (docs/reference/cycles.md).
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("--network", default="digits", metavar="NAME", help="default: digits")
    add_ranks_option(parser)
    add_formats_option(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="of the operands")
    parser.add_argument("--backend", default="rtl", metavar="NAME", help="default: rtl")
    add_plan_option(parser)
    parser.add_argument(
        "--rounding-mode", choices=ROUNDINGS, default=ROUNDINGS[0], help=f"default: {ROUNDINGS[0]}"
    )
    parser.add_argument(
        "--update", choices=("host", "chip"), default="host",
        help="chip: two steps with loss and update by the vector engine; with an exponent file "
        "eight by one start (default: host)",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=positive, metavar="N",
        help="of --update chip by one start, with an exponent file (default: 8)",
    )  # fmt: skip
    parser.add_argument(
        "--loss", choices=LOSS_NAMES, help=f"of --update chip (default: {LOSS_NAMES[0]})"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    add_accelerator_options(parser, explained=True)
    add_simulation_options(parser)


def _check_step(
    args: argparse.Namespace, network: Network, accelerator: Accelerator
) -> "StepCheck":
    from trainwright.check.step import check_step

    return check_step(
        network,
        args.batch,
        accelerator,
        seed=args.seed,
        plan=args.plan,
        rounding=args.rounding_mode,
    )


def _check_chip(
    args: argparse.Namespace, network: Network, accelerator: Accelerator
) -> "StepCheck":
    from trainwright.check.chip import check_chip_step
    from trainwright.check.resident import STEPS, check_resident_steps

    loss = args.loss or LOSS_NAMES[0]
    if not accelerator.parameters.exponents:
        if args.steps is not None:
            raise OptionError("--steps are by one start: add --accelerator exponents=64")
        return check_chip_step(
            network, args.batch, accelerator, seed=args.seed, loss=loss, plan=args.plan
        )
    return check_resident_steps(
        network,
        args.batch,
        accelerator,
        seed=args.seed,
        loss=loss,
        steps=args.steps or STEPS,
        plan=args.plan,
    )


def _run(args: argparse.Namespace) -> int:
    from trainwright.check.hazards import check_hazards
    from trainwright.check.step import HARDWARE, summary
    from trainwright.network import load_network

    for name in ("loss", "steps"):
        if getattr(args, name) and args.update == "host":
            raise OptionError(f"--{name} is of a step on the chip: add --update chip")
    if args.update == "chip":
        if args.rounding_mode != ROUNDINGS[0]:
            raise OptionError(
                f"--update chip takes --rounding-mode {ROUNDINGS[0]} alone, not "
                f"{args.rounding_mode}: leave it out"
            )
        check_chip_plan(args.plan)
    network = with_formats(load_network(args.network), args.formats)
    network = with_ranks(network, args.ranks)
    memory = memory_options(args)
    check_simulation_options(args.backend, memory, args.engine)
    with opened(
        args.backend,
        network=network,
        accelerator=args.accelerator or (),
        memory=memory,
        engine=args.engine,
        stochastic=args.rounding_mode != ROUNDINGS[0],
        alone=args.update == "chip",
    ) as accelerator:
        if args.update == "chip":
            tell_update_place(accelerator.parameters)
        outcome = (_check_chip if args.update == "chip" else _check_step)(
            args, network, accelerator
        )
        if outcome.compared == HARDWARE:
            outcome = replace(outcome, hazards=check_hazards(accelerator, args.seed))
        outcome = replace(outcome, rtl_blocks=getattr(accelerator, "uncovered", ()))
    figures = outcome.to_dict()
    print(json.dumps(figures) if args.json else summary(figures, outcome.compared))
    return 1 if outcome.differing else 0


command = CommandBody(_add_arguments, _run)
