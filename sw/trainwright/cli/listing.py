"""``trainwright listing``: the programs that the accelerator executes, one descriptor a line."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import (
    StepOptions,
    UpdateOptions,
    WideOptions,
    accelerator_and_place,
    accelerator_parameters,
)
from trainwright.cli.screen import folded, screen_width
from trainwright.network import Network, UserNames
from trainwright.parameters import AcceleratorParameters
from trainwright.support.errors import file_errors
from trainwright.support.settings import OneOf, Option, require_unset
from trainwright.support.text import amount

PARTS = ("forward", "backward", "samples", "step", "evaluation")
SUFFIX = ".trwp"
"""Ending of program files."""


class ListingOptions(StepOptions, UpdateOptions, WideOptions):
    """Compile the programs of a training step and print their descriptors.

    A step has a forward and a backward program. Training sets the shifts (`>>0`) anew in each step;
    they are 0 here. --update chip lists the single program of a step with loss and update, and the
    programs that fetch samples and classify a test set. A file ending in .trwp is read as a program
    and printed. docs/reference/program.md explains the operations and their fields.

    Examples
    --------
      trainwright listing digits --part forward     the forward program
      trainwright listing digits --save programs    both programs as files, too
      trainwright listing programs/forward.trwp     print a file
    """

    part: Annotated[str | None, OneOf(PARTS)] = None
    """print only this program"""
    save: Annotated[Path | None, Option(metavar="FOLDER")] = None
    """also write the programs there, such as forward.trwp, and the accelerator's sizes"""


def _list_file(options: ListingOptions) -> int:
    from trainwright.program.files import load_program
    from trainwright.program.listing import listing

    why = f"is for a network: {options.network} is a program already, omit it"
    require_unset(options, ("batch", "ranks", "formats", "plan", "update", "part", "save"), why)
    given = accelerator_parameters(options.accelerator) if options.accelerator else None
    text = listing(load_program(Path(options.network), given))
    sys.stdout.write(text if options.wide else _narrow(text))
    return 0


def check_part(part: str, programs: Iterable[str]) -> None:
    """Reject a program that a step does not have."""
    if part not in programs:
        how = f"{'omit' if 'step' in programs else 'add'} --update chip"
        raise OptionError(f"--part {part}: this step has the programs {', '.join(programs)}; {how}")


INDENT = 14
"""Columns before the text of a descriptor."""


def _narrow(text: str) -> str:
    width = screen_width()
    return "".join(f"{folded(line, width, INDENT)}\n" for line in text.splitlines())


def _programs(
    options: ListingOptions, network: Network, p: AcceleratorParameters, place: str
) -> dict[str, Any]:
    """Return the programs of a step by name: records with members ``program`` and ``macs``."""
    if place != "host":
        from trainwright.check.parts import golden_parts

        return golden_parts(network, options.batch, p, place, options.plan)
    from trainwright.compiler import compile_step

    return compile_step(network, options.batch, p, plan=options.plan).programs


def _run(options: ListingOptions) -> int:
    if options.network.endswith(SUFFIX):
        return _list_file(options)
    from trainwright.program.files import save_program
    from trainwright.program.listing import listing

    network = options.network_named(options.network)
    short = UserNames.of_network(network).short
    p, place = accelerator_and_place(options, network)
    programs = _programs(options, network, p, place)
    if options.part is not None:
        check_part(options.part, programs)
    if options.save is not None:
        with file_errors(f"--save: cannot write to {str(options.save)!r}"):
            for part in PARTS if options.part is None else (options.part,):
                path = options.save / f"{part}{SUFFIX}"
                if part in programs:
                    save_program(path, programs[part].program, p)
                else:
                    path.unlink(missing_ok=True)  # of another step
    for part in programs if options.part is None else (options.part,):
        program = programs[part].program
        length = amount(len(program.descriptors), "descriptor")
        print(f"; {part}: {length}, {programs[part].macs:,} MACs")
        sys.stdout.write(listing(program) if options.wide else _narrow(listing(program, short)))
    return 0


command = make_command(ListingOptions, _run)
