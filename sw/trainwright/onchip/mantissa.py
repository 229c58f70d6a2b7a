"""A sum's mantissa and length as instructions of the vector engine, to look it up in a table."""

from trainwright.onchip.functions import MANTISSA
from trainwright.onchip.instructions import keep
from trainwright.program.vector import Addend, Instruction, Kind, ShiftBy, When

BACK, UP, DOWN, POWER, TWO = range(5)
CONSTANTS = (-MANTISSA, MANTISSA - 1, 1 - MANTISSA, 1 << (MANTISSA - 1), 2)
"""The first constants of a pass with ``mantissa_code``."""


def mantissa_code(mantissa: int, length: int, a: int) -> tuple[Instruction, ...]:
    """Of a sum in register ``a``: twice its highest MANTISSA bits to register ``mantissa``, its
    bits less MANTISSA to ``length``; a sum of fewer bits is shifted to the left.
    """
    product, constant = Kind.PRODUCT, Addend.CONSTANT
    by_length = {"shift_by": ShiftBy.C, "c": length}
    return (
        keep(length, kind=Kind.LENGTH, a=a, k=BACK, addend=constant),
        keep(mantissa, kind=product, a=a, use_k=True, k=POWER),
        keep(length, a=length, k=UP, addend=constant),
        keep(mantissa, a=mantissa, **by_length),
        keep(length, a=length, k=DOWN, addend=constant),
        keep(mantissa, a=a, **by_length, when=When.POSITIVE),
        keep(mantissa, kind=product, a=mantissa, use_k=True, k=TWO),
    )
