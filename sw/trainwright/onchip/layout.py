"""Layout of the training state: the place of every parameter, in rows of ``LANES`` words.

Tensors follow one another in the order G_1 .. G_d, bias of each layer. Each begins a row and has
its elements in C order of the shape that the network began with: R_n along the lanes, or I_n of a
layer's last factor, or the outputs of a bias; zeros fill the last row. Ranks that are cut leave
their words in place, as zeros: nothing moves, and the random bits of a row stay the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from trainwright.formats.factors import FactorCode
from trainwright.network import Network
from trainwright.onchip.choices import LANES

WEIGHT_WIDTH = 12
"""Bits of a weight as it is updated: those of the factor or bias, and the hidden ones below."""
MOMENT_WIDTH = 8
STATE_BITS = WEIGHT_WIDTH + MOMENT_WIDTH
"""Bits of state a parameter, the factor's or bias's own included."""
WIDEST = WEIGHT_WIDTH - 2
"""Most bits of a factor or bias: two hidden bits at least."""
NARROWEST = STATE_BITS - 16
"""Fewest bits of a factor that the accelerator updates: the rest of the state is a word."""

Words = npt.NDArray[np.int64]
Kept = Sequence[Words]
"""The columns left of each bond of a layout."""


@dataclass(frozen=True)
class WeightPart:
    """A tensor in the state."""

    name: str
    layer: int
    index: int
    """Index of the factor in its layer, from 0; -1 for a bias."""
    shape: tuple[int, ...]
    """Shape before any column is cut: (R_{n-1}, J_n, I_n, R_n), or (J,) for a bias."""
    width: int
    """Bits of the factor or bias as the state has it."""
    exponent: int
    """Exponent of the factor or bias; it never moves."""
    row: int
    """First row of the part."""
    along: int
    """Elements along the lanes: those of the last axis (of a layer's last factor, of the axis I_n),
    or all elements of a scale or a bias."""
    lanes: int = LANES
    """Words of a row, in which ``row`` and ``rows`` are counted."""
    code: FactorCode | None = None
    """How a factor becomes the words that programs read; None if these are the factor's own."""

    @property
    def read_exponent(self) -> int:
        """Exponent of what programs read."""
        return self.exponent - (self.code.raised if self.code else 0)

    @property
    def hidden(self) -> int:
        """Bits of the weight below those of the factor."""
        return WEIGHT_WIDTH - self.width

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest weight: the factor's, with hidden bits 0."""
        half = 1 << (WEIGHT_WIDTH - 1)
        return -half, half - (1 << self.hidden)

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def line_rows(self) -> int:
        """Rows of a line: of the elements along the lanes."""
        return line_rows(self.along, self.lanes)

    @property
    def rows(self) -> int:
        """Rows that it takes."""
        return self.size // self.along * self.line_rows

    @property
    def blocks(self) -> int:
        """Indices of its first axis, each of equally many rows; 1 of a bias."""
        return 1 if self.index < 0 else self.shape[0]

    @cached_property
    def places(self) -> Words:
        """(size,): where its elements lie in the flat state."""
        lines = np.arange(self.size // self.along)[:, None] * (self.line_rows * self.lanes)
        return self.row * self.lanes + (lines + np.arange(self.along)).ravel()


@dataclass(frozen=True)
class Side:
    """Side of a bond: the columns of ``part`` along ``axis``."""

    part: int
    axis: int
    """3 for the left factor of the bond, 0 for the right one."""
    first: int
    """Number of its first column among all columns of all sides; 0 belongs to none."""
    columns: int


@dataclass(frozen=True)
class Bond:
    """A bond of a layer with its two sides."""

    layer: int
    index: int
    left: Side
    right: Side


@dataclass(frozen=True)
class WeightLayout:
    """The state of a network with its initial ranks."""

    network: Network
    parts: tuple[WeightPart, ...]
    bonds: tuple[Bond, ...]
    lanes: int = LANES
    """Words of a row, in which rows are counted."""

    def split(self, lanes: int) -> "WeightLayout":
        """Return the same places of all words, counted in rows of ``lanes`` words."""
        parts = (replace(p, row=p.row * p.lanes // lanes, lanes=lanes) for p in self.parts)
        return replace(self, parts=tuple(parts), lanes=lanes)

    @property
    def rows(self) -> int:
        """Rows of the state."""
        return _stop(self.parts)

    @property
    def columns(self) -> int:
        """Columns of all sides, and one that no element belongs to."""
        return 1 + sum(side.columns for side in self.sides)

    @property
    def sides(self) -> list[Side]:
        """Sides of all bonds, in the order of their columns."""
        return [side for bond in self.bonds for side in (bond.left, bond.right)]

    @cached_property
    def part_of_row(self) -> Words:
        """Number of the part that each row belongs to."""
        return np.repeat(np.arange(len(self.parts)), [part.rows for part in self.parts])

    @cached_property
    def column_of(self) -> Words:
        """(2, rows x lanes): the column of each element along axis 0 and along axis 3, or 0."""
        numbers_of = np.zeros((2, self.rows * self.lanes), np.int64)
        for side in self.sides:
            part = self.parts[side.part]
            along = np.indices(part.shape)[side.axis]
            numbers_of[int(side.axis > 0), part.places] = side.first + along.ravel()
        return numbers_of

    def per_column(self, values: Sequence[int]) -> Words:
        """Return for every column the value of its side; 0 for column 0, which no element has."""
        return np.repeat([0, *values], [1, *(side.columns for side in self.sides)])

    def ranks(self, kept: Sequence[Sequence[int] | Words]) -> list[list[int]]:
        """Return R_1 .. R_{d-1} of each layer, if ``kept`` are the columns left of each bond."""
        columns = iter(kept)
        return [[len(next(columns)) for _ in layer.ranks] for layer in self.network.layers]

    def marks(self, kept: Kept) -> npt.NDArray[np.bool_]:
        """Return marks of all columns, true for those that are left; column 0 has none."""
        marks = np.zeros(self.columns, bool)
        for bond, columns in zip(self.bonds, kept, strict=True):
            for side in (bond.left, bond.right):
                marks[side.first + columns] = True
        return marks

    def columns_marked(self, marks: npt.NDArray[np.bool_]) -> list[Words]:
        """Return the columns left of each bond, as ``marks`` of all columns say."""
        sides = [bond.left for bond in self.bonds]
        return [np.flatnonzero(marks[side.first :][: side.columns]) for side in sides]


def line_rows(along: int, lanes: int) -> int:
    """Return the rows of ``lanes`` words of a line, which fills whole rows of ``LANES`` words."""
    return -(-along // LANES) * (LANES // lanes)


def state_rows(network: Network) -> int:
    """Return the rows of the state of a network with its initial ranks."""
    exponents = [[0] * layer.order for layer in network.layers]
    return make_layout(network, exponents, [0] * len(network.layers)).rows


def make_layout(
    network: Network, exponents: Sequence[Sequence[int]], bias_exponents: Sequence[int]
) -> WeightLayout:
    """Return the layout of ``network``; ``exponents[l][n]`` of factors, ``bias_exponents[l]``.

    Raises ``ValueError`` where factors or biases have more bits than a weight can hold.
    """
    for name in ("factor", "bias"):
        width = getattr(network.widths, name)
        if width > WIDEST:
            raise ValueError(
                f"an update on the chip takes {name} widths of up to {WIDEST} bits, not {width}; "
                "use --update host"
            )
    parts: list[WeightPart] = []
    widths = network.widths
    code = FactorCode.of(network.format("factor"), network.host_underflow, WIDEST)
    for number, layer in enumerate(network.layers):
        for n, shape in enumerate(layer.factor_shapes):
            # Programs have factors in the same rows (``step.rows``), also with a bond of rank 1.
            along = shape[-1] if n + 1 < layer.order else shape[-2]
            along = layer.output_size if layer.diagonal else along
            what = f"l{number + 1}.G{n + 1}", number, n, shape, WIDEST if code else widths.factor
            exponent = exponents[number][n] + (code.raised if code else 0)
            parts.append(WeightPart(*what, exponent, _stop(parts), along, code=code))
        if layer.bias:
            what = f"l{number + 1}.b", number, -1, (layer.output_size,), widths.bias
            exponent = bias_exponents[number]
            parts.append(WeightPart(*what, exponent, _stop(parts), layer.output_size))
    return WeightLayout(network, tuple(parts), tuple(_bonds(network, parts)))


def _stop(parts: Sequence[WeightPart]) -> int:
    return parts[-1].row + parts[-1].rows if parts else 0


def _bonds(network: Network, parts: list[WeightPart]) -> Iterator[Bond]:
    numbers = {(part.layer, part.index): n for n, part in enumerate(parts)}
    first = 1
    for number, layer in enumerate(network.layers):
        for n, rank in enumerate(layer.ranks):
            left = Side(numbers[number, n], 3, first, rank)
            right = Side(numbers[number, n + 1], 0, first + rank, rank)
            yield Bond(number, n, left, right)
            first += 2 * rank
