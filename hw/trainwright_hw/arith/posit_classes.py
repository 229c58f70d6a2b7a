"""Positions of a posit word's bits in its integer, from which decoder and encoder are generated.

The *class* of a positive integer x of a format is the place p of its leading one. All words of a
class have one regime and one exponent, so that

    word = (x >> cut) ^ prefix

where ``cut`` is the place of the word's last bit and ``prefix`` is the difference that regime and
exponent make. Bits of x below ``cut`` are sticky. The formula also holds for classes whose exponent
is cut off in part: their cut is so far above p that the shifted bits stand for the exponent's.

A negative integer is complemented first, and so is its word: floor(-x - 1) has the bits of x. Sign
and rounding of a two's complement sum then need no negation, as in the requantiser.
"""

from dataclasses import dataclass
from functools import lru_cache

from trainwright.formats import Posit


@dataclass(frozen=True)
class PositClass:
    """Integers with their leading one at the same place."""

    cut: int
    prefix: int
    sticky: bool
    """Whether exponent bits are lost that a positive integer counts as sticky.

    The integer has no bits of its own for them.
    """


@lru_cache
def posit_classes(fmt: Posit) -> tuple[PositClass, ...]:
    """List the class of every leading place p, from 0 to the largest integer's.

    For integers from the largest one on, the class only serves to tell that they are beyond it.
    """
    places = largest_integer(fmt).bit_length()
    return tuple(_class(fmt, place) for place in range(places))


def largest_integer(fmt: Posit) -> int:
    """Return the integer of the largest word."""
    return int(fmt.decode(fmt.largest))


def _class(fmt: Posit, place: int) -> PositClass:
    k, exponent = divmod(place - fmt.scale, 1 << fmt.es)
    run = k + 2 if k >= 0 else 1 - k  # regime bits, the ending bit included
    left = fmt.n - 1 - run
    if left < 0:  # the largest posit: its run fills the word
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
    # The half is a zero here. In a negative sum, which is complemented, it is a one, and then a
    # zero in `rest` is sticky.
    whole = rest == (1 << (lost - 1)) - 1
    return PositClass(place + (2 if whole else 3), prefix, False)
