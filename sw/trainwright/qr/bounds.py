"""gamma_k and its calculus: Lemmas 2.1 to 2.3 of the draft, and the square-root bounds.

u is a unit round-off (``PrecisionFormat.unit``). Functions named ``*_bound`` check that the
relation in their docstring holds for the arguments, and return its right-hand side.
"""

from math import exp, log, sqrt


class BoundError(ValueError):
    """Error: the analysis gives no bound, because k u >= 1 or another precondition fails."""


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise BoundError(message)


def gamma(k: float, u: float) -> float:
    """Return gamma_k = k u / (1 - k u) >= |prod (1 + delta_i)^(+-1) - 1| of k factors (Lemma 2.1).

    Raises ``BoundError`` unless k u < 1. The value is below 1, and therefore meaningful, only for k
    u < 1/2.
    """
    _check(0 <= u < 1, f"u must be in [0, 1), not {u!r}")
    _check(k >= 0, f"k must be at least 0, not {k!r}")
    _check(k * u < 1, f"gamma_k needs k u < 1, and {k!r} x {u!r} = {k * u:.4g} is not")
    return k * u / (1 - k * u)


def gamma_tilde(k: float, u: float, c: float = 4) -> float:
    """Return gamma_(ck), c a small positive integer. Raises ``BoundError`` unless c k u < 1."""
    _check(c > 0, f"c must be over 0, not {c!r}")
    return gamma(c * k, u)


def most_operations(u: float) -> int:
    """Return the largest k with gamma_k <= 1, that is k u <= 1/2 (the draft's Table 2)."""
    return int(0.5 / u)


# --- Lemma 2.2: one precision ---------------------------------------------------------------


def theta_product(k: int, j: int) -> int:
    """Return k + j, the index in (1 + theta_k)(1 + theta_j) = 1 + theta_(k+j), (2.8)."""
    return k + j


def theta_quotient(k: int, j: int) -> int:
    """Return the index of (1 + theta_k)/(1 + theta_j): k + j if j <= k, else k + 2j (2.8)."""
    return k + j if j <= k else k + 2 * j


def product_bound(k: float, j: float, u: float) -> float:
    """Bound gamma_k gamma_j <= gamma_min(k,j) where max(j, k) u <= 1/2."""
    _check(max(j, k) * u <= 0.5, f"needs max(j, k) u <= 1/2, not {max(j, k) * u:.4g}")
    return gamma(min(k, j), u)


def multiple_bound(n: float, k: float, u: float) -> float:
    """Bound n gamma_k <= gamma_(nk) where n k u < 1, n >= 1."""
    _check(n >= 1, f"n must be at least 1, not {n!r}")
    return gamma(n * k, u)


def plus_unit_bound(k: float, u: float) -> float:
    """Bound gamma_k + u <= gamma_(k+1)."""
    return gamma(k + 1, u)


def sum_bound(k: float, j: float, u: float) -> float:
    """Bound gamma_k + gamma_j + gamma_k gamma_j <= gamma_(k+j)."""
    return gamma(k + j, u)


# --- Lemma 2.3: a low and a high precision --------------------------------------------------


def theta_product_mixed(kl: int, jl: int, kh: int, jh: int) -> tuple[int, int]:
    """Return indices (low, high) of the product of four factors (2.9)."""
    return theta_product(kl, jl), theta_product(kh, jh)


def theta_quotient_mixed(kl: int, jl: int, kh: int, jh: int) -> tuple[int, int]:
    """Return indices (low, high) of the quotient of (k_l, k_h) by (j_l, j_h) (2.10)."""
    return theta_quotient(kl, jl), theta_quotient(kh, jh)


def low_equivalent(kh: float, ul: float, uh: float) -> int:
    """Return d = floor(k_h u_h / u_l), the low operations that k_h high ones amount to."""
    _check(0 < uh <= ul < 1, f"needs 0 < u_h <= u_l < 1, not u_h = {uh!r}, u_l = {ul!r}")
    return int(kh * uh / ul)


def product_bound_mixed(kl: float, kh: float, ul: float, uh: float) -> float:
    """Bound gamma^h_kh gamma^l_kl <= gamma^l_kl where k_h u_h <= 1/2 (2.11).

    The draft prints k_l on both sides, with k_l u_l <= 1/2, which is the case kh = kl.
    """
    _check(kh * uh <= 0.5, f"needs k_h u_h <= 1/2, not {kh * uh:.4g}")
    return gamma(kl, ul)


def high_plus_low_unit_bound(kh: float, ul: float, uh: float) -> float:
    """Bound gamma^h_kh + u_l <= gamma^l_(d+2) (2.12).

    Also the error of a mixed dot product (2.4).
    """
    return gamma(low_equivalent(kh, ul, uh) + 2, ul)


def low_plus_high_unit_bound(kl: float, ul: float, uh: float) -> float:
    """Bound gamma^l_kl + u_h <= gamma^l_(kl+1) (2.13)."""
    low_equivalent(0, ul, uh)
    return gamma(kl + 1, ul)


def sum_bound_mixed(kl: float, kh: float, ul: float, uh: float) -> float:
    """Bound gamma^l_kl + gamma^h_kh + gamma^l_kl gamma^h_kh < gamma^l_(kl+d+1) (2.14)."""
    return gamma(kl + low_equivalent(kh, ul, uh) + 1, ul)


# --- Probabilistic (Higham and Mary 2019) ---------------------------------------------------


def gamma_probabilistic(k: float, u: float, factor: float) -> float:
    """Return exp(factor sqrt(k) u + k u^2 / (1 - u)) - 1, which replaces gamma_k.

    Holds with probability at least 1 - 2 exp(-factor^2 (1 - u)^2 / 2) for one product of k
    independent rounding errors of mean 0. Does not need k u < 1.
    """
    _check(0 <= u < 1, f"u must be in [0, 1), not {u!r}")
    _check(k >= 0, f"k must be at least 0, not {k!r}")
    exponent = factor * sqrt(k) * u + k * u * u / (1 - u)
    return exp(exponent) - 1 if exponent < 700 else float("inf")


def probability_factor(count: float, u: float, confidence: float = 0.99) -> float:
    """Return lambda for ``count`` bounds to hold together with probability ``confidence``."""
    _check(0 < confidence < 1, f"confidence must be in (0, 1), not {confidence!r}")
    return sqrt(2 * log(2 * count / (1 - confidence))) / (1 - u)


def dot_bound(m: int, u: float) -> float:
    """Bound |x^T y - fl(x^T y)| / |x|^T |y| of m elements, every operation rounded (2.7)."""
    return gamma(m, u)


def dot_bound_mixed(m: int, ul: float, uh: float) -> float:
    """Bound the dot product's error under Assumption 2.4: gamma^l_(d+2), d = floor(m u_h / u_l)."""
    return high_plus_low_unit_bound(m, ul, uh)


def dot_bound_probabilistic(m: int, u: float, confidence: float = 0.99) -> float:
    """Bound one dot product's error with probability ``confidence`` over all m summands."""
    return gamma_probabilistic(m, u, probability_factor(m, u, confidence))
