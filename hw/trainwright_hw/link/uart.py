"""Asynchronous serial line: 8 data bits, least significant first, no parity, one stop bit."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

LEAST_DIVISOR = 4
MOST_ERROR = 0.02
"""Maximum error of a bit's length, as a ratio.

Half a bit at the end of ten bits is 5 %, which both sides share.
"""


def divisor(clock_hz: float, baud: int) -> int:
    """Return the cycles per bit. Raises ``ValueError`` if the clock cannot produce the rate."""
    cycles = round(clock_hz / baud)
    if cycles < LEAST_DIVISOR or abs(clock_hz / cycles / baud - 1) > MOST_ERROR:
        raise ValueError(
            f"a clock of {clock_hz / 1e6:g} MHz gives no {baud} baud within {MOST_ERROR:.0%}"
        )
    return cycles


def _check(cycles: int) -> None:
    if cycles < LEAST_DIVISOR:
        raise ValueError(f"divisor must be at least {LEAST_DIVISOR}, not {cycles!r}")


class UartReceiver(wiring.Component):
    """Receiver of bytes.

    Members: ``line``, already synchronised, high when idle; ``valid`` is high for one cycle with
    each ``byte``. A byte without a stop bit is dropped.
    """

    def __init__(self, *, divisor: int):
        _check(divisor)
        self._divisor = divisor
        super().__init__({"line": In(1, init=1), "valid": Out(1), "byte": Out(8)})

    def elaborate(self, platform) -> Module:
        m = Module()
        timer = Signal(range(self._divisor + self._divisor // 2))
        bits = Signal(range(10))  # bits to come, the stop bit included
        with m.If(bits == 0):
            with m.If(~self.line):
                # wait for the middle of the first data bit; the edge is in this cycle
                m.d.sync += [bits.eq(9), timer.eq(self._divisor + self._divisor // 2 - 1)]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [bits.eq(bits - 1), timer.eq(self._divisor - 1)]
            with m.If(bits != 1):
                m.d.sync += self.byte.eq(Cat(self.byte[1:], self.line))
        m.d.sync += self.valid.eq((bits == 1) & (timer == 0) & self.line)
        return m


class UartTransmitter(wiring.Component):
    """Sender of bytes.

    Members: ``bytes``, a stream; ``line``, high when idle, from a register.
    """

    def __init__(self, *, divisor: int):
        _check(divisor)
        self._divisor = divisor
        super().__init__({"bytes": In(stream.Signature(8)), "line": Out(1, init=1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        timer = Signal(range(self._divisor))
        bits = Signal(range(11))
        shift = Signal(9, init=0x1FF)
        m.d.comb += self.bytes.ready.eq(bits == 0)
        with m.If(bits == 0):
            with m.If(self.bytes.valid):
                m.d.sync += [
                    self.line.eq(0),
                    shift.eq(Cat(self.bytes.payload, 1)),
                    bits.eq(10),
                    timer.eq(self._divisor - 1),
                ]
        with m.Elif(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.Else():
            m.d.sync += [
                bits.eq(bits - 1),
                timer.eq(self._divisor - 1),
                self.line.eq(shift[0]),
                shift.eq(Cat(shift[1:], 1)),
            ]
        return m
