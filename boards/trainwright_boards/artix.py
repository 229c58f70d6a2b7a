"""The top of a design on an Artix-7: an MMCM makes its clock."""

from dataclasses import dataclass
from fractions import Fraction

from amaranth.hdl import C, Instance, Module, Signal

from trainwright_boards.pll import MOST_ERROR
from trainwright_boards.top import CLOCK, BoardTop
from trainwright_hw.soc import Soc

DETECTOR_HZ = (10_000_000, 450_000_000)
"""Range of the input clock after its divider, for all speed grades."""
OSCILLATOR_HZ = (600_000_000, 1_200_000_000)
"""Range of the MMCM's oscillator for speed grades 1 and 1L, the slowest."""
INPUT_DIVIDERS, MULTIPLIERS, OUTPUT_DIVIDERS = range(1, 107), range(2, 65), range(1, 129)


@dataclass(frozen=True)
class MmcmSettings:
    """Whole dividers of an MMCME2: the output is ``input * multiplier / divider / output``."""

    divider: int
    multiplier: int
    output: int
    output_hz: float


def mmcm_settings(input_hz: int, output_hz: int) -> MmcmSettings:
    """Return the settings with the closest clock; among equals, the fastest oscillator.

    Raises ``ValueError`` where no setting comes within ``MOST_ERROR``.
    """
    candidates: dict[tuple[Fraction, int], MmcmSettings] = {}
    for divider in INPUT_DIVIDERS:
        if not DETECTOR_HZ[0] <= input_hz / divider <= DETECTOR_HZ[1]:
            continue
        for multiplier in MULTIPLIERS:
            oscillator = Fraction(input_hz * multiplier, divider)
            output = max(1, round(oscillator / output_hz))
            if OSCILLATOR_HZ[0] <= oscillator <= OSCILLATOR_HZ[1] and output in OUTPUT_DIVIDERS:
                clock_hz = oscillator / output
                key = abs(clock_hz - output_hz), -int(oscillator)
                candidates.setdefault(
                    key, MmcmSettings(divider, multiplier, output, float(clock_hz))
                )
    best = candidates[min(candidates)] if candidates else None
    if best is None or abs(best.output_hz / output_hz - 1) > MOST_ERROR:
        raise ValueError(
            f"no MMCM setting gives {output_hz / 1e6:g} MHz from {input_hz / 1e6:g} MHz within "
            f"{MOST_ERROR:.0%}"
        )
    return best


class ArtixTop(BoardTop):
    """A system behind an MMCM; its lock releases the reset through a synchroniser."""

    def __init__(self, soc: Soc, mmcm: MmcmSettings, input_hz: int):
        super().__init__(soc)
        self._mmcm, self._input_hz = mmcm, input_hz

    def clocking(self, m: Module, clock: Signal) -> Signal:
        """Drive the clock from the MMCM, and return the MMCM's lock."""
        settings, locked = self._mmcm, Signal()
        feedback, raw = Signal(), Signal()
        m.submodules.mmcm = Instance(
            "MMCME2_BASE",
            p_CLKIN1_PERIOD=1e9 / self._input_hz,
            p_DIVCLK_DIVIDE=settings.divider,
            p_CLKFBOUT_MULT_F=float(settings.multiplier),
            p_CLKOUT0_DIVIDE_F=float(settings.output),
            i_CLKIN1=self.ports[CLOCK],
            i_CLKFBIN=feedback,
            i_RST=C(0),
            i_PWRDWN=C(0),
            o_CLKFBOUT=feedback,
            o_CLKOUT0=raw,
            o_LOCKED=locked,
        )
        m.submodules.buffer = Instance("BUFG", i_I=raw, o_O=clock)
        return locked
