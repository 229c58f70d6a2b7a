"""Matrix products of expansions through integers of as many bits as each result needs.

Rows and columns are scaled by powers of two and become integers of p bits, whose products
``trainwright.precision.residues`` forms exactly. With |a'| and |b'| the scaled magnitudes, at most
1, an element errs by at most

    nc / 2 * 2^-p (sum_k |a'_ik| + sum_k |b'_kj|) (1 + 2^-20)

before its rounding. A float32 product of the magnitudes gives each element's sum of |a' b'|, hence
the p that it needs to err by at most 2^-(digits + 1) of that sum. Elements that need more than the
p chosen for all are summed one by one, so that **every** element errs by at most
(3 + log2 k) 2^-digits times the sum of |a b|, plus k times the least subnormal number, whatever
the scales of rows, columns and terms: digits = p_component * nc.
"""

from dataclasses import dataclass
from math import log2

import torch
from torch import Tensor

from trainwright.mcf import carriers
from trainwright.mcf.arithmetic import binary, total
from trainwright.precision import residues
from trainwright.precision.rounding import exponent_of, power_of_two, scale_by_power


@dataclass(frozen=True)
class Tuning:
    """Limits between the routes, from measurements on a Zen 4 with VNNI."""

    least_products: int = 1 << 20
    """Products a b below which sums one by one are faster: calls take about 1 ms."""
    least_reuse: float = 8.0
    """Products per element of operands and result below which conversions decide."""
    product_cost: float = 1200.0
    """Seconds of a product summed one by one, by those of an int8 product."""
    most_cost: float = 500.0
    """Int8 products per product above which sums one by one are faster: not reached before a
    third of the elements are summed so."""
    block: int = 2048
    """Rows and columns of a block: residues of both operands take 60 times its elements."""


TUNING = Tuning()
_TINY = 2.0**-60
"""Least magnitude of factors in the float32 product, which then never underflows."""
_SLACK = 1.05
"""Factor for the rounding of magnitudes and of their float32 product."""


def worthwhile(m: int, k: int, n: int) -> bool:
    """Return whether integers are faster than sums one by one, for usual numbers."""
    products = m * k * n
    traffic = m * k + k * n + m * n
    return products >= TUNING.least_products and products >= TUNING.least_reuse * traffic


def product(x: Tensor, y: Tensor) -> Tensor | None:
    """Multiply components (m, k, n) by (k, p, n') to (m, p, nc); ``None`` if other ways are faster.

    Elements that see an infinity or NaN are those of the leading components.
    """
    (a, fine_rows), (b, fine_columns) = _finite(x, 1), _finite(y, 0)
    sizes = _magnitudes(a), _magnitudes(b)
    exponents = _exponents(*sizes)
    nc = max(x.shape[-1], y.shape[-1])
    needed, largest = _needed_bits(*sizes, exponents, nc)
    chosen = _chosen_bits(needed, largest)
    if chosen is None:
        return None
    bits, moduli = chosen
    out = _in_blocks(a, b, exponents, bits, moduli, nc)
    poor = (needed > bits).nonzero(as_tuple=True)
    if len(poor[0]):
        out[poor] = _one_by_one(a, b, poor)
    fine = fine_rows[:, None] & fine_columns[None, :]
    if not bool(fine.all()):
        plain = torch.matmul(x[..., 0], y[..., 0])
        out[..., 0] = torch.where(fine, out[..., 0], plain)
        out[..., 1:] *= fine.unsqueeze(-1)
    return out


