"""Where the bits of a posit's word lie in its integer: what decoder and encoder are generated from.

Let p be the place of the leading one of a positive integer x of a format: its *class*. All words of
a class have one regime and one exponent, so that

    word = (x >> cut) ^ prefix

where ``cut`` is the place of the word's last bit and ``prefix`` what regime and exponent differ in
from the leading one. The bit of x below ``cut`` is the half that rounding goes by, and those below
it are sticky. That holds as well for classes whose exponent is cut off in part: their cut lies so
far above p that these bits stand for the exponent's.

A negative integer is complemented first, and so is its word: floor(-x - 1) has the bits of x. Sign
and rounding of a two's complement sum then need no negation, as in the requantiser.
"""

from dataclasses import dataclass
from functools import lru_cache

from trainwright.formats import Posit


@dataclass(frozen=True)
class PositClass:
    """Integers with their leading one at one place."""

    cut: int
    prefix: int
    sticky: bool
    """Whether exponent bits are lost that a positive integer counts as sticky, without a bit of its
    own for them."""


@lru_cache
def posit_classes(fmt: Posit) -> tuple[PositClass, ...]:
    """The class of every leading place p, from 0 to that of the largest integer.

    Of integers from the largest one on it is only used to tell whether they are beyond it.
    """
    places = largest_integer(fmt).bit_length()
    return tuple(_class(fmt, place) for place in range(places))


def largest_integer(fmt: Posit) -> int:
    """The integer of the largest word."""
    return int(fmt.decode(fmt.largest))


def _class(fmt: Posit, place: int) -> PositClass:
    k, exponent = divmod(place - fmt.scale, 1 << fmt.es)
    run = k + 2 if k >= 0 else 1 - k  # with the bit that ends it
    left = fmt.n - 1 - run
    if left < 0:  # the largest posit, whose run nothing ends
        return PositClass(place, fmt.largest ^ 1, False)
    regime = ((((1 << (k + 1)) - 1) << 1) if k >= 0 else 1) << left
    if left >= fmt.es:
        fraction = left - fmt.es
        prefix = (regime | exponent << fraction) ^ (1 << fraction)
        return PositClass(place - fraction, prefix, False)
    lost = fmt.es - left
    half, rest = exponent >> (lost - 1) & 1, exponent & ((1 << (lost - 1)) - 1)
    prefix = regime | exponent >> lost
    if half:
        return PositClass(place + 1, prefix, rest != 0)
    # the half is a zero; of a negative sum it is a one, and a zero in `rest` is sticky there
    whole = rest == (1 << (lost - 1)) - 1
    return PositClass(place + (2 if whole else 3), prefix, False)
