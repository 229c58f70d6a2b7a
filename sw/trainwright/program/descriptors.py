"""Descriptors: what the accelerator executes, one dataclass a kind.

Addresses are in scratchpad rows (``x``, ``g``, ``z``, ``local``; PE3's ``g`` in operand groups) and
bytes of external memory (``address``). A register number adds that address register at issue;
register 0 is always zero.

A descriptor is issued when all engines of its ``wait`` are idle and those of its ``wait_older``
have done all commands but the last one they were given (LOAD and STORE: are idle).
"""

from dataclasses import dataclass
from math import prod

from trainwright.program.exponents import MoveScales
from trainwright.program.fields import Engine, Operation, Target
from trainwright.program.samples import Samples
from trainwright.program.vector import Code, Vector


@dataclass(frozen=True)
class Level:
    """One level of a contraction's loop nest: its count and the address step of each operand."""

    count: int
    x: int = 0
    g: int = 0
    z: int = 0


@dataclass(frozen=True)
class TransferLevel:
    """One level of a transfer's loop nest: its count, byte step outside, local step inside."""

    count: int
    address: int = 0
    local: int = 0


DIGIT_WIDTH = 7
"""Bits of a digit below the highest one: none is negative, so that each fits a word of 8 bits."""


def digit_count(width: int) -> int:
    """Digits that signed integers of ``width`` bits are cut into."""
    return max(1, -(-(width - 1) // DIGIT_WIDTH))


@dataclass(frozen=True, kw_only=True)
class Compute:
    """A contraction or an element-wise operation over a loop nest (outermost level first).

    With ``rq`` the requantiser (shift, round half to even or, with ``stochastic``, by random bits
    (``trainwright.fixed.stochastic``), saturate to ``out_width`` bits) and
    every address the base plus the sum of index x stride over the levels, one *tile* is, for each
    index of the outer levels and each row r of the tile,

    - PE4 (equation 5): ``Z[z + r*z_row_stride][l] = rq(sum over the reduction levels and k of
      X[x + r*x_row_stride][k] * X[g + l*g_row_stride][k])``, l and k running over the lanes;
    - PE3 (equation 6): ``Z[z + r*z_row_stride][l] = rq(sum X[x][l] * G[g][r])``,
      G[g] being a group of ``pe2_rows`` words of the scratchpad: words ``(g mod n)*pe2_rows ...``
      of row ``g div n``, n = lanes / pe2_rows;
    - BIAS: ``Z[z][l] = rq(act((X[x][l] << x_shift) + (X[g][l] << g_shift)))``, ``act`` being
      max(0, .) with ``relu``; ``g`` is a scratchpad row; no reduction levels, one row a tile;
    - MASK: ``Z[z][l] = rq(X[x][l] if X[g][l] > 0 else 0)``, likewise.

    On words of 8 bits a tensor of more is cut into digits, each a word (``digit_count``); those of
    a row are rows of their own, the highest first. With ``digits`` a summed level goes over digits
    of one operand, or of both: where it advances, sums so far are multiplied by 2^``DIGIT_WIDTH``.
    BIAS and MASK have that one summed level then, and X[x], X[g] above are whole values; a mask is
    positive where its first digit that is not 0 is. A result
    of ``out_width`` over 8 bits goes to rows Z[z], Z[z] + 1 ..; its statistics are of the whole.

    The ``reduce_levels`` innermost levels are summed. The tile has ``pe1_rows`` (PE4) or
    ``pe2_rows`` (PE3) rows, but in the last iteration of level ``tile_level`` only ``last_rows`` of
    them are written. The sums of |q|, the saturations and the underflows of the written rows are
    added to statistics ``slot``.

    Words of a posit stand for integers (``trainwright.formats``): X and G are these, ``rq`` is the
    format's ``encode``, and q are its words.
    """

    operation: Operation
    levels: tuple[Level, ...]
    x: int
    g: int
    z: int
    reduce_levels: int = 0
    tile_level: int = 0
    last_rows: int = 1
    x_row_stride: int = 0
    z_row_stride: int = 0
    g_row_stride: int = 0
    """PE4 only: rows from one entry of the second operand to the next."""
    x_register: int = 0
    g_register: int = 0
    z_register: int = 0
    shift: int = 0
    out_width: int = 16
    slot: int = 0
    relu: bool = False
    x_shift: int = 0
    g_shift: int = 0
    stochastic: bool = False
    """Round by random bits: only on accelerators with ``stochastic_rounding``."""
    x_format: int = 0
    """Number of the format of ``X``'s words (``AcceleratorParameters.number_formats``)."""
    g_format: int = 0
    """Of the second operand's words."""
    z_format: int = 0
    """Of the words written; ``out_width`` is of fixed point alone."""
    underflow_zero: bool = False
    """What is closer to 0 than the smallest posit becomes the nearer of it and 0; else it."""
    digits: int = 0
    """1: the outermost summed level goes over digits, the highest first; 2: the second one does,
    the outermost over those of the other operand. That gives each pair its weight where the second
    level has two of them: from H to L it multiplies, from (H, L) to (L, H), of one weight, nothing
    does. 0: no digits. Words of 8 bits alone."""
    x_exponent: int = 0
    """Slots of the exponent file; 0 holds 0."""
    g_exponent: int = 0
    z_exponent: int = 0
    """Other than 0: the shifts are those of the exponents (``ExponentFile.shifts``)."""
    exact: bool = False
    """Nothing is rounded: the result's exponent is its floor."""
    grows: bool = False
    """A sum that grows by g: its exponent is at most ``most_alignment`` above that of g."""
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE
    tensor: str = ""
    """Name of the tensor written; for people and tests, not encoded."""

    @property
    def outer(self) -> tuple[Level, ...]:
        """The levels that are not summed."""
        return self.levels[: len(self.levels) - self.reduce_levels]

    @property
    def reduction(self) -> tuple[Level, ...]:
        """The levels that are summed."""
        return self.levels[len(self.levels) - self.reduce_levels :]

    @property
    def tiles(self) -> int:
        """Tiles written in one execution."""
        return prod(level.count for level in self.outer)

    @property
    def steps(self) -> int:
        """Steps of the loop nest in one execution."""
        return prod(level.count for level in self.levels)


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A load (external memory to scratchpad) or a store (scratchpad to external memory).

    For every index of ``levels`` (outermost first) one run of ``beats`` beats moves between byte
    ``address + sum(index * level.address)`` and local ``local + sum(index * level.local)``. Local
    addresses are scratchpad rows and advance by one a row within a run. ``element_bytes`` is 1
    (sign-extended to a word on load; its low byte on store) or 2.
    """

    operation: Operation
    address: int
    local: int
    beats: int
    levels: tuple[TransferLevel, ...] = ()
    target: Target = Target.SCRATCHPAD
    element_bytes: int = 2
    address_register: int = 0
    local_register: int = 0
    eighth: int = 0
    """m + r, m a power of two up to ``EIGHTH``: only in steps of number r modulo m; 0: in all."""
    later: bool = False
    """Not in the first step of a run."""
    last: bool = False
    """Only in the last step of a run."""
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE
    tensor: str = ""
    """Name of the tensor moved; for people and tests, not encoded."""

    @property
    def runs(self) -> int:
        """Runs in one execution."""
        return prod(level.count for level in self.levels)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Repeat what follows, up to the matching ``End``, ``iterations`` times (at least once)."""

    iterations: int
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE

    @property
    def operation(self) -> Operation:
        return Operation.LOOP


@dataclass(frozen=True, kw_only=True)
class End:
    """End of a loop body: add ``steps`` (register, value) to the registers, then repeat or go on.

    The steps are added after every iteration, the last included.
    """

    steps: tuple[tuple[int, int], ...] = ()
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE

    @property
    def operation(self) -> Operation:
        return Operation.END


@dataclass(frozen=True, kw_only=True)
class Set:
    """Set address registers to ``values`` (register, value). All are 0 when a program starts.

    ``seed`` sets the stream of stochastic rounding, 32 bits, which advances by ``STREAM_STEP`` with
    every compute descriptor that is executed; it is 0 when a program starts.
    """

    values: tuple[tuple[int, int], ...]
    seed: int | None = None
    by_step: bool = False
    """The stream is ``seed`` + 2 x ``STREAM_STEP`` x the number of the step."""
    wait: Engine = Engine.NONE
    wait_older: Engine = Engine.NONE

    @property
    def operation(self) -> Operation:
        return Operation.SET


@dataclass(frozen=True, kw_only=True)
class Halt:
    """End of the program: wait for every engine and raise the interrupt."""

    wait: Engine = Engine.ALL
    wait_older: Engine = Engine.NONE

    @property
    def operation(self) -> Operation:
        return Operation.HALT


def is_skipped(d: "Descriptor", step: int, *, first: bool = False, last: bool = False) -> bool:
    """Whether a descriptor is not executed in the step of this number, which may be the ``first``
    of a run, and the ``last``.
    """
    if not isinstance(d, Transfer | Vector | Code):
        return False
    if d.last and not last:
        return True
    if isinstance(d, Code):
        return False
    wrong = d.eighth and step % modulus(d.eighth) != d.eighth - modulus(d.eighth)
    return bool(wrong) or (d.later and first)


def modulus(eighth: int) -> int:
    """m of an ``eighth`` of m + r: the highest bit of it."""
    return 1 << eighth.bit_length() - 1


Descriptor = Compute | Transfer | Samples | Loop | End | Set | Halt | Code | Vector | MoveScales


@dataclass(frozen=True)
class Program:
    """A sequence of descriptors that ends with ``Halt``, for one accelerator.

    ``fingerprint`` is that of the ``AcceleratorParameters`` it was compiled for; ``slots`` names
    the tensor counted in each statistics slot.
    """

    descriptors: tuple[Descriptor, ...]
    fingerprint: int
    slots: tuple[str, ...] = ()
