"""Counts of a row of results: its sum of magnitudes, and the number of flags set."""

from collections.abc import Mapping

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.format import LaneFormat


def row_flags(arithmetic: LaneFormat) -> Mapping[str, str]:
    """Map each count to the lane flag that it counts."""
    underflows = {"underflows": "underflow"} if arithmetic.underflows else {}
    return {"saturations": "saturated", **underflows}


class RowSums(wiring.Component):
    """Sums of a row's magnitudes and flags, three cycles after the row, a row per cycle.

    ``sum`` adds the magnitudes of ``word``; each of ``flags`` counts the lanes where its flag is
    set.
    """

    def __init__(self, parameters: AcceleratorParameters, *, arithmetic: LaneFormat):
        self._lanes = lanes = parameters.lanes
        self._word_width = width = parameters.result_width
        self._arithmetic = arithmetic
        self.flags = row_flags(arithmetic)
        super().__init__(
            {
                "word": In(signed(width)).array(lanes),
                **{flag: In(1).array(lanes) for flag in self.flags.values()},
                "sum": Out(width + 4),
                **dict.fromkeys(self.flags, Out(lanes.bit_length())),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        magnitudes = []
        for lane, word in enumerate(self.word):
            # the magnitude of the most negative word needs all its bits
            magnitude = Signal(self._word_width, name=f"magnitude_{lane}", reset_less=True)
            m.d.sync += magnitude.eq(self._arithmetic.magnitude(word))
            magnitudes.append(magnitude)
        self._in_two_steps(m, magnitudes, "sum", self.sum)
        for name, flag in self.flags.items():
            held = []
            for lane, bit in enumerate(getattr(self, flag)):
                held.append(Signal(name=f"{flag}_{lane}", reset_less=True))
                m.d.sync += held[-1].eq(bit)
            self._in_two_steps(m, held, flag, getattr(self, name))
        return m

    def _in_two_steps(self, m: Module, values: list[Signal], name: str, total: Signal) -> None:
        """Sum a row: four lanes in the first cycle, all in the second."""
        quarters = []
        for start in range(0, self._lanes, 4):
            quarter = Signal(len(values[0]) + 2, name=f"{name}_from_{start}", reset_less=True)
            m.d.sync += quarter.eq(sum(values[start : start + 4]))
            quarters.append(quarter)
        m.d.sync += total.eq(sum(quarters))
