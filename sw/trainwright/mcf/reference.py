"""Arithmetic on expansions in torch alone: the C kernels must yield the same bits.

Every function takes float32 or float64 components (..., nc), shapes broadcast, and a second operand
of nc components or one. ``trainwright.mcf.arithmetic`` chooses between this module and the kernels.
"""

from itertools import pairwise

import torch
from torch import Tensor

from trainwright.mcf.carriers import join, join_pair
from trainwright.mcf.errorfree import PRECISION, fast_two_sum, two_prod, two_sum
from trainwright.mcf.expansion import Terms, cut, distilled, finished, terms_of
from trainwright.precision.rounding import exponent_of, power_of_two
from trainwright.support.errorfree import two_product


def _route(x: Tensor, y: Tensor) -> str:
    nc = max(x.shape[-1], y.shape[-1])
    if nc == 1:
        return "plain"
    if x.dtype is torch.float32 and nc <= 3:
        return "double" if nc == 2 else "pair"
    return "generic"


def _leading(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., 0], y[..., 0]


def add(x: Tensor, y: Tensor) -> Tensor:
    """Add by Add-MCN, or by Grow-ExpN if one operand has a single component."""
    (a, b), route = _leading(x, y), _route(x, y)
    plain = a + b
    if route == "plain":
        return plain.unsqueeze(-1)
    if x.shape[-1] < y.shape[-1]:
        x, y = y, x
    xs, ys = terms_of(x), terms_of(y)
    nc = len(xs)
    if route == "double":
        return finished(_add_double(xs, ys), plain)
    if len(ys) == 1:
        terms = [*xs, ys[0]]
        for k in range(nc - 1, -1, -1):
            terms[k], terms[k + 1] = two_sum(terms[k], ys[0] if k == nc - 1 else terms[k + 1])
        return finished(distilled(terms, nc, nc - 1), plain)
    sums = [two_sum(a, b) for a, b in zip(xs, ys, strict=True)]
    terms = [sums[0][0]]
    for (_, lost), (kept, _) in pairwise(sums):
        terms += [lost, kept]
    return finished(distilled([*terms, sums[-1][1]], nc, nc), plain)


def _add_double(xs: Terms, ys: Terms) -> Terms:
    """Add two float32 components: sums of equal rank in float64, then both sums.

    Joining each number to a double first would round away digits that cancellation makes
    significant. A sum of equal rank rounds only if its terms are 2^29 apart, and then nothing can
    cancel it.
    """
    z = xs[0].to(torch.float64) + ys[0].to(torch.float64)
    low = xs[1].to(torch.float64)
    if len(ys) == 2:
        low = low + ys[1].to(torch.float64)
    return cut([z + low], torch.float32, 2)


def mul(x: Tensor, y: Tensor) -> Tensor:
    """Multiply by Mult-MCN, or by ScalingN if one operand has a single component."""
    if x.shape[-1] < y.shape[-1]:
        x, y = y, x
    (a, b), route = _leading(x, y), _route(x, y)
    plain = a * b
    if route == "plain":
        return plain.unsqueeze(-1)
    nc = x.shape[-1]
    if route == "double" and y.shape[-1] == 1:
        return finished(_scale(terms_of(x), b), plain)
    if route == "double":
        return finished(cut([join(x) * join(y)], torch.float32, 2), plain)
    if route == "pair":
        (h, g), (c, d) = join_pair(x), join_pair(y)
        p, lost = two_product(h, c)
        e = lost + (h * d + g * c)
        return finished(cut([p, e], torch.float32, 3), plain)
    return finished(distilled(_partial_products(terms_of(x), terms_of(y)), nc, nc), plain)


def _scale(x: Terms, v: Tensor) -> Terms:
    """Multiply two components by one: both products are exact; only the final sums round."""
    (p, lost_p), (q, lost_q) = (two_prod(part, v) for part in x)
    middle, rest = two_sum(lost_p, q)
    high, low = fast_two_sum(p, middle)
    return [*fast_two_sum(high, low + (rest + lost_q))]


def _partial_products(xs: Terms, ys: Terms) -> Terms:
    """Return exact partial products by rank, and the sum of those of the last rank.

    Rank r holds products of components i and j with i + j = r, and the errors of rank r - 1.
    """
    nc = len(xs)
    ranks: list[Terms] = [[] for _ in range(nc + 1)]
    for i, a in enumerate(xs):
        for j, b in enumerate(ys):
            if i + j < nc:
                p, e = two_prod(a, b)
                ranks[i + j].append(p)
                ranks[i + j + 1].append(e)
            elif i + j == nc:
                ranks[nc].append(a * b)
    last = ranks[nc][0]
    for more in ranks[nc][1:]:
        last = last + more
    return [*(term for rank in ranks[:nc] for term in rank), last]


