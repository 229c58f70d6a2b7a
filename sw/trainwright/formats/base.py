"""Number format of a tensor: the members that every format has.

A word stands for an integer, and a tensor has one exponent: value = integer x 2^exponent. The
exponent is always that of the integer's last bit, whatever the format, so that a sum of products of
x and g has the exponent ``e_x + e_g`` and is brought to an exponent ``e_z`` by

    shift = e_z - e_x - e_g

For a posit the integer is its value x 2^S: a tensor whose posit 1 is to stand for 2^E has the
exponent E - S.
"""

import hashlib
import math
import re
import sys
from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from trainwright.formats.rounding import MAX_SHIFT, Flags, Integers

Range = tuple[float, float]

LIBRARY = "trainwright."
"""Begin of the names of the library's modules."""
KERNELS_MODULE = "kernels_of_"
"""Begin of the names of modules that files of ``kernels`` are executed as."""

UNDERFLOWS = ("never", "zero")
"""Rules for a sum closer to 0 than the smallest number. never: the sum becomes the smallest number
(the posit standard); zero: it becomes the nearer of 0 and that number, 0 if both are as near."""
SUM_WIDTH = 62
"""Bits of a sum at most, its sign included."""


class FormatError(ValueError):
    """A format that does not exist, or a word that a format does not have."""


class Format(ABC):
    """A number format of words of ``width`` bits.

    Words are signed integers, -2^(width - 1) to 2^(width - 1) - 1, sign-extended wherever they lie:
    their order is that of the values. All functions are exact and take arrays of any shape.

    Code outside this package uses these members and names no class: a new format is a subclass,
    which its import registers by its ``spelling``.
    """

    kinds: ClassVar[list[type["Format"]]] = []
    """Classes that users can spell."""
    coded: ClassVar[bool]
    """Whether words stand for other integers than themselves, so that an accelerator decodes them
    and lists the format among its ``formats``."""
    spelling: ClassVar[re.Pattern[str]]
    """Pattern of ``str``, spaces allowed; ``read`` takes its groups."""
    allowed: ClassVar[str]
    """Description of the spellings, for error messages."""

    def __init_subclass__(cls) -> None:
        """Register a class that has a spelling."""
        super().__init_subclass__()
        if "spelling" in cls.__dict__:
            if not hasattr(cls, "allowed"):
                raise TypeError(f"{cls.__name__}: give `allowed`, a description of its spellings")
            # The last definition counts: of a notebook's cell or a file that is read again, or of a
            # user's class with the same spelling in another file.
            place = cls.__module__, cls.__qualname__
            if not cls.__module__.startswith(LIBRARY):
                _check_spelling_is_free(cls)
            kept = [
                k
                for k in Format.kinds
                if (k.__module__, k.__qualname__) != place
                and (k.spelling != cls.spelling or k.__module__.startswith(LIBRARY))
            ]
            Format.kinds[:] = [*kept, cls]

    @classmethod
    @abstractmethod
    def read(cls, *groups: str) -> Self:
        """Make the format that was spelled. Raises ``FormatError`` for sizes that do not exist."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Bits of a word."""

    @property
    @abstractmethod
    def scale(self) -> int:
        """S: the integer of the value 1 is 2^S; 0 in fixed point."""

    @property
    @abstractmethod
    def decoded_width(self) -> int:
        """Bits of the integer of any word, its sign included."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The greatest word that a sum is encoded to."""

    @property
    @abstractmethod
    def most(self) -> int:
        """The greatest size of any word's integer."""

    def fits(self, operand_width: int) -> bool:
        """Tell whether every integer fits a signed operand of a multiplier."""
        return self.decoded_width <= operand_width

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest word that a sum is encoded to."""
        return -self.largest, self.largest

    @property
    def integer_limits(self) -> tuple[int, int]:
        """Integers of the least and the greatest word."""
        least, greatest = self.decode(self.limits).tolist()
        return least, greatest

    @property
    def words_text(self) -> str:
        """Description of the words, for error messages."""
        return f"words of {self}"

    @property
    def definition(self) -> tuple[object, ...]:
        """Numbers from which the integers and roundings of all words follow, for caches."""
        return self.width, self.scale, self.largest

    @property
    def own_digest(self) -> str:
        """Digest of the definition of a user's format, which may be edited; "" in the library."""
        if type(self).__module__.startswith(LIBRARY):
            return ""
        return hashlib.sha256(repr(self.definition).encode()).hexdigest()

    @property
    def source(self) -> str:
        """File of a network's ``kernels`` that defines the format; "" for other files."""
        module = type(self).__module__
        if not module.startswith(KERNELS_MODULE) or module not in sys.modules:
            return ""
        return sys.modules[module].__file__ or ""

    @abstractmethod
    def decode(self, words: npt.ArrayLike) -> Integers:
        """Return the integers of words. Raises ``FormatError`` for a word that stands for none."""

    @abstractmethod
    def encode(
        self, sums: npt.ArrayLike, shift: int, *, underflow: str = "never"
    ) -> tuple[Integers, Flags, Flags]:
        """Return the words nearest to sums / 2^shift; which are saturated; which underflow.

        ``sums``: exact integers of up to ``SUM_WIDTH`` bits; ``shift``: 0 to ``MAX_SHIFT``. One
        rounding, ties to the even word; sums beyond the greatest word saturate. ``underflow`` is
        one of ``UNDERFLOWS``, and has no meaning in fixed point, where nothing counts as an
        underflow. Raises ``ValueError`` for anything else.
        """

    @abstractmethod
    def nearest(self, values: npt.NDArray[np.float64], *, underflow: str = "zero") -> Integers:
        """Round real numbers, in units of the integers' last bit, to words: once, to the nearest.

        Ties, saturation and ``underflow`` as in ``encode``: infinities saturate. Raises
        ``FormatError`` for NaN, for which no format has a word.
        """

    def magnitude(self, words: npt.ArrayLike) -> Integers:
        """Return |word|, which statistics add up; coded, it is nearly a logarithm of the value."""
        return np.abs(self._checked(words))

    # --- exponents: where in its range a format has a tensor's values -----------------------------

    @property
    def mean_range(self) -> Range | None:
        """Range of the mean of |word|, in fractions of 2^(width - 1); None: by class of tensor.

        Outside the range the tensor's exponent moves (``trainwright.fixed.scale``).
        """
        return None

    @property
    def most_saturated(self) -> float | None:
        """Part of a tensor's values that may saturate, whatever its mean; None: no such limit."""
        return None

    @property
    def factor_steps(self) -> float | None:
        """Greatest size of a factor's master weight, in steps; None: that of the greatest word."""
        return None

    @property
    @abstractmethod
    def step(self) -> float:
        """Integers in one quantisation step of a factor at 4 bits.

        Exponents of factors keep their mean magnitude at 1.5 to 3.6 such steps.
        """

    def fitting_exponent(self, greatest: float) -> int:
        """Return the exponent for a tensor whose largest magnitude is ``greatest``, over 0.

        By default the least at which nothing saturates.
        """
        top = self.integer_limits[1]
        exponent = math.frexp(greatest / top)[1]  # greatest / top < 2^exponent
        return exponent - 1 if greatest <= top * 2.0 ** (exponent - 1) else exponent

    @property
    @abstractmethod
    def input_exponent(self) -> int:
        """The exponent of inputs of 0 to 1."""

    def _checked(self, words: npt.ArrayLike) -> Integers:
        """Return words as int64; ``FormatError`` unless they are integers of ``width`` bits."""
        given = np.asarray(words)
        if given.dtype.kind not in "iu":
            raise FormatError(f"words of {self} are integers, not {given.dtype}")
        checked = given.astype(np.int64)
        limit = 1 << (self.width - 1)
        outside = (checked < -limit) | (checked >= limit)
        if outside.any():
            raise FormatError(
                f"words of {self} are {-limit} to {limit - 1}, not {given[outside].flat[0]}"
            )
        return checked


