"""What a board is: data."""

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Part:
    """A device, as much of it as decides what fits."""

    name: str
    family: str
    """``ecp5``: what ``ttforge_hw.multiplier.Target`` knows."""
    luts: int
    multipliers: int
    """Of 18 x 18 bits."""
    block_rams: int
    """Of 16 Kbit, the parity bits of wide words not counted."""
    options: tuple[str, ...]
    """What tells the place-and-route tool which device it is."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """Pins and clock of a board, and what of ttforge is put on it."""

    name: str
    title: str
    part: Part
    package: str
    speed: str
    """Speed grade."""
    clock_pin: str
    clock_hz: int
    """Of the oscillator."""
    rx_pin: str
    """The serial line from the host's bridge."""
    tx_pin: str
    """The serial line to the host's bridge."""
    lamp_pin: str
    """Lit when a run has ended."""
    baud: int
    """The fastest rate that the bridge takes."""
    preset: str
    """Of ``ttforge.parameters.PRESETS``, the default here."""
    memory_bytes: int
    """On-chip memory as the accelerator's memory, with that preset."""
    design_hz: int
    """Clock of the design by default."""
    loader: str
    """What openFPGALoader calls the board."""
    pin_options: str = "IO_TYPE=LVCMOS33"
    note: str = ""


ECP5_85F = Part(
    name="LFE5U-85F",
    family="ecp5",
    luts=83640,
    multipliers=156,
    block_rams=208,
    options=("--85k",),
)
PARTS = MappingProxyType({part.name: part for part in (ECP5_85F,)})
"""By name."""
