"""What differs from one family of devices to another, from the top of a design to the bitstream."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from trainwright_boards.board import BLOCK, Board
from trainwright_boards.job import Build, Steps
from trainwright_boards.top import CLOCK, LAMP, RX, TX, BoardTop
from trainwright_hw.soc import Soc


def places(board: Board) -> dict[str, str]:
    """The pin of every port that all boards have."""
    return {CLOCK: board.clock_pin, RX: board.rx_pin, TX: board.tx_pin, LAMP: board.lamp_pin}


class Family(ABC):
    """The tools of a family, and their files."""

    pins: str
    """File of the constraints."""
    placed: str
    """File that place and route makes."""
    bitstream: str
    """File that is loaded."""

    @abstractmethod
    def top(self, board: Board, clock_hz: int) -> Callable[[Soc], BoardTop]:
        """What makes the design. Raises ``ValueError`` for a clock that cannot be made."""

    @abstractmethod
    def running_hz(self, board: Board, asked_hz: int) -> int:
        """Return the clock that the board runs at where ``asked_hz`` is asked for.

        Raises ``ValueError`` for a clock that it cannot make.
        """

    @abstractmethod
    def constraints(self, board: Board, memory: str = BLOCK) -> str:
        """Every pin's place, and what the tool wants to know of the pins besides."""

    @abstractmethod
    def passes(
        self, rtlil: str, top: str, *, plain: bool, delay_ps: int | None = None
    ) -> str:  # fmt: skip
        """The script of synthesis, up to its last command, which takes ``-json FILE``."""

    @abstractmethod
    def place_and_route(
        self, build: Build, steps: Steps, options: Sequence[str], *, route: bool = True
    ) -> None:
        """``top.json`` to ``placed`` and ``timing.json``; timing that fails is only reported.

        Without ``route`` it stops once all cells are placed.
        """

    @abstractmethod
    def pack(self, steps: Steps, board: Board) -> None:
        """``placed`` to ``bitstream``."""

    @abstractmethod
    def check_bitstream(self, steps: Steps, board: Board) -> int:
        """The way back from the bitstream; how many tiles are set. Raises ``BuildError`` where it
        is not that of ``placed``.
        """