def _check_spelling_is_free(kind: type[Format]) -> None:
    """Raise ``TypeError`` for a spelling of the library's, whose format would be read in its place.

    Spaces that only one of the patterns allows make no difference.
    """

    def bare(pattern: re.Pattern[str]) -> str:
        return re.sub(r"\\s\*|\s", "", pattern.pattern)

    for known in Format.kinds:
        if known.__module__.startswith(LIBRARY) and bare(known.spelling) == bare(kind.spelling):
            raise TypeError(
                f"{kind.__module__}.{kind.__qualname__} has the spelling of "
                f"{known.__module__}.{known.__qualname__}: {known.allowed}; give it another name"
            )


def checked_sums(sums: npt.ArrayLike, shift: int, underflow: str) -> Integers:
    """Return the sums as int64; ``ValueError`` for what ``Format.encode`` does not take."""
    if not 0 <= shift <= MAX_SHIFT:
        raise ValueError(f"shift must be from 0 to {MAX_SHIFT}, not {shift!r}")
    if underflow not in UNDERFLOWS:
        raise ValueError(f"underflow must be one of {', '.join(UNDERFLOWS)}, not {underflow!r}")
    given = np.asarray(sums)
    if given.dtype.kind not in "iu":
        raise ValueError(f"sums must be integers, not {given.dtype}")
    limit = 1 << (SUM_WIDTH - 1)
    if given.size and not (-limit <= int(given.min()) and int(given.max()) < limit):
        raise ValueError(f"sums must have at most {SUM_WIDTH} bits, sign included")
    return given.astype(np.int64)


def check_no_nan(values: npt.ArrayLike, fmt: object) -> None:
    """Raise ``FormatError`` where any value is NaN: a conversion to integers makes it a number."""
    nans = np.isnan(values)
    if nans.any():
        raise FormatError(f"{fmt} has no word for NaN, in {nans.sum():,} of {nans.size:,} values")


def sum_width(terms: int, x: Format, g: Format) -> int:
    """Return the bits, with a sign, of every sum of ``terms`` products of two formats' integers."""
    return (terms * x.most * g.most).bit_length() + 1
