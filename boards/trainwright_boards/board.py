"""Describe FPGA boards as data: their parts, pins, clocks and memories."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from trainwright.parameters import preset
from trainwright_hw.external.sdram.timing import SdramTiming

BLOCK, SDRAM = "block", "sdram"
"""Kinds of external memory: block RAM of the part, or an SDRAM chip beside it."""
MEMORIES = (BLOCK, SDRAM)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A device, as much of it as decides what fits."""

    name: str
    family: str
    """Key of ``flow.FAMILIES`` and a family of ``trainwright_hw.arith.multiplier.FAMILIES``."""
    luts: int
    """Number of look-up tables: with 4 inputs, in family ``xc7`` with 6."""
    multipliers: int
    """Number of 18 x 18 bit multipliers (25 x 18 for ``xc7``)."""
    block_rams: int
    """Number of 16 Kbit block RAMs; the parity bits of wide words are not counted."""
    options: tuple[str, ...]
    """Options that tell the place-and-route tool which device it is.

    For parts other than an ECP5, the only option is the beginning of the part's full name, before
    package and speed grade.
    """
    flip_flops_per_lut: int = 1
    multiplier_rows: tuple[tuple[str, ...], ...] = ()
    """Multipliers by the names that the tool gives them, row by row, from left to right."""
    block_ram_rows: tuple[tuple[str, ...], ...] = ()
    """Block RAMs by the names that the tool gives them, row by row, from left to right."""


@dataclass(frozen=True, kw_only=True)
class Sdram:
    """An SDRAM chip on a board."""

    pins: Mapping[str, tuple[str, ...]]
    """Sites of its pins by their names, bit 0 first; the names are those of
    ``trainwright_hw.external.sdram.pads.SdramPins``, and ``dq``."""
    preset: str
    """Default preset with this memory, a name of ``trainwright.parameters.PRESETS``.

    The block RAM that external memory no longer needs is used for a larger scratchpad.
    """
    timing: SdramTiming = field(default_factory=SdramTiming)
    pin_options: str = "PULLMODE=NONE IO_TYPE=LVCMOS33 DRIVE=4 SLEWRATE=FAST"


@dataclass(frozen=True, kw_only=True)
class Board:
    """Pins and clock of a board, and what of trainwright is put on it."""

    name: str
    title: str
    part: Part
    package: str
    speed: str
    """Speed grade."""
    clock_pin: str
    clock_hz: int
    """Frequency of the board's oscillator."""
    rx_pin: str
    """The serial line from the host's bridge."""
    tx_pin: str
    """The serial line to the host's bridge."""
    lamp_pin: str
    """Lit when a run has ended."""
    baud: int
    """The fastest rate that the bridge takes."""
    preset: str
    """Default preset, a name of ``trainwright.parameters.PRESETS``."""
    not_routed: tuple[str, ...] = ()
    """Presets that fit by count, and for which no routing was found with the tools as they come."""
    memory_bytes: int
    """Bytes of on-chip memory that serve as the accelerator's memory, with the default preset."""
    sdram: Sdram | None = None
    """Another memory for the accelerator."""
    design_hz: int
    """Clock of the design by default."""
    loader: str
    """Options of openFPGALoader that name the board, or its cable."""
    pin_options: str = "IO_TYPE=LVCMOS33"
    router: str = "router2"
    """Router of nextpnr: ``router1`` finds ways that ``router2`` does not, but does not end where
    wires are scarce."""
    note: str = ""

    @property
    def unrouted_multipliers(self) -> int | None:
        """Number of multipliers from which on no routing is known to be found, if any.

        Wires are what is lacking then, and their number follows the arrays.
        """
        return min((preset(name).multipliers for name in self.not_routed), default=None)

    def is_unrouted(self, name: str) -> bool:
        """Return whether a preset has as many multipliers as one of ``not_routed``, or more."""
        least = self.unrouted_multipliers
        return least is not None and preset(name).multipliers >= least

    def preset_with(self, memory: str) -> str:
        """Return the default preset with one of the board's memories."""
        return self.sdram.preset if memory == SDRAM and self.sdram else self.preset

    @property
    def memories(self) -> dict[str, int]:
        """Bytes of each of ``MEMORIES`` that it has, the one taken by default first."""
        memories = {BLOCK: self.memory_bytes}
        return (
            memories if self.sdram is None else memories | {SDRAM: self.sdram.timing.memory_bytes}
        )


def _ecp5_multipliers(columns: tuple[int, ...], rows: tuple[int, ...]):
    """Return the sites of the multipliers: four in each block of nine tiles.

    The blocks begin at ``columns``.
    """
    return tuple(
        tuple(f"X{column + n}/Y{row}/MULT18_{n}" for column in columns for n in (0, 1, 4, 5))
        for row in rows
    )


def _ecp5_block_rams(
    columns: tuple[int, ...], rows: tuple[int, ...]
) -> tuple[tuple[str, ...], ...]:
    """Return the sites of the block RAMs: four in every nine columns, 2 apart."""
    return tuple(
        tuple(f"X{column + 2 * n}/Y{row}/EBR{n}" for column in columns for n in range(4))
        for row in rows
    )


_COLUMNS_85F = (*range(4, 59, 9), *range(69, 115, 9))
ECP5_85F = Part(
    name="LFE5U-85F",
    family="ecp5",
    luts=83640,
    multipliers=156,
    block_rams=208,
    options=("--85k",),
    multiplier_rows=_ecp5_multipliers(_COLUMNS_85F, (10, 34, 58)),
    block_ram_rows=_ecp5_block_rams(_COLUMNS_85F, (22, 46, 70, 82)),
)
# no sites: arrays of these parts are small enough to leave to place and route
ECP5_45F = Part(
    name="LFE5U-45F", family="ecp5", luts=43848, multipliers=72, block_rams=108, options=("--45k",)
)
ECP5_25F = Part(
    name="LFE5U-25F", family="ecp5", luts=24288, multipliers=28, block_rams=56, options=("--25k",)
)
# the die of the 25F under another name: the open tools use all of it
ECP5_12F = replace(ECP5_25F, name="LFE5U-12F", options=("--12k",))
ECP5_5G_85F = replace(ECP5_85F, name="LFE5UM5G-85F", options=("--um5g-85k",))
LIFCL_40 = Part(
    name="LIFCL-40",
    family="nexus",
    luts=32256,
    multipliers=56,
    block_rams=84,
    options=("LIFCL-40",),
)
XC7A35T = Part(
    name="XC7A35T",
    family="xc7",
    luts=20800,
    multipliers=90,
    block_rams=100,
    options=("xc7a35ti",),
    flip_flops_per_lut=2,
)
XC7A50T = replace(
    XC7A35T,
    name="XC7A50T",
    luts=32600,
    multipliers=120,
    block_rams=150,
    options=("xc7a50t",),
)
XC7A100T = replace(
    XC7A35T,
    name="XC7A100T",
    luts=63400,
    multipliers=240,
    block_rams=270,
    options=("xc7a100t",),
)
GW5AST_138 = Part(
    name="GW5AST-138C",
    family="gw5a",
    luts=138240,
    multipliers=298,
    block_rams=340,
    options=("GW5AST-LV138",),
)
_PARTS = (
    *(ECP5_12F, ECP5_25F, ECP5_45F, ECP5_85F, ECP5_5G_85F),
    *(LIFCL_40, XC7A35T, XC7A50T, XC7A100T, GW5AST_138),
)
PARTS = MappingProxyType({part.name: part for part in _PARTS})
"""Parts by name."""
