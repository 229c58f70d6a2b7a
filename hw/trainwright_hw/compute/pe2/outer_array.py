"""The array of PE2 and PE3: outer product of a row with a few scalars, summed over steps."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.fixed import FixedArithmetic
from trainwright_hw.arith.multiplier import registered_product
from trainwright_hw.storage.ports import row_layout
from trainwright_hw.stream.delay_line import delay_line, skew
from trainwright_hw.writeback.result_queue import select

OUTER_CYCLES = 3
"""Cycles from a step at the input to its tile in the drain buffer of lane 0."""


class OuterProductArray(wiring.Component):
    """``pe2_rows`` x ``lanes`` multiply-accumulators, with a drain buffer.

    In a cycle of ``valid`` a step is taken: ``x_row`` (``lanes`` words) times each of the
    ``pe2_rows`` first words of ``g_row``, all signed. On ``last`` the sums go to the drain buffer,
    where they can be read from ``OUTER_CYCLES`` cycles later on, until the next ``last`` step's
    arrive: ``row`` selects, ``value`` follows in the same cycle. The next step starts new sums. A
    step a cycle, never stalled.

    Lane n does all this n cycles after lane 0 (``skew``): ``value[n]`` is due n cycles after
    ``value[0]``.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._rows = parameters.pe2_rows
        self._lanes = parameters.lanes
        self._arithmetic = FixedArithmetic(
            left_width=parameters.word_width,
            right_width=parameters.word_width,
            accumulator_width=parameters.accumulator_width,
        )
        super().__init__(
            {
                "valid": In(1),
                "last": In(1),
                "x_row": In(row_layout(parameters)),
                "g_row": In(row_layout(parameters)),
                "row": In(range(parameters.pe2_rows)),
                "value": Out(self._arithmetic.accumulator).array(parameters.lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        arithmetic = self._arithmetic
        # stage n of lane l is stage n + l of lane 0
        valid, last = (
            delay_line(m, flag, OUTER_CYCLES - 1 + self._lanes, name, reset_less=False)
            for name, flag in (("valid", self.valid), ("last", self.last))
        )
        rows = delay_line(m, self.row, self._lanes, "row")
        x_row = skew(m, list(self.x_row), "x_row")
        scalars = delay_line(m, Cat(*list(self.g_row)[: self._rows]), self._lanes, "g_row")
        for lane in range(self._lanes):
            # from reset on, so that all sums start with zero: the accumulators have no other reset
            complete = Signal(init=1, name=f"complete_{lane}")
            m.d.sync += complete.eq(valid[1 + lane] & last[1 + lane])
            left = x_row[lane].as_signed()
            drained = []
            for row in range(self._rows):
                accumulator, drain = (
                    Signal(arithmetic.accumulator, name=f"{name}_{row}_{lane}", reset_less=True)
                    for name in ("accumulator", "drain")
                )
                right = scalars[lane].word_select(row, arithmetic.right.width).as_signed()
                # Cycles 0 and 1: operands to their registers, product.
                name = f"product_{row}_{lane}"
                product = registered_product(
                    m, platform, name, left, right, multiply=arithmetic.multiply
                )
                # Cycle 2: sum; a complete one goes to the drain buffer and leaves zero behind.
                total = arithmetic.accumulate(accumulator, product)
                with m.If(complete):
                    m.d.sync += [drain.eq(total), accumulator.eq(0)]
                with m.Elif(valid[2 + lane]):
                    m.d.sync += accumulator.eq(total)
                drained.append(drain)
            m.d.comb += self.value[lane].eq(select(drained, rows[lane]))
        return m
