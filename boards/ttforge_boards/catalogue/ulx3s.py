"""Radiona ULX3S: an ECP5 with an FT231X as the serial bridge."""

from dataclasses import replace

from ttforge_boards.board import ECP5_12F, ECP5_85F, Board

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
    preset="ulx3s-85f",
    memory_bytes=1 << 17,
    design_hz=75_000_000,
    loader="ulx3s",
)
ULX3S_12F = replace(
    ULX3S_85F,
    name="ulx3s-12f",
    title="Radiona ULX3S with an LFE5U-12F",
    part=ECP5_12F,
    preset="ulx3s-12f",
    memory_bytes=1 << 15,
    design_hz=50_000_000,
)
