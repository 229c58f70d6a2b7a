"""Array of PE2: outer product of a row with a few scalars, summed over steps."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.format import LaneFormat
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.arith.select import select
from trainwright_hw.stream.delay_line import delay_line, skew


def outer_cycles(arithmetic: LaneFormat) -> int:
    """Return the cycles from a step at the input to its tile in lane 0's drain buffer."""
    return arithmetic.product_cycles + 1


class OuterProductArray(wiring.Component):
    """Array of ``pe2_rows`` x ``lanes`` multiply-accumulators, with a drain buffer.

    In a cycle of ``valid`` a step is taken: ``x_row`` (``lanes`` words) times each of the first
    ``pe2_rows`` words of ``g_row``, all signed. With narrow words a step of ``digit`` first
    multiplies the sums so far by 2^``DIGIT_WIDTH``. On ``last`` the sums go to the drain buffer,
    readable from ``outer_cycles`` cycles later until the next ``last`` step's sums arrive: ``row``
    selects, and ``value`` follows in the same cycle. The next step starts new sums. Accepts a step
    per cycle, never stalled.

    Lane n does all of this n cycles after lane 0 (``skew``): ``value[n]`` is due n cycles after
    ``value[0]``.

    ``arithmetic`` (by default the accelerator's) defines words, products and sums; operands arrive
    decoded.
    """

    def __init__(self, parameters: AcceleratorParameters, *, arithmetic: LaneFormat | None = None):
        self._rows = parameters.pe2_rows
        self._lanes = parameters.lanes
        self._arithmetic = arithmetic or lane_format(parameters)
        super().__init__(
            {
                "valid": In(1),
                "last": In(1),
                **({"digit": In(1)} if parameters.narrow else {}),
                "x_row": In(data.ArrayLayout(self._arithmetic.left.width, parameters.lanes)),
                "g_row": In(data.ArrayLayout(self._arithmetic.right.width, parameters.lanes)),
                "row": In(range(parameters.pe2_rows)),
                "value": Out(self._arithmetic.accumulator).array(parameters.lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        arithmetic = self._arithmetic
        summed = arithmetic.product_cycles
        # All lanes share one delay line per control signal: stage n of lane l is stage n + l of
        # lane 0.
        valid, last = (
            delay_line(m, flag, summed + self._lanes, name, reset_less=False)
            for name, flag in (("valid", self.valid), ("last", self.last))
        )
        digit = None
        if "digit" in self.signature.members:
            digit = delay_line(m, self.digit, summed + self._lanes, "digit", reset_less=False)
        rows = delay_line(m, self.row, self._lanes, "row")
        x_row = skew(m, list(self.x_row), "x_row")
        scalars = delay_line(m, Cat(*list(self.g_row)[: self._rows]), self._lanes, "g_row")
        shape = arithmetic.right
        for lane in range(self._lanes):
            # High from reset on, so that all sums start at zero: accumulators have no other reset.
            complete = Signal(init=1, name=f"complete_{lane}")
            m.d.sync += complete.eq(valid[summed - 1 + lane] & last[summed - 1 + lane])
            left = arithmetic.operand(x_row[lane])
            rights = [
                arithmetic.operand(scalars[lane].word_select(row, shape.width))
                for row in range(self._rows)
            ]
            drained, products = [], []
            for row in range(self._rows):
                accumulator, drain = (
                    Signal(arithmetic.accumulator, name=f"{name}_{row}_{lane}", reset_less=True)
                    for name in ("accumulator", "drain")
                )
                # Cycles 0 and 1: operands to their registers, product.
                products = products or self._products(m, platform, row, lane, left, rights)
                product = products.pop(0)
                # Cycle 2: sum; a complete sum moves to the drain buffer and leaves zero behind.
                so_far = arithmetic.start(
                    accumulator, digit=None if digit is None else digit[summed + lane]
                )
                total = arithmetic.accumulate(so_far, product)
                with m.If(complete):
                    m.d.sync += [drain.eq(total), accumulator.eq(arithmetic.zero)]
                with m.Elif(valid[summed + lane]):
                    m.d.sync += accumulator.eq(total)
                drained.append(drain)
            m.d.comb += self.value[lane].eq(select(drained, rows[lane]))
        return m

    def _products(
        self, m: Module, platform, row: int, lane: int, left: Value, rights: list[Value]
    ) -> list[Signal]:
        """Multiply a row; if a multiplier makes two products, also the next row.

        All products of a lane share ``left``.
        """
        arithmetic, name = self._arithmetic, f"product_{row}_{lane}"
        if arithmetic.sharing(platform, len(left)) > 1:
            return arithmetic.multiply_pair(m, platform, name, rights[row : row + 2], left)
        spare = row % 2 == 1
        return [arithmetic.multiply(m, platform, name, left, rights[row], spare=spare)]
