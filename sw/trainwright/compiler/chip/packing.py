"""Rows of elements to entries of the factor stores, of few bits an element, as products of rows.

A *packing* block of 16 rows puts the elements of a row beside each other in bytes: byte l is the
sum of 2^shift * element k over the elements that it holds. All but the highest element of a byte
are to be unsigned there; STORE keeps the lowest 8 bits of the sum.
"""

import numpy as np
import numpy.typing as npt

from trainwright.onchip.layout import LANES
from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import Target

PACKING = "packing"
"""Buffer of the packing rows."""


def entries_a_row(target: Target, p: AcceleratorParameters) -> int:
    """Store entries that a row of 16 bytes holds."""
    width = p.lanes if target is Target.PE1_STORE else p.pe2_rows
    return 8 * LANES // (width * p.factor_storage_width)


def packing_rows(p: AcceleratorParameters) -> npt.NDArray[np.int64]:
    """Blocks of 16 rows: for each place of an entry in a row of bytes, first of PE1's store, then
    of PE2's for each tile of words that its entries take from a row."""
    bits = p.factor_storage_width
    in_byte = 8 // bits
    blocks = []
    for target, width in ((Target.PE1_STORE, p.lanes), (Target.PE2_STORE, p.pe2_rows)):
        for tile in range(LANES // width):
            for place in range(entries_a_row(target, p)):
                block = np.zeros((LANES, LANES), np.int64)
                for n in range(width):
                    byte = place * width // in_byte + n // in_byte
                    block[byte, tile * width + n] = 1 << bits * (n % in_byte)
                blocks.append(block)
    return np.concatenate(blocks)