def _finite(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Replace numbers that are not finite by 0; return also which rows or columns have none."""
    finite = torch.isfinite(x[..., 0])
    fine = finite.all(dim)
    if not bool(fine.all()):
        x = torch.where(finite.unsqueeze(-1), x, 0)
    return x, fine


def _magnitudes(x: Tensor) -> Tensor:
    """Bound |x| by the sum of its components' magnitudes: components may be out of order."""
    size = x[..., 0].abs()
    for part in x.unbind(-1)[1:]:
        size = size + part.abs()
    return size.clamp(max=torch.finfo(x.dtype).max)


def _exponents(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return exponents (e, d, f) of rows, terms and columns: |a_ik| <= 2^(e_i + d_k) and so on.

    Those of the terms balance columns of a with rows of b, whose products alone matter.
    """
    above, below = exponent_of(a.amax(0)), exponent_of(b.amax(1))
    terms = (above - below) // 2
    rows = exponent_of(scale_by_power(a, -terms).amax(1))
    columns = exponent_of(scale_by_power(b, terms[:, None]).amax(0))
    return rows.int(), terms.int(), columns.int()


def _needed_bits(
    a: Tensor, b: Tensor, exponents: tuple[Tensor, Tensor, Tensor], nc: int
) -> tuple[Tensor, float]:
    """Return the bits that each element needs, int32 (m, p), and the largest sum of |a' b'|."""
    rows, terms, columns = exponents
    left = _scaled(a, -rows[:, None], -terms)
    right = _scaled(b, -columns, terms[:, None])
    sums = left @ right
    # The sums of clamped factors exceed the true ones by at most k 2^-60: an element whose sum is
    # near that needs more bits than there are.
    k = a.shape[1]
    digits = carriers.digits(a.dtype, nc) + 1
    share = (left.sum(1)[:, None] + right.sum(0)) * (nc / 2 * _SLACK) / sums
    needed = digits + exponent_of(share).int()
    needed[sums < k * _TINY * 2**10] = residues.MOST_BITS + 1
    needed[sums == 0] = 0  # every product is 0
    return needed, float(sums.max()) * _SLACK


def _scaled(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Scale magnitudes to at most 1, in float32; only zeros become zeros."""
    usual = 40 if x.dtype is torch.float32 else 300
    if int(first.abs().max()) <= usual and int(second.abs().max()) <= usual:
        # Neither step overflows, and exponents of elements would be eight more tensors.
        small = x * power_of_two(first, x.dtype) * power_of_two(second, x.dtype)
    else:
        small = scale_by_power(x, first + second)
    return torch.where(x > 0, small.to(torch.float32).clamp_(min=_TINY), 0)


def _chosen_bits(needed: Tensor, largest: float) -> tuple[int, residues.Moduli] | None:
    """Choose the integers' bits at the least cost: moduli for all, sums one by one for the rest."""
    counts = torch.bincount(needed.flatten().clamp(min=1), minlength=2).tolist()
    above, best = needed.numel(), None
    least_cost = TUNING.most_cost
    for bits, count in enumerate(counts[: residues.MOST_BITS + 1]):
        above -= count
        if not count:
            continue
        try:
            # Twice for the sign, and twice as no number may come near half of the moduli.
            moduli = residues.moduli_for(2 * bits + log2(max(largest, 1.0)) + 2)
        except ValueError:
            break
        cost = len(moduli) + TUNING.product_cost * above / needed.numel()
        if cost < least_cost:
            least_cost, best = cost, (bits, moduli)
    return best


def _in_blocks(
    a: Tensor,
    b: Tensor,
    exponents: tuple[Tensor, Tensor, Tensor],
    bits: int,
    moduli: residues.Moduli,
    nc: int,
) -> Tensor:
    rows, terms, columns = exponents
    m, n, size = a.shape[0], b.shape[1], TUNING.block
    if m <= size and n <= size:
        return residues.product(a, b, exponents, bits, moduli, nc)
    out = a.new_empty(nc, m, n).movedim(0, -1)
    for i in range(0, m, size):
        for j in range(0, n, size):
            chosen = rows[i : i + size], terms, columns[j : j + size]
            block = residues.product(a[i : i + size], b[:, j : j + size], chosen, bits, moduli, nc)
            out[i : i + size, j : j + size] = block
    return out


def _one_by_one(a: Tensor, b: Tensor, places: tuple[Tensor, ...]) -> Tensor:
    """Sum the products of chosen elements pairwise, in expansions: (count, nc)."""
    nc, step = max(a.shape[-1], b.shape[-1]), max(1, (1 << 20) // a.shape[1])
    parts: list[Tensor] = []
    for rows, columns in zip(*(place.split(step) for place in places), strict=True):
        left, right = a[rows], b[:, columns].transpose(0, 1)
        parts.append(total(binary("mul", left, right), 1))
    assert parts[0].shape[-1] == nc
    return torch.cat(parts)
