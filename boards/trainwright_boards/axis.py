"""The axis ``board`` of ``trainwright sweep``."""

from trainwright.cli.errors import OptionError
from trainwright_boards.catalogue import find_board
from trainwright_boards.tools import BuildError


def options(value: object) -> tuple[str, ...]:
    """Return the options of ``trainwright train`` that select the accelerator of a board's preset.

    Raises ``OptionError`` for an unknown board.
    """
    try:
        return "--preset", find_board(str(value)).preset
    except BuildError as error:
        raise OptionError(str(error)) from None
