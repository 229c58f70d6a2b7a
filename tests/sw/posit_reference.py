"""Posits once more, by exact integers and rationals and from the standard's text alone.

Nothing here is shared with ``trainwright.posit``. A word's value is the standard's formula on the
word as it stands, negative words included: with the sign s, the regime's number r, the exponent e
and the fraction f, ((1 - 3 s) + f) 2^((1 - 2 s) (2^es r + e + s)). The value half-way between two
neighbours, for rounding, is that of the word of n + 1 bits between them.
"""

from fractions import Fraction
from functools import cache, lru_cache
from math import isqrt

import numpy as np


def parts(code: int, n: int, es: int) -> tuple[int, int] | None:
    """Return (significand, exponent): value = significand 2^exponent; ``None`` for NaR."""
    if code == 0:
        return 0, 0
    if code == 1 << (n - 1):
        return None
    bits = f"{code:0{n}b}"
    sign, rest = int(bits[0]), bits[1:]
    run = len(rest) - len(rest.lstrip(rest[0]))
    r = run - 1 if rest[0] == "1" else -run
    rest = rest[run + 1 :] + "0" * es
    e = int("0" + rest[:es], 2)
    fraction = rest[es : max(es, len(rest) - es)]
    f = int("0" + fraction, 2)
    scale = (1 - 2 * sign) * ((r << es) + e + sign)
    return ((1 - 3 * sign) << len(fraction)) + f, scale - len(fraction)


@lru_cache(1 << 16)
def value(code: int, n: int, es: int) -> Fraction:
    """Return the exact value of a code other than NaR."""
    fields = parts(code, n, es)
    assert fields is not None
    return fields[0] * Fraction(2) ** fields[1]


def nearest(x: Fraction | None, n: int, es: int) -> int:
    """Return the code nearest to ``x``; ``None`` is NaR."""
    if x is None:
        return 1 << (n - 1)
    if x == 0:
        return 0
    size = abs(x)
    low, high = 1, 1 << (n - 1)  # codes of value <= size (or 1), and above (or past the last)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle, n, es) <= size else (low, middle)
    if high < 1 << (n - 1) and size > value(low, n, es):
        half = value(2 * low + 1, n + 1, es)
        low += size > half or (size == half and low % 2 == 1)
    return low if x > 0 else (1 << n) - low


