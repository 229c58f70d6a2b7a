"""The update of a part of the state as one pass of the vector engine, a row of the state a row.

The instructions of ``trainwright.onchip.update`` and of the pull in ``trainwright.onchip.prior``,
bit for bit. A word of the state is the lowest hidden + 8 bits of 2^8 W + m. Three identities:

    low = word + 128, its lowest hidden + 8 bits signed  = 2^8 W + m + 128 - factor * 2^(hidden + 8)
    W = floor((factor * 2^(hidden + 8) + low) / 2^8)     as m + 128 is 0 to 255
    m = clamp8(SR((gt + 240 m) / 2^8))                   as 256 m / 2^8 is an integer
"""

from dataclasses import dataclass

from trainwright.onchip import schedule_pass
from trainwright.onchip.instructions import keep, read, write, zero
from trainwright.onchip.layout import MOMENT_WIDTH, WEIGHT_WIDTH
from trainwright.onchip.prior import PULL_WIDTH
from trainwright.onchip.rates import SHIFT_WIDTH
from trainwright.onchip.update import DECAY_SHIFT
from trainwright.program.vector import (
    Addend,
    Instruction,
    Kind,
    Memory,
    Rounding,
    ShiftBy,
    When,
)

STATE, FACTOR, GRADIENT, LEFT_SHIFT, LEFT, RIGHT_SHIFT, RIGHT = range(7)
"""Streams: words of the state and factors, read and written; gradients; shift and coefficient of
each column on the left, the same in all lanes, and on the right, along the lanes."""

MOVED_SHIFT = 0
"""Shift of the pass that the exponent file gives."""
MOVED_CONSTANT = 6
"""Constant that it gives."""
RATE_CONSTANT = 2
"""Another: what momentum adds to a rate's shift."""
_WORD, _M, _W, _SHIFT, _G, _PULL = range(6)
_SPLIT, _KEPT, _RATE, _MOST, _HALF, _UP, _MOVED = range(7)


@dataclass(frozen=True)
class PartUpdate:
    """How a part is updated in one step."""

    hidden: int
    """Bits of a weight below its factor."""
    rate: int
    rate_shift: int
    moved: int = 0
    """By how much the gradient's exponent is higher than the moments'."""
    left: bool = True
    """Whether a rank prior pulls the columns of a bond on the left."""
    right: bool = True
    """Of one on the right."""
    cuts: bool = False
    """Whether weights and moments become 0 in columns whose shift is under 0."""
    resident: bool = False
    """Whether the pass is the same in every step: the moved exponent comes from the exponent file,
    as constant MOVED_CONSTANT and shift MOVED_SHIFT, and the rate from the registers of
    ``schedule_pass``; then ``rate`` counts for nothing, and ``rate_shift`` is added to theirs."""
    momentum: bool = False
    """Of a resident pass, whether what is added to the rate's shift comes from the exponent file,
    as constant RATE_CONSTANT, in the place of ``rate_shift``."""

    @property
    def constants(self) -> tuple[int, ...]:
        """Those of the pass."""
        return (
            1 << (self.hidden + MOMENT_WIDTH),
            (1 << 2 * DECAY_SHIFT) - (1 << DECAY_SHIFT),
            self.rate_shift if self.resident else self.rate,
            (1 << (WEIGHT_WIDTH - 1)) - (1 << self.hidden),
            1 << (MOMENT_WIDTH - 1),
            1 << MOMENT_WIDTH,
            1 << min(max(-self.moved, 0), MOMENT_WIDTH),
        )

    @property
    def reads(self) -> int:
        """Mask of the streams that are read."""
        streams = (STATE, FACTOR, GRADIENT)
        streams += (LEFT_SHIFT, LEFT) if self.left else ()
        streams += (RIGHT_SHIFT, RIGHT) if self.right else ()
        return sum(1 << stream for stream in streams)

    @property
    def writes(self) -> int:
        """Mask of those that are written."""
        return 1 << STATE | 1 << FACTOR


