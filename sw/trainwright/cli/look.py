"""``trainwright look``: where a board is that trains without its host."""

import argparse
import json
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

from trainwright.accelerator import backend_names, is_backend, open_accelerator
from trainwright.cli.backend import MEMORY_BYTES
from trainwright.cli.command import CommandBody
from trainwright.cli.errors import OptionError
from trainwright.cli.options import accelerator_parameters, add_accelerator_options

if TYPE_CHECKING:
    from trainwright.driver.look import Look

DESCRIPTION = """\
Show the state of a board that trains alone (`trainwright train --update chip`, see
docs/guide/boards.md): step, epoch, loss and accuracy since the last start, ranks, exponents. The
board's run goes on unchanged. Any computer may look; the computer that has the run's folder takes
the run over with `trainwright train --resume`.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(
        "--backend", required=True, metavar="NAME", help="the board, as serial:/dev/ttyUSB0"
    )
    add_accelerator_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def text_of(found: "Look") -> str:
    """What is printed without ``--json``."""
    lines = [f"{found.network}, ranks {' | '.join(' '.join(map(str, r)) for r in found.ranks)}"]
    if found.step is None:
        lines.append(f"{found.state}; {found.total} steps in all")
    else:
        lines.append(f"{found.state}: step {found.step}/{found.total}, epoch {found.epoch}")
    if found.samples:
        share = (found.correct or 0) / found.samples
        lines.append(f"loss {found.loss:.4f}, accuracy {share:.1%} since its last start")
    lines.append("exponents " + ", ".join(f"{n} {e}" for n, e in found.exponents.items()))
    return "\n".join(lines)


def _run(args: argparse.Namespace) -> int:
    from trainwright.driver.look import Observed, look

    if not is_backend(args.backend):
        names = ", ".join(backend_names())
        raise OptionError(f"--backend must be one of {names}, not {args.backend!r}")
    parameters = accelerator_parameters(args.accelerator)
    try:
        board = open_accelerator(args.backend, parameters, memory_bytes=MEMORY_BYTES)
    except ValueError as error:
        raise OptionError(f"back end {args.backend!r}: {error}") from error
    with closing(board):
        if not hasattr(board, "attend"):
            raise OptionError(f"{args.backend} ends with its host: look at a board, serial:PORT")
        found = look(cast(Observed, board))
    print(json.dumps(asdict(found)) if args.json else text_of(found))
    return 0


command = CommandBody(_add_arguments, _run)
