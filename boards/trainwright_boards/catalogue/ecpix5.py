"""LambdaConcept ECPIX-5: an ECP5-5G with an FT2232H as the serial bridge."""

from trainwright_boards.board import ECP5_5G_85F, Board

ECPIX5_85F = Board(
    name="ecpix5-85f",
    title="LambdaConcept ECPIX-5 with an LFE5UM5G-85F",
    part=ECP5_5G_85F,
    package="CABGA554",
    speed="8",
    clock_pin="K23",
    clock_hz=100_000_000,
    rx_pin="R26",
    tx_pin="R24",
    lamp_pin="U21",
    baud=3_000_000,
    preset="ecp5-85f",
    memory_bytes=1 << 17,
    design_hz=60_000_000,
    loader="-b ecpix5",
    note="the lamp, red of LD5, goes out when a run has ended; its DDR3 is not used",
)
