"""Descriptors: what the accelerator executes, one class a kind, with the bits of every field.

Addresses are in scratchpad rows (``x``, ``g``, ``z``, ``local``; PE3's ``g`` in operand groups) and
bytes of external memory (``address``). A register number adds that address register at issue;
register 0 is always zero.

A descriptor is issued when all engines of its ``wait`` are idle and those of its ``wait_older``
have done all commands but the last one they were given (LOAD and STORE: are idle).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from trainwright.formats.exponents import ExponentRule
from trainwright.program.addresses import steps_of, strides_of
from trainwright.program.engines import tile_rows
from trainwright.program.errors import ProgramError
from trainwright.program.exponents import MOST_SHIFT, MoveScales, last_slot
from trainwright.program.fields import (
    COUNT_WIDTH,
    DESCRIPTOR_BITS,
    EIGHTH,
    EXPONENT_SLOT_WIDTH,
    FORMAT_WIDTH,
    INSTRUCTION_WIDTH,
    LOCAL_WIDTH,
    NEST_LEVELS,
    REGISTER_WIDTH,
    REGISTERS,
    SLOT_WIDTH,
    TRANSFER_LEVELS,
    Engine,
    Operation,
    Target,
)
from trainwright.program.samples import Samples
from trainwright.program.table import (
    ENGINES,
    WAIT,
    Described,
    Field,
    Header,
    Limited,
    Limits,
    bits,
    derived,
    only,
    repeated,
    unencoded,
)
from trainwright.program.vector import Code, Instruction, Vector

# ---- Loop nests --------------------------------------------------------------------------------


class Level(Described, kw_only=False):
    """Level of a contraction's loop nest: its count and the address step of each operand."""

    count: int = bits(COUNT_WIDTH, "iterations of the level", least=1)
    x: int = bits(LOCAL_WIDTH, "step of x when the level advances", name="x_delta", default=0,
                  signed=True)  # fmt: skip
    g: int = bits(LOCAL_WIDTH, "step of g when the level advances", name="g_delta", default=0,
                  signed=True)  # fmt: skip
    z: int = bits(LOCAL_WIDTH, "step of z when the level advances", name="z_delta", default=0,
                  signed=True)  # fmt: skip


class TransferLevel(Described, kw_only=False):
    """Level of a transfer's loop nest: its count, byte step outside, local step inside."""

    count: int = bits(COUNT_WIDTH, "iterations of the level", least=1)
    address: int = bits(32, "step of `address` when the level advances", name="address_delta",
                        default=0, signed=True, wraps=True)  # fmt: skip
    local: int = bits(LOCAL_WIDTH, "step of `local` when the level advances", name="local_delta",
                      default=0, signed=True)  # fmt: skip


L = TypeVar("L", Level, TransferLevel)


def encoded_levels(levels: Sequence[L], kind: type[L], most: int) -> dict[str, int]:
    """Return the fields of ``most`` levels: single iterations, then these, outermost first.

    Strides become the steps of an address register, modulo its width.
    """
    padded = [*[kind(1)] * (most - len(levels)), *levels]
    counts = [level.count for level in padded]
    fields = {f"count{n}": count for n, count in enumerate(counts)}
    for spec, row in zip(kind.layout[1:], kind.table[1:], strict=True):
        steps = steps_of(counts, [getattr(level, row.name) for level in padded], spec.width)
        fields |= {f"{spec.name}{n}": step for n, step in enumerate(steps)}
    return fields


def decoded_levels(f: Mapping[str, int], kind: type[L], most: int) -> list[L]:
    """Return ``most`` levels: the inverse of ``encoded_levels``."""
    counts = [f[f"count{n}"] for n in range(most)]
    strides = [
        strides_of(counts, [f[f"{spec.name}{n}"] for n in range(most)], spec.width)
        for spec in kind.layout[1:]
    ]
    return [kind(*level) for level in zip(counts, *strides, strict=True)]


DIGIT_WIDTH = 7
"""Bits of a digit below the highest one: none is negative, so that each fits a word of 8 bits."""


