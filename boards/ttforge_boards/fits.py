"""Whether an accelerator fits a part, before anything is built."""

from ttforge.parameters import AcceleratorParameters
from ttforge_boards.board import Board, Part
from ttforge_boards.tools import BuildError

SHAPES = ((16384, 1), (8192, 2), (4096, 4), (2048, 9), (1024, 18), (512, 36))
"""Depth and width of a DP16KD of an ECP5."""
LEAST_DEPTH = 65
"""Memories of fewer words are made of LUTs; so are the statistics, and the queues but one."""


def block_rams(width: int, depth: int) -> int:
    """DP16KD of a memory of one read and one write port."""
    return min(-(-width // w) * -(-depth // d) for d, w in SHAPES)


def needed_block_rams(p: AcceleratorParameters, memory_bytes: int) -> int:
    """DP16KD of the accelerator, its external memory and the link."""
    beats = 1024 // p.data_width
    queue = max(128, 2 * p.burst_beats) + 1
    memories = [
        *[(p.lanes * p.word_width, p.bank_rows)] * p.scratchpad_banks,
        (p.lanes * p.factor_width, p.pe1_store_depth),
        (p.pe2_rows * p.factor_width, p.pe2_store_depth),
        *[(p.data_width, p.program_depth)] * beats,
        (p.data_width, queue),
        (p.data_width, memory_bytes // p.beat_bytes),
        (32, 512),  # the link's payload
    ]
    return sum(block_rams(width, depth) for width, depth in memories if depth >= LEAST_DEPTH)


def obstacles(p: AcceleratorParameters, part: Part, memory_bytes: int) -> list[str]:
    """Why an accelerator does not fit a part; empty if nothing is known against it.

    LUTs are known only after synthesis.
    """
    found = []
    multipliers = p.multipliers + 2 * p.lanes  # the vector unit shifts with two a lane
    if multipliers > part.multipliers:
        found.append(f"{multipliers} multipliers, it has {part.multipliers}")
    rams = needed_block_rams(p, memory_bytes)
    if rams > part.block_rams:
        found.append(f"{rams} block RAMs, it has {part.block_rams}")
    return found


def check_fits(p: AcceleratorParameters, board: Board, preset: str) -> None:
    """Raise ``BuildError`` where an accelerator does not fit a board."""
    found = obstacles(p, board.part, board.memory_bytes)
    if found:
        raise BuildError(
            f"preset {preset!r} does not fit the {board.part.name} of {board.name}: it needs "
            f"{' and '.join(found)}; --preset {board.preset} fits"
        )