def div(x: Tensor, y: Tensor) -> Tensor:
    """Divide by Div-MCN or DivN: either operand may have a single component."""
    (a, b), route = _leading(x, y), _route(x, y)
    plain = a / b
    if route == "plain":
        return plain.unsqueeze(-1)
    # ``plain`` decides quotients that are 0 or infinite: their remainders would be NaN.
    if route == "double":
        return finished(cut([join(x) / join(y)], torch.float32, 2), plain)
    if route == "pair":
        (h, g), (c, d) = join_pair(x), join_pair(y)
        q = h / c
        p, lost = two_product(q, c)
        remainder = (((h - p) - lost) + g) - q * d
        return finished(cut(fast_two_sum(q, remainder / c), torch.float32, 3), plain)
    nc = max(x.shape[-1], y.shape[-1])
    quotient = finished(_long_division(terms_of(x), terms_of(y), nc), plain)
    ends = near_end(a, nc)
    if not bool(ends.any()):
        return quotient
    (xs, above), (ys, below) = _scaled_down(x), _scaled_down(y)
    mended = finished(scaled(_long_division(xs, ys, nc), above - below), plain)
    return torch.where(ends.unsqueeze(-1), mended, quotient)


def near_end(lead: Tensor, nc: int) -> Tensor:
    """Mark numbers whose remainders, in divisions and roots, overflow or underflow.

    Below the lower limit, remainders lose digits that nc components need, with a margin of 2^10.
    """
    info, size = torch.finfo(lead.dtype), lead.abs()
    exponent = torch.tensor(1 - _reach(lead.dtype) + PRECISION[lead.dtype] * (nc - 1) + 10)
    least = float(power_of_two(exponent, lead.dtype))
    return (size > 0) & (size < least) | (size > info.max / 2) & (size <= info.max)


def _scaled_down(x: Tensor) -> tuple[Terms, Tensor]:
    """Divide numbers by powers of two, so that remainders do not underflow.

    Returns the terms, of about 1 unless they are subnormal or not finite, and the exponents.
    """
    exponent = exponent_of(x[..., 0]) - 1
    reach = _reach(x.dtype)
    exponent = torch.where(torch.isfinite(x[..., 0]), exponent.clamp(1 - reach, reach - 1), 0)
    factor = power_of_two(-exponent, x.dtype)
    return [term * factor for term in terms_of(x)], exponent


def _reach(dtype: torch.dtype) -> int:
    """Return the largest exponent of a float type."""
    return 127 if dtype is torch.float32 else 1023


def scaled(terms: Terms, up: Tensor) -> Terms:
    """Multiply ordered terms by 2^up, where ``up`` may be twice the exponent range.

    A component that becomes subnormal is rounded, and its error joins the next component, so that
    the leading component is the rounding of the whole.
    """
    dtype, terms = terms[0].dtype, list(terms)
    reach = _reach(dtype)
    first = up.clamp(1 - reach, reach)  # two steps, each by a normal power of two
    p, q = power_of_two(first, dtype), power_of_two(up - first, dtype)
    p_back = power_of_two((-first).clamp(min=1 - reach), dtype)
    p_more = torch.where(first == reach, 0.5, 1.0).to(dtype)
    q_back = power_of_two(first - up, dtype)
    term = terms[0]
    for k in range(len(terms)):
        kept = term * p * q
        lost = term - kept * q_back * p_back * p_more
        if k + 1 < len(terms):
            term, error = two_sum(lost, terms[k + 1])
            if k + 2 < len(terms):
                terms[k + 2] = terms[k + 2] + error
        terms[k] = kept
    return distilled(terms, len(terms), 1)


def _long_division(xs: Terms, ys: Terms, nc: int) -> Terms:
    """Take nc + 1 quotients of leading components, normalising the remainder after each."""
    zero = torch.zeros_like(xs[0] + ys[0])
    remainder = [*(x + zero for x in xs), *[zero] * (nc - len(xs))]
    quotients: Terms = []
    for step in range(nc + 1):
        q = remainder[0] / ys[0]
        quotients.append(q)
        if step == nc:
            break
        ranks: list[Terms] = [[r] for r in remainder] + [[]]
        for j, y in enumerate(ys):
            p, e = two_prod(-q, y)
            ranks[j].append(p)
            ranks[j + 1].append(e)
        remainder = distilled([term for rank in ranks for term in rank], nc, nc + 1)
    return distilled(quotients, nc, 2)
