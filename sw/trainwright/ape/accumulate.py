"""Sums of products as a matrix unit forms them, simulated bit by bit on the CPU.

Products are exact. K is cut into blocks of a set length; a block's products and the accumulator are
added exactly and rounded once to float32. Length 1 is a chain of fused multiply-adds; the tensor
cores' sum is close to length 8, rounded toward zero (section 5.1).
"""

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from trainwright.ape.rounding import Rounding, to_float32
from trainwright.precision.rounding import power_of_two
from trainwright.support.arguments import is_size, take_numpy_sizes
from trainwright.support.errorfree import round_to_odd, two_sum


@dataclass(frozen=True, kw_only=True)
class Accumulation:
    """Rounding of float32 accumulators, and the products between two roundings.

    >>> import torch
    >>> from trainwright import ape
    >>> ones = torch.full((1, 4096), 1 + 2.0**-12)
    >>> exact = 4096 * (1 + 2.0**-12) ** 2
    >>> for how in (ape.NEAREST, ape.TENSOR_CORE):
    ...     product = ape.gemm(ones, ones, dtype="fp32-f", transpose_b=True, accumulation=how)
    ...     print(how.rounding, product.item() <= exact)
    nearest True
    zero True
    """

    rounding: Rounding = "nearest"
    block: int = 16

    def __post_init__(self) -> None:
        if self.rounding not in ("nearest", "zero"):
            raise ValueError(f"rounding must be 'nearest' or 'zero', not {self.rounding!r}")
        take_numpy_sizes(self, "block")
        if not is_size(self.block):
            raise ValueError(f"block must be an integer of at least 1, not {self.block!r}")


NEAREST = Accumulation()
"""Default: nearest rounding after every 16 products, the best a float32 accumulator can do."""
TENSOR_CORE = Accumulation(rounding="zero", block=8)
"""Behaviour that the paper observed of tensor cores: truncation after every step."""


def _slices(x: Tensor, width: int) -> list[tuple[Tensor, Tensor]]:
    """Split rows of ``x`` (M, K) into exact sums of slices of ``width`` bits.

    Returns (rows, slice) pairs, slice (len(rows), K). Slice n of a row has bits only between 2^(e -
    (n+1) width) and 2^(e - n width), with e the exponent above the row's largest element. The
    product of two slices is then exact in float64 in any order of summation.
    """
    rows = torch.arange(x.shape[0])
    top = torch.frexp(x.abs().amax(1)).exponent.to(torch.int64)  # |x| < 2^top
    slices = []
    while len(rows):
        top = top - width
        unit = power_of_two(top, torch.float64)[:, None]
        piece = torch.trunc(x / unit) * unit
        slices.append((rows, piece))
        x = x - piece
        left = (x != 0).any(1)
        rows, x, top = rows[left], x[left], top[left]
    return slices


@dataclass
class _Sum:
    """Exact sum of float64 terms (M, N): three overlapping floats, and marks where these fail."""

    s: Tensor
    e: Tensor
    f: Tensor | None = None
    lost: Tensor | None = None

    def add(self, rows: Tensor, columns: Tensor, term: Tensor) -> None:
        """Add ``term`` (len(rows), len(columns)) to the elements at these rows and columns."""
        if self.f is None or self.lost is None:
            self.f = torch.zeros_like(self.s)
            self.lost = torch.zeros_like(self.s, dtype=torch.bool)
        where = (rows[:, None], columns[None, :])
        s, rest = two_sum(self.s[where], term)
        e, rest = two_sum(self.e[where], rest)
        f, rest = two_sum(self.f[where], rest)
        self.s[where], self.e[where], self.f[where] = s, e, f
        self.lost[where] |= rest != 0

    def odd(self) -> Tensor:
        """Round the sum to odd; valid where nothing was lost."""
        if self.f is None:  # s and e come from a single two-sum
            return round_to_odd(self.s, self.e)
        # Error-free passes leave three floats that do not overlap, the largest first.
        s, e = two_sum(self.s, self.e)
        e, f = two_sum(e, self.f)
        s, e = two_sum(s, e)
        e, f = two_sum(e, f)
        s, e = two_sum(s, e)
        return round_to_odd(s, torch.where(e != 0, e, f))


def _exact_element(acc: float, a: Tensor, b: Tensor, rounding: Rounding) -> float:
    """Compute one element in rationals, for sums that three floats do not hold."""
    total = Fraction(acc)
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        total += Fraction(x) * Fraction(y)
    return to_float32(fraction_to_odd(total), rounding).item()


def fraction_to_odd(value: Fraction) -> Tensor:
    """Round a rational (within float64's exponent range) to odd in float64."""
    near = float(value)
    rest = value - Fraction(near)
    sign = (rest > 0) - (rest < 0)
    return round_to_odd(
        torch.tensor(near, dtype=torch.float64), torch.tensor(float(sign), dtype=torch.float64)
    )


def _step(acc: Tensor, a: Tensor, b: Tensor, how: Accumulation) -> Tensor:
    """Add a (M, k) @ b (k, N), all finite, to float64 acc (M, N); round once to float32 values."""
    # Products of two slices have 2 width bits; their sum has log2(k) more, and float64 holds 53.
    width = (53 - (a.shape[1] - 1).bit_length()) // 2
    left, right = _slices(a, width), _slices(b.T, width)
    total = _Sum(*two_sum(acc, left[0][1] @ right[0][1].T))
    for n, (rows, x) in enumerate(left):
        for m, (columns, y) in enumerate(right):
            if n or m:
                total.add(rows, columns, x @ y.T)
    result = to_float32(total.odd(), how.rounding)
    if total.lost is not None:
        for i, j in total.lost.nonzero().tolist():
            result[i, j] = _exact_element(acc[i, j].item(), a[i], b[:, j], how.rounding)
    return result


def _step_with_infinities(acc: Tensor, a: Tensor, b: Tensor, how: Accumulation) -> Tensor:
    """Run ``_step``; elements that meet an infinity or NaN follow IEEE 754."""
    fine_a, fine_b, fine_acc = torch.isfinite(a), torch.isfinite(b), torch.isfinite(acc)
    fine = fine_a.all(1)[:, None] & fine_b.all(0)[None, :] & fine_acc
    zero = torch.zeros((), dtype=torch.float64)
    exact = _step(
        torch.where(fine_acc, acc, zero),
        torch.where(fine_a, a, zero),
        torch.where(fine_b, b, zero),
        how,
    )
    return torch.where(fine, exact, acc + a @ b)


def accumulated(a: Tensor, b: Tensor, how: Accumulation) -> Tensor:
    """Sum products of a (M, K) and b (K, N), float64 with at most 24 bits, to float32 (M, N).

    Exact: after every ``how.block`` products the accumulator is fl32(accumulator + exact sum of the
    products). Infinities and NaN follow IEEE 754.
    """
    acc = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    most = a.abs().amax() * b.abs().amax() * a.shape[1]
    step = _step if bool(most < 2.0**127) else _step_with_infinities
    for begin in range(0, a.shape[1], how.block):
        end = begin + how.block
        acc = step(acc, a[:, begin:end], b[begin:end], how)
    return acc.to(torch.float32)
