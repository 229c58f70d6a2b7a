"""The clock that a board runs at, checked before anything is built."""

from collections.abc import Iterator

from trainwright.support.arguments import is_size
from trainwright_boards.board import MEMORIES, SDRAM, Board
from trainwright_boards.flow import family
from trainwright_boards.tools import BuildError
from trainwright_hw.link.uart import divisor

BAUDS = (3_000_000, 2_500_000, 2_000_000, 1_500_000, 1_000_000, 921_600, 460_800, 115_200)
"""Serial rates that are proposed, the fastest first: those that USB bridges are used at."""
MOST_MHZ = 100
"""Fastest clock that is proposed: designs were routed for up to 102 MHz, and PLLs make 250."""


def running_hz(board: Board, asked_hz: int, baud: int, memory: str) -> int:
    """Return the clock that runs where ``asked_hz`` is asked for.

    Raises ``BuildError`` where the board cannot make the clock, its SDRAM does not take it, or it
    gives no serial line of ``baud``; the message names clocks and rates that work. ``ValueError``
    for what is no clock, rate or memory.
    """
    for name, value in (("asked_hz", asked_hz), ("baud", baud)):
        if not is_size(value):
            raise ValueError(f"{name} must be an integer of at least 1, not {value!r}")
    if memory not in MEMORIES:
        raise ValueError(f"memory must be one of {', '.join(MEMORIES)}, not {memory!r}")
    try:
        return _checked_hz(board, asked_hz, baud, memory)
    except ValueError as error:
        raise BuildError(f"{error}; {_alternatives(board, asked_hz, baud, memory)}") from error


def slower_mhz(board: Board, most_mhz: float, baud: int, memory: str) -> int | None:
    """Return the fastest whole-MHz ``--clock`` whose running clock is at most ``most_mhz``."""
    for mhz, hz in _usable(board, baud, memory, range(int(most_mhz) + 1, 0, -1)):
        if hz <= most_mhz * 1e6:
            return mhz
    return None


def _checked_hz(board: Board, asked_hz: int, baud: int, memory: str) -> int:
    running = family(board).running_hz(board, asked_hz)
    if memory == SDRAM and board.sdram is not None:
        board.sdram.timing.cycles(running)
    divisor(running, baud)
    return running


def _usable(board: Board, baud: int, memory: str, clocks: range) -> Iterator[tuple[int, int]]:
    """Yield the whole MHz among ``clocks`` that work, with the clock that runs for each in Hz."""
    for mhz in clocks:
        try:
            yield mhz, _checked_hz(board, mhz * 1_000_000, baud, memory)
        except ValueError:
            continue


def _alternatives(board: Board, asked_hz: int, baud: int, memory: str) -> str:
    """Name the nearest clocks that work, and the fastest rates that work with the clock asked."""
    asked_mhz = asked_hz // 1_000_000
    below = next(_usable(board, baud, memory, range(min(asked_mhz, MOST_MHZ), 0, -1)), None)
    above = next(_usable(board, baud, memory, range(max(asked_mhz, 0) + 1, MOST_MHZ + 1)), None)
    remedies = [f"--clock {' or '.join(str(c[0]) for c in (below, above) if c is not None)}"]
    bauds = []
    for rate in BAUDS:
        try:
            if rate < baud:
                _checked_hz(board, asked_hz, rate, memory)
                bauds.append(str(rate))
        except ValueError:
            continue
    if bauds:
        remedies.append(f"--baud {' or '.join(bauds[:2])}")
    # PLLs make faster clocks, which no design keeps up with.
    is_most = asked_mhz > MOST_MHZ and below is not None and below[0] == MOST_MHZ
    why = "designs were routed for up to 102 MHz: " if is_most else ""
    return f"{why}choose {', or '.join(remedies)}"
