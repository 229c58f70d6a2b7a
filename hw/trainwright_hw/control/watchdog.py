"""The watchdog: distinguishes a run that hangs from a slow one."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

WATCHDOG_WIDTH = 32


class Watchdog(wiring.Component):
    """Counter of cycles in which the sequencer waits and nothing moves.

    Members: ``limit``, the number of such cycles in a row that is too many, 0 for no limit;
    ``waiting``, the sequencer cannot proceed; ``progress``, something moved: a row of the
    scratchpad, or an address, a beat or a response at the memory port. ``expired`` is high from the
    cycle after the limit until either input changes.
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
        again = Signal()  # registered: late signals that drive a wide counter
        m.d.sync += again.eq(~self.waiting | self.progress)
        m.d.comb += self.expired.eq((self.limit != 0) & (count == self.limit))
        with m.If(again):
            m.d.sync += count.eq(0)
        with m.Elif(~self.expired):
            m.d.sync += count.eq(count + 1)
        return m
