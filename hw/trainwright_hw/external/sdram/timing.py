"""Requirements of an SDR SDRAM: its size and times, by their names in data sheets."""

import math
from dataclasses import dataclass

CLOCK_NS = {2: 10.0, 3: 7.5}
"""Minimum clock period (tCK) in nanoseconds, by CAS latency."""


@dataclass(frozen=True, kw_only=True)
class SdramCycles:
    """Times of an ``SdramTiming`` in cycles of one clock, rounded up."""

    cas_latency: int
    trcd: int
    trp: int
    tras: int
    trc: int
    trfc: int
    twr: int
    tmrd: int
    trefi: int
    power_up: int
    late_capture: bool
    """Whether read data is sampled at the rising edge that ends its cycle.

    Otherwise it is sampled at the falling edge in the middle of the cycle.
    """


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """Size and minimum times of a chip; times in nanoseconds.

    The defaults are the slowest of the 32 MiB chips on ULX3S boards: MT48LC16M16A2-75,
    IS42S16160G-7, W9825G6KH-6 and AS4C16M16SA-7. Half of a 64 MiB chip is used.
    """

    row_bits: int = 13
    bank_bits: int = 2
    column_bits: int = 9
    data_width: int = 16
    trcd_ns: float = 21.0
    """ACTIVATE to READ or WRITE."""
    trp_ns: float = 21.0
    """PRECHARGE to ACTIVATE or REFRESH."""
    tras_ns: float = 45.0
    """ACTIVATE to PRECHARGE."""
    trc_ns: float = 66.0
    """ACTIVATE to ACTIVATE of the same bank; kept between any two."""
    trfc_ns: float = 70.0
    """REFRESH to any command."""
    twr_ns: float = 15.0
    """Last word of a write to PRECHARGE, and at least two cycles."""
    tmrd_ns: float = 15.0
    """LOAD MODE to any command, and at least two cycles."""
    trefi_ns: float = 64e6 / 8192
    """Average time between two REFRESHes."""
    power_up_ns: float = 200e3
    """Clock and power to the first command."""
    power_up_refreshes: int = 8
    access_ns: float = 6.0
    """tAC: clock to data, at most."""
    hold_ns: float = 2.5
    """tOH: clock to the end of the previous data, at least."""
    round_trip_ns: float = 5.0
    """Delay from the FPGA's clock through pads to the chip and back to the register.

    Estimated from data sheets (buffers of 3.3 V, wires of some centimetres).
    """

    @property
    def memory_bytes(self) -> int:
        """Bytes of the chip that are used."""
        return (1 << (self.row_bits + self.bank_bits + self.column_bits)) * self.data_width // 8

    def cas_latency(self, clock_hz: float) -> int:
        """Return CL, the minimum that the clock allows.

        Raises ``ValueError`` for a faster clock.
        """
        for latency, period in sorted(CLOCK_NS.items()):
            if clock_hz * period <= 1e9:
                return latency
        raise ValueError(
            f"the SDRAM takes a clock of at most {1e3 / min(CLOCK_NS.values()):.0f} MHz, "
            f"not {clock_hz / 1e6:g} MHz"
        )

    def capture_margins(self, clock_hz: float) -> tuple[float, float]:
        """Return the smaller margin in nanoseconds of sampling data at a falling or rising edge.

        The falling edge is in the cycle ``CL`` after the command's; the rising edge ends that
        cycle. The chip's clock is the design's, inverted, so its edges are half a period later.
        """
        period = 1e9 / clock_hz
        begins = -period / 2 + self.access_ns + self.round_trip_ns
        ends = period / 2 + self.hold_ns + self.round_trip_ns
        falling, rising = (min(edge - begins, ends - edge) for edge in (period / 2, period))
        return falling, rising

    def cycles(self, clock_hz: float) -> SdramCycles:
        """Convert the times to cycles.

        Raises ``ValueError`` for a clock that is too fast for the chip.
        """

        def up(ns: float, least: int = 1) -> int:
            return max(least, math.ceil(ns * clock_hz / 1e9 - 1e-6))

        falling, rising = self.capture_margins(clock_hz)
        return SdramCycles(
            cas_latency=self.cas_latency(clock_hz),
            trcd=up(self.trcd_ns),
            trp=up(self.trp_ns),
            tras=up(self.tras_ns),
            trc=up(self.trc_ns),
            trfc=up(self.trfc_ns),
            twr=up(self.twr_ns, 2),
            tmrd=up(self.tmrd_ns, 2),
            trefi=math.floor(self.trefi_ns * clock_hz / 1e9),
            power_up=up(self.power_up_ns),
            late_capture=rising > falling,
        )
