"""What an SDR SDRAM asks for: its size and times, by the names that data sheets give them."""

import math
from dataclasses import dataclass

CLOCK_NS = {2: 10.0, 3: 7.5}
"""Least clock period (tCK) of each CAS latency."""


@dataclass(frozen=True, kw_only=True)
class SdramCycles:
    """The times of an ``SdramTiming`` in cycles of one clock, rounded up."""

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
    """Whether read data is taken at the rising edge that ends its cycle and not at the falling
    edge in its middle."""


@dataclass(frozen=True, kw_only=True)
class SdramTiming:
    """Size and least times of a chip; times in nanoseconds.

    By default the slowest of the chips of 32 MiB that ULX3S boards carry: MT48LC16M16A2-75,
    IS42S16160G-7, W9825G6KH-6 and AS4C16M16SA-7. A chip of 64 MiB is used by half.
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
    """ACTIVATE to ACTIVATE of a bank; kept between any two."""
    trfc_ns: float = 70.0
    """REFRESH to anything."""
    twr_ns: float = 15.0
    """Last word of a write to PRECHARGE, and two cycles at least."""
    tmrd_ns: float = 15.0
    """LOAD MODE to anything, and two cycles at least."""
    trefi_ns: float = 64e6 / 8192
    """Between two REFRESHes, on average."""
    power_up_ns: float = 200e3
    """Clock and power to the first command."""
    power_up_refreshes: int = 8
    access_ns: float = 6.0
    """tAC: clock to data, at most."""
    hold_ns: float = 2.5
    """tOH: clock to the end of the data before, at least."""
    round_trip_ns: float = 5.0
    """From the FPGA's clock through its pad to the chip, and from there through a pad to the
    register: an estimate from data sheets (buffers of 3.3 V, wires of some centimetres)."""

    @property
    def memory_bytes(self) -> int:
        """Size of the chip as it is used."""
        return (1 << (self.row_bits + self.bank_bits + self.column_bits)) * self.data_width // 8

    def cas_latency(self, clock_hz: float) -> int:
        """CL: the least that the clock allows. Raises ``ValueError`` for one that is too fast."""
        for latency, period in sorted(CLOCK_NS.items()):
            if clock_hz * period <= 1e9:
                return latency
        raise ValueError(
            f"the SDRAM takes a clock of at most {1e3 / min(CLOCK_NS.values()):.0f} MHz, "
            f"not {clock_hz / 1e6:g} MHz"
        )

    def capture_margins(self, clock_hz: float) -> tuple[float, float]:
        """Nanoseconds to spare on the tighter side, with data taken at the falling edge in the
        cycle ``CL`` after the command's, and at the rising edge that ends that cycle.

        The chip's clock is the design's, inverted: its edges lie half a period later.
        """
        period = 1e9 / clock_hz
        begins = -period / 2 + self.access_ns + self.round_trip_ns
        ends = period / 2 + self.hold_ns + self.round_trip_ns
        falling, rising = (min(edge - begins, ends - edge) for edge in (period / 2, period))
        return falling, rising

    def cycles(self, clock_hz: float) -> SdramCycles:
        """The times at a clock. Raises ``ValueError`` for a clock that the chip does not take."""

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
