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
    multiplier_rows: tuple[tuple[str, ...], ...] = ()
    """Its multipliers by that tool's names, a row after the other, each from left to right."""


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


def _ecp5_multipliers(columns: tuple[int, ...], rows: tuple[int, ...]):
    """Four of 18 x 18 bits in each block of nine tiles; blocks begin at ``columns``."""
    return tuple(
        tuple(f"X{column + n}/Y{row}/MULT18_{n}" for column in columns for n in (0, 1, 4, 5))
        for row in rows
    )


ECP5_85F = Part(
    name="LFE5U-85F",
    family="ecp5",
    luts=83640,
    multipliers=156,
    block_rams=208,
    options=("--85k",),
    multiplier_rows=_ecp5_multipliers((*range(4, 59, 9), *range(69, 115, 9)), (10, 34, 58)),
)
PARTS = MappingProxyType({part.name: part for part in (ECP5_85F,)})
"""By name."""
