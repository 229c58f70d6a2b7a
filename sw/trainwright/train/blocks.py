"""Block scales of factors: powers of two along a bond that cost neither a bit nor hardware.

Multiplying column r of bond n by 2^b in G_n and by 2^-b in G_{n+1} does not change W. Only the
quantisation of the two blocks G_n(:, :, :, r) and G_{n+1}(r, :, :, :) changes. So each pair of
blocks has a scale of its own, b, which needs no storage because the master weights are multiplied.
A column that the rank prior shrinks, or that its neighbour has outgrown, keeps using its bits.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch

from trainwright.train.adam import Parameter

UNEVEN = 1.25
"""Binary logarithm of the ratio of two blocks' sizes, in quantisation steps, above which blocks are
moved. A move changes the logarithm by 2, so that blocks do not move back and forth."""


def moves(left: torch.Tensor, right: torch.Tensor, exponents: tuple[int, int]) -> torch.Tensor:
    """Return by how much b of each column should move: -1, 0 or 1; int64 (R_n,).

    ``left`` (R_{n-1}, J_n, I_n, R_n) and ``right`` are master weights, quantised with
    ``exponents``. Size is the root of the mean square; a block of zeros does not move.
    """
    on_left = left.to(torch.float64).square().mean((0, 1, 2))
    on_right = right.to(torch.float64).square().mean((1, 2, 3))
    # Mean squares grow with the square of the size, hence the factor of a half; the exponents turn
    # sizes into quantisation steps.
    uneven = 0.5 * (on_left / on_right).log2() - (exponents[0] - exponents[1])
    # A block of zeros has a ratio of 0, infinity or NaN: no move.
    uneven = uneven.where((on_left > 0) & (on_right > 0), 0.0)
    return (uneven < -UNEVEN).to(torch.int64) - (uneven > UNEVEN).to(torch.int64)


def scale(parameter: Parameter, powers: torch.Tensor) -> None:
    """Multiply by 2^powers, of -1, 0 and 1, which broadcast; Adam's moments follow. Exact."""
    # Powers of two multiply floats exactly. A value that grows by 2^b has a gradient that shrinks
    # by 2^b, and Adam's second moment is a squared gradient.
    halves = torch.tensor([0.5, 1.0, 2.0])
    value, gradient = halves[1 + powers], halves[1 - powers]
    parameter.value = parameter.value * value
    parameter.first = parameter.first * gradient
    parameter.second = parameter.second * gradient * gradient


def balance(factors: Sequence[Parameter], exponents: Sequence[int]) -> None:
    """Move the blocks of one layer, bond by bond."""
    for (left, right), pair in zip(pairwise(factors), pairwise(exponents), strict=True):
        powers = moves(left.value, right.value, pair)
        if powers.any():
            scale(left, powers)
            scale(right, -powers[:, None, None, None])
