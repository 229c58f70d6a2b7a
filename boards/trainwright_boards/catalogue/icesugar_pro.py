"""Muselab iCESugar-pro: an ECP5 with an iCELink as the serial bridge, and an SDRAM of 32 MiB."""

from types import MappingProxyType

from trainwright_boards.board import ECP5_25F, Board, Sdram
from trainwright_hw.external.sdram.timing import SdramTiming

ICESUGAR_PRO = Board(
    name="icesugar-pro",
    title="Muselab iCESugar-pro with an LFE5U-25F",
    part=ECP5_25F,
    package="CABGA256",
    speed="6",
    clock_pin="P6",
    clock_hz=25_000_000,
    rx_pin="A9",
    tx_pin="B9",
    lamp_pin="A11",
    baud=921_600,
    preset="lfe5u-25f",
    memory_bytes=1 << 14,
    sdram=Sdram(
        preset="lfe5u-25f",
        # IS42S16160B-7: slower here than the chips of ULX3S boards
        timing=SdramTiming(trc_ns=67.5, access_ns=6.5),
        pins=MappingProxyType(
            {
                "clk": ("R15",),
                "cke": ("L16",),
                "cs_n": ("A14",),
                "ras_n": ("B16",),
                "cas_n": ("G16",),
                "we_n": ("A15",),
                "ba": ("G15", "B14"),
                "a": tuple("H15 B13 B12 J16 J15 R12 K16 R13 T13 K15 A13 R14 T14".split()),
                "dqm": ("C16", "T15"),
                "dq": tuple(
                    "F16 E15 F15 D14 E16 C15 D16 B15 R16 P16 P15 N16 N14 M16 M15 L15".split()
                ),
            }
        ),
    ),
    design_hz=60_000_000,
    # openFPGALoader has no name for the board, and finds its iCELink by these USB identifiers
    loader="-c cmsisdap --vid=0x1d50 --pid=0x602b",
    note="the lamp goes out when a run has ended",
)
