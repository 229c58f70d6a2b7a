"""Tensors of more bits than a word: their digits in loop nests and in memory.

The digits of a row are rows of their own, one behind the other, the highest first. So a tensor of
n digits is one of n times as many rows: addresses and strides are n times as large, and wherever it
is an operand a summed level more goes over its digits.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from trainwright.compiler.errors import CompileError
from trainwright.formats import Fixed, Format
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import DIGIT_WIDTH, Compute, Level, digit_count
from trainwright.program.fields import Operation

Values = TypeVar("Values", torch.Tensor, npt.NDArray[np.int64])
"""Integers."""
ELEMENTWISE = (Operation.BIAS, Operation.MASK)


def digits_of(fmt: Format, p: AcceleratorParameters) -> int:
    """Digits, and so rows a row, of a tensor in the scratchpad."""
    return digit_count(fmt.width) if p.wide_tensors and isinstance(fmt, Fixed) else 1


def most_bits(digits: int, p: AcceleratorParameters) -> int:
    """Bits of the widest values of so many digits that are written."""
    return min(p.result_width, 1 + DIGIT_WIDTH * digits)


def cut(values: Values, digits: int) -> list[Values]:
    """The digits of integers, the highest first: signed, and the others from 0 to 127."""
    if digits == 1:
        return [values]
    lower = [
        (values >> DIGIT_WIDTH * n) & ((1 << DIGIT_WIDTH) - 1) for n in reversed(range(digits - 1))
    ]
    return [values >> DIGIT_WIDTH * (digits - 1), *lower]


def joined(digits: torch.Tensor) -> torch.Tensor:
    """Integers (..., lanes) from their digits (..., digits, lanes), the highest first."""
    whole = digits[..., 0, :]
    for n in range(1, digits.shape[-2]):
        whole = (whole << DIGIT_WIDTH) + digits[..., n, :]
    return whole


def require_weights(name: str, x: int, g: int) -> None:
    """Raise ``CompileError`` for a product of two operands of three digits each, whose weights no
    order of two levels gives."""
    if min(x, g) > 2:
        raise CompileError(
            f"{name}: both of its operands have {min(x, g)} digits of 7 bits, one of two can "
            "have more than 2 on words of 8 bits: choose fixed(15) instead of 16 bits for either"
        )


def digit_levels(x: int, g: int, step: int) -> list[Level]:
    """The summed levels over the digits of the operands of a contraction, the outer one first:
    ``x`` and ``g`` of them, ``step`` from one of g to the next. The inner one of two has 2."""
    over = [Level(x, x=1)] if x > 1 else []
    over += [Level(g, g=step)] if g > 1 else []
    return over[::-1] if len(over) == 2 and g > 2 else over


def element_levels(x: int, g: int) -> list[Level]:
    """The summed level over the ``x`` digits of both operands of BIAS or MASK; a mask may be of one
    digit (``g``)."""
    return [Level(x, x=1, g=int(g > 1))] if x > 1 else []


def by_digits(
    d: Compute,
    p: AcceleratorParameters,
    *,
    x: int = 1,
    g: int = 1,
    z: int = 1,
    entries: int = 0,
) -> Compute:
    """A nest on whole rows as one on the digits of its operands and of its result.

    ``x``, ``g``, ``z``: digits of each; ``entries``: of a factor store, from one digit of g to the
    next. Raises ``CompileError`` for pairs of which both have three (``require_weights``).
    """
    if x == g == z == 1:
        return d
    if d.operation not in ELEMENTWISE:
        require_weights(d.tensor, x, g)
    d = _split_groups(d, p) if d.operation is Operation.PE3 and g > 1 else d
    rows = 1 if entries else g  # by which its addresses grow
    levels = tuple(
        replace(v, x=v.x * x, g=_second_step(d, p, v.g, rows), z=v.z * z) for v in d.levels
    )
    outer, summed = levels[: len(d.outer)], levels[len(d.outer) :]
    step = entries or (p.lanes // p.pe2_rows if d.operation is Operation.PE3 else 1)
    elementwise = d.operation in ELEMENTWISE
    over = element_levels(x, g) if elementwise else digit_levels(x, g, step)
    return replace(
        d,
        levels=(*outer, *over, *summed),
        reduce_levels=d.reduce_levels + len(over),
        digits=len(over),
        x_row_stride=d.x_row_stride * x,
        z_row_stride=d.z_row_stride * z,
        g_row_stride=d.g_row_stride * g,
    )


def _second_step(d: Compute, p: AcceleratorParameters, step: int, rows: int) -> int:
    """The step of a level, where each row of the second operand takes ``rows`` rows: PE3's are in
    groups, which move only within a row unless they are whole rows."""
    groups = p.lanes // p.pe2_rows
    return step if d.operation is Operation.PE3 and step % groups else step * rows


def _split_groups(d: Compute, p: AcceleratorParameters) -> Compute:
    """PE3: levels that go over groups of several rows as two, over rows and groups of a row."""
    groups = p.lanes // p.pe2_rows
    levels: list[Level] = []
    tile = 0
    for index, v in enumerate(d.levels):
        if v.g % groups and v.count * v.g > groups:
            inside = groups // v.g
            assert not groups % v.g and not v.count % inside and not d.g % groups, (d, v)
            assert index != d.tile_level or d.last_rows == p.pe2_rows, d
            outer = Level(v.count // inside, x=v.x * inside, g=groups, z=v.z * inside)
            levels += [outer, replace(v, count=inside)]
        else:
            levels.append(v)
        if index == d.tile_level:
            tile = len(levels) - 1
    return replace(d, levels=tuple(levels), tile_level=tile)
