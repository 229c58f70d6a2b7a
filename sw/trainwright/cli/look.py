"""``trainwright look``: how far a board is that trains without its host."""

from typing import TYPE_CHECKING, Annotated, cast

from trainwright.cli.backend import opened
from trainwright.cli.declare import command as make_command
from trainwright.cli.errors import OptionError
from trainwright.cli.options import AcceleratorOptions, JsonOptions, accelerator_parameters
from trainwright.cli.output import show
from trainwright.support.settings import Option
from trainwright.support.text import amount

if TYPE_CHECKING:
    from trainwright.driver.look import Look


class LookOptions(AcceleratorOptions, JsonOptions):
    """Show the state of a board that trains alone (`trainwright train --update chip`).

    Step, epoch, loss and accuracy since the last start, ranks, exponents (docs/guide/boards.md).
    The board's run goes on unchanged. Any computer may look; the computer that has the run's folder
    takes the run over with `trainwright train --resume`.
    """

    backend: Annotated[str, Option(metavar="NAME")]
    """the board, as serial:/dev/ttyUSB0"""


def text_of(seen: "Look") -> str:
    """Return the text that is printed without ``--json``."""
    lines = [f"{seen.network}, ranks {' | '.join(' '.join(map(str, r)) for r in seen.ranks)}"]
    total = f"{seen.state}; {amount(seen.total, 'step')} in all"
    step = f"{seen.state}: step {seen.step}/{seen.total}, epoch {seen.epoch}"
    lines.append(total if seen.step is None else step)
    if seen.samples:
        share = (seen.correct or 0) / seen.samples
        lines.append(f"loss {seen.loss:.4f}, accuracy {share:.1%} since its last start")
    lines.append("exponents " + ", ".join(f"{n} {e}" for n, e in seen.exponents.items()))
    return "\n".join(lines)


def _run(options: LookOptions) -> int:
    from trainwright.driver.look import Observed, look

    with opened(options.backend, accelerator_parameters(options.accelerator)) as board:
        if not hasattr(board, "attend"):
            raise OptionError(f"{options.backend} ends with its host: look at a board, serial:PORT")
        seen = look(cast(Observed, board))
    return show(options.json, seen, text_of(seen))


command = make_command(LookOptions, _run)
