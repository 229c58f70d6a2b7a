"""The array of PE1: dot products of stationary rows with factor-store entries."""

import itertools

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ttforge.parameters import AcceleratorParameters
from ttforge_hw.arithmetic import FixedArithmetic
from ttforge_hw.multiplier import has_registered_multipliers, registered_product
from ttforge_hw.ports import row_layout

DOT_CYCLES = 5
"""Cycles from an entry at the input to its complete sums at the output."""


class DotProductArray(wiring.Component):
    """``pe1_rows`` x ``lanes`` multipliers, an adder tree a row, an accumulator a (row, entry).

    Stationary rows are loaded into a shadow set (``load``: row number ``load_row``, ``row``) and
    all become active in a cycle of ``swap``, which counts for the entry of the same cycle and
    later ones; a row may be loaded in the cycle of a swap, for the swap after.

    In a cycle of ``valid``, ``entry`` (``lanes`` signed words) is entry ``number`` of its step:
    each row gives one dot product, added to the accumulator of (row, number). ``first`` starts new
    sums; on ``last`` they appear ``DOT_CYCLES`` later as ``result_valid`` and ``value``, one of
    each row, with the ``turn`` that the entry had. An entry a cycle, never stalled; the same number
    at most every third cycle. ``coming_number`` and ``coming_turn`` are those of what may appear in
    the next cycle.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._rows = parameters.pe1_rows
        self._lanes = parameters.lanes
        self._arithmetic = FixedArithmetic(
            left_width=parameters.word_width,
            right_width=parameters.word_width,
            accumulator_width=parameters.accumulator_width,
        )
        super().__init__(
            {
                "load": In(1),
                "load_row": In(range(parameters.pe1_rows)),
                "row": In(row_layout(parameters)),
                "swap": In(1),
                "valid": In(1),
                "entry": In(self._arithmetic.right).array(parameters.lanes),
                "number": In(range(parameters.lanes)),
                "first": In(1),
                "last": In(1),
                "turn": In(1),
                "result_valid": Out(1),
                "result_turn": Out(1),
                "coming_number": Out(range(parameters.lanes)),
                "coming_turn": Out(1),
                "value": Out(self._arithmetic.accumulator).array(parameters.pe1_rows),
            }
        )
        self._valid = [self.valid, *(Signal(name=f"valid_{i}") for i in range(1, DOT_CYCLES))]
        self._number = [
            self.number,
            *(Signal.like(self.number, name=f"number_{i}") for i in range(1, DOT_CYCLES)),
        ]
        self._first = [self.first, *(Signal(name=f"first_{i}") for i in range(1, DOT_CYCLES - 1))]
        self._last = [self.last, *(Signal(name=f"last_{i}") for i in range(1, DOT_CYCLES))]
        self._turn = [
            self.turn,
            *(Signal(name=f"turn_{i}") for i in range(1, DOT_CYCLES)),
            self.result_turn,
        ]

    def elaborate(self, platform) -> Module:
        m = Module()
        for stages in (self._valid, self._number, self._first, self._last, self._turn):
            m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(stages)]
        m.d.sync += self.result_valid.eq(self._valid[-1] & self._last[-1])
        m.d.comb += [
            self.coming_number.eq(self._number[-1]),
            self.coming_turn.eq(self._turn[DOT_CYCLES - 1]),
        ]
        # Cycle 0: the entry to its registers.
        entry = [
            Signal.like(element, name=f"g_{i}", reset_less=True)
            for i, element in enumerate(self.entry)
        ]
        m.d.sync += [
            register.eq(element) for register, element in zip(entry, self.entry, strict=True)
        ]
        for row, shadow in enumerate(self._shadow(m)):
            if has_registered_multipliers(platform):
                products = self._registered_products(m, platform, row, shadow)
            else:
                products = self._products(m, row, shadow, entry)
            self._row(m, row, products)
        return m

    def _shadow(self, m: Module) -> list[list[Signal]]:
        """The rows of the next swap."""
        shape = self._arithmetic.left
        rows = []
        for row in range(self._rows):
            names = [f"shadow_{row}_{lane}" for lane in range(self._lanes)]
            rows.append([Signal(shape, name=name, reset_less=True) for name in names])
            with m.If(self.load & (self.load_row == row)):
                m.d.sync += [rows[row][lane].eq(self.row[lane]) for lane in range(self._lanes)]
        return rows

    def _products(
        self, m: Module, row: int, shadow: list[Signal], entry: list[Signal]
    ) -> list[Signal]:
        """Cycle 1: the products of a row, with the active row in registers of its own."""
        arithmetic, products = self._arithmetic, []
        for lane in range(self._lanes):
            name = f"{row}_{lane}"
            active = Signal(arithmetic.left, name=f"active_{name}", reset_less=True)
            product = Signal(arithmetic.product, name=f"product_{name}", reset_less=True)
            with m.If(self.swap):
                m.d.sync += active.eq(shadow[lane])
            m.d.sync += product.eq(arithmetic.multiply(active, entry[lane]))
            products.append(product)
        return products

    def _registered_products(
        self, m: Module, platform, row: int, shadow: list[Signal]
    ) -> list[Signal]:
        """The same; active row, entry and product are registers of the multipliers."""
        return [
            registered_product(
                m,
                platform,
                f"product_{row}_{lane}",
                shadow[lane],
                self.entry[lane],
                left_enable=self.swap,
            )
            for lane in range(self._lanes)
        ]

    def _row(self, m: Module, row: int, products: list[Signal]) -> None:
        arithmetic, lanes = self._arithmetic, self._lanes
        # Cycle 2: sums of four.
        partial = []
        for start in range(0, lanes, 4):
            register = Signal(
                arithmetic.sum_shape(4), name=f"partial_{row}_{start}", reset_less=True
            )
            m.d.sync += register.eq(arithmetic.reduce(products[start : start + 4]))
            partial.append(register)
        # Cycle 3: the dot product; its accumulator is read meanwhile.
        memory = Memory(shape=arithmetic.accumulator, depth=lanes, init=[])
        m.submodules[f"accumulators_{row}"] = memory
        read, write = memory.read_port(domain="comb"), memory.write_port()
        dot = Signal(arithmetic.sum_shape(lanes), name=f"dot_{row}", reset_less=True)
        accumulator = Signal(arithmetic.accumulator, name=f"accumulator_{row}", reset_less=True)
        m.d.comb += read.addr.eq(self._number[3])
        m.d.sync += [
            dot.eq(arithmetic.reduce(partial)),
            accumulator.eq(arithmetic.start(read.data, first=self._first[3])),
        ]
        # Cycle 4: the sum.
        total = Signal(arithmetic.accumulator, name=f"total_{row}")
        m.d.comb += [
            total.eq(arithmetic.accumulate(accumulator, dot)),
            write.addr.eq(self._number[4]),
            write.data.eq(total),
            write.en.eq(self._valid[4]),
        ]
        with m.If(self._valid[4] & self._last[4]):
            m.d.sync += self.value[row].eq(total)
