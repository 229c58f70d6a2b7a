"""Addresses of a pass's streams, each in the order of its rows."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from trainwright.program.fields import COUNT_WIDTH, LOCAL_WIDTH
from trainwright.program.vector import STREAMS

STREAM_WIDTH = (STREAMS - 1).bit_length()
STREAM_LAYOUT = data.StructLayout(
    {"base": LOCAL_WIDTH, "outer_delta": LOCAL_WIDTH, "inner_delta": LOCAL_WIDTH}
)
"""Layout of a stream in its descriptor."""


class StreamWalker(wiring.Component):
    """Next address of each of ``STREAMS`` streams, in memories of LUTs.

    A cycle of ``load`` starts stream ``number`` at the base of ``stream``, with ``inner`` rows per
    index of the outer level. ``address`` is stream ``number``'s, in the same cycle; ``take`` steps
    the stream. With two ``sides`` each has its own state: the second side's streams are numbers
    ``STREAMS`` and above.
    """

    def __init__(self, *, sides: int = 1):
        self._sides = sides
        super().__init__(
            {
                "load": In(1),
                "stream": In(STREAM_LAYOUT),
                "inner": In(COUNT_WIDTH),
                "number": In(range(STREAMS * sides)),
                "take": In(1),
                "address": Out(LOCAL_WIDTH),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        state = data.StructLayout({"address": LOCAL_WIDTH, "left": COUNT_WIDTH})
        steps = data.StructLayout({"outer": LOCAL_WIDTH, "inner": LOCAL_WIDTH})
        m.submodules.places = places = Memory(shape=state, depth=STREAMS * self._sides, init=[])
        m.submodules.steps = deltas = Memory(shape=steps, depth=STREAMS, init=[])
        place, to = places.read_port(domain="comb"), places.write_port()
        delta, given = deltas.read_port(domain="comb"), deltas.write_port()
        last = Signal()
        m.d.comb += [
            place.addr.eq(self.number),
            delta.addr.eq(self.number[:STREAM_WIDTH]),
            to.addr.eq(self.number),
            given.addr.eq(self.number[:STREAM_WIDTH]),
            given.en.eq(self.load),
            given.data.outer.eq(self.stream.outer_delta),
            given.data.inner.eq(self.stream.inner_delta),
            to.en.eq(self.load | self.take),
            last.eq(place.data.left == 0),
            self.address.eq(place.data.address),
        ]
        step = Mux(last, delta.data.outer, delta.data.inner)
        begin = self.load | last
        m.d.comb += [
            to.data.address.eq(Mux(self.load, self.stream.base, place.data.address + step)),
            to.data.left.eq(Mux(begin, self.inner - 1, place.data.left - 1)),
        ]
        return m