def _pulls(part: PartUpdate) -> list[Instruction]:
    """The gradient of a row, and what the prior adds to it."""
    pull = {"kind": Kind.PRODUCT, "b": _W, "a": _SHIFT, "shift_by": ShiftBy.A}
    pull |= {"rounding": Rounding.UP, "width": PULL_WIDTH}
    sides = [(LEFT_SHIFT, LEFT)] * part.left + [(RIGHT_SHIFT, RIGHT)] * part.right
    code: list[Instruction] = []
    for d, (shift, coefficient) in zip((_G, _PULL), sides, strict=False):
        second = part.cuts and d == _PULL  # no state is left to split: this register is free
        pull["a"] = _WORD if second else _SHIFT
        code += [read(shift, pull["a"]), read(coefficient, d, **pull)]
        if second:
            code.append(keep(_SHIFT, kind=Kind.MINIMUM, a=_SHIFT, b=_WORD))
    if len(sides) > 1:
        code.append(keep(_G, a=_G, c=_PULL, addend=Addend.PLUS))
    addend = Addend.PLUS if sides else Addend.NOTHING
    return [*code, read(GRADIENT, _G, c=_G, addend=addend)]


def _rated(part: PartUpdate) -> list[Instruction]:
    """The step of the weights."""
    step = {"kind": Kind.PRODUCT, "a": _M, "rounding": Rounding.RANDOM_NEXT}
    if not part.resident:
        return [keep(_G, **step, use_k=True, k=_RATE, shift=part.rate_shift)]
    shift, code = schedule_pass.RATE_SHIFT, []
    if part.rate_shift or part.momentum:  # no pulls are left to add: this register is free
        held = {"width": SHIFT_WIDTH + 1} if part.momentum else {}
        code.append(keep(_PULL, a=shift, k=_RATE, addend=Addend.CONSTANT, **held))
        shift = _PULL
    if part.momentum:
        code.append(zero(_PULL, c=_PULL, when=When.NEGATIVE))
    return [*code, keep(_G, **step, b=schedule_pass.RATE, c=shift, shift_by=ShiftBy.C)]


def _cleared(part: PartUpdate, *registers: int) -> list[Instruction]:
    """These are 0 in columns that are cut."""
    if not part.cuts or not (part.left or part.right):
        return []
    cut = {"c": _SHIFT, "when": When.NEGATIVE}
    return [zero(d, **cut) for d in registers]


def update_code(part: PartUpdate) -> tuple[Instruction, ...]:
    """The pass; a machine of 16 lanes executes it for each row of the part."""
    scaled = {"kind": Kind.PRODUCT, "use_k": True}
    half = {"k": _HALF, "addend": Addend.CONSTANT, "wrap": True}
    code = [
        read(STATE, _WORD, **half, width=part.hidden + MOMENT_WIDTH),
        keep(_M, a=_WORD, **half, width=MOMENT_WIDTH),
        read(FACTOR, _W, **scaled, k=_SPLIT, c=_WORD, addend=Addend.PLUS, shift=MOMENT_WIDTH),
    ]
    moved = {"shift": min(max(part.moved, 0), 30)}
    if part.resident:
        moved = {"shift": MOVED_SHIFT, "shift_by": ShiftBy.SCALAR}
    if part.moved or part.resident:
        code.append(
            keep(_M, **scaled, a=_M, k=_MOVED, **moved, rounding=Rounding.EVEN, width=MOMENT_WIDTH)
        )
    code += [
        *_pulls(part),
        keep(_M, **scaled, a=_M, k=_KEPT, c=_G, addend=Addend.PLUS, shift=2 * DECAY_SHIFT,
              rounding=Rounding.RANDOM, width=MOMENT_WIDTH),
        *_rated(part),
        keep(_W, a=_W, c=_G, addend=Addend.MINUS, width=WEIGHT_WIDTH),
        keep(_W, kind=Kind.MINIMUM, a=_W, use_k=True, k=_MOST),
        *_cleared(part, _M, _W),
        keep(_G, a=_W, shift=part.hidden, rounding=Rounding.UP, memory=Memory.WRITE,
              stream=FACTOR),
    ]  # fmt: skip
    return (
        *code,
        write(STATE, **scaled, a=_W, k=_UP, c=_M, addend=Addend.PLUS, wrap=True,
              width=part.hidden + MOMENT_WIDTH),
    )  # fmt: skip
