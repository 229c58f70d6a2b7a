"""Counters of a run: cycles, busy engines, stalls, bytes."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from trainwright.accelerator.registers import COUNTER_NAMES

COUNTER_WIDTH = 64
COUNTERS = tuple([name.replace("bytes", "beats") for name in COUNTER_NAMES])
"""Counters in the order of the register map, which shows beats as bytes."""


class Events(wiring.Signature):
    """Bits, one per counter, that count the cycle."""

    def __init__(self):
        super().__init__({name: Out(1) for name in COUNTERS})


class Values(wiring.Signature):
    """Values of all counters."""

    def __init__(self):
        super().__init__({name: Out(COUNTER_WIDTH) for name in COUNTERS})


class Counters(wiring.Component):
    """Counters of the cycles in which each event is high, three cycles behind the events.

    Members: ``clear``, the only reset of the counts; ``events``; ``values``.
    """

    def __init__(self):
        super().__init__(
            {
                "clear": In(1),
                "events": In(Events()),
                "values": Out(Values()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for name in COUNTERS:
            # Two registers: events end long paths, and they drive 64 bits of a counter.
            seen, event = Signal(name=f"{name}_seen"), Signal(name=f"{name}_event")
            m.d.sync += [seen.eq(getattr(self.events, name)), event.eq(seen)]
            count = Signal(COUNTER_WIDTH, name=name, reset_less=True)
            m.d.comb += getattr(self.values, name).eq(count)
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            with m.Elif(event):
                m.d.sync += count.eq(count + 1)
        return m
