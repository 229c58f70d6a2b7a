"""Define what differs between device families, from the top of a design to the bitstream."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from trainwright_boards.board import BLOCK, Board
from trainwright_boards.job import PACK, RTLIL, Build, Steps
from trainwright_boards.top import CLOCK, LAMP, RX, TX, BoardTop, PinClockTop
from trainwright_hw.soc import Soc


def places(board: Board) -> dict[str, str]:
    """Return the pin of each port that all boards have."""
    return {CLOCK: board.clock_pin, RX: board.rx_pin, TX: board.tx_pin, LAMP: board.lamp_pin}


class Family(ABC):
    """The tools of a family, and their files."""

    pins: str
    """File of the constraints."""
    placed: str
    """File that place and route makes."""
    bitstream: str
    """File that is loaded."""
    source: str = RTLIL
    """File that synthesis reads: RTLIL, or Verilog if a vendor's tools read the file, too."""
    last: str = PACK
    """Last of ``job.STAGES`` that tools from PyPI reach."""
    joins_luts: bool = False
    """Whether ``joined_luts`` knows the multiplexers of the slices."""
    beyond: str = ""
    """Words for messages: the tool that takes over after stage ``last``."""

    @abstractmethod
    def top(self, board: Board, clock_hz: int) -> Callable[[Soc], BoardTop]:
        """Return a function that builds the top. Raises ``ValueError`` for an impossible clock."""

    @abstractmethod
    def running_hz(self, board: Board, asked_hz: int) -> int:
        """Return the clock that the board runs at where ``asked_hz`` is asked for.

        Raises ``ValueError`` for a clock that it cannot make.
        """

    @abstractmethod
    def constraints(self, board: Board, memory: str = BLOCK) -> str:
        """Return the site of every pin, and what else the tool has to know about pins."""

    @abstractmethod
    def passes(
        self, source: str, top: str, *, plain: bool, delay_ps: int | None = None
    ) -> str:  # fmt: skip
        """Return the synthesis script up to its last command, which takes ``-json FILE``."""

    @abstractmethod
    def place_and_route(
        self, build: Build, steps: Steps, options: Sequence[str], *, route: bool = True
    ) -> None:
        """Turn ``top.json`` into ``placed`` and ``timing.json``.

        A clock that is not met is only reported. Without ``route``, stop once all cells are placed.
        """

    @abstractmethod
    def pack(self, steps: Steps, board: Board) -> None:
        """Turn ``placed`` into ``bitstream``."""

    @abstractmethod
    def check_bitstream(self, steps: Steps, board: Board) -> int:
        """Read the bitstream back, and return how many tiles it sets.

        Raises ``BuildError`` where it does not match ``placed``.
        """


class OwnClock(Family):
    """A family whose designs run at the board's own clock, as they have no PLL."""

    no_pll: str
    """Reason in the message for any other clock; ``{part}`` is the name of the part."""

    def running_hz(self, board: Board, asked_hz: int) -> int:
        """Return the board's own clock. Raises ``ValueError`` for another one."""
        self.top(board, asked_hz)
        return asked_hz

    def top(self, board: Board, clock_hz: int) -> Callable[[Soc], PinClockTop]:
        """Take the board's own clock. Raises ``ValueError`` for another one."""
        if clock_hz != board.clock_hz:
            raise ValueError(
                f"{board.name} runs at {board.clock_hz / 1e6:g} MHz and not at "
                f"{clock_hz / 1e6:g}: {self.no_pll.format(part=board.part.name)}"
            )
        return PinClockTop
