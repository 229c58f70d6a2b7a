"""Draw the masks of dropout for a step, or make every dropout the identity.

A mask is a buffer in rows of ``onchip.mask_pass``. Passes write pieces of it to the scratchpad, and
STORE copies them to external memory, where forward and backward pass load them.
"""

from collections.abc import Iterator, Sequence

from trainwright.compiler.base.errors import CompileError
from trainwright.compiler.base.memory import Region
from trainwright.compiler.chip.exponents import ExponentSlots
from trainwright.compiler.chip.memory import ChipMemory
from trainwright.compiler.chip.passes import Bank, Passes
from trainwright.graph.network import host_name
from trainwright.kernels import VectorPass, lower
from trainwright.network import Dropout
from trainwright.onchip.mask_pass import MASK, draw_kernel, identity_kernel
from trainwright.program.descriptors import Program
from trainwright.program.fields import LOCAL_WIDTH
from trainwright.program.vector import Stream

MOST_PASS_ROWS = 128
"""Rows of a mask that a pass writes at most: long enough that a command's start hardly counts."""


def masks_program(
    memory: ChipMemory, avoid: Sequence[Region] = (), *, slots: ExponentSlots, drawn: bool
) -> Program:
    """Return the program that draws all masks, or, unless ``drawn``, writes masks of -1.

    Rows of the scratchpad in ``avoid`` are not used. Raises ``CompileError`` where masks have more
    rows than random bits distinguish.
    """
    work = Passes(memory, slots, avoid)
    pieces = list(_pieces(memory, drawn=drawn))
    most = max((count for *_, count in pieces), default=0)
    # Two places: one is filled while the other is stored.
    places = [work.rows(MASK, most, Bank.IMAGES) for _ in pieces[:2]]
    for number, (kernel, name, key, first, count) in enumerate(pieces):
        to = places[number % len(places)].start
        work.run(kernel, {MASK: Stream(to, 0, 1)}, inner=count, key=key + first, tensor=name)
        work.store(name, to, count, first=first)
    return work.finish("the program of the masks")


def _pieces(memory: ChipMemory, *, drawn: bool) -> Iterator[tuple[VectorPass, str, int, int, int]]:
    """Yield kernel, buffer, key of the buffer's first row, first row and rows of each piece."""
    network, key, lanes = memory.step.network, 0, memory.layout.lanes
    for node in network.nodes:
        if not isinstance(node, Dropout):
            continue
        name = host_name(network, node)
        rows = memory.everything[name].size // lanes
        options = {"probability": node.probability} if drawn else {}
        kernel = lower(draw_kernel if drawn else identity_kernel, **options)
        for first in range(0, rows, MOST_PASS_ROWS):
            yield kernel, name, key, first, min(MOST_PASS_ROWS, rows - first)
        key += rows
        if key > 1 << LOCAL_WIDTH:
            raise CompileError(
                f"{network.name}: a step draws masks of more than {1 << LOCAL_WIDTH} rows of "
                f"{lanes} values; use a smaller batch, or --update host"
            )
