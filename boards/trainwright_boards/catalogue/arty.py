"""Digilent Arty A7: an Artix-7 with an FT2232H as the serial bridge."""

from dataclasses import replace

from trainwright_boards.board import XC7A35T, XC7A100T, Board

ARTY_A7_35T = Board(
    name="arty-a7-35t",
    title="Digilent Arty A7-35T with an XC7A35T",
    part=XC7A35T,
    package="csg324",
    speed="1L",
    clock_pin="E3",
    clock_hz=100_000_000,
    rx_pin="A9",
    tx_pin="D10",
    lamp_pin="H5",
    baud=3_000_000,
    preset="lfe5u-25f",
    memory_bytes=1 << 16,
    design_hz=60_000_000,
    loader="-b arty_a7_35t",
    pin_options="LVCMOS33",
    note="its DDR3 is not used",
)
ARTY_A7_100T = replace(
    ARTY_A7_35T,
    name="arty-a7-100t",
    title="Digilent Arty A7-100T with an XC7A100T",
    part=XC7A100T,
    speed="1",
    preset="gw5ast-138c",
    memory_bytes=1 << 17,
    loader="-b arty_a7_100t",
)
