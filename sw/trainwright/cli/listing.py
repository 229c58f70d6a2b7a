"""``trainwright listing``: the programs that the accelerator executes, one descriptor a line."""

import argparse
import sys
from pathlib import Path

from trainwright.cli.command import CommandBody
from trainwright.cli.errors import OptionError
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
from trainwright.cli.screen import add_wide_option, folded, screen_width
from trainwright.program.descriptors import Program
from trainwright.support.files import write_whole

PARTS = ("forward", "backward")
SUFFIX = ".trwp"
"""Of program files."""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile the two programs of a training step and print their descriptors. Shifts are set "
        f"step by step while training and are 0 here. A file ending in {SUFFIX} is read as a "
        "program and printed."
    )
    add_network_argument(parser)
    add_ranks_option(parser)
    add_formats_option(parser)
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="default: 64")
    add_plan_option(parser)
    add_wide_option(parser)
    parser.add_argument("--part", choices=PARTS, help="print only this program")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FOLDER",
        help=f"also write the programs there, as forward{SUFFIX} and backward{SUFFIX}",
    )
    add_accelerator_options(parser)


def _list_file(args: argparse.Namespace) -> int:
    from trainwright.program.encoding import decode
    from trainwright.program.listing import listing

    parser = argparse.ArgumentParser()
    _add_arguments(parser)
    for name in ("batch", "ranks", "formats", "plan", "part", "save"):
        if getattr(args, name) != parser.get_default(name):
            raise OptionError(
                f"--{name} is of a network: {args.network} is a program already, leave it out"
            )

    try:
        data = Path(args.network).read_bytes()
    except OSError as error:
        raise OptionError(f"cannot read program {args.network!r}: {error.strerror}") from None
    text = listing(decode(data, accelerator_parameters(args.accelerator)))
    sys.stdout.write(text if args.wide else _narrow(text))
    return 0


INDENT = 14
"""Columns before what a descriptor does."""


def _narrow(text: str) -> str:
    width = screen_width()
    return "".join(f"{folded(line, width, INDENT)}\n" for line in text.splitlines())


def _save(folder: Path, part: str, program: Program) -> None:
    from trainwright.program.encoding import encode

    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{part}{SUFFIX}", encode(program))
    except OSError as error:
        raise OptionError(f"--save: cannot write to {str(folder)!r}: {error.strerror}") from None


def _run(args: argparse.Namespace) -> int:
    if args.network.endswith(SUFFIX):
        return _list_file(args)
    from trainwright.compiler import compile_step
    from trainwright.network import UserNames, load_network
    from trainwright.program.listing import listing

    network = with_formats(load_network(args.network), args.formats)
    network = with_ranks(network, args.ranks)
    user_names = UserNames.of_network(network)
    parameters = accelerator_parameters(args.accelerator, network)
    step = compile_step(network, args.batch, parameters, plan=args.plan)
    for part in PARTS if args.part is None else (args.part,):
        compiled = getattr(step, part)
        names = tuple(tensor.name for tensor in compiled.tensors)
        program = Program(compiled.descriptors, compiled.fingerprint, names)
        if args.save is not None:
            _save(args.save, part, program)
        print(f"; {part}: {len(program.descriptors)} descriptors, {compiled.macs:,} MACs")
        if args.wide:
            sys.stdout.write(listing(program))
        else:
            sys.stdout.write(_narrow(listing(program, user_names.short)))
    return 0


command = CommandBody(_add_arguments, _run)
