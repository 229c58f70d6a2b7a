"""Radiona ULX3S: an ECP5 with an FT231X as the serial bridge."""

from ttforge_boards.board import ECP5_85F, Board

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
    design_hz=45_000_000,
    loader="ulx3s",
)
