"""The array of PE2 and PE3: outer product of a row with a few scalars, summed over steps."""

import itertools

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ttforge.parameters import AcceleratorParameters
from ttforge_hw.arithmetic import FixedArithmetic
from ttforge_hw.drain import select
from ttforge_hw.multiplier import has_registered_multipliers, registered_product
from ttforge_hw.ports import row_layout

OUTER_CYCLES = 3
"""Cycles from a step at the input to its tile in the drain buffer."""


class OuterProductArray(wiring.Component):
    """``pe2_rows`` x ``lanes`` multiply-accumulators, with a drain buffer.

    In a cycle of ``valid`` a step is taken: ``x_row`` (``lanes`` words) times each of the
    ``pe2_rows`` first words of ``g_row``, all signed. On ``last`` the sums go to the drain buffer,
    where they can be read from ``OUTER_CYCLES`` cycles later on, until the next ``last`` step's
    arrive: ``row`` selects, ``value`` follows in the same cycle. The next step starts new sums. A
    step a cycle, never stalled.
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
        valid = [self.valid, Signal(name="valid_1"), Signal(name="valid_2")]
        last = [self.last, Signal(name="last_1")]
        for flag in (valid, last):
            m.d.sync += [later.eq(earlier) for earlier, later in itertools.pairwise(flag)]

        # Cycle 0: operands to their registers.
        left = [
            Signal(arithmetic.left, name=f"x_{lane}", reset_less=True)
            for lane in range(self._lanes)
        ]
        right = [
            Signal(arithmetic.right, name=f"g_{row}", reset_less=True) for row in range(self._rows)
        ]
        m.d.sync += [left[lane].eq(self.x_row[lane]) for lane in range(self._lanes)]
        m.d.sync += [right[row].eq(self.g_row[row]) for row in range(self._rows)]

        # from reset on, so that all sums start with zero: the accumulators have no other reset
        complete = Signal(init=1)
        m.d.sync += complete.eq(valid[1] & last[1])
        for lane in range(self._lanes):
            drained = []
            for row in range(self._rows):
                accumulator, drain = (
                    Signal(arithmetic.accumulator, name=f"{name}_{row}_{lane}", reset_less=True)
                    for name in ("accumulator", "drain")
                )
                # Cycle 1: product.
                name = f"product_{row}_{lane}"
                if has_registered_multipliers(platform):
                    product = registered_product(
                        m, platform, name, self.x_row[lane], self.g_row[row]
                    )
                else:
                    product = Signal(arithmetic.product, name=name, reset_less=True)
                    m.d.sync += product.eq(arithmetic.multiply(left[lane], right[row]))
                # Cycle 2: sum; a complete one goes to the drain buffer and leaves zero behind.
                total = arithmetic.accumulate(accumulator, product)
                with m.If(complete):
                    m.d.sync += [drain.eq(total), accumulator.eq(0)]
                with m.Elif(valid[2]):
                    m.d.sync += accumulator.eq(total)
                drained.append(drain)
            m.d.comb += self.value[lane].eq(select(drained, self.row))
        return m
