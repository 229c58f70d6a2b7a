"""Execute compute descriptors in exact integers, at the addresses of their loop nests.

All operands are read before any result is written. A contraction gathers its operands and is one
batched matrix product: levels that move both operands are the batch, levels that move x alone the
rows (PE4) or columns (PE3), levels that move g alone the other dimension. Sums are taken in
float64, which is exact: none passes 2^53.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from trainwright.fixed.random_bits import KEYS_A_ROW, STREAM_STEP, mixed, unit_bytes
from trainwright.formats import Format, FormatError
from trainwright.formats.rounding import requantise, stochastic_requantise
from trainwright.golden.state import Addresses, MachineState, Words
from trainwright.parameters import AcceleratorParameters
from trainwright.program.descriptors import DIGIT_WIDTH, Compute, Level
from trainwright.program.elementwise import BODIES
from trainwright.program.encoding import ProgramError
from trainwright.program.engines import contraction_of, sums_lanes, tile_rows
from trainwright.program.footprint import result_digits
from trainwright.program.table import name_of
from trainwright.support.errors import errors_as

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """Statistics, and the rows written in the order of the nest: (n,) and (n, lanes)."""

    total: int
    saturations: int
    underflows: int
    addresses: Addresses
    rows: Words
    clips: int = 0
    """Values that a pass clipped as it wrote rows."""


def offsets(levels: Sequence[Level], strides: Sequence[int]) -> Addresses:
    """Return the sum of index x stride for every index of ``levels``, the last level fastest."""
    address = np.zeros(1, np.int64)
    for level, stride in zip(levels, strides, strict=True):
        address = (address[:, None] + np.arange(level.count) * stride).ravel()
    return address


class Nest:
    """Levels of a descriptor: three groups of outer levels, and the summed ones.

    Outer levels move ``both`` operands, the ``first`` one (x) or none, or the ``second`` one (g).
    """

    def __init__(self, d: Compute, rows: int):
        self.d = d
        self.tile_rows = rows
        by_entries = sums_lanes(d.operation)
        groups: tuple[list[int], list[int], list[int]] = ([], [], [])
        # The tile level moves the rows of PE4's left operand even where x has no stride.
        for index, level in enumerate(d.outer):
            moves_x = level.x or (by_entries and index == d.tile_level)
            groups[0 if moves_x and level.g else 2 if level.g else 1].append(index)
        # A level that moves neither operand repeats a product. It counts as ``first``, so the
        # product is written to each address to which the level moves z.
        self.both, self.first, self.second = groups

    def group(self, indices: Sequence[int], operand: str) -> Addresses:
        """Return the offsets of an operand over the levels of a group."""
        levels = [self.d.levels[index] for index in indices]
        return offsets(levels, [getattr(level, operand) for level in levels])

    def summed(self, operand: str) -> Addresses:
        """Return the offsets of an operand over the levels that are summed."""
        return offsets(self.d.reduction, [getattr(level, operand) for level in self.d.reduction])

    @property
    def weights(self) -> Values:
        """Weight of each term of a sum: 2^(7 n), n counting the digit steps after the term."""
        reduction, number = self.d.reduction, self.d.digits
        # An array with operands of several digits multiplies its sums by 2^7 each time that a new
        # digit begins: a term that is added before n such steps ends up 2^(7 n) times as large. The
        # model gives each term its final weight at once.
        terms = np.arange(prod(level.count for level in reduction))
        inner = prod(level.count for level in reduction[number:])
        digits = reduction[number - 1].count if number else 1
        begins = (terms % inner == 0) & (terms // inner % digits != 0)
        after = begins.sum() - begins.cumsum()
        return 2.0 ** (DIGIT_WIDTH * after.astype(np.float64))

    def used_rows(self, *groups: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return the rows of a tile that are written, for every index of the groups."""
        d = self.d
        last = np.zeros((1,) * len(groups), np.bool_)
        for axis, group in enumerate(groups):
            if d.tile_level in group:
                levels = [d.levels[index] for index in group]
                index = offsets(levels, [int(i == d.tile_level) for i in group])
                # Broadcasts against the axes of the remaining groups.
                shape = [-1 if other == axis else 1 for other in range(len(groups))]
                last = (index == d.levels[d.tile_level].count - 1).reshape(shape)
        return np.where(last, d.last_rows, self.tile_rows)

    def ordered(self, values: Values) -> Values:
        """Reorder (both, first, second, rows, lanes) to the nest's (tiles, rows, lanes)."""
        # Rows are written and traced in the nest's order, which differs from the groups' order.
        order = [*self.both, *self.first, *self.second]
        counts = [self.d.levels[index].count for index in order]
        shaped = values.reshape(*counts, *values.shape[-2:])
        axes = [order.index(level) for level in range(len(order))]
        return shaped.transpose(*axes, len(order), len(order) + 1).reshape(-1, *values.shape[-2:])


