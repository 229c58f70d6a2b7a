"""A lane of the vector engine: registers, multiplier, table, shifter, rounding, saturation."""

from collections.abc import Sequence

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.fixed.random_bits import RANDOM_WIDTH
from trainwright.onchip.tables import ENTRIES, FRACTION, REST_WIDTH, SLOPE_SHIFT, WORD_WIDTH
from trainwright.onchip.vector_tables import SLOTS, table_words
from trainwright.program.vector import (
    FACTOR_WIDTH,
    INSTRUCTION,
    REGISTERS,
    THREADS,
    WIDTH,
    Addend,
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

INSTRUCTION_LAYOUT = data.StructLayout(dict(INSTRUCTION))
THREAD_WIDTH = (THREADS - 1).bit_length()
WORD = 16
"""Bits of a word of a row."""
STAGES = THREADS
"""Cycles from an instruction's issue for a thread to that for which its result can be read."""
OPERANDS, TERMS, SUM, SHIFTED, ROUNDED, RESULT = 1, 2, 4, 5, 6, 7
"""Cycles after the issue: operands are there; are in registers; terms, sum, shifted and rounded
value are in registers."""
BELOW = RANDOM_WIDTH + 1
"""Bits that are kept below the point for rounding."""
SHIFT_WIDTH = 6

assert SUM == TERMS + PRODUCT_CYCLES and RESULT == STAGES - 1


def bit_length(value: Value) -> Value:
    """Bits of an unsigned value: the position of its highest one, from 1."""
    size = 1 << (len(value) - 1).bit_length()
    if size == 1:
        return value
    half = size // 2
    low, high = value[:half], value[half:]
    above = high.any()
    of_low, of_high = bit_length(low), bit_length(high)
    return Mux(above, of_high + half, of_low)[: half.bit_length() + 1]


class Lane(wiring.Component):
    """One lane; ``index`` is its number.

    Instructions come as ``stages``: ``stages[n]`` is that of the thread whose cycle n it is, with
    its ``threads[n]``; ``constants[n]`` the constant that it names (n up to TERMS); ``chained``, at
    SUM, what the lanes gave together, 0 where they did not. ``word`` is the row's, ``random`` the
    byte of the row at ROUNDED. ``operand`` is a, at TERMS, and ``result`` q, at RESULT; ``write``
    keeps it. What is the same for all lanes is decided outside: ``limits``, whether a bit is at or
    above the highest of the width, and ``top``, whether it is that one, at RESULT.
    """

    def __init__(self, index: int):
        self._index = index
        super().__init__(
            {
                "stages": In(INSTRUCTION_LAYOUT).array(STAGES),
                "threads": In(THREAD_WIDTH).array(STAGES),
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
        x = self._x(m, platform, left, right, slope)
        y = self._y(m, third, base)
        chosen = self._chosen(m, third)
        shift = Mux(at[TERMS].shift_by == ShiftBy.FIELD, at[TERMS].shift, amount)
        shift = delay_line(m, shift, SHIFTED - TERMS + 1, "shift")[-1]
        total = self._sum(m, x, y)
        self._finish(m, *self._shifted(m, total, shift))
        for port in ports:
            m.d.comb += [
                port.en.eq(self.write & at[RESULT].keep & chosen),
                port.addr.eq(Cat(self.threads[RESULT], at[RESULT].d)),
                port.data.eq(self.result),
            ]
        return m

    def _registers(self, m: Module) -> tuple[list[Value], list]:
        """Registers a, b and c, at OPERANDS: a memory each, all written alike, by these ports."""
        values, ports = [], []
        for name in "abc":
            memory = Memory(
                shape=signed(WIDTH), depth=REGISTERS * THREADS, init=[],
                attrs={"ram_style": "block"},
            )  # fmt: skip
            m.submodules[f"registers_{name}"] = memory
            reader, writer = memory.read_port(), memory.write_port()
            m.d.comb += reader.addr.eq(Cat(self.threads[0], self.stages[0][name]))
            values.append(reader.data)
            ports.append(writer)
        return values, ports

    def _table(self, m: Module, slot: Value, argument: Value) -> tuple[Value, Value]:
        """Slope and base, at TERMS."""
        words = data.StructLayout({"base": signed(WORD_WIDTH), "slope": signed(WORD_WIDTH)})
        m.submodules.table = table = Memory(
            shape=words, depth=SLOTS * ENTRIES, attrs={"ram_style": "block"},
            init=[{"base": base, "slope": slope} for base, slope in table_words()],
        )  # fmt: skip
        reader = table.read_port()
        m.d.comb += reader.addr.eq(Cat(argument[REST_WIDTH:FRACTION], slot))
        return reader.data.slope, reader.data.base

    def _x(self, m: Module, platform, left, right, slope) -> Value:
        """The first term, at SUM; ``left`` and ``right`` are there at TERMS."""
        one = self.stages[TERMS]
        is_table, is_product = one.kind == Kind.TABLE, one.kind == Kind.PRODUCT
        factors = [Signal(signed(FACTOR_WIDTH), name=f"{name}_factor") for name in "ab"]
        m.d.comb += factors[1].eq(
            Mux(is_table, integer(Cat(left[:REST_WIDTH], C(0, 1))), right[:FACTOR_WIDTH])
        )
        with m.If(is_table):  # else the product is 0
            m.d.comb += factors[0].eq(slope)
        with m.Elif(is_product):
            m.d.comb += factors[0].eq(integer(left[:FACTOR_WIDTH]))
        product = registered_product(m, platform, "product", *factors)
        other, before = (
            Signal(signed(WIDTH), name=name, reset_less=True) for name in ("other", "before")
        )
        m.d.sync += [other.eq(self._other(m, left, right)), before.eq(other)]
        x = Signal(signed(WIDTH))
        m.d.comb += x.eq(product | before | self.chained)  # at most one of them is not 0
        return x

    def _other(self, m: Module, left: Value, right: Value) -> Value:
        """The first term of all kinds but products and those of all lanes; 0 there."""
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
        value = Signal(signed(WIDTH))
        with m.Switch(Cat(takes_right | nothing, both | nothing)):
            with m.Case(0b00):
                m.d.comb += value.eq(left)
            with m.Case(0b01):
                m.d.comb += value.eq(right)
            with m.Case(0b10):
                m.d.comb += value.eq(left & right)
        length = bit_length(left.as_unsigned())
        return value | Mux(kind == Kind.LENGTH, length, Mux(kind == Kind.LANE, self._index, 0))

    def _chosen(self, m: Module, third: Value) -> Value:
        """Whether the condition on register c holds, at RESULT."""
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
        return delay_line(m, holds, RESULT - TERMS + 1, "chosen")[-1]

    def _y(self, m: Module, third: Value, base: Value) -> Value:
        """The second term, at SUM; of what is subtracted the complement."""
        one = self.stages[TERMS]
        plain = Signal(signed(WIDTH), name="plain", reset_less=True)
        is_table = one.kind == Kind.TABLE
        with m.Switch(Mux(is_table, Addend.NOTHING, one.addend)):
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
        return y

    def _sum(self, m: Module, x: Value, y: Value) -> Value:
        """x + y, at SHIFTED."""
        one, total = self.stages[SUM], Signal(signed(WIDTH), reset_less=True)
        minus = (one.addend == Addend.MINUS) & (one.kind != Kind.TABLE)
        m.d.sync += total.eq((Cat(C(1, 1), x) + Cat(minus, y)) >> 1)  # minus is the chain's carry
        return total

    def _shifted(self, m: Module, total: Value, shift: Value) -> tuple[Value, Value]:
        """total / 2^shift with BELOW bits below the point, and whether any further one is set; at
        ROUNDED."""
        value: Value = integer(Cat(C(0, BELOW), total))
        dropped: list[Value] = []
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
        """Rounding, at ROUNDED, and saturation, at RESULT."""
        half, odd = shifted[BELOW - 1], shifted[BELOW]
        addend = Signal(BELOW)
        with m.Switch(self.stages[ROUNDED].rounding):
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
        wrap, sign = self.stages[RESULT].wrap, rounded[-1]
        beyond = rounded ^ sign.replicate(len(rounded))
        limits, outside, high = self.limits, Signal(), Signal()
        m.d.comb += [
            outside.eq(~wrap & (beyond & Cat(limits, C(1, 1))).any()),
            high.eq(Mux(wrap, (rounded & self.top).any(), sign)),
        ]
        # Of a value that is not beyond them the bits in `limits` are `high`.
        with m.Switch(Cat(high, outside)):
            with m.Case(0b00):
                m.d.comb += self.result.eq(rounded & ~limits)
            with m.Case(0b01):
                m.d.comb += self.result.eq(rounded | limits)
            with m.Case(0b10):
                m.d.comb += self.result.eq(~limits)
            with m.Default():
                m.d.comb += self.result.eq(limits)


def combined(m: Module, values: Sequence[Value], greatest: Value, wanted: Value) -> Value:
    """The sum of the lanes' values modulo 2^WIDTH, or the greatest; two cycles later.

    ``greatest`` is that of the values' cycle; where ``wanted``, a cycle later, is 0, it is 0.
    """
    level: list[Value] = list(values)
    middle = (len(level).bit_length() - 1) // 2
    number = 0
    while len(level) > 1:
        joined = []
        for place, (a, b) in enumerate(zip(level[::2], level[1::2], strict=True)):
            to = Signal(signed(WIDTH), name=f"joined_{number}_{place}", reset_less=True)
            source = to.eq(Mux(greatest, Mux(a > b, a, b), a + b))
            if number == middle - 1:
                m.d.sync += source
            else:
                m.d.comb += source
            joined.append(to)
        if number == middle - 1:
            greatest = delay_line(m, greatest, 2, "greatest")[-1]
        level, number = joined, number + 1
    total = Signal(signed(WIDTH), reset_less=True)
    m.d.sync += total.eq(Mux(wanted, level[0], 0))
    return total
