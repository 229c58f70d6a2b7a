"""Which descriptors the program memory holds, and which are to be loaded next."""

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
    """Loads a program, as much as fits at first, then ``MOST_REFILL`` descriptors at a time.

    Descriptor n lies at place ``origin`` + n modulo the depth of the memory. What was executed
    gives way to what follows, but for the bodies of loops that are not left. What follows the last
    descriptor is the first one, if the program runs ``more`` times: ``AHEAD`` descriptors are there
    then at most. ``again`` says that it begins, when none are on their way.

    Members: ``start``, with ``address`` and ``length`` of the program; ``number``, the present
    descriptor; ``needed``, the first that may be executed again; ``written``, the last beat of a
    descriptor is written. ``missing``: the present descriptor is not there. ``wanted``: there are
    descriptors to load and room for them, namely ``portion``, from byte ``source`` on, to
    ``local``, in beats of the memory; ``taken``: LOAD was told so. ``first``: it was not told of
    this program yet.
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
        asked, there = Signal(NUMBER_WIDTH), Signal(NUMBER_WIDTH)
        left = Signal(NUMBER_WIDTH)  # to be asked for, until the program begins again
        places = (self.origin + asked)[: exact_log2(depth)]
        shift = exact_log2(descriptor_beats(self.parameters))
        m.d.comb += [
            self.missing.eq(there == self.number),
            self.local.eq(Cat(C(0, shift), places)),
        ]
        held = Signal(NUMBER_WIDTH)
        next_time = Signal()  # what is asked for now
        most = Mux(next_time, min(AHEAD, depth) - refill, depth - refill)
        m.d.comb += held.eq(asked - self.needed)
        with m.If(self.start):
            m.d.sync += [
                asked.eq(0),
                there.eq(0),
                self.first.eq(1),
                self.wanted.eq(0),
                next_time.eq(0),
                left.eq(self.length),
                self.source.eq(self.address),
                self.portion.eq(_least(self.length, depth)),
            ]
        with m.Elif(self.again):
            m.d.sync += [
                asked.eq(asked - self.length),
                there.eq(there - self.length),
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
            m.d.sync += there.eq(there + 1)
        return m


def _least(value: Value, limit: int) -> Value:
    return Mux(value < limit, value, limit)
