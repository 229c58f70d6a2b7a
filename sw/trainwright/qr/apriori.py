"""A priori error bounds of the factorisations, derived from their operations.

A computed reflector applied to a vector c gives P c + e with ||e||_2 <= epsilon ||c||_2. Column j
of A and of the thin Q meets at most j reflectors (the remaining reflectors leave it unchanged,
exactly), which perturbs it by (1 + epsilon)^j - 1 relative to its norm. Summed over the columns
this gives ||Q^ - Q||_F <= delta, and from delta both bounds. Underflow is omitted. Constants are
counted from the code, not "a small integer c". Two results come from the literature: a block in WY
form errs at most twice as much as its reflectors applied separately (Higham 2002, section 19.5),
and independent rounding errors accumulate as square roots (Higham and Mary 2019, who observe that
the factor lambda = 1 suffices; the caller may choose another).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, hypot, inf, isfinite, log1p, sqrt

from trainwright.qr import bounds
from trainwright.qr.precision import Precision


@dataclass(frozen=True)
class ErrorBound:
    """Upper bounds of ||QR - A||_F / ||A||_F and ||Q^T Q - I||_2; inf where none is known."""

    residual: float
    orthogonality: float


@dataclass(frozen=True)
class Shape:
    """Sizes that a bound depends on: ``block`` columns per panel, 2^levels row blocks."""

    m: int
    n: int
    block: int | None = None
    levels: int = 0

    @property
    def leaf(self) -> int:
        """Rows of the largest row block."""
        return -(-self.m // (1 << self.levels))


@dataclass(frozen=True)
class _Rules:
    """Accumulation of errors: worst case, or with square roots if ``factor`` is given."""

    factor: float | None = None

    def gamma(self, k: float, u: float) -> float:
        """Bound k rounding errors; inf where Lemma 2.1 does not hold."""
        worst = bounds.gamma(k, u) if k * u < 1 else inf
        if self.factor is None:
            return worst
        return min(worst, bounds.gamma_probabilistic(k, u, self.factor))

    def together(self, *errors: float) -> float:
        """Return the relative error of a product of factors with these relative errors.

        Independent errors combine to the root of the sum of their squares.
        """
        return _compound(*errors) if self.factor is None else hypot(*errors)

    def norms(self, width: int) -> float:
        """Bound ||W||_F ||V||_F over ``width`` reflectors.

        ||V||_F <= sqrt(2 r) and ||W||_F <= 2 sqrt(r), as |beta| ||v||^2 = 2 and |beta| <= 2.
        Independent errors of the elements meet only one of the two square roots of r.
        """
        return 2 * sqrt(2) * (width if self.factor is None else sqrt(width))

    def repeat(self, count: float, epsilon: float) -> float:
        """Return the relative error after ``count`` steps of relative error ``epsilon``."""
        if count == 0 or not isfinite(epsilon):
            return 0.0 if count == 0 else inf
        size = count * epsilon
        if self.factor is not None:
            small = min(epsilon, 0.5)
            root = self.factor * sqrt(count) * epsilon + count * epsilon**2 / (1 - small)
            return expm1(min(size, root)) if min(size, root) < 700 else inf
        return expm1(count * log1p(epsilon)) if size < 700 else inf


def _compound(*errors: float) -> float:
    """Return the worst relative error of a product of factors with these relative errors."""
    total = 1.0
    for error in errors:
        total *= 1 + error
    return total - 1


def _inverse(error: float) -> float:
    """Return the relative error of 1 / x for an x of relative error ``error``."""
    return error / (1 - error) if error < 1 else inf


def _root(error: float) -> float:
    """Return the relative error of sqrt(x) for an x of relative error ``error``."""
    return 1 - sqrt(1 - error) if error < 1 else inf


def _dot(rows: int, precision: Precision, rules: _Rules) -> float:
    """Return the relative error of an inner product in the panels' arithmetic."""
    high, low = precision.high.unit, precision.low
    if low is not None and precision.rounding == "inner":
        return rules.gamma(bounds.low_equivalent(rows, low.unit, high) + 2, low.unit)
    return rules.gamma(rows, high)


