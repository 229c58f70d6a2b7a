"""The exponent file: exponents of tensors in slots, from which programs take their shifts.

A slot has 8 bits, signed; slot 0 is always 0. A descriptor that names slots gets its shifts when it
is issued, and the exponent of its result is written back, so that a program is the same in every
step. SCALES moves exponents by the sums of |q|, as ``trainwright.fixed.scale.Scales.update``.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from trainwright.formats.exponents import Shifts, followed
from trainwright.formats.rounding import MAX_SHIFT
from trainwright.program.errors import ProgramError
from trainwright.program.fields import (
    EXPONENT_SLOT_WIDTH,
    INSTRUCTION_WIDTH,
    Engine,
    Operation,
)
from trainwright.program.table import (
    ENGINES,
    WAIT,
    Described,
    Field,
    Header,
    Limits,
    bits,
    derived,
    name_of,
    only,
    repeated,
)
from trainwright.support.text import amount

if TYPE_CHECKING:
    from trainwright.program.descriptors import Compute
    from trainwright.program.vector import Vector

LEAST, GREATEST = -128, 127
"""Exponents that a slot holds."""
MOST_SHIFT = MAX_SHIFT
MOST_POWER = 16
"""A constant of the vector engine is a power of two up to 2^MOST_POWER."""
SCALARS = 4
"""Scalars of a VECTOR descriptor."""
SHIFTS = 4
"""Shifts of a pass that scalars give."""
ENTRIES = 6
"""Entries of a SCALES descriptor."""
MOST_SUM = (1 << 48) - 1


def last_slot(_: object, m: Limits) -> int:
    """Return the last slot of the exponent file."""
    return max(m.parameters.exponents - 1, 0)


class ScalarKind(IntEnum):
    """Uses of the scalar v = file[plus] - file[minus] + offset."""

    NONE = 0
    VALUE = 1
    """Constant ``to`` is v."""
    POWER = 2
    """Constant ``to`` is 2^v, v held in 0 .. MOST_POWER."""
    SHIFT = 3
    """Shift ``to`` is v, held in 0 .. MOST_SHIFT."""


class Scalar(Described, kw_only=False):
    """A constant or a shift of a pass, from the exponent file."""

    kind: ScalarKind = bits(
        2, "what the scalar gives: 0 nothing, 1 a constant, 2 a power of two, 3 a shift",
        name="scalar", resident=True,
    )  # fmt: skip
    to: int = bits(
        3, "number of the constant or shift that becomes the scalar", resident=True,
        most=lambda scalar, _: SHIFTS - 1 if scalar.kind is ScalarKind.SHIFT else 7,
    )  # fmt: skip
    plus: int = bits(EXPONENT_SLOT_WIDTH, "slot of an exponent to add", resident=True, default=0,
                     most=last_slot)  # fmt: skip
    minus: int = bits(EXPONENT_SLOT_WIDTH, "slot of an exponent to subtract", resident=True,
                      default=0, most=last_slot)  # fmt: skip
    offset: int = bits(7, "number to add, signed", signed=True, resident=True, default=0)
    strict: bool = bits(
        1, "whether a scalar under 0 is an error", resident=True, default=False, before="to"
    )


class ScaleEntry(Described, kw_only=False):
    """Move of a tensor's exponent by SCALES, and where its old exponent goes.

    Slot ``copy`` gets the exponent as it is (0: none does); then the exponent moves by the sum of
    statistics slot ``statistics``, which becomes 0. Where ``exponent`` is 0 the sum is only
    cleared.
    """

    exponent: int = bits(16, "slot whose exponent moves; 0: none", most=last_slot)
    statistics: int = bits(16, "statistics slot whose sum is taken",
                           most=lambda _, m: m.parameters.statistics_depth - 1)  # fmt: skip
    low: int = bits(INSTRUCTION_WIDTH, "sum under which the exponent goes down", most=MOST_SUM)
    """Unless the exponent is the tensor's floor."""
    high: int = bits(INSTRUCTION_WIDTH, "sum over which the exponent goes up", most=MOST_SUM)
    copy: int = bits(18, "slot that gets the exponent as it was; 0: none", most=last_slot,
                     default=0, before="low")  # fmt: skip


def _in_words(layout: Sequence[Field], width: int) -> tuple[tuple[Field, ...], ...]:
    """Cut a layout into words; every field lies in one of them."""
    words: list[list[Field]] = [[]]
    for field in layout:
        if sum(other.width for other in words[-1]) == width:
            words.append([])
        words[-1].append(field)
    assert all(sum(field.width for field in word) == width for word in words)
    return tuple(map(tuple, words))


ENTRY_WORDS = _in_words(ScaleEntry.layout, INSTRUCTION_WIDTH)
"""Fields of an entry by the words of CODE whose places they have: one selector serves both."""


