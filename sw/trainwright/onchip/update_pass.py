"""The update of a part of the state as one pass of the vector engine, a row of the state a row.

The instructions of ``trainwright.onchip.update`` and of the pull in ``trainwright.onchip.prior``,
bit for bit. With word = hidden * 2^8 + m's byte, two steps of the definition are one here:

    W = floor((factor * 2^(hidden bits + 8) + word) / 2^8)
    m = clamp8(SR((gt + 240 m) / 2^8))                  as 256 m / 2^8 is an integer
"""

from dataclasses import dataclass

from trainwright.onchip.layout import MOMENT_WIDTH, WEIGHT_WIDTH
from trainwright.onchip.prior import PULL_WIDTH
from trainwright.onchip.update import DECAY_SHIFT
from trainwright.program.vector import (
    Addend,
    Instruction,
    Kind,
    Memory,
    Rounding,
    ShiftBy,
)

STATE, FACTOR, GRADIENT, LEFT_SHIFT, LEFT, RIGHT_SHIFT, RIGHT = range(7)
"""Streams: words of the state and factors, read and written; gradients; shift and coefficient of
each column on the left, the same in all lanes, and on the right, along the lanes."""

_WORD, _M, _W, _SHIFT, _G, _PULL = range(6)
_SPLIT, _KEPT, _RATE, _MOST, _BYTE, _UP, _MOVED = range(7)


@dataclass(frozen=True)
class PartUpdate:
    """How a part is updated in one step."""

    hidden: int
    """Bits of a weight below its factor."""
    rate: int
    rate_shift: int
    moved: int = 0
    """By how much the gradient's exponent is higher than the moments'."""
    pulled: bool = True
    """Whether there is a rank prior."""

    @property
    def constants(self) -> tuple[int, ...]:
        """Those of the pass."""
        return (
            1 << (self.hidden + MOMENT_WIDTH),
            (1 << 2 * DECAY_SHIFT) - (1 << DECAY_SHIFT),
            self.rate,
            (1 << (WEIGHT_WIDTH - 1)) - (1 << self.hidden),
            (1 << MOMENT_WIDTH) - 1,
            1 << MOMENT_WIDTH,
            1 << min(max(-self.moved, 0), MOMENT_WIDTH),
        )

    @property
    def reads(self) -> int:
        """Mask of the streams that are read."""
        streams = (STATE, FACTOR, GRADIENT)
        streams += (LEFT_SHIFT, LEFT, RIGHT_SHIFT, RIGHT) if self.pulled else ()
        return sum(1 << stream for stream in streams)

    @property
    def writes(self) -> int:
        """Mask of those that are written."""
        return 1 << STATE | 1 << FACTOR


def _keep(d: int, **fields) -> Instruction:
    return Instruction(keep=True, d=d, **fields)


def _read(stream: int, **fields) -> Instruction:
    return _keep(memory=Memory.READ, stream=stream, **fields)


def update_code(part: PartUpdate) -> tuple[Instruction, ...]:
    """The pass; a machine of 16 lanes executes it for each row of the part."""
    product, scaled = Kind.PRODUCT, {"kind": Kind.PRODUCT, "use_k": True}
    code = [
        _read(STATE, d=_WORD),
        _keep(_M, a=_WORD, wrap=True, width=MOMENT_WIDTH),
        _read(FACTOR, d=_W, **scaled, k=_SPLIT, c=_WORD, addend=Addend.PLUS, shift=MOMENT_WIDTH),
    ]
    if part.moved:
        code.append(
            _keep(_M, **scaled, a=_M, k=_MOVED, shift=min(max(part.moved, 0), 30),
                  rounding=Rounding.EVEN, width=MOMENT_WIDTH)
        )  # fmt: skip
    if part.pulled:
        pull = {"kind": product, "b": _W, "a": _SHIFT, "shift_by": ShiftBy.A}
        pull |= {"rounding": Rounding.UP, "width": PULL_WIDTH}
        code += [
            _read(LEFT_SHIFT, d=_SHIFT),
            _read(LEFT, d=_G, **pull),
            _read(RIGHT_SHIFT, d=_SHIFT),
            _read(RIGHT, d=_PULL, **pull),
            _keep(_G, a=_G, c=_PULL, addend=Addend.PLUS),
            _read(GRADIENT, d=_G, c=_G, addend=Addend.PLUS),
        ]
    else:
        code.append(_read(GRADIENT, d=_G))
    return (
        *code,
        _keep(_M, **scaled, a=_M, k=_KEPT, c=_G, addend=Addend.PLUS, shift=2 * DECAY_SHIFT,
              rounding=Rounding.RANDOM, width=MOMENT_WIDTH),
        _keep(_G, **scaled, a=_M, k=_RATE, shift=part.rate_shift, rounding=Rounding.RANDOM_NEXT),
        _keep(_W, a=_W, c=_G, addend=Addend.MINUS, width=WEIGHT_WIDTH),
        _keep(_W, kind=Kind.MINIMUM, a=_W, use_k=True, k=_MOST),
        Instruction(a=_W, shift=part.hidden, rounding=Rounding.UP, memory=Memory.WRITE,
                    stream=FACTOR),
        _keep(_M, kind=Kind.AND, a=_M, use_k=True, k=_BYTE),
        Instruction(**scaled, a=_W, k=_UP, c=_M, addend=Addend.PLUS, wrap=True,
                    width=part.hidden + MOMENT_WIDTH, memory=Memory.WRITE, stream=STATE),
    )  # fmt: skip
