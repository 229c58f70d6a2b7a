"""``trainwright listing``: the programs that the accelerator executes, one descriptor a line."""

import sys
from pathlib import Path
from typing import Annotated

from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import StepOptions, WideOptions, accelerator_parameters
from trainwright.cli.screen import folded, screen_width
from trainwright.network import UserNames
from trainwright.program.descriptors import Program
from trainwright.support.errors import file_errors
from trainwright.support.files import write_whole
from trainwright.support.settings import OneOf, Option

PARTS = ("forward", "backward")
SUFFIX = ".trwp"
"""Ending of program files."""


class ListingOptions(StepOptions, WideOptions):
    """Compile the two programs of a training step and print their descriptors.

    Shifts are set step by step while training and are 0 here. A file ending in .trwp is read as a
    program and printed.
    """

    part: Annotated[str | None, OneOf(PARTS)] = None
    """print only this program"""
    save: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """also write the programs there, as forward.trwp and backward.trwp"""


def _list_file(options: ListingOptions) -> int:
    from trainwright.program.encoding import decode
    from trainwright.program.listing import listing

    plain = ListingOptions()
    for name in ("batch", "ranks", "formats", "plan", "part", "save"):
        if getattr(options, name) != getattr(plain, name):
            raise OptionError(
                f"--{name} is for a network: {options.network} is a program already, omit it"
            )

    with file_errors(f"cannot read program {options.network!r}"):
        data = Path(options.network).read_bytes()
    text = listing(decode(data, accelerator_parameters(options.accelerator)))
    sys.stdout.write(text if options.wide else _narrow(text))
    return 0


INDENT = 14
"""Columns before the text of a descriptor."""


def _narrow(text: str) -> str:
    width = screen_width()
    return "".join(f"{folded(line, width, INDENT)}\n" for line in text.splitlines())


def _save(folder: Path, part: str, program: Program) -> None:
    from trainwright.program.encoding import encode

    with file_errors(f"--save: cannot write to {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{part}{SUFFIX}", encode(program))


def _run(options: ListingOptions) -> int:
    if options.network.endswith(SUFFIX):
        return _list_file(options)
    from trainwright.compiler import compile_step
    from trainwright.program.listing import listing

    network = options.network_named(options.network)
    user_names = UserNames.of_network(network)
    parameters = accelerator_parameters(options.accelerator, network)
    step = compile_step(network, options.batch, parameters, plan=options.plan)
    for part in PARTS if options.part is None else (options.part,):
        compiled = getattr(step, part)
        names = tuple(tensor.name for tensor in compiled.tensors)
        program = Program(compiled.descriptors, compiled.fingerprint, names)
        if options.save is not None:
            _save(options.save, part, program)
        print(f"; {part}: {len(program.descriptors)} descriptors, {compiled.macs:,} MACs")
        wide = options.wide
        sys.stdout.write(listing(program) if wide else _narrow(listing(program, user_names.short)))
    return 0


command = make_command(ListingOptions, _run)
