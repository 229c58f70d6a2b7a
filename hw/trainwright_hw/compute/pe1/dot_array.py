"""Array of PE1: dot products of stationary rows with entries."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.format import LaneFormat
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.stream.delay_line import delay_line

SUM_CYCLES = 3
"""Cycles from products to a complete sum."""


def dot_cycles(arithmetic: LaneFormat) -> int:
    """Return the cycles from an entry at the input to row 0's complete sum at the output."""
    return arithmetic.product_cycles + SUM_CYCLES


class DotProductArray(wiring.Component):
    """Array of ``pe1_rows`` x ``lanes`` multipliers, with an adder tree per row.

    Every (row, entry) has an accumulator.

    Stationary rows are loaded into a shadow set (``load``: row number ``load_row``, ``row``). All
    of them become active in a cycle of ``swap``, for the entry of the same cycle and later ones. A
    row loaded in the cycle of a swap belongs to the next swap.

    In a cycle of ``valid``, ``entry`` (``lanes`` signed words) is entry ``number`` of its step:
    each row computes one dot product, added to the accumulator of (row, number). ``first`` starts
    new sums; with narrow words ``digit`` first multiplies the sums so far by 2^``DIGIT_WIDTH``. The
    sums appear ``dot_cycles`` later as ``value``, one per row, complete if the step is the last of
    its reduction. Accepts an entry per cycle, never stalled; the same number may return at most
    every third cycle, because of the accumulators' latency.

    Row r does all of this r cycles after row 0 (``skew``): ``value[r]`` is due r cycles after
    ``value[0]``.

    ``arithmetic`` (by default the accelerator's) defines words, products and sums; operands arrive
    decoded.
    """

    def __init__(self, parameters: AcceleratorParameters, *, arithmetic: LaneFormat | None = None):
        self._rows = parameters.pe1_rows
        self._lanes = parameters.lanes
        self._arithmetic = arithmetic or lane_format(parameters)
        super().__init__(
            {
                "load": In(1),
                "load_row": In(range(parameters.pe1_rows)),
                "row": In(data.ArrayLayout(self._arithmetic.left.width, parameters.lanes)),
                "swap": In(1),
                "valid": In(1),
                "entry": In(self._arithmetic.right).array(parameters.lanes),
                "number": In(range(parameters.lanes)),
                "first": In(1),
                **({"digit": In(1)} if parameters.narrow else {}),
                "value": Out(self._arithmetic.accumulator).array(parameters.pe1_rows),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        # All rows share one delay line per signal: stage n of row r is stage n + r of row 0.
        stages = dot_cycles(self._arithmetic) + self._rows - 1
        self._valid, self._number, self._first = (
            delay_line(m, getattr(self, name), stages, name, reset_less=False)
            for name in ("valid", "number", "first")
        )
        self._digit = None
        if "digit" in self.signature.members:
            self._digit = delay_line(m, self.digit, stages, "digit", reset_less=False)
        width = self._arithmetic.right.width
        # A device whose multipliers make two products with one operand serves two rows at a time:
        # the second row's result waits the cycle by which the row lags.
        together = self._arithmetic.sharing(platform, width)
        swap = delay_line(m, self.swap, self._rows, "swap", reset_less=False)
        entries = delay_line(m, Cat(*self.entry), self._rows, "entry")
        # The shadow set lets the next rows arrive while the present ones compute: a step costs no
        # cycle for its stationary operand.
        shadow, products = self._shadow(m, together), []
        for row in range(self._rows):
            words = [entries[row].word_select(n, width) for n in range(self._lanes)]
            entry = [self._arithmetic.operand(word) for word in words]
            if not products:
                rows = shadow[row : row + together]
                # The first row of a pair builds the products of both; the second row takes its own
                # from the list.
                products = self._products(m, platform, row, swap[row], rows, entry)
            self._row(m, row, products.pop(0))
        return m

    def _shadow(self, m: Module, together: int) -> list[list[Signal]]:
        """Keep the rows of the next swap; ``together`` rows load when the first of them does."""
        shape = self._arithmetic.left
        load = delay_line(m, self.load, self._rows, "load", reset_less=False)
        number = delay_line(m, self.load_row, self._rows, "load_row")
        passed = delay_line(m, self.row.as_value(), self._rows, "row")
        rows = []
        for row in range(self._rows):
            names = [f"shadow_{row}_{lane}" for lane in range(self._lanes)]
            rows.append([Signal(shape, name=name, reset_less=True) for name in names])
            first = row - row % together
            with m.If(load[first] & (number[first] == row)):
                m.d.sync += Cat(*rows[row]).eq(passed[first])
        return rows

    def _products(
        self,
        m: Module,
        platform,
        row: int,
        swap: Value,
        rows: list[list[Signal]],
        entry: list[Value],
    ) -> list[list[Value]]:
        """Multiply a row in cycles 0 and 1, from registers of the active row and the entry.

        If a multiplier makes two products, return the next row's products too, delayed by the cycle
        that the row lags behind.
        """
        products: list[list[Value]] = [[] for _ in rows]
        for lane in range(self._lanes):
            name, lefts = f"product_{row}_{lane}", [shadow[lane] for shadow in rows]
            if len(rows) == 1:
                products[0].append(
                    self._arithmetic.multiply(
                        m,
                        platform,
                        name,
                        lefts[0],
                        entry[lane],
                        left_enable=swap,
                        # Odd rows may use logic in place of a multiplier on devices that have few.
                        spare=row % 2 == 1,
                    )
                )
                continue
            pair = self._arithmetic.multiply_pair(
                m, platform, name, lefts, entry[lane], enable=swap
            )
            for behind, product in enumerate(pair):
                products[behind].append(delay_line(m, product, behind + 1, f"{name}_late")[-1])
        return products

    def _row(self, m: Module, row: int, products: list[Value]) -> None:
        arithmetic, lanes = self._arithmetic, self._lanes
        dotted = arithmetic.product_cycles + 1 + row  # cycle of the dot product
        # Cycle 2: sums of four.
        partial = []
        for start in range(0, lanes, 4):
            register = Signal(
                arithmetic.sum_shape(4), name=f"partial_{row}_{start}", reset_less=True
            )
            m.d.sync += register.eq(arithmetic.reduce(products[start : start + 4]))
            partial.append(register)
        # The read of the accumulator overlaps the adder tree, so that accumulation adds one cycle.
        # Cycle 3: the dot product; its accumulator is read meanwhile.
        memory = Memory(shape=arithmetic.accumulator, depth=lanes, init=[])
        m.submodules[f"accumulators_{row}"] = memory
        read, write = memory.read_port(domain="comb"), memory.write_port()
        dot = Signal(arithmetic.sum_shape(lanes), name=f"dot_{row}", reset_less=True)
        accumulator = Signal(arithmetic.accumulator, name=f"accumulator_{row}", reset_less=True)
        m.d.comb += read.addr.eq(self._number[dotted])
        m.d.sync += [
            dot.eq(arithmetic.reduce(partial)),
            accumulator.eq(
                arithmetic.start(
                    read.data,
                    first=self._first[dotted],
                    digit=None if self._digit is None else self._digit[dotted],
                )
            ),
        ]
        # Cycle 4: the sum.
        total = Signal(arithmetic.accumulator, name=f"total_{row}")
        m.d.comb += [
            total.eq(arithmetic.accumulate(accumulator, dot)),
            # Written back in the cycle in which the sum is registered: hence a number may return at
            # most every third cycle.
            write.addr.eq(self._number[dotted + 1]),
            write.data.eq(total),
            write.en.eq(self._valid[dotted + 1]),
        ]
        m.d.sync += self.value[row].eq(total)
