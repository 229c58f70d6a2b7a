"""Words of factors in coded formats, made of a fixed-point factor of a state on the chip.

A weight on the chip is fixed point. Its factor, rounded to as many bits as a state keeps, is
encoded to the words that programs read: an exact product with a power of two, one shift, one
rounding.
"""

from dataclasses import dataclass

from trainwright.formats.base import Format, Integers


@dataclass(frozen=True)
class FactorCode:
    """Way from a factor of ``bits`` bits to words of a coded format."""

    format: Format
    underflow: str
    """Rule of the network where the host quantises (``Format.encode``)."""
    bits: int

    @classmethod
    def of(cls, fmt: Format, underflow: str, bits: int) -> "FactorCode | None":
        """Return the code of factors in a format; None for fixed point, which they have already."""
        return cls(fmt, underflow, bits) if fmt.coded else None

    @property
    def raised(self) -> int:
        """By how much the factor's exponent is above that of the words' integers.

        The factor's greatest size is that of a master weight, or a power of two above it.
        """
        f = self.format
        greatest = f.most if f.factor_steps is None else min(f.most, int(f.factor_steps * f.step))
        return (greatest - 1).bit_length() - (self.bits - 1)

    @property
    def times(self) -> int:
        """Power of two that a factor is multiplied by before it is shifted."""
        return 1 << max(self.raised, 0)

    @property
    def shift(self) -> int:
        """Shift of the product, to the right."""
        return max(-self.raised, 0)

    def fields(self, number: int) -> dict[str, int]:
        """Return the fields of a product that rounds; ``number`` is the format's on a machine."""
        zero = self.underflow == "zero"
        return {"z_format": number, "shift": self.shift, "underflow_zero": zero}

    def words(self, factors: Integers) -> Integers:
        """Return the words of factors."""
        return self.format.encode(factors * self.times, self.shift, underflow=self.underflow)[0]