def reflector_error(rows: int, precision: Precision, rules: _Rules) -> float:
    """Return epsilon for a reflector of ``rows`` rows made by Algorithm 2 and applied once."""
    inner = precision.low is not None and precision.rounding == "inner"
    u = precision.storage.unit if inner else precision.high.unit
    dot = _dot(rows, precision, rules)
    sigma = rules.together(_root(dot), u)
    head = rules.together(sigma, u)
    beta = rules.together(head, _inverse(sigma), u)
    vector = rules.together(_inverse(head), u)
    # fl(c - v (beta (v^T c))), and |beta| ||v||^2 = 2
    return u + 2 * rules.together(dot, vector, beta, u, vector, u, u)


def _cast_block_error(rows: int, width: int, precision: Precision, rules: _Rules) -> float:
    """Return epsilon of I - W V^T, ``width`` reflectors, with W, V and W^T C cast to low (3.5)."""
    assert precision.low is not None
    low, high = precision.low.unit, precision.high.unit
    sums = rules.together(rules.gamma(rows, high), rules.gamma(width, high), high)
    casts = rules.together(low, low, low, sums)
    reflectors = rules.repeat(2 * width, reflector_error(rows, precision, rules))
    return low + rules.norms(width) * casts + reflectors


def _column_errors(
    shape: Shape, precision: Precision, rules: _Rules
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return the relative perturbation of column j (from 1) of A in R, and of I in Q."""
    leaf = reflector_error(shape.leaf, precision, rules)
    node = reflector_error(2 * shape.n, precision, rules)
    levels, width = shape.levels, min(shape.block or shape.n, shape.n)
    if precision.low is not None and precision.rounding == "block":
        low = precision.low.unit
        rows = (shape.leaf,) + (2 * shape.n,) * levels
        casts = [_cast_block_error(r, width, precision, rules) for r in rows]
        down = _compound(*casts) if levels else casts[0]

        def of_r(j: int) -> float:
            updates = rules.repeat((j - 1) // width, casts[0])
            panels = [rules.repeat(min(j, width), leaf)]
            panels += [rules.repeat(j, node)] * levels
            return _compound(updates, *panels, rules.repeat(1 + levels, low))

        return of_r, lambda j: rules.repeat(-(-j // width), down)
    doubled = 2 if shape.block is not None else 1

    def plain(j: int) -> float:
        return _compound(rules.repeat(doubled * j, leaf), rules.repeat(levels * j, node))

    return plain, plain


def a_priori(shape: Shape, precision: Precision, *, factor: float | None = None) -> ErrorBound:
    """Bound the errors in the worst case, or with square roots if ``factor`` is given.

    ``factor`` is lambda of ``bounds.gamma_probabilistic``. The bound includes the input's own
    rounding to the storage format. Posits have no unit round-off that holds everywhere, so their
    bound is inf.
    """
    if precision.storage.tapered or precision.high.tapered:
        return ErrorBound(inf, inf)
    rules = _Rules(factor)
    of_r, of_q = _column_errors(shape, precision, rules)
    n, u = shape.n, precision.storage.unit
    last = of_r(n)
    delta = hypot(*(of_q(j) for j in range(1, n + 1)))
    if not (isfinite(last) and isfinite(delta)):
        return ErrorBound(inf, inf)
    cast = u if precision.low is not None and precision.rounding == "end" else 0.0
    delta += cast * (sqrt(n) + delta)
    r = _compound(last, cast)
    # A + E = Q R exactly for some E within `last`; then Q^ differs from Q by delta, R by its cast
    residual = u + (1 + u) * (last + (1 + last) * cast + (1 + r) * delta)
    return ErrorBound(residual, 2 * delta + delta * delta)


def leading(shape: Shape, precision: Precision) -> float:
    """Return the bound's leading term with constant 1, for residual and orthogonality alike.

    HQR n^(3/2) gamma_m; BLAS-2 n^(3/2) gamma^l_(d+2); BLAS-3 sqrt(n) (N u_l + n gamma^h_m);
    rounding at the end adds sqrt(n) u_l; TSQR has m 2^-L for m, plus L gamma_(2n).
    """
    rules, n = _Rules(), shape.n
    dots = _dot(shape.leaf, precision, rules) + shape.levels * _dot(2 * n, precision, rules)
    first = n * dots
    if precision.low is not None and precision.rounding != "inner":
        width = min(shape.block or n, n)
        casts = -(-n // width) + shape.levels if precision.rounding == "block" else 1
        first += casts * precision.low.unit
    return sqrt(n) * first
