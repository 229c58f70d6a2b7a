"""Stream whose ``ready`` comes from a register, without loss."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class SkidBuffer(wiring.Component):
    """Skid buffer: an item offered at ``i`` appears at ``o`` in the same cycle.

    ``i.ready`` is a register: an item that is not taken at ``o`` in its first cycle is held here,
    and only then is ``i`` told to wait. The source thus does not depend combinationally on the
    sink, and no item is delayed. ``i.valid`` and ``i.payload`` must not depend on ``i.ready``.

    Members: ``i``, ``o``, streams of ``shape``; ``holding``, high while an item is held.
    """

    def __init__(self, shape):
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "holding": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        held = Signal(self.i.payload.shape(), name="held", reset_less=True)
        m.d.comb += [
            self.i.ready.eq(~self.holding),
            self.o.valid.eq(self.i.valid | self.holding),
            self.o.payload.eq(Mux(self.holding, held, self.i.payload)),
        ]
        m.d.sync += self.holding.eq(self.o.valid & ~self.o.ready)
        with m.If(~self.holding):
            m.d.sync += held.eq(self.i.payload)
        return m
