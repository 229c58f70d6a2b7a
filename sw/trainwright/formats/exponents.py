"""Exponents of results: the rule that hosts, compilers, the exponent file and models share.

The operands of an operation have exponents x and g. Its exact result has the *floor*: x + g for a
product, the lesser one for a sum, whose operands are shifted to the left until they have it. The
result gets the exponent that is wanted for it, but none below the floor, since a rounding shifts
to the right alone.
"""

from dataclasses import dataclass

from trainwright.formats.rounding import MAX_SHIFT


@dataclass(frozen=True)
class Shifts:
    """Shifts of an operation: of its result to the right, of a sum's operands to the left."""

    result: int
    x: int = 0
    g: int = 0


@dataclass(frozen=True)
class Scaled:
    """Result's exponent, with the floor, the greatest exponent, and the shifts that give it."""

    exponent: int
    floor: int
    most: int
    shifts: Shifts


@dataclass(frozen=True)
class ExponentRule:
    """Way in which the exponent of a result follows from those of its operands."""

    adds: bool = False
    """Whether operands are added; else they are multiplied."""
    exact: bool = False
    """Whether nothing is rounded: the exponent is the floor."""
    grows: bool = False
    """Whether g is a running sum to which x is added: the hardware shifts each by at most
    ``most_alignment`` bits, so the result's exponent is at most so far above that of g."""

    def floor(self, x: int, g: int) -> int:
        """Return the exponent of the exact result."""
        return min(x, g) if self.adds else x + g

    def scaled(self, x: int, g: int, wanted: int | None, most_alignment: int) -> Scaled:
        """Return the exponent nearest to the one ``wanted``; None wants the floor.

        ``most_alignment`` are the bits by which an operand of a sum can be shifted to the left.
        """
        floor = self.floor(x, g)
        most = floor + MAX_SHIFT
        if self.grows:
            most = min(most, g + most_alignment)
        exponent = floor if self.exact or wanted is None else max(wanted, floor)
        exponent = min(exponent, most)
        left = (x - floor, g - floor) if self.adds else (0, 0)
        return Scaled(exponent, floor, most, Shifts(exponent - floor, *left))


def followed(exponent: int, total: int, low: int, high: int, *, above: bool) -> int:
    """Move an exponent by one where the sum of |q| leaves its window; never below the floor.

    ``above`` tells whether the exponent is above the floor.
    """
    if total > high:
        return exponent + 1
    return exponent - 1 if total < low and above else exponent
