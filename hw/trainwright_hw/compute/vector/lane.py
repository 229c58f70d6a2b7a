"""A lane of the vector engine: registers, multiplier, table, shifter, rounding, saturation."""

from dataclasses import dataclass

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.formats.rounding import RANDOM_WIDTH
from trainwright.kernels.slots import SLOTS, table_words
from trainwright.kernels.tables import ENTRIES, FRACTION, REST_WIDTH, SLOPE_SHIFT, WORD_WIDTH
from trainwright.program.vector import (
    FACTOR_WIDTH,
    REGISTERS,
    THREADS,
    WIDTH,
    Addend,
    Instruction,
    Kind,
    Rounding,
    ShiftBy,
    When,
)
from trainwright.program.vector import (
    Memory as Rows,
)
from trainwright_hw.arith.fixed import integer
from trainwright_hw.arith.multiplier import PRODUCT_CYCLES, registered_product
from trainwright_hw.stream.delay_line import delay_line

INSTRUCTION_LAYOUT = data.StructLayout({field.name: field.width for field in Instruction.layout})
WORD = 16
"""Bits per word of a row."""
OPERANDS, TERMS = 1, 2
"""Cycles after the issue in which operands are read, and in which terms are in registers."""


@dataclass(frozen=True)
class Stages:
    """Pipeline stages as cycles after the issue of an instruction for a part of a row.

    Members are the cycles at which terms, sum, shifted and rounded value are in registers. Terms of
    rows of several ``parts`` wait for the lanes' common result.
    """

    parts: int

    @property
    def wait(self) -> int:
        """Cycles that terms wait for the terms of the row's other parts."""
        return self.parts if self.parts > 1 else 0

    @property
    def sum(self) -> int:
        return TERMS + PRODUCT_CYCLES + self.wait

    @property
    def shifted(self) -> int:
        return self.sum + 1

    @property
    def rounded(self) -> int:
        return self.sum + 2

    @property
    def result(self) -> int:
        return self.sum + 3

    @property
    def count(self) -> int:
        """Stages until the result can be read: at most the cycles of an instruction."""
        return self.sum + 4


BELOW = RANDOM_WIDTH + 1
"""Bits kept below the binary point for rounding."""
SHIFT_WIDTH = 6


def bit_length(value: Value) -> Value:
    """Return the bits of an unsigned value: the position of its highest one, from 1."""
    return Mux(value.any(), _highest(value) + 1, 0)


def _highest(value: Value) -> Value:
    """Return the position of the highest one, from 0; 0 if there is none."""
    if len(value) == 1:
        return C(0, 0)
    half = 1 << (len(value) - 1).bit_length() - 1
    high = value[half:]
    bits = half.bit_length() - 1
    return Cat(Mux(high.any(), _highest(high), _highest(value[:half]))[:bits], high.any())


