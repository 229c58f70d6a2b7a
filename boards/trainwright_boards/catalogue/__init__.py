"""The boards, one file a family; a board is data."""

from collections.abc import Iterable
from types import MappingProxyType

from trainwright.support.text import suggestion
from trainwright_boards.board import Board
from trainwright_boards.catalogue.arty import ARTY_A7_35T, ARTY_A7_100T
from trainwright_boards.catalogue.colorlight import COLORLIGHT_I9, COLORLIGHT_I9PLUS
from trainwright_boards.catalogue.crosslink_nx import CROSSLINK_NX_EVN
from trainwright_boards.catalogue.ecpix5 import ECPIX5_85F
from trainwright_boards.catalogue.icesugar_pro import ICESUGAR_PRO
from trainwright_boards.catalogue.nexys import NEXYS_A7_100T
from trainwright_boards.catalogue.orangecrab import ORANGECRAB_85F
from trainwright_boards.catalogue.tang_mega import TANG_MEGA_138K
from trainwright_boards.catalogue.ulx3s import ULX3S_12F, ULX3S_25F, ULX3S_45F, ULX3S_85F
from trainwright_boards.catalogue.zynq import EXPORTS
from trainwright_boards.tools import BuildError

_ALL = (
    *(ULX3S_85F, ULX3S_45F, ULX3S_25F, ULX3S_12F, ORANGECRAB_85F, ECPIX5_85F, COLORLIGHT_I9),
    *(ICESUGAR_PRO, CROSSLINK_NX_EVN, TANG_MEGA_138K),
    *(ARTY_A7_35T, ARTY_A7_100T, NEXYS_A7_100T, COLORLIGHT_I9PLUS),
)
BOARDS = MappingProxyType({board.name: board for board in _ALL})
"""Boards by name."""


def find_board(name: str, *, also: Iterable[str] = ()) -> Board:
    """Return a board by its name.

    Raises ``BuildError`` for an unknown name; ``also`` are other names that it proposes.
    """
    if name in EXPORTS and name not in also:
        raise BuildError(
            f"{name} has a processor and no serial line: `trainwright export {name}` writes the "
            "files for Vivado"
        )
    if name not in BOARDS:
        known = (*BOARDS, *also)
        raise BuildError(
            f"no board {name!r}; there are {', '.join(known)} (`trainwright boards`)"
            f"{suggestion(name, known)}"
        )
    return BOARDS[name]