def digit_count(width: int) -> int:
    """Return the number of digits that signed integers of ``width`` bits are cut into."""
    return max(1, -(-(width - 1) // DIGIT_WIDTH))


# ---- Contractions and element-wise operations --------------------------------------------------


def _most_summed(d: "Compute", m: Limits) -> int:
    """Return how many levels may be summed: those of digits alone in element-wise operations."""
    whole = d.operation in (Operation.BIAS, Operation.MASK)
    return 0 if whole and not (d.digits and m.parameters.wide_tensors) else len(d.levels) - 1


def _most_format(d: "Compute", m: Limits) -> int:
    return len(m.parameters.formats)


def _most_alignment(d: "Compute", m: Limits) -> int:
    return m.parameters.most_alignment


class Compute(Header):
    """A contraction or an element-wise operation over a loop nest (outermost level first).

    With ``rq`` the requantiser (shift, round half to even or, with ``stochastic``, by random bits
    (``trainwright.formats.rounding``), saturate to ``out_width`` bits) and
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

    x: int = bits(LOCAL_WIDTH, "row of the first operand", name="x_base", register="x_register")
    x_register: int = bits(3, "register added to `x_base`", default=0)
    g: int = bits(LOCAL_WIDTH, "row of the second operand, of PE3 group of words", name="g_base",
                  register="g_register")  # fmt: skip
    g_register: int = bits(3, "register added to `g_base`", default=0)
    z: int = bits(LOCAL_WIDTH, "row of the result", name="z_base", register="z_register")
    z_register: int = bits(3, "register added to `z_base`", default=0)
    x_row_stride: int = bits(LOCAL_WIDTH, "rows from one tile row of x to the next, signed",
                             signed=True, default=0)  # fmt: skip
    z_row_stride: int = bits(LOCAL_WIDTH, "rows from one tile row of z to the next, signed",
                             signed=True, default=0)  # fmt: skip
    g_row_stride: int = bits(LOCAL_WIDTH, "PE4: rows from one entry of g to the next, signed",
                             signed=True, default=0)  # fmt: skip
    reduce_levels: int = bits(4, "innermost levels that are summed", most=_most_summed, default=0)
    tile_level: int = bits(
        4, "level in whose last iteration a tile may have fewer rows",
        most=lambda d, m: len(d.levels) - d.reduce_levels - 1, default=0,
    )  # fmt: skip
    last_rows: int = bits(
        5, "tile rows written in that last iteration",
        least=1, most=lambda d, m: tile_rows(d.operation, m.parameters), default=1,
    )  # fmt: skip
    shift: int = bits(6, "right shift of the requantiser", most=MOST_SHIFT, default=0)
    out_width: int = bits(5, "bits that the result is saturated to", default=16, lowest=1,
                          most=lambda d, m: m.parameters.result_width)  # fmt: skip
    slot: int = bits(SLOT_WIDTH, "statistics slot", most=lambda d, m: m.slots - 1, default=0)
    relu: bool = bits(1, "BIAS: negative sums become 0", default=False)
    x_shift: int = bits(4, "BIAS: left shift of x", most=_most_alignment, default=0)
    g_shift: int = bits(4, "BIAS: left shift of g", most=_most_alignment, default=0)
    levels: tuple[Level, ...] = repeated(
        NEST_LEVELS, "level", several="loop levels", least=1, joint=True
    )
    stochastic: bool = bits(1, "rounds by random bits", default=False)
    """Only on accelerators with ``stochastic_rounding``."""
    x_format: int = bits(
        FORMAT_WIDTH, "number format of x: 0 fixed point, n the n-th posit of the accelerator",
        most=_most_format, default=0,
    )  # fmt: skip
    g_format: int = bits(FORMAT_WIDTH, "number format of g", most=_most_format, default=0)
    z_format: int = bits(FORMAT_WIDTH, "number format of z; `out_width` counts in fixed point only",
                         most=_most_format, default=0)  # fmt: skip
    underflow_zero: bool = bits(
        1,
        "a result below the smallest posit becomes the nearer of 0 and that posit; with `digits`: "
        "the second summed level goes over digits, the outermost over those of the other operand",
        default=False,
    )
    digits: int = bits(
        1, "the outermost summed level goes over digits: when it advances, sums so far are "
        "multiplied by 2^7",
        most=lambda d, m: 2 if m.parameters.wide_tensors else 1, default=0,
    )  # fmt: skip
    """Operands whose digits summed levels go over, the highest digit first; words of 8 bits only.

    0: none. 1: the outermost summed level goes over the digits of one operand, and sums so far are
    multiplied by 2^7 as it advances. 2: the outermost level goes over the digits of one operand,
    the second level over the two digits of the other one, high (H) and low (L). Only an advance of
    the second level multiplies: the pairs (H, L) and (L, H) have the same weight, so an advance of
    the outermost level multiplies by nothing."""
    x_exponent: int = bits(EXPONENT_SLOT_WIDTH, "slot of x's exponent", resident=True, default=0,
                           most=last_slot)  # fmt: skip
    """Slots of the exponent file; 0 holds 0."""
    g_exponent: int = bits(EXPONENT_SLOT_WIDTH, "slot of g's exponent", resident=True, default=0,
                           most=last_slot)  # fmt: skip
    z_exponent: int = bits(
        EXPONENT_SLOT_WIDTH, "slot of z's exponent; not 0: all shifts follow from the exponents",
        resident=True, most=last_slot, default=0,
    )  # fmt: skip
    """Other than 0: the shifts are those of the exponents (``ExponentFile.shifts``)."""
    exact: bool = bits(1, "the exponent of z is its floor", resident=True, default=False)
    grows: bool = bits(1, "the exponent of z is at most 15 above that of g", resident=True,
                       default=False)  # fmt: skip
    tensor: str = unencoded(default="")
    """Name of the tensor written, for listings and tests."""

    @property
    def exponent_rule(self) -> ExponentRule:
        """Rule that gives the exponent of the result and all shifts, by the exponent file."""
        return ExponentRule(self.operation is Operation.BIAS, self.exact, self.grows)

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

    def encoded_jointly(self) -> dict[str, int]:
        """Pad levels with single iterations in front; tell digits of one operand from two."""
        return encoded_levels(self.levels, Level, NEST_LEVELS) | {
            "tile_level": self.tile_level + NEST_LEVELS - len(self.levels),
            # words that go by digits are no posits
            "underflow_zero": int(self.underflow_zero or self.digits == 2),
            "digits": int(self.digits > 0),
        }

    @classmethod
    def decoded_jointly(cls, f: Mapping[str, int], values: dict[str, Any]) -> dict[str, Any]:
        """Leave out single iterations in front. Raises ``ProgramError`` where levels overlap."""
        tile, levels = f["tile_level"], decoded_levels(f, Level, NEST_LEVELS)
        if tile + f["reduce_levels"] >= NEST_LEVELS:
            raise ProgramError(
                f"{Operation(f['operation']).name}: tile level {tile} is not outside the "
                f"{f['reduce_levels']} levels that are summed"
            )
        pad = 0
        while pad < tile and levels[pad].count == 1:
            pad += 1
        return {
            "levels": tuple(levels[pad:]),
            "tile_level": tile - pad,
            "underflow_zero": bool(f["underflow_zero"]) and not f["digits"],
            "digits": f["digits"] + (f["digits"] & f["underflow_zero"]),
        }


# ---- Transfers ---------------------------------------------------------------------------------


class Transfer(Header):
    """A load (external memory to scratchpad) or a store (scratchpad to external memory).

    For every index of ``levels`` (outermost first) one run of ``beats`` beats moves between byte
    ``address + sum(index * level.address)`` and local ``local + sum(index * level.local)``. Local
    addresses are scratchpad rows and advance by one a row within a run. ``element_bytes`` is 1
    (sign-extended to a word on load; its low byte on store) or 2.
    """

    target: Target = bits(2, "0 scratchpad; 3 program memory, for the sequencer's own loads",
                          most=Target.SCRATCHPAD, default=Target.SCRATCHPAD)  # fmt: skip
    element_bytes: int = bits(2, "bytes of an element outside: 1 or 2", default=2, least=1,
                              most=lambda d, m: m.parameters.word_width // 8)  # fmt: skip
    address: int = bits(32, "byte address outside", register="address_register")
    address_register: int = bits(3, "register added to `address`", default=0)
    local: int = bits(LOCAL_WIDTH, "row inside", register="local_register")
    local_register: int = bits(3, "register added to `local`", default=0)
    beats: int = bits(COUNT_WIDTH, "beats of a run", least=1)
    levels: tuple[TransferLevel, ...] = repeated(
        TRANSFER_LEVELS, "level", several="transfer levels", joint=True, default=()
    )
    eighth: int = bits(
        4, "m + r, m = 1, 2, 4 or 8: only in steps whose number modulo m is r; 0: in all steps",
        most=2 * EIGHTH - 1, resident=True, default=0,
    )  # fmt: skip
    tensor: str = unencoded(default="")
    """Name of the tensor moved, for listings and tests."""

    @property
    def runs(self) -> int:
        """Runs in one execution."""
        return prod(level.count for level in self.levels)

    def encoded_jointly(self) -> dict[str, int]:
        """Pad levels with single iterations in front."""
        return encoded_levels(self.levels, TransferLevel, TRANSFER_LEVELS)

    @classmethod
    def decoded_jointly(cls, f: Mapping[str, int], values: dict[str, Any]) -> dict[str, Any]:
        """Leave out single iterations in front."""
        levels = decoded_levels(f, TransferLevel, TRANSFER_LEVELS)
        while levels and levels[0].count == 1:
            levels.pop(0)
        return {"levels": tuple(levels)}


# ---- Operations of the sequencer ---------------------------------------------------------------


class Loop(Header):
    """Repeat what follows, up to the matching ``End``, ``iterations`` times (at least once)."""

    operation: Operation = only(Operation.LOOP)
    iterations: int = bits(COUNT_WIDTH, "times the body is executed", least=1)


class RegisterUpdate(Header):
    """Values for address registers: what ``End`` and ``Set`` have in common."""

    @derived(
        REGISTERS,
        "registers that are set (SET) or stepped (END), bit n for Rn; bit 0, SET: the seed",
    )
    def mask(self) -> int:
        return sum(1 << register for register in dict(self.pairs))

    @derived(REGISTER_WIDTH, "value (SET) or step (END) of the register", name="value",
             count=REGISTERS, signed=True)  # fmt: skip
    def all_values(self) -> list[int]:
        given = dict(self.pairs)
        return [given.get(register, 0) for register in range(REGISTERS)]

    @property
    def updates(self) -> tuple[tuple[int, int], ...]:
        """Registers and their values."""
        raise NotImplementedError

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Updates, and the seed as the value of R0."""
        return self.updates

    def encoded_jointly(self) -> dict[str, int]:
        """Raise ``ProgramError`` for a register that is not there."""
        for register, _ in self.updates:
            if not 1 <= register < REGISTERS:
                raise ProgramError(
                    f"address register {register} is not one of R1 to R{REGISTERS - 1}"
                )
        return {}

    def limited_jointly(self, machine: Limits) -> Iterator[Limited]:
        """Yield registers and values."""
        half = 1 << (REGISTER_WIDTH - 1)
        for register, value in self.updates:
            yield "register", register, (1, REGISTERS - 1)
            yield f"R{register}", value, (-half, 2 * half - 1)


def _decoded_pairs(f: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """Return registers and their values, the seed left out."""
    spec = next(row.field for row in RegisterUpdate.table if row.name == "all_values")
    assert spec
    used = (n for n in range(1, REGISTERS) if f["mask"] >> n & 1)
    return tuple((n, spec.decoded(f[f"value{n}"])) for n in used)


BY_STEP = "SET: the stream is the seed + step x 2 x 0x9E3779B9"


class End(RegisterUpdate):
    """End of a loop body: add ``steps`` (register, value) to the registers, then repeat or go on.

    The steps are added after every iteration, the last included.
    """

    operation: Operation = only(Operation.END)
    steps: tuple[tuple[int, int], ...] = unencoded(default=())

    @derived(1, BY_STEP, resident=True)
    def by_step(self) -> int:
        return 0

    @property
    def updates(self) -> tuple[tuple[int, int], ...]:
        """Registers and their steps."""
        return self.steps

    @classmethod
    def decoded_jointly(cls, f: Mapping[str, int], values: dict[str, Any]) -> dict[str, Any]:
        """Take the registers of the mask."""
        return {"steps": _decoded_pairs(f)}


class Set(RegisterUpdate):
    """Set address registers to ``values`` (register, value). All are 0 when a program starts.

    ``seed`` sets the stream of stochastic rounding, 32 bits, which advances by ``STREAM_STEP`` with
    every compute descriptor that is executed; it is 0 when a program starts.
    """

    operation: Operation = only(Operation.SET)
    values: tuple[tuple[int, int], ...] = unencoded()
    seed: int | None = unencoded(default=None)
    by_step: bool = bits(1, BY_STEP, resident=True, default=False)
    """The stream is ``seed`` + 2 x ``STREAM_STEP`` x the number of the step."""

    @property
    def updates(self) -> tuple[tuple[int, int], ...]:
        """Registers and their values."""
        return self.values

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Updates, and the seed as the value of R0."""
        return self.values if self.seed is None else ((0, self.seed), *self.values)

    def encoded_jointly(self) -> dict[str, int]:
        """Leave the seed as given, so that one out of range is an error."""
        super().encoded_jointly()
        return {"by_step": 0} if self.seed is None else {"value0": self.seed}

    @classmethod
    def decoded_jointly(cls, f: Mapping[str, int], values: dict[str, Any]) -> dict[str, Any]:
        """Take the registers of the mask, and the seed from the place of R0."""
        return {"values": _decoded_pairs(f), "seed": f["value0"] if f["mask"] & 1 else None}

    def limited_jointly(self, machine: Limits) -> Iterator[Limited]:
        """Yield registers, values and the seed."""
        yield from super().limited_jointly(machine)
        if self.seed is not None:
            yield "seed", self.seed, (0, (1 << REGISTER_WIDTH) - 1)


class Halt(Header):
    """End of the program: wait for every engine and raise the interrupt."""

    operation: Operation = only(Operation.HALT)
    wait: Engine = bits(ENGINES, WAIT, default=Engine.ALL)


# ---- Programs ----------------------------------------------------------------------------------

Descriptor = Compute | Transfer | Samples | Loop | End | Set | Halt | Code | Vector | MoveScales

CLASSES: dict[Operation, type[Descriptor]] = {
    Operation.HALT: Halt,
    Operation.LOAD: Transfer,
    Operation.STORE: Transfer,
    Operation.PE3: Compute,
    Operation.BIAS: Compute,
    Operation.MASK: Compute,
    Operation.LOOP: Loop,
    Operation.END: End,
    Operation.SET: Set,
    Operation.PE4: Compute,
    Operation.VECTOR: Vector,
    Operation.CODE: Code,
    Operation.SAMPLES: Samples,
    Operation.SCALES: MoveScales,
}
"""Class of each operation's descriptors."""

LAYOUTS: dict[Operation, tuple[Field, ...]] = {
    operation: kind.layout for operation, kind in CLASSES.items()
}


def layout_width(layout: tuple[Field, ...]) -> int:
    """Return the bits of a layout."""
    return sum(field.width for field in layout)


assert all(layout_width(layout) <= DESCRIPTOR_BITS for layout in LAYOUTS.values())
assert layout_width(Samples.layout) <= layout_width(Transfer.layout)
assert layout_width(Instruction.layout) == INSTRUCTION_WIDTH


def is_skipped(d: Descriptor, step: int) -> bool:
    """Return whether a descriptor is skipped in step number ``step``."""
    if not isinstance(d, Transfer | Vector) or not d.eighth:
        return False
    return step % modulus(d.eighth) != d.eighth - modulus(d.eighth)


def matching_end(program: Sequence[Descriptor], start: int) -> int:
    """Return the number of the ``End`` of the ``Loop`` at ``start``; loops match."""
    depth = 0
    for index in range(start, len(program)):
        depth += isinstance(program[index], Loop) - isinstance(program[index], End)
        if not depth:
            return index
    raise AssertionError("a checked program has no LOOP without its END")


def modulus(eighth: int) -> int:
    """Return m of an ``eighth`` of m + r: its highest bit."""
    return 1 << eighth.bit_length() - 1


@dataclass(frozen=True)
class Program:
    """A sequence of descriptors that ends with ``Halt``, for one accelerator.

    ``fingerprint`` is that of the ``AcceleratorParameters`` it was compiled for; ``slots`` names
    the tensor counted in each statistics slot.
    """

    descriptors: tuple[Descriptor, ...]
    fingerprint: int
    slots: tuple[str, ...] = ()
