"""A priori error bounds of the factorisations, from the operations that they do.

A computed reflector applied to a vector c gives P c + e with ||e||_2 <= epsilon ||c||_2. Column j
of A and of the thin Q meets at most j reflectors (the others leave it as it is, exactly), so that
it is perturbed by (1 + epsilon)^j - 1 relative to its norm; summed over the columns this gives
||Q^ - Q||_F <= delta and from it both bounds. Underflow is left out. Constants are those of the
code and not "a small integer c"; two things are taken from the literature: that a block in WY form
errs at most twice as much as its reflectors one by one (Higham 2002, section 19.5), and that
rounding errors accumulate as square roots where they are independent (Higham and Mary 2019, who
observe that the factor lambda = 1 suffices; any other can be given).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, hypot, inf, isfinite, log1p, sqrt

from trainwright.qr import bounds
from trainwright.qr.precision import Precision


@dataclass(frozen=True)
class Bound:
    """Upper bounds of ||QR - A||_F / ||A||_F and ||Q^T Q - I||_2; inf where nothing is known."""

    residual: float
    orthogonality: float


@dataclass(frozen=True)
class Shape:
    """What a bound depends on beside the precisions: ``block`` columns a panel, 2^levels rows."""

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
    """How errors accumulate: worst case, or with square roots where ``factor`` is given."""

    factor: float | None = None

    def gamma(self, k: float, u: float) -> float:
        """Bound of k rounding errors; inf where Lemma 2.1 does not hold."""
        worst = bounds.gamma(k, u) if k * u < 1 else inf
        if self.factor is None:
            return worst
        return min(worst, bounds.gamma_probabilistic(k, u, self.factor))

    def together(self, *errors: float) -> float:
        """Relative error of a product of factors with these relative errors."""
        return _and(*errors) if self.factor is None else hypot(*errors)

    def norms(self, width: int) -> float:
        """Bound of ||W||_F ||V||_F over ``width`` reflectors.

        ||V||_F <= sqrt(2 r) and ||W||_F <= 2 sqrt(r), as |beta| ||v||^2 = 2 and |beta| <= 2.
        Independent errors of the elements meet only one of the two square roots of r.
        """
        return 2 * sqrt(2) * (width if self.factor is None else sqrt(width))

    def repeat(self, count: float, epsilon: float) -> float:
        """Relative error after ``count`` steps of relative error ``epsilon``."""
        if count == 0 or not isfinite(epsilon):
            return 0.0 if count == 0 else inf
        size = count * epsilon
        if self.factor is not None:
            rest = min(epsilon, 0.5)
            root = self.factor * sqrt(count) * epsilon + count * epsilon**2 / (1 - rest)
            return expm1(min(size, root)) if min(size, root) < 700 else inf
        return expm1(count * log1p(epsilon)) if size < 700 else inf


def _and(*errors: float) -> float:
    """Relative error of a product of factors with these relative errors."""
    total = 1.0
    for error in errors:
        total *= 1 + error
    return total - 1


def _inverse(error: float) -> float:
    return error / (1 - error) if error < 1 else inf


def _root(error: float) -> float:
    return 1 - sqrt(1 - error) if error < 1 else inf


def _dot(rows: int, precision: Precision, rules: _Rules) -> float:
    """Relative error of an inner product in the arithmetic of the panels."""
    high, low = precision.high.unit, precision.low
    if low is not None and precision.rounding == "inner":
        return rules.gamma(bounds.low_equivalent(rows, low.unit, high) + 2, low.unit)
    return rules.gamma(rows, high)


def reflector_error(rows: int, precision: Precision, rules: _Rules) -> float:
    """epsilon of one reflector on ``rows`` rows made by Algorithm 2 and applied to a vector."""
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
    """epsilon of I - W V^T of ``width`` reflectors with W, V and W^T C cast to low (3.5)."""
    assert precision.low is not None
    low, high = precision.low.unit, precision.high.unit
    sums = rules.together(rules.gamma(rows, high), rules.gamma(width, high), high)
    casts = rules.together(low, low, low, sums)
    reflectors = rules.repeat(2 * width, reflector_error(rows, precision, rules))
    return low + rules.norms(width) * casts + reflectors


def _column_errors(
    shape: Shape, precision: Precision, rules: _Rules
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Relative perturbation of column j (from 1) of A in R, and of I in Q."""
    leaf = reflector_error(shape.leaf, precision, rules)
    node = reflector_error(2 * shape.n, precision, rules)
    levels, width = shape.levels, min(shape.block or shape.n, shape.n)
    if precision.low is not None and precision.rounding == "block":
        low = precision.low.unit
        rows = (shape.leaf,) + (2 * shape.n,) * levels
        casts = [_cast_block_error(r, width, precision, rules) for r in rows]
        down = _and(*casts) if levels else casts[0]

        def of_r(j: int) -> float:
            updates = rules.repeat((j - 1) // width, casts[0])
            panels = [rules.repeat(min(j, width), leaf)]
            panels += [rules.repeat(j, node)] * levels
            return _and(updates, *panels, rules.repeat(1 + levels, low))

        return of_r, lambda j: rules.repeat(-(-j // width), down)
    doubled = 2 if shape.block is not None else 1

    def plain(j: int) -> float:
        return _and(rules.repeat(doubled * j, leaf), rules.repeat(levels * j, node))

    return plain, plain


def a_priori(shape: Shape, precision: Precision, *, factor: float | None = None) -> Bound:
    """The worst-case bound, or with ``factor`` the one with square roots, that being lambda of
    ``bounds.gamma_probabilistic``.

    The input's own rounding to the storage format is in it. Posits have no unit round-off that
    holds everywhere, so that nothing is known of them.
    """
    if precision.storage.tapered or precision.high.tapered:
        return Bound(inf, inf)
    rules = _Rules(factor)
    of_r, of_q = _column_errors(shape, precision, rules)
    n, u = shape.n, precision.storage.unit
    last = of_r(n)
    delta = hypot(*(of_q(j) for j in range(1, n + 1)))
    if not (isfinite(last) and isfinite(delta)):
        return Bound(inf, inf)
    cast = u if precision.low is not None and precision.rounding == "end" else 0.0
    delta += cast * (sqrt(n) + delta)
    r = _and(last, cast)
    # A + E = Q R exactly for E within `last`; then Q^ differs from Q by delta, R by its cast
    residual = u + (1 + u) * (last + (1 + last) * cast + (1 + r) * delta)
    return Bound(residual, 2 * delta + delta * delta)


def leading(shape: Shape, precision: Precision) -> float:
    """The bound's leading term with constant 1, of the residual and of the orthogonality alike.

    HQR n^(3/2) gamma_m; BLAS-2 n^(3/2) gamma^l_(d+2); BLAS-3 sqrt(n) (N u_l + n gamma^h_m);
    rounding at the end adds sqrt(n) u_l; TSQR with m 2^-L for m, plus L gamma_(2n).
    """
    rules, n = _Rules(), shape.n
    dots = _dot(shape.leaf, precision, rules) + shape.levels * _dot(2 * n, precision, rules)
    first = n * dots
    if precision.low is not None and precision.rounding != "inner":
        width = min(shape.block or n, n)
        casts = -(-n // width) + shape.levels if precision.rounding == "block" else 1
        first += casts * precision.low.unit
    return sqrt(n) * first
