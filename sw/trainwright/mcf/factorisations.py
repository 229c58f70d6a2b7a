"""Factorisations of matrices of expansions: LU, Cholesky, Householder QR, Jacobi methods.

Matrices are float64 components (batch, m, n, nc) with more digits than results keep, so that errors
of rounding stay below the results' last place up to condition numbers of 2^30, and beyond where
``trainwright.mcf.linalg`` refines. Loops run over columns or rounds of rotations; each step is one
operation on the whole batch.
"""

import torch
from torch import Tensor

from trainwright.mcf import products
from trainwright.mcf.arithmetic import absolute, sqrt, total
from trainwright.mcf.arithmetic import add_mcn as add
from trainwright.mcf.arithmetic import div_mcn as div
from trainwright.mcf.arithmetic import mult_mcn as mul
from trainwright.precision.rounding import exponent_of, power_of_two

LinAlgError = torch.linalg.LinAlgError  # pyright: ignore[reportPrivateImportUsage]
_SWEEPS = 60
"""Sweeps of rotations after which a Jacobi method gives up; 5 to 10 are usual."""


class NoConvergenceError(LinAlgError):
    """Error: rotations did not make a matrix diagonal."""


def sub(x: Tensor, y: Tensor) -> Tensor:
    """Subtract components, shapes broadcast."""
    return add(x, -y)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Sum products over the dimension before the last of numbers: (b, k, n, nc) to (b, n, nc)."""
    return total(mul(x, y), x.dim() - 3)


def turned(x: Tensor) -> Tensor:
    """Transpose matrices of components."""
    return x.transpose(-2, -3)


def identity(like: Tensor, n: int) -> Tensor:
    """Return identity matrices (batch, n, n, nc)."""
    eye = like.new_zeros(len(like), n, n, like.shape[-1])
    eye[..., 0].diagonal(dim1=-2, dim2=-1).fill_(1)
    return eye


def scales(x: Tensor, dim: int) -> Tensor:
    """Return the powers of two that scale the largest of each row or column into 1/2 to 1."""
    return power_of_two(-exponent_of(x[..., 0].abs().amax(dim, keepdim=True)), x.dtype)


def lu(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Factor (b, n, n) with partial pivoting: L below the diagonal and U, rows' order, parity.

    A pivot of 0 stays in U, and divides no column.
    """
    a, (batch, n) = a.clone(), a.shape[:2]
    order = torch.arange(n, device=a.device).repeat(batch, 1)
    parity, each = torch.zeros_like(order[:, 0]), torch.arange(batch, device=a.device)
    for k in range(n):
        pivot = a[:, k:, k, 0].abs().argmax(1) + k
        parity += pivot != k
        for rows in (a, order):
            upper, lower = rows[:, k].clone(), rows[each, pivot]
            rows[each, pivot], rows[:, k] = upper, lower
        if k + 1 == n:
            break
        head = a[:, k : k + 1, k]
        safe = torch.where(head[..., :1] == 0, torch.ones_like(head), head)
        safe[..., 1:] = head[..., 1:]
        factor = div(a[:, k + 1 :, k], safe)
        a[:, k + 1 :, k] = factor
        change = mul(factor.unsqueeze(2), a[:, k : k + 1, k + 1 :])
        a[:, k + 1 :, k + 1 :] = sub(a[:, k + 1 :, k + 1 :], change)
    return a, order, parity % 2


def lu_solve(factors: tuple[Tensor, Tensor, Tensor], b: Tensor) -> Tensor:
    """Solve with the factors of ``lu``; b (batch, n, r, nc)."""
    a, order, _ = factors
    x = b[torch.arange(len(b), device=b.device)[:, None], order]
    return substituted(a, substituted(a, x, upper=False, unit=True), upper=True)


def substituted(a: Tensor, b: Tensor, *, upper: bool, unit: bool = False) -> Tensor:
    """Solve with a triangle of a (batch, n, n, nc); ``unit``: its diagonal is 1."""
    x, n = b.clone(), a.shape[1]
    for k in reversed(range(n)) if upper else range(n):
        if not unit:
            x[:, k] = div(x[:, k], a[:, k, k].unsqueeze(1))
        rest_rows = slice(0, k) if upper else slice(k + 1, n)
        if x[:, rest_rows].shape[1]:
            change = mul(a[:, rest_rows, k].unsqueeze(2), x[:, k : k + 1])
            x[:, rest_rows] = sub(x[:, rest_rows], change)
    return x


