"""Cut tensors of more bits than a word into digits, in loop nests and in memory.

Each digit of a row has a row of its own; the rows follow one another, the highest digit first. So a
tensor of n digits has n times as many rows, and addresses and strides are n times as large. A
contraction that reads the tensor has one more summed level, over the digits. ``forms.nests`` makes
these levels, ``forms.external`` packs digits.
"""

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from trainwright.compiler.base.errors import CompileError
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import DIGIT_WIDTH, Level

if TYPE_CHECKING:
    import torch

Values = TypeVar("Values", "torch.Tensor", npt.NDArray[np.int64])
"""Integers."""


def most_bits(digits: int, p: AcceleratorParameters) -> int:
    """Return the bits of the widest values that are written in ``digits`` digits."""
    return min(p.result_width, 1 + DIGIT_WIDTH * digits)


def cut(values: Values, digits: int) -> list[Values]:
    """Return the digits of integers, the highest first: signed, the rest from 0 to 127."""
    if digits == 1:
        return [values]
    # Signed only at the top: sum of digit n * 2^(7 n) is the value, and a product of digits needs
    # no correction.
    lower = [
        (values >> DIGIT_WIDTH * n) & ((1 << DIGIT_WIDTH) - 1) for n in reversed(range(digits - 1))
    ]
    return [values >> DIGIT_WIDTH * (digits - 1), *lower]


def require_weights(name: str, x: int, g: int) -> None:
    """Raise ``CompileError`` for a product of two operands of three digits each.

    A digit's weight follows from the indices of two levels, one of which counts to 2 at most.
    """
    if min(x, g) > 2:
        raise CompileError(
            f"{name}: both of its operands have {min(x, g)} digits of 7 bits, on words of 8 bits "
            "one must have 2 or less: choose fixed(15) instead of 16 bits for one of them"
        )


def digit_levels(x: int, g: int, step: int) -> list[Level]:
    """Return the summed levels over the digits of a contraction's operands, the outer one first.

    x has ``x`` digits; g has ``g`` digits, ``step`` rows apart. If both have several digits, the
    inner level counts to 2.
    """
    over = [Level(x, x=1)] if x > 1 else []
    over += [Level(g, g=step)] if g > 1 else []
    # The hardware shifts by the weight of a digit pair, from the indices of these two levels; the
    # inner one has a single bit.
    return over[::-1] if len(over) == 2 and g > 2 else over


def element_levels(x: int, g: int) -> list[Level]:
    """Return the summed level over the ``x`` digits of both operands of BIAS or MASK.

    A mask may have one digit (``g``): the sign decides, and the highest digit has it.
    """
    return [Level(x, x=1, g=int(g > 1))] if x > 1 else []
