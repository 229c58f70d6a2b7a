"""Linear algebra of torch on ``MCTensor``: solve, inv, pinv, det, cholesky, qr, lstsq, eigh, svd.

Numbers are converted to float64 components with at least ``GUARD`` digits more, exactly, and
results are rounded once at the end. ``solve`` refines a first solution with residuals of one
component more: that of a float64 factorisation where this converges, that of a factorisation in
expansions otherwise. Gradients are those of torch's function on the leading components, as
everywhere.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainwright.mcf import constants, exact, products
from trainwright.mcf import factorisations as fac
from trainwright.mcf.carriers import digits
from trainwright.mcf.expansion import padded
from trainwright.mcf.graph import in_graph, leading, result, wants_grad
from trainwright.mcf.operands import components_of, model
from trainwright.mcf.protocol import handles_one
from trainwright.mcf.tensor import MCTensor, shape_of, wrap
from trainwright.precision.rounding import exponent_of, power_of_two, scale_by_power

GUARD = 30
"""Digits of intermediate results beyond those of the operands, at least."""
_EVEN = 2.0**-20
"""Least ratio of two pivots that the digits of ``GUARD`` cover."""
_REFINEMENTS = 40
_MARGIN = 4
"""Digits beyond the results' at which refinement and rotations stop."""
LinAlgError = fac.LinAlgError
_RETURNED: Any = torch.return_types