def cholesky(a: Tensor) -> tuple[Tensor, Tensor]:
    """Factor the lower triangle of (b, n, n); return L and where it is not positive definite.

    The second result is 0, or the order of the first leading minor that is not positive.
    """
    a, n = a.clone(), a.shape[1]
    poor = torch.zeros(len(a), dtype=torch.int64, device=a.device)
    out = torch.zeros_like(a)
    for k in range(n):
        head = a[:, k, k]
        bad = ~(head[:, 0] > 0)
        poor = torch.where((poor == 0) & bad, k + 1, poor)
        head = torch.where(bad[:, None], identity(head[:, None, None], 1)[:, 0, 0], head)
        root = sqrt(head)
        column = div(a[:, k:, k], root.unsqueeze(1))
        column[:, 0] = root
        out[:, k:, k] = column
        if k + 1 < n:
            below = column[:, 1:]
            change = mul(below.unsqueeze(2), below.unsqueeze(1))
            a[:, k + 1 :, k + 1 :] = sub(a[:, k + 1 :, k + 1 :], change)
    return out, poor


def householder(a: Tensor, *, pivoting: bool = False) -> tuple[Tensor, list[Tensor], Tensor]:
    """Factor (b, m, n) to R over zeros, reflectors and the columns' order.

    ``pivoting`` takes the column of the largest remaining norm first. A reflector (b, m - k, nc) is
    v with I - v v^T, or 0 for the identity.
    """
    a, (batch, m, n) = a.clone(), a.shape[:3]
    order = torch.arange(n, device=a.device).repeat(batch, 1)
    each, reflectors = torch.arange(batch, device=a.device), []
    for k in range(min(m, n)):
        if pivoting:
            chosen = _largest_column(a[:, k:, k:, 0]) + k
            swap = torch.arange(n, device=a.device).repeat(batch, 1)
            swap[each, chosen], swap[:, k] = k, chosen
            a = a[each[:, None, None], torch.arange(m, device=a.device)[:, None], swap[:, None]]
            order = order.gather(1, swap)
        v, sigma = _reflector(a[:, k:, k])
        reflectors.append(v)
        a[:, k:, k] = 0
        a[:, k, k] = sigma
        if k + 1 < n:
            a[:, k:, k + 1 :] = _reflected(a[:, k:, k + 1 :], v)
    return a, reflectors, order


def _largest_column(lead: Tensor) -> Tensor:
    """Return the column of the largest norm, of any magnitude."""
    top = lead.abs().amax((1, 2), keepdim=True)
    scaled = lead * power_of_two(-exponent_of(top), lead.dtype)
    norms = scaled.square().sum(1)
    # Squares may all underflow next to a column that is far larger.
    return torch.where(norms.amax(1) > 0, norms.argmax(1), lead.abs().amax(1).argmax(1))


