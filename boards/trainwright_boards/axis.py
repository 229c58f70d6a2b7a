"""The axis ``board`` of ``trainwright sweep``."""

from trainwright.cli.errors import OptionError
from trainwright_boards.catalogue import find_board
from trainwright_boards.tools import BuildError


def options(value: object) -> tuple[str, ...]:
    """Options of ``trainwright train`` for a board by name: the accelerator of its preset.

    Raises ``OptionError`` for another name.
    """
    try:
        return "--preset", find_board(str(value)).preset
    except BuildError as error:
        raise OptionError(str(error)) from None
