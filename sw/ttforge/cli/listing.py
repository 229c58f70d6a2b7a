"""``ttforge listing``: the programs that the accelerator executes, one descriptor a line."""

import argparse
import sys

from ttforge.cli.command import SimpleCommand
from ttforge.cli.options import accelerator_parameters, add_accelerator_options, positive

PARTS = ("forward", "backward")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile the two programs of a training step and print their descriptors. Shifts are set "
        "step by step while training and are 0 here."
    )
    parser.add_argument("--network", default="digits", metavar="NAME", help="default: digits")
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    parser.add_argument("--plan", default="paper", help="schedule (default: paper)")
    parser.add_argument("--part", choices=PARTS, help="print only this program")
    add_accelerator_options(parser)


def _run(args: argparse.Namespace) -> int:
    from ttforge.compiler import compile_step
    from ttforge.network import load_network
    from ttforge.program.descriptors import Program
    from ttforge.program.listing import listing

    network = load_network(args.network)
    parameters = accelerator_parameters(args.accelerator, network.widths.factor)
    step = compile_step(network, args.batch, parameters, plan=args.plan)
    for part in PARTS if args.part is None else (args.part,):
        compiled = getattr(step, part)
        names = tuple(tensor.name for tensor in compiled.tensors)
        program = Program(compiled.descriptors, compiled.fingerprint, names)
        print(f"; {part}: {len(program.descriptors)} descriptors, {compiled.macs:,} MACs")
        sys.stdout.write(listing(program))
    return 0


command = SimpleCommand(
    "listing", "print the programs that the accelerator executes", _add_arguments, _run
)
