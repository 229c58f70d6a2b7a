"""Least squares for matrices of deficient rank and of any scale."""

from dataclasses import dataclass

import torch

from trainwright.precision import PrecisionFormat, get_format
from trainwright.precision.rounding import exponent_of, scale_by_power
from trainwright.qr.householder import block_qr
from trainwright.qr.pivoted import pivoted_qr
from trainwright.qr.result import QRError
from trainwright.support.arguments import flag, plain, require_dense, require_plain
from trainwright.support.graphs import library_call

_ITERATIONS = 60
"""Most iterations with a low-precision factor; then the factorisation is repeated in float64."""
_EPSILON = 2.0**-53
_TINY_BITS = 10
"""Binary orders by which a basic column must be smaller than a free one for small entries of S
between the two to count as 0 (``_shortest`` defines S). If columns differ by less, the errors of
float64 in S leave 12 decimal digits of the shortest x."""


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Solution of min ||A x - b|| for ``A`` (..., m, n) and ``b`` (..., m) or (..., m, q)."""

    x: torch.Tensor
    """(..., n) or (..., n, q), in the type of A."""
    rank: torch.Tensor
    """Numerical rank, int64 (...)."""
    residual: torch.Tensor
    """||A x - b||_2, (...) or (..., q)."""
    threshold: float
    """Share of the largest pivot, of columns scaled to about 1, up to which pivots count as 0."""
    iterations: int
    """Most iterations of refinement from factors of low precision; 0 if the factor of any matrix is
    of float64."""


@library_call
def lstsq(
    A: torch.Tensor,
    b: torch.Tensor,
    *,
    threshold: float | None = None,
    basic: bool = False,
    low: str | PrecisionFormat | None = None,
) -> LeastSquares:
    """Solve min ||A x - b||_2, with the x of least norm where it is not unique.

    Columns are divided by powers of two and rows sorted by size before a QR with column pivoting in
    float64, so that neither tiny columns nor tiny rows are lost: the rank is that of A with its
    columns scaled, where pivots of at most ``threshold`` (default: max(m, n) times the epsilon of
    A's type, at most its root) times the largest count as 0. ``basic`` omits columns beyond the
    rank (x is 0 there) and gives up the least norm. With ``low`` (such as "fp16", "bf16" or
    "posit16") the factor of that precision preconditions float64 iterations to float64 accuracy; if
    its pivots do not show full rank, or the iterations do not converge (from a condition number of
    a few hundred on, 30 to 100 of half precision), the factor is made in float64 (``iterations`` is
    0). Raises ``QRError`` for matrices that do not fit, NaN and
    infinities, and x beyond the type.

    >>> A = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    >>> s = lstsq(A, torch.tensor([2.0, 2.0, 2.0], dtype=torch.float64))
    >>> int(s.rank), s.x
    (1, tensor([1.0000, 1.0000], dtype=torch.float64))
    >>> lstsq(A, torch.full((3,), 2.0, dtype=torch.float64), basic=True).x.sort().values
    tensor([0., 2.], dtype=torch.float64)
    """
    a, right, vector = _checked(A, b)
    basic = flag("basic", basic)
    if threshold is None:
        # Without the root, 128 columns of bfloat16 would have rank 0.
        epsilon = torch.finfo(A.dtype).eps
        threshold = min(max(A.shape[-2:]) * epsilon, epsilon**0.5)
    threshold = plain(threshold)
    if not isinstance(threshold, int | float) or not 0 <= threshold < 1:
        raise ValueError(f"threshold must be at least 0 and below 1, not {threshold!r}")
    batch = A.shape[:-2]
    solved = [
        _solved(matrix, other, threshold, basic, low)
        for matrix, other in zip(a.flatten(0, -3), right.flatten(0, -3), strict=True)
    ]
    n, q = a.shape[-1], right.shape[-1]
    x = torch.stack([s[0] for s in solved]) if solved else right.new_zeros(0, n, q)
    norms = torch.stack([s[2] for s in solved]) if solved else right.new_zeros(0, q)
    x, norms = x.reshape(*batch, n, q).to(A.dtype), norms.reshape(*batch, q).to(A.dtype)
    if not bool(torch.isfinite(x).all()):
        raise QRError(f"x overflows {A.dtype}: scale A or b")
    rank = torch.tensor([s[1] for s in solved], dtype=torch.int64).reshape(batch).to(A.device)
    counts = [s[3] for s in solved]
    iterations = max(counts, default=0) if all(counts) else 0
    if vector:
        x, norms = x[..., 0], norms[..., 0]
    return LeastSquares(x, rank, norms, threshold, iterations)


def _checked(A: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
    for name, x in (("A", A), ("b", b)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch tensor, not {type(x).__name__}")
        require_dense(name, x)
        require_plain(name, x)
        if x.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise QRError(f"{name} must be of real floats, not {x.dtype}")
        if not bool(torch.isfinite(x).all()):
            raise QRError(f"{name} has NaN or infinite elements")
    if A.dim() < 2:
        raise QRError(f"A must be a matrix, not of shape {[*A.shape]}")
    vector = b.dim() == A.dim() - 1
    right = b.unsqueeze(-1) if vector else b
    if right.dim() != A.dim() or right.shape[:-1] != A.shape[:-1]:
        raise QRError(f"b {[*b.shape]} does not fit A {[*A.shape]}: rows and batches must agree")
    a, right = (t.detach().to(torch.float64) for t in (A, right))
    return (a, right, vector) if a.dim() > 2 else (a[None], right[None], vector)


Solution = tuple[torch.Tensor, int, torch.Tensor, int]
"""x (n, q), rank, norms of the residual (q,) and iterations."""


def _solved(
    a: torch.Tensor,
    b: torch.Tensor,
    threshold: float,
    basic: bool,
    low: str | PrecisionFormat | None,
) -> Solution:
    n, q = a.shape[1], b.shape[1]
    if not a.numel():
        return b.new_zeros(n, q), 0, _norm(b), 0
    columns = exponent_of(a.abs().amax(0))
    scaled = scale_by_power(a, -columns)
    sizes = exponent_of(b.abs().amax(0))
    right = scale_by_power(b, -sizes)
    y, rank, iterations = None, n, 0
    if low is not None:
        y, iterations = _iterated(scaled, right, threshold, get_format(low))
    if y is None:
        y, rank = _pivoted(scaled, right, columns, threshold, basic)
    rest = _norm(right - scaled @ y)
    # By both scales at once: tiny A and b have a usual x, though 1 / A is out of range.
    x = scale_by_power(y, sizes - columns.unsqueeze(1))
    return x, rank, scale_by_power(rest, sizes), iterations


def _norm(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(x, dim=0)


def _pivoted(
    a: torch.Tensor, b: torch.Tensor, columns: torch.Tensor, threshold: float, basic: bool
) -> tuple[torch.Tensor, int]:
    """Solve by QR with column pivoting and rows sorted by size, which makes it stable for each row.

    Returns y = 2^columns x for the matrix a 2^columns, and the rank.
    """
    n = a.shape[1]
    rows = _falling(a)
    factors = pivoted_qr(a[rows])
    rank = factors.rank(threshold)
    y = a.new_zeros(n, b.shape[1])
    if not rank:
        return y, 0
    right = factors.apply(b[rows], transposed=True)[:rank]
    upper, power = factors.R[:rank], columns[factors.order].unsqueeze(1)
    if rank < n and not basic:
        y = _shortest(upper, right, power, threshold)
    else:
        y[:rank] = torch.linalg.solve_triangular(upper[:, :rank], right, upper=True)
    return y[factors.order.argsort()], rank


def _falling(a: torch.Tensor) -> torch.Tensor:
    """Order rows by their largest element, the largest first."""
    return a.abs().amax(1).argsort(dim=0, descending=True, stable=True)


def _shortest(
    upper: torch.Tensor, b: torch.Tensor, power: torch.Tensor, threshold: float
) -> torch.Tensor:
    """Return y = 2^power x of the shortest x with upper y = b, ``upper`` (rank, n) of full rank.

    The basic unknowns y1 follow from the free unknowns y2: y1 = y0 - S y2. The free unknowns
    minimise the length of x. Entries of S up to the threshold are rounding errors of columns that
    depend on each other. Between a tiny and a large column such an entry is set to 0, because times
    the large unknown of the tiny column it would outweigh all other unknowns. Between columns of
    about one size it stays, because without it x would not solve the equations.
    """
    rank, n = upper.shape
    start, shared = (
        torch.linalg.solve_triangular(upper[:, :rank], t, upper=True) for t in (b, upper[:, rank:])
    )
    noise = shared.abs() <= threshold * shared.abs().amax().clamp(min=1)
    shared[noise & _outgrows(power[:rank], power[rank:])] = 0
    order = _exchanged(start, shared, power, threshold)
    power = power[order]
    # Columns of ``directions`` span the changes of y that leave upper y as it is.
    directions = torch.cat([-shared, torch.eye(n - rank, dtype=upper.dtype, device=upper.device)])
    start = torch.cat([start, b.new_zeros(n - rank, b.shape[1])])
    (tall, steps), (wide, sizes) = (_with_rows(t, -power) for t in (directions, start))
    rows = _falling(tall)
    inner = pivoted_qr(tall[rows])
    right = inner.apply(wide[rows], transposed=True)[: n - rank]
    free = torch.linalg.solve_triangular(inner.R[: n - rank], right, upper=True)
    free = scale_by_power(-free[inner.order.argsort()], sizes - steps.unsqueeze(1))
    return (start + directions @ free)[order.argsort()]


def _outgrows(basic: torch.Tensor, free: torch.Tensor) -> torch.Tensor:
    """Return for each entry of S whether its basic column is tiny next to its free column."""
    return free.mT - basic > _TINY_BITS


def _exchanged(
    start: torch.Tensor, shared: torch.Tensor, power: torch.Tensor, threshold: float
) -> torch.Tensor:
    """Exchange basic and free unknowns until none is far larger than those that it follows from.

    Changes ``start`` and ``shared`` (S) in place, and returns the order of the unknowns. The
    unknown of a tiny column that depends on larger columns must be free: as a basic unknown it
    would be the small difference of large terms. Each step exchanges the unknowns of the largest
    entry of S in units of x, as Gaussian elimination with complete pivoting does. It ends when all
    entries are about 4 or less: a limit of 1 would take many more steps and gain little.
    """
    rank, free = shared.shape
    order = torch.arange(rank + free, device=shared.device)
    while free:
        sizes = exponent_of(shared.abs()) + power[order[rank:]].mT - power[order[:rank]]
        sizes = torch.where(shared == 0, torch.iinfo(sizes.dtype).min, sizes)
        i, j = divmod(int(sizes.argmax()), free)
        if int(sizes[i, j]) <= 2:  # exponents of base 2: entries of about 4
            break
        pivot, column, before = shared[i, j].clone(), shared[:, j].clone(), shared.abs()
        row, rest = shared[i] / pivot, start[i] / pivot
        shared -= column.unsqueeze(1) * row
        noise = shared.abs() <= threshold * before  # almost all of the entry cancelled
        shared[noise & _outgrows(power[order[:rank]], power[order[rank:]])] = 0
        start -= column.unsqueeze(1) * rest
        shared[:, j], shared[i], start[i] = -column / pivot, row, rest
        shared[i, j] = 1 / pivot
        order[[i, rank + j]] = order[[rank + j, i]]
    return order


def _with_rows(x: torch.Tensor, power: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x 2^power, power (rows, 1), with columns divided by 2^k to about 1, and k."""
    exponents = torch.where(x == 0, torch.iinfo(power.dtype).min // 2, exponent_of(x) + power)
    most = exponents.amax(0)
    most = torch.where((x == 0).all(0), 0, most)
    return scale_by_power(x, power - most), most


def _iterated(
    a: torch.Tensor, b: torch.Tensor, threshold: float, low: PrecisionFormat
) -> tuple[torch.Tensor | None, int]:
    """Solve by conjugate gradients on A R^-1, R of a factorisation in low precision, in float64.

    The second solution corrects the residual of the first. ``None`` if R does not show full rank,
    or if gradients do not become small.
    """
    m, n = a.shape
    if m < n:
        return None, 0
    try:
        high = "fp32" if low.digits <= get_format("fp32").digits else "fp64"
        upper = block_qr(a, low=low, high=high, rounding="block").R.to(torch.float64)
    except QRError:
        return None, 0
    pivots = upper.diagonal().abs()
    noise = n * 2.0 ** (1 - low.digits)  # relative to the largest pivot: below, R says nothing
    if not bool(pivots.min() > max(threshold, noise) * pivots.max()):
        return None, 0
    y, count = torch.zeros(n, b.shape[1], dtype=a.dtype, device=a.device), 0
    for _ in range(2):
        change, steps = _conjugate_gradients(a, upper, b - a @ y)
        if change is None:
            return None, 0
        y, count = y + change, count + steps
    return y, count


def _conjugate_gradients(
    a: torch.Tensor, upper: torch.Tensor, rest: torch.Tensor
) -> tuple[torch.Tensor | None, int]:
    """Run CGLS on A R^-1 until the gradient is 2^-51 of ||A R^-1||_F ||r||; return R^-1 z.

    Columns of A R^-1 have lengths of about 1, so the square root of their number stands for its
    norm.
    """

    def solve(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve_triangular(upper, x, upper=True)

    def back(r: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve_triangular(upper.mT, a.mT @ r, upper=False)

    y = torch.zeros_like(a[0]).unsqueeze(1).expand(-1, rest.shape[1]).clone()
    gradient = back(rest)
    start = _norm(gradient)
    direction, square = gradient.clone(), gradient.square().sum(0)
    size = a.shape[1] ** 0.5
    for step in range(_ITERATIONS):
        small = torch.sqrt(square) <= 4 * _EPSILON * torch.maximum(size * _norm(rest), start)
        if bool(small.all()):
            return y, step
        moved = solve(direction)
        image = a @ moved
        length = square / image.square().sum(0).clamp(min=1e-300)
        y, rest = y + moved * length, rest - image * length
        gradient = back(rest)
        before, square = square, gradient.square().sum(0)
        direction = gradient + direction * (square / before.clamp(min=1e-300))
    return None, _ITERATIONS