class MoveScales(Header):
    """SCALES: its entries one after the other, when all engines are idle."""

    operation: Operation = only(Operation.SCALES)
    wait: Engine = bits(ENGINES, WAIT, default=Engine.ALL)

    @derived(11, "entries, 1 to 6", name="entries", least=1, most=ENTRIES)
    def entry_count(self) -> int:
        return len(self.entries)

    entries: tuple[ScaleEntry, ...] = repeated(ENTRIES, "entry", least=1, counted="entries")


class ExponentFile:
    """File of ``slots`` exponents, which knows of each whether it is above its tensor's floor."""

    def __init__(self, slots: int) -> None:
        self.exponents = [0] * slots
        self.above = [False] * slots

    def set(self, exponents: Sequence[int]) -> None:
        """Set all exponents, none known to be above its floor.

        Raises ``ProgramError`` for another number of exponents than there are slots.
        """
        if len(exponents) != len(self.exponents) or exponents[0]:
            raise ProgramError(
                f"{amount(len(exponents), 'exponent')}, the first {exponents[:1]}: "
                f"the file has {amount(len(self.exponents), 'slot')}, and slot 0 is always 0"
            )
        for slot, value in enumerate(exponents):
            self._require(value, f"slot {slot}")
        self.exponents = [int(value) for value in exponents]
        self.above = [False] * len(self.exponents)

    @staticmethod
    def _require(value: int, name: str) -> None:
        if not LEAST <= value <= GREATEST:
            raise ProgramError(
                f"{name}: an exponent of {value} is not from {LEAST} to {GREATEST}; scale the "
                "network's inputs or weights"
            )

    def shifts(self, d: "Compute", most_alignment: int) -> Shifts:
        """Return the shifts of a descriptor; write its result's exponent.

        Raises ``ProgramError`` where an operand would be shifted by more than ``most_alignment``,
        or an exponent leaves its 8 bits.
        """
        name = name_of(d)
        x, g, z = (self.exponents[n] for n in (d.x_exponent, d.g_exponent, d.z_exponent))
        scaled = d.exponent_rule.scaled(x, g, z, most_alignment)
        left = max(scaled.shifts.x, scaled.shifts.g)
        if left > most_alignment:
            raise ProgramError(
                f"{name}: exponents {x} and {g} of its operands are {left} apart, the "
                f"accelerator aligns {most_alignment} bits; use exponents=0, with which a host "
                "moves the exponents"
            )
        self._require(scaled.exponent, name)
        self.exponents[d.z_exponent] = scaled.exponent
        self.above[d.z_exponent] = scaled.exponent > scaled.floor
        return scaled.shifts

    def scalars(self, d: "Vector") -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return constants and shifts of a pass.

        Raises ``ProgramError`` where one that is ``strict`` is negative.
        """
        constants = [*d.constants, *(0,) * (8 - len(d.constants))]
        shifts = [0] * SHIFTS
        for scalar in d.scalars:
            value = self.exponents[scalar.plus] - self.exponents[scalar.minus] + scalar.offset
            if scalar.strict and value < 0:
                raise ProgramError(
                    f"{name_of(d)}: {self._blamed(scalar)} beyond the range of this pass by "
                    f"{-value}; scale the network's inputs or weights, or use a lower learning rate"
                )
            if scalar.kind is ScalarKind.VALUE:
                constants[scalar.to] = value
            elif scalar.kind is ScalarKind.POWER:
                constants[scalar.to] = 1 << min(max(value, 0), MOST_POWER)
            elif scalar.kind is ScalarKind.SHIFT:
                shifts[scalar.to] = min(max(value, 0), MOST_SHIFT)
        return tuple(constants), tuple(shifts)

    def _blamed(self, scalar: Scalar) -> str:
        """Return the exponents that make up a scalar, without slot 0, which is always 0."""
        slots = [slot for slot in (scalar.plus, scalar.minus) if slot]
        texts = [f"the exponent {self.exponents[slot]} of slot {slot}" for slot in slots]
        return f"{' and '.join(texts)} {'are' if len(texts) > 1 else 'is'}"

    def move(self, entry: ScaleEntry, total: int) -> None:
        """Execute an entry of SCALES, ``total`` being the sum of its statistics slot."""
        if entry.copy:
            self.exponents[entry.copy] = self.exponents[entry.exponent]
        if not entry.exponent:
            return
        slot = entry.exponent
        value = followed(self.exponents[slot], total, entry.low, entry.high, above=self.above[slot])
        self._require(value, f"slot {slot}")
        self.exponents[slot] = value


def require_times(times: int) -> None:
    """Raise ``ProgramError`` where a program is not to be repeated at least once."""
    if not 1 <= times < 1 << 32:
        raise ProgramError(f"a program runs 1 to 2^32 - 1 times, not {times}; give a count")