def reciprocal_root(code: int, n: int, es: int) -> int:
    """Return the code nearest to 1 / root of a code's value; NaR from 0 downwards."""
    nar = 1 << (n - 1)
    if code == 0 or code >= nar:
        return nar
    squared = 1 / value(code, n, es)
    shift = 200 + 2 * (n << es)  # digits, even: far more than a word has
    size = isqrt(int(squared * 2**shift))
    inexact = Fraction(size * size, 2**shift) != squared
    return nearest(Fraction(2 * size + inexact, 2 ** (shift // 2 + 1)), n, es)


@cache
def _arrays(n: int, es: int) -> tuple[np.ndarray, np.ndarray]:
    rows = [parts(code, n, es) or (0, 0) for code in range(1 << n)]
    significand, exponent = np.array(rows, dtype=np.int64).T
    return significand, exponent


class Table:
    """Every value of a format of at most 16 bits, and of those half-way, as two integer arrays."""

    def __init__(self, n: int, es: int):
        self.n, self.es = n, es
        self.values = _arrays(n, es)  # (significand, exponent) by code
        self.halves = _arrays(n + 1, es)
        self.unit = -2 * ((n - 1) << es)  # all that is summed here is a multiple of 2^unit

    def sign(self, *terms: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return the sign of the sum of (significand, exponent) terms, significands below 2^31."""
        count = 4 * (self.n << self.es) // 30 + 5
        limbs = np.zeros((count, len(terms[0][0])), dtype=np.int64)  # of 30 bits, signed
        lanes = np.arange(limbs.shape[1])
        for significand, exponent in terms:
            place, shift = np.divmod(exponent - self.unit, 30)
            size = np.abs(significand) << shift
            limbs[place, lanes] += np.sign(significand) * (size & (2**30 - 1))
            limbs[place + 1, lanes] += np.sign(significand) * ((size >> 30) & (2**30 - 1))
            limbs[place + 2, lanes] += np.sign(significand) * (size >> 60)
        for i in range(count - 1):
            limbs[i + 1] += limbs[i] >> 30
            limbs[i] &= 2**30 - 1
        top = limbs[-1]
        return np.where(top < 0, -1, (limbs != 0).any(0).astype(np.int64))

    def floats(self, which: str = "values") -> np.ndarray:
        """Return the values, or the values half-way, in float64, which is exact."""
        significand, exponent = getattr(self, which)
        return np.ldexp(significand.astype(np.float64), exponent.astype(np.int32))

    def nearest(self, x: np.ndarray) -> np.ndarray:
        """Return codes nearest to finite float64 values, by search among half-way values."""
        nar = 1 << (self.n - 1)
        halves = self.floats("halves")[3 : 2 * nar - 1 : 2]  # above codes 1, 2, ..., nar - 2
        index = np.searchsorted(halves, np.abs(x))
        tie = index < len(halves)
        tie[tie] = halves[index[tie]] == np.abs(x)[tie]
        code = 1 + index + (tie & (index % 2 == 0))
        return np.where(x == 0, 0, np.where(x < 0, 2 * nar - code, code))

    def wrong(self, operation: str, got: np.ndarray, *codes: np.ndarray) -> np.ndarray:
        """Return a mask of codes in ``got`` that are not the correctly rounded result.

        The exact result must lie between the values half-way to the neighbours of ``got``, or on
        one of them if ``got`` is even; past 0, NaR and the extremes as the standard says. Signs of
        exact sums decide: of x + y - h, x y - h, x - h y, x - h^2, x y + z - h.
        """
        nar = 1 << (self.n - 1)
        operands = [(self.values[0][c], self.values[1][c]) for c in codes]
        undefined = np.zeros(got.shape, dtype=bool)
        for c in codes:
            undefined |= c == nar
        if operation == "div":
            undefined |= codes[1] == 0
        if operation == "sqrt":
            undefined |= operands[0][0] < 0
        zero = np.zeros_like(got)
        exact = _against(operation, operands, (zero, zero), self.sign)
        extreme = [c & (2 * nar - 1) for c in (got + 1, got - 1)]
        above = _against(operation, operands, self._half(2 * got + 1), self.sign)
        below = _against(operation, operands, self._half(2 * got - 1), self.sign)
        even = got % 2 == 0
        fits = (above < 0) | (extreme[0] == nar) | (even & (above == 0))
        fits &= (below > 0) | (extreme[1] == nar) | (even & (below == 0))
        small = (got == 1) | (got == 2 * nar - 1)  # down to 0, not included
        fits |= (got == 1) & (exact > 0) & (above < 0)
        fits |= (got == 2 * nar - 1) & (exact < 0) & (below > 0)
        fits &= ~small | np.where(got == 1, exact > 0, exact < 0)
        right = np.where(got == 0, exact == 0, fits & (got != nar))
        return np.where(undefined, got != nar, ~right)

    def _half(self, code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        code = code & (4 * (1 << (self.n - 1)) - 1)
        return self.halves[0][code], self.halves[1][code]


@cache
def table(n: int, es: int) -> Table:
    """Make ``Table`` once."""
    return Table(n, es)


def _product(x, y):
    return x[0] * y[0], x[1] + y[1]


def _minus(x):
    return -x[0], x[1]


def _against(operation, operands, h, sign):
    """Return the sign of (exact result - h)."""
    x, y = operands[0], operands[min(1, len(operands) - 1)]
    if operation == "add":
        return sign(x, y, _minus(h))
    if operation == "sub":
        return sign(x, _minus(y), _minus(h))
    if operation == "mul":
        return sign(_product(x, y), _minus(h))
    if operation == "div":
        return sign(x, _minus(_product(h, y))) * np.sign(y[0])
    if operation == "fma":
        return sign(_product(x, y), operands[2], _minus(h))
    assert operation == "sqrt"
    squared = sign(x, _minus(_product(h, h)))
    return np.where(h[0] < 0, 1, squared)