class Lane(wiring.Component):
    """Lane ``index`` of ``lanes``, for ``parts`` words of a row in turn.

    Instructions arrive as ``stages``: ``stages[n]`` is the instruction whose cycle n it is,
    ``turns[n]`` its part of the row, with the thread above; ``constants[n]`` is the constant that
    it names (n up to TERMS); ``chained``, at ``Stages.sum``, is the lanes' common result, 0 where
    there is none. ``word`` is the row's word, ``random`` its random byte at ``Stages.rounded``.
    ``operand`` is a, at TERMS, and ``result`` q, at ``Stages.result``; ``write`` keeps it.
    Decisions that are the same for all lanes are made outside: ``limits`` marks bits at or above
    the highest bit of the width, and ``top`` this highest bit, at ``Stages.result``.
    """

    def __init__(self, index: int, *, lanes: int, parts: int):
        self._index, self._lanes, self._parts = index, lanes, parts
        self._when = when = Stages(parts)
        super().__init__(
            {
                "stages": In(INSTRUCTION_LAYOUT).array(when.count),
                "turns": In(range(THREADS * parts)).array(when.count),
                "constants": In(signed(FACTOR_WIDTH)).array(TERMS + 1),
                "word": In(signed(WORD)),
                "random": In(RANDOM_WIDTH),
                "chained": In(signed(WIDTH)),
                "limits": In(WIDTH),
                "top": In(WIDTH),
                "write": In(1),
                "operand": Out(signed(WIDTH)),
                "result": Out(signed(WIDTH)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        (a, b, c), ports = self._registers(m)
        at = self.stages
        second = Signal(signed(WIDTH))
        first = Signal(signed(WIDTH))
        m.d.comb += [
            first.eq(Mux(at[OPERANDS].memory == Rows.READ, self.word, a)),
            second.eq(Mux(at[OPERANDS].use_k, self.constants[OPERANDS], b)),
        ]
        slope, base = self._table(m, at[OPERANDS].b, first)
        left, right, third = (
            Signal(signed(WIDTH), name=f"{name}_term", reset_less=True)
            for name in ("left", "right", "third")
        )
        amount = Signal(SHIFT_WIDTH, reset_less=True)
        by_a = at[OPERANDS].shift_by == ShiftBy.A
        m.d.sync += [
            left.eq(first),
            right.eq(second),
            third.eq(c),
            amount.eq(Mux(by_a, a, c)[:SHIFT_WIDTH]),
        ]
        m.d.comb += self.operand.eq(left)
        # The result is x + y: x is a product, a comparison or a word, y is the addend.
        x = self._x(m, platform, left, right, slope)
        y = self._y(m, third, base)
        chosen = self._chosen(m, third)
        when = self._when
        shift = Mux(at[TERMS].shift_by == ShiftBy.FIELD, at[TERMS].shift, amount)
        shift = delay_line(m, shift, when.shifted - TERMS + 1, "shift")[-1]
        total = self._sum(m, x, y)
        self._finish(m, *self._shifted(m, total, shift))
        for port in ports:
            m.d.comb += [
                port.en.eq(self.write & at[when.result].keep & chosen),
                port.addr.eq(Cat(self.turns[when.result], at[when.result].d)),
                port.data.eq(self.result),
            ]
        return m

    def _registers(self, m: Module) -> tuple[list[Value], list]:
        """Return registers a, b and c at OPERANDS: a memory each, written alike by these ports."""
        values, ports = [], []
        # Three copies of the register file give three read ports.
        for name in "abc":
            memory = Memory(
                shape=signed(WIDTH), depth=REGISTERS * THREADS * self._parts, init=[],
                attrs={"ram_style": "block"},
            )  # fmt: skip
            m.submodules[f"registers_{name}"] = memory
            reader, writer = memory.read_port(), memory.write_port()
            m.d.comb += reader.addr.eq(Cat(self.turns[0], self.stages[0][name]))
            values.append(reader.data)
            ports.append(writer)
        return values, ports

    def _table(self, m: Module, slot: Value, argument: Value) -> tuple[Value, Value]:
        """Look up slope and base, at TERMS."""
        words = data.StructLayout({"base": signed(WORD_WIDTH), "slope": signed(WORD_WIDTH)})
        m.submodules.table = table = Memory(
            shape=words, depth=SLOTS * ENTRIES, attrs={"ram_style": "block"},
            init=[{"base": base, "slope": slope} for base, slope in table_words()],
        )  # fmt: skip
        reader = table.read_port()
        m.d.comb += reader.addr.eq(Cat(argument[REST_WIDTH:FRACTION], slot))
        return reader.data.slope, reader.data.base

    def _x(self, m: Module, platform, left, right, slope) -> Value:
        """Return the first term, at ``Stages.sum``; ``left`` and ``right`` are valid at TERMS."""
        instruction = self.stages[TERMS]
        is_table, is_product = instruction.kind == Kind.TABLE, instruction.kind == Kind.PRODUCT
        factors = [Signal(signed(FACTOR_WIDTH), name=f"{name}_factor") for name in "ab"]
        m.d.comb += factors[1].eq(
            Mux(is_table, integer(Cat(left[:REST_WIDTH], C(0, 1))), right[:FACTOR_WIDTH])
        )
        with m.If(is_table):  # else the product is 0
            m.d.comb += factors[0].eq(slope)
        with m.Elif(is_product):
            m.d.comb += factors[0].eq(integer(left[:FACTOR_WIDTH]))
        # One multiplier serves both products and tables, whose slope it multiplies with the low
        # bits.
        product = registered_product(m, platform, "product", *factors)
        other, before = (
            Signal(signed(WIDTH), name=name, reset_less=True) for name in ("other", "before")
        )
        m.d.sync += [other.eq(self._other(m, left, right)), before.eq(other)]
        # Two delay lines, although one of their joined terms would do: the registers exist
        # anyway, and a LUT per bit is saved.
        terms = [
            delay_line(m, term, self._when.wait + 1, name)[-1]
            for name, term in (("own_product", product), ("own", before))
        ]
        x = Signal(signed(WIDTH))
        m.d.comb += x.eq(terms[0] | terms[1] | self.chained)  # at most one is not 0
        return x

    def _other(self, m: Module, left: Value, right: Value) -> Value:
        """Return the first term of all kinds except products and common results; 0 for those."""
        kind = self.stages[TERMS].kind
        less, takes_right, both, nothing = (
            Signal(name=name) for name in ("less", "takes_right", "both", "nothing")
        )
        m.d.comb += less.eq(left < right)
        with m.Switch(kind):
            with m.Case(Kind.PASS):
                pass
            with m.Case(Kind.MAXIMUM):
                m.d.comb += takes_right.eq(less)
            with m.Case(Kind.MINIMUM):
                m.d.comb += takes_right.eq(~less)
            with m.Case(Kind.AND):
                m.d.comb += both.eq(1)
            with m.Default():
                m.d.comb += nothing.eq(1)
        # A two-bit selection keeps this at one LUT per bit: left, right, both, or nothing.
        value = Signal(signed(WIDTH))
        with m.Switch(Cat(takes_right | nothing, both | nothing)):
            with m.Case(0b00):
                m.d.comb += value.eq(left)
            with m.Case(0b01):
                m.d.comb += value.eq(right)
            with m.Case(0b10):
                m.d.comb += value.eq(left & right)
        length = bit_length(left.as_unsigned())
        number = Cat(C(self._index, (self._lanes - 1).bit_length()), self.turns[TERMS])
        number = number[: (self._lanes * self._parts - 1).bit_length()]
        return value | Mux(kind == Kind.LENGTH, length, Mux(kind == Kind.LANE, number, 0))

    def _chosen(self, m: Module, third: Value) -> Value:
        """Return whether the condition on register c holds, at ``Stages.result``."""
        zero, negative = third == 0, third[-1]
        holds = Signal()
        with m.Switch(self.stages[TERMS].when):
            with m.Case(When.POSITIVE):
                m.d.comb += holds.eq(~zero & ~negative)
            with m.Case(When.NEGATIVE):
                m.d.comb += holds.eq(negative)
            with m.Case(When.ZERO):
                m.d.comb += holds.eq(zero)
            with m.Default():
                m.d.comb += holds.eq(1)
        return delay_line(m, holds, self._when.result - TERMS + 1, "chosen")[-1]

    def _y(self, m: Module, third: Value, base: Value) -> Value:
        """Return the second term, at ``Stages.sum``; a subtracted term is complemented."""
        instruction = self.stages[TERMS]
        plain = Signal(signed(WIDTH), name="plain", reset_less=True)
        is_table = instruction.kind == Kind.TABLE
        with m.Switch(Mux(is_table, Addend.NOTHING, instruction.addend)):
            with m.Case(Addend.NOTHING):
                m.d.sync += plain.eq(0)
            with m.Case(Addend.PLUS):
                m.d.sync += plain.eq(third)
            with m.Case(Addend.MINUS):
                m.d.sync += plain.eq(~third)
            with m.Default():
                m.d.sync += plain.eq(self.constants[TERMS])
        base_before = Signal.like(base, name="base_before", reset_less=True)
        y = Signal(signed(WIDTH), name="y", reset_less=True)
        of_table = Mux(self.stages[TERMS + 1].kind == Kind.TABLE, base_before, 0)
        m.d.sync += [base_before.eq(base), y.eq(plain | of_table << SLOPE_SHIFT)]
        return delay_line(m, y, self._when.wait + 1, "second")[-1]

    def _sum(self, m: Module, x: Value, y: Value) -> Value:
        """Add x and y, at ``Stages.shifted``."""
        instruction, total = self.stages[self._when.sum], Signal(signed(WIDTH), reset_less=True)
        minus = (instruction.addend == Addend.MINUS) & (instruction.kind != Kind.TABLE)
        m.d.sync += total.eq(
            (Cat(C(1, 1), x) + Cat(minus, y)) >> 1
        )  # minus is the carry into the adder
        return total

    def _shifted(self, m: Module, total: Value, shift: Value) -> tuple[Value, Value]:
        """Return total / 2^shift with BELOW bits below the point, and whether a lower bit is set.

        Both are valid at ``Stages.rounded``.
        """
        value: Value = integer(Cat(C(0, BELOW), total))
        dropped: list[Value] = []
        # A logarithmic shifter, largest distance first. What each stage shifts out is remembered in
        # one bit, since rounding needs to know only whether anything was lost.
        for stage in reversed(range(SHIFT_WIDTH)):
            distance = 1 << stage
            lost = value[: min(distance, len(value))]
            dropped.append(shift[stage] & lost.any())
            to = Signal(signed(len(value)), name=f"shifted_by_{distance}")
            m.d.comb += to.eq(Mux(shift[stage], value >> distance, value))
            value = to
        shifted, sticky = Signal(signed(len(value)), reset_less=True), Signal(reset_less=True)
        m.d.sync += [shifted.eq(value), sticky.eq(Cat(dropped).any())]
        return shifted, sticky

    def _finish(self, m: Module, shifted: Value, sticky: Value) -> None:
        """Round, at ``Stages.rounded``, and saturate, at ``Stages.result``."""
        half, odd = shifted[BELOW - 1], shifted[BELOW]
        addend = Signal(BELOW)
        with m.Switch(self.stages[self._when.rounded].rounding):
            with m.Case(Rounding.FLOOR):
                pass
            with m.Case(Rounding.EVEN):
                up = half & (sticky | shifted[: BELOW - 1].any() | odd)
                m.d.comb += addend[-1].eq(up)
            with m.Case(Rounding.UP):
                m.d.comb += addend[-1].eq(half)
            with m.Default():
                m.d.comb += addend.eq(Cat(C(1, 1), self.random))
        rounded = Signal(signed(WIDTH + 1), reset_less=True)
        m.d.sync += rounded.eq((shifted + addend) >> BELOW)
        wrap, sign = self.stages[self._when.result].wrap, rounded[-1]
        beyond = rounded ^ sign.replicate(len(rounded))
        limits, outside, high = self.limits, Signal(), Signal()
        m.d.comb += [
            outside.eq(~wrap & (beyond & Cat(limits, C(1, 1))).any()),
            high.eq(Mux(wrap, (rounded & self.top).any(), sign)),
        ]
        # The bits in `limits` of a value within the width all equal `high`.
        with m.Switch(Cat(high, outside)):
            with m.Case(0b00):
                m.d.comb += self.result.eq(rounded & ~limits)
            with m.Case(0b01):
                m.d.comb += self.result.eq(rounded | limits)
            with m.Case(0b10):
                m.d.comb += self.result.eq(~limits)
            with m.Default():
                m.d.comb += self.result.eq(limits)
