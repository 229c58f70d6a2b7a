"""Loop nest of a contraction: one step per cycle, with the addresses of all three operands."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH, NEST_LEVELS
from trainwright_hw.control.engine_ports import COMPUTE_LAYOUT
from trainwright_hw.stream.skid_buffer import SkidBuffer


def step_layout(parameters: AcceleratorParameters) -> data.StructLayout:
    """Lay out one step: addresses, and its place in the reduction, the tile and the command.

    ``first`` and ``last`` refer to the reduction; ``tile_last`` says that level ``tile_level`` is
    at its last index; ``final`` marks the command's last step. With narrow words, ``digit`` marks
    the begin of a digit, before which the sum so far is multiplied: the outermost reduction level
    walks over digits or, if two levels do, the second one.
    """
    return data.StructLayout({**STEP_MEMBERS, **({"digit": 1} if parameters.narrow else {})})


STEP_MEMBERS = {
    "x": LOCAL_WIDTH,
    "g": LOCAL_WIDTH,
    "z": LOCAL_WIDTH,
    "first": 1,
    "last": 1,
    "tile_last": 1,
    "final": 1,
}

_OPERANDS = ("x", "g", "z")


class _Level:
    """Registers of one level of the nest."""

    def __init__(self, index: int):
        self.top = Signal(COUNT_WIDTH, name=f"top_{index}")
        self.remaining = Signal(COUNT_WIDTH, name=f"remaining_{index}")
        self.start = Signal(name=f"start_{index}")
        self.end = Signal(name=f"end_{index}")
        self.is_reduction = Signal(name=f"is_reduction_{index}")
        self.is_tile = Signal(name=f"is_tile_{index}")
        self.is_digit = Signal(name=f"is_digit_{index}")
        # a reduction level inside the digits' level
        self.is_inside = Signal(name=f"is_inside_{index}")
        self.delta = {name: Signal(LOCAL_WIDTH, name=f"{name}_delta_{index}") for name in _OPERANDS}


class LoopNest(wiring.Component):
    """Address generator of PE1 and PE2: walks a command's levels, innermost fastest.

    A cycle of ``load``, allowed only while ``free``, takes counts, deltas and bases of ``command``.
    Two cycles later ``step`` (a stream) offers the first step, then one step per cycle, until the
    ``final`` step is taken; from the next cycle on the nest is ``free``.

    Addresses are modulo 2^20. Only the ``parameters.nest_levels`` innermost levels are built: the
    counts of the outer levels must be 1, and a ``tile_level`` among them counts as always at its
    last index.

    Two stages give the choice of a delta and its addition a cycle each: the indices run one step
    ahead of the addresses. A skid buffer behind them keeps their enables independent of whether the
    step is taken.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        self._layout = step_layout(parameters)
        super().__init__(
            {
                "free": Out(1, init=1),
                "load": In(1),
                "command": In(COMPUTE_LAYOUT),
                "step": Out(stream.Signature(self._layout)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # innermost first
        levels = [_Level(NEST_LEVELS - 1 - i) for i in range(self._parameters.nest_levels)]
        prime = Signal()  # high as the first step moves from indices to output
        advance = Signal()
        m.submodules.skid = skid = SkidBuffer(self._layout)
        connect(m, flipped(self.step), skid.o)
        valid, step = Signal(), Signal(self._layout)
        m.d.comb += [
            skid.i.valid.eq(valid),
            skid.i.payload.eq(step),
            advance.eq(prime | (valid & skid.i.ready)),
        ]
        m.d.sync += prime.eq(self.load)
        with m.If(self.load):
            m.d.sync += self.free.eq(0)
        with m.Elif(self.step.valid & self.step.ready & self.step.payload.final):
            m.d.sync += self.free.eq(1)
        self._indices(m, levels, advance)

        # Stage 1 walks the indices and chooses the delta of the step after next.
        delta = {name: Signal(LOCAL_WIDTH, name=f"{name}_delta") for name in _OPERANDS}
        final = Cat(level.end for level in levels).all()
        with m.If(advance):
            m.d.sync += [
                valid.eq(prime | ~step.final),
                step.first.eq(Cat(lv.start | ~lv.is_reduction for lv in levels).all()),
                step.last.eq(Cat(lv.end | ~lv.is_reduction for lv in levels).all()),
                step.tile_last.eq(Cat(lv.end | ~lv.is_tile for lv in levels).all()),
                step.final.eq(final),
            ]
            if self._parameters.wide_tensors:
                inside = Cat(lv.start | ~lv.is_inside for lv in levels).all()
                advanced = Cat(lv.is_digit & ~lv.start for lv in levels).any()
                m.d.sync += step.digit.eq(inside & advanced)
            elif self._parameters.narrow:
                inside = Cat(lv.start | ~lv.is_reduction | lv.is_digit for lv in levels).all()
                m.d.sync += step.digit.eq(inside & Cat(lv.is_digit for lv in levels).any())
            # The innermost level that is not at its last index advances next. Its delta also takes
            # all inner levels back to their first index, so that one addition is enough.
            with m.Switch(Cat(~level.end for level in levels)):
                for i, level in enumerate(levels):
                    with m.Case("-" * (len(levels) - 1 - i) + "1" + "0" * i):
                        m.d.sync += [delta[name].eq(level.delta[name]) for name in _OPERANDS]
            # Stage 2 adds the chosen delta; the first step keeps the bases.
            with m.If(~prime):
                m.d.sync += [step[name].eq(step[name] + delta[name]) for name in _OPERANDS]
        with m.If(self.free):
            m.d.sync += [step[name].eq(self.command[f"{name}_base"]) for name in _OPERANDS]
        return m

    def _digits(self, level: _Level, i: int) -> list:
        """Assign a level's digit flags, with narrow words.

        Digits are the outermost reduction level. With wide tensors they are the second level if the
        outermost one walks over the other operand's digits, and another flag tells whether a level
        is inside of it.
        """
        command = self.command
        if not self._parameters.narrow:
            return []
        if not self._parameters.wide_tensors:
            return [level.is_digit.eq(command.digits & (command.reduce_levels == i + 1))]
        # Wide tensors exclude posits, so the flag of underflows is free: it says that two levels
        # walk over digits.
        left = command.reduce_levels - (command.digits & command.underflow_zero)
        return [
            level.is_digit.eq(command.digits & (left == i + 1)),
            level.is_inside.eq(left > i + 1),
        ]

    def _indices(self, m: Module, levels: list[_Level], advance: Signal) -> None:
        """Step the counters and flags of every level; ``remaining`` is 0 at the last index.

        While the nest is free, the registers follow whatever command is offered, which includes the
        one that is loaded: whether a command is loaded is known too late in the cycle to enable so
        many registers.
        """
        for i, level in enumerate(levels):
            inner_end = Cat(advance, *(inner.end for inner in levels[:i])).all()
            number = NEST_LEVELS - 1 - i
            count = self.command[f"count{number}"]
            with m.If(inner_end):
                with m.If(level.end):
                    m.d.sync += [
                        level.remaining.eq(level.top),
                        level.end.eq(level.top == 0),
                        level.start.eq(1),
                    ]
                with m.Else():
                    m.d.sync += [
                        level.remaining.eq(level.remaining - 1),
                        level.end.eq(level.remaining == 1),
                        level.start.eq(0),
                    ]
            with m.If(self.free):
                m.d.sync += [
                    level.top.eq(count - 1),
                    level.remaining.eq(count - 1),
                    level.end.eq(count == 1),
                    level.start.eq(1),
                    level.is_reduction.eq(self.command.reduce_levels > i),
                    level.is_tile.eq(self.command.tile_level == number),
                    *self._digits(level, i),
                    *(
                        level.delta[name].eq(self.command[f"{name}_delta{number}"])
                        for name in _OPERANDS
                    ),
                ]
