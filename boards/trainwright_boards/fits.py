"""Whether an accelerator fits a part, before anything is built."""

from trainwright.formats import OPERAND_WIDTH
from trainwright.parameters import TABLE_WORD_WIDTH, TABLES, AcceleratorParameters, preset
from trainwright.program.vector import REGISTERS, THREADS, WIDTH
from trainwright_boards.board import BLOCK, MEMORIES, SDRAM, Board, Part
from trainwright_boards.catalogue.zynq import ZynqBoard
from trainwright_boards.tools import BuildError
from trainwright_hw.arith.multiplier import LOGIC, PAIRS

SHAPES = ((16384, 1), (8192, 2), (4096, 4), (2048, 9), (1024, 18), (512, 36))
"""Depth and width of a DP16KD of an ECP5, and of a BSRAM of a GW5A."""
LUT_RAM_WORDS, LUT_RAM_BITS = 16, 4
"""Size of the distributed RAM of both families."""
LUT_RAM_COST, REGISTER_COST, BLOCK_RAM_COST = 4, 1, 128
"""Costs by which yosys chooses: of a distributed RAM, of the register behind each bit that it reads
(a block RAM has its own), and of a block RAM. Measured with yosys 0.70 on memories of 16 to 128
words of 4 to 128 bits, where equal costs gave distributed RAM."""
REGISTER_COPIES, TABLE_BLOCK_RAMS, CODE_BLOCK_RAMS = 3, 1, 2
"""Block RAMs of a vector engine: copies of a lane's registers, its table, the instructions."""


def block_rams(width: int, depth: int) -> int:
    """Count the DP16KD of a memory of one read and one write port that is made of them."""
    return min(-(-width // w) * -(-depth // d) for d, w in SHAPES)


def chosen_block_rams(width: int, depth: int) -> int:
    """Count the DP16KD that yosys makes of a memory, 0 where distributed RAM costs no more."""
    small = -(-width // LUT_RAM_BITS) * -(-depth // LUT_RAM_WORDS)
    blocks = block_rams(width, depth)
    in_luts = small * LUT_RAM_COST + width * REGISTER_COST <= blocks * BLOCK_RAM_COST
    return 0 if in_luts else blocks


def needed_block_rams(p: AcceleratorParameters, memory_bytes: int) -> int:
    """Count the DP16KD of accelerator, ``memory_bytes`` of external memory and link.

    Synthesis makes no more; it makes fewer where it finds bits that nothing reads. Statistics and
    all queues but one are read without a clock, which distributed RAM alone can do.
    """
    beats = 1024 // p.data_width
    queue = max(128, 2 * p.burst_beats) + 1
    memories = [
        *[(p.lanes * p.word_width, p.bank_rows)] * p.scratchpad_banks,
        *[(p.data_width, p.program_depth)] * beats,
        (p.data_width, queue),
        (p.data_width, memory_bytes // p.beat_bytes),
        *[(OPERAND_WIDTH, TABLES << TABLE_WORD_WIDTH)] * p.decoder_tables,
        (32, 512),  # the link's payload
    ]
    blocks = sum(chosen_block_rams(width, depth) for width, depth in memories)
    registers = block_rams(WIDTH, REGISTERS * THREADS * p.engine_parts)
    lane = REGISTER_COPIES * registers + TABLE_BLOCK_RAMS
    return blocks + p.vector_engine * (lane * p.engine_width + CODE_BLOCK_RAMS)


def obstacles(p: AcceleratorParameters, part: Part, memory_bytes: int) -> list[str]:
    """Return why an accelerator does not fit a part; empty if no reason is known.

    The number of LUTs is known only after synthesis.
    """
    reasons = []
    needed = p.device_multipliers
    if part.family not in LOGIC | PAIRS:  # each product, narrow or not, takes one
        needed = p.multipliers + 2 * p.lanes + p.vector_engine * p.engine_width
    if needed > part.multipliers:
        reasons.append(f"{needed} multipliers, it has {part.multipliers}")
    rams = needed_block_rams(p, memory_bytes)
    if rams > part.block_rams:
        reasons.append(f"{rams} block RAMs, it has {part.block_rams}")
    return reasons


def on_chip_bytes(board: Board, memory: str) -> int:
    """Return how many bytes of the external memory are block RAM. Raises ``ValueError``."""
    if memory not in MEMORIES:
        raise ValueError(f"memory must be one of {', '.join(MEMORIES)}, not {memory!r}")
    return board.memories[memory] if memory == BLOCK else 0


def zynq_part(board: ZynqBoard) -> Part:
    """Return the part of a Zynq, whose block RAMs of 36 Kbit count as two of 18 Kbit."""
    has = board.available
    return Part(
        name=board.part,
        family=board.processor.family,
        luts=has["luts"],
        multipliers=has["multipliers"],
        block_rams=2 * has["block_rams"],
        options=(),
        flip_flops_per_lut=has["flip_flops"] // has["luts"],
    )


def check_fits(
    p: AcceleratorParameters, board: Board | ZynqBoard, name: str, memory: str = BLOCK
) -> None:
    """Raise ``BuildError`` where an accelerator with its memory does not fit a board.

    ``p`` is preset ``name``, or has sizes or formats in addition. The memory of a Zynq is its
    processor's.
    """
    other = ""
    if isinstance(board, ZynqBoard):
        reasons, part = obstacles(p, zynq_part(board), 0), board.part
    else:
        reasons, part = obstacles(p, board.part, on_chip_bytes(board, memory)), board.part.name
        if board.sdram is not None and not obstacles(p, board.part, on_chip_bytes(board, SDRAM)):
            other = ", or this preset with --memory sdram"
    if reasons:
        own = "" if p == preset(name) else " with these sizes or formats"
        raise BuildError(
            f"preset {name!r}{own} does not fit the {part} of {board.name}: it needs "
            f"{' and '.join(reasons)}; --preset {board.preset} {'alone ' * bool(own)}fits{other}"
        )


def choose_memory(board: Board, wanted: str | None, needed: int, what: str) -> str:
    """Return the requested memory of the board, or the first with ``needed`` bytes.

    Raises ``BuildError`` where the board has no such memory, or ``what`` does not fit it.
    """
    if wanted is not None and wanted not in board.memories:
        raise BuildError(f"{board.name} has no {wanted}; --memory {' or '.join(board.memories)}")
    enough = [name for name, size in board.memories.items() if size >= needed]
    if wanted is None and enough:
        return enough[0]
    if wanted in enough:
        return wanted
    sizes = {wanted: board.memories[wanted]} if wanted is not None else board.memories
    has = " and ".join(f"{size} of {name}" for name, size in sizes.items())
    remedy = [f"--memory {name}" for name in enough] + ["a smaller --batch", "another board"]
    raise BuildError(
        f"{what} needs {needed} bytes of memory, {board.name} has {has}: "
        f"choose {' or '.join(remedy)}"
    )
