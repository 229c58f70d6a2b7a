"""The entry of PE1's step: of the factor store, or a row of the scratchpad."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.parameters import AcceleratorParameters
from trainwright_hw.arith.lanes import lane_format
from trainwright_hw.storage.ports import entry_layout, row_layout


class Entry(wiring.Component):
    """``word``, a cycle later: those of ``row`` where ``from_pad``, else ``entry``'s elements,
    sign-extended."""

    def __init__(self, parameters: AcceleratorParameters):
        self._parameters = parameters
        super().__init__(
            {
                "from_pad": In(1),
                "row": In(row_layout(parameters)),
                "entry": In(entry_layout(parameters, parameters.lanes)),
                "word": Out(signed(parameters.word_width)).array(parameters.lanes),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        word, arithmetic = signed(self._parameters.word_width), lane_format(self._parameters)
        for to, element, row in zip(self.word, self.entry, self.row, strict=True):
            stored, chosen = Signal(word), Signal(word, reset_less=True)
            m.d.sync += chosen.eq(Mux(self.from_pad, arithmetic.word(row), stored))
            m.d.comb += [stored.eq(arithmetic.word(element)), to.eq(chosen)]
        return m
