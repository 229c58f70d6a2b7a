"""The quire: a fixed-point sum of products without error, rounded once at the end.

Unit minpos^2 = 2^-2S, two's complement, ``fmt.quire_width`` bits: 16 n for es = 2, as the standard
of 2022 has it. Plain integers; tensors get the same sums by ``trainwright.posit.exact``.
"""

from trainwright.posit.format import PositFormat
from trainwright.posit.word import round_exact, unpack


class Quire:
    """One accumulator of a format. NaR in any operand makes it NaR until it is cleared.

    2^31 - 1 products fit in any case. A sum that leaves the width is NaR too: its word has no
    other meaning.
    """

    def __init__(self, fmt: PositFormat):
        self.fmt = fmt
        self.clear()

    def clear(self) -> None:
        """Back to 0."""
        self.sum = 0  # in units of minpos^2
        self.nar = False

    def add(self, code: int) -> None:
        """Add one value."""
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
        """The quire's bits: two's complement of the sum, 10..0 for NaR."""
        if self.nar:
            return 1 << (self.fmt.quire_width - 1)
        return self.sum & ((1 << self.fmt.quire_width) - 1)

    def code(self) -> int:
        """The sum rounded to the format, once."""
        return (
            self.fmt.nar if self.nar else round_exact(self.sum, -self.fmt.quire_fraction, self.fmt)
        )
