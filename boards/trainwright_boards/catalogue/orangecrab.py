"""OrangeCrab r0.2: an ECP5 without a serial bridge."""

from trainwright_boards.board import ECP5_85F, Board

ORANGECRAB_85F = Board(
    name="orangecrab-85f",
    title="OrangeCrab r0.2 with an LFE5U-85F",
    part=ECP5_85F,
    package="CSFBGA285",
    speed="8",
    clock_pin="A9",
    clock_hz=48_000_000,
    rx_pin="N17",
    tx_pin="M18",
    lamp_pin="M3",
    baud=3_000_000,
    preset="ecp5-85f",
    memory_bytes=1 << 17,
    design_hz=60_000_000,
    loader="-b orangeCrab",
    note="no serial bridge on the board: an adapter of 3.3 V at IO 0 (receives) and IO 1 (sends)",
)
