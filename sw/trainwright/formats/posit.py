"""Posits of up to 16 bits, as integers on a grid.

With S = (n - 2) 2^es every value of posit(n, es) is a multiple of its smallest one, 2^-S, and at
most 2^S: an integer of 2S + 2 bits, sign included. Products and sums of such integers are exact,
and a sum is rounded by comparing it with the bounds between words.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil

from trainwright.formats.base import SUM_WIDTH, FormatError
from trainwright.formats.coded import OPERAND_WIDTH as CLAMPED_WIDTH
from trainwright.formats.coded import Coded
from trainwright.support.arguments import take_numpy_sizes

SIZES = (3, 16)
"""Least and greatest n."""
EXPONENT_BITS = (0, 4)


@dataclass(frozen=True)
class Posit(Coded):
    """Posit of ``n`` bits (3 to 16) and ``es`` exponent bits (0 to 4), ``clamped`` or not.

    A clamped format saturates at the largest posit whose integer has at most ``CLAMPED_WIDTH``
    bits; the words beyond it are never encoded and stand for nothing. NaR is no value either.

    Raises ``FormatError`` outside these ranges, where the integers of all words do not fit
    ``SUM_WIDTH`` bits, and for a clamped format that either needs no clamp or ends below 1.
    """

    n: int
    es: int
    clamped: bool = False

    spelling = re.compile(r"posit\s*\(\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\)(c?)")
    allowed = (
        "posit(N,ES) with N from {} to {} and ES from {} to {}, posit(N,ES)c, which saturates at "
        "the largest posit that fits an operand of 18 bits"
    ).format(*SIZES, *EXPONENT_BITS)

    @classmethod
    def read(cls, *groups: str) -> "Posit":
        """Make the format of n, es and, where it is clamped, a c."""
        n, es, clamped = groups
        return cls(int(n), int(es), clamped=bool(clamped))

    def __post_init__(self) -> None:
        take_numpy_sizes(self, "n", "es")
        for name, value, limits in (("n", self.n, SIZES), ("es", self.es, EXPONENT_BITS)):
            least, greatest = limits
            if type(value) is not int or not least <= value <= greatest:
                raise FormatError(f"posits have {name} from {least} to {greatest}, not {value!r}")
        if not isinstance(self.clamped, bool):
            raise FormatError(f"clamped must be True or False, not {self.clamped!r}")
        full = 2 * self.scale + 2
        if full > SUM_WIDTH:
            raise FormatError(f"the integers of {self} need {full} bits; there are {SUM_WIDTH}")
        if self.clamped and full <= CLAMPED_WIDTH:
            plain = Posit(self.n, self.es)
            raise FormatError(f"{self}: {plain} fits {CLAMPED_WIDTH} bits whole, choose it")
        if self.clamped and self.scale >= CLAMPED_WIDTH - 1:
            raise FormatError(f"{self}: {CLAMPED_WIDTH} bits hold none of its values from 1 on")

    def __str__(self) -> str:
        return f"posit({self.n},{self.es}){'c' if self.clamped else ''}"

    @property
    def identifier(self) -> str:
        """N_es."""
        return f"{self.n}_{self.es}"

    @property
    def width(self) -> int:
        """N."""
        return self.n

    @property
    def scale(self) -> int:
        """S = (n - 2) 2^es."""
        return (self.n - 2) << self.es

    @property
    def decoded_width(self) -> int:
        """2S + 2, or ``CLAMPED_WIDTH`` where clamped."""
        return CLAMPED_WIDTH if self.clamped else 2 * self.scale + 2

    @property
    def narrower(self) -> str:
        """The clamped format, or a smaller es where nothing from 1 on is left of it."""
        try:
            return str(Posit(self.n, self.es, clamped=True))
        except FormatError:
            return f"es = {self.es - 1} or less"

    @property
    def largest(self) -> int:
        """2^(n - 1) - 1, or the greatest word whose integer fits where clamped."""
        return _largest(self) if self.clamped else (1 << (self.n - 1)) - 1

    def knot(self, place: int) -> Fraction:
        """Return the bits of regime and exponent, cut where the word ends."""
        if place > 2 * self.scale:  # past the largest posit, whose regime nothing ends
            return Fraction(1 << (self.n - 1))
        k, exponent = divmod(place - self.scale, 1 << self.es)
        regime, bits = (((1 << (k + 1)) - 1) << 1, k + 2) if k >= 0 else (1, 1 - k)
        return Fraction(regime << self.es | exponent) * Fraction(2) ** (self.n - 1 - bits - self.es)

    def why_no_number(self, word: int) -> str:
        """Tell NaR from a word past the clamp."""
        nar = word == -(1 << (self.n - 1))
        return "NaR" if nar else f"beyond its greatest, {self.largest}"

    @property
    def mean_range(self) -> tuple[float, float]:
        """Range that means seldom leave; 0.5 of full scale is the word of 1.

        Words are nearly logarithms: half the value has a word lower by 1/8 of full scale or so.
        """
        return 0.1, 0.4

    @property
    def most_saturated(self) -> None:
        """None: no limit, the greatest posits are far out."""
        return None

    @property
    def factor_steps(self) -> float:
        """8 steps, as 4 bits of fixed point have them.

        The largest words are sparse and far out: weights there grow for epochs until training
        fails.
        """
        return 8.0

    @property
    def step(self) -> float:
        """A quarter of the integer of 1: in every format, as in posit(4,0), 1 is 4 steps.

        The median of a fresh factor's magnitudes is 1.7 steps, in 4 bits of fixed point, too.
        """
        return 2.0 ** (self.scale - 2)

    def fitting_exponent(self, greatest: float) -> int:
        """Return the exponent at which the largest value is below 2^(2^es).

        There it has the most digits that the format offers, and smaller values have hardly fewer.
        """
        return math.frexp(greatest)[1] - (1 << self.es) - self.scale

    @property
    def input_exponent(self) -> int:
        """-1 - S: an input of 1 is the posit 2.

        Below the posit 2, words of posit(8,0) are at most 1/64 apart, in units of the input.
        """
        return -1 - self.scale


@lru_cache
def _largest(fmt: Posit) -> int:
    """Find the greatest word whose integer is below 2^(``CLAMPED_WIDTH`` - 1)."""
    return ceil(fmt.knot(CLAMPED_WIDTH - 1)) - 1
