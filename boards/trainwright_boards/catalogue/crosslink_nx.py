"""Lattice CrossLink-NX evaluation board: an LIFCL-40 with an FT2232H as the serial bridge."""

from trainwright_boards.board import LIFCL_40, Board

CROSSLINK_NX_EVN = Board(
    name="crosslink-nx-evn",
    title="Lattice CrossLink-NX evaluation board with an LIFCL-40",
    part=LIFCL_40,
    package="BG400C",
    speed="9",
    clock_pin="L13",
    clock_hz=12_000_000,
    rx_pin="F16",
    tx_pin="F18",
    lamp_pin="E17",
    baud=3_000_000,
    preset="lfe5u-25f",
    memory_bytes=1 << 16,
    design_hz=12_000_000,
    loader="-b crosslinknx_evn",
    # router2 of nextpnr-nexus 0.11.1 finds no way from the clock's pin to its buffer.
    router="router1",
    note="jumper JP2 for the clock, and 0 ohm in place of the serial line's open resistors; the "
    "lamp goes out when a run has ended",
)
