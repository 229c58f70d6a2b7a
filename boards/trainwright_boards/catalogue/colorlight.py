"""Colorlight i9 and i9+: modules that sit on an extension board with a serial bridge."""

from trainwright_boards.board import ECP5_45F, XC7A50T, Board

NOTE = "serial line of the extension board; the module's SDRAM of 32 bits is not used"
COLORLIGHT_I9 = Board(
    name="colorlight-i9",
    title="Colorlight i9 v7.2 with an LFE5U-45F",
    part=ECP5_45F,
    package="CABGA381",
    speed="6",
    clock_pin="P3",
    clock_hz=25_000_000,
    rx_pin="H18",
    tx_pin="J17",
    lamp_pin="L2",
    baud=921_600,
    preset="lfe5u-25f",
    memory_bytes=1 << 17,
    design_hz=60_000_000,
    loader="-b colorlight-i9",
    note=f"{NOTE}; the lamp goes out when a run has ended",
)
COLORLIGHT_I9PLUS = Board(
    name="colorlight-i9plus",
    title="Colorlight i9+ v6.1 with an XC7A50T",
    part=XC7A50T,
    package="fgg484",
    speed="1",
    clock_pin="K4",
    clock_hz=25_000_000,
    rx_pin="T4",
    tx_pin="R2",
    lamp_pin="A18",
    baud=921_600,
    preset="lfe5u-25f",
    memory_bytes=1 << 17,
    design_hz=60_000_000,
    loader="-b colorlight-i9+",
    pin_options="LVCMOS33",
    note=NOTE,
)