def _reflector(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return v and sigma with (I - v v^T) x = sigma e_1 for x (b, m, nc).

    As in LAPACK, v is 0 where x is a multiple of e_1 already.
    """
    power = scales(x, 1).unsqueeze(-1)  # no square overflows, and those that underflow are small
    scaled = x * power
    norm = sqrt(dot(scaled.unsqueeze(2), scaled.unsqueeze(2))[:, 0])
    head = scaled[:, 0]
    sign = torch.where(head[:, :1] < 0, 1.0, -1.0)
    sigma = norm * sign
    v = scaled.clone()
    v[:, 0] = sub(head, sigma)
    half = mul(norm, add(norm, absolute(head)))  # of v^T v
    zero = (x[:, 1:, 0] == 0).all(1, keepdim=True)
    unit = torch.zeros_like(half)
    unit[:, 0] = 1
    length = sqrt(torch.where(zero, unit, half))
    v = torch.where(zero.unsqueeze(1), 0.0, div(v, length.unsqueeze(1)))
    return v, torch.where(zero, scaled[:, 0], sigma) / power[:, 0]


def _reflected(c: Tensor, v: Tensor) -> Tensor:
    """Return (I - v v^T) c for c (b, m, n, nc)."""
    sums = dot(c, v.unsqueeze(2))
    return sub(c, mul(v.unsqueeze(2), sums.unsqueeze(1)))


def apply_q(reflectors: list[Tensor], c: Tensor, *, transposed: bool = False) -> Tensor:
    """Return Q c or Q^T c for c (b, m, n, nc)."""
    c, steps = c.clone(), list(enumerate(reflectors))
    for k, v in steps if transposed else reversed(steps):
        c[:, k:] = _reflected(c[:, k:], v)
    return c


def _rounds(n: int) -> list[tuple[list[int], list[int]]]:
    """Return n - 1 rounds of disjoint pairs that meet each pair once (a tournament)."""
    even = n + n % 2
    players, rounds = list(range(even)), []
    for _ in range(even - 1):
        half = even // 2
        pairs = zip(players[:half], reversed(players[half:]), strict=True)
        if pairs := [tuple(sorted(pair)) for pair in pairs if max(pair) < n]:
            rounds.append(([p for p, _ in pairs], [q for _, q in pairs]))
        players = [players[0], players[-1], *players[1:-1]]
    return rounds


def _rotation(
    a: Tensor, b: Tensor, g: Tensor, share: Tensor, active: Tensor
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines / share that make [[a, share g], [share g, share^2 b]] diagonal.

    The matrix becomes nearly diagonal: the tangent has only the digits of a double, with which
    rotations converge as fast. Cosine and sine are on the unit circle to the last digit.
    """
    below = torch.where(active, g[..., 0], 1.0)
    zeta = sub(b * share.square().unsqueeze(-1), a)[..., 0] / below / 2
    size = zeta.abs()
    squares = size.clamp(max=2.0**300).square()
    tangent = 1 / (size + torch.sqrt(share.square() + squares))
    tangent = torch.where(active, torch.where(zeta < 0, -tangent, tangent), 0.0)
    tangents, unit = _number(tangent * share, a), _number(torch.ones_like(tangent), a)
    cosine = div(unit, sqrt(add(mul(tangents, tangents), unit)))
    return cosine, mul(cosine, _number(tangent, a))


def _number(lead: Tensor, like: Tensor) -> Tensor:
    parts = like.new_zeros(*lead.shape, like.shape[-1])
    parts[..., 0] = lead
    return parts


def _turned_columns(
    x: Tensor, p: list[int], q: list[int], c: Tensor, down: Tensor, up: Tensor
) -> None:
    """Turn pairs of columns (x, y) to (c x - down y, up x + c y) in place."""
    first, second = x[:, :, p], x[:, :, q]
    c, down, up = (t.unsqueeze(1) for t in (c, down, up))
    x[:, :, p] = sub(mul(first, c), mul(second, down))
    x[:, :, q] = add(mul(first, up), mul(second, c))


def one_sided_jacobi(g: Tensor, digits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return G J 2^-e with orthogonal columns, their exponents e, and J, for G (b, m, n).

    Columns are orthogonal relative to their own norms, to ``digits`` bits, so that small singular
    values next to large ones keep all of their digits. Columns are scaled to about 1, so that their
    squares keep all digits, too. Columns should come in falling order.
    """
    g, turns = g.clone(), identity(g, g.shape[2])
    exponents = _rescaled(g, torch.zeros_like(g[:, 0, :, 0], dtype=torch.int64))
    rounds, limit = _rounds(g.shape[2]), 2.0**-digits
    for _ in range(_SWEEPS):
        done = True
        for p, q in rounds:
            a, b = dot(g[:, :, p], g[:, :, p]), dot(g[:, :, q], g[:, :, q])
            mixed = dot(g[:, :, p], g[:, :, q])
            size = torch.sqrt(a[..., 0] * b[..., 0])
            active = mixed[..., 0].abs() > limit * size
            if not bool(active.any()):
                continue
            done = False
            # Columns are h_p and h_q share; the rotation applies the share to h_q alone.
            share = power_of_two((exponents[:, q] - exponents[:, p]).clamp(-500, 500), g.dtype)
            c, s = _rotation(a, b, mixed, share, active)
            down = s * share.unsqueeze(-1)
            _turned_columns(turns, p, q, c, down, down)
            _turned_columns(g, p, q, c, down * share.unsqueeze(-1), s)
            exponents = _rescaled(g, exponents)
        if done:
            return g, exponents, turns
    raise NoConvergenceError(f"columns are not orthogonal after {_SWEEPS} sweeps of rotations")


def _rescaled(g: Tensor, exponents: Tensor) -> Tensor:
    """Divide columns by powers of two in place, to about 1; return the exponents with these."""
    power = exponent_of(g[..., 0].abs().amax(1)).to(torch.int64)
    g *= power_of_two(-power, g.dtype)[:, None, :, None]
    return exponents + power


def two_sided_jacobi(t: Tensor, v: Tensor, digits: int) -> tuple[Tensor, Tensor]:
    """Make symmetric T (b, n, n) diagonal to 2^-digits: return the diagonal of J^T T J, and V J."""
    t, v = t.clone(), v.clone()
    limit = t[..., 0].abs().amax((1, 2)).unsqueeze(1) * 2.0**-digits
    for _ in range(_SWEEPS):
        done = True
        for p, q in _rounds(t.shape[1]):
            mixed = t[:, p, q]
            active = mixed[..., 0].abs() > limit
            if not bool(active.any()):
                continue
            done = False
            unit = torch.ones_like(mixed[..., 0])
            c, s = _rotation(t[:, p, p], t[:, q, q], mixed, unit, active)
            _turned_columns(t, p, q, c, s, s)
            t = turned(t).clone()
            _turned_columns(t, p, q, c, s, s)
            _turned_columns(v, p, q, c, s, s)
        if done:
            return t.diagonal(dim1=1, dim2=2).transpose(1, 2), v
    raise NoConvergenceError(f"the matrix is not diagonal after {_SWEEPS} sweeps of rotations")


def orthonormalised(v: Tensor) -> Tensor:
    """Make a nearly orthogonal (b, n, n) orthogonal to all digits: v (3 - v^T v) / 2, repeated."""
    eye = identity(v, v.shape[2])
    known = 48
    while known < 53 * v.shape[-1]:
        v = add(v, products.matmul(v, sub(eye, products.matmul(turned(v), v)) * 0.5))
        known *= 2
    return v