@dataclass(frozen=True)
class OperandReader:
    """Reader of both operands, as the integers that their words stand for."""

    d: Compute
    state: MachineState
    formats: Sequence[Format]

    def x(self, rows: Addresses) -> Values:
        """Read first operands: (..., lanes) for rows (...) of the scratchpad."""
        return self._integers(self.state.read(rows), self.d.x_format)

    def g(self, rows: Addresses) -> Values:
        """Read second operands: (..., lanes) for rows (...) of the scratchpad."""
        return self._integers(self.state.read(rows), self.d.g_format)

    def groups(self, groups: Addresses, width: int) -> Values:
        """Read second operands: (..., width) for groups (...) of ``width`` words."""
        in_row = self.state.pad.shape[1] // width
        words = self.state.read(groups // in_row).reshape(*groups.shape, in_row, width)
        chosen = np.take_along_axis(words, (groups % in_row)[..., None, None], -2)
        return self._integers(chosen[..., 0, :], self.d.g_format)

    def _integers(self, words: Words, number: int) -> Values:
        if not number:
            return words.astype(np.float64)
        with errors_as(name_of(self.d), ProgramError, FormatError):
            return self.formats[number].decode(words).astype(np.float64)


def _by_entries(nest: Nest, x: int, g: int, operands: OperandReader) -> Values:
    """Compute the terms of PE4: (both, first, second, rows, lanes)."""
    d, lanes = nest.d, operands.state.pad.shape[1]
    tile = np.arange(nest.tile_rows)
    used = nest.used_rows(nest.both, nest.first)[..., None]
    place = nest.group(nest.both, "x")[:, None, None] + nest.group(nest.first, "x")[:, None]
    # Rows of a tile beyond the end of a tensor may lie outside the scratchpad. They read the tile's
    # first row instead, and their results are dropped before anything is written.
    place = place + np.where(tile < used, tile, 0) * d.x_row_stride
    rows = operands.x(x + place[..., None] + nest.summed("x"))  # (both, first, rows, sum, k)
    place = nest.group(nest.both, "g")[:, None] + nest.group(nest.second, "g")
    entry = (np.arange(lanes) * d.g_row_stride)[:, None]
    place = place[..., None, None] + entry + nest.summed("g")
    # An entry is a whole row of g, one for each lane of the result: PE4 multiplies a matrix of rows
    # by one of entries.
    entries = operands.g(g + place)  # (both, second, lanes, sum, k)
    batch, terms = rows.shape[0], prod(rows.shape[3:])
    left = rows.reshape(batch, -1, terms)
    right = (entries * nest.weights[:, None]).reshape(batch, -1, terms)
    # No sum passes 2^53, so float64 is exact in whatever order BLAS adds.
    z = left @ right.transpose(0, 2, 1)
    return z.reshape(*rows.shape[:3], *entries.shape[1:3]).transpose(0, 1, 3, 2, 4)


def _by_scalars(nest: Nest, x: int, g: int, operands: OperandReader) -> Values:
    """Compute the terms of PE3: (both, first, second, rows, lanes)."""
    width = nest.tile_rows
    place = nest.group(nest.both, "x")[:, None, None] + nest.group(nest.first, "x")
    rows = operands.x(x + place + nest.summed("x")[:, None])  # (both, sum, first, lanes)
    place = nest.group(nest.both, "g")[:, None, None] + nest.group(nest.second, "g")[:, None]
    place = g + place + nest.summed("g")
    # PE3 multiplies by single words of g. It reads a group of as many words as a tile has rows; a
    # row of g holds several groups.
    scalars = operands.groups(place, width)
    batch, terms = rows.shape[:2]
    left = (scalars * nest.weights[:, None]).transpose(0, 1, 3, 2)  # (both, second, rows, sum)
    z = left.reshape(batch, -1, terms) @ rows.reshape(batch, terms, -1)
    return z.reshape(*left.shape[:3], *rows.shape[2:]).transpose(0, 3, 1, 2, 4)


def _elementwise(d: Compute, x: int, g: int, operands: OperandReader) -> Values:
    """Compute BIAS and MASK: (tiles, 1, lanes)."""
    nest = Nest(d, 1)
    place = {name: offsets(d.outer, [getattr(v, name) for v in d.outer])[:, None] for name in "xg"}
    weights = nest.weights[:, None]  # the summed levels count digits only
    first = (operands.x(x + place["x"] + nest.summed("x")) * weights).sum(1)
    digits = operands.g(g + place["g"] + nest.summed("g"))
    body = replace(BODIES[d.operation], relu=d.relu)
    if not body.exponents.adds:  # the first digit that is not 0 says the sign
        # Digits below the first that is not 0 are positive parts of a value that may be negative:
        # the powers of two let the first one outweigh the rest.
        signs = np.sign(digits) * 2.0 ** np.arange(digits.shape[1] - 1, -1, -1)[:, None]
        return body.exact(first, signs.sum(1))[:, None]
    second = (digits * weights).sum(1)
    return body.exact(first * 2.0**d.x_shift, second * 2.0**d.g_shift)[:, None]


def _random(
    d: Compute, stream: int, addresses: Addresses, shape: tuple[int, ...]
) -> npt.NDArray[np.int64]:
    """Draw the random bits of every result, (tiles, rows, lanes), from addresses of rows.

    PE4 has a key for each tile (the address of its first row) and lane, and takes a unit of it for
    each row. Other operations have a key for each row, and take a unit for each lane. Results leave
    the engines in that order.
    """
    _, rows, lanes = shape
    if sums_lanes(d.operation):
        keys = addresses[:, :1] * KEYS_A_ROW + np.arange(lanes)
        return unit_bytes(mixed(stream, keys), rows).transpose(0, 2, 1)
    return unit_bytes(mixed(stream, addresses * KEYS_A_ROW), lanes)


def _rounded(
    d: Compute, sums: npt.NDArray[np.int64], fmt: Format, random: npt.NDArray[np.int64] | None
) -> tuple[Words, int, int, int]:
    """Round exact sums to words, (n, lanes); sum|q|, saturations, underflows."""
    underflows = 0
    if d.z_format and random is None:
        rule = "zero" if d.underflow_zero else "never"
        words, saturated, underflow = fmt.encode(sums, d.shift, underflow=rule)
        underflows = int(underflow.sum())
    elif random is None:
        words, saturated = requantise(sums, d.shift, d.out_width)
    else:
        words, saturated = stochastic_requantise(sums, d.shift, d.out_width, random)
    total = int(np.abs(words).sum())
    return words.astype(np.int16), total, int(saturated.sum()), underflows


def _by_digits(addresses: Addresses, rows: Words, digits: int) -> tuple[Addresses, Words]:
    """Cut whole rows (n, lanes) into rows of their digits, the highest digit first."""
    if digits == 1:
        return addresses, rows
    below = DIGIT_WIDTH * np.arange(digits - 1, -1, -1)[:, None]
    cut = rows[:, None].astype(np.int64) >> below  # (n, digits, lanes)
    cut[:, 1:] &= (1 << DIGIT_WIDTH) - 1
    places = addresses[:, None] + np.arange(digits)
    return places.ravel(), cut.reshape(-1, rows.shape[1]).astype(np.int16)


def compute(d: Compute, state: MachineState, p: AcceleratorParameters) -> Result:
    """Execute ``d`` on ``state``, with its address registers."""
    x, g, z = _first_rows(d, state)
    operands = OperandReader(d, state, p.number_formats)
    nest, array = Nest(d, tile_rows(d.operation, p)), contraction_of(d.operation)
    if array is None:
        values = _elementwise(d, x, g, operands)
    else:
        terms = _by_entries if array.along_lanes else _by_scalars
        values = nest.ordered(terms(nest, x, g, operands))
    tile = np.arange(nest.tile_rows)
    levels = range(len(d.outer))
    written = tile < nest.used_rows(levels)[:, None]
    written = np.broadcast_to(written, values.shape[:2])
    places = z + nest.group(levels, "z")[:, None] + tile * d.z_row_stride
    addresses = places[written]
    # Random bits depend on addresses, not on the order of execution: an engine may compute tiles in
    # any order with equal results.
    random = _random(d, state.stream, places, values.shape)[written] if d.stochastic else None
    sums, fmt = values[written].astype(np.int64), operands.formats[d.z_format]
    # Statistics count values; digits are only their storage.
    rows, total, saturations, underflows = _rounded(d, sums, fmt, random)
    addresses, rows = _by_digits(addresses, rows, result_digits(d, p))
    state.write(addresses, rows)
    # Each execution has a stream of its own, so that a repeated descriptor rounds differently.
    state.stream += STREAM_STEP
    return Result(total, saturations, underflows, addresses, rows)


def _first_rows(d: Compute, state: MachineState) -> list[int]:
    """Return where operands and result begin, with the address registers."""
    return [getattr(d, n) + state.registers[getattr(d, f"{n}_register")] for n in "xgz"]


def first_operands(
    d: Compute, state: MachineState, p: AcceleratorParameters
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return both operands of each product that the first multiplier of the array computes.

    Terms of a sum are in the order of the array, sums in the order of the nest's groups.
    """
    operands, nest = OperandReader(d, state, p.number_formats), Nest(d, tile_rows(d.operation, p))
    x, g, _ = _first_rows(d, state)
    left = nest.group(nest.both, "x")[:, None] + nest.group(nest.first, "x")
    right = nest.group(nest.both, "g")[:, None] + nest.group(nest.second, "g")
    left, right = x + left[..., None] + nest.summed("x"), g + right[..., None] + nest.summed("g")
    if sums_lanes(d.operation):
        first, second = operands.x(left), operands.g(right)
    else:  # a lane of x, and a word of a group of g
        first, second = operands.x(left)[..., :1], operands.groups(right, nest.tile_rows)[..., :1]
    pairs = np.broadcast_arrays(first[:, :, None], second[:, None])
    return pairs[0].ravel().astype(np.int64), pairs[1].ravel().astype(np.int64)
