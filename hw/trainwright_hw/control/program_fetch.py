"""Contents of the program memory, and the descriptors to load next."""

from amaranth.hdl import C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from trainwright.parameters import AcceleratorParameters
from trainwright.program.fields import (
    AHEAD,
    DESCRIPTOR_BYTES,
    LOCAL_WIDTH,
    MOST_REFILL,
    NUMBER_WIDTH,
    REGISTER_WIDTH,
)
from trainwright_hw.control.program_memory import descriptor_beats


class ProgramFetch(wiring.Component):
    """Loader of a program: as much as fits at first, then ``MOST_REFILL`` descriptors at a time.

    Descriptor n is at place ``origin`` + n modulo the depth of the memory. Executed descriptors are
    overwritten by following ones, except for the bodies of loops in progress. If the program runs
    ``more`` times, the last descriptor is followed by the first one, of which at most ``AHEAD``
    descriptors are loaded. ``again`` announces that the program begins again, while no descriptors
    are in flight.

    Members: ``start``, with ``address`` and ``length`` of the program; ``number``, the present
    descriptor; ``needed``, the first that may be executed again; ``written``, the last beat of a
    descriptor is written. ``missing``: the present descriptor is not loaded. ``wanted``: there are
    descriptors to load and room for them, namely ``portion``, from byte ``source`` on, to
    ``local``, in beats of the memory; ``taken``: LOAD accepted this request. ``first``: no request
    of this program was accepted yet.
    """

    def __init__(self, parameters: AcceleratorParameters):
        self.parameters = parameters
        super().__init__(
            {
                "start": In(1),
                "address": In(REGISTER_WIDTH),
                "length": In(NUMBER_WIDTH),
                "number": In(NUMBER_WIDTH),
                "needed": In(NUMBER_WIDTH),
                "written": In(1),
                "missing": Out(1),
                "wanted": Out(1),
                "first": Out(1, init=1),
                "portion": Out(NUMBER_WIDTH),
                "source": Out(REGISTER_WIDTH),
                "local": Out(LOCAL_WIDTH),
                "taken": In(1),
                "more": In(1),
                "again": In(1),
                "origin": Out(exact_log2(parameters.program_depth)),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        depth = self.parameters.program_depth
        refill = min(MOST_REFILL, depth)
        asked, loaded = Signal(NUMBER_WIDTH), Signal(NUMBER_WIDTH, name="there")
        left = Signal(NUMBER_WIDTH)  # not yet requested, of this pass over the program
        places = (self.origin + asked)[: exact_log2(depth)]
        shift = exact_log2(descriptor_beats(self.parameters))
        m.d.comb += [
            self.missing.eq(loaded == self.number),
            self.local.eq(Cat(C(0, shift), places)),
        ]
        held = Signal(NUMBER_WIDTH)
        next_time = Signal()  # requests are for the next pass
        most = Mux(next_time, min(AHEAD, depth) - refill, depth - refill)
        m.d.comb += held.eq(asked - self.needed)
        with m.If(self.start):
            m.d.sync += [
                asked.eq(0),
                loaded.eq(0),
                self.first.eq(1),
                self.wanted.eq(0),
                next_time.eq(0),
                left.eq(self.length),
                self.source.eq(self.address),
                self.portion.eq(_least(self.length, depth)),
            ]
        # The numbers restart, and the origin moves, so that places stay the same.
        with m.Elif(self.again):
            m.d.sync += [
                asked.eq(asked - self.length),
                loaded.eq(loaded - self.length),
                self.origin.eq(self.origin + self.length),
                next_time.eq(0),
            ]
        with m.Elif(self.taken):
            m.d.sync += [
                asked.eq(asked + self.portion),
                left.eq(left - self.portion),
                self.source.eq(self.source + self.portion * DESCRIPTOR_BYTES),
                self.first.eq(0),
                self.wanted.eq(0),
            ]
        with m.Elif(~self.first & (left == 0) & self.more):
            m.d.sync += [left.eq(self.length), self.source.eq(self.address), next_time.eq(1)]
        with m.Elif(~self.first):
            m.d.sync += [
                self.wanted.eq((held <= most) & (left != 0)),
                self.portion.eq(_least(left, refill)),
            ]
        with m.If(~self.start & ~self.again & self.written):
            m.d.sync += loaded.eq(loaded + 1)
        return m


def _least(value: Value, limit: int) -> Value:
    return Mux(value < limit, value, limit)
