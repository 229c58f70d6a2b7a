"""What a block's elements allow: the paper's listing 5, for negative numbers and zeros too.

As printed, listing 5 compares ``v`` and not ``|v|`` with the limits, so every negative number
falls below MIN and goes native, and so does every zero. Here |v| is compared and 0 passes.
"""

from enum import IntEnum

import torch
from torch import Tensor

from trainwright.ape.schemes import SCHEMES, value_range


class Level(IntEnum):
    """What an element, or the worst element of a block, asks for; a higher one contains it.

    ``HALF``: a float16, lo = 0. ``EXACT``: two scaled float16 hold it without error. ``F``: in the
    range of fp32-f with an error of at most 2^-23. ``B``, ``T``: in the range of fp32-b, fp32-t.
    ``NATIVE``: none of these; infinities and NaN.
    """

    HALF = 0
    EXACT = 1
    F = 2
    B = 3
    T = 4
    NATIVE = 5


def element_levels(x: Tensor) -> Tensor:
    """``Level`` of every element of a float32 tensor, as int8."""
    size = x.abs()
    levels = torch.full(x.shape, int(Level.NATIVE), dtype=torch.int8, device=x.device)

    def inside(dtype: str) -> Tensor:
        low, high = value_range(dtype)
        return (size >= low) & (size <= high)

    levels[inside("fp32-t")] = Level.T
    levels[inside("fp32-b")] = Level.B
    in_f = inside("fp32-f")
    high = x.to(torch.float16)
    rest = (x - high.to(torch.float32)) * 2.0 ** SCHEMES["fp32-f"].scales[1]
    low = rest.to(torch.float16)
    # A tie in the top binade leaves 2^16, beyond float16: it saturates with twice the error.
    levels[in_f & (rest.abs() < 2.0**16)] = Level.F
    levels[in_f & (low.to(torch.float32) == rest)] = Level.EXACT
    levels[(in_f & (rest == 0)) | (x == 0)] = Level.HALF
    return levels


def _blocks(x: Tensor, rows: int, columns: int, fill: float) -> Tensor:
    """(M, N) padded with ``fill`` and cut: (M/rows, N/columns, rows * columns)."""
    m, n = x.shape
    padded = torch.nn.functional.pad(x, (0, -n % columns, 0, -m % rows), value=fill)
    cut = padded.reshape(-(-m // rows), rows, -(-n // columns), columns)
    return cut.transpose(1, 2).reshape(cut.shape[0], cut.shape[2], rows * columns)


def block_levels(x: Tensor, rows: int, columns: int) -> Tensor:
    """The highest ``Level`` in each block of x (M, N): int8 (ceil(M/rows), ceil(N/columns))."""
    if 0 in x.shape:
        return torch.zeros(-(-x.shape[0] // rows), -(-x.shape[1] // columns), dtype=torch.int8)
    return _blocks(element_levels(x), rows, columns, 0).amax(-1)


def block_mask(x: Tensor, rows: int, columns: int) -> list[list[str]]:
    """Listing 5: for each block ``fp32-f``, ``fp32-b`` or ``fp32``, by the ranges alone."""
    size = x.abs()

    def outside(dtype: str) -> Tensor:
        low, high = value_range(dtype)
        return ~(((size >= low) & (size <= high)) | (size == 0))

    code = outside("fp32-f").to(torch.int8) + outside("fp32-b").to(torch.int8)
    if 0 in x.shape:
        return []
    names = ("fp32-f", "fp32-b", "fp32")
    return [[names[n] for n in line] for line in _blocks(code, rows, columns, 0).amax(-1).tolist()]


def block_extent(x: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """(least |x| other than 0, largest |x|) of each block in float64.

    A block of zeros has (inf, 0).
    """
    size = x.abs().to(torch.float64)
    least = torch.where(size == 0, torch.inf, size)
    return (
        _blocks(least, rows, columns, torch.inf).amin(-1),
        _blocks(size, rows, columns, 0.0).amax(-1),
    )