def _working_nc(x: Tensor) -> int:
    return -(-(digits(x.dtype, x.shape[-1]) + GUARD) // 53)


def _prepared(name: str, x: Tensor, *, square: bool = False) -> tuple[Tensor, tuple[int, ...]]:
    """Convert components (..., m, n, nc) to float64 (batch, m, n, more); return the batch shape."""
    if x.dim() < 3:
        raise LinAlgError(f"{name} needs a matrix, not shape {tuple(x.shape[:-1])}")
    if square and x.shape[-3] != x.shape[-2]:
        raise LinAlgError(f"{name} needs square matrices, not shape {tuple(x.shape[:-1])}")
    if not bool(torch.isfinite(x[..., 0]).all()):
        raise LinAlgError(f"{name} needs finite numbers: an operand has infinities or NaN")
    wide = exact.converted(x, torch.float64, _working_nc(x))
    batch = tuple(x.shape[:-3])
    return wide.reshape(math.prod(batch), *wide.shape[-3:]), batch


def _restored(x: Tensor, batch: tuple[int, ...], like: MCTensor) -> Tensor:
    return exact.converted(x, like._components.dtype, like.nc).reshape(
        *batch, *x.shape[1:-1], like.nc
    )


def _full(x: Any, like: MCTensor) -> Tensor:
    return padded(components_of(x, like), like.nc)


def _equilibrated(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale rows, then columns, by powers of two; return both factors (b, n, 1) and (b, 1, n)."""
    rows = fac.scales(a, 2)
    a = a * rows.unsqueeze(-1)
    columns = fac.scales(a, 1)
    return a * columns.unsqueeze(-1), rows, columns


def solved(a: Tensor, b: Tensor, bits: int) -> Tensor:
    """Solve float64 components a (batch, n, n, nc) x = b (batch, n, r, nc) to ``bits`` digits.

    A column's error is at most 2^-bits of its largest element. Raises ``LinAlgError`` for singular
    matrices, and for those so nearly singular that three components more do not suffice.
    """
    a, rows, columns = _equilibrated(a)
    b = b * rows.unsqueeze(-1)
    tops = fac.scales(b, 1).unsqueeze(-1)
    b = b * tops
    factors, pivots, info = torch.linalg.lu_factor_ex(a[..., 0])
    x = None
    if not bool(info.any()):

        def double(r: Tensor) -> Tensor:
            return torch.linalg.lu_solve(factors, pivots, r[..., 0]).unsqueeze(-1)

        x = _refined(a, b, bits, double)
    # float64 did not converge: factor in expansions, with one component more in each attempt.
    for more in range(4):
        if x is not None:
            break
        wide = padded(a, a.shape[-1] + more)
        full = fac.lu(wide)
        if bool((full[0][..., 0].diagonal(dim1=1, dim2=2) == 0).any()):
            raise LinAlgError("the matrix is singular: a pivot is 0")

        def direct(r: Tensor, nc: int = wide.shape[-1], full: Any = full) -> Tensor:
            return fac.lu_solve(full, r[..., :nc])

        x = _refined(wide, b, bits, direct)
    if x is None:
        raise LinAlgError(f"the matrix is singular to {53 * (a.shape[-1] + 3)} bits")
    return x * columns.transpose(1, 2).unsqueeze(-1) / tops


def _refined(a: Tensor, b: Tensor, bits: int, solve: Callable[[Tensor], Tensor]) -> Tensor | None:
    """Compute a solution whose correction is below 2^-bits; ``None`` if it does not shrink."""
    nc = a.shape[-1] + 1
    a, b = padded(a, nc), padded(b, nc)
    x, before = torch.zeros_like(b), None
    remainder = b
    for _ in range(_REFINEMENTS):
        power = fac.scales(remainder, 1).unsqueeze(-1)  # a tiny remainder would underflow
        change = padded(solve(remainder * power), nc) / power
        if not bool(torch.isfinite(change).all()):
            return None
        x = fac.add(x, change)
        size, largest = (t[..., 0].abs().amax(1) for t in (change, x))
        if before is not None:
            small = size <= largest * 2.0 ** -(bits + _MARGIN)
            if bool(small.all()):
                return x
            # A correction that shrinks slowly leaves an error of about its own size.
            if bool((~small & (size > before * 2.0**-4)).any()):
                return None
        before = size
        remainder = fac.sub(b, products.matmul(a, x))
    return None


def _unit_scale(x: Tensor) -> Tensor:
    """Return the powers of two (batch, 1, 1, 1) that bring matrices' largest elements to about 1.

    Sums and products then keep lower components that would underflow near the end of the range.
    """
    if not x.numel():
        return x.new_ones(len(x), 1, 1, 1)
    return fac.scales(x.flatten(1, 2), 1).reshape(-1, 1, 1, 1)


def _solve(A: Any, B: Any, *, left: bool = True) -> Tensor:
    if not left:
        return _solve(torch.transpose(A, -2, -1), torch.transpose(B, -2, -1)).mT
    like = model(A, B)
    a, b = (_full(t, like) for t in (A, B))
    vector = b.dim() == 2 or (b.dim() == a.dim() - 1 and b.shape[:-1] == a.shape[:-2])
    computed = _solution("solve", a, b.unsqueeze(-2) if vector else b, like)
    computed = computed.squeeze(-2) if vector else computed
    return result(computed, lambda lead: torch.linalg.solve(lead(A), lead(B)), A, B)


def _solution(name: str, a: Tensor, b: Tensor, like: MCTensor) -> Tensor:
    wide, lead = _prepared(name, a, square=True)
    other, lead_b = _prepared(name, b)
    if b.shape[-3] != a.shape[-2]:
        raise LinAlgError(
            f"shapes {tuple(a.shape[:-1])} and {tuple(b.shape[:-1])} do not fit in {name}"
        )
    batch = torch.broadcast_shapes(lead, lead_b)
    wide, other = (
        t.reshape(*own, *t.shape[1:])
        .expand(*batch, *t.shape[1:])
        .reshape(math.prod(batch), *t.shape[1:])
        for t, own in ((wide, lead), (other, lead_b))
    )
    if 0 in (*batch, *b.shape[-3:-1]):
        return b.new_zeros(*batch, *b.shape[-3:])
    return _restored(solved(wide, other, digits(a.dtype, like.nc)), tuple(batch), like)


def _inv(A: MCTensor) -> MCTensor:
    a = A._components
    if a.dim() < 3 or a.shape[-2] != a.shape[-3]:
        raise LinAlgError(f"inv needs square matrices, not shape {shape_of(A)}")
    eye = torch.zeros_like(a[..., :1])
    eye[..., 0].diagonal(dim1=-2, dim2=-1).fill_(1)
    computed = _solution("inv", a, padded(eye, A.nc), A)
    return result(computed, lambda lead: torch.linalg.inv(lead(A)), A)


def _determinants(wide: Tensor) -> tuple[Tensor, Tensor]:
    """Return determinants as float64 components and the powers of two that divided them."""
    scaled, rows, columns = _equilibrated(padded(wide, wide.shape[-1] + 1))
    upper, _, parity = fac.lu(scaled)
    # Exponents of the scales are summed apart: their product may be out of range.
    power = (_log2(rows).sum((1, 2)) + _log2(columns).sum((1, 2))).to(torch.int64)
    value = upper[:, 0, 0]
    for k in range(1, wide.shape[1]):
        value = fac.mul(value, upper[:, k, k])
        shift = fac.scales(value, -1).squeeze(-1)
        value, power = value * shift.unsqueeze(-1), power + _log2(shift).to(torch.int64)
    return torch.where(parity.unsqueeze(1) == 1, -value, value), power


def _det(A: MCTensor) -> MCTensor:
    wide, batch = _prepared("det", A._components, square=True)
    if 0 in (*batch, wide.shape[1]):
        computed = padded(A._components.new_ones(*batch, 1), A.nc)
    else:
        value, power = _determinants(wide)
        for _ in range(3):  # in parts: a power may be out of range
            part = (-power).clamp(-1000, 1000)
            value, power = value * power_of_two(part, value.dtype).unsqueeze(1), power + part
        computed = _restored(value, batch, A)
    return result(computed, lambda lead: torch.linalg.det(lead(A)), A)


def _slogdet(A: MCTensor) -> Any:
    """Return sign and logarithm of a determinant.

    The logarithm is that of the scaled determinant less that of its power of two. The two may
    almost cancel, so ln 2 has more digits than the result.
    """
    wide, batch = _prepared("slogdet", A._components, square=True)
    if 0 in (*batch, wide.shape[1]):
        value, power = wide.new_ones(math.prod(batch), 1), wide.new_zeros(math.prod(batch))
    else:
        value, power = _determinants(wide)
    with torch.no_grad():
        nc = value.shape[-1]
        ln2 = constants.number(constants.ln2(53 * (nc + 1)), value, nc)
        mantissa = torch.log(torch.abs(wrap(value)))
        logs = mantissa - wrap(ln2) * power.to(torch.float64)
        logarithm = _restored(components_of(logs, A), batch, A)
    sign = padded(torch.sign(value[:, 0]).reshape(*batch, 1).to(A._components.dtype), A.nc)
    return _several(_RETURNED.linalg_slogdet, [sign, logarithm], torch.linalg.slogdet, A)


def _pinv(A: MCTensor, rtol: Any = None, hermitian: bool = False, *, atol: Any = None) -> MCTensor:
    """Invert the singular values above max(atol, rtol of the largest); the others count as 0."""
    shape, bits = shape_of(A), digits(A._components.dtype, A.nc)
    rtol, atol = (leading(t).detach().to(A.dtype) if isinstance(t, Tensor) else t
                  for t in (rtol, atol))  # fmt: skip
    plain = partial(torch.linalg.pinv, rtol=rtol, atol=atol, hermitian=hermitian)
    with torch.no_grad():
        # torch, too, takes a Hermitian matrix from its lower triangle.
        lower: Any = torch.tril(A) + torch.tril(A, -1).mT if hermitian else A
        u, s, vh = _svd(lower, False)
    if not s.numel():
        return _inverted(A, torch.transpose(A, -2, -1), plain)
    with torch.no_grad():
        share, atol = _least_share(max(shape[-2:]), bits), 0.0 if atol is None else atol
        if rtol is None:
            positive = torch.as_tensor(atol) > 0
            rtol = torch.where(positive, 0.0, share) if positive.dim() else share * (not positive)
        relative, absolute = (t.unsqueeze(-1) if isinstance(t, Tensor) else t for t in (rtol, atol))
        least: Any = s[..., :1] * relative
        least = torch.maximum(least, torch.zeros_like(s[..., :1]) + absolute)
        kept = s > least
        inverse = torch.where(kept, 1 / torch.where(kept, s, torch.ones_like(s)), 0.0)
        inverted = torch.matmul(vh.mT * inverse.unsqueeze(-2), u.mT)
    return _inverted(A, inverted, plain)


def _least_share(size: int, bits: int) -> float:
    """Return the share of the largest pivot that counts as 0 unless the caller gives another.

    Without the root, a matrix of 256 columns of one bfloat16 component would have rank 0.
    """
    return min(size * 2.0**-bits, 2.0 ** (-bits / 2))


def _inverted(A: MCTensor, inverse: Any, plain: Callable[[Tensor], Tensor]) -> MCTensor:
    return result(components_of(inverse, A), lambda lead: plain(lead(A)), A)


def _log2(power: Tensor) -> Tensor:
    return torch.frexp(power).exponent - 1


def _cholesky(A: MCTensor, *, upper: bool = False) -> MCTensor:
    a = A._components
    wide, batch = _prepared("cholesky", a.transpose(-2, -3) if upper else a, square=True)
    if not wide.numel():
        return result(a.clone(), lambda lead: torch.linalg.cholesky(lead(A), upper=upper), A)
    # Rows and columns are scaled alike to a diagonal of about 1: the squares of a small row would
    # underflow. The factorisation itself rejects diagonals that are not positive.
    diagonal = wide[..., 0].diagonal(dim1=1, dim2=2)
    half = torch.where(diagonal > 0, exponent_of(diagonal) // 2, 0).unsqueeze(-1)
    scaled = scale_by_power(wide, -half.unsqueeze(1))
    factor, poor = fac.cholesky(scale_by_power(scaled, -half.unsqueeze(2)))
    if bool(poor.any()):
        order = int(poor[poor > 0][0])
        raise LinAlgError(
            f"cholesky: the leading minor of order {order} is not positive, so the matrix is not "
            "positive definite"
        )
    factor = scale_by_power(factor, half.unsqueeze(2))
    factor = fac.turned(factor) if upper else factor
    computed = _restored(factor, batch, A)
    return result(computed, lambda lead: torch.linalg.cholesky(lead(A), upper=upper), A)


def _several(
    kind: Any,
    parts: list[Tensor],
    plain: Callable[[Tensor], Any],
    x: MCTensor,
    signed: Callable[[list[Tensor], Any], Any] = lambda parts, leads: leads,
) -> Any:
    """Make several results, each with its own place in the graph.

    ``signed`` gives the results of torch, from which gradients follow, the signs of ``parts``:
    vectors of a decomposition are defined up to their sign.
    """
    if not wants_grad(x):
        return kind(list(map(wrap, parts)))
    leads = signed(parts, tuple(plain(in_graph(x))))
    return kind([
        result(part, lambda _, own=own: own, x) for part, own in zip(parts, leads, strict=True)
    ])  # fmt: skip


def _qr(A: MCTensor, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode must be reduced, complete or r, not {mode!r}")
    kind = _RETURNED.linalg_qr
    wide, batch = _prepared("qr", A._components)
    m, n = wide.shape[1:3]
    height = m if mode == "complete" else min(m, n)
    if not wide.numel():
        q, r = torch.linalg.qr(A.fc.detach(), mode)
        parts = [padded(t.unsqueeze(-1), A.nc) for t in (q, r)]
    else:
        upper, reflectors, _ = fac.householder(wide)
        parts = [_restored(upper[:, :height], batch, A)]
        q = fac.apply_q(reflectors, fac.identity(wide, m)[:, :, :height])
        parts.insert(0, A._components.new_zeros(0, A.nc) if mode == "r" else _restored(q, batch, A))
    return _several(kind, parts, lambda lead: torch.linalg.qr(lead, mode), A)


def _eigh(A: MCTensor, UPLO: str = "L") -> Any:
    wide, batch = _prepared("eigh", A._components, square=True)
    if UPLO.upper() not in ("L", "U"):
        raise ValueError(f"UPLO must be L or U, not {UPLO!r}")
    if not wide.numel():
        values, vectors = torch.linalg.eigh(A.fc.detach())
        parts = [padded(t.unsqueeze(-1), A.nc) for t in (values, vectors)]
    else:
        values, vectors = _eigen(wide, UPLO.upper() == "L", digits(A._components.dtype, A.nc))
        parts = [_restored(t, batch, A) for t in (values, vectors)]

    def signed(parts: list[Tensor], leads: Any) -> Any:
        same = (parts[1][..., 0] * leads[1].detach()).sum(-2, keepdim=True)
        return leads[0], leads[1] * torch.where(same < 0, -1.0, 1.0)

    return _several(_RETURNED.linalg_eigh, parts,
                    lambda lead: torch.linalg.eigh(lead, UPLO), A, signed)  # fmt: skip


def _eigen(a: Tensor, lower: bool, bits: int) -> tuple[Tensor, Tensor]:
    """Return ascending eigenvalues (b, n, nc) and eigenvectors of symmetric float64 components."""
    parts = [part.tril() + part.tril(-1).mT if lower else part.triu() + part.triu(1).mT
             for part in a.unbind(-1)]  # fmt: skip
    a = torch.stack(parts, -1)
    power = _unit_scale(a)
    a = a * power
    start = torch.linalg.eigh(a[..., 0])[1]
    v = fac.orthonormalised(padded(start.unsqueeze(-1), a.shape[-1]))
    t = products.matmul(products.matmul(fac.turned(v), a), v)
    values, vectors = fac.two_sided_jacobi(t, v, bits + _MARGIN)
    order = _order(values)
    values = values.gather(1, order.unsqueeze(-1).expand_as(values)) / power.reshape(-1, 1, 1)
    return values, _columns(vectors, order)


def _order(x: Tensor) -> Tensor:
    """Order numbers (b, n, nc) from the least on by all components: leading ones may be equal."""
    order = torch.arange(x.shape[1], device=x.device).expand(x.shape[:-1])
    for part in reversed(x.unbind(-1)):
        order = order.gather(1, part.gather(1, order).argsort(dim=1, stable=True))
    return order


def _columns(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(2, order[:, None, :, None].expand_as(x))


def _require_driver(function: str, driver: str | None, known: tuple[str, ...]) -> None:
    if driver is not None and driver not in known:
        raise ValueError(f"driver of {function} must be {', '.join(known)} or None, not {driver!r}")


def _svd(A: MCTensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """Decompose; ``driver`` chooses among algorithms of CUDA, and the values here suit each."""
    _require_driver("svd", driver, ("gesvd", "gesvdj", "gesvda"))
    wide, batch = _prepared("svd", A._components)
    m, n = wide.shape[1:3]
    if not wide.numel():
        plain = torch.linalg.svd(A.fc.detach(), full_matrices)
        parts = [padded(t.unsqueeze(-1), A.nc) for t in plain]
    else:
        u, s, v = _singular(wide, digits(A._components.dtype, A.nc), full_matrices)
        parts = [_restored(t, batch, A) for t in (u, s, fac.turned(v))]

    def signed(parts: list[Tensor], leads: Any) -> Any:
        u, s, vh = leads
        k = min(m, n)
        same = (parts[0][..., :k, 0] * u.detach()[..., :k]).sum(-2)
        sign = torch.where(same < 0, -1.0, 1.0).to(u.dtype)
        u_sign, v_sign = (torch.nn.functional.pad(sign, (0, size - k), value=1.0)
                          for size in (u.shape[-1], vh.shape[-2]))  # fmt: skip
        return u * u_sign.unsqueeze(-2), s, vh * v_sign.unsqueeze(-1)

    return _several(_RETURNED.linalg_svd, parts,
                    lambda lead: torch.linalg.svd(lead, full_matrices), A, signed)  # fmt: skip


def _singular(a: Tensor, bits: int, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return U, descending singular values (b, k, nc) and V of float64 components (b, m, n).

    Rows are sorted by size and columns pivoted; rotations then make the rows of R orthogonal, each
    relative to its norm. Singular values of D B D' with diagonal D, D' of any size are relatively
    accurate if B is well conditioned (Drmac and Veselic 2008).
    """
    if a.shape[1] < a.shape[2]:
        u, s, v = _singular(fac.turned(a), bits, full)
        return v, s, u
    power = _unit_scale(a)
    a = a * power
    rows = a[..., 0].abs().amax(2).argsort(dim=1, descending=True, stable=True)
    upper, reflectors, order = fac.householder(_rows(a, rows), pivoting=True)
    n = a.shape[2]
    g, start = fac.turned(upper[:, :n]), None
    pivots = upper[..., 0].diagonal(dim1=1, dim2=2).abs()
    if bool((pivots.amin(1) >= _EVEN * pivots.amax(1)).all()):
        # Float64's vectors save most sweeps, but next to larger values tiny ones would lose digits.
        vectors = torch.linalg.svd(g[..., 0], full_matrices=False)[2].mT
        start = fac.orthonormalised(padded(vectors.unsqueeze(-1), g.shape[-1]))
        g = products.matmul(g, start)
    g, columns, j = fac.one_sided_jacobi(g, bits + _MARGIN)
    j = j if start is None else products.matmul(start, j)
    norms = fac.sqrt(fac.dot(g, g))
    s = scale_by_power(norms, columns.unsqueeze(-1))
    down = _order(-s)
    norms, s = (t.gather(1, down.unsqueeze(-1).expand_as(t)) for t in (norms, s))
    g, j = _columns(g, down), _columns(j, down)
    zero = norms[..., :1] == 0
    unit = torch.zeros_like(norms)
    unit[..., 0] = 1
    v = fac.div(g, torch.where(zero, unit, norms).unsqueeze(1))
    if bool(zero.any()):  # columns of zeros come last: complete the others
        rest = fac.apply_q(fac.householder(v)[1], fac.identity(v, n))
        v = torch.where(zero.unsqueeze(1), rest, v)
    inner = fac.identity(a, a.shape[1])
    inner[:, :n, :n] = j
    u = fac.apply_q(reflectors, inner if full else inner[:, :, :n])
    u = _rows(u, rows.argsort(1))
    return u, s / power[..., 0], _rows(v, order.argsort(1))


def _rows(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order[:, :, None, None].expand_as(x))


def _lstsq(A: Any, B: Any, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """Solve least squares; the solution has the least norm.

    The rank is the number of pivots above ``rcond`` times the first pivot; ``gelsd`` and ``gelss``
    count singular values instead. ``gels`` assumes full rank and ignores ``rcond``: pivots as small
    as rounding errors raise ``LinAlgError``.
    """
    _require_driver("lstsq", driver, ("gels", "gelsy", "gelsd", "gelss"))
    like = model(A, B)
    a, b = (_full(t, like) for t in (A, B))
    vector = b.dim() == a.dim() - 1 and b.shape[:-1] == a.shape[:-2]
    b = b.unsqueeze(-2) if vector else b
    if min(a.dim(), b.dim()) < 3 or a.shape[-3] != b.shape[-3]:
        raise LinAlgError(f"shapes {shape_of(A)} and {shape_of(B)} do not fit in lstsq")
    if rcond is not None and not rcond >= 0:
        raise ValueError(f"rcond of lstsq must be at least 0, not {rcond}")
    wide, lead = _prepared("lstsq", a)
    other, lead_b = _prepared("lstsq", b)
    if lead != lead_b:
        raise LinAlgError(f"batches of {shape_of(A)} and {shape_of(B)} differ in lstsq")
    bits = digits(a.dtype, like.nc)
    m, n, r = wide.shape[1], wide.shape[2], other.shape[2]
    power, power_b = _unit_scale(wide), _unit_scale(other)
    wide, other = wide * power, other * power_b
    up, up_b = (_log2(t).to(torch.int64) for t in (power, power_b))
    is_spectral = driver in ("gelsd", "gelss")
    share = _least_share(max(m, n), bits) if rcond is None or driver == "gels" else rcond
    xs, ranks, sums = [], [], []
    singular = wide.new_zeros(len(wide) if is_spectral else 0, min(m, n), wide.shape[-1])
    for i, (unit, right) in enumerate(zip(wide.unsqueeze(1), other.unsqueeze(1), strict=True)):
        if is_spectral and unit.numel():
            u, singular[i : i + 1], v = _singular(unit, bits, False)
            x, rank = _combined(u, singular[i : i + 1], v, right, share)
        else:
            x, rank = least_squares(unit, right, share)
        if driver == "gels" and rank < min(m, n):
            raise LinAlgError(
                f"driver 'gels' of lstsq assumes full rank, and {min(m, n) - rank} of {min(m, n)} "
                f"pivots are at most {share:.1g} of the first: bring columns to one size, or use "
                "driver='gelsy', which takes such pivots for 0"
            )
        xs.append(x)
        ranks.append(rank)
        rest = fac.sub(right, products.matmul(unit, x)) if n else right
        sums.append(fac.dot(rest, rest))
    full = m > n and all(rank == n for rank in ranks)
    solution = b.new_zeros(*lead, n, r, like.nc)
    if xs:
        solution = _restored(scale_by_power(torch.cat(xs), up - up_b), lead, like)
    residuals = b.new_zeros(0, like.nc)
    if xs and full:
        residuals = _restored(scale_by_power(torch.cat(sums), -2 * up_b.squeeze(-1)), lead, like)
    if vector:
        solution = solution.squeeze(-2)
    rank = torch.tensor(ranks, dtype=torch.int64, device=a.device).reshape(lead)
    if driver == "gels":  # as torch's, which computes no rank
        rank = rank.new_zeros(0)
    singular = singular / power.squeeze(-1) if is_spectral else singular
    values = _restored(singular, lead, like) if is_spectral else b.new_zeros(0, like.nc)
    solved_x = result(solution, lambda lead: torch.linalg.lstsq(lead(A), lead(B)).solution, A, B)
    return _RETURNED.linalg_lstsq((solved_x, wrap(residuals), rank, wrap(values)))


def _combined(u: Tensor, s: Tensor, v: Tensor, b: Tensor, share: float) -> tuple[Tensor, int]:
    """Solve by singular vectors; singular values of at most ``share`` of the first count as 0."""
    leads = s[0, :, 0]
    rank = int((leads > share * leads[0]).sum()) if bool(leads[0] > 0) else 0
    if not rank:
        return b.new_zeros(1, v.shape[1], b.shape[2], b.shape[-1]), 0
    parts = products.matmul(fac.turned(u[:, :, :rank]), b)
    return products.matmul(v[:, :, :rank], fac.div(parts, s[:, :rank].unsqueeze(2))), rank


def least_squares(a: Tensor, b: Tensor, share: float) -> tuple[Tensor, int]:
    """Solve one system of float64 components (1, m, n) by pivoted QR; return x and the rank.

    Pivots of at most ``share`` of the first count as 0; the solution has the least norm.
    """
    n = a.shape[2]
    x = b.new_zeros(1, n, b.shape[2], a.shape[-1])
    if not a.numel():
        return x, 0
    upper, reflectors, order = fac.householder(a, pivoting=True)
    pivots = upper[0, :, :, 0].diagonal().abs()
    rank = int((pivots > share * pivots[0]).sum()) if bool(pivots[0] > 0) else 0
    if rank == 0:
        return x, 0
    right = fac.apply_q(reflectors, b, transposed=True)[:, :rank]
    if rank == n:
        x = fac.substituted(upper[:, :n], right, upper=True)
    else:  # the shortest x with these equations is a combination of their rows
        lower, turns, _ = fac.householder(fac.turned(upper[:, :rank]))
        x[:, :rank] = fac.substituted(fac.turned(lower[:, :rank]), right, upper=False)
        x = fac.apply_q(turns, x)
    return _rows(x, order.argsort(1)), rank


for _targets, _function in (
    ((torch.linalg.solve,), _solve),
    ((torch.linalg.inv, torch.inverse, Tensor.inverse), _inv),
    ((torch.linalg.det, torch.det, Tensor.det), _det),
    ((torch.linalg.slogdet, torch.slogdet, Tensor.slogdet), _slogdet),
    ((torch.linalg.pinv,), _pinv),
    ((torch.pinverse, Tensor.pinverse), lambda input, rcond=1e-15: _pinv(input, rcond)),
    ((torch.linalg.cholesky,), _cholesky),
    ((torch.linalg.qr,), _qr),
    ((torch.linalg.eigh,), _eigh),
    ((torch.linalg.eigvalsh,), lambda A, UPLO="L": _eigh(A, UPLO)[0]),
    ((torch.linalg.svd,), _svd),
    ((torch.linalg.svdvals,), lambda A, *, driver=None: _svd(A, False, driver=driver)[1]),
    ((torch.linalg.lstsq,), _lstsq),
):
    for _target in _targets:
        handles_one(_target, _function)
