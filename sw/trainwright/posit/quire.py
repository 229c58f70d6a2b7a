"""The quire: a fixed-point sum of products without error, rounded once at the end.

The unit is minpos^2 = 2^-2S, in two's complement of ``fmt.quire_width`` bits: 16 n for es = 2, as
in the 2022 standard. This class works on plain integers; ``trainwright.posit.exact`` computes the
same sums over tensors.
"""

from trainwright.posit.format import PositFormat
from trainwright.posit.word import round_exact, unpack


class Quire:
    """Accumulator of a format. Adding NaR makes the sum NaR until it is cleared.

    At least 2^31 - 1 products fit. A sum that leaves the width becomes NaR too, because its word
    has no other meaning.
    """

    def __init__(self, fmt: PositFormat):
        self.fmt = fmt
        self.clear()

    def clear(self) -> None:
        """Set the sum to 0."""
        self.sum = 0  # in units of minpos^2
        self.nar = False

    def add(self, code: int) -> None:
        """Add the value of one code."""
        self._add(unpack(code, self.fmt))

    def add_product(self, a: int, b: int, *, negate: bool = False) -> None:
        """Add (or subtract) the exact product of two codes."""
        x, y = unpack(a, self.fmt), unpack(b, self.fmt)
        if x is None or y is None:
            self.nar = True
        else:
            self._add((-x[0] * y[0] if negate else x[0] * y[0], x[1] + y[1]))

    def _add(self, term: tuple[int, int] | None) -> None:
        if term is None:
            self.nar = True
            return
        self.sum += term[0] << (term[1] + self.fmt.quire_fraction)
        limit = 1 << (self.fmt.quire_width - 1)
        self.nar = self.nar or not -limit < self.sum < limit

    @property
    def word(self) -> int:
        """Quire bits: two's complement of the sum, 10..0 for NaR."""
        if self.nar:
            return 1 << (self.fmt.quire_width - 1)
        return self.sum & ((1 << self.fmt.quire_width) - 1)

    def code(self) -> int:
        """Round the sum to the format, once."""
        return (
            self.fmt.nar if self.nar else round_exact(self.sum, -self.fmt.quire_fraction, self.fmt)
        )
