"""Operands of PE2's step, chosen by registered control."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.storage.ports import row_layout


class Operands(wiring.Component):
    """Registers of both operands, a cycle after their rows.

    ``x_operand`` is ``x``. ``g_operand`` is ``g`` or, where ``by_group``, ``g`` with the words of
    ``group`` in words 0 to ``pe2_rows`` - 1.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        groups = parameters.lanes // parameters.pe2_rows
        row: data.Layout = row_layout(parameters)
        super().__init__(
            {
                "x": In(row),
                "g": In(row),
                "by_group": In(1),
                "group": In(max(1, groups.bit_length() - 1)),
                "x_operand": Out(row),
                "g_operand": Out(row),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        p = self._parameters
        second = Signal.like(self.g_operand)
        x_row, g_row = (Signal.like(self.x_operand, name=f"{n}_row", reset_less=True) for n in "xg")
        width = p.word_width * p.pe2_rows
        m.d.comb += second.eq(self.g)
        with m.If(self.by_group):
            scalars = self.g.as_value().word_select(self.group, width)
            m.d.comb += second.as_value()[:width].eq(scalars)
        m.d.sync += [x_row.eq(self.x), g_row.eq(second)]
        m.d.comb += [self.x_operand.eq(x_row), self.g_operand.eq(g_row)]
        return m
