"""Radiona ULX3S: an ECP5 with an FT231X as the serial bridge, and an SDRAM of 32 MiB."""

from dataclasses import replace
from types import MappingProxyType

from trainwright_boards.board import ECP5_12F, ECP5_25F, ECP5_45F, ECP5_85F, Board, Sdram

ULX3S_SDRAM = Sdram(
    preset="ecp5-85f-sdram",
    pins=MappingProxyType(
        {
            "clk": ("F19",),
            "cke": ("F20",),
            "cs_n": ("P20",),
            "ras_n": ("R20",),
            "cas_n": ("T19",),
            "we_n": ("T20",),
            "ba": ("P19", "N20"),
            "a": tuple("M20 M19 L20 L19 K20 K19 K18 J20 J19 H20 N19 G20 G19".split()),
            "dqm": ("U19", "E20"),
            "dq": tuple("J16 L18 M18 N18 P18 T18 T17 U20 E19 D20 D19 C20 E18 F18 J18 J17".split()),
        }
    ),
)

ULX3S_85F = Board(
    name="ulx3s-85f",
    title="Radiona ULX3S with an LFE5U-85F",
    part=ECP5_85F,
    package="CABGA381",
    speed="6",
    clock_pin="G2",
    clock_hz=25_000_000,
    rx_pin="M1",
    tx_pin="L4",
    lamp_pin="B2",
    baud=3_000_000,
    preset="ecp5-85f",
    memory_bytes=1 << 17,
    sdram=ULX3S_SDRAM,
    design_hz=60_000_000,
    loader="-b ulx3s",
)
ULX3S_45F = replace(
    ULX3S_85F,
    name="ulx3s-45f",
    title="Radiona ULX3S with an LFE5U-45F",
    part=ECP5_45F,
    preset="lfe5u-25f",
    sdram=replace(ULX3S_SDRAM, preset="lfe5u-25f"),
    memory_bytes=1 << 16,
)
ULX3S_25F = replace(
    ULX3S_45F,
    name="ulx3s-25f",
    title="Radiona ULX3S with an LFE5U-25F",
    part=ECP5_25F,
    memory_bytes=1 << 14,
)
ULX3S_12F = replace(
    ULX3S_25F, name="ulx3s-12f", title="Radiona ULX3S with an LFE5U-12F", part=ECP5_12F
)
