"""The watchdog: tells a run that hangs from one that takes its time."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

WATCHDOG_WIDTH = 32


class Watchdog(wiring.Component):
    """Counts the cycles in which the sequencer waits and nothing moves.

    Members: ``limit``, how many of them in a row are too many, 0 for any number; ``waiting``, the
    sequencer cannot go on; ``progress``, something moved: a row of the scratchpad, or an address, a
    beat or a response at the memory port. ``expired`` is high from the cycle after the last one too
    many, until either changes.
    """

    def __init__(self):
        super().__init__(
            {
                "limit": In(WATCHDOG_WIDTH),
                "waiting": In(1),
                "progress": In(1),
                "expired": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        count = Signal(WATCHDOG_WIDTH)
        again = Signal()  # from the cycle before: late signals, for many bits
        m.d.sync += again.eq(~self.waiting | self.progress)
        m.d.comb += self.expired.eq((self.limit != 0) & (count == self.limit))
        with m.If(again):
            m.d.sync += count.eq(0)
        with m.Elif(~self.expired):
            m.d.sync += count.eq(count + 1)
        return m
